"""Reconciliation of one member with the target assignment: first it revokes, then it gets revoked partitions. Pure.

A member stays in its epoch until it has revoked all partitions outside its target. Only then it enters the target's
epoch, with the free partitions of its target; the others follow as they become free. No partition ever has two owners.
Source: KIP-848; Kafka's CurrentAssignmentBuilder.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from enum import Enum

from fencepost.broker.group.consumer.group import ConsumerMember, OwnedPartitions
from fencepost.broker.group.modern import Assignment, MemberState

ReportedPartitions = Mapping[bytes, Collection[int]]
"""Partitions that a member reports as owned."""

NO_OWNED: Mapping[int, int] = {}


class MemberSituation(Enum):
    """Situation of a member at its heartbeat: at the target's epoch or behind it, and whether it has confirmed its
    revocations."""

    CURRENT_UNREVOKED = "at the target's epoch, and has not given up what it must"
    CURRENT_REVOKED = "at the target's epoch, and has given up what it must"
    BEHIND_UNREVOKED = "behind the target, and has not given up what it must"
    BEHIND_REVOKED = "behind the target, and has given up what it must"


class ReconciliationStep(Enum):
    """KEEP leaves the member as it is, unless its subscription shrank; ADVANCE moves it towards the target."""

    KEEP = "keep"
    ADVANCE = "advance"


_KEEP, _ADVANCE = ReconciliationStep.KEEP, ReconciliationStep.ADVANCE

# fmt: off
_ROWS: dict[MemberSituation, tuple[ReconciliationStep, ReconciliationStep, ReconciliationStep]] = {
    #                                   STABLE    UNREVOKED  UNRELEASED
    MemberSituation.CURRENT_UNREVOKED: (_KEEP,    _KEEP,     _ADVANCE),
    MemberSituation.CURRENT_REVOKED:   (_KEEP,    _ADVANCE,  _ADVANCE),
    MemberSituation.BEHIND_UNREVOKED:  (_ADVANCE, _KEEP,     _ADVANCE),
    MemberSituation.BEHIND_REVOKED:    (_ADVANCE, _ADVANCE,  _ADVANCE),
}
# fmt: on
RECONCILIATION_TABLE: dict[tuple[MemberSituation, MemberState], ReconciliationStep] = {
    (situation, state): step for situation, row in _ROWS.items() for state, step in zip(MemberState, row, strict=True)
}


def reconcile(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Assignment,
    subscribed_topic_ids: Collection[bytes],
    has_subscription_changed: bool,
    owner: Callable[[bytes, int], str | None],
    reported: ReportedPartitions | None,
) -> ConsumerMember:
    """Return the member after its heartbeat; the same object if it does not change.

    subscribed_topic_ids:     existing topics of its subscription; it keeps and gets no others.
    has_subscription_changed: whether this heartbeat changed it; other topics are then revoked even before a new target.
    owner:                    returns the owner of a partition, by topic id and partition; None for a free one.
    reported:                 partitions that the member reports as owned; None for no report.
    """
    has_revoked = not _owns_any(member.pending_revocation, reported)
    if member.member_epoch == target_epoch:
        standing = MemberSituation.CURRENT_REVOKED if has_revoked else MemberSituation.CURRENT_UNREVOKED
    else:
        standing = MemberSituation.BEHIND_REVOKED if has_revoked else MemberSituation.BEHIND_UNREVOKED
    if RECONCILIATION_TABLE[standing, member.state] is ReconciliationStep.ADVANCE:
        return _advance(member, target_epoch, target, subscribed_topic_ids, owner, reported)
    return _trim(member, subscribed_topic_ids, reported) if has_subscription_changed else member


def _advance(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    subscribed_topic_ids: Collection[bytes],
    owner: Callable[[bytes, int], str | None],
    reported: ReportedPartitions | None,
) -> ConsumerMember:
    kept: dict[bytes, Mapping[int, int]] = {}
    revoked: dict[bytes, Mapping[int, int]] = {}
    gained: dict[bytes, list[int]] = {}
    is_waiting = False
    for topic_id in {**target, **member.assigned}:
        wanted: Collection[int] = target.get(topic_id, ()) if topic_id in subscribed_topic_ids else ()
        owned = member.assigned.get(topic_id, NO_OWNED)
        if owned:
            staying = {partition: epoch for partition, epoch in owned.items() if partition in wanted}
            if staying:
                kept[topic_id] = owned if len(staying) == len(owned) else staying
            if len(staying) < len(owned):
                revoked[topic_id] = {partition: epoch for partition, epoch in owned.items() if partition not in wanted}
        missing = [partition for partition in wanted if partition not in owned]
        if missing:
            # Partitions that the member itself has revoked are free for it.
            free = [partition for partition in missing if owner(topic_id, partition) in (None, member.member_id)]
            is_waiting = is_waiting or len(free) < len(missing)
            if free:
                gained[topic_id] = free
    if revoked and _owns_any(revoked, reported):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    for topic_id, partitions in gained.items():
        kept[topic_id] = {**kept.get(topic_id, NO_OWNED), **dict.fromkeys(partitions, target_epoch)}
    advanced = replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        member_epoch=target_epoch,
        previous_member_epoch=member.member_epoch,
        assigned=kept,
        pending_revocation={},
    )
    # A member that still waits in the same epoch has confirmed that epoch, which ends the previous one; its further
    # heartbeats change nothing.
    return member if advanced == member else advanced


def _trim(
    member: ConsumerMember, subscribed_topic_ids: Collection[bytes], reported: ReportedPartitions | None
) -> ConsumerMember:
    """Revoke, in the member's current epoch, the topics that it no longer subscribes to."""
    dropped = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in subscribed_topic_ids}
    if not dropped:
        return member
    kept = {topic_id: owned for topic_id, owned in member.assigned.items() if topic_id not in dropped}
    revoked = dict(member.pending_revocation)
    for topic_id, owned in dropped.items():
        revoked[topic_id] = {**revoked.get(topic_id, NO_OWNED), **owned}
    if _owns_any(revoked, reported):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_member_epoch=member.member_epoch,
            assigned=kept,
            pending_revocation=revoked,
        )
    return replace(member, previous_member_epoch=member.member_epoch, assigned=kept)


def _owns_any(partitions: OwnedPartitions, reported: ReportedPartitions | None) -> bool:
    """Return whether the member may still own one of these; without a report it may own all."""
    if reported is None:
        return True
    return any(partition in owned for topic_id, owned in partitions.items() for partition in reported.get(topic_id, ()))
