"""A process of a broker dies at a named point of a move or a take-over: whatever was acknowledged is there, once.

Three processes; clients transact all the time. The trigger is the end of another process: what it led is taken over,
and moves back to it when it has been started again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_processes import BrokerProcesses
from tests.support.clients_of_processes import PARTITIONS, SETTINGS, Transactions, create, leaders, read
from tests.support.conditions import noted, until
from tests.support.process_killed_at_point import POINTS

IN_TIME_S = 120.0
NODES = {1, 2, 3}
QUICK = ("after logs are closed to move", "after a directory is renamed")


class Broker:
    """The processes, one of which dies where it is ordered to."""

    def __init__(self, processes: BrokerProcesses, order: Path) -> None:
        self.processes = processes
        self._order = order

    @property
    def bootstrap(self) -> str:
        return self.processes.bootstrap

    def order(self, point: str) -> None:
        """Let the first process die that comes to a point."""
        coming = self._order.with_suffix(".coming")
        coming.write_text(f"{point}|0")
        coming.rename(self._order)

    def has_died(self) -> bool:
        return not self._order.exists()

    def directories(self) -> Counter[str]:
        """How often there is a directory of each partition of the topic."""
        return Counter(path.name for path in self.processes.data_directory.glob("node.*/orders-*"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("processes")
    order = directory / "order"
    processes = BrokerProcesses(directory / "data", len(NODES), settings=SETTINGS)
    processes.program = ("-m", "tests.support.process_killed_at_point", str(order))
    with processes:
        create(processes.bootstrap, "orders")
        yield Broker(processes, order)


def check_point(broker: Broker, point: str) -> None:
    # A client that loses all its connections within moments may wait for ever for new ones.
    of_clients = {"metadata.recovery.strategy": "none"}
    transactions = Transactions(broker.bootstrap, 3, of_clients, prefix=f"{point}: ")
    processes = broker.processes
    ended = processes.output.count("process_ended")
    try:
        with noted(lambda: processes.output[-20_000:]):
            commit_some(transactions)
            broker.order(point)
            processes.kill_node(1)
            until(broker.has_died, timeout_s=IN_TIME_S)
            until(lambda: processes.output.count("process_ended") >= ended + 2, timeout_s=IN_TIME_S)
            until(lambda: set(leaders(broker.bootstrap)) == NODES, timeout_s=IN_TIME_S)
            commit_some(transactions)
    finally:
        transactions.stop()
    transactions.check(read(broker.bootstrap))
    # While some still move, they may be seen twice, or not at all.
    until(lambda: list(broker.directories().values()) == [1] * PARTITIONS)
    assert "partition_directory_missing" not in processes.output
    assert "partition_went_offline" not in processes.output
    assert "Traceback" not in processes.output


def commit_some(transactions: Transactions) -> None:
    before = len(transactions.committed)
    until(lambda: len(transactions.committed) > before + 10, timeout_s=IN_TIME_S)


@pytest.mark.integration
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", QUICK)
def test_nothing_is_lost_when_a_process_dies(broker: Broker, point: str) -> None:
    check_point(broker, point)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", [point for point in POINTS if point not in QUICK])
def test_nothing_is_lost_wherever_a_process_dies(broker: Broker, point: str) -> None:
    check_point(broker, point)
