"""Cache of Fetch requests that differ from an earlier one of their connection in the offset alone.

A consumer of one partition without a session repeats one request: only the correlation id and the offset change. The
cache finds it by the bytes around the offset. Neither is the request decoded nor its reply encoded field by field: that
is half the cost of a small fetch. A request that finds too few records waits in a long poll. All other requests, and
all exceptional answers (an error, a missing log, aborted transactions), go to `fetch.py`, which gives the same reply,
byte by byte.

Only requests for one partition, of the versions with tagged fields (12 and later). Authorization, when added, has to be
checked here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Any

from fencepost.broker.handlers.fetch import (
    FIRST_VERSION_WITH_TOPIC_IDS,
    ISOLATIONS,
    begin_fetch,
    fetch_failed,
    max_records_bytes,
)
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.partition_log import Isolation
from fencepost.broker.request_cache.shape_cache import ShapeCache, VaryingField
from fencepost.broker.requests.fetch_sessions import FINAL_EPOCH, NO_SESSION_ID
from fencepost.broker.requests.long_polls import (
    POLL_TIME_OUT,
    LongPoll,
    PendingReply,
    ReplyChunks,
    ReplyFrame,
    wake_on_time_out,
)
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, response_frame
from fencepost.protocol.headers import REQUEST_START_BYTES
from fencepost.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from fencepost.protocol.primitives import write_unsigned_varint
from fencepost.protocol.record_batch import NO_LEADER_EPOCH
from fencepost.protocol.schema import decode, encode
from fencepost.protocol.writer import COPIED_RECORDS_BYTES

if TYPE_CHECKING:
    from fencepost.broker.log.partition_log import LogRead, PartitionLog
    from fencepost.broker.requests.api import Services

FIRST_FLEXIBLE_VERSION = 12
MAXIMUM_COUNT = 64
"""Cached requests of one connection; when it is reached, all are forgotten."""

_OFFSET = "q"
_LENGTH = Struct(">i")
_BOUNDS = Struct(">qqq")
"""High watermark, last stable offset and log start offset: adjacent fields that vary in a reply, with the records."""
_PLACEHOLDER_BOUNDS = (0x0123456789ABCDEF, 0x123456789ABCDEF0, 0x23456789ABCDEF01)
_PLACEHOLDER_RECORDS = b"\xfedcba9876543210\xfe"

log = get_logger(__name__)


class _CachedFetch:
    """What all requests with the same bytes around their offset have in common, and the constant bytes of their reply.

    request:       for `uncached_reply`, which sets its offset; it does not wait.
    limit_bytes:   of records; the first batch may exceed it.
    minimum_bytes: of records; with fewer the request waits.
    waits:         whether the request waits if there are no records.
    aborted_transactions: the value that a reply without any has.
    """

    __slots__ = (
        "aborted_transactions",
        "before_records_length",
        "isolation",
        "leader_epoch",
        "limit_bytes",
        "log",
        "max_wait_ms",
        "minimum_bytes",
        "reply_end",
        "reply_start",
        "reply_struct",
        "request",
        "services",
        "version",
        "waits",
    )

    def __init__(self, services: Services, request: FetchRequest, log: PartitionLog, version: int) -> None:
        requested = request.topics[0].partitions[0]
        maximum_bytes = max_records_bytes(services, request)
        self.services = services
        self.log = log
        self.version = version
        self.isolation = ISOLATIONS[request.isolation_level]
        self.leader_epoch = requested.current_leader_epoch
        self.limit_bytes = max(0, min(maximum_bytes, requested.partition_max_bytes))
        self.minimum_bytes = min(request.min_bytes, maximum_bytes)
        self.max_wait_ms = request.max_wait_ms
        self.waits = self.max_wait_ms > 0 and self.minimum_bytes > 0
        request.max_wait_ms = 0
        self.request = request
        self.aborted_transactions: list[Any] | None = [] if self.isolation is Isolation.READ_COMMITTED else None
        reply = self._placeholder_reply()
        self.reply_start, _, rest = reply[REQUEST_START_BYTES:].partition(_BOUNDS.pack(*_PLACEHOLDER_BOUNDS))
        before_records, _, self.reply_end = rest.partition(_PLACEHOLDER_RECORDS)
        self.before_records_length = before_records[:-1]  # without the placeholder's length, a byte
        self.reply_struct = Struct(f">ii{len(self.reply_start)}sqqq{len(self.before_records_length)}s")

    def _placeholder_reply(self) -> bytes:
        (topic,) = self.request.topics
        high_watermark, last_stable_offset, log_start_offset = _PLACEHOLDER_BOUNDS
        answer = PartitionData(
            partition_index=topic.partitions[0].partition,
            high_watermark=high_watermark,
            last_stable_offset=last_stable_offset,
            log_start_offset=log_start_offset,
            aborted_transactions=self.aborted_transactions,
            records=_PLACEHOLDER_RECORDS,
        )
        responses = [FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[answer])]
        return b"".join(response_frame(0, FetchResponse(responses=responses), self.version))

    @property
    def _is_usable(self) -> bool:
        log = self.log
        return log.offline_reason is None and self.leader_epoch in (log.leader_epoch, NO_LEADER_EPOCH)

    def should_wait(self, offset: int) -> bool:
        """Whether a request waits for certain, without a read: the consumer has read up to the end."""
        return self.waits and offset == self.log.bound(self.isolation) and self._is_usable

    def read(self, offset: int) -> LogRead | None:
        """Read from the log; None if the answer is more than records."""
        if not self._is_usable:
            return None
        log = self.log
        found = log.read(offset, self.limit_bytes, isolation=self.isolation, is_lazy=True)
        if found.error is not ErrorCode.NONE or found.aborted_transactions != self.aborted_transactions:
            return None
        return found

    def is_enough(self, found: LogRead) -> bool:
        found_bytes = len(found.records if found.slice is None else found.slice)
        # Where the limit cuts a batch off, its part below the limit counts, too.
        return found_bytes >= self.minimum_bytes or (found.is_cut_off and self.limit_bytes >= self.minimum_bytes)

    def reply(self, correlation_id: int, found: LogRead) -> ReplyChunks:
        records = found.records if found.slice is None else found.slice
        records_bytes = len(records)
        reply = bytearray(
            self.reply_struct.pack(
                0,
                correlation_id,
                self.reply_start,
                found.high_watermark,
                found.last_stable_offset,
                found.log_start_offset,
                self.before_records_length,
            )
        )
        write_unsigned_varint(reply, records_bytes + 1)
        reply_end = self.reply_end
        _LENGTH.pack_into(reply, 0, len(reply) + records_bytes + len(reply_end) - LENGTH_BYTES)
        if records_bytes > COPIED_RECORDS_BYTES:
            return (reply, records, reply_end)
        reply += found.records
        reply += reply_end
        return (reply,)

    def uncached_reply(self, correlation_id: int, offset: int) -> ReplyChunks:
        """Have `fetch.py` answer at once, with the records that there are."""
        request = self.request
        request.topics[0].partitions[0].fetch_offset = offset
        response = begin_fetch(self.services, request, self.version)
        assert isinstance(response, FetchResponse), "it does not wait"
        return response_frame(correlation_id, response, self.version)


class _CachedFetchPoll(LongPoll[ReplyFrame]):
    """The long poll of a request that found too few records: ends when there are enough, or after `max_wait_ms`."""

    __slots__ = ("_cached", "_correlation_id", "_is_over", "_offset", "_time_out", "_wake")

    _time_out: asyncio.TimerHandle
    _wake: Callable[[], None]

    def __init__(self, cached: _CachedFetch, offset: int, correlation_id: int) -> None:
        self._cached = cached
        self._offset = offset
        self._correlation_id = correlation_id
        self._is_over = False

    def begin(self, wake: Callable[[], None]) -> None:
        cached = self._cached
        self._wake = wake
        self._time_out = asyncio.get_running_loop().call_later(cached.max_wait_ms / 1000, self._end_wait)
        cached.log.add_watcher(wake)

    @POLL_TIME_OUT.handles
    def _end_wait(self) -> None:
        self._is_over = True
        wake_on_time_out(self._wake)

    def poll(self) -> ReplyFrame:
        cached = self._cached
        try:
            found = cached.read(self._offset)
            if found is None:
                return cached.uncached_reply(self._correlation_id, self._offset)
        except Exception:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            log.exception("request_failed", api="Fetch", version=cached.version, error=code.name)
            failed = fetch_failed(cached.request, code, cached.version)
            return response_frame(self._correlation_id, failed, cached.version)
        if self._is_over or cached.is_enough(found):
            return cached.reply(self._correlation_id, found)
        return None

    def end(self) -> None:
        self._time_out.cancel()
        self._cached.log.remove_watcher(self._wake)


class FetchCache:
    """The cached Fetch requests of one connection."""

    __slots__ = ("_services", "_shapes")

    def __init__(self, services: Services, _loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._shapes = ShapeCache[_CachedFetch](MAXIMUM_COUNT)

    def __len__(self) -> int:
        return len(self._shapes)

    def remember(self, frame: memoryview, body_position: int, request: FetchRequest, version: int) -> None:
        """Remember a decoded request, if later ones like it can be found by their bytes."""
        topics = request.topics
        if (
            version < FIRST_FLEXIBLE_VERSION
            or len(topics) != 1
            or len(topics[0].partitions) != 1
            or request.forgotten_topics_data
            or (request.session_id, request.session_epoch) != (NO_SESSION_ID, FINAL_EPOCH)
            or request.isolation_level not in ISOLATIONS
            or max(request.replica_id, request.replica_state.replica_id) >= 0
            or topics[0].partitions[0].last_fetched_epoch >= 0
            or not self._shapes.should_remember(frame)
        ):
            return
        located = self._find_log(topics[0], version)
        if located is None or not self._shapes.make_room(version):
            return
        own_request = decode(FetchRequest, frame, version, body_position)
        body = encode(own_request, version)
        if body != frame[body_position:]:
            return
        requested = own_request.topics[0].partitions[0]
        requested.fetch_offset = ~requested.fetch_offset
        other = encode(own_request, version)
        position = next(at for at, (one, another) in enumerate(zip(body, other, strict=True)) if one != another)
        field = VaryingField(body_position + position, _OFFSET)
        self._shapes.remember(frame, [field], _CachedFetch(self._services, own_request, located, version))

    def _find_log(self, topic: FetchTopic, version: int) -> PartitionLog | None:
        topics = self._services.topics
        name = topic.topic
        if version >= FIRST_VERSION_WITH_TOPIC_IDS:
            metadata = topics.metadata.get_by_id(topic.topic_id)
            if metadata is None:
                return None
            name = metadata.name
        found = find_log(topics, name, topic.partitions[0].partition)
        return None if isinstance(found, ErrorCode) else found

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> ReplyFrame | PendingReply:
        """Start a cached request: returns its reply, or a future of it. None, and nothing is done, for any other."""
        hit = self._shapes.find(frame, version)
        if hit is None:
            return None
        cached, (offset,) = hit
        if not cached.should_wait(offset):
            found = cached.read(offset)
            if found is None:
                if cached.log.is_offline:  # it has failed, was deleted with its topic, or has moved to another node
                    self._shapes.forget(frame)
                return None
            if cached.max_wait_ms <= 0 or cached.is_enough(found):
                return cached.reply(correlation_id, found)
        waiting = _CachedFetchPoll(cached, offset, correlation_id)
        pending = PendingReply(self._services.long_polls, waiting, waiting.poll)
        pending.begin()
        return pending
