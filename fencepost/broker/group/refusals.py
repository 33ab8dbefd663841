"""Refusals of heartbeats and other requests, the same for all kinds of groups. Pure."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fencepost.protocol.errors import ErrorCode


class HeartbeatRefusal(NamedTuple):
    """Refusal of a heartbeat or another request about a group. The message is for people."""

    error: ErrorCode
    message: str | None


def no_such_group(group_id: str, group: object | None, kind: str) -> HeartbeatRefusal:
    """Refuse with GROUP_ID_NOT_FOUND: there is no group with this id, or it is not of this kind."""
    reason = f"Group {group_id} not found." if group is None else f"Group {group_id} is not a {kind} group."
    return HeartbeatRefusal(ErrorCode.GROUP_ID_NOT_FOUND, reason)


def full_group(max_size: int, kind: str) -> HeartbeatRefusal:
    reason = f"The {kind} group has reached its maximum capacity of {max_size} members."
    return HeartbeatRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, reason)


def unknown_member(member_id: str, group_id: str) -> HeartbeatRefusal:
    return HeartbeatRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def fenced_member(known_epoch: int, epoch: int, kind: str) -> HeartbeatRefusal:
    relation = "greater" if epoch > known_epoch else "smaller"
    return HeartbeatRefusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({known_epoch}). The member must abandon all its partitions and rejoin.",
    )


def unreleased_instance(member_id: str, instance_id: str, owner: str) -> HeartbeatRefusal:
    """Refusal of a static member that joins while another process has its instance id."""
    return HeartbeatRefusal(
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Static member {member_id} with instance id {instance_id} cannot join the group "
        f"because the instance id is owned by {owner} member.",
    )


class HasMemberId(Protocol):
    """A member of a group."""

    @property
    def member_id(self) -> str: ...


def check_static(member: HasMemberId | None, member_id: str, instance_id: str) -> HeartbeatRefusal | None:
    """Refuse with UNKNOWN_MEMBER_ID, or with FENCED_INSTANCE_ID when another process has the instance id."""
    if member is None:
        return HeartbeatRefusal(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        return HeartbeatRefusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return None
