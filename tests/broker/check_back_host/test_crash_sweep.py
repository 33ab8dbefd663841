"""The check-back loses its process, its power or an operation of its disk at every operation there is, on a simulated
disk: each time the transaction ends as its source says, once, and nothing is done that is not in the audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.broker.check_back_host import service as broker_check_back
from fencepost.broker.node import Node
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction.metadata import TransactionMetadata
from fencepost.check_back.ports import Unavailable
from fencepost.check_back.question import Answer
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Operation, die
from tests.simulation.loop import run
from tests.simulation.world import World
from tests.support.check_back_broker import ScriptedSource, audit, begin

SETTINGS = {
    "transaction.two.phase.commit.enable": "true",
    "fencepost.check.back.resolvers": "orders",
    "fencepost.check.back.orders.type": "http",
    "fencepost.check.back.orders.ids": "order-*",
    "fencepost.check.back.orders.url": "http://127.0.0.1:1/{token}",
    "fencepost.check.back.orders.first.ms": "0",
    "fencepost.check.back.orders.interval.ms": "50",
}
MISHAPS = ("fails", "dies before", "dies after", "loses power before", "loses power after")
LONGEST_S = 120  # virtual
POINTS = 12


class Told(NamedTuple):
    """What came of a world. operations: of the disk, from the beginning of the transaction to its end."""

    operations: int
    state: str
    audit: list[Any]
    asked: int


class UnknownOnce(ScriptedSource):
    """Says `unknown` to its first question, and `commit` from then on."""

    async def ask(self, question: Any) -> Answer:
        await super().ask(question)
        return Answer.UNKNOWN if len(self.asked) == 1 else Answer.COMMIT


async def _in(broker: SimulatedBroker, work: Any) -> Any:
    """Do something in the process of a broker."""
    with broker.process.running():
        task = broker.world.loop.create_task(work)
    return await task


async def _live(source: UnknownOnce, point: int | None, mishap: str) -> Told:
    world = World(1)
    broker = world.add_broker(1, SETTINGS)
    assert await broker.start()
    node: Node = broker.node
    await _in(broker, node.ensure_loaded())
    await _in(broker, node.services.topics.create("out", 2, {}))
    seen = 0
    is_struck = False

    def strike(operation: Operation, *, is_before: bool) -> None:
        nonlocal seen, is_struck
        seen += is_before
        if is_struck or seen != point or is_before is mishap.endswith("after"):
            return
        is_struck = True
        if mishap == "fails":
            raise StorageError("planted", operation.path)
        die()

    await _in(broker, begin(node, "order-1"))
    broker.before = lambda operation: strike(operation, is_before=True)
    broker.after = lambda operation: strike(operation, is_before=False)
    for tenths in range(LONGEST_S * 10):
        await world.wait(0.1)
        if not broker.is_running:
            await broker.start(power_loss="power" in mishap)
        elif await _is_ended(broker):
            break
        elif tenths == LONGEST_S * 5:
            await broker.restart()  # an operator's remedy for a partition that a failing disk took offline
    operations = seen
    await world.wait(5)
    found = broker.node.services.transactions.find("order-1")
    told = Told(
        operations,
        found.state.display_name if isinstance(found, TransactionMetadata) else found.name,
        await _in(broker, audit(broker.node)),
        len(source.asked),
    )
    await broker.stop()
    return told


async def _is_ended(broker: SimulatedBroker) -> bool:
    """Whether the transaction is complete, and the audit says so."""
    found = broker.node.services.transactions.find("order-1")
    if not isinstance(found, TransactionMetadata) or found.state.display_name != "CompleteCommit":
        return False
    try:
        return any(one["event"] == "end" for one in await _in(broker, audit(broker.node)))
    except Unavailable:
        return False


def _told(monkeypatch: pytest.MonkeyPatch, point: int | None, mishap: str) -> Told:
    source = UnknownOnce()
    monkeypatch.setattr(broker_check_back, "resolver_for", source.make)
    monkeypatch.setattr(broker_check_back, "POLL_S", 0.1)
    return run(_live(source, point, mishap))


def _check(told: Told, where: str) -> None:
    assert told.state == "CompleteCommit", where
    events = [(one["event"], one.get("decision") or one.get("outcome")) for one in told.audit]
    assert ("decision", "commit") in events, where
    assert not any(outcome in ("abort", "park") for _, outcome in events), where
    # What was decided is asked again only if the record of it was lost with the process.
    assert told.asked <= 4, where
    last = told.audit[-1]
    assert (last["event"], last["outcome"], last["who"]) == ("end", "commit", "resolver"), where
    assert events.index(("decision", "commit")) < len(events) - 1, where


def some(points: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
    return points[:: max(1, len(points) // POINTS)]


def test_without_a_mishap_it_asks_twice_and_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = _told(monkeypatch, None, "none")
    assert told.asked == 2
    assert [(one["event"], one.get("answer")) for one in told.audit] == [
        ("question", "unknown"),
        ("question", "commit"),
        ("decision", "commit"),
        ("end", None),
    ]


def test_a_mishap_at_some_operations_changes_nothing_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = _told(monkeypatch, None, "none").operations
    for point, mishap in some([(number, mishap) for number in range(1, operations + 1) for mishap in MISHAPS]):
        _check(_told(monkeypatch, point, mishap), f"{mishap} at operation {point}")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_mishap_at_any_operation_changes_nothing_of_that(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = _told(monkeypatch, None, "none").operations
    for number in range(1, operations + 1):
        for mishap in MISHAPS:
            _check(_told(monkeypatch, number, mishap), f"{mishap} at operation {number}")
