"""Decisions about streams groups in one shard of the group coordinator, and the effects of their records. Pure.

Source: KIP-1071; the streams groups of Kafka's GroupCoordinatorShard and GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableMapping

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision, RecordOrigin
from fencepost.broker.group.classic.group import ClassicGroup, ClassicState
from fencepost.broker.group.classic.records import group_tombstone
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.decision_builder import DeadlineKey, DecisionBuilder, GroupConfig, GroupDeadlines
from fencepost.broker.group.kinds import Group
from fencepost.broker.group.modern import JOIN_EPOCH, HeartbeatContext
from fencepost.broker.group.refusals import no_such_group
from fencepost.broker.group.streams.description import described_streams_group
from fencepost.broker.group.streams.group import StreamsGroup
from fencepost.broker.group.streams.membership import StreamsHeartbeat, StreamsMembership, refuse
from fencepost.broker.group.streams.records import STORED_STREAMS_GROUPS, group_tombstones
from fencepost.broker.group.streams.requests import check_request
from fencepost.broker.kernel.events import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import StreamsGroupDescribedGroup, StreamsGroupHeartbeatRequest

log = get_logger(__name__)


class StreamsGroups:
    """Decisions about the streams groups of a shard.

    groups: all groups of the shard. find: returns a group as it is, also one that only has offsets.
    """

    def __init__(
        self,
        config: GroupConfig,
        deadlines: GroupDeadlines,
        topics: TopicCatalogue,
        groups: MutableMapping[str, Group],
        find: Callable[[str], Group | None],
    ) -> None:
        self._deadlines = deadlines
        self._groups = groups
        self._find = find
        self._membership = StreamsMembership(config, deadlines, topics)

    # Members

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, sender: HeartbeatContext, now_ms: int
    ) -> Decision[StreamsHeartbeat]:
        """Let a member join, stay or leave. The first that joins an empty classic group converts it to a streams group.

        Refuses: GROUP_ID_NOT_FOUND (also for groups of other kinds), and the errors of `check_request` and
        `StreamsMembership`.
        """
        refusal = check_request(request)
        if refusal is not None:
            return Decision(refuse(*refusal))
        effects = DecisionBuilder(now_ms, self._deadlines)
        known = self._find(request.group_id)
        if request.member_epoch < JOIN_EPOCH:
            if not isinstance(known, StreamsGroup):
                return Decision(refuse(*no_such_group(request.group_id, known, "streams")))
            return effects.decision(self._membership.leave(known, request, effects))
        group = self._joined(known, request, effects) if request.member_epoch == JOIN_EPOCH else known
        if not isinstance(group, StreamsGroup):
            if group is None:
                return Decision(refuse(ErrorCode.GROUP_ID_NOT_FOUND, f"Streams group {request.group_id} not found."))
            return Decision(refuse(*no_such_group(request.group_id, group, "streams")))
        heartbeat = self._membership.heartbeat(group, request, sender, effects)
        return Decision(heartbeat) if heartbeat.response.error_code else effects.decision(heartbeat)

    def _joined(self, known: Group | None, request: StreamsGroupHeartbeatRequest, effects: DecisionBuilder) -> Group:
        """Return the group that a member joins: a new one if there is none, or in place of an empty classic group."""
        if known is None:
            return StreamsGroup(request.group_id)
        if isinstance(known, ClassicGroup) and known.state is ClassicState.EMPTY:
            if known.is_stored:
                effects.records.append(group_tombstone(request.group_id))
            return StreamsGroup(request.group_id)
        return known

    def describe(self, group_id: str) -> StreamsGroupDescribedGroup:
        """Describe a streams group. Refuses: GROUP_ID_NOT_FOUND, also for a group of another kind."""
        group = self._find(group_id)
        if not isinstance(group, StreamsGroup):
            error, message = no_such_group(group_id, group, "streams")
            return StreamsGroupDescribedGroup(group_id=group_id, error_code=error, error_message=message)
        known = group.memory.configured
        configured = None if known is None or known[0] is not group.topology else known[2]
        return described_streams_group(group, configured)

    def decide_describe(self, group_id: str) -> Decision[StreamsGroupDescribedGroup]:
        return Decision(self.describe(group_id))

    # Time

    def deadlines_passed(self, group: StreamsGroup, due: Collection[DeadlineKey], effects: DecisionBuilder) -> None:
        self._membership.deadlines_passed(group, due, effects)

    def start_sessions(self, group: StreamsGroup, now_ms: int) -> None:
        self._membership.start_sessions(group, now_ms)

    # The log

    def tombstones(self, group: StreamsGroup, effects: DecisionBuilder) -> list[CoordinatorRecord]:
        """Return the records that remove a group, for its deletion or its conversion to another kind."""
        self._membership.forget(group, effects)
        return group_tombstones(group)

    def apply(self, key_bytes: bytes, value: bytes | None, origin: RecordOrigin) -> bool:
        """Apply a record of a streams group; return False for any other record. Raises DecodeError."""
        return STORED_STREAMS_GROUPS.apply(self._groups, key_bytes, value, origin)
