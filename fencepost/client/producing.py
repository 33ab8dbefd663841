"""Writing one record outside of transactions."""

from __future__ import annotations

import time
from typing import Any

from fencepost.client.cluster import Cluster
from fencepost.client.errors import check
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import Record, build_batch


async def produce(cluster: Cluster, topic: str, index: int, leader: int, key: bytes | None, value: bytes | None) -> int:
    """Write a record, and return its offset once it is acknowledged. Raises ClusterError."""
    batch = bytes(build_batch([Record(0, int(time.time() * 1000), key, value)]))
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
