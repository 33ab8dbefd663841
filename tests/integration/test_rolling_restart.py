"""Brokers of a cluster that are restarted one after another by SIGTERM, as an update does: each hands over first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.clients_of_processes import SETTINGS, Transactions, create, leaders, read
from tests.support.conditions import noted, until
from tests.support.machines import Machines
from tests.support.object_server import object_server
from tests.support.postgres import postgres_server

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

LEASES = {"fencepost.cluster.lease.ms": "30000", "fencepost.cluster.lease.renewal.ms": "1000"}
"""Long ones: none is ever lost here, and a busy machine may renew late."""


def test_a_broker_that_is_stopped_hands_over_all_that_it_leads_under_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not checked")
    with (
        postgres_server(is_durable=True) as database,
        object_server(tmp_path / "objects") as objects,
        Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=SETTINGS | LEASES) as machines,
    ):
        create(machines.bootstrap, "orders")
        until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
        transactions = Transactions(machines.bootstrap, 4)
        try:
            with noted(lambda: machines.output):
                for node_id, machine in machines.machines.items():
                    commit_some(transactions)
                    assert machine.terminate() == 0
                    left = re.findall(r"handed_over_to_stop partitions_left=(\d+)", machine.output)
                    assert left == ["0"], machine.output
                    until(lambda: node_id not in leaders(others(machines, node_id)))  # noqa: B023  # called at once
                    commit_some(transactions)
                    machine.start()
                    until(lambda: node_id in leaders(machines.bootstrap), timeout_s=60)  # noqa: B023  # called at once
        finally:
            transactions.stop()
        transactions.check(read(machines.bootstrap))
        assert "node_taken_over" not in machines.output


def commit_some(transactions: Transactions) -> None:
    before = len(transactions.committed)
    until(lambda: len(transactions.committed) > before + 30, timeout_s=60)


def others(machines: Machines, node_id: int) -> str:
    return ",".join(one.bootstrap for number, one in machines.machines.items() if number != node_id)
