"""Memory of the network: the bounds on the frames and replies of all connections, in one object.

| memory                            | bound                                                                         |
|-----------------------------------|-------------------------------------------------------------------------------|
| the first 16 KiB of a request     | its bytes that have arrived                                                   |
| buffers of requests up to 128 KiB | one for each connection                                                       |
| buffers of larger requests        | `queued.max.request.bytes`; an eighth of it is for spare buffers              |
| replies that wait                 | `fencepost.queued.max.response.bytes`, and one reply more for each connection |
| free buffers (`BufferPool`)       | 32 MiB for each listener                                                      |
| clients that have to authenticate | `StrangersMemory`: four times the bytes that arrived, at most; 64 MiB in all  |

A larger request is read only when memory for the whole of it is granted, first come, first served; so two connections
never wait for each other with half a request each. If a client announces a request and does not send it, its connection
is closed as soon as others wait. A client that reads too slowly first blocks only itself, at its connection's share of
the memory for replies; when that is used up, the connection whose replies have waited longest is closed. File slices
that are sent without a copy are not counted.

Source: Kafka's SimpleMemoryPool, where a large request may starve and small ones wait; for replies Redis's
`client-output-buffer-limit`. Apache Kafka has one reply of each connection in memory, unbounded.
"""

from __future__ import annotations

import asyncio
import sys
from collections import OrderedDict
from typing import Protocol

from fencepost.broker.kernel.address_shares import AddressShares
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

MIN_SHARE_BYTES = 64 * 1024
"""Reply bytes that may wait for any client, however many there are."""

NO_PROGRESS = (
    "a large request arrives too slowly, and others wait for its memory; send smaller requests or raise "
    "queued.max.request.bytes"
)
NOT_READ = (
    "the client does not read its replies, and those of all clients need more than "
    "fencepost.queued.max.response.bytes; of all of them it has kept the broker waiting for longest"
)


STRANGERS_BYTES = 64 * 1024 * 1024
"""Thousands of tokens that arrive at the same time."""

TOO_MANY_STRANGERS = (
    "clients that have not authenticated hold too much memory; of the address that holds most, this one has had "
    "a part of a request for longest"
)

CONNECTION_BYTES = 8 * 1024
"""Approximate bytes of an open connection without buffers: its objects, and those of its transport."""


NO_CONNECTION_LEFT = (
    "others need a connection, and the broker may open no more; of the address with most clients that have not "
    "authenticated, this one has been open for longest"
)


class Stranger(Protocol):
    """A connection whose client has not authenticated."""

    client_host: str

    def close_for(self, reason: str) -> None:
        """Close the connection at once, which releases its memory."""


class MemoryUser(Stranger, Protocol):
    """A connection, as the memory sees it."""

    @property
    def arrived_bytes(self) -> int:
        """Bytes that have arrived of the request with granted memory."""

    @property
    def is_blocked_by_broker(self) -> bool:
        """Whether the broker throttles it or lets no further request of it start."""

    def memory_granted(self, byte_count: int) -> None:
        """Take the memory that was waited for."""


