"""A whole node for share groups, without sockets for their requests: a clock that stands still, logs on disk."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fencepost.broker.config import Alteration, Settings, alter_configs
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.node import Node
from fencepost.broker.requests.api import APIS, RequestContext
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    ShareAcknowledgePartition,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopic,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.schema import decode, encode_chunks
from tests.support.handler_calls import LocalConnection, response_of

NOW_MS = 1_700_000_000_000
Batch = tuple[int, int, list[int]]
"""First and last offset, and what became of the records."""


@dataclass
class ManualClock:
    """Time stands still until a test moves it."""

    time_ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.time_ms


class BreakableConnection(LocalConnection):
    """A connection that a test can break."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    def close(self) -> None:
        for callback in self._callbacks:
            callback()


@dataclass
class ShareBroker:
    """The node, and how to call its handlers as dispatch does."""

    node: Node
    clock: ManualClock
    connection: BreakableConnection = field(default_factory=BreakableConnection)

    async def call(self, request: Any, version: int | None = None) -> Any:
        api = APIS[request.api_key]
        version = api.maximum_version if version is None else version
        context = RequestContext(
            services=self.node.services,
            api_version=version,
            correlation_id=1,
            client_id="test",
            connection=self.connection,
        )
        sent = b"".join(encode_chunks(request, version))
        outcome = api.handler(context, decode(api.request, memoryview(sent), version))
        response = response_of(await outcome if inspect.isawaitable(outcome) else outcome)
        return decode(type(response), b"".join(encode_chunks(response, version)), version)

    # Topics

    async def create(self, topic: str, partition_count: int = 1) -> None:
        error, message = await self.node.services.topics.create(topic, partition_count, {})
        assert error is ErrorCode.NONE, message

    def topic_id(self, topic: str) -> bytes:
        found = self.node.services.topics.metadata.get(topic)
        assert found is not None
        return found.topic_id

    async def produce(self, topic: str, record_count: int, partition: int = 0) -> None:
        """One batch."""
        log = self.node.services.topics.log(TopicPartition(topic, partition))
        assert log is not None
        records = [Record(offset, self.clock.time_ms, None, b"value", ()) for offset in range(record_count)]
        log.append(memoryview(build_batch(records)), now_ms=self.clock.time_ms)
        await log.flushed()

    async def configure(self, group_id: str, **configs: str) -> None:
        """Set configs of a group: underscores for dots."""
        alterations = [Alteration(name.replace("_", "."), 0, text) for name, text in configs.items()]
        error, message = await self.node.services.group_configs.alter(
            group_id,
            lambda current: alter_configs(current, alterations, setting_of=lambda _: None, default_of=lambda _: None),
            validate_only=False,
        )
        assert error is ErrorCode.NONE, message

    # Share groups

    async def heartbeat(
        self, member_id: str, epoch: int, topics: list[str] | None = None, group_id: str = "g"
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        response: ShareGroupHeartbeatResponse = await self.call(request)
        return response

    async def join(self, member_id: str, topics: list[str], group_id: str = "g") -> int:
        """The epoch of a member that has been given partitions."""
        await self.node.services.topics.ensure_internal("__consumer_offsets")
        await self.node.services.groups.ensure_loaded()
        response = await self.heartbeat(member_id, 0, topics, group_id)
        assert response.error_code == ErrorCode.NONE, response.error_message
        await self.node.services.shares.settled()
        self.clock.time_ms += 1_000
        first_assignment = response.assignment  # a group that was emptied is assigned at once
        response = await self.heartbeat(member_id, response.member_epoch, None, group_id)
        assignment = response.assignment or first_assignment
        assert assignment is not None
        assert assignment.topic_partitions
        return response.member_epoch

    async def fetch(
        self, member_id: str, epoch: int, *batches: Batch, topic: str = "orders", version: int = 2, **fields: Any
    ) -> ShareFetchResponse:
        said = [AcknowledgementBatch(*batch) for batch in batches]
        topics = [ShareFetchTopic(self.topic_id(topic), [ShareFetchPartition(0, said)])]
        values = {"max_wait_ms": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500, "group_id": "g", **fields}
        request = ShareFetchRequest(member_id=member_id, share_session_epoch=epoch, topics=topics, **values)
        response: ShareFetchResponse = await self.call(request, version)
        return response

    async def acknowledge(
        self, member_id: str, epoch: int, *batches: Batch, topic: str = "orders", version: int = 2, **fields: Any
    ) -> ShareAcknowledgeResponse:
        said = [AcknowledgementBatch(*batch) for batch in batches]
        topics = [ShareAcknowledgeTopic(self.topic_id(topic), [ShareAcknowledgePartition(0, said)])]
        values = {"group_id": "g", **fields}
        request = ShareAcknowledgeRequest(member_id=member_id, share_session_epoch=epoch, topics=topics, **values)
        response: ShareAcknowledgeResponse = await self.call(request, version)
        return response


def lent(response: ShareFetchResponse) -> list[tuple[int, int, int]]:
    """First and last offset and delivery count of all records that were lent."""
    assert response.error_code == ErrorCode.NONE, response.error_message
    return [
        (acquired.first_offset, acquired.last_offset, acquired.delivery_count)
        for topic in response.responses
        for partition in topic.partitions
        for acquired in partition.acquired_records
    ]


def only_partition(response: ShareFetchResponse) -> ShareFetchPartitionData:
    """The one partition of an answer."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


@asynccontextmanager
async def running_share_broker(
    directory: Path, *, start_ms: int = NOW_MS, **settings: Any
) -> AsyncIterator[ShareBroker]:
    """A node with data in `directory`, which may have been there before; it ends as in a crash if it is not stopped."""
    clock = ManualClock(start_ms)
    chosen = Settings(
        log_dirs=str(directory / "data"),
        listeners=("PLAINTEXT://127.0.0.1:0",),
        offsets_topic_num_partitions=1,
        share_coordinator_state_topic_num_partitions=2,
        group_share_min_record_lock_duration_ms=1_000,
        **settings,
    )
    node = Node(chosen, clock=clock)
    await node.start()
    try:
        await node.ensure_loaded()
        yield ShareBroker(node, clock)
    finally:
        await node.stop()
