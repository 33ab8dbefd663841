"""Which requests a fault meets, and how often."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.testing.faults import FaultKind, FaultOrder, Faults


@dataclass
class Passing:
    api_key: int = ApiKey.PRODUCE
    client_id: str | None = "shop-1"
    transactional_id: str | None = None
    groups: list[str] = field(default_factory=list)
    partitions: list[tuple[str, int | None]] = field(default_factory=lambda: [("t", 0), ("t", 1)])


@pytest.mark.parametrize(
    ("order", "is_met"),
    [
        (FaultOrder(FaultKind.FAIL, "request"), True),
        (FaultOrder(FaultKind.FAIL, "request", api_key=ApiKey.FETCH), False),
        (FaultOrder(FaultKind.FAIL, "request", client_id="shop-*"), True),
        (FaultOrder(FaultKind.FAIL, "request", client_id="Shop-*"), False),
        (FaultOrder(FaultKind.FAIL, "request", transactional_id="shop"), False),
        (FaultOrder(FaultKind.FAIL, "request", group="*"), False),
        (FaultOrder(FaultKind.FAIL, "request", topic="t", partition=1), True),
        (FaultOrder(FaultKind.FAIL, "request", topic="t", partition=2), False),
        (FaultOrder(FaultKind.FAIL, "request", topic="other"), False),
        (FaultOrder(FaultKind.FAIL, "reply"), False),
    ],
)
def test_a_fault_meets_what_its_order_names_and_nothing_else(order: FaultOrder, *, is_met: bool) -> None:
    faults = Faults()
    placed = faults.place(order)
    assert faults.first(Passing(), "request") is (placed if is_met else None)


def test_some_pass_first_and_then_as_many_are_met_as_are_ordered() -> None:
    faults = Faults()
    faults.place(FaultOrder(FaultKind.FAIL, "request", after=2, count=1))
    met = []
    for _ in range(5):
        fault = faults.first(Passing(), "request")
        if fault is not None:
            fault.fired += 1
        met.append(fault is not None)
    assert met == [False, False, True, False, False]


def test_a_removed_fault_lets_go_what_it_holds_in_order_and_meets_nothing_more() -> None:
    faults = Faults()
    held = faults.place(FaultOrder(FaultKind.HOLD, "reply", count=None))
    released: list[int] = []
    held.releases += [lambda: released.append(1), lambda: released.append(2)]
    faults.remove(held.number)
    assert released == [1, 2]
    assert held.release() == 0
    assert faults.first(Passing(), "reply") is None


def test_a_number_of_its_own_is_not_given_twice() -> None:
    faults = Faults()
    numbers = [faults.place(FaultOrder(FaultKind.FAIL, "request"), number).number for number in (7, None, None)]
    assert numbers == [7, 8, 9]


def test_an_order_reads_as_the_call_that_made_it() -> None:
    order = FaultOrder(
        FaultKind.FAIL, "request", ApiKey.PRODUCE, topic="t", error=ErrorCode.NOT_LEADER_OR_FOLLOWER, after=1
    )
    assert str(order) == "fail('Produce', error='NOT_LEADER_OR_FOLLOWER', topic='t', after=1)"
