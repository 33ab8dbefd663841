"""Brokers of the version before beside those of this one: a rolling update, under clients that transact."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster.postgres.schema import FORMAT
from tests.support import earlier_version
from tests.support.broker_process import BrokerFailedError
from tests.support.clients_of_processes import SETTINGS, Transactions, create, leaders, read, write
from tests.support.conditions import noted, until
from tests.support.earlier_version import earlier_program
from tests.support.machines import Machines
from tests.support.object_server import ObjectServer
from tests.support.postgres import PostgresServer

THIS = ("-m", "fencepost")
TAIL = {"fencepost.cluster.tail.max.bytes": "1048576", "fencepost.cluster.inline.max.bytes": "65536"}


LATER = """\
import runpy

from fencepost.broker.cluster.postgres import lease_store, schema

for _ in range({steps}):
    schema._UPGRADES[schema.FORMAT] = f"ALTER TABLE topics ADD COLUMN note_{{schema.FORMAT}} text"
    schema.FORMAT += 1
    schema.OLDEST_READER += 1
    schema.COMPATIBILITY += 1
lease_store.COMPATIBILITY = schema.COMPATIBILITY
runpy.run_module("fencepost", run_name="__main__", alter_sys=True)
"""
"""A release that raises the format of the tables, and the version of what brokers share, by some steps."""


def later_program(directory: Path, steps: int) -> tuple[str, ...]:
    program = directory / f"later_{steps}.py"
    program.write_text(LATER.format(steps=steps))
    return (str(program),)


@pytest.fixture
def earlier(tmp_path: Path) -> tuple[str, ...]:
    return earlier_program(tmp_path / "earlier")


@pytest.fixture
def machines(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path, earlier: tuple[str, ...]
) -> Iterator[Machines]:
    """Three brokers of the version before. Segments are sealed, and flushes go into objects, early."""
    made = Machines(
        database.cluster_url(), objects.make_bucket(), tmp_path, settings={**SETTINGS, **TAIL}, program=earlier
    )
    with made as machines:
        create(machines.bootstrap, "orders")
        until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
        yield machines
        assert "Traceback" not in machines.output, machines.output


def update(machines: Machines, node_id: int) -> None:
    """Start a broker that has stopped with the program of the working tree."""
    machines[node_id].program = THIS
    machines[node_id].start()
    until(lambda: node_id in leaders(machines.bootstrap))


def commit_some(transactions: Transactions) -> None:
    before = len(transactions.committed)
    until(lambda: len(transactions.committed) > before + 20, timeout_s=120)


def move(machines: Machines, target: int) -> None:
    """Have a node lead a partition that another one leads."""
    partition = next(number for number, leader in enumerate(leaders(machines.bootstrap)) if leader != target)
    command = [sys.executable, "-m", "fencepost", "cluster", "move", "orders", str(partition), "--to", str(target)]
    done = subprocess.run(
        [*command, "--wait", "-b", machines.bootstrap], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert leaders(machines.bootstrap)[partition] == target


def report(machines: Machines) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "cluster", "check", "--deep", "--json", *machines.stores],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_brokers_are_updated_one_by_one_under_clients(machines: Machines) -> None:
    large = "before" * 20_000
    write(machines.bootstrap, [large])
    transactions = Transactions(machines.bootstrap, 4)
    try:
        with noted(lambda: machines.output):
            commit_some(transactions)
            assert machines[1].terminate() == 0
            update(machines, 1)
            commit_some(transactions)
            # What one version has written the other leads, and back.
            for target in (1, 2, 1, 3, 1):
                move(machines, target)
                commit_some(transactions)
            machines[1].kill()
            machines.wait_until_taken_over(1)
            commit_some(transactions)
            machines[1].start()
            until(lambda: 1 in leaders(machines.bootstrap))
            commit_some(transactions)
            machines[2].kill()
            machines.wait_until_taken_over(2)
            commit_some(transactions)
            with pytest.raises(BrokerFailedError, match=f"format {FORMAT}, this broker reads format "):
                machines[2].start()
            update(machines, 2)
            commit_some(transactions)
            assert machines[3].terminate() == 0
            update(machines, 3)
            commit_some(transactions)
    finally:
        transactions.stop()
    found = read(machines.bootstrap)
    transactions.check(found)
    assert large in found
    checked = report(machines)
    assert (checked["problems"], checked["segments"] > 0, checked["flushes"] >= 0) == ([], True, True)
    assert machines.output.count("cluster_tables_upgraded") == FORMAT - earlier_version.FORMAT


def test_brokers_of_this_version_start_again_beside_those_of_the_next_and_instead_of_them(
    database: PostgresServer, objects: ObjectServer, tmp_path: Path
) -> None:
    made = Machines(database.cluster_url(), objects.make_bucket(), tmp_path, settings=SETTINGS)
    with made as machines:
        create(machines.bootstrap, "orders")
        until(lambda: set(leaders(machines.bootstrap)) == {1, 2, 3})
        transactions = Transactions(machines.bootstrap, 4)
        try:
            with noted(lambda: machines.output):
                commit_some(transactions)
                assert machines[1].terminate() == 0
                machines[1].program = later_program(tmp_path, 2)
                with pytest.raises(BrokerFailedError, match=r"brokers work on the tables .* or update to a version in"):
                    machines[1].start()
                machines[1].program = later_program(tmp_path, 1)
                machines[1].start()
                until(lambda: 1 in leaders(machines.bootstrap))
                assert machines[1].output.count("cluster_tables_upgraded") == 1
                commit_some(transactions)
                machines[2].kill()
                machines.wait_until_taken_over(2)
                machines[2].start()
                until(lambda: 2 in leaders(machines.bootstrap))
                for target in (1, 2, 1):
                    move(machines, target)
                    commit_some(transactions)
                # Back to this version, as the tables are still read by it.
                assert machines[1].terminate() == 0
                update(machines, 1)
                commit_some(transactions)
        finally:
            transactions.stop()
        transactions.check(read(machines.bootstrap))
        assert "Traceback" not in machines.output, machines.output


def test_a_command_of_this_version_says_that_the_brokers_have_another(machines: Machines) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fencepost", "cluster", "check", *machines.stores],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert f"have format {earlier_version.FORMAT}, this command reads format {FORMAT}" in done.stdout + done.stderr
