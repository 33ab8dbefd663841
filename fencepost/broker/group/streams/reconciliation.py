"""Reconciliation of one member of a streams group with the target: it first revokes, then gets free tasks. Pure.

Steps and table are those of the consumer protocol. A task is free if no other member of the process has it, and, for an
active task, if no member is active for it. A member keeps a task that only changes its role: a copy of the state stays
until the member is active, and an active task becomes a copy at once.
Source: KIP-1071; Kafka's streams.CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from fencepost.broker.group.consumer.reconciliation import RECONCILIATION_TABLE, MemberSituation, ReconciliationStep
from fencepost.broker.group.modern import MemberState
from fencepost.broker.group.streams.group import StreamsMember
from fencepost.broker.group.streams.tasks import NO_OWNED_TASKS, OwnedTasks, TaskAssignment, TaskId, TaskRole

Processes = Callable[[TaskRole, TaskId], Collection[str]]
"""Function from a role and a task to the processes that have the task in it now."""


def reconcile(
    member: StreamsMember,
    *,
    target_epoch: int,
    target: TaskAssignment,
    processes: Processes,
    reported: TaskAssignment | None,
) -> StreamsMember:
    """Return the member after its heartbeat; the same object if it does not change.

    reported: tasks that the member reports; None for no report.
    """
    has_revoked = reported is not None and not member.pending_revocation.shares_any_with(reported)
    if member.member_epoch == target_epoch:
        standing = MemberSituation.CURRENT_REVOKED if has_revoked else MemberSituation.CURRENT_UNREVOKED
    else:
        standing = MemberSituation.BEHIND_REVOKED if has_revoked else MemberSituation.BEHIND_UNREVOKED
    if RECONCILIATION_TABLE[standing, member.state] is ReconciliationStep.KEEP:
        return member
    advanced = _advance(member, target_epoch, target, processes, reported)
    # A member that still waits in the same epoch has received the reply with that epoch.
    return member if advanced == member else advanced


@dataclass(frozen=True, slots=True)
class _Difference:
    """Difference between a member's tasks and its target. has_unreleased: some tasks of the target are not free yet."""

    kept: OwnedTasks
    revoked: OwnedTasks
    gained: TaskAssignment
    has_unreleased: bool


def _advance(
    member: StreamsMember,
    target_epoch: int,
    target: TaskAssignment,
    processes: Processes,
    reported: TaskAssignment | None,
) -> StreamsMember:
    difference = _difference(member, target, processes)
    has_to_revoke = difference.revoked and (reported is None or difference.revoked.shares_any_with(reported))
    kept = _with_promoted(member, target, difference, is_granted=not has_to_revoke)
    if has_to_revoke:
        # A member that has just revoked tasks, and has to revoke more, enters an epoch in between.
        is_again = member.state is MemberState.UNREVOKED_PARTITIONS
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            member_epoch=member.member_epoch + is_again,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=difference.revoked,
        )
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if difference.has_unreleased else MemberState.STABLE,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=_merged(kept, difference.gained, target_epoch),
        pending_revocation=NO_OWNED_TASKS,
    )


