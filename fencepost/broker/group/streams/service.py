"""Service for streams groups: passes heartbeats to the group coordinator and creates the groups' internal topics.

Source: KIP-1071; Kafka's KafkaApis.handleStreamsGroupHeartbeat and DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from fencepost.broker.coordination.runtime import CoordinatorRefusal, Decision
from fencepost.broker.group.decision_builder import ReplyT
from fencepost.broker.group.modern import HeartbeatContext
from fencepost.broker.group.streams.groups import StreamsGroups
from fencepost.broker.group.streams.topology import StreamsInternalTopic, TopologyStatus
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock, steady
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.streams_groups import (
    StreamsGroupDescribedGroup,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)

log = get_logger(__name__)

INTERNAL_TOPIC_CREATION = Place("creation of an internal topic of a streams group", Policy.RETRY)

DEFAULT_REPLICATION_FACTORS = (-1, 0)
MAX_REMEMBERED_FAILURES = 1_000
MAX_FAILURES_REPORTED = 3
FAILURE_INTERVALS = 2  # heartbeat intervals for which a failure is reported and the topic is not retried


class DecideOnStreamsGroups(Protocol):
    """Function that calls `decide` with the streams groups of a group's shard. Raises CoordinatorRefusal."""

    def __call__(
        self, group_id: str, decide: Callable[[StreamsGroups, int], Decision[ReplyT]]
    ) -> Awaitable[ReplyT]: ...


class _CreationFailure(NamedTuple):
    """Failed creation of a topic; the reason is for people."""

    reason: str
    forgotten_at_ms: int


class StreamsGroupService:
    """Service for streams groups. heartbeat_interval_ms: by group id."""

    def __init__(
        self, decide: DecideOnStreamsGroups, topics: Topics, clock: Clock, heartbeat_interval_ms: Callable[[str], int]
    ) -> None:
        self._decide = decide
        self._topics = topics
        self._clock = steady(clock)
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._creating: dict[str, asyncio.Task[None]] = {}
        self._failures: dict[str, _CreationFailure] = {}

    async def close(self) -> None:
        tasks = list(self._creating.values())
        await end_tasks(*tasks)

    async def settled(self) -> None:
        """Wait until no creation of an internal topic is running."""
        while self._creating:
            await asyncio.wait(self._creating.values())

    async def heartbeat(
        self,
        request: StreamsGroupHeartbeatRequest,
        *,
        client_id: str,
        client_host: str,
        may_create: Callable[[str], bool] | None = None,
    ) -> StreamsGroupHeartbeatResponse:
        """Let a member join, stay or leave. Creates the missing internal topics of its group in the background.

        may_create: whether the client may create a topic of this name. If it may not create one of those that are
                    missing, none is created and the response says so, as in Kafka.
        """
        sender = HeartbeatContext(client_id, client_host, "")
        try:
            heartbeat = await self._decide(
                request.group_id, lambda streams, now_ms: streams.heartbeat(request, sender, now_ms)
            )
        except CoordinatorRefusal as refusal:
            return StreamsGroupHeartbeatResponse(error_code=refusal.error)
        if heartbeat.to_create and may_create is not None:
            refused = sorted(name for name in heartbeat.to_create if not may_create(name))
            if refused:
                _add_to_status(heartbeat.response, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
                return heartbeat.response
        if heartbeat.to_create:
            self._create(request.group_id, heartbeat.to_create)
            self._add_failures(heartbeat.response, heartbeat.to_create)
        return heartbeat.response

    async def describe(self, group_id: str) -> StreamsGroupDescribedGroup:
        """Describe a group. Refuses: GROUP_ID_NOT_FOUND, and the coordinator's errors."""
        try:
            return await self._decide(group_id, lambda streams, _: streams.decide_describe(group_id))
        except CoordinatorRefusal as refusal:
            return StreamsGroupDescribedGroup(group_id=group_id, error_code=refusal.error)

    # Internal topics

    def _create(self, group_id: str, wanted: Mapping[str, StreamsInternalTopic]) -> None:
        now_ms = self._clock.now_ms()
        for name, topic in wanted.items():
            failure = self._failures.get(name)
            if name in self._creating or (failure is not None and now_ms < failure.forgotten_at_ms):
                continue
            # The next heartbeat requests missing topics again.
            self._creating[name] = INTERNAL_TOPIC_CREATION.start(self._create_one(group_id, topic), concerns=name)

    async def _create_one(self, group_id: str, topic: StreamsInternalTopic) -> None:
        try:
            reason = await self._try_to_create(topic)
        finally:
            del self._creating[topic.name]
        if reason is None:
            self._failures.pop(topic.name, None)
            return
        log.warning("internal_topic_not_created", group_id=group_id, topic=topic.name, reason=reason)
        if len(self._failures) >= MAX_REMEMBERED_FAILURES:
            del self._failures[next(iter(self._failures))]
        remembered_ms = FAILURE_INTERVALS * self._heartbeat_interval_ms(group_id)
        self._failures[topic.name] = _CreationFailure(reason, self._clock.now_ms() + remembered_ms)

    async def _try_to_create(self, topic: StreamsInternalTopic) -> str | None:
        """Create a topic. Returns the reason of a failure in words, or None."""
        factor = topic.replication_factor
        if factor not in DEFAULT_REPLICATION_FACTORS and (reason := self._topics.refused_factor(factor)) is not None:
            return reason
        try:
            error, message = await self._topics.create(topic.name, topic.partition_count, topic.configs)
        except StorageError as failure:
            return str(failure)
        if error in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return None
        return message or error.name

    def _add_failures(
        self, response: StreamsGroupHeartbeatResponse, wanted: Mapping[str, StreamsInternalTopic]
    ) -> None:
        """Add the reasons of failed creations to the status of missing internal topics."""
        now_ms = self._clock.now_ms()
        reported = [
            f"{name} ({failure.reason})"
            for name in wanted
            if (failure := self._failures.get(name)) is not None and now_ms < failure.forgotten_at_ms
        ]
        if not reported:
            return
        detail = ", ".join(reported[:MAX_FAILURES_REPORTED])
        if len(reported) > MAX_FAILURES_REPORTED:
            detail += f" and {len(reported) - MAX_FAILURES_REPORTED} more"
        _add_to_status(response, f"Creation failed: {detail}.")


def _add_to_status(response: StreamsGroupHeartbeatResponse, reason: str) -> None:
    """Add to the status of missing internal topics why they are not created."""
    for status in response.status or ():
        if status.status_code == TopologyStatus.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {reason}"
