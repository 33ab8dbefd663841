"""Verification guards: which producers have one, and which events withdraw it."""

from __future__ import annotations

import pytest

from fencepost.broker.log.producers.verification import PendingVerifications, VerificationGuard


@pytest.fixture
def table() -> PendingVerifications:
    return PendingVerifications()


def begin(
    table: PendingVerifications, epoch: int = 3, sequence: int = 10, *, version_2: bool = False
) -> VerificationGuard:
    return table.begin(7, epoch, sequence, transaction_version_2=version_2)


def test_a_producer_has_one_guard_at_a_time(table: PendingVerifications) -> None:
    guard = begin(table)
    assert begin(table, epoch=4) is guard
    assert table == {7: guard}


def test_no_guard_is_ever_issued_twice(table: PendingVerifications) -> None:
    guards = []
    for _ in range(100):
        guards.append(begin(table))
        table.transactional_batch_appended(7, 3, is_control=False)
    assert len(set(guards)) == 100


@pytest.mark.parametrize(
    ("epoch", "sequence", "expected"),
    [(3, 20, (3, 10)), (3, 5, (3, 5)), (4, 20, (4, 20)), (2, 0, (3, 10))],
)
def test_the_lowest_sequence_is_that_of_the_highest_epoch(
    table: PendingVerifications, epoch: int, sequence: int, expected: tuple[int, int]
) -> None:
    begin(table)
    begin(table, epoch, sequence)
    entry = table.get(7)
    assert entry is not None
    assert (entry.producer_epoch, entry.lowest_sequence) == expected


@pytest.mark.parametrize(
    ("version_2", "is_control", "epoch", "stays"),
    [
        (False, False, 3, False),
        (True, False, 3, False),
        (False, True, 3, False),
        (False, True, 4, False),
        (True, True, 4, False),
        (True, True, 2, False),
        (True, True, 3, True),
    ],
)
def test_events_that_withdraw_a_guard(
    table: PendingVerifications, version_2: bool, is_control: bool, epoch: int, stays: bool
) -> None:
    guard = begin(table, version_2=version_2)
    table.transactional_batch_appended(7, epoch, is_control=is_control)
    assert table == ({7: guard} if stays else {})


def test_other_producers_keep_their_guards(table: PendingVerifications) -> None:
    guard = begin(table)
    table.transactional_batch_appended(8, 3, is_control=False)
    assert table == {7: guard}


def test_a_guard_lives_for_the_expiration_time_after_a_sweep_has_met_it(table: PendingVerifications) -> None:
    begin(table)
    assert [table.expire(now_ms, 100) for now_ms in (1_000, 1_099, 1_100)] == [0, 0, 1]
    assert len(table) == 0


def test_leadership_lost_withdraws_all(table: PendingVerifications) -> None:
    begin(table)
    table.clear()
    assert not table
