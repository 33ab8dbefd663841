"""The bound on what all connections together hold of requests: large ones are read only while there is memory for them.

A connection reads up to 128 KiB into a buffer that is always there for it. A request that needs more waits for memory
for the whole of it, first come, first served, and its connection is not read meanwhile: the client's system holds it
back. So two connections never wait for each other with half a request each. What a client announces and does not send
is taken from it again as soon as others wait.

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
"""Requests up to this size, most batches among them, wait only for each other: an eighth of the memory is theirs."""

PROGRESS_CHECK_S = 5.0
LEAST_PROGRESS_BYTES = 64 * 1024
LEAST_PROGRESS_PARTS = 24
"""While others wait, a request has to arrive within LEAST_PROGRESS_PARTS checks, two minutes; LEAST_PROGRESS_BYTES for
each check are always fast enough."""

NO_PROGRESS = (
    "a large request arrives too slowly, and others wait for its memory; send smaller requests or raise "
    "queued.max.request.bytes"
)


class MemoryUser(Protocol):
    """A connection, as the memory sees it."""

    @property
    def arrived_bytes(self) -> int:
        """How much has arrived of the request that it has memory for."""
        ...

    @property
    def is_kept_waiting(self) -> bool:
        """Whether the broker does not read from it for reasons of its own."""
        ...

    def memory_granted(self, byte_count: int) -> None:
        """What it asked for is there now."""
        ...

    def give_up(self, reason: str) -> None:
        """Close the connection: it gives its memory back."""
        ...


class _ArrivingRequest:
    """A request that has memory and has not arrived as a whole.

    seen_bytes: of it at the last check; None before the first.
    """

    __slots__ = ("least_bytes", "seen_bytes")

    def __init__(self, byte_count: int) -> None:
        self.least_bytes = max(LEAST_PROGRESS_BYTES, byte_count // LEAST_PROGRESS_PARTS)
        self.seen_bytes: int | None = None


class RequestMemory:
    """What may be used, and what is.

    limit_bytes:           over all connections; negative for no bound. Raised to what the largest request needs.
    largest_request_bytes: must always fit.
    used_bytes:            granted for requests that arrive, or were read and are served.
    spare_bytes:           of buffers beyond 128 KiB that only make reading faster. They have an eighth of their own, so
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
        """Whether there is memory for what is only faster with it."""
        return self.spare_bytes + byte_count <= self._spare_limit_bytes

    def freed_spare(self, byte_count: int) -> None:
        """A buffer that was spare, and is counted no more, is freed."""
        self._freed_memory.freed(self.used_bytes + self.spare_bytes + byte_count, byte_count)

    def reserve(self, user: MemoryUser, byte_count: int) -> bool:
        """Ask for memory for a request of which a part has arrived; False where it has to be waited for."""
        waiting = self._queue(byte_count)
        if waiting or not self._fits(byte_count):
            waiting[user] = byte_count
            self._check_later()
            return False
        self._grant(user, byte_count)
        return True

    def arrived(self, user: MemoryUser) -> None:
        """The request is there; its memory stays in use until the buffer is let go."""
        self._arriving.pop(user, None)

    def leave(self, user: MemoryUser) -> None:
        """The connection is gone."""
        self._arriving.pop(user, None)
        if self._waiting_large.pop(user, None) is not None or self._waiting_ordinary.pop(user, None) is not None:
            self._grant_waiting()

    def release(self, byte_count: int) -> None:
        """What was granted for a request is free again."""
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
        """Large requests leave an eighth to ordinary ones, which use the rest, too, while no large one waits."""
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
        """While anybody waits: close the connections whose requests have not come on since the last check."""
        self._timer = None
        if not self.waiting_count:
            for arriving in self._arriving.values():
                arriving.seen_bytes = None
            return
        self._check_later()
        for user, arriving in list(self._arriving.items()):
            arrived_bytes = user.arrived_bytes
            is_late = arriving.seen_bytes is not None and arrived_bytes - arriving.seen_bytes < arriving.least_bytes
            arriving.seen_bytes = arrived_bytes
            if is_late and not user.is_kept_waiting:
                user.give_up(NO_PROGRESS)
