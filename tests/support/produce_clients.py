"""Clients that send frames of Produce requests to brokers of their own, which are to answer and store alike."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.quotas.client_quotas import ClientQuotas
from tests.support.handler_context import HandlerBroker, open_broker
from tests.support.known_requests import FrameClient
from tests.support.markers import end_in_log
from tests.support.produce_frames import OWN_ID

PRODUCER_ID = 9
TOPICS = ("orders", "returned-orders", "compacted", "stamped")


class Served(FrameClient):
    """A client, and the broker that it sends frames to."""

    def __init__(self, broker: HandlerBroker, *, quotas: ClientQuotas | None = None) -> None:
        super().__init__(broker.services, quotas=quotas)
        self.broker = broker

    async def produce(self, frame: bytes, topic: str = "orders") -> bytes | str | None:
        """As `send`, with the id that this broker has given to the topic, which is taken out of the reply again."""
        metadata = self.broker.topics.metadata.get(topic)
        topic_id = OWN_ID if metadata is None else metadata.topic_id
        reply = await self.send(frame.replace(OWN_ID, topic_id))
        return reply.replace(topic_id, OWN_ID) if isinstance(reply, bytes) else reply

    def stored(self) -> dict[TopicPartition, bytes]:
        """All that has been appended, and where the log starts."""
        found = {}
        for name in TOPICS:
            metadata = self.broker.topics.metadata.get(name)
            for partition in range(0 if metadata is None else 3):
                log = self.broker.log(name, partition)
                segments = b"".join(segment.batches.log.read(0, segment.size_bytes) for segment in log.segments)
                found[TopicPartition(name, partition)] = segments + str(log.log_start_offset).encode()
        return found

    def end_transaction(self, topic: str, *partitions: int, producer_epoch: int = 0) -> None:
        """Markers of `PRODUCER_ID`, in version 1."""
        for partition in partitions:
            end_in_log(self.broker.log(topic, partition), PRODUCER_ID, producer_epoch)

    def unverified(self) -> list[dict[int, tuple[int, int]]]:
        """The epoch and the lowest sequence of every producer that waits for its verification, in each log."""
        logs = (self.broker.topics.log(TopicPartition(name, partition)) for name in TOPICS for partition in range(3))
        return [
            {
                producer_id: (guard.producer_epoch, guard.lowest_sequence)
                for producer_id, guard in log.producers.verifications.items()
            }
            for log in logs
            if log is not None
        ]


@asynccontextmanager
async def served(directory: Path, **settings: Any) -> AsyncIterator[Served]:
    async with open_broker(directory, **settings) as broker:
        await broker.create_topic("orders", 3)
        await broker.create_topic("returned-orders", 3, {"segment.bytes": "1048576"})
        await broker.create_topic("compacted", 3, {"cleanup.policy": "compact", "max.message.bytes": "2000"})
        await broker.create_topic("stamped", 3, {"message.timestamp.type": "LogAppendTime", "compression.type": "lz4"})
        yield Served(broker)
