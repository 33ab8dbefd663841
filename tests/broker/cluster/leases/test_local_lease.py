"""How long a node relies on its lease."""

from __future__ import annotations

import pytest

from fencepost.broker.cluster.leases.local_lease import LocalLease


class Time:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def lease(time: Time) -> LocalLease:
    return LocalLease(3.0, monotonic_s=time)


def test_a_node_holds_no_lease_before_its_start_is_answered(lease: LocalLease) -> None:
    assert not lease.is_held()
    assert lease.left_s() == 0.0


def test_it_ends_half_a_second_early_counted_from_when_the_renewal_was_sent(lease: LocalLease, time: Time) -> None:
    sent_at_s = lease.now_s()
    time.now_s += 2.0  # the answer took that long
    lease.renewed(sent_at_s)
    assert lease.left_s() == pytest.approx(0.5)
    time.now_s += 0.49
    assert lease.is_held()
    time.now_s += 0.01
    assert not lease.is_held()
    assert lease.left_s() == 0.0


def test_answers_that_arrive_in_another_order_never_shorten_it(lease: LocalLease, time: Time) -> None:
    lease.renewed(time.now_s + 1.0)
    lease.renewed(time.now_s)
    assert lease.left_s() == pytest.approx(3.5)


def test_a_lease_that_lapsed_is_held_again_once_renewed_and_not_once_lost(lease: LocalLease, time: Time) -> None:
    lease.renewed(time.now_s)
    time.now_s += 10.0
    assert not lease.is_held()
    lease.renewed(time.now_s)
    assert lease.is_held()
    lease.lost()
    assert not lease.is_held()
    lease.renewed(time.now_s)
    assert lease.is_held()


def test_a_lease_shorter_than_its_margin_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a lease of 0\.5 s"):
        LocalLease(0.5)
