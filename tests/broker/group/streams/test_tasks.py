"""Tasks of streams groups: from and to messages, and what a member owns of them."""

from __future__ import annotations

from fencepost.broker.group.streams.tasks import (
    NO_OWNED_TASKS,
    NO_TASKS,
    OwnedTasks,
    TaskAssignment,
    TaskId,
    TaskRole,
    task_ids,
    tasks_from,
)
from fencepost.protocol.streams_topology import StreamsTaskIds

OWNED = OwnedTasks(active={"a": {0: 7, 1: 9}}, standby={"b": frozenset({2})})


def test_tasks_of_one_subtopology_are_put_together_and_empty_ones_are_left_out() -> None:
    entries = [StreamsTaskIds("a", [2, 0]), StreamsTaskIds("b", []), StreamsTaskIds("a", [1])]
    assert tasks_from(entries) == {"a": frozenset({0, 1, 2})}


def test_tasks_are_written_in_order() -> None:
    assert task_ids({"b": {1}, "a": {2, 0}}) == [StreamsTaskIds("a", [0, 2]), StreamsTaskIds("b", [1])]
    assert tasks_from(task_ids(OWNED.active)) == {"a": frozenset({0, 1})}


def test_all_tasks_are_listed_with_their_roles() -> None:
    assert sorted(OWNED.tasks(), key=repr) == sorted(
        [
            (TaskRole.ACTIVE, TaskId("a", 0)),
            (TaskRole.ACTIVE, TaskId("a", 1)),
            (TaskRole.STANDBY, TaskId("b", 2)),
        ],
        key=repr,
    )


def test_nothing_owned_is_false() -> None:
    assert OWNED
    assert not NO_OWNED_TASKS
    assert list(NO_OWNED_TASKS.tasks()) == []


def test_a_task_is_shared_only_in_the_same_role() -> None:
    assert OWNED.shares_any_with(TaskAssignment(standby={"b": frozenset({2, 3})}))
    assert not OWNED.shares_any_with(TaskAssignment(active={"b": frozenset({2})}, warmup={"a": frozenset({0})}))
    assert not OWNED.shares_any_with(NO_TASKS)
