"""Record of a classic group in `__consumer_offsets`, written when a generation becomes stable or empty. Pure.

Source: Kafka's GroupMetadataKey.json, GroupMetadataValue.json and GroupCoordinatorRecordHelpers.newGroupMetadataRecord.
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.coordination.shard import CoordinatorRecord
from fencepost.broker.group.classic.group import (
    ClassicEvent,
    ClassicGroup,
    ClassicMember,
    ClassicState,
    GroupTableAction,
)
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_group_metadata_key,
    encode_group_metadata_value,
)
from fencepost.protocol.stored.versioned import decode_known

GROUP_METADATA_VALUE_VERSION = 3


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """Return the record that removes a group."""
    return CoordinatorRecord(_key(group_id), None)


def group_record(
    group: ClassicGroup,
    members: Sequence[ClassicMember],
    *,
    generation_id: int,
    leader_id: str | None,
    timestamp_ms: int | None,
) -> CoordinatorRecord:
    """Return the record of a group with these members; without any the group is empty.

    timestamp_ms: start of the stable or empty state of the group; None when unknown.
    """
    protocol_name = group.protocol_name if members else None
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=generation_id,
        protocol=protocol_name,
        leader=leader_id if members else None,
        current_state_timestamp=-1 if timestamp_ms is None else timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol_name),
                assignment=member.assignment,
            )
            for member in members
        ],
    )
    return CoordinatorRecord(_key(group.group_id), encode_group_metadata_value(value, GROUP_METADATA_VALUE_VERSION))


def apply_group(group: ClassicGroup, value: bytes) -> list[ClassicMember]:
    """Apply a record to the group. Members that stay keep their state in memory, above all their parked requests.

    Returns the members that were removed. Raises DecodeError and leaves the group unchanged.
    """
    decoded = decode_known(GroupMetadataValue, value)
    _check(decoded)
    members = [_member(group, stored, decoded.protocol) for stored in decoded.members]
    kept_ids = {member.member_id for member in members}
    left = [member for member in group.members.values() if member.member_id not in kept_ids]
    group.replacement = None
    group.replace_members(members)
    group.generation_id = decoded.generation
    group.protocol_type = decoded.protocol_type or None
    group.protocol_name = decoded.protocol
    group.leader_id = decoded.leader
    group.state_timestamp_ms = None if decoded.current_state_timestamp == -1 else decoded.current_state_timestamp
    group.is_stored = True
    event, settled = (
        (ClassicEvent.ASSIGNED, ClassicState.STABLE) if members else (ClassicEvent.EMPTIED, ClassicState.EMPTY)
    )
    is_replayed = group.move(event) is GroupTableAction.IGNORE  # the rebalance that led here was never in the log
    if is_replayed:
        group.state = settled
    if is_replayed or not members:
        group.note_subscriptions()
    return left


def _check(value: GroupMetadataValue) -> None:
    """Raise DecodeError for a generation that no group can have."""
    member_ids = {member.member_id for member in value.members}
    if value.generation < 0:
        raise DecodeError(f"generation {value.generation} is negative")
    if "" in member_ids or len(member_ids) != len(value.members):
        raise DecodeError("members without an id, or two with the same one")
    if member_ids and value.protocol is None:
        raise DecodeError("members that have agreed on no protocol")


def _member(group: ClassicGroup, stored: MemberMetadata, protocol_name: str | None) -> ClassicMember:
    member = group.members.get(stored.member_id)
    if member is None and group.replacement is not None and group.replacement.member_id == stored.member_id:
        member = group.replacement
    if member is None:
        member = ClassicMember(
            member_id=stored.member_id,
            group_instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_ms=stored.rebalance_timeout,
            session_timeout_ms=stored.session_timeout,
            protocols=(),
        )
    protocols = member.protocols
    if protocol_name is not None and (
        not member.speaks(protocol_name) or member.metadata(protocol_name) != stored.subscription
    ):
        protocols = ((protocol_name, stored.subscription),)
    return member._replace(
        group_instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        # A record of version 0 has no rebalance time-out, which is -1 then.
        rebalance_timeout_ms=stored.rebalance_timeout if stored.rebalance_timeout >= 0 else stored.session_timeout,
        session_timeout_ms=stored.session_timeout,
        protocols=protocols,
        assignment=stored.assignment,
    )


def _key(group_id: str) -> bytes:
    return encode_group_metadata_key(GroupMetadataKey(group=group_id))
