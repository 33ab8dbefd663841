"""Writing records outside of transactions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from fencepost.client.cluster import Cluster
from fencepost.client.errors import check
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import Record, build_batch

MOST_BATCH_BYTES: Final = 512 << 10
"""Of keys and values of several records; brokers take batches up to `max.message.bytes`, by default 1 MiB."""

KeyAndValue = tuple[bytes | None, bytes | None]


async def produce(cluster: Cluster, topic: str, index: int, leader: int, key: bytes | None, value: bytes | None) -> int:
    """Write a record, and return its offset once it is acknowledged. Raises ClusterError."""
    return await _produce(cluster, topic, index, leader, [(key, value)])


async def produce_all(cluster: Cluster, topic: str, index: int, leader: int, records: Sequence[KeyAndValue]) -> None:
    """Write records in order, and return once all are acknowledged. Raises ClusterError; some may be written then."""
    batch: list[KeyAndValue] = []
    size_bytes = 0
    for one in records:
        size_bytes += sum(len(part or b"") for part in one)
        if batch and size_bytes > MOST_BATCH_BYTES:
            await _produce(cluster, topic, index, leader, batch)
            batch, size_bytes = [], sum(len(part or b"") for part in one)
        batch.append(one)
    if batch:
        await _produce(cluster, topic, index, leader, batch)


async def _produce(cluster: Cluster, topic: str, index: int, leader: int, records: Sequence[KeyAndValue]) -> int:
    now_ms = int(time.time() * 1000)
    batch = bytes(build_batch([Record(place, now_ms, *one) for place, one in enumerate(records)]))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=index, records=batch)])],
    )
    reply: Any = await cluster.send(request, leader)
    result = reply.responses[0].partition_responses[0]
    check(result.error_code, result.error_message)
    offset: int = result.base_offset
    return offset
