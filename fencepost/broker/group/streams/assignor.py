"""Assignor of active and standby tasks to members of a streams group. Pure.

Every task has one active member; tasks are spread evenly over members and processes. The member that was active for a
task stays active if that fits, else a member with a copy of its state takes over. Other processes than the active one
keep the copies, preferably those that had them. Among equals the order of Kafka's hash tables decides, as in Kafka.
Source: KIP-1071; Kafka's StickyTaskAssignor and ProcessState.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.broker.group.java_order import PriorityQueue, hash_map_order
from fencepost.broker.group.streams.tasks import OwnedTasks, TaskAssignment, TaskId

STICKY_ASSIGNOR = "sticky"


class SubtopologySize(NamedTuple):
    """Number of tasks of a subtopology, and whether its tasks have state."""

    task_count: int
    is_stateful: bool


class Assignee(NamedTuple):
    """Input of the assignor about one member. previous: tasks that it has now, without those that it has to revoke."""

    process_id: str
    previous: TaskAssignment | OwnedTasks


@dataclass(slots=True)
class _Member:
    """A member, which is a thread of a process, and the tasks that it gets."""

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
    _members_by_load: PriorityQueue[_Member] | None = None

    @property
    def load(self) -> float:
        return self.task_count / len(self.members)

    def add(self, member: _Member, task: TaskId, *, is_active: bool) -> _Member:
        """Give a task to a member of the process and return the member."""
        self._members_by_load = None
        return self._add(member, task, is_active=is_active)

    def add_to_least_loaded(self, task: TaskId, *, is_active: bool) -> _Member:
        """Give a task to the member with the fewest tasks and return the member."""
        if len(self.members) == 1:
            return self._add(self.members[0], task, is_active=is_active)
        if self._members_by_load is None:
            members = {member.member_id: member for member in self.members}
            self._members_by_load = PriorityQueue(
                lambda member: member.task_count, [members[member_id] for member_id in hash_map_order(members)]
            )
        member = self._add(self._members_by_load.poll(), task, is_active=is_active)
        self._members_by_load.add(member)
        return member

    def _add(self, member: _Member, task: TaskId, *, is_active: bool) -> _Member:
        (member.active if is_active else member.standby).append(task)
        self.tasks.add(task)
        self.task_count += 1
        return member


class _Quota:
    """Quota of tasks per member while others have fewer: an equal share, rounded up.

    A member that has reached its quota no longer counts; the quota of the others is recomputed.
    """

    def __init__(self, task_count: int, member_count: int) -> None:
        self._task_count = task_count
        self._member_count = member_count
        self.per_member = _share(task_count, member_count)

    def taken(self, task_count: int) -> None:
        """Update the quota for a member that has this number of tasks now."""
        if task_count == self.per_member:
            self._member_count -= 1
            self._task_count -= task_count
            self.per_member = _share(self._task_count, self._member_count)


def _share(task_count: int, member_count: int) -> int:
    return -(-task_count // member_count) if member_count else 0


def assign(
    members: Mapping[str, Assignee], subtopologies: Mapping[str, SubtopologySize], *, standby_count: int
) -> dict[str, TaskAssignment]:
    """Return the target of each member. standby_count: copies of each task's state, if there are enough processes."""
    return _Assignment(members, subtopologies, standby_count).made() if members else {}


class _Assignment:
    """State of one assignment in progress."""

    def __init__(
        self, members: Mapping[str, Assignee], subtopologies: Mapping[str, SubtopologySize], standby_count: int
    ) -> None:
        self._standby_count = standby_count
        self._members: dict[str, _Member] = {}
        self._processes: dict[str, _Process] = {}
        self._previous_active: dict[TaskId, _Member] = {}
        self._previous_standby: dict[TaskId, list[_Member]] = {}
        # Members that share a bucket of the table are ordered by id. In Kafka another table orders them, which depends
        # on the greatest number of members so far.
        for member_id in hash_map_order(sorted(members)):
            assignee = members[member_id]
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
        # By partition first: tasks of one partition are spread alike.
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
        processes = self._processes_by_load()
        for task in sorted(fresh):
            process = processes.poll()
            self._count_active(process.add_to_least_loaded(task, is_active=True))
            processes.add(process)

    def _give_active(self, task: TaskId, member: _Member | None) -> bool:
        if member is None or member.task_count >= self._active_quota.per_member:
            return False
        self._count_active(member.process.add(member, task, is_active=True))
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
        processes = self._processes_by_load()
        for task, missing_count in sorted(left, reverse=True):
            for _ in range(missing_count):
                if not self._give_standby_to_least_loaded(processes, task):
                    break  # every process has the task already

    def _give_standby(self, task: TaskId, member: _Member | None) -> bool:
        if member is None or task in member.process.tasks or member.task_count >= self._total_quota.per_member:
            return False
        self._total_quota.taken(member.process.add(member, task, is_active=False).task_count)
        return True

    def _give_standby_to_least_loaded(self, processes: PriorityQueue[_Process], task: TaskId) -> bool:
        polled: list[_Process] = []
        is_given = False
        while processes and not is_given:
            process = processes.poll()
            polled.append(process)
            if task not in process.tasks:
                self._total_quota.taken(process.add_to_least_loaded(task, is_active=False).task_count)
                is_given = True
        for process in reversed(polled):
            processes.add(process)
        return is_given

    def _count_active(self, member: _Member) -> None:
        """Count an active task that a member has got."""
        self._active_quota.taken(member.task_count)
        self._total_quota.taken(member.task_count)

    def _least_loaded(self, members: Sequence[_Member], without: TaskId | None) -> _Member | None:
        """Return the first of these members, or a later one with fewer tasks on a less loaded process.

        without: a task; members whose processes have it do not count.
        """
        found = None
        for member in members:
            if without not in member.process.tasks and (
                found is None or (member.process.load < found.process.load and member.task_count < found.task_count)
            ):
                found = member
        return found

    def _processes_by_load(self) -> PriorityQueue[_Process]:
        order = hash_map_order(self._processes, capacity=len(self._members))
        return PriorityQueue(lambda process: process.load, [self._processes[process_id] for process_id in order])


def _tasks(tasks: Mapping[str, Iterable[int]]) -> list[TaskId]:
    return [TaskId(name, number) for name, numbers in tasks.items() for number in numbers]


def _by_partition(task: TaskId) -> tuple[int, str]:
    return task.partition, task.subtopology_id


def _by_subtopology(tasks: Iterable[TaskId]) -> dict[str, frozenset[int]]:
    result: dict[str, set[int]] = {}
    for task in tasks:
        result.setdefault(task.subtopology_id, set()).add(task.partition)
    return {subtopology_id: frozenset(partitions) for subtopology_id, partitions in sorted(result.items())}
