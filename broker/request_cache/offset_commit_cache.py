"""Cache of OffsetCommit requests that differ from an earlier one of their connection in the offsets alone.

A consumer commits the same partitions repeatedly, as the same member of the same generation: only the correlation id
and the offsets change. The cache finds such a request by the bytes around its offsets. Neither is the request decoded
nor its reply encoded field by field: that is a third of the cost of a commit. The topics are looked up again if the
metadata have changed; the group decides as for any request. All other requests go to `group_offsets.py`, which gives
the same reply, byte by byte. Authorization, when added, has to be checked here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from fencepost.broker.group.offsets.commits import OffsetToCommit
from fencepost.broker.handlers.group_offsets import Commit, commit_of, committer_of
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.request_cache.shape_cache import ShapeCache, VaryingField
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, response_frame
from fencepost.protocol.messages.group_offsets import OffsetCommitRequest, OffsetCommitResponse
from fencepost.protocol.primitives import Buffer
from fencepost.protocol.schema import encode

if TYPE_CHECKING:
    from fencepost.broker.metadata.image import MetadataImage
    from fencepost.broker.requests.api import Services
    from fencepost.broker.requests.long_polls import ReplyFrame

MAXIMUM_COUNT = 64
"""Cached requests of one connection; when it is reached, all are forgotten, as generations and members change."""

_OFFSET = "q"
_OFFSET_BYTES = 8
_REPLY_START = Struct(">ii")
"""Length and correlation id."""

log = get_logger(__name__)


@lru_cache(maxsize=1_024)
def _reply_struct(end_bytes: int) -> Struct:
    return Struct(f"{_REPLY_START.format}{end_bytes}s")


class _CachedOffsetCommit:
    """What all requests with the same bytes around their offsets have in common, and the constant bytes of their reply.

    request, commit: of the first of them; the others differ in the offsets alone.
    topics:          as of `metadata_version`.
    """

    __slots__ = (
        "commit",
        "committer",
        "metadata_version",
        "reply_end",
        "reply_struct",
        "request",
        "response",
        "topics",
        "version",
    )

    def __init__(
        self,
        request: OffsetCommitRequest,
        commit: Commit,
        response: OffsetCommitResponse,
        metadata: MetadataImage,
        version: int,
    ) -> None:
        self.request = request
        self.commit = commit
        self.response = response
        self.version = version
        self.committer = committer_of(request, version)
        self.metadata_version = metadata.version
        self.topics = {name: metadata.get(name) for name in {offset.topic_partition.topic for offset in commit.offsets}}
        reply = b"".join(self.reply(0, ErrorCode.NONE))
        self.reply_end = reply[_REPLY_START.size :]
        self.reply_struct = _reply_struct(len(self.reply_end))

    def reply(self, correlation_id: int, errors: ErrorCode | Sequence[ErrorCode]) -> list[Buffer]:
        """Encode a reply with one error for all partitions, or one for each."""
        self.commit.answer(errors)
        return response_frame(correlation_id, self.response, self.version)


class OffsetCommitCache:
    """The cached OffsetCommit requests of one connection."""

    __slots__ = ("_loop", "_services", "_shapes")

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._shapes = ShapeCache[_CachedOffsetCommit](MAXIMUM_COUNT)

    def __len__(self) -> int:
        return len(self._shapes)

    def remember(self, frame: memoryview, body_position: int, request: OffsetCommitRequest, version: int) -> None:
        """Remember a decoded request, if later ones like it can be found by their bytes."""
        if not self._shapes.should_remember(frame):
            return
        commit, response = commit_of(self._services.topics, request, version)
        # Only requests whose partitions can all be committed: others get errors of their own.
        partition_counts = [len(topic.partitions) for topic in request.topics]
        if not all(partition_counts) or not 0 < sum(partition_counts) == len(commit.offsets):
            return
        if not self._shapes.make_room(version):
            return
        body = encode(request, version)
        if body != frame[body_position:]:
            return
        offsets = [
            VaryingField(body_position + position, _OFFSET) for position in _offset_positions(request, body, version)
        ]
        self._shapes.remember(
            frame, offsets, _CachedOffsetCommit(request, commit, response, self._services.topics.metadata, version)
        )

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Start a cached request: returns its reply, or a future of it. None, and nothing is done, for any other."""
        found = self._shapes.find(frame, version)
        if found is None:
            return None
        cached, committed = found
        if cached.metadata_version != self._services.topics.metadata.version and not self._is_current(cached):
            self._shapes.forget(frame)
            return None
        offsets = [
            OffsetToCommit(topic_partition, topic_id, offset, leader_epoch, metadata)
            for (topic_partition, topic_id, _, leader_epoch, metadata), offset in zip(
                cached.commit.offsets, committed, strict=True
            )
        ]
        started = eager.start(self._commit(cached, offsets, correlation_id), self._loop)
        return started.result if isinstance(started, eager.Finished) else started

    async def _commit(
        self, cached: _CachedOffsetCommit, offsets: list[OffsetToCommit], correlation_id: int
    ) -> ReplyFrame:
        request = cached.request
        errors: ErrorCode | Sequence[ErrorCode]
        try:
            errors = await self._services.groups.commit_offsets(
                request.group_id, cached.committer, offsets, retention_time_ms=request.retention_time_ms
            )
        except Exception:
            errors = ErrorCode.UNKNOWN_SERVER_ERROR
            log.exception("request_failed", api="OffsetCommit", version=cached.version, error=errors.name)
        if isinstance(errors, ErrorCode) or any(errors):
            return cached.reply(correlation_id, errors)
        reply_struct = cached.reply_struct
        return (reply_struct.pack(reply_struct.size - LENGTH_BYTES, correlation_id, cached.reply_end),)

    def _is_current(self, cached: _CachedOffsetCommit) -> bool:
        metadata = self._services.topics.metadata
        if any(metadata.get(name) is not topic for name, topic in cached.topics.items()):
            return False
        cached.metadata_version = metadata.version
        return True


def _offset_positions(request: OffsetCommitRequest, body: bytearray, version: int) -> list[int]:
    """Find the positions of a request's offsets in its body: the bytes that change if all bits of the offsets do.
    Leaves the request unchanged.
    """
    partitions = [partition for topic in request.topics for partition in topic.partitions]
    for partition in partitions:
        partition.committed_offset = ~partition.committed_offset
    other = encode(request, version)
    for partition in partitions:
        partition.committed_offset = ~partition.committed_offset
    differing = [position for position, (one, another) in enumerate(zip(body, other, strict=True)) if one != another]
    return differing[::_OFFSET_BYTES]
