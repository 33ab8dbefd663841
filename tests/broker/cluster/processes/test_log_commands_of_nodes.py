"""`fencepost log` and `fencepost users` on the data directory of a broker of several processes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.broker.cluster.processes.node_directories import node_directory
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.cli.commands import fencepost
from tests.broker.cluster.processes.members import NAMES, Members, orders_on_two


def run(*arguments: str) -> Result:
    return CliRunner().invoke(fencepost, arguments, prog_name="fencepost")


async def stopped(members: Members) -> dict[int, list[TopicPartition]]:
    """Write to partitions of two nodes and stop both; what each of them has led."""
    await orders_on_two(members)
    led = {node_id: [name for name in NAMES if members.leader_id(name) == node_id] for node_id in (1, 2)}
    nodes = list(members.nodes)
    await asyncio.gather(*(members.members[node_id].rest() for node_id in nodes))
    for node_id in nodes:
        await members.stop(node_id)
    return led


async def test_verify_reads_the_directories_of_all_nodes(members: Members) -> None:
    led = await stopped(members)
    result = await asyncio.to_thread(run, "log", "verify", "--data-dir", members.directory)
    assert result.exit_code == 0, result.output
    assert result.stdout.count("nothing is wrong") == 2
    result = await asyncio.to_thread(run, "log", "verify", "--data-dir", members.directory, "--json")
    document = json.loads(result.stdout)
    assert document["healthy"]
    found = {node["data_directory"]: [one["partition"] for one in node["partitions"]] for node in document["nodes"]}
    assert found == {node_directory(members.directory, node_id): [*map(str, led[node_id])] for node_id in (1, 2)}


async def test_damage_is_found_and_repaired_where_the_partition_is(members: Members) -> None:
    led = await stopped(members)
    name = led[2][0]
    path = Path(node_directory(members.directory, 2)) / str(name) / "00000000000000000000.log"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    options = ("--data-dir", members.directory, str(name))
    damaged = await asyncio.to_thread(run, "log", "verify", *options)
    assert damaged.exit_code == 1
    assert f"{name}/00000000000000000000.log" in damaged.stdout
    repaired = await asyncio.to_thread(run, "log", "repair", "--accept-loss", *options)
    assert repaired.exit_code == 0, repaired.output
    assert (await asyncio.to_thread(run, "log", "verify", *options)).exit_code == 0
    shown = await asyncio.to_thread(run, "log", "dump", *options)
    assert str(path) in shown.stdout
    missing = await asyncio.to_thread(run, "log", "verify", "--data-dir", members.directory, "orders-99", str(name))
    assert "there is no partition orders-99" in missing.stderr


async def test_a_single_nodes_directory_may_be_named(members: Members) -> None:
    await stopped(members)
    directory = node_directory(members.directory, 1)
    result = await asyncio.to_thread(run, "log", "verify", "--data-dir", directory)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("command", [("users", "list"), ("users", "set", "alice", "--password", "secret-of-alice")])
async def test_users_are_refused_in_words_where_processes_share_the_directory(
    members: Members, command: tuple[str, ...]
) -> None:
    await stopped(members)
    result = await asyncio.to_thread(run, *command, "--data-dir", members.directory)
    assert result.exit_code == 1
    assert "belongs to a broker of several processes" in result.stderr
    assert "use --bootstrap" in result.stderr
