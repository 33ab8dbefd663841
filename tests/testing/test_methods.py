"""Arguments of faults: every kind takes the same ones, by name, and none that it does not know."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.testing.errors import MisuseError
from fencepost.testing.faults import FaultKind, FaultOrder, Timed
from fencepost.testing.methods import BrokerMethods

END_TXN = 26


class PlacingBroker(BrokerMethods):
    """Keeps the orders of faults, and does nothing."""

    bootstrap_servers = "127.0.0.1:9092"

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[tuple[Any, ...]] = []

    def run_command(self, command: str, *arguments: Any) -> Any:
        self.commands.append((command, *arguments))
        return 0


@pytest.fixture
def broker() -> PlacingBroker:
    return PlacingBroker()


def test_each_fault_has_its_usual_moment_and_number_of_requests(broker: PlacingBroker) -> None:
    faults = [
        broker.fail("EndTxn", "COORDINATOR_NOT_AVAILABLE"),
        broker.delay("EndTxn", 2.0),
        broker.hold("EndTxn"),
        broker.disconnect("EndTxn"),
        broker.crash_after("EndTxn"),
        broker.crash_after("EndTxn", durable=False),
    ]
    error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert [fault.order for fault in faults] == [
        FaultOrder(FaultKind.FAIL, "request", END_TXN, count=1, error=error),
        FaultOrder(FaultKind.DELAY, "reply", END_TXN, count=None, seconds=2.0),
        FaultOrder(FaultKind.HOLD, "reply", END_TXN, count=None),
        FaultOrder(FaultKind.DISCONNECT, "reply", END_TXN, count=1),
        FaultOrder(FaultKind.CRASH, "reply", END_TXN, count=1),
        FaultOrder(FaultKind.CRASH, "sync", END_TXN, count=1),
    ]


def test_each_fault_takes_the_arguments_that_choose_requests(broker: PlacingBroker) -> None:
    which: Timed = {"topic": "orders", "partition": 1, "client_id": "till-*", "after": 2, "optional": True}
    which |= {"count": 4, "on": "reply"}
    chosen = {"topic": "orders", "partition": 1, "client_id": "till-*", "after": 2}
    for fault in (
        broker.fail("Produce", 3, **which),
        broker.delay("Produce", **which),
        broker.hold("Produce", **which),
        broker.disconnect("Produce", **which),
    ):
        assert fault.optional
        assert (fault.order.count, fault.order.moment) == (4, "reply")
        assert {name: getattr(fault.order, name) for name in chosen} == chosen
    crash = broker.crash_after("EndTxn", transactional_id="till-1", after=1, optional=True)
    assert (crash.order.transactional_id, crash.order.after, crash.optional) == ("till-1", 1, True)


def test_a_disconnect_that_names_no_request_closes_the_connections_of_the_client_at_once(broker: PlacingBroker) -> None:
    broker.disconnect(client_id="till-*")
    assert ("disconnect", "till-*") in broker.commands
    broker.commands.clear()
    broker.disconnect(client_id="till-*", group="tills")
    broker.disconnect(client_id="till-*", after=1)
    assert [command[0] for command in broker.commands] == ["place", "place"]


def test_an_unknown_argument_is_refused_with_those_that_there_are(broker: PlacingBroker) -> None:
    with pytest.raises(TypeError, match=r"fail\(\) has no argument topics; it has topic, partition, client_id"):
        broker.fail("Produce", 3, topics="orders")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"crash_after\(\) has no argument count"):
        broker.crash_after("EndTxn", count=2)  # type: ignore[call-arg]
    assert not broker.commands


def test_a_wait_ends_when_the_broker_is_closed(broker: PlacingBroker) -> None:
    asked = []

    def is_reached() -> bool:
        asked.append(1)
        broker.is_closed = len(asked) == 3
        return False

    with pytest.raises(MisuseError, match="the broker was closed meanwhile: nothing came"):
        broker.wait_until(is_reached, 300, lambda: "nothing came")
    assert len(asked) == 3