class StrangersMemory:
    """The arrived bytes of requests of clients that have not authenticated, of all listeners, apart from the memory of
    users. Beyond the limit, the address that holds most loses its oldest connection.
    """

    def __init__(self, limit_bytes: int = STRANGERS_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._shares: AddressShares[Stranger] = AddressShares()
        self._connections: AddressShares[Stranger] = AddressShares()
        self._freed = FreedMemory()

    @property
    def held_bytes(self) -> int:
        return self._shares.size

    def close(self) -> None:
        self._freed.close()

    def connected(self, stranger: Stranger) -> None:
        """Add a connection, or a TLS handshake, that may have to make room for others."""
        self._connections.hold(stranger, stranger.client_host)

    def left(self, stranger: Stranger) -> None:
        """Remove a connection that is closed, or whose client has authenticated; it holds nothing as a stranger."""
        self._connections.release(stranger)
        self.hold(stranger, 0)

    def make_room(self) -> bool:
        """Close a connection if the broker may have no more; returns whether there was one.

        It is the oldest of the address that has most: users, and strangers of other addresses, get in.
        """
        oldest = self._connections.oldest_of_greediest()
        if oldest is None:
            return False
        self.left(oldest)
        oldest.close_for(NO_CONNECTION_LEFT)
        return True

    def hold(self, user: Stranger, byte_count: int) -> None:
        """Set how much a connection holds; closes connections, this one perhaps, while the limit is exceeded."""
        before = self._shares.size
        self._shares.hold(user, user.client_host, byte_count)
        if self._shares.size < before:
            self._freed.freed(before, before - self._shares.size)
        while self._shares.size > self.limit_bytes:
            oldest = self._shares.oldest_of_greediest()
            assert oldest is not None, "somebody holds the bytes"
            self._shares.release(oldest)
            oldest.close_for(TOO_MANY_STRANGERS)


class NetworkMemory:
    """The memory of all connections of a node. Limits are over all of them; negative for no bound.

    request_limit_bytes:   raised to the size of the largest request.
    largest_request_bytes: must always fit.
    request_bytes:         granted for requests that arrive or are served.
    spare_bytes:           buffers above 128 KiB that only make reading faster. An eighth is reserved for them, so
                           that no request waits for a client that has sent a part of a small one.
    reply_bytes:           replies that wait.
    """

    def __init__(
        self, *, request_limit_bytes: int = -1, largest_request_bytes: int = 0, reply_limit_bytes: int = -1
    ) -> None:
        self._is_bounded = request_limit_bytes >= 0
        # Large requests may use three quarters: the largest must fit, rounded up to whole pages.
        largest_buffer_bytes = largest_request_bytes + ORDINARY_BYTES
        self.request_limit_bytes = max(request_limit_bytes, largest_buffer_bytes * 4 // 3 + 1)
        self._large_limit_bytes = self.request_limit_bytes * 3 // 4
        self._spare_limit_bytes = self.request_limit_bytes // 8 if self._is_bounded else sys.maxsize
        self._granted_limit_bytes = self.request_limit_bytes - self.request_limit_bytes // 8
        self.request_bytes = 0
        self.spare_bytes = 0
        self._large_bytes = 0
        self._waiting_large: OrderedDict[MemoryUser, int] = OrderedDict()
        self._waiting_ordinary: OrderedDict[MemoryUser, int] = OrderedDict()
        self._arriving: dict[MemoryUser, int] = {}  # the bytes that have to arrive between two checks
        self._seen_bytes: dict[MemoryUser, int] = {}  # arrived at the last check
        self._timer: asyncio.TimerHandle | None = None
        self._freed_requests = FreedMemory()
        self._reply_limit_bytes = reply_limit_bytes
        self.reply_bytes = 0
        self._unread: dict[MemoryUser, int] = {}  # in the order in which their replies began to wait
        self.strangers = StrangersMemory()
        self._connection_count = 0
        self._freed_connections = FreedMemory()
        self._freed_replies = FreedMemory()

    def connection_opened(self, write_buffer_bytes: int) -> int:
        """Count a connection; returns how many reply bytes may wait before it starts no further request."""
        self._connection_count += 1
        if self._reply_limit_bytes < 0:
            return write_buffer_bytes
        share_bytes = max(MIN_SHARE_BYTES, self._reply_limit_bytes // (2 * self._connection_count))
        return min(write_buffer_bytes, share_bytes)

    def connection_closed(self, user: MemoryUser) -> None:
        """Forget a connection. Memory granted for its requests is in use until it is released."""
        self._freed_connections.freed(self._connection_count * CONNECTION_BYTES, CONNECTION_BYTES)
        self._connection_count -= 1
        self.set_unread_bytes(user, 0)
        self.arrived(user)
        if self._waiting_large.pop(user, None) is not None or self._waiting_ordinary.pop(user, None) is not None:
            self._grant_waiting()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._freed_requests.close()
        self._freed_replies.close()
        self._freed_connections.close()
        self.strangers.close()

    # Replies

    def set_unread_bytes(self, user: MemoryUser, byte_count: int) -> None:
        """Set how many bytes of a connection's replies wait.

        Closes other connections while the limit is exceeded; never this one, whose reply may just be large.
        """
        before = self._unread.pop(user, 0) if not byte_count else self._unread.get(user, 0)
        if byte_count < before:
            self._freed_replies.freed(self.reply_bytes, before - byte_count)
        self.reply_bytes += byte_count - before
        if byte_count:
            self._unread[user] = byte_count
        while byte_count and 0 <= self._reply_limit_bytes < self.reply_bytes:
            oldest = next((other for other in self._unread if other is not user), None)
            if oldest is None:
                return
            self.set_unread_bytes(oldest, 0)
            oldest.close_for(NOT_READ)

    # Requests

    @property
    def waiting_count(self) -> int:
        """Connections that wait for memory."""
        return len(self._waiting_large) + len(self._waiting_ordinary)

    def has_spare(self, byte_count: int) -> bool:
        """Whether there is memory for a buffer that only makes reading faster."""
        return self.spare_bytes + byte_count <= self._spare_limit_bytes

    def freed_spare(self, byte_count: int) -> None:
        """Note that a spare buffer, already uncounted, is freed."""
        self._freed_requests.freed(self.request_bytes + self.spare_bytes + byte_count, byte_count)

    def reserve(self, user: MemoryUser, byte_count: int) -> bool:
        """Reserve memory for a request of which a part has arrived; False if the connection has to wait for it."""
        waiting = self._waiting_large if byte_count > ORDINARY_BYTES else self._waiting_ordinary
        if waiting or not self._fits(byte_count):
            waiting[user] = byte_count
            self._check_later()
            return False
        self._grant(user, byte_count)
        return True

    def arrived(self, user: MemoryUser) -> None:
        """Note that the request has arrived; its memory stays in use until `release`."""
        self._arriving.pop(user, None)
        self._seen_bytes.pop(user, None)

    def release(self, byte_count: int) -> None:
        """Free the memory that was granted for a request."""
        self._freed_requests.freed(self.request_bytes, byte_count)
        self.request_bytes -= byte_count
        if byte_count > ORDINARY_BYTES:
            self._large_bytes -= byte_count
        if self._waiting_large or self._waiting_ordinary:
            self._grant_waiting()

    def _fits(self, byte_count: int) -> bool:
        """Whether a request fits. Ordinary ones have a reserved eighth, and use the rest while no large one waits."""
        if not self._is_bounded:
            return True
        fits_with_all = self.request_bytes + byte_count <= self._granted_limit_bytes
        if byte_count > ORDINARY_BYTES:
            return fits_with_all and self._large_bytes + byte_count <= self._large_limit_bytes
        ordinary_bytes = self.request_bytes - self._large_bytes + byte_count
        return ordinary_bytes <= self._granted_limit_bytes - self._large_limit_bytes or (
            fits_with_all and not self._waiting_large
        )

    def _grant(self, user: MemoryUser, byte_count: int) -> None:
        self.request_bytes += byte_count
        if byte_count > ORDINARY_BYTES:
            self._large_bytes += byte_count
        self._arriving[user] = max(MIN_PROGRESS_BYTES, byte_count // MIN_PROGRESS_PARTS)

    def _grant_waiting(self) -> None:
        for waiting in (self._waiting_large, self._waiting_ordinary):
            while waiting:
                user, byte_count = next(iter(waiting.items()))
                if not self._fits(byte_count):
                    break
                del waiting[user]
                self._grant(user, byte_count)
                user.memory_granted(byte_count)

    def _check_later(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PROGRESS_CHECK_S, PROGRESS_CHECK.callback(self._check))

    def _check(self) -> None:
        """While connections wait: close those whose requests made too little progress since the last check."""
        self._timer = None
        seen_bytes, self._seen_bytes = self._seen_bytes, {}
        if not self.waiting_count:
            return
        self._check_later()
        for user, min_bytes in list(self._arriving.items()):
            self._seen_bytes[user] = arrived_bytes = user.arrived_bytes
            is_late = user in seen_bytes and arrived_bytes - seen_bytes[user] < min_bytes
            if is_late and not user.is_blocked_by_broker:
                user.close_for(NO_PROGRESS)
