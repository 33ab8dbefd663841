"""A group coordinator's shard with a log in memory: what the runtime does, without the runtime."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import count
from typing import Any, TypeVar

from fencepost.broker.coordination.runtime import Decision, Parked, RecordOrigin
from fencepost.broker.group.classic.group import ClassicGroup, ClassicState
from fencepost.broker.group.classic.membership import JoinContext
from fencepost.broker.group.decision_builder import DeadlineKind, GroupConfig
from fencepost.broker.group.offsets.commits import Committer, OffsetToCommit
from fencepost.broker.group.shard import GroupShard
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import MetadataImage
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.group_membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from fencepost.protocol.schema import ZERO_UUID

Reply = TypeVar("Reply")

ORDERS = TopicPartition("orders", 0)
STRANGER = Committer()
RECORD = "record"
MARKER = "marker"


class Waiting:
    """A request that was parked; `answer` is filled by a later decision."""

    def __init__(self, token: Hashable) -> None:
        self.token = token
        self.answer: Any = None

    @property
    def is_answered(self) -> bool:
        return self.answer is not None


class ShardHarness:
    """Carries decisions out at once: records are appended to `log` and applied, replies go to the waiters."""

    def __init__(
        self, config: GroupConfig | None = None, *, topics: MetadataImage | None = None, now_ms: int = 1_000_000
    ) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.topics = MetadataImage() if topics is None else topics
        self.shard = GroupShard(self.config, self.topics)
        self.now_ms = now_ms
        self.log: list[tuple[str, Any]] = []
        self.waiting: dict[Hashable, Waiting] = {}
        self.is_log_refusing = False
        self.refusal = ErrorCode.MESSAGE_TOO_LARGE
        self._tokens = count()
        self._suffixes = count(1)
        self.shard.loaded(now_ms)

    # The runtime's part

    def run(self, decision: Decision[Reply]) -> Any:
        """The reply, or the Waiting of a request that was parked (with its answer, if the decision itself holds it)."""
        reply: Any = decision.reply
        if isinstance(reply, Parked):
            reply = self.waiting[reply.token] = Waiting(reply.token)
        if decision.records and self.is_log_refusing:
            self.waiting.pop(getattr(decision.reply, "token", None), None)
            if decision.on_refused is not None:
                decision.on_refused(self.refusal)
            return None
        if decision.settle is not None:
            decision.settle()
        if decision.records:
            producer_id, producer_epoch = decision.producer or (-1, -1)
            for record in decision.records:
                origin = RecordOrigin(len(self.log), self.now_ms, producer_id, producer_epoch)
                self.log.append((RECORD, (record.key, record.value, origin)))
                if record.decoded is None:
                    self.shard.apply(record.key, record.value, origin)
                else:
                    self.shard.apply_decided(record.decoded, origin.offset, producer_id)
        for token, answer in decision.parked_replies:
            waiting = self.waiting.pop(token, None)
            if waiting is not None:
                waiting.answer = answer
        return reply

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((MARKER, (producer_id, committed)))
        self.shard.apply_marker(producer_id, 0, committed=committed, offset=len(self.log) - 1)

    def advance(self, duration_ms: int) -> None:
        """Let time pass; every deadline on the way is met when it is due."""
        end_ms = self.now_ms + duration_ms
        while True:
            deadline_ms = self.shard.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.run(self.shard.decide_deadline(self.now_ms))
        self.now_ms = end_ms

    def replayed(self) -> ShardHarness:
        """Another shard, loaded from the same log now."""
        other = ShardHarness.__new__(ShardHarness)
        other.config, other.topics, other.now_ms = self.config, self.topics, self.now_ms
        other.shard = GroupShard(self.config, self.topics)
        other.log, other.waiting, other.is_log_refusing = list(self.log), {}, False
        other.refusal = self.refusal
        other._tokens, other._suffixes = self._tokens, self._suffixes
        for offset, (kind, entry) in enumerate(self.log):
            if kind == RECORD:
                other.shard.apply(*entry)
            else:
                producer_id, committed = entry
                other.shard.apply_marker(producer_id, 0, committed=committed, offset=offset)
        other.shard.loaded(self.now_ms)
        return other

    # Requests

    def join(
        self,
        group_id: str = "g",
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 60_000,
        client_id: str = "client",
        version: int = 9,
    ) -> Any:
        """A JoinGroupResponse, or a Waiting."""
        joiner = JoinContext(
            client_id=client_id,
            client_host="/127.0.0.1",
            member_id_suffix=str(next(self._suffixes)),
            token=next(self._tokens),
            requires_known_member_id=version >= 4,
            can_skip_assignment=version >= 9,
        )
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in (protocols or {"range": b"metadata"}).items()
            ],
        )
        return self.run(self.shard.join_group(request, joiner, self.now_ms))

    def sync(
        self,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Any:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in (assignments or {}).items()
            ],
        )
        return self.run(self.shard.sync_group(request, next(self._tokens), self.now_ms))

    def heartbeat(
        self, member_id: str, generation_id: int, *, group_id: str = "g", instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id, generation_id=generation_id, member_id=member_id, group_instance_id=instance_id
        )
        error: ErrorCode = self.run(self.shard.heartbeat(request, self.now_ms))
        return error

    def leave(self, *member_ids: str, group_id: str = "g", instance_id: str | None = None) -> LeaveGroupResponse:
        members = [MemberIdentity(member_id=member_id, group_instance_id=instance_id) for member_id in member_ids]
        response: LeaveGroupResponse = self.run(self.shard.leave_group(group_id, members, self.now_ms))
        return response

    def abandon(self, waiting: Waiting, *, group_id: str = "g") -> None:
        """The connection of a parked request breaks."""
        self.waiting.pop(waiting.token, None)
        self.run(self.shard.parked_request_cancelled(group_id, waiting.token, self.now_ms))

    def commit(
        self,
        offset: int,
        *,
        group_id: str = "g",
        topic_partition: TopicPartition = ORDERS,
        committer: Committer = STRANGER,
        metadata: str | None = "",
        retention_time_ms: int = -1,
        producer_id: int | None = None,
        leader_epoch: int = -1,
        topic_id: bytes = ZERO_UUID,
    ) -> Any:
        """The error of the offset, or of the whole request."""
        offsets = [OffsetToCommit(topic_partition, topic_id, offset, leader_epoch, metadata)]
        if producer_id is None:
            decision = self.shard.offsets.commit(
                group_id, committer, offsets, retention_time_ms=retention_time_ms, now_ms=self.now_ms
            )
        else:
            decision = self.shard.offsets.commit_in_transaction(
                group_id, committer, (producer_id, 0), offsets, now_ms=self.now_ms
            )
        reply = self.run(decision)
        return reply[0] if isinstance(reply, list) else reply

    def committed(self, *, group_id: str = "g", topic_partition: TopicPartition = ORDERS) -> int | ErrorCode:
        """The committed offset, -1 when there is none, or the error, with require_stable."""
        (fetched,) = self.shard.offsets.fetch(group_id, [topic_partition], require_stable=True)
        return fetched.offset if fetched.error is ErrorCode.NONE else fetched.error

    # Shortcuts

    @property
    def next_deadline_is_only_the_sweep(self) -> bool:
        return {key.kind for key in self.shard._deadlines._deadline_ms} == {DeadlineKind.SWEEP}

    @property
    def classic_groups(self) -> dict[str, ClassicGroup]:
        return {name: group for name, group in self.shard._groups.items() if isinstance(group, ClassicGroup)}

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard._groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def state(self, group_id: str = "g") -> ClassicState | None:
        group = self.shard._group(group_id)
        return group.state if isinstance(group, ClassicGroup) else None

    def join_known(self, group_id: str = "g", **options: Any) -> tuple[str, Any]:
        """Ask for a member id, then join with it: the id, and what the second request led to."""
        refused = self.join(group_id, **options)
        assert isinstance(refused, JoinGroupResponse)
        assert refused.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return refused.member_id, self.join(group_id, refused.member_id, **options)

    def stable_group(self, count_of_members: int = 1, *, group_id: str = "g", **options: Any) -> list[str]:
        """A stable group: the ids of its members, the leader first. Each has its own id as assignment."""
        member_ids = [self.join_known(group_id, **options)[0]]
        for _ in range(count_of_members - 1):
            member_id, _ = self.join_known(group_id, **options)
            member_ids.append(member_id)
            for earlier in member_ids[:-1]:
                self.join(group_id, earlier, **options)
        self.sync_all(group_id)
        return member_ids

    def sync_all(self, group_id: str = "g") -> None:
        group = self.group(group_id)
        assert group.state_name == "CompletingRebalance"
        for member_id in [m for m in group.members if m != group.leader_id]:
            self.sync(member_id, group.generation_id, group_id=group_id)
        assert group.leader_id is not None
        response = self.sync(
            group.leader_id, group.generation_id, {name: name.encode() for name in group.members}, group_id=group_id
        )
        assert isinstance(response, SyncGroupResponse)
        assert group.state_name == "Stable"
