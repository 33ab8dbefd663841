"""Bound on the reply bytes that wait in memory, over all connections.

Each connection has its own bound, `fencepost.connection.write.buffer.bytes`, which shrinks as connections are added. A
client that reads too slowly blocks only itself, until the memory of all connections is used up: then the connection
whose replies have waited longest is closed. File slices that are sent without a copy are not counted.

Source: like Redis's `client-output-buffer-limit`; Apache Kafka has one reply of each connection in memory, unbounded.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from fencepost.broker.kernel.allocator_settings import FreedMemory

MIN_SHARE_BYTES = 64 * 1024

NOT_READ = (
    "the client does not read its replies, and those of all clients need more than "
    "fencepost.queued.max.response.bytes; of all of them it has kept the broker waiting for longest"
)


class ReplyMemoryUser(Protocol):
    """A connection, as `ReplyMemory` sees it."""

    def close_for(self, reason: str) -> None:
        """Close the connection at once; it calls `connection_closed` then."""
        ...


class ReplyMemory:
    """Counts the waiting reply bytes. limit_bytes: over all connections; negative for no bound."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.waiting_bytes = 0
        self._waiting: dict[ReplyMemoryUser, int] = {}  # in the order in which they began to wait
        self._connection_count = 0
        self._freed_memory = FreedMemory(loop)

    def connection_opened(self, write_buffer_bytes: int) -> int:
        """Count a connection; returns how many reply bytes may wait before it starts no further request."""
        self._connection_count += 1
        if self._limit_bytes < 0:
            return write_buffer_bytes
        share_bytes = max(MIN_SHARE_BYTES, self._limit_bytes // (2 * self._connection_count))
        return min(write_buffer_bytes, share_bytes)

    def connection_closed(self, user: ReplyMemoryUser) -> None:
        """Forget a connection."""
        self._connection_count -= 1
        self.clear_waiting_bytes(user)

    def set_waiting_bytes(self, user: ReplyMemoryUser, byte_count: int) -> None:
        """Set how many bytes of a connection's replies wait.

        Closes other connections while the limit is exceeded; never this one, whose reply may just be large.
        """
        self.waiting_bytes += byte_count - self._waiting.get(user, 0)
        self._waiting[user] = byte_count
        while 0 <= self._limit_bytes < self.waiting_bytes:
            oldest = next((other for other in self._waiting if other is not user), None)
            if oldest is None:
                return
            self.clear_waiting_bytes(oldest)
            oldest.close_for(NOT_READ)

    def clear_waiting_bytes(self, user: ReplyMemoryUser) -> None:
        """Note that no replies of a connection wait any more."""
        byte_count = self._waiting.pop(user, 0)
        if byte_count:
            self._freed_memory.freed(self.waiting_bytes, byte_count)
            self.waiting_bytes -= byte_count

    def close(self) -> None:
        self._freed_memory.close()
