"""`fencepost cluster` on brokers of several machines: all there, one dead, one drained."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from tests.support.clients_of_processes import SETTINGS
from tests.support.conditions import until
from tests.support.machines import Machines

pytestmark = pytest.mark.integration


@pytest.fixture
def machine_settings() -> Mapping[str, str]:
    """Leases are long enough for a busy machine: what is shown of brokers that live must not change meanwhile."""
    return {**SETTINGS, "fencepost.cluster.lease.ms": "9000"}


def run(machines: Machines, *arguments: str) -> Result:
    """Run a command with the address of node 1, which stays alive."""
    arguments = ("cluster", *arguments, "--bootstrap", machines[1].bootstrap)
    return CliRunner().invoke(fencepost, arguments, prog_name="fencepost")


def shown(machines: Machines, *arguments: str) -> Any:
    result = run(machines, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def states(machines: Machines) -> dict[int, str]:
    return {row["node"]: row["state"] for row in shown(machines, "nodes")}


def refused(machines: Machines, *arguments: str) -> str:
    result = run(machines, *arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


def test_commands_go_on_without_a_node_that_has_died(machines: Machines) -> None:
    described = shown(machines, "info")
    assert [(one["broker"], one["state"]) for one in described["brokers"]] == [(1, "alive"), (2, "alive"), (3, "alive")]
    assert [one["broker"] for one in described["disks"]] == [1, 2, 3]

    machines[2].kill()  # within its lease it counts as alive, and does not answer
    until(lambda: states(machines) == {1: "alive", 2: "gone", 3: "alive"})

    described = shown(machines, "info")
    (gone,) = [one for one in described["brokers"] if one["state"] == "gone"]
    assert (gone["broker"], gone["address"]) == (2, None)
    assert [(one["broker"], one["error"]) for one in described["disks"]] == [(1, None), (3, None)]
    assert ":-1" not in run(machines, "info").stdout
    until(lambda: {row["leader"] for row in shown(machines, "partitions", "orders")} == {1, 3})
    until(lambda: not shown(machines, "partitions", "--node", "2"))
    # Clients still hear of the node that is gone; nobody waits for it.
    assert run(machines, "move", "orders", "0", "--to", "3", "--wait").stdout == "orders-0 is led by 3\n"
    assert "node 2 is gone, since 20" in refused(machines, "move", "orders", "0", "--to", "2")
    assert "there is no node 9; the nodes are 1, 2, 3" in refused(machines, "move", "orders", "0", "--to", "9")
    assert "node 2 is gone and leads nothing" in refused(machines, "drain", "2")
    drained = run(machines, "drain", "3", "--wait")
    assert drained.stdout == "node 3 leads nothing any more\n", drained.output
    until(lambda: states(machines) == {1: "alive", 2: "gone", 3: "leaving"})
    assert "no other node is alive" in refused(machines, "drain", "1")
    assert run(machines, "drain", "3", "--resume", "--wait").stdout == "node 3 takes partitions again\n"

    machines[2].start()
    until(lambda: states(machines) == {1: "alive", 2: "alive", 3: "alive"})
    moved = run(machines, "move", "orders", "0", "--to", "2", "--wait")
    assert moved.stdout == "orders-0 is led by 2\n", moved.output


def test_a_move_is_waited_for_while_a_node_that_has_just_died_still_counts_as_alive(machines: Machines) -> None:
    machines[2].kill()
    moved = run(machines, "move", "orders", "0", "--to", "3", "--wait")
    assert moved.stdout == "orders-0 is led by 3\n", moved.output
