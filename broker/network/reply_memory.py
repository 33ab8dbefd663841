"""The bound on what waits in memory to be sent, over all connections.

Each connection has its own bound, `fencepost.connection.write.buffer.bytes`, which gets smaller where there are many of
them. What a client does not read beyond that holds back nobody but itself, until the memory of all is used up: then
the connection that has kept its replies waiting for longest is closed. Parts of files are not counted where they are
sent without a copy.

Source: like Redis's `client-output-buffer-limit`; Apache Kafka has one reply of each connection in memory, unbounded.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from fencepost.broker.kernel.allocator_settings import FreedMemory

LEAST_SHARE_BYTES = 64 * 1024

NOT_READ = (
    "the client does not read its replies, and those of all clients need more than "
    "fencepost.queued.max.response.bytes; of all of them it has kept the broker waiting for longest"
)


class ReplyMemoryUser(Protocol):
    """A connection, as the memory sees it."""

    def give_up(self, reason: str) -> None:
        """Close the connection at once: it says then that it has left."""
        ...


class ReplyMemory:
    """What waits to be sent. limit_bytes: over all connections; negative for no bound."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.waiting_bytes = 0
        self._waiting: dict[ReplyMemoryUser, int] = {}  # in the order in which they began to wait
        self._connection_count = 0
        self._freed_memory = FreedMemory(loop)

    def joined(self, write_buffer_bytes: int) -> int:
        """A connection is there; how much of its replies may wait before no further one is begun."""
        self._connection_count += 1
        if self._limit_bytes < 0:
            return write_buffer_bytes
        share_bytes = max(LEAST_SHARE_BYTES, self._limit_bytes // (2 * self._connection_count))
        return min(write_buffer_bytes, share_bytes)

    def left(self, holder: ReplyMemoryUser) -> None:
        """A connection is gone."""
        self._connection_count -= 1
        self.sent(holder)

    def waits(self, holder: ReplyMemoryUser, byte_count: int) -> None:
        """Note that `byte_count` bytes of a connection's replies wait now.

        Closes other connections where all of them exceed the limit; never this one, whose reply may just be large.
        """
        self.waiting_bytes += byte_count - self._waiting.get(holder, 0)
        self._waiting[holder] = byte_count
        while 0 <= self._limit_bytes < self.waiting_bytes:
            oldest = next((other for other in self._waiting if other is not holder), None)
            if oldest is None:
                return
            self.sent(oldest)
            oldest.give_up(NOT_READ)

    def sent(self, holder: ReplyMemoryUser) -> None:
        """Nothing of a connection waits any more."""
        byte_count = self._waiting.pop(holder, 0)
        if byte_count:
            self._freed_memory.freed(self.waiting_bytes, byte_count)
            self.waiting_bytes -= byte_count

    def close(self) -> None:
        self._freed_memory.close()
