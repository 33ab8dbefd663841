"""Replies as frames, made when a request is met for the first time and sent again with other numbers in them."""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import response_frame
from fencepost.protocol.headers import read_request_header, request_header_version
from fencepost.protocol.messages import REQUESTS
from fencepost.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.record_batch import LENGTH_OVERHEAD_BYTES
from fencepost.protocol.schema import decode
from scripts.benchmarks.answers import SOME_OFFSET, Answers

LENGTH_BYTES = 4
API_KEY, VERSION = slice(4, 6), slice(6, 8)
KIND, CORRELATION_ID, BODY_START = slice(4, 8), slice(8, 12), 12
"""Of a request's frame."""
REPLY_CORRELATION_ID = slice(4, 8)
OFFSET_BYTES = 8
HIGH_WATERMARK = 2**62
"""Above all that is ever produced."""


class Reply(NamedTuple):
    """A frame made in advance. offset_position: where an offset is to be put, 0 where there is none."""

    frame: bytes
    offset_position: int = 0

    def with_numbers(self, correlation_id: bytes, offset: int) -> bytearray:
        frame = bytearray(self.frame)
        frame[REPLY_CORRELATION_ID] = correlation_id
        if self.offset_position:
            frame[self.offset_position : self.offset_position + OFFSET_BYTES] = offset.to_bytes(OFFSET_BYTES, "big")
        return frame


class PreparedReplies:
    """To all requests but Fetch. What has to be another reply each time is made anew by the protocol package."""

    def __init__(self) -> None:
        self.answers = Answers()
        self._replies: dict[bytes, Reply] = {}
        self._key_ends: dict[bytes, set[int]] = {}

    def to(self, frame: bytes, api_key: int) -> bytearray:
        """Raises KeyError for an unknown request, DecodeError."""
        kind = frame[KIND]
        key = self._key(frame, kind)
        reply = self._learn(frame, kind, api_key) if key is None else self._replies[key]
        return reply.with_numbers(frame[CORRELATION_ID], self.answers.end_offset)

    def batch(self, frame: bytes) -> bytes:
        """The batch of a Produce that was answered: what lies behind the part that its reply depends on."""
        kind = frame[KIND]
        key = self._key(frame, kind)
        assert key is not None
        start = BODY_START + len(key) - len(kind)
        length = int.from_bytes(frame[start + OFFSET_BYTES : start + LENGTH_OVERHEAD_BYTES], "big")
        return frame[start : start + LENGTH_OVERHEAD_BYTES + length]

    def _key(self, frame: bytes, kind: bytes) -> bytes | None:
        """What the reply depends on, where it is known already."""
        for key_end in self._key_ends.get(kind, ()):
            key = kind + frame[BODY_START:key_end]
            if key in self._replies:
                return key
        return None

    def _learn(self, frame: bytes, kind: bytes, api_key: int) -> Reply:
        request, version = _decoded(frame, api_key)
        reply = _made(self.answers.to(request), version)
        if isinstance(request, ProduceRequest):
            # Up to the records: librdkafka and the bare client name one partition in a request.
            key_end = frame.index(bytes(request.topic_data[0].partition_data[0].records or b""))
        elif api_key in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
            key_end = len(frame)
        elif api_key == ApiKey.OFFSET_COMMIT:
            key_end = BODY_START  # all are about one partition of one topic
        else:
            return reply
        self._replies[kind + frame[BODY_START:key_end]] = reply
        self._key_ends.setdefault(kind, set()).add(key_end)
        return reply


class FetchReplies:
    """To the Fetches of one client that reads one partition."""

    def __init__(self) -> None:
        self._topic = b""
        self._request = FetchRequest()
        self._replies: dict[tuple[int, int], Reply] = {}

    def wait_s(self, frame: bytes) -> float:
        """How long a Fetch is ready to wait."""
        if not self._topic or self._topic not in frame:
            self._request, _ = _decoded(frame, ApiKey.FETCH)
            self._topic = self._request.topics[0].topic.encode() if self._request.topics else b""
            self._replies.clear()
        return self._request.max_wait_ms / 1e3

    def with_batch(self, frame: bytes, batch: bytes, offset: int) -> bytearray:
        """The reply to a Fetch that `wait_s` has seen; the batch gets an offset."""
        version = int.from_bytes(frame[VERSION], "big")
        reply = self._replies.get((version, len(batch)))
        if reply is None:
            reply = self._replies[version, len(batch)] = self._made(version, batch)
        made = reply.with_numbers(frame[CORRELATION_ID], offset)
        if batch:
            start = reply.offset_position
            made[start + OFFSET_BYTES : start + len(batch)] = batch[OFFSET_BYTES:]
        return made

    def _made(self, version: int, batch: bytes) -> Reply:
        marked = SOME_OFFSET.to_bytes(OFFSET_BYTES, "big") + batch[OFFSET_BYTES:] if batch else b""
        responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        high_watermark=HIGH_WATERMARK,
                        last_stable_offset=HIGH_WATERMARK,
                        log_start_offset=0,
                        aborted_transactions=None,
                        records=memoryview(marked),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in self._request.topics
        ]
        return _made(FetchResponse(responses=responses), version)


def _decoded(frame: bytes, api_key: int) -> tuple[Any, int]:
    version = int.from_bytes(frame[VERSION], "big")
    content = frame[LENGTH_BYTES:]
    header = read_request_header(content, request_header_version(api_key, version))
    return decode(REQUESTS[api_key], content, version, header.body_position), version


def _made(response: Any, version: int) -> Reply:
    frame = b"".join(response_frame(0, response, version))
    return Reply(frame, max(0, frame.find(SOME_OFFSET.to_bytes(OFFSET_BYTES, "big"))))
