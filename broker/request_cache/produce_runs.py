"""Produce requests that arrived together and differ in their batch alone: told column by column.

A producer that is not waited for sends requests faster than they are taken. If its batches are equally long, so are
its requests, which are then compared, and their batches appended, all at once: see `protocol.batch_run`. How a request
is known by its bytes is said in `produce_templates.py`.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from fencepost.protocol.batch_run import BatchRun, count_alike
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames
from fencepost.protocol.headers import REQUEST_START_BYTES

if TYPE_CHECKING:
    from fencepost.broker.requests.long_polls import Reply

REQUEST_END: Final = bytes(3)
"""No tagged fields: of the partition, of the topic, of the request."""
_PREFIX_POSITION: Final = LENGTH_BYTES + REQUEST_START_BYTES
"""Behind the frame's length, API key, version and correlation id."""


class RunResult(NamedTuple):
    """Requests that have been started together: how many, and their replies or what ends in them."""

    requests_count: int
    replies: Reply | asyncio.Future[Reply]


class RequestRun(NamedTuple):
    """Requests that are alike in all but their batch, and these batches."""

    correlation_ids: tuple[int, ...]
    batches: BatchRun

    def shortened(self, count: int) -> RequestRun:
        return RequestRun(self.correlation_ids[:count], self.batches.shortened(count))


def find_run(frames: EqualLengthFrames, records_start: int, records_end: int) -> RequestRun | None:
    """As many of some frames as are like the first; None where that is the first alone.

    records_start, records_end: where its batch lies in the first frame, behind the length.
    """
    first = records_start + LENGTH_BYTES
    size_bytes = records_end - records_start
    columns = zip(*_columns(first - _PREFIX_POSITION, size_bytes).iter_unpack(frames.buffer), strict=True)
    starts, correlation_ids, prefixes, ends = columns
    count = min(count_alike(starts, starts[0]), count_alike(prefixes, prefixes[0]), count_alike(ends, REQUEST_END))
    if count < 2:
        return None
    run = RequestRun(correlation_ids, BatchRun(frames.buffer, frames.frame_bytes, first, size_bytes))
    return run if count == len(correlation_ids) else run.shortened(count)


@lru_cache(maxsize=64)
def _columns(prefix_bytes: int, batch_bytes: int) -> Struct:
    return Struct(f">8si{prefix_bytes}s{batch_bytes}x{len(REQUEST_END)}s")
