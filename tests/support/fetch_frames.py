"""Frames of Fetch requests for one partition, and what is in their replies."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import LENGTH_BYTES, request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fencepost.protocol.record_batch import iterate_batches, read_records
from fencepost.protocol.schema import decode

VERSION = 12


def fetch_frame(offset: int, **fields: Any) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    request = FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000_000, "topics": topics, **fields})
    return request_frame(1, "client", request, VERSION)


def response_in(reply: bytes | str | None) -> FetchResponse:
    assert isinstance(reply, bytes)
    position = LENGTH_BYTES + 4 + response_header_version(ApiKey.FETCH, VERSION)
    return decode(FetchResponse, reply, VERSION, position)


def records_in(reply: bytes | str | None) -> bytes:
    """The batches of the only partition."""
    (topic,) = response_in(reply).responses
    (partition,) = topic.partitions
    return bytes(partition.records or b"")


def values_in(reply: bytes | str | None) -> list[bytes | None]:
    """The values of the records of the only partition."""
    return [record.value for one in iterate_batches(records_in(reply)) for record in read_records(one)]
