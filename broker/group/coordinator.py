"""The pure state of one partition of `__consumer_offsets`: its groups and their offsets, and every decision about them.

A request that concerns members is passed on to the group's own kind of membership; what concerns all kinds, offsets
above all, is here.
Source: Kafka's GroupCoordinatorShard, GroupMetadataManager and OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import structlog

from broker.deadlines import Deadlines
from broker.group.classic import ClassicEvent, ClassicGroup, ClassicState
from broker.group.classic_membership import ClassicMembership, Joiner
from broker.group.classic_rebalance import ClassicRebalance, refuse_join, refuse_sync
from broker.group.classic_records import apply_group, group_tombstone
from broker.group.effects import DeadlineKey, DeadlineKind, Effects, GroupConfig, GroupDeadlines
from broker.group.expiry import expired_offsets
from broker.group.offset_commits import (
    Committer,
    FetchedOffset,
    OffsetToCommit,
    check_commit,
    check_transactional_commit,
)
from broker.group.offset_records import OffsetAndMetadata, decode_offset, offset_record, offset_tombstone
from broker.group.offsets import OffsetStore
from broker.shard import CoordinatorRecord, Decision, RecordOrigin
from broker.topic_partition import TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.group_admin import DescribedGroup, DescribedGroupMember, ListedGroup
from protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.schema import DecodeError
from protocol.stored.consumer_offsets import OffsetCommitKey, decode_group_metadata_key, decode_offset_commit_key

if TYPE_CHECKING:
    from broker.log.verification import VerificationGuard

log = structlog.get_logger(__name__)

MAX_RECORDS_PER_DECISION = 1_000  # for work without a natural bound: expiry, and deletion of groups and topics
MAX_GROUPS_PER_SWEEP_STEP = 1_000
MAX_DEADLINES_PER_DECISION = 500
_SWEEP = DeadlineKey(DeadlineKind.SWEEP)


class GroupCoordinatorShard:
    """One shard. Implements `broker.coordinator.Shard`."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._groups: dict[str, ClassicGroup] = {}
        self._offsets = OffsetStore()
        self._deadlines: GroupDeadlines = Deadlines()
        self._rebalance = ClassicRebalance(config, self._deadlines)
        self._classic = ClassicMembership(config, self._rebalance)
        self._is_loaded = False
        self._sweep_queue: list[str] = []

    # Groups

    def _group(self, group_id: str) -> ClassicGroup | None:
        """A group that has members or a record, or, when it only has offsets, an empty one made for the occasion."""
        group = self._groups.get(group_id)
        if group is None and self._offsets.contains_group(group_id):
            return ClassicGroup(group_id)
        return group

    def _group_ids(self) -> set[str]:
        return self._groups.keys() | self._offsets.group_ids()

    def _forget_if_abandoned(self, group: ClassicGroup) -> None:
        if group.is_abandoned and group.state is not ClassicState.PREPARING_REBALANCE:
            self._groups.pop(group.group_id, None)

    # Membership

    def join_group(self, request: JoinGroupRequest, joiner: Joiner, now_ms: int) -> Decision[JoinGroupResponse]:
        """Answers with the new generation once it begins; until then the request is parked under `joiner.token`.

        Refuses: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED (with the id to join
                 with),
        INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS (another request
        took over).
        """
        member_id = request.member_id
        if not request.group_id:
            return Decision(refuse_join(ErrorCode.INVALID_GROUP_ID, member_id))
        config = self._config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return Decision(refuse_join(ErrorCode.INVALID_SESSION_TIMEOUT, member_id))
        group = self._group(request.group_id)
        if group is None:
            if member_id:
                return Decision(refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            group = ClassicGroup(request.group_id)
        self._groups[group.group_id] = group
        effects = Effects(now_ms)
        reply = self._classic.join(group, request, joiner, effects)
        self._forget_if_abandoned(group)
        return effects.decision(reply)

    def sync_group(self, request: SyncGroupRequest, token: Hashable, now_ms: int) -> Decision[SyncGroupResponse]:
        """Answers with the member's assignment; followers are parked under `token` until the leader has sent it.

        Refuses: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                 INCONSISTENT_GROUP_PROTOCOL,
        REBALANCE_IN_PROGRESS.
        """
        if not request.group_id:
            return Decision(refuse_sync(ErrorCode.INVALID_GROUP_ID))
        group = self._group(request.group_id)
        if group is None:
            return Decision(refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        effects = Effects(now_ms)
        return effects.decision(self._classic.sync(group, request, token, effects))

    def assignment_failed(self, group_id: str, generation_id: int, error: ErrorCode, now_ms: int) -> Decision[None]:
        """The record of a leader's assignment was refused by the log."""
        effects = Effects(now_ms)
        group = self._groups.get(group_id)
        if group is not None:
            self._classic.assignment_failed(group, generation_id, error, effects)
        return effects.decision(None)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[ErrorCode]:
        if not request.group_id:
            return Decision(ErrorCode.INVALID_GROUP_ID)
        group = self._group(request.group_id)
        if group is None:
            return Decision(ErrorCode.UNKNOWN_MEMBER_ID)
        effects = Effects(now_ms)
        return effects.decision(self._classic.heartbeat(group, request, effects))

    def leave_group(self, group_id: str, members: list[MemberIdentity], now_ms: int) -> Decision[LeaveGroupResponse]:
        """Each member has an error of its own; the response as a whole fails only with INVALID_GROUP_ID."""
        if not group_id:
            return Decision(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        group = self._group(group_id)
        if group is None:
            unknown = [
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for member in members
            ]
            return Decision(LeaveGroupResponse(members=unknown))
        effects = Effects(now_ms)
        response = self._classic.leave(group, members, effects)
        self._forget_if_abandoned(group)
        return effects.decision(response)

    def request_abandoned(self, group_id: str, token: Hashable, now_ms: int) -> Decision[None]:
        """The connection of a parked JoinGroup or SyncGroup is gone."""
        effects = Effects(now_ms)
        group = self._groups.get(group_id)
        if group is not None:
            self._classic.request_abandoned(group, token, effects)
        return effects.decision(None)

    # Offsets

    def commit_offsets(
        self,
        group_id: str,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        retention_time_ms: int = -1,
        unknown_group_error: ErrorCode = ErrorCode.ILLEGAL_GENERATION,
        now_ms: int,
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """One error for the whole request, or one for each offset in order (NONE or OFFSET_METADATA_TOO_LARGE).

        retention_time_ms:   -1 for the broker's own; OffsetCommit 2 to 4 can ask for another.
        unknown_group_error: GROUP_ID_NOT_FOUND since OffsetCommit 9.
        Refuses: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
                 `unknown_group_error`.
        """
        group = self._group(group_id)
        if group is None:
            if committer.generation_id >= 0:
                return Decision(unknown_group_error)
        else:
            error = check_commit(group, committer)
            if error is not ErrorCode.NONE:
                return Decision(error)
            if committer.member_id:
                self._classic.committed(group, committer.member_id, Effects(now_ms))
        expire_timestamp_ms = -1 if retention_time_ms < 0 else now_ms + retention_time_ms
        errors, records = self._offset_records(group_id, offsets, now_ms, expire_timestamp_ms)
        return Decision(errors, records=records)

    def commit_offsets_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: tuple[int, int],
        offsets: Sequence[OffsetToCommit],
        *,
        guard: VerificationGuard | None = None,
        now_ms: int,
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """As `commit_offsets`, but pending until the transaction of `producer` (id, epoch) ends.

        Strangers may commit in any state: fencing is the producer epoch's task then. Refuses: INVALID_GROUP_ID,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION. Source: KIP-447.
        """
        if not group_id:
            return Decision(ErrorCode.INVALID_GROUP_ID)
        group = self._group(group_id)
        if group is None:
            if committer.generation_id >= 0:
                return Decision(ErrorCode.ILLEGAL_GENERATION)
        else:
            error = check_transactional_commit(group, committer)
            if error is not ErrorCode.NONE:
                return Decision(error)
        errors, records = self._offset_records(group_id, offsets, now_ms, -1)
        return Decision(errors, records=records, producer=producer, guard=guard)

    def _offset_records(
        self, group_id: str, offsets: Sequence[OffsetToCommit], now_ms: int, expire_timestamp_ms: int
    ) -> tuple[list[ErrorCode], list[CoordinatorRecord]]:
        maximum = self._config.offset_metadata_max_bytes
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for topic_partition, topic_id, offset, leader_epoch, metadata in offsets:
            metadata = metadata or ""
            if len(metadata) > maximum:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            errors.append(ErrorCode.NONE)
            value = OffsetAndMetadata(offset, leader_epoch, metadata, now_ms, expire_timestamp_ms, topic_id)
            records.append(offset_record(group_id, topic_partition, value))
        return errors, records

    def fetch_offsets(
        self, group_id: str, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """Committed offsets of the partitions asked for, or of all that have one.

        With `require_stable` a partition for which a transaction is open answers UNSTABLE_OFFSET_COMMIT.
        A group that nobody knows has no offsets; that is no error.
        """
        committed = self._offsets.committed(group_id)
        has_pending = require_stable and self._offsets.has_pending(group_id)
        fetched = []
        for topic_partition in committed if topic_partitions is None else topic_partitions:
            if has_pending and self._offsets.is_pending(group_id, topic_partition):
                fetched.append(FetchedOffset(topic_partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            value = committed.get(topic_partition)
            if value is None:
                fetched.append(FetchedOffset(topic_partition))
            else:
                fetched.append(FetchedOffset(topic_partition, value.offset, value.leader_epoch, value.metadata))
        return fetched

    def delete_offsets(
        self, group_id: str, topic_partitions: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """One error for the whole request, or NONE or GROUP_SUBSCRIBED_TO_TOPIC for each partition in order.

        Refuses: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members that are no consumers). Source: KIP-496.
        """
        if not group_id:
            return Decision(ErrorCode.INVALID_GROUP_ID)
        group = self._group(group_id)
        if group is None:
            return Decision(ErrorCode.GROUP_ID_NOT_FOUND)
        error = group.refusal(
            ClassicEvent.DELETE_CONSUMED_OFFSETS if group.is_consumer_group else ClassicEvent.DELETE_OFFSETS
        )
        if error is not ErrorCode.NONE:
            return Decision(error)
        subscribed = group.subscribed_topics()
        committed = self._offsets.committed(group_id)
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for topic_partition in topic_partitions:
            is_subscribed = topic_partition.topic in subscribed if subscribed is not None else group.is_consumer_group
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE)
            if not is_subscribed and (
                topic_partition in committed or self._offsets.is_pending(group_id, topic_partition)
            ):
                records.append(offset_tombstone(group_id, topic_partition))
        return Decision(errors, records=records)

    def drop_offsets(self, is_gone: Callable[[str, bytes], bool]) -> Decision[bool]:
        """Remove the offsets of topics of which `is_gone(name, topic id)` says so, a bounded number at a time.

        The id is zero for offsets that were committed without it. The reply says whether there may be more.
        """
        records = list(
            islice(
                (
                    offset_tombstone(group_id, topic_partition)
                    for group_id in self._offsets.group_ids()
                    for topic_partition, topic_id in self._offsets.partitions(group_id)
                    if is_gone(topic_partition.topic, topic_id)
                ),
                MAX_RECORDS_PER_DECISION,
            )
        )
        return Decision(len(records) == MAX_RECORDS_PER_DECISION, records=records)

    # Administration

    def list_groups(self) -> Iterator[ListedGroup]:
        for group_id in self._group_ids():
            group = self._group(group_id)
            if group is not None:
                yield ListedGroup(
                    group_id=group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state_name,
                    group_type=group.group_type,
                )

    def describe_group(self, group_id: str) -> DescribedGroup | None:
        """None for a group that does not exist. Metadata and assignments are shown for a stable group only."""
        group = self._group(group_id)
        if group is None:
            return None
        is_stable = group.state is ClassicState.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state_name,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol_name or "") if is_stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata(group.protocol_name) if is_stable else b"",
                    member_assignment=member.assignment if is_stable else b"",
                )
                for member in group.members.values()
            ],
        )

    def delete_group(self, group_id: str) -> Decision[ErrorCode | None]:
        """NONE when the group is gone, None when a part of its offsets is and the call has to be repeated.

        Refuses: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._group(group_id)
        if group is None:
            return Decision(ErrorCode.GROUP_ID_NOT_FOUND)
        error = group.refusal(ClassicEvent.DELETE_GROUP)
        if error is not ErrorCode.NONE:
            return Decision(error)
        records = [
            offset_tombstone(group_id, topic_partition)
            for topic_partition, _ in islice(self._offsets.partitions(group_id), MAX_RECORDS_PER_DECISION)
        ]
        if len(records) == MAX_RECORDS_PER_DECISION:
            return Decision(None, records=records)
        records.append(group_tombstone(group_id))
        return Decision(ErrorCode.NONE, records=records)

    # Time

    def next_deadline_ms(self) -> int | None:
        return self._deadlines.next_ms()

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        effects = Effects(now_ms)
        for key in islice(self._deadlines.due(now_ms), MAX_DEADLINES_PER_DECISION):
            if key.kind is DeadlineKind.SWEEP:
                self._sweep(effects)
                continue
            group = self._groups.get(key.group_id)
            if group is not None:
                self._rebalance.deadline(group, key, effects)
                self._forget_if_abandoned(group)
        return effects.decision(None)

    def _sweep(self, effects: Effects) -> None:
        """Remove expired offsets and groups of which nothing is left, a bounded number at a time."""
        queue = self._sweep_queue
        if not queue:
            queue.extend(self._group_ids())
        for _ in range(min(len(queue), MAX_GROUPS_PER_SWEEP_STEP)):
            room = MAX_RECORDS_PER_DECISION - len(effects.records)
            if room <= 0:
                break
            group_id = queue.pop()
            group = self._group(group_id)
            if group is None:
                continue
            found = expired_offsets(
                group, self._offsets, retention_ms=self._config.offsets_retention_ms, now_ms=effects.now_ms
            )
            expired = list(islice(found, room))
            effects.records.extend(offset_tombstone(group_id, topic_partition) for topic_partition in expired)
            if len(expired) == room:
                queue.append(group_id)
            elif (
                group.is_stored
                and len(expired) == len(self._offsets.committed(group_id))
                and not self._offsets.has_pending(group_id)
                and group.cell(ClassicEvent.EXPIRED) is ClassicState.DEAD
                and not group.pending_member_ids
            ):
                effects.records.append(group_tombstone(group_id))
        self._deadlines.set(_SWEEP, effects.now_ms + (1 if queue else self._config.offsets_retention_check_interval_ms))

    # The log

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        try:
            offset_key = decode_offset_commit_key(key)
            if offset_key is not None:
                self._apply_offset(offset_key, value, origin)
                return
            group_key = decode_group_metadata_key(key)
            if group_key is not None:
                self._apply_group(group_key.group, value, origin)
                return
        except DecodeError as error:
            log.warning("group_record_left_out", offset=origin.offset, reason=str(error))
            return
        log.warning("group_record_left_out", offset=origin.offset, reason="a key of an unknown version")

    def _apply_offset(self, key: OffsetCommitKey, value: bytes | None, origin: RecordOrigin) -> None:
        topic_partition = TopicPartition(key.topic, key.partition)
        if value is None:
            self._offsets.remove(key.group, topic_partition)
            return
        offset = decode_offset(value, origin.offset)
        if offset is None:
            log.warning("group_record_left_out", offset=origin.offset, reason="an offset value of an unknown version")
        elif origin.producer_id >= 0:
            self._offsets.commit_in_transaction(origin.producer_id, key.group, topic_partition, offset)
        else:
            self._offsets.commit(key.group, topic_partition, offset)

    def _apply_group(self, group_id: str, value: bytes | None, origin: RecordOrigin) -> None:
        if value is None:
            group = self._groups.get(group_id)
            if group is None:
                return
            group.is_stored = False
            if group.is_abandoned:
                group.state = ClassicState.DEAD
                del self._groups[group_id]
            return
        group = self._groups.get(group_id) or ClassicGroup(group_id)
        left = apply_group(group, value)
        self._groups[group_id] = group
        if self._is_loaded:
            self._rebalance.settled(group, left, origin.timestamp_ms)

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        self._offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> None:
        self._is_loaded = True
        for group in self._groups.values():
            self._rebalance.start_sessions(group, now_ms)
        self._deadlines.set(_SWEEP, now_ms + self._config.offsets_retention_check_interval_ms)
