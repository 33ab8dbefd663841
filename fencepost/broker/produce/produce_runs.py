"""Runs of Produce requests: requests that arrived together on one connection and differ in their batch alone.

A producer that pipelines sends requests faster than they are dispatched. If its batches have equal length, so have its
requests. Such requests are compared column by column, and their batches appended with one write: see
`protocol.batch_run`. The request cache finds the first of them.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.broker.produce.produce_append import (
    ACKS_NONE,
    NotInTimeError,
    ProduceRefusal,
    error_of_missing_log,
    name_leaders,
    produce_failed,
)
from fencepost.broker.produce.produce_batches import find_targets, read_batch
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.batch_run import BatchRun, count_leading
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, response_frame
from fencepost.protocol.headers import REQUEST_START_BYTES
from fencepost.protocol.record_batch import TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.requests.api import RequestContext, Services
    from fencepost.broker.requests.long_polls import ReplyChunks, ReplyFrame
    from fencepost.broker.requests.request_cache import CachedRequest

_PREFIX_POSITION: Final = LENGTH_BYTES + REQUEST_START_BYTES
"""Position of the prefix: after the frame's length, API key, version and correlation id."""


class RunResult(NamedTuple):
    """The number of requests that were started together, and their replies or a future of them."""

    requests_count: int
    replies: ReplyFrame | asyncio.Future[ReplyFrame]


class ProduceRun:
    """Produce requests that were carried out together: their batches are in one log, or it failed at the first.

    requests_count: number of requests from the first on; the caller starts the others.
    end_offset: their batches are durable when the log is, up to this offset.
    failure: the reason why none of the batches is in the log. Then this is one request.
    """

    __slots__ = ("_base_offsets", "_cached", "_correlation_ids", "end_offset", "failure", "log")

    def __init__(
        self,
        cached: CachedRequest,
        log: PartitionLog,
        correlation_ids: Sequence[int],
        base_offsets: range,
        end_offset: int,
        failure: StorageError | None = None,
    ) -> None:
        self._cached = cached
        self.log = log
        self._correlation_ids = correlation_ids
        self._base_offsets = base_offsets
        self.end_offset = end_offset
        self.failure = failure

    @property
    def requests_count(self) -> int:
        return len(self._correlation_ids)

    def replies(self, throttle_ms: int = 0) -> ReplyChunks:
        """Write the replies, as one chunk."""
        form = self._cached.form
        assert form is not None, "a run has one"
        columns = self._base_offsets, repeat(-1), repeat(self.log.log_start_offset)
        return (form.write_all(self._correlation_ids, *columns, throttle_ms=throttle_ms),)

    @property
    def timeout_s(self) -> float:
        """The client's limit for the wait for durability."""
        timeout_ms: int = self._cached.request.timeout_ms
        return max(0, timeout_ms) / 1000

    def failed(self, error: Exception, services: Services, throttle_ms: int = 0) -> ReplyChunks:
        """Write the replies of requests that all failed."""
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(error, StorageError):
            code = error_of_missing_log(services.topics, self.log.topic_partition, self.log)
            message = str(error)
        elif isinstance(error, NotInTimeError):
            code, message = ErrorCode.REQUEST_TIMED_OUT, str(error)
        version = self._cached.route.version
        response = produce_failed(self._cached.request, code, version, message=message)
        name_leaders(services, response, version)
        response.throttle_time_ms = throttle_ms
        return [chunk for one in self._correlation_ids for chunk in response_frame(one, response, version)]


def append_run(context: RequestContext, cached: CachedRequest, frames: EqualLengthFrames) -> ProduceRun | None:
    """Append the batches of the requests, from the first on, that can be appended together.

    cached: the request that the first frame repeats. Returns None, and does nothing, if there are fewer than two.
    """
    request, services = cached.request, context.services
    if cached.form is None or len(cached.records) != 1 or request.acks == ACKS_NONE:
        return None
    (target,) = context.prepared(find_targets, request)
    log = target.log
    if log is None or log.offline_reason is not None:
        return None
    owner, _, following = cached.records[0]
    header = read_batch(owner.records, cached.route.version)
    if isinstance(header, ProduceRefusal) or request.transactional_id in services.verifier.waiting:
        return None
    is_transactional = request.transactional_id is not None
    if bool(header.attributes & TRANSACTIONAL_BIT) is not is_transactional or (
        is_transactional and header.producer_id < 0
    ):
        return None
    records_end = frames.frame_bytes - LENGTH_BYTES - len(following)
    run = find_run(frames, records_end - len(owner.records), following)
    if run is None:
        return None
    try:
        appended = log.append_run(
            run.batches, header, now_ms=services.clock.now_ms(), transactional_id=request.transactional_id or ""
        )
    except StorageError as error:
        # The other requests find the log offline.
        return ProduceRun(cached, log, run.correlation_ids[:1], range(0), 0, error)
    if appended is None:
        return None
    correlation_ids = run.correlation_ids[: appended.batches_count]
    return ProduceRun(cached, log, correlation_ids, appended.base_offsets, appended.end_offset)


class RequestRun(NamedTuple):
    """Requests that differ in their batch alone, by correlation id, and these batches."""

    correlation_ids: tuple[int, ...]
    batches: BatchRun

    def shortened(self, count: int) -> RequestRun:
        return RequestRun(self.correlation_ids[:count], self.batches.shortened(count))


def find_run(frames: EqualLengthFrames, records_start: int, following: bytes) -> RequestRun | None:
    """Find the frames, from the first on, that differ from it in the batch alone; None if there are fewer than two.

    records_start: position of the batch in the first frame, without the frame's length.
    following: the bytes behind the batch.
    """
    first = records_start + LENGTH_BYTES
    size_bytes = frames.frame_bytes - first - len(following)
    columns = zip(
        *_columns(first - _PREFIX_POSITION, size_bytes, len(following)).iter_unpack(frames.buffer), strict=True
    )
    starts, correlation_ids, prefixes, ends = columns
    count = min(count_leading(starts, starts[0]), count_leading(prefixes, prefixes[0]), count_leading(ends, following))
    if count < 2:
        return None
    run = RequestRun(correlation_ids, BatchRun(frames.buffer, frames.frame_bytes, first, size_bytes))
    return run if count == len(correlation_ids) else run.shortened(count)


@lru_cache(maxsize=64)
def _columns(prefix_bytes: int, batch_bytes: int, following_bytes: int) -> Struct:
    return Struct(f">8si{prefix_bytes}s{batch_bytes}x{following_bytes}s")
