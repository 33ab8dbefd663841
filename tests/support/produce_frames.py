"""Frames of Produce requests, which brokers are to answer alike whatever ids they gave to topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BY_NAME, BY_ID = 12, 13
"""The last version that names topics, and the first that tells their ids."""
OWN_ID = b"the id of a topic"[:16]
"""In frames and replies that are compared, for the id that a broker has given to its topic."""


def produce_frame(records: bytes | None, *, partition: int = 0, **others: Any) -> bytes:
    """A request for one partition; the others as for several."""
    return produce_frame_of_several([(partition, records)], **others)


def produce_frame_of_several(
    partitions: Sequence[tuple[int, bytes | None]],
    *,
    topic: str = "orders",
    version: int = BY_NAME,
    acks: int = -1,
    client_id: str | None = "client",
    correlation_id: int = 1,
    transactional_id: str | None = None,
) -> bytes:
    """partitions: each with its batch."""
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name=topic,
                topic_id=OWN_ID if version >= BY_ID else bytes(16),
                partition_data=[PartitionProduceData(index=index, records=records) for index, records in partitions],
            )
        ],
    )
    return request_frame(correlation_id, client_id, request, version)
