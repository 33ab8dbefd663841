"""Frames of Produce requests, which brokers are to answer alike whatever ids they gave to topics; their replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from fencepost.protocol.schema import decode

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


def answers(reply: bytes | str | None, version: int = BY_NAME) -> list[PartitionProduceResponse]:
    """The answers for the partitions of the only topic of a reply."""
    assert isinstance(reply, bytes)
    assert len(reply) == LENGTH_BYTES + int.from_bytes(reply[:LENGTH_BYTES], "big")
    position = LENGTH_BYTES + 4 + response_header_version(ApiKey.PRODUCE, version)
    (topic,) = decode(ProduceResponse, reply, version, position).responses
    return topic.partition_responses
