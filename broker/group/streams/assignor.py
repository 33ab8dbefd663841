"""Which member of a streams group runs which task, and who keeps copies of its state. Pure.

Every task has one member that is active for it; members have about as many tasks as each other, counted over processes,
too. Whoever was active for a task stays so if that fits, else whoever has a copy of its state takes it over. Copies are
kept by other processes than the active one, again by those that had them.
Source: KIP-1071; Kafka's StickyTaskAssignor and ProcessState.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from broker.group.streams.tasks import TaskAssignment, TaskId

STICKY_ASSIGNOR = "sticky"


class SubtopologySize(NamedTuple):
    """How many tasks a subtopology has, and whether there is state to keep copies of."""

    task_count: int
    is_stateful: bool


class Assignee(NamedTuple):
    """A member as the assignor sees it. previous: what it was to have until now."""

    process_id: str
    previous: TaskAssignment


@dataclass(slots=True)
class _Member:
    member_id: str
    process: _Process
    active: list[TaskId] = field(default_factory=list)
    standby: list[TaskId] = field(default_factory=list)

    @property
    def task_count(self) -> int:
        return len(self.active) + len(self.standby)


@dataclass(slots=True)
class _Process:
    """Members that share a disk."""

    members: list[_Member] = field(default_factory=list)
    tasks: set[TaskId] = field(default_factory=set)
    task_count: int = 0

    @property
    def load(self) -> float:
        return self.task_count / len(self.members)

    def least_loaded(self) -> _Member:
        return min(self.members, key=lambda member: member.task_count)


class _Quota:
    """How many tasks a member may have as long as others have less: the share of each, rounded up.

    Whoever has its share no longer counts, and what is left is shared by the others.
    """

    def __init__(self, task_count: int, member_count: int) -> None:
        self._task_count = task_count
        self._member_count = member_count
        self.per_member = _share(task_count, member_count)

    def taken(self, task_count: int) -> None:
        """A member has this many tasks now."""
        if task_count == self.per_member:
            self._member_count -= 1
            self._task_count -= task_count
            self.per_member = _share(self._task_count, self._member_count)


def _share(task_count: int, member_count: int) -> int:
    return -(-task_count // member_count) if member_count else 0


def assign(
    members: Mapping[str, Assignee], subtopologies: Mapping[str, SubtopologySize], *, standby_count: int
) -> dict[str, TaskAssignment]:
    """What each member is to have. standby_count: how many copies of a task's state are to be kept, if processes
    suffice.
    """
    return _Assignment(members, subtopologies, standby_count).made() if members else {}


class _Assignment:
    """One assignment while it is made."""

    def __init__(
        self, members: Mapping[str, Assignee], subtopologies: Mapping[str, SubtopologySize], standby_count: int
    ) -> None:
        self._standby_count = standby_count
        self._members: dict[str, _Member] = {}
        self._processes: dict[str, _Process] = {}
        self._previous_active: dict[TaskId, _Member] = {}
        self._previous_standby: dict[TaskId, list[_Member]] = {}
        for member_id, assignee in sorted(members.items()):
            process = self._processes.setdefault(assignee.process_id, _Process())
            member = self._members[member_id] = _Member(member_id, process)
            process.members.append(member)
            for task in _tasks(assignee.previous.active):
                self._previous_active[task] = member
            for task in _tasks(assignee.previous.standby):
                self._previous_standby.setdefault(task, []).append(member)
        self._active = [
            TaskId(name, number) for name, size in subtopologies.items() for number in range(size.task_count)
        ]
        self._stateful = [task for task in self._active if subtopologies[task.subtopology_id].is_stateful]
        total = len(self._active) + len(self._stateful) * standby_count
        self._active_quota = _Quota(len(self._active), len(self._members))
        self._total_quota = _Quota(total, len(self._members))

    def made(self) -> dict[str, TaskAssignment]:
        self._assign_active()
        if self._standby_count:
            self._assign_standby()
        return {
            member_id: TaskAssignment(_by_subtopology(member.active), _by_subtopology(member.standby))
            for member_id, member in self._members.items()
        }

    def _assign_active(self) -> None:
        # By partition first: what belongs together is spread alike.
        left = [
            task
            for task in sorted(self._active, key=_by_partition)
            if not self._give_active(task, self._previous_active.get(task))
        ]
        fresh = [
            task
            for task in left
            if not self._give_active(task, self._least_loaded(self._previous_standby.get(task, ()), None))
        ]
        heap = self._processes_by_load()
        for task in sorted(fresh):
            _, order, process = heappop(heap)
            self._add(process.least_loaded(), task, is_active=True)
            heappush(heap, (process.load, order, process))

    def _give_active(self, task: TaskId, member: _Member | None) -> bool:
        if member is None or member.task_count >= self._active_quota.per_member:
            return False
        self._add(member, task, is_active=True)
        return True

    def _assign_standby(self) -> None:
        left: list[tuple[TaskId, int]] = []
        for task in sorted(self._stateful, key=_by_partition, reverse=True):
            for made_count in range(self._standby_count):
                if self._give_standby(task, self._previous_active.get(task)):
                    continue
                if self._give_standby(task, self._least_loaded(self._previous_standby.get(task, ()), task)):
                    continue
                left.append((task, self._standby_count - made_count))
                break
        heap = self._processes_by_load()
        for task, missing_count in sorted(left, reverse=True):
            for _ in range(missing_count):
                if not self._give_standby_to_anybody(heap, task):
                    break  # every process has the task already: more processes are needed

    def _give_standby(self, task: TaskId, member: _Member | None) -> bool:
        if member is None or task in member.process.tasks or member.task_count >= self._total_quota.per_member:
            return False
        self._add(member, task, is_active=False)
        return True

    def _give_standby_to_anybody(self, heap: list[tuple[float, int, _Process]], task: TaskId) -> bool:
        passed_over = []
        is_given = False
        while heap and not is_given:
            load, order, process = heappop(heap)
            if task not in process.tasks:
                self._add(process.least_loaded(), task, is_active=False)
                load, is_given = process.load, True
            passed_over.append((load, order, process))
        for entry in passed_over:
            heappush(heap, entry)
        return is_given

    def _add(self, member: _Member, task: TaskId, *, is_active: bool) -> None:
        (member.active if is_active else member.standby).append(task)
        member.process.tasks.add(task)
        member.process.task_count += 1
        if is_active:
            self._active_quota.taken(member.task_count)
        self._total_quota.taken(member.task_count)

    def _least_loaded(self, members: Iterable[_Member], without: TaskId | None) -> _Member | None:
        """Of members whose process does not have the task, the one that has least to do."""
        candidates = [member for member in members if without is None or without not in member.process.tasks]
        return min(candidates, key=lambda member: (member.process.load, member.task_count), default=None)

    def _processes_by_load(self) -> list[tuple[float, int, _Process]]:
        heap = [(process.load, order, process) for order, process in enumerate(self._processes.values())]
        heapify(heap)
        return heap


def _tasks(tasks: Mapping[str, Iterable[int]]) -> list[TaskId]:
    return [TaskId(name, number) for name, numbers in tasks.items() for number in numbers]


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


def _by_subtopology(tasks: Iterable[TaskId]) -> dict[str, frozenset[int]]:
    result: dict[str, set[int]] = {}
    for task in tasks:
        result.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in sorted(result.items())}
