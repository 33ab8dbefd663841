"""Shard of the group coordinator: the groups and offsets of one partition of `__consumer_offsets`. Pure.

The shard passes requests about members on to the membership class of the group's kind, and requests about offsets to
`OffsetDecisions`. Only records and markers of the log change its state.
Source: Kafka's GroupCoordinatorShard, GroupMetadataManager and OffsetMetadataManager.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property, partial
from itertools import accumulate, islice
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, RecordOrigin
from fencepost.broker.group.classic.group import ClassicEvent, ClassicGroup, ClassicState
from fencepost.broker.group.classic.membership import ClassicMembership, JoinContext
from fencepost.broker.group.classic.rebalance import ClassicRebalance, refuse_join, refuse_sync
from fencepost.broker.group.classic.records import apply_group, group_tombstone
from fencepost.broker.group.consumer.classic_members import ClassicMembersOfConsumerGroups
from fencepost.broker.group.consumer.description import described_consumer_group
from fencepost.broker.group.consumer.group import ConsumerGroup
from fencepost.broker.group.consumer.membership import ConsumerMembership, refuse
from fencepost.broker.group.consumer.migration import can_become_classic, downgrade, upgraded
from fencepost.broker.group.consumer.rebalance import ConsumerRebalance
from fencepost.broker.group.consumer.records import STORED_CONSUMER_GROUPS, UnknownMemberStateError, group_tombstones
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.decision_builder import (
    DeadlineKey,
    DeadlineKind,
    DecisionBuilder,
    GroupConfig,
    GroupDeadlines,
)
from fencepost.broker.group.kinds import Group
from fencepost.broker.group.modern import JOIN_EPOCH, HeartbeatContext
from fencepost.broker.group.offsets.committed import OffsetStore
from fencepost.broker.group.offsets.decisions import DECISION_RECORDS_BYTES, OffsetDecisions
from fencepost.broker.group.offsets.expiry import expired_offsets
from fencepost.broker.group.offsets.records import (
    OffsetAndMetadata,
    OffsetCommitted,
    decode_key,
    decode_offset,
    offset_tombstone,
)
from fencepost.broker.group.refusals import HeartbeatRefusal, no_such_group
from fencepost.broker.group.share_groups.group import ShareGroup
from fencepost.broker.group.streams.group import StreamsGroup
from fencepost.broker.kernel.deadlines import DeadlinePace, Deadlines
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import (
    ConsumerGroupDescribedGroup,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from fencepost.protocol.messages.group_admin import DescribedGroup, DescribedGroupMember, ListedGroup
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from fencepost.protocol.stored.consumer_offsets import decode_group_metadata_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from fencepost.broker.group.share_groups.groups import ShareGroups
    from fencepost.broker.group.streams.groups import StreamsGroups

log = get_logger(__name__)

MAX_GROUPS_PER_SWEEP_STEP = 1_000
MAX_DEADLINES_PER_DECISION = 500
MAX_MEMBERS_PER_DEADLINE_DECISION = 2_000
"""Approximate bound on the members of the groups in one deadline decision: each group may begin a generation."""
_SWEEP = DeadlineKey(DeadlineKind.SWEEP)


class GroupSummary(NamedTuple):
    """A group of any kind, with the offsets that it has committed."""

    group_id: str
    kind: str
    state: str
    members_count: int
    committed: Mapping[TopicPartition, OffsetAndMetadata]


class GroupShard:
    """One shard. Implements `broker.coordination.runtime.Shard`.

    topics:  the current topics.
    offsets: the decisions about committed offsets.
    shares, streams: the decisions about such groups. Each is imported at the first request or record of one: few
                     brokers have any.
    """

    def __init__(self, config: GroupConfig, topics: TopicCatalogue) -> None:
        self._config = config
        self._topics = topics
        self._groups: dict[str, Group] = {}
        self._offsets = OffsetStore()
        self._deadlines: GroupDeadlines = Deadlines()
        self.next_deadline_ms = self._deadlines.next_ms
        self.clock_moved = self._deadlines.clock_moved
        self._rebalance = ClassicRebalance(config, self._deadlines)
        self._classic = ClassicMembership(config, self._rebalance)
        consumer_rebalance = ConsumerRebalance(config, topics)
        self._consumer = ConsumerMembership(config, self._deadlines, consumer_rebalance)
        self._classic_members = ClassicMembersOfConsumerGroups(config, consumer_rebalance, topics)
        self.offsets = OffsetDecisions(config, topics, self._offsets, self._group, self._classic)
        self._is_loaded = False
        self._pace = DeadlinePace(MAX_DEADLINES_PER_DECISION)
        self._sweep_queue: list[str] = []  # ids of groups that remain to be swept, the next one last

    @cached_property
    def shares(self) -> ShareGroups:
        from fencepost.broker.group.share_groups.groups import ShareGroups

        return ShareGroups(self._config, self._deadlines, self._topics, self._groups, self._group)

    @cached_property
    def streams(self) -> StreamsGroups:
        from fencepost.broker.group.streams.groups import StreamsGroups

        return StreamsGroups(self._config, self._deadlines, self._topics, self._groups, self._group)

    # Groups

    def _group(self, group_id: str) -> Group | None:
        """Find a group with members or a record. For a group that only has offsets, return a new, empty one."""
        group = self._groups.get(group_id)
        if group is None and self._offsets.contains_group(group_id):
            return ClassicGroup(group_id)
        return group

    def _group_ids(self) -> set[str]:
        return self._groups.keys() | self._offsets.group_ids()

    def _effects(self, now_ms: int) -> DecisionBuilder:
        return DecisionBuilder(now_ms, self._deadlines)

    def _draft(self, group: ClassicGroup, effects: DecisionBuilder) -> ClassicGroup:
        """Copy a group for a decision to change. The group becomes the copy when the records are in the log."""
        draft = group.copy()
        effects.changes.append(partial(self._settle, group, draft))
        return draft

    def _settle(self, group: ClassicGroup, draft: ClassicGroup) -> None:
        group.become(draft)
        if not group.is_abandoned or group.state is ClassicState.PREPARING_REBALANCE:
            self._groups[group.group_id] = group
        elif self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    # Membership

    def join_group(self, request: JoinGroupRequest, joiner: JoinContext, now_ms: int) -> Decision[JoinGroupResponse]:
        """Park the request under `joiner.token` until the next generation begins, then reply with that generation.

        Refuses: INVALID_GROUP_ID, INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, MEMBER_ID_REQUIRED (with the id to join
                 with), INCONSISTENT_GROUP_PROTOCOL, FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, REBALANCE_IN_PROGRESS
                 (another request took over).
        """
        member_id = request.member_id
        if not request.group_id:
            return Decision(refuse_join(ErrorCode.INVALID_GROUP_ID, member_id))
        config = self._config
        if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
            return Decision(refuse_join(ErrorCode.INVALID_SESSION_TIMEOUT, member_id))
        group = self._group(request.group_id)
        effects = self._effects(now_ms)
        if isinstance(group, ConsumerGroup) and group.members:
            return effects.decision(self._classic_members.join(group, request, joiner, effects))
        if isinstance(group, ShareGroup) or (isinstance(group, StreamsGroup) and group.members):
            return Decision(refuse_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if not isinstance(group, ClassicGroup):
            if member_id:
                return Decision(refuse_join(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
            if group is not None:
                effects.records.extend(self._tombstones(group, effects))
            group = ClassicGroup(request.group_id)
        return effects.decision(self._classic.join(self._draft(group, effects), request, joiner, effects))

    def sync_group(self, request: SyncGroupRequest, token: Hashable, now_ms: int) -> Decision[SyncGroupResponse]:
        """Reply with the member's assignment. Requests are parked under `token` until the leader has sent it.

        Refuses: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
                 INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS.
        """
        if not request.group_id:
            return Decision(refuse_sync(ErrorCode.INVALID_GROUP_ID))
        group = self._group(request.group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
            return Decision(refuse_sync(ErrorCode.UNKNOWN_MEMBER_ID))
        effects = self._effects(now_ms)
        if isinstance(group, ConsumerGroup):
            return effects.decision(self._classic_members.sync(group, request, effects))
        return effects.decision(self._classic.sync(self._draft(group, effects), request, token, effects))

    def assignment_failed(self, group_id: str, generation_id: int, error: ErrorCode, now_ms: int) -> Decision[None]:
        """Handle the log's refusal of the record of a leader's assignment."""
        effects = self._effects(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self._classic.assignment_failed(self._draft(group, effects), generation_id, error, effects)
        return effects.decision(None)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> Decision[ErrorCode]:
        if not request.group_id:
            return Decision(ErrorCode.INVALID_GROUP_ID)
        group = self._group(request.group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
            return Decision(ErrorCode.UNKNOWN_MEMBER_ID)
        effects = self._effects(now_ms)
        if isinstance(group, ConsumerGroup):
            return effects.decision(self._classic_members.heartbeat(group, request, effects))
        return effects.decision(self._classic.heartbeat(group, request, effects))

    def leave_group(self, group_id: str, members: list[MemberIdentity], now_ms: int) -> Decision[LeaveGroupResponse]:
        """Remove members. Each gets its own error; the response as a whole fails only with INVALID_GROUP_ID."""
        if not group_id:
            return Decision(LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        group = self._group(group_id)
        if group is None or isinstance(group, ShareGroup | StreamsGroup):
            unknown = [
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for member in members
            ]
            return Decision(LeaveGroupResponse(members=unknown))
        effects = self._effects(now_ms)
        if isinstance(group, ConsumerGroup):
            return effects.decision(self._classic_members.leave(group, members, effects))
        return effects.decision(self._classic.leave(self._draft(group, effects), members, effects))

    def parked_request_cancelled(self, group_id: str, token: Hashable, now_ms: int) -> Decision[None]:
        """Drop a parked JoinGroup or SyncGroup whose connection was closed."""
        effects = self._effects(now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            self._classic.parked_request_cancelled(self._draft(group, effects), token, effects)
        return effects.decision(None)

    # Membership in groups of the consumer protocol

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int, sender: HeartbeatContext, now_ms: int
    ) -> Decision[ConsumerGroupHeartbeatResponse]:
        """Handle the heartbeat with which a member joins, stays or leaves. The first member that joins a classic group,
        empty or of consumers, converts it to the consumer protocol.

        Refuses: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR, GROUP_ID_NOT_FOUND, and the errors of `ConsumerMembership`.
        """
        refusal = self._consumer.check_request(request, version)
        if refusal is not None:
            return Decision(refuse(*refusal))
        group_id = request.group_id
        known = self._group(group_id)
        effects = self._effects(now_ms)
        if request.member_epoch < JOIN_EPOCH:
            if not isinstance(known, ConsumerGroup):
                return Decision(refuse(*no_such_group(group_id, known, "consumer")))
            return effects.decision(self._consumer.leave(known, request, effects))
        group = known if isinstance(known, ConsumerGroup) else None
        if group is None:
            if request.member_epoch != JOIN_EPOCH or isinstance(known, ShareGroup | StreamsGroup):
                if known is None:
                    return Decision(refuse(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found."))
                return Decision(refuse(*no_such_group(group_id, known, "consumer")))
            if isinstance(known, ClassicGroup) and known.members:
                converted = upgraded(known, self._topics, self._config, effects)
                if isinstance(converted, str):
                    return Decision(refuse(ErrorCode.GROUP_ID_NOT_FOUND, converted))
                group = converted
            else:
                if isinstance(known, ClassicGroup) and known.is_stored:
                    effects.records.append(group_tombstone(group_id))
                group = ConsumerGroup(group_id)
        response = self._consumer.heartbeat(group, request, sender, effects)
        if response.error_code:
            return Decision(response)  # discards all effects, the conversion included
        if isinstance(known, ClassicGroup):
            effects.note(log.info, "group_became_consumer_group", group_id=group_id, members=len(known.members))
            self._rebalance.upgrade_to_consumer_group(known, effects)
        return effects.decision(response)

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

    def summaries(self) -> Iterator[GroupSummary]:
        """Summarize each group; a later summary may be of a later state."""
        for group_id in self._group_ids():
            found = self.summary(group_id)
            if found is not None:
                yield found

    def summary(self, group_id: str) -> GroupSummary | None:
        """Summarize one group; None if it is unknown."""
        group = self._group(group_id)
        if group is None:
            return None
        committed = self._offsets.committed(group_id)
        return GroupSummary(group_id, group.group_type, group.state_name, len(group.members), committed)

    def describe_group(self, group_id: str) -> DescribedGroup | HeartbeatRefusal:
        """Describe a classic group; metadata and assignments only if it is stable.

        Refuses: GROUP_ID_NOT_FOUND, also for a group of another kind.
        """
        group = self._group(group_id)
        if not isinstance(group, ClassicGroup):
            return no_such_group(group_id, group, "classic")
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
                    member_assignment=member.assignment,
                )
                for member in group.members.values()
            ],
        )

    def describe_consumer_group(self, group_id: str) -> ConsumerGroupDescribedGroup:
        """Describe a group of the consumer protocol. Refuses: GROUP_ID_NOT_FOUND, also for a group of another kind."""
        group = self._group(group_id)
        if isinstance(group, ConsumerGroup):
            return described_consumer_group(group, self._topics, self._config.consumer_assignors[0])
        error, message = no_such_group(group_id, group, "consumer")
        return ConsumerGroupDescribedGroup(group_id=group_id, error_code=error, error_message=message)

    def delete_group(self, group_id: str) -> Decision[ErrorCode | None]:
        """Delete a group with its offsets, a bounded number at a time. Returns NONE when the group is deleted, and None
        when offsets remain and the caller has to repeat the call.

        Refuses: GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
        """
        group = self._group(group_id)
        if group is None:
            return Decision(ErrorCode.GROUP_ID_NOT_FOUND)
        if not isinstance(group, ClassicGroup):
            error = ErrorCode.NON_EMPTY_GROUP if group.members else ErrorCode.NONE
        else:
            error = group.refusal(ClassicEvent.DELETE_GROUP)
        if error is not ErrorCode.NONE:
            return Decision(error)
        records: list[CoordinatorRecord] = []
        size_bytes = 0
        for topic_partition in self._offsets.partitions(group_id):
            record = offset_tombstone(group_id, topic_partition)
            records.append(record)
            size_bytes += len(record.key)
            if size_bytes >= DECISION_RECORDS_BYTES:
                return Decision(None, records=records)
        effects = self._effects(0)
        effects.records = records + self._tombstones(group, effects)
        return effects.decision(ErrorCode.NONE)

    def _tombstones(self, group: Group, effects: DecisionBuilder) -> list[CoordinatorRecord]:
        """Return the records that remove a group of any kind."""
        if isinstance(group, ConsumerGroup):
            return group_tombstones(group)
        if isinstance(group, ShareGroup):
            return self.shares.tombstones(group)
        if isinstance(group, StreamsGroup):
            return self.streams.tombstones(group, effects)
        self._rebalance.forget_all_pending(self._draft(group, effects), effects)
        return [group_tombstone(group.group_id)]

    def drop_topics_of_share_groups(
        self, is_deleted: Callable[[bytes], bool], group_ids: list[str] | None, now_ms: int
    ) -> Decision[list[str]]:
        """Remove deleted topics from share groups, a bounded number at a time. Returns the groups that remain.
        group_ids: the result of the last call; None for the first."""
        if group_ids is None:
            group_ids = [group_id for group_id, group in self._groups.items() if isinstance(group, ShareGroup)]
        return self.shares.drop_topics(is_deleted, group_ids, now_ms) if group_ids else Decision([])

    # Time

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        """Handle due deadlines, group by group, up to a bound on the records' size; the rest stays due."""
        due: dict[str, list[DeadlineKey]] = {}
        for key in self._deadlines.due(now_ms, self._pace.most):
            due.setdefault(key.group_id, []).append(key)
        effects = self._effects(now_ms)
        taken: list[DeadlineKey] = []
        size_bytes = examined_count = 0
        for group_id, keys in due.items():
            step, keys = self._step(group_id, keys, now_ms)
            size_bytes += step.size_bytes
            if taken and size_bytes > DECISION_RECORDS_BYTES:
                break
            effects.add(step)
            taken += keys
            group = self._groups.get(group_id)
            examined_count += 1 if group is None else 1 + len(group.members)
            if examined_count >= MAX_MEMBERS_PER_DEADLINE_DECISION:
                break
        effects.changes.append(partial(self._pace.settled, self._deadlines, now_ms))
        refused = partial(self._pace.refused, self._deadlines, taken, now_ms)
        return effects.decision(None)._replace(on_refused=refused)

    def _step(self, group_id: str, keys: list[DeadlineKey], now_ms: int) -> tuple[DecisionBuilder, list[DeadlineKey]]:
        """Decide about due deadlines of one group, up to a bound on the records' size. Returns the decision and the
        deadlines that it covers."""
        if not isinstance(self._groups.get(group_id), ClassicGroup):
            # Each member needs three tombstones. This estimate saves most attempts of the loop below.
            size_bytes = list(accumulate(3 * len(group_id + key.member_id) for key in keys))
            keys = keys[: max(1, bisect_right(size_bytes, DECISION_RECORDS_BYTES))]
        while True:
            effects = self._effects(now_ms)
            for key in keys:
                effects.clear_deadline(key)
            self._deadlines_passed(group_id, keys, effects)
            if len(keys) == 1 or effects.size_bytes <= DECISION_RECORDS_BYTES:
                return effects, keys
            keys = keys[: len(keys) // 2]

    def _deadlines_passed(self, group_id: str, keys: list[DeadlineKey], effects: DecisionBuilder) -> None:
        if keys[0].kind is DeadlineKind.SWEEP:
            self._sweep(effects)
            return
        group = self._groups.get(group_id)
        # Groups of the newer protocols change by records alone: all due deadlines of one group are one step.
        if isinstance(group, ConsumerGroup):
            self._consumer_deadlines(group, keys, effects)
        elif isinstance(group, ShareGroup):
            self.shares.deadlines_passed(group, keys, effects)
        elif isinstance(group, StreamsGroup):
            self.streams.deadlines_passed(group, keys, effects)
        elif group is not None:
            draft = self._draft(group, effects)
            for key in keys:
                self._rebalance.deadline(draft, key, effects)

    def _consumer_deadlines(self, group: ConsumerGroup, due: list[DeadlineKey], effects: DecisionBuilder) -> None:
        members = [key for key in due if key.kind is not DeadlineKind.DOWNGRADE]
        if members:
            self._consumer.deadlines_passed(group, members, effects)
            if len(members) < len(due):  # another step, which needs this one's result
                effects.set_deadline(DeadlineKey(DeadlineKind.DOWNGRADE, group.group_id), effects.now_ms)
        elif can_become_classic(group, self._config):
            downgrade(group, self._topics, effects)
            effects.note(log.info, "group_became_classic", group_id=group.group_id, members=len(group.members))
            effects.set_deadline(DeadlineKey(DeadlineKind.CLASSIC_REBALANCE, group.group_id), effects.now_ms)
        elif group.members:
            self._consumer.stay(group, effects)

    def _sweep(self, effects: DecisionBuilder) -> None:
        """Remove expired offsets and groups without members and offsets, a bounded number at a time."""
        queue = self._sweep_queue or list(self._group_ids())
        done_count = size_bytes = 0
        for group_id in islice(reversed(queue), MAX_GROUPS_PER_SWEEP_STEP):
            if size_bytes >= DECISION_RECORDS_BYTES:
                break
            group = self._group(group_id)
            if group is not None and not isinstance(group, ShareGroup):
                size_bytes += self._sweep_group(group, DECISION_RECORDS_BYTES - size_bytes, effects)
                if size_bytes >= DECISION_RECORDS_BYTES:
                    break  # swept once more
            # Share groups have no offsets here, and stay until they are deleted.
            done_count += 1
        remaining_count = len(queue) - done_count
        effects.changes.append(partial(self._swept, queue, remaining_count))
        interval_ms = 1 if remaining_count else self._config.offsets_retention_check_interval_ms
        effects.set_deadline(_SWEEP, effects.now_ms + interval_ms)

    def _sweep_group(
        self, group: ClassicGroup | ConsumerGroup | StreamsGroup, room_bytes: int, effects: DecisionBuilder
    ) -> int:
        """Remove the expired offsets of a group, and the group if it is removable. Returns the size of the records; at
        `room_bytes` or above, offsets may remain."""
        group_id, records = group.group_id, effects.records
        expired_count = size_bytes = 0
        for topic_partition in expired_offsets(
            group, self._offsets, retention_ms=self._config.offsets_retention_ms, now_ms=effects.now_ms
        ):
            record = offset_tombstone(group_id, topic_partition)
            records.append(record)
            expired_count += 1
            size_bytes += len(record.key)
            if size_bytes >= room_bytes:
                return size_bytes
        if (
            expired_count == len(self._offsets.committed(group_id))
            and not self._offsets.has_pending(group_id)
            and _is_removable(group)
        ):
            records.extend(self._tombstones(group, effects))
        return size_bytes

    def _swept(self, queue: list[str], remaining_count: int) -> None:
        del queue[remaining_count:]
        self._sweep_queue = queue

    # The log

    def apply_decided(self, decoded: OffsetCommitted, offset: int, producer_id: int) -> None:
        self._offsets.commit(decoded.group_id, decoded.topic_partition, decoded.at(offset), producer_id)

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        try:
            offset_key = decode_key(key)
            if offset_key is not None:
                self._apply_offset(*offset_key, value, origin)
                return
            group_key = decode_group_metadata_key(key)
            if group_key is not None:
                self._apply_group(group_key.group, value, origin)
                return
            if (
                STORED_CONSUMER_GROUPS.apply(self._groups, key, value, origin)
                or self.shares.apply(key, value, origin)
                or self.streams.apply(key, value, origin)
            ):
                return
        except UnknownMemberStateError as error:
            log.warning("group_record_skipped", offset=origin.offset, reason=str(error))
            return
        log.warning("group_record_skipped", offset=origin.offset, reason="a key of an unknown version")

    def _apply_offset(
        self, group_id: str, topic_partition: TopicPartition, value: bytes | None, origin: RecordOrigin
    ) -> None:
        if value is None:
            self._offsets.remove(group_id, topic_partition)
            return
        self._offsets.commit(group_id, topic_partition, decode_offset(value, origin.offset), origin.producer_id)

    def _apply_group(self, group_id: str, value: bytes | None, origin: RecordOrigin) -> None:
        group = self._groups.get(group_id)
        if value is None:
            if not isinstance(group, ClassicGroup):
                return
            group.is_stored = False
            if group.is_abandoned:
                group.state = ClassicState.DEAD
                del self._groups[group_id]
            return
        # A group that has changed its protocol starts empty; the records fill it.
        if not isinstance(group, ClassicGroup):
            group = ClassicGroup(group_id)
        left = apply_group(group, value)
        self._groups[group_id] = group
        if self._is_loaded:
            self._rebalance.record_applied(group, left, origin.timestamp_ms)

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        self._offsets.end_transaction(producer_id, committed=committed)

    def loaded(self, now_ms: int) -> None:
        self._is_loaded = True
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                self._consumer.start_sessions(group, now_ms)
                if can_become_classic(group, self._config):
                    self._deadlines.set(DeadlineKey(DeadlineKind.DOWNGRADE, group.group_id), now_ms)
            elif isinstance(group, ClassicGroup):
                self._rebalance.start_sessions(group, now_ms)
            elif isinstance(group, ShareGroup):
                self.shares.start_sessions(group, now_ms)
            else:
                self.streams.start_sessions(group, now_ms)
        self._deadlines.set(_SWEEP, now_ms + self._config.offsets_retention_check_interval_ms)


def _is_removable(group: ClassicGroup | ConsumerGroup | StreamsGroup) -> bool:
    """Return whether the log holds records of a group without members."""
    if not isinstance(group, ClassicGroup):
        return not group.members
    return group.is_stored and group.cell(ClassicEvent.EXPIRED) is ClassicState.DEAD and not group.pending_member_ids
