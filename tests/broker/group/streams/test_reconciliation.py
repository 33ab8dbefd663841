"""How a member of a streams group moves towards the target: giving up first, then taking what is free."""

from __future__ import annotations

from dataclasses import replace

from fencepost.broker.group.modern import MemberState
from fencepost.broker.group.streams.group import StreamsMember
from fencepost.broker.group.streams.reconciliation import reconcile
from fencepost.broker.group.streams.tasks import NO_TASKS, OwnedTasks, TaskAssignment, TaskId, TaskRole

Held = dict[tuple[TaskRole, TaskId], tuple[str, ...]]
ONE, TWO = frozenset({0}), frozenset({0, 1})


def moved(
    member: StreamsMember,
    target: TaskAssignment,
    *,
    epoch: int,
    held: Held | None = None,
    reported: TaskAssignment | None = None,
) -> StreamsMember:
    return reconcile(
        member,
        target_epoch=epoch,
        target=target,
        processes=lambda role, task: (held or {}).get((role, task), ()),
        reported=reported,
    )


def member(epoch: int = 2, **fields: object) -> StreamsMember:
    return StreamsMember("m", member_epoch=epoch, process_id="p", **fields)  # type: ignore[arg-type]


def test_a_member_at_the_target_stays_as_it_is() -> None:
    settled = member(assigned=OwnedTasks({"x": {0: 2}}))
    assert moved(settled, TaskAssignment({"x": TWO}), epoch=2) is settled


def test_free_tasks_are_owned_since_the_epoch_of_the_target() -> None:
    settled = member(assigned=OwnedTasks({"x": {0: 2}}))
    gained = moved(settled, TaskAssignment({"x": TWO}), epoch=3)
    assert gained.assigned.active == {"x": {0: 2, 1: 3}}
    assert (gained.member_epoch, gained.previous_member_epoch, gained.state) == (3, 2, MemberState.STABLE)


def test_a_member_gives_up_before_it_gets_anything() -> None:
    holder = member(assigned=OwnedTasks({"x": {0: 2, 1: 2}}))
    target = TaskAssignment({"x": ONE, "y": ONE})
    revoking = moved(holder, target, epoch=3)
    assert (revoking.member_epoch, revoking.state) == (2, MemberState.UNREVOKED_PARTITIONS)
    assert revoking.pending_revocation.active == {"x": {1: 2}}
    assert moved(revoking, target, epoch=3, reported=TaskAssignment({"x": TWO})) is revoking
    advanced = moved(revoking, target, epoch=3, reported=TaskAssignment({"x": ONE}))
    assert advanced.assigned.active == {"x": {0: 2}, "y": {0: 3}}
    assert advanced.pending_revocation == OwnedTasks()


def test_a_member_that_has_to_give_up_more_enters_an_epoch_in_between() -> None:
    revoking = member(
        state=MemberState.UNREVOKED_PARTITIONS,
        assigned=OwnedTasks({"x": {0: 2}}),
        pending_revocation=OwnedTasks({"x": {1: 2}}),
    )
    again = moved(revoking, NO_TASKS, epoch=5, reported=TaskAssignment({"x": ONE}))
    assert (again.member_epoch, again.previous_member_epoch) == (3, 2)
    assert (again.state, again.pending_revocation.active) == (MemberState.UNREVOKED_PARTITIONS, {"x": {0: 2}})


def test_an_active_task_becomes_a_copy_at_once() -> None:
    holder = member(assigned=OwnedTasks({"x": {0: 2, 1: 2}}))
    held: Held = {(TaskRole.ACTIVE, TaskId("x", number)): ("p",) for number in (0, 1)}
    revoking = moved(holder, TaskAssignment({"x": ONE}, {"x": frozenset({1})}), epoch=3, held=held)
    assert revoking.state is MemberState.UNREVOKED_PARTITIONS
    assert revoking.assigned == OwnedTasks({"x": {0: 2}}, {"x": frozenset({1})})
    assert revoking.pending_revocation.active == {"x": {1: 2}}


def test_a_copy_stays_until_its_member_is_active() -> None:
    copying = member(assigned=OwnedTasks(standby={"x": ONE}))
    elsewhere: Held = {(TaskRole.ACTIVE, TaskId("x", 0)): ("q",), (TaskRole.STANDBY, TaskId("x", 0)): ("p",)}
    target = TaskAssignment({"x": ONE})
    waiting = moved(copying, target, epoch=3, held=elsewhere)
    assert (waiting.member_epoch, waiting.state) == (3, MemberState.UNRELEASED_PARTITIONS)
    assert waiting.assigned == OwnedTasks(standby={"x": ONE})
    active = moved(waiting, target, epoch=3, held={(TaskRole.STANDBY, TaskId("x", 0)): ("p",)})
    assert (active.state, active.assigned) == (MemberState.STABLE, OwnedTasks({"x": {0: 3}}))


def test_a_member_waits_for_tasks_that_others_own() -> None:
    held: Held = {(TaskRole.ACTIVE, TaskId("x", 1)): ("q",)}
    waiting = moved(member(), TaskAssignment({"x": TWO}), epoch=3, held=held)
    assert (waiting.member_epoch, waiting.state) == (3, MemberState.UNRELEASED_PARTITIONS)
    assert waiting.assigned.active == {"x": {0: 3}}
    # It has had its answer, so the epoch before counts no more.
    repeated = moved(waiting, TaskAssignment({"x": TWO}), epoch=3, held=held)
    assert repeated == replace(waiting, previous_member_epoch=3)
    assert moved(repeated, TaskAssignment({"x": TWO}), epoch=3, held=held) is repeated
    assert moved(waiting, TaskAssignment({"x": TWO}), epoch=3).assigned.active == {"x": {0: 3, 1: 3}}


def test_a_process_has_a_task_in_one_role_at_a_time() -> None:
    own_standby: Held = {(TaskRole.STANDBY, TaskId("x", 0)): ("p",)}
    assert moved(member(), TaskAssignment({"x": ONE}), epoch=3, held=own_standby).assigned == OwnedTasks()
    own_active: Held = {(TaskRole.ACTIVE, TaskId("x", 0)): ("p",)}
    assert moved(member(), TaskAssignment(standby={"x": ONE}), epoch=3, held=own_active).assigned == OwnedTasks()
    others: Held = {(TaskRole.ACTIVE, TaskId("x", 0)): ("q",), (TaskRole.STANDBY, TaskId("x", 0)): ("r",)}
    standby = moved(member(), TaskAssignment(standby={"x": ONE}), epoch=3, held=others)
    assert standby.assigned == OwnedTasks(standby={"x": ONE})
    assert standby.state is MemberState.STABLE


def test_warm_up_tasks_are_moved_like_standbys() -> None:
    warm = moved(member(), TaskAssignment(warmup={"x": ONE}), epoch=3)
    assert warm.assigned.warmup == {"x": ONE}
    cold = moved(warm, NO_TASKS, epoch=4, reported=NO_TASKS)
    assert (cold.assigned, cold.member_epoch) == (OwnedTasks(), 4)
