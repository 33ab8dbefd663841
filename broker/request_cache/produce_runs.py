"""Runs of Produce requests: requests that arrived together on one connection and differ in their batch alone.

A producer that pipelines sends requests faster than they are dispatched. If its batches have equal length, so have its
requests. Such requests are compared column by column, and their batches appended with one write: see
`protocol.batch_run`. `produce_cache.py` finds the first request.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.protocol.batch_run import BatchRun, count_leading
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames
from fencepost.protocol.headers import REQUEST_START_BYTES

if TYPE_CHECKING:
    from fencepost.broker.requests.long_polls import ReplyFrame

REQUEST_END: Final = bytes(3)
"""No tagged fields: of the partition, of the topic, of the request."""
_PREFIX_POSITION: Final = LENGTH_BYTES + REQUEST_START_BYTES
"""Where the prefix begins: after the frame's length, API key, version and correlation id."""


class RunResult(NamedTuple):
    """The number of requests that were started together, and their replies or a future of them."""

    requests_count: int
    replies: ReplyFrame | asyncio.Future[ReplyFrame]


class RequestRun(NamedTuple):
    """Requests that differ in their batch alone, by correlation id, and these batches."""

    correlation_ids: tuple[int, ...]
    batches: BatchRun

    def shortened(self, count: int) -> RequestRun:
        return RequestRun(self.correlation_ids[:count], self.batches.shortened(count))


def find_run(frames: EqualLengthFrames, records_start: int, records_end: int) -> RequestRun | None:
    """Find the frames, from the first on, that differ from it in the batch alone; None if there are fewer than two.

    records_start, records_end: of the batch in the first frame, without the frame's length.
    """
    first = records_start + LENGTH_BYTES
    size_bytes = records_end - records_start
    columns = zip(*_columns(first - _PREFIX_POSITION, size_bytes).iter_unpack(frames.buffer), strict=True)
    starts, correlation_ids, prefixes, ends = columns
    count = min(
        count_leading(starts, starts[0]), count_leading(prefixes, prefixes[0]), count_leading(ends, REQUEST_END)
    )
    if count < 2:
        return None
    run = RequestRun(correlation_ids, BatchRun(frames.buffer, frames.frame_bytes, first, size_bytes))
    return run if count == len(correlation_ids) else run.shortened(count)


@lru_cache(maxsize=64)
def _columns(prefix_bytes: int, batch_bytes: int) -> Struct:
    return Struct(f">8si{prefix_bytes}s{batch_bytes}x{len(REQUEST_END)}s")
