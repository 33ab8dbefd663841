"""Deferred logs: requested ones are opened first, and all are opened in the end."""

from __future__ import annotations

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.deferred_logs import DeferredLogs

A, B, C = (TopicPartition("t", partition) for partition in range(3))


def unopened() -> DeferredLogs:
    logs = DeferredLogs()
    logs.add([A, B, C])
    return logs


def test_logs_are_opened_in_order_but_requested_ones_first() -> None:
    logs = unopened()
    logs.prioritize(C)
    assert [logs.begin_opening(), logs.begin_opening(), logs.begin_opening()] == [C, A, B]
    assert not logs.has_next


def test_one_is_unopened_until_it_is_served() -> None:
    logs = unopened()
    assert logs.begin_opening(B) == B
    assert B in logs
    assert not logs.is_waiting(B)
    logs.discard(B)
    assert B not in logs
    assert set(logs) == {A, C}


def test_a_log_that_could_not_be_opened_is_retried_at_its_next_use() -> None:
    logs = DeferredLogs()
    logs.add([A])
    logs.fail(logs.begin_opening())
    assert A in logs
    assert not logs.has_next
    assert len(logs) == 1
    logs.prioritize(A)
    assert logs.begin_opening() == A


def test_asking_for_one_that_is_served_or_being_opened_changes_nothing() -> None:
    logs = unopened()
    logs.begin_opening(A)
    logs.prioritize(A)
    logs.discard(B)
    logs.prioritize(B)
    assert logs.begin_opening() == C
    assert not logs.has_next
