"""Tasks of a Kafka Streams application; a task is a subtopology for one partition of its topics. Pure.

Source: KIP-1071; Kafka's TasksTuple and TasksTupleWithEpochs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fencepost.protocol.streams_topology import StreamsTaskIds

Tasks = Mapping[str, frozenset[int]]
"""Task numbers by subtopology id."""

TasksSince = Mapping[str, Mapping[int, int]]
"""Task numbers with the member epoch since which each is owned, by subtopology id."""


class TaskRole(Enum):
    """Role of a member for a task: process it, keep a copy of its state, or build a copy before processing it."""

    ACTIVE = "active"
    STANDBY = "standby"
    WARMUP = "warmup"


class TaskId(NamedTuple):
    """One task."""

    subtopology_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class TaskAssignment:
    """Tasks of a member's target, or tasks that it reports."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def of(self, role: TaskRole) -> Tasks:
        tasks: Tasks = getattr(self, role.value)
        return tasks


@dataclass(frozen=True, slots=True)
class OwnedTasks:
    """Tasks that a member owns; active ones with the epoch since which it does, to accept late commits for them."""

    active: TasksSince = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def of(self, role: TaskRole) -> Mapping[str, Collection[int]]:
        tasks: Mapping[str, Collection[int]] = getattr(self, role.value)
        return tasks

    def tasks(self) -> Iterator[tuple[TaskRole, TaskId]]:
        """Iterate over all tasks with their roles."""
        for role in TaskRole:
            for subtopology_id, partitions in self.of(role).items():
                for partition in partitions:
                    yield role, TaskId(subtopology_id, partition)

    def shares_any_with(self, reported: TaskAssignment) -> bool:
        """Return whether any task is among the reported ones, in the same role."""
        return any(task.partition in reported.of(role).get(task.subtopology_id, ()) for role, task in self.tasks())


NO_TASKS = TaskAssignment()
NO_OWNED_TASKS = OwnedTasks()


def tasks_from(entries: Iterable[StreamsTaskIds]) -> Tasks:
    """Decode tasks from a request or a record."""
    tasks: dict[str, frozenset[int]] = {}
    for entry in entries:
        if entry.partitions:
            tasks[entry.subtopology_id] = tasks.get(entry.subtopology_id, frozenset()).union(entry.partitions)
    return tasks


def task_ids(tasks: Mapping[str, Collection[int]]) -> list[StreamsTaskIds]:
    """Encode tasks, in order, for a reply or a record."""
    return [StreamsTaskIds(subtopology_id, sorted(partitions)) for subtopology_id, partitions in sorted(tasks.items())]
