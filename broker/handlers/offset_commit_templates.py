"""OffsetCommit requests that differ from an earlier one of their connection in nothing but the offsets.

A consumer commits the same partitions again and again, as the same member of the same generation: only the correlation
id and the offsets change. Such a request is known by the bytes around its offsets, so that it need not be decoded
again, nor its reply be encoded field by field: that is a third of what a commit costs. Whether the topics are still the
same is looked up; all that the group decides, it decides as ever. Any other request goes the way of `group_offsets.py`,
which answers the same, byte by byte. Who adds authorization has to ask for it here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

import structlog

from broker import eager
from broker.group.offsets.commits import OffsetToCommit
from broker.handlers.group_offsets import FIRST_VERSION_WITH_TOPIC_IDS, committer_of, find_topic
from broker.metadata.image import TopicMetadata
from broker.topic_partition import TopicPartition
from protocol.errors import ErrorCode
from protocol.framing import LENGTH_BYTES, response_frame
from protocol.headers import REQUEST_START_BYTES
from protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from protocol.primitives import Buffer
from protocol.schema import encode

if TYPE_CHECKING:
    from broker.handlers.api import Services
    from broker.long_polls import Reply

MAXIMUM_COUNT = 64
"""Requests of one connection that are remembered; then it begins anew, as generations and members come and go."""

MAXIMUM_SIZE_BYTES = 4096
"""Larger requests are decoded: what is remembered of a connection is to stay small."""

_OFFSET_BYTES = 8
_REPLY_START = Struct(">ii")
"""Length and correlation id."""

log = structlog.get_logger(__name__)


@lru_cache(maxsize=1_024)
def _reply_struct(end_bytes: int) -> Struct:
    return Struct(f"{_REPLY_START.format}{end_bytes}s")


class _KnownPartition(NamedTuple):
    """What is the same in each commit of a partition."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_epoch: int
    metadata: str | None


class _Template:
    """What all requests with the same bytes around their offsets have in common.

    topics:           as they were in this version of the metadata.
    partitions:       in the order of the request, as are its offsets.
    """

    __slots__ = (
        "committer",
        "group_id",
        "metadata_version",
        "partitions",
        "reply_end",
        "reply_struct",
        "request",
        "retention_time_ms",
        "topics",
        "version",
    )

    def __init__(
        self, request: OffsetCommitRequest, topics: Sequence[TopicMetadata], metadata_version: int, version: int
    ) -> None:
        self.request = request
        self.topics = topics
        self.metadata_version = metadata_version
        self.version = version
        self.group_id = request.group_id
        self.committer = committer_of(request, version)
        self.retention_time_ms = request.retention_time_ms
        self.partitions = [
            _KnownPartition(
                TopicPartition(topic.name, partition.partition_index),
                topic.topic_id,
                partition.committed_leader_epoch,
                partition.committed_metadata,
            )
            for topic, requested in zip(topics, request.topics, strict=True)
            for partition in requested.partitions
        ]
        reply = b"".join(self.reply(0, ErrorCode.NONE))
        self.reply_end = reply[_REPLY_START.size :]
        self.reply_struct = _reply_struct(len(self.reply_end))

    def reply(self, correlation_id: int, errors: ErrorCode | Sequence[ErrorCode]) -> list[Buffer]:
        """One error for all partitions, or one for each."""
        remaining = repeat(errors) if isinstance(errors, ErrorCode) else iter(errors)
        topics = [
            OffsetCommitResponseTopic(
                name=requested.name,
                topic_id=requested.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=next(remaining))
                    for partition in requested.partitions
                ],
            )
            for requested in self.request.topics
        ]
        return response_frame(correlation_id, OffsetCommitResponse(topics=topics), self.version)


@lru_cache(maxsize=1_024)
def _around_and_offsets(size_bytes: int, *offset_positions: int) -> Struct:
    """Takes a request of so many bytes apart, from its client id on: what is before an offset and the offset, in turns,
    then what is behind the last one. Connections share it.
    """
    parts = [f">{REQUEST_START_BYTES}x"]
    end = REQUEST_START_BYTES
    for position in offset_positions:
        parts.append(f"{position - end}sq")
        end = position + _OFFSET_BYTES
    return Struct(f"{''.join(parts)}{size_bytes - end}s")


class _Shape(NamedTuple):
    """Where the offsets of requests of one size are, and the requests that are known, by the bytes around them."""

    struct: Struct
    templates: dict[tuple[bytes, ...], _Template]


