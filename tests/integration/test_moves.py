"""Moves and drains of a broker of several processes, as an operator asks for them, while clients transact."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from scripts.apache_kafka import KAFKA_VERSION
from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.support.broker_process import BrokerProcess
from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read, write
from tests.support.conditions import noted, until
from tests.support.missing_tools import missing, require_tool

pytestmark = pytest.mark.integration


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcesses]:
    with BrokerProcesses(tmp_path / "data", 3, settings=SETTINGS) as broker:
        create(broker.bootstrap, "orders")
        yield broker


def cluster(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(
        fencepost, ["cluster", *arguments, "--bootstrap", broker.bootstrap], prog_name="fencepost"
    )


def shown(broker: BrokerProcess, *arguments: str) -> list[dict[str, Any]]:
    result = cluster(broker, *arguments, "--json")
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)
    return rows


def test_transactions_lose_nothing_while_partitions_move_and_nodes_drain(broker: BrokerProcesses) -> None:
    transactions = Transactions(broker.bootstrap, 4)

    def go_on() -> None:
        before = len(transactions.committed)
        until(lambda: len(transactions.committed) > before + 20)

    try:
        with noted(lambda: broker.output):
            go_on()
            for node_id in broker.node_ids:
                drained = cluster(broker, "drain", str(node_id), "--wait")
                assert drained.exit_code == 0, drained.output
                assert drained.stdout == f"node {node_id} leads nothing any more\n"
                until(lambda: node_id not in leaders(broker.bootstrap))  # noqa: B023  # called at once
                go_on()
                assert cluster(broker, "drain", str(node_id), "--resume", "--wait").exit_code == 0
                for partition in range(5):
                    moved = cluster(broker, "move", "orders", str(partition), "--to", str(node_id), "--wait")
                    assert moved.stdout == f"orders-{partition} is led by {node_id}\n", moved.output
                until(lambda: leaders(broker.bootstrap)[:5] == [node_id] * 5)  # noqa: B023  # called at once
                go_on()
    finally:
        transactions.stop()
    transactions.check(read(broker.bootstrap))
    assert broker.output.count("log_recovered") == 0, "a planned move leaves nothing to recover"


def test_the_tables_tell_who_is_there_and_who_leads_what(broker: BrokerProcesses) -> None:
    nodes = shown(broker, "nodes")
    assert [(node["node"], node["state"]) for node in nodes] == [(1, "alive"), (2, "alive"), (3, "alive")]
    assert [node["listeners"] for node in nodes] == [[f"PLAINTEXT://{broker.address(each)}"] for each in (1, 2, 3)]
    assert sum(node["leads"] for node in nodes) == PARTITIONS
    of_second = shown(broker, "partitions", "--node", "2")
    assert [row["partition"] for row in of_second] == [
        number for number, leader in enumerate(leaders(broker.bootstrap)) if leader == 2
    ]
    assert {(row["topic"], row["leader"], row["chosen"], row["state"]) for row in of_second} == {
        ("orders", 2, None, "led")
    }
    partition = of_second[0]["partition"]
    assert cluster(broker, "move", "orders", str(partition), "--to", "3", "--wait").exit_code == 0
    (moved,) = (row for row in shown(broker, "partitions", "orders") if row["partition"] == partition)
    assert (moved["leader"], moved["chosen"], moved["state"]) == (3, 3, "led")
    assert moved["epoch"] == of_second[0]["epoch"] + 1
    given_back = cluster(broker, "move", "orders", str(partition), "--to", "any", "--wait")
    assert "the cluster chooses again" in given_back.stdout
    until(lambda: leaders(broker.bootstrap)[partition] == 2)
    again = cluster(broker, "move", "orders", str(partition), "--to", "any")
    assert again.stdout == f"nobody has chosen who leads orders-{partition}; nothing changed\n"


MISTAKES = (
    (("move", "orders", "0", "--to", "9"), "there is no node 9; the nodes are 1, 2, 3"),
    (("move", "orders", "99", "--to", "1"), "Unable to find partition orders:99"),
    (("move", "nothing", "0", "--to", "1"), "Unable to find a topic named nothing"),
    (("move", "orders", "0", "--to", "first"), "'first' is no node id; `fencepost cluster nodes` shows them"),
    (("drain", "9"), "there is no node 9; the nodes are 1, 2, 3"),
    (("partitions", "nothing"), "UNKNOWN_TOPIC_OR_PARTITION"),
)


def test_mistakes_are_named(broker: BrokerProcesses) -> None:
    for arguments, words in MISTAKES:
        result = cluster(broker, *arguments)
        assert result.exit_code != 0, arguments
        assert words in result.stderr


def test_a_process_that_gets_sigterm_hands_over_and_comes_back(broker: BrokerProcesses) -> None:
    write(broker.bootstrap, ["a"])
    stopped = broker.process_of(2)
    os.kill(stopped, signal.SIGTERM)
    broker.wait_for_another(2, than=stopped)
    until(lambda: set(leaders(broker.bootstrap)) == {1, 2, 3})
    write(broker.bootstrap, ["b"])
    found = read(broker.bootstrap)
    assert (len(found["a"]), len(found["b"])) == (PARTITIONS, PARTITIONS)
    assert "partitions_left=0" in broker.output
    assert "node_taken_over" not in broker.output
    assert "log_recovered" not in broker.output
    os.kill(broker.process_of(1), signal.SIGTERM)  # as a service manager does, which signals all processes
    assert broker.terminate() == 0


def test_a_broker_of_one_process_has_nobody_to_hand_over_to(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        create(broker.bootstrap, "orders")
        (node,) = shown(broker, "nodes")
        assert (node["node"], node["state"], node["leads"]) == (1, "alive", PARTITIONS)
        refused = cluster(broker, "drain", "1")
        assert "no other node is alive that could lead what node 1 hands over" in refused.stderr
        configs = ["configs", "broker", "1", "--set", "fencepost.drain=true", "--bootstrap", broker.bootstrap]
        assert "this broker is the only one" in CliRunner().invoke(fencepost, configs).stderr
        assert cluster(broker, "move", "orders", "0", "--to", "1").stdout == "orders-0 is led by 1\n"
        assert "there is no node 2; the nodes are 1" in cluster(broker, "move", "orders", "0", "--to", "2").stderr


def test_kafkas_own_tool_moves_partitions_and_sees_that_they_have_moved(
    broker: BrokerProcesses, tmp_path: Path
) -> None:
    found = leaders(broker.bootstrap)
    wanted = [found[partition] % 3 + 1 for partition in range(4)]
    plan = tmp_path / "plan.json"
    partitions = [{"topic": "orders", "partition": number, "replicas": [node]} for number, node in enumerate(wanted)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    executed = reassign(broker, "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignments for orders-0,orders-1,orders-2,orders-3" in executed
    until(lambda: leaders(broker.bootstrap)[:4] == wanted)
    verified = reassign(broker, "--verify", "--reassignment-json-file", str(plan))
    assert verified.count("is completed.") == 4, verified
    assert "No partition reassignments found." in reassign(broker, "--list")


def reassign(broker: BrokerProcesses, *arguments: str) -> str:
    """Run kafka-reassign-partitions.sh, without its script."""
    require_tool("java")
    try:
        jars = ":".join(class_path((artifact, KAFKA_VERSION)) for artifact in ("kafka-tools", "kafka_2.13"))
    except NotHereError as error:
        missing(str(error))
    command = ["java", "-cp", jars, "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"]
    command += ["--bootstrap-server", broker.bootstrap, *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout
