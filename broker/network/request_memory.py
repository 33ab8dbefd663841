"""Bound on the memory for large requests, over all connections: one is read only when its memory is granted.

A connection reads up to 128 KiB into a buffer that needs no grant. A larger request waits for memory for the whole of
it, first come, first served, and its connection is not read meanwhile. So two connections never wait for each other
with half a request each. If a client announces a request and does not send it, its connection is closed as soon as
others wait.

Source: Kafka's `queued.max.request.bytes` and SimpleMemoryPool, where a large request may starve and small ones wait.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from typing import Protocol

from fencepost.broker.kernel.allocator_settings import FreedMemory
from fencepost.broker.kernel.supervision import Place, Policy

PROGRESS_CHECK = Place("check for requests that do not arrive", Policy.RETRY)

ORDINARY_BYTES = 2 * 1024 * 1024
"""Requests up to this size, most batches among them, wait only for each other: an eighth of the memory is reserved."""

PROGRESS_CHECK_S = 5.0
MIN_PROGRESS_BYTES = 64 * 1024
MIN_PROGRESS_PARTS = 24
"""While others wait, a request has to arrive within MIN_PROGRESS_PARTS checks, two minutes; MIN_PROGRESS_BYTES for
each check are always fast enough."""

NO_PROGRESS = (
    "a large request arrives too slowly, and others wait for its memory; send smaller requests or raise "
    "queued.max.request.bytes"
)


class MemoryUser(Protocol):
    """A connection, as `RequestMemory` sees it."""

    @property
    def arrived_bytes(self) -> int:
        """Bytes that have arrived of the request with granted memory."""
        ...

    @property
    def is_blocked_by_broker(self) -> bool:
        """Whether the broker throttles it or lets no further request of it start."""
        ...

    def memory_granted(self, byte_count: int) -> None:
        """Take the memory that was waited for."""
        ...

    def close_for(self, reason: str) -> None:
        """Close the connection, which releases its memory."""
        ...


class _ArrivingRequest:
    """A request that has memory and has not arrived as a whole.

    seen_bytes: arrived bytes at the last check; None before the first.
    """

    __slots__ = ("min_bytes", "seen_bytes")

    def __init__(self, byte_count: int) -> None:
        self.min_bytes = max(MIN_PROGRESS_BYTES, byte_count // MIN_PROGRESS_PARTS)
        self.seen_bytes: int | None = None


class RequestMemory:
    """Grants memory to large requests, in two queues: above and up to ORDINARY_BYTES.

    limit_bytes:           over all connections; negative for no bound. Raised to what the largest request needs.
    largest_request_bytes: must always fit.
    used_bytes:            granted for requests that arrive or are served.
    spare_bytes:           of buffers above 128 KiB that only make reading faster. An eighth is reserved for them, so
                           that no request waits for a client that has sent a part of a small one.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int, largest_request_bytes: int) -> None:
        self._loop = loop
        self._is_bounded = limit_bytes >= 0
        # Large requests may use three quarters: the largest must fit, rounded up to whole pages.
        largest_buffer_bytes = largest_request_bytes + ORDINARY_BYTES
        self.limit_bytes = max(limit_bytes, largest_buffer_bytes * 4 // 3 + 1)
        self._large_limit_bytes = self.limit_bytes * 3 // 4
        self._spare_limit_bytes = self.limit_bytes // 8 if self._is_bounded else sys.maxsize
        self._requests_limit_bytes = self.limit_bytes - self.limit_bytes // 8
        self.used_bytes = 0
        self.spare_bytes = 0
        self._large_bytes = 0
        self._waiting_large: OrderedDict[MemoryUser, int] = OrderedDict()
        self._waiting_ordinary: OrderedDict[MemoryUser, int] = OrderedDict()
        self._arriving: dict[MemoryUser, _ArrivingRequest] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._freed_memory = FreedMemory(loop)

    @property
    def waiting_count(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiting_large) + len(self._waiting_ordinary)

    def has_spare(self, byte_count: int) -> bool:
        """Whether there is memory for a buffer that only makes reading faster."""
        return self.spare_bytes + byte_count <= self._spare_limit_bytes

    def freed_spare(self, byte_count: int) -> None:
        """Note that a spare buffer, already uncounted, is freed."""
        self._freed_memory.freed(self.used_bytes + self.spare_bytes + byte_count, byte_count)

    def reserve(self, user: MemoryUser, byte_count: int) -> bool:
        """Reserve memory for a request of which a part has arrived; False if the connection has to wait for it."""
        waiting = self._queue(byte_count)
        if waiting or not self._fits(byte_count):
            waiting[user] = byte_count
            self._check_later()
            return False
        self._grant(user, byte_count)
        return True

    def arrived(self, user: MemoryUser) -> None:
        """Note that the request has arrived; its memory stays in use until `release`."""
        self._arriving.pop(user, None)

    def connection_closed(self, user: MemoryUser) -> None:
        """Forget a connection."""
        self._arriving.pop(user, None)
        if self._waiting_large.pop(user, None) is not None or self._waiting_ordinary.pop(user, None) is not None:
            self._grant_waiting()

    def release(self, byte_count: int) -> None:
        """Free the memory that was granted for a request."""
        self._freed_memory.freed(self.used_bytes, byte_count)
        self.used_bytes -= byte_count
        if byte_count > ORDINARY_BYTES:
            self._large_bytes -= byte_count
        if self._waiting_large or self._waiting_ordinary:
            self._grant_waiting()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._freed_memory.close()

    def _queue(self, byte_count: int) -> OrderedDict[MemoryUser, int]:
        return self._waiting_large if byte_count > ORDINARY_BYTES else self._waiting_ordinary

    def _fits(self, byte_count: int) -> bool:
        """Whether a request fits. Ordinary ones have a reserved eighth, and use the rest while no large one waits."""
        if not self._is_bounded:
            return True
        if byte_count > ORDINARY_BYTES:
            return (
                self._large_bytes + byte_count <= self._large_limit_bytes
                and self.used_bytes + byte_count <= self._requests_limit_bytes
            )
        ordinary_bytes = self.used_bytes - self._large_bytes + byte_count
        return ordinary_bytes <= self._requests_limit_bytes - self._large_limit_bytes or (
            not self._waiting_large and self.used_bytes + byte_count <= self._requests_limit_bytes
        )

    def _grant(self, user: MemoryUser, byte_count: int) -> None:
        self.used_bytes += byte_count
        if byte_count > ORDINARY_BYTES:
            self._large_bytes += byte_count
        self._arriving[user] = _ArrivingRequest(byte_count)

    def _grant_waiting(self) -> None:
        for waiting in (self._waiting_large, self._waiting_ordinary):
            while waiting:
                user, byte_count = next(iter(waiting.items()))
                if not self._fits(byte_count):
                    break
                del waiting[user]
                self._grant(user, byte_count)
                user.memory_granted(byte_count)

    # Requests that do not arrive

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(PROGRESS_CHECK_S, PROGRESS_CHECK.callback(self._check))

    def _check(self) -> None:
        """While connections wait: close those whose requests made too little progress since the last check."""
        self._timer = None
        if not self.waiting_count:
            for arriving in self._arriving.values():
                arriving.seen_bytes = None
            return
        self._check_later()
        for user, arriving in list(self._arriving.items()):
            arrived_bytes = user.arrived_bytes
            is_late = arriving.seen_bytes is not None and arrived_bytes - arriving.seen_bytes < arriving.min_bytes
            arriving.seen_bytes = arrived_bytes
            if is_late and not user.is_blocked_by_broker:
                user.close_for(NO_PROGRESS)
