"""When a partition that failed is loaded again."""

from __future__ import annotations

from fencepost.broker.coordination.reloads import DOUBT_PAUSE_S, MAX_RELOADS, QUIET_S, ReloadPolicy


def test_pauses_double_until_the_partition_is_given_up() -> None:
    policy = ReloadPolicy()
    assert [policy.pause_s(0, 1.0) for _ in range(MAX_RELOADS + 1)] == [0.0, 1.0, 2.0, 4.0, 8.0, None]


def test_partitions_are_counted_alone_and_from_the_start_after_a_quiet_time() -> None:
    policy = ReloadPolicy()
    for _ in range(MAX_RELOADS):
        policy.pause_s(0, 1.0)
    assert policy.pause_s(1, 1.0) == 0.0
    assert policy.pause_s(0, 1.0 + QUIET_S) is None
    assert policy.pause_s(0, 1.1 + QUIET_S) == 0.0


def test_an_operator_s_reload_forgets_the_failures() -> None:
    policy = ReloadPolicy()
    for _ in range(MAX_RELOADS):
        policy.pause_s(0, 1.0)
    policy.forget(0)
    assert policy.pause_s(0, 1.0) == 0.0


def test_deadlines_that_fail_again_reload_once_in_a_while() -> None:
    policy = ReloadPolicy()
    assert policy.pause_after_deadline_s(0, 10.0) == 0.0
    assert policy.pause_after_deadline_s(0, 15.0) == DOUBT_PAUSE_S - 5.0
    assert policy.pause_after_deadline_s(0, 10.0 + DOUBT_PAUSE_S) == 0.0