class OffsetCommitTemplates:
    """Those of one connection."""

    __slots__ = ("_has_helped", "_is_given_up", "_loop", "_services", "_shapes", "_version")

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._version = 0
        self._shapes: dict[int, _Shape] = {}  # by the size of a request; one each
        self._has_helped = False
        self._is_given_up = False

    def __len__(self) -> int:
        return sum(len(shape.templates) for shape in self._shapes.values())

    def learn(self, frame: memoryview, body_position: int, request: OffsetCommitRequest, version: int) -> None:
        """Remember a request that was decoded, if it is one that can be told by its bytes."""
        if self._is_given_up or len(frame) > MAXIMUM_SIZE_BYTES:
            return
        topics = self._topics(request, version)
        if not topics:
            return
        if version != self._version or len(self) >= MAXIMUM_COUNT:
            # Who commits something else every time, say with the time in the metadata, is not to pay for this.
            self._is_given_up = len(self) >= MAXIMUM_COUNT and not self._has_helped
            self._has_helped = False
            self._version = version
            self._shapes.clear()
            if self._is_given_up:
                return
        body = encode(request, version)
        if body != frame[body_position:]:
            return
        positions = [body_position + position for position in _offset_positions(request, body, version)]
        struct = _around_and_offsets(len(frame), *positions)
        shape = self._shapes.setdefault(len(frame), _Shape(struct, {}))
        if shape.struct is struct or shape.struct.format == struct.format:
            around = struct.unpack(frame)[::2]
            shape.templates[around] = _Template(request, topics, self._services.topics.metadata.version, version)

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> Reply | asyncio.Future[Reply]:
        """Start a request that is known: its reply, or what ends in it. None, and nothing is done, for any other."""
        shape = self._shapes.get(len(frame))
        if shape is None or version != self._version:
            return None
        struct, templates = shape
        parts = struct.unpack(frame)
        around = parts[::2]
        template = templates.get(around)
        if template is None:
            return None
        if template.metadata_version != self._services.topics.metadata.version and not self._is_current(template):
            del templates[around]
            return None
        self._has_helped = True
        offsets = [
            OffsetToCommit(topic_partition, topic_id, offset, leader_epoch, metadata)
            for (topic_partition, topic_id, leader_epoch, metadata), offset in zip(
                template.partitions, parts[1::2], strict=True
            )
        ]
        started = eager.start(self._commit(template, offsets, correlation_id), self._loop)
        return started.result if isinstance(started, eager.Finished) else started

    async def _commit(self, template: _Template, offsets: list[OffsetToCommit], correlation_id: int) -> Reply:
        errors: ErrorCode | Sequence[ErrorCode]
        try:
            errors = await self._services.groups.commit_offsets(
                template.group_id, template.committer, offsets, retention_time_ms=template.retention_time_ms
            )
        except Exception:
            errors = ErrorCode.UNKNOWN_SERVER_ERROR
            log.exception("request_failed", api="OffsetCommit", version=template.version, error=errors.name)
        if isinstance(errors, ErrorCode) or any(errors):
            return template.reply(correlation_id, errors)
        reply_struct = template.reply_struct
        return (reply_struct.pack(reply_struct.size - LENGTH_BYTES, correlation_id, template.reply_end),)

    def _topics(self, request: OffsetCommitRequest, version: int) -> list[TopicMetadata]:
        """The topics of a request; none of them unless all that it names is there."""
        is_by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
        topics = []
        for requested in request.topics:
            topic = find_topic(self._services.topics, requested.name, requested.topic_id, by_id=is_by_id)
            if isinstance(topic, ErrorCode) or not requested.partitions:
                return []
            if not all(0 <= partition.partition_index < topic.partition_count for partition in requested.partitions):
                return []
            topics.append(topic)
        return topics

    def _is_current(self, template: _Template) -> bool:
        metadata = self._services.topics.metadata
        if any(metadata.get(topic.name) is not topic for topic in template.topics):
            return False
        template.metadata_version = metadata.version
        return True


def _offset_positions(request: OffsetCommitRequest, body: bytearray, version: int) -> list[int]:
    """Where the offsets of a request are in its body: where it differs when each bit of them does. The request stays
    as it is.
    """
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    for partition in partitions:
        partition.committed_offset = ~partition.committed_offset
    other = encode(request, version)
    for partition in partitions:
        partition.committed_offset = ~partition.committed_offset
    differing = [position for position, (one, another) in enumerate(zip(body, other, strict=True)) if one != another]
    return differing[::_OFFSET_BYTES]
