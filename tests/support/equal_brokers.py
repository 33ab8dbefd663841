"""Two brokers in the same state, which get the same frames: one from a connection with a warm request cache, the other
from connections whose cache is empty. They are to answer and store alike.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fencepost.broker.config import Settings
from fencepost.broker.kernel.topic_partition import CONSUMER_OFFSETS_TOPIC, TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.node import Node
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.schema import decode
from tests.support.handler_context import ManualClock
from tests.support.known_requests import FrameClient

TOPICS = {"orders": 3, "returns": 2}
CLIENT_ID = "client"


class Side:
    """One of the brokers, and its client. throttled_s: for how long the client's connections were muted."""

    def __init__(self, node: Node, clock: ManualClock, *, is_warm: bool) -> None:
        self.node = node
        self.clock = clock
        self.is_warm = is_warm
        self.client = FrameClient(node.services, quotas=node.services.client_quotas)
        self.throttled_s: list[float] = []

    async def send(self, frame: bytes) -> bytes | str | None:
        if not self.is_warm:
            self.client.connect_again()
        muted_count = len(self.client.connection.muted_s)
        reply = await self.client.send(frame)
        self.throttled_s += self.client.connection.muted_s[muted_count:]
        return reply

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        log = self.node.services.topics.log(TopicPartition(topic, partition))
        assert log is not None
        return log

    def logs(self) -> list[PartitionLog]:
        found = [
            self.node.services.topics.log(topic_partition)
            for topic in self.node.services.topics.metadata.all()
            for topic_partition in topic.partitions()
        ]
        return [log for log in found if log is not None]

    def stored(self) -> dict[TopicPartition, Any]:
        """The bytes in all logs, and how far they can be read."""
        return {
            log.topic_partition: (
                b"".join(bytes(segment.batches.log.read(0, segment.size_bytes)) for segment in log.segments),
                (log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset),
            )
            for log in self.logs()
            if not log.is_offline
        }


class EqualBrokers:
    """Both sides. `send` compares the replies, and at the end of `equal_brokers` the logs are compared."""

    def __init__(self, warm: Side, cold: Side) -> None:
        self.warm = warm
        self.sides = (warm, cold)
        self._correlation_id = 0

    @property
    def known_count(self) -> int:
        """The requests that the warm cache has found."""
        assert self.sides[1].client.known_count == 0
        return self.warm.client.known_count

    def frame(self, request: Any, version: int) -> bytes:
        self._correlation_id += 1
        return request_frame(self._correlation_id, CLIENT_ID, request, version)

    async def send(self, request: Any, version: int) -> Any:
        """The response of both brokers; None without one, and a text where the connection was closed."""
        return self.decoded(await self.send_frame(self.frame(request, version)), request, version)

    def decoded(self, reply: bytes | str | None, request: Any, version: int) -> Any:
        """The response in a reply to a request; None without one, and a text if the connection was closed."""
        if not isinstance(reply, bytes):
            return reply
        header_bytes = 5 if response_header_version(request.api_key, version) else 4
        return decode(RESPONSES[request.api_key], reply[LENGTH_BYTES:], version, header_bytes)

    async def send_frame(self, frame: bytes) -> bytes | str | None:
        warm, cold = [await side.send(frame) for side in self.sides]
        assert warm == cold
        assert self.sides[0].throttled_s == self.sides[1].throttled_s
        return warm

    async def begin(self, request: Any, version: int) -> asyncio.Future[bytes | str | None]:
        """Send a request that has to wait; the reply of both."""
        frame = self.frame(request, version)
        waiting = [asyncio.ensure_future(side.send(frame)) for side in self.sides]
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)

        async def both() -> bytes | str | None:
            warm, cold = await asyncio.gather(*waiting)
            assert warm == cold
            return warm

        return asyncio.ensure_future(both())

    async def each(self, do: Callable[[Side], Awaitable[Any]]) -> None:
        """Do the same to both."""
        for side in self.sides:
            await do(side)

    async def create(self, topic: str, partitions_count: int | None = None) -> None:
        count = partitions_count or TOPICS.get(topic, 1)
        await self.each(lambda side: side.node.services.topics.create(topic, count, {}))

    async def delete(self, topic: str) -> None:
        await self.each(lambda side: side.node.services.topics.delete(topic))

    def topic_id(self, topic: str) -> bytes:
        found = [side.node.services.topics.metadata.get(topic) for side in self.sides]
        assert found[0] is not None
        assert found[1] is not None
        assert found[0].topic_id == found[1].topic_id
        return found[0].topic_id

    async def lose(self, topic: str) -> None:
        """Have the disk fail under a topic's logs."""
        for side in self.sides:
            for log in side.logs():
                if log.topic_partition.topic == topic:
                    log.give_up(StorageError("the disk is gone"))
        await self.settle()

    async def set_quotas(self, client_id: str = CLIENT_ID, **values: float) -> None:
        await self.each(lambda side: side.node.services.client_quotas.change((("client-id", client_id),), values))

    async def advance(self, duration_ms: int) -> None:
        for side in self.sides:
            side.clock.time_ms += duration_ms

    async def settle(self) -> None:
        """Wait until no transaction is being completed, and all that was written is durable."""
        for side in self.sides:
            transactions = side.node.services.transactions
            while any(  # noqa: ASYNC110 - nothing tells of the completion
                transaction.state.is_prepared for transaction in transactions.transactions()
            ):
                await asyncio.sleep(0)
            for log in side.logs():
                if not log.is_offline:
                    await log.flushed()

    async def assert_equal(self) -> None:
        await self.settle()
        assert self.sides[0].stored() == self.sides[1].stored()


@asynccontextmanager
async def equal_brokers(directory: Path, **settings: Any) -> AsyncIterator[EqualBrokers]:
    """Two brokers with the topics `TOPICS`."""
    async with AsyncExitStack() as stack:
        sides = []
        for name in ("warm", "cold"):
            clock = ManualClock()
            chosen: dict[str, Any] = {
                "log_dirs": str(directory / name),
                "listeners": ("PLAINTEXT://127.0.0.1:0",),
                "advertised_listeners": ("PLAINTEXT://127.0.0.1:9092",),  # in replies; that of both
                "transaction_state_log_num_partitions": 1,
                "offsets_topic_num_partitions": 1,
                "group_initial_rebalance_delay_ms": 0,
                "fencepost_shutdown_drain_ms": 500,
                **settings,
            }
            node = Node(
                Settings(**chosen), clock=clock, store=InMemoryMetadataStore("equal"), randomness=random.Random(1)
            )
            await node.start()
            stack.push_async_callback(node.stop)
            await node.services.transactions.ensure_available()
            await node.services.topics.ensure_internal(CONSUMER_OFFSETS_TOPIC)
            await node.ensure_loaded()
            sides.append(Side(node, clock, is_warm=name == "warm"))
        brokers = EqualBrokers(*sides)
        for topic in TOPICS:
            await brokers.create(topic)
        yield brokers
        await brokers.assert_equal()