def _difference(member: StreamsMember, target: TaskAssignment, processes: Processes) -> _Difference:
    def is_free(role: TaskRole, task: TaskId) -> bool:
        """Return whether a task is free. A task that the member has just revoked is not: its record still holds it."""
        if role is TaskRole.ACTIVE and processes(TaskRole.ACTIVE, task):
            return False
        return all(
            member.process_id not in processes(other, task) or (other is not role and has_task(other, task))
            for other in TaskRole
        )

    def has_task(role: TaskRole, task: TaskId) -> bool:
        return task.partition in member.assigned.of(role).get(task.subtopology_id, ())

    def changes_role(role: TaskRole, task: TaskId) -> bool:
        """Return whether the member has the task in another role, and goes on with it in this one at once."""
        return role is not TaskRole.ACTIVE and any(has_task(other, task) for other in TaskRole if other is not role)

    def is_wanted_in_another(role: TaskRole, task: TaskId) -> bool:
        """Return whether a copy stays, in another role, so that it need not be revoked."""
        return role is not TaskRole.ACTIVE and any(
            task.partition in target.of(other).get(task.subtopology_id, ())
            and (other is TaskRole.ACTIVE or is_free(other, task))
            for other in TaskRole
            if other is not role
        )

    kept: dict[str, dict[str, frozenset[int]]] = {}
    revoked: dict[str, dict[str, frozenset[int]]] = {}
    gained: dict[str, dict[str, frozenset[int]]] = {}
    has_unreleased = False
    for role in TaskRole:
        owned, wanted = member.assigned.of(role), target.of(role)
        kept[role.value], revoked[role.value], gained[role.value] = {}, {}, {}
        for subtopology_id in {**owned, **wanted}:
            has = frozenset(owned.get(subtopology_id, ()))
            wants = wanted.get(subtopology_id, frozenset())
            free = frozenset(number for number in wants - has if is_free(role, TaskId(subtopology_id, number)))
            at_once = frozenset(number for number in free if changes_role(role, TaskId(subtopology_id, number)))
            lost = frozenset(
                number for number in has - wants if not is_wanted_in_another(role, TaskId(subtopology_id, number))
            )
            has_unreleased = has_unreleased or len(free) < len(wants - has)
            for result, numbers in ((kept, (has & wants) | at_once), (revoked, lost), (gained, free - at_once)):
                if numbers:
                    result[role.value][subtopology_id] = numbers
    active = member.assigned.active
    return _Difference(
        kept=_owned(kept, active),
        revoked=_owned(revoked, active),
        gained=TaskAssignment(**gained),
        has_unreleased=has_unreleased,
    )


def _with_promoted(
    member: StreamsMember, target: TaskAssignment, difference: _Difference, *, is_granted: bool
) -> OwnedTasks:
    """Return the kept tasks with the copies of tasks that the member is to be active for, but is not yet.

    is_granted: whether the member gets its free tasks in this step.
    """
    copies = {}
    for role in (TaskRole.STANDBY, TaskRole.WARMUP):
        waiting = {
            subtopology_id: frozenset(numbers)
            & target.active.get(subtopology_id, frozenset())
            - (difference.gained.active.get(subtopology_id, frozenset()) if is_granted else frozenset())
            for subtopology_id, numbers in member.assigned.of(role).items()
        }
        kept = {name: frozenset(numbers) for name, numbers in difference.kept.of(role).items()}
        copies[role] = _union_of_tasks(kept, {name: numbers for name, numbers in waiting.items() if numbers})
    return OwnedTasks(difference.kept.active, copies[TaskRole.STANDBY], copies[TaskRole.WARMUP])


def _owned(tasks: Mapping[str, Mapping[str, frozenset[int]]], since: Mapping[str, Mapping[int, int]]) -> OwnedTasks:
    active = {
        subtopology_id: {number: since[subtopology_id][number] for number in sorted(numbers)}
        for subtopology_id, numbers in tasks[TaskRole.ACTIVE.value].items()
    }
    return OwnedTasks(active, tasks[TaskRole.STANDBY.value], tasks[TaskRole.WARMUP.value])


def _merged(kept: OwnedTasks, gained: TaskAssignment, epoch: int) -> OwnedTasks:
    active = {
        subtopology_id: {
            **kept.active.get(subtopology_id, {}),
            **dict.fromkeys(sorted(gained.active.get(subtopology_id, ())), epoch),
        }
        for subtopology_id in {**kept.active, **gained.active}
    }
    return OwnedTasks(
        active, _union_of_tasks(kept.standby, gained.standby), _union_of_tasks(kept.warmup, gained.warmup)
    )


def _union_of_tasks(
    tasks: Mapping[str, frozenset[int]], more: Mapping[str, frozenset[int]]
) -> dict[str, frozenset[int]]:
    return {name: tasks.get(name, frozenset()) | more.get(name, frozenset()) for name in {**tasks, **more}}
