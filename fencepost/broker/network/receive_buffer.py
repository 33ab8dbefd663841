"""Receive buffers: the memory that connections read into, and the pool that connections take it from.

`inbox.py` fills a buffer front to back and hands it out as slices, one per frame.
"""

from __future__ import annotations

import mmap

from fencepost.broker.network.network_memory import NetworkMemory

SMALL_CAPACITY_BYTES = 128 * 1024
PIPELINE_CAPACITY_BYTES = 1024 * 1024
"""For a client that sends more than a small buffer holds: requests that arrive together are dispatched together."""
LARGE_CAPACITY_BYTES = 4 * 1024 * 1024


class ReceiveBuffer:
    """One block of memory.

    room_bytes:    the end of the part to read into: the capacity, or the end of the request that it was reserved for.
                   Later requests are read elsewhere, or they would keep the memory and wait for more.
    pinned_count:  requests in flight whose frame lies in it.
    counted_bytes: granted for a request by `NetworkMemory`. Others above 128 KiB are counted as spare.
    is_apart:      whether it is counted by `StrangersMemory`, and not as spare.
    """

    __slots__ = (
        "capacity_bytes",
        "counted_bytes",
        "is_apart",
        "is_awaiting_unpin",
        "pinned_count",
        "room_bytes",
        "view",
    )

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes <= LARGE_CAPACITY_BYTES:
            self.view = memoryview(bytearray(capacity_bytes))
        else:
            # The system gives each page as it is written to, and gets all of them back at once.
            self.view = memoryview(mmap.mmap(-1, capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self.counted_bytes = 0
        self.is_apart = False
        self.capacity_bytes = capacity_bytes
        self.room_bytes = capacity_bytes
        self.pinned_count = 0
        self.is_awaiting_unpin = False  # goes back to the pool when no frame in it is pinned


def capacity_for(wanted_bytes: int) -> int:
    """The capacity of a buffer for `wanted_bytes`."""
    if wanted_bytes > LARGE_CAPACITY_BYTES:
        return -(-wanted_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    return max(SMALL_CAPACITY_BYTES, 1 << (wanted_bytes - 1).bit_length())


class BufferPool:
    """Free buffers of all connections of a server, up to `limit_bytes`; further ones are freed.

    shared: a small buffer that any connection may read into, as long as nothing in it is needed when that step ends.
    memory: counts all larger buffers in use.
    """

    __slots__ = ("_free", "_limit_bytes", "free_bytes", "memory", "shared")

    def __init__(self, limit_bytes: int = 32 * 1024 * 1024, *, memory: NetworkMemory | None = None) -> None:
        self.memory = memory or NetworkMemory()
        self._free: dict[int, list[ReceiveBuffer]] = {}
        self.free_bytes = 0
        self._limit_bytes = limit_bytes
        self.shared = ReceiveBuffer(SMALL_CAPACITY_BYTES)

    def take(self, wanted_bytes: int, *, reserved_bytes: int = 0, is_apart: bool = False) -> ReceiveBuffer:
        """Take or allocate a buffer of at least `wanted_bytes`.

        Capacities up to 4 MiB are powers of two, so that they can be exchanged; larger ones are whole pages.

        reserved_bytes: granted for a request of `wanted_bytes`, and now counted by the buffer.
        is_apart:       whether the client has not authenticated.
        """
        capacity_bytes = capacity_for(wanted_bytes)
        free = self._free.get(capacity_bytes)
        if free:
            self.free_bytes -= capacity_bytes
            buffer = free.pop()
        else:
            buffer = ReceiveBuffer(capacity_bytes)
        if reserved_bytes:
            buffer.counted_bytes = reserved_bytes
            buffer.room_bytes = wanted_bytes
        elif capacity_bytes > SMALL_CAPACITY_BYTES:
            buffer.is_apart = is_apart
            if not is_apart:
                self.memory.spare_bytes += capacity_bytes
        return buffer

    def take_shared(self) -> ReceiveBuffer:
        """Take the shared buffer with the bytes that have just been read into it; another one is shared from now on."""
        buffer = self.shared
        self.shared = self.take(SMALL_CAPACITY_BYTES)
        return buffer

    def give_back(self, buffer: ReceiveBuffer) -> None:
        """Return a buffer to the pool that is not used any more."""
        capacity_bytes = buffer.capacity_bytes
        granted_bytes, buffer.counted_bytes, buffer.room_bytes = buffer.counted_bytes, 0, capacity_bytes
        is_kept = capacity_bytes <= LARGE_CAPACITY_BYTES and self.free_bytes + capacity_bytes <= self._limit_bytes
        if is_kept:
            self._free.setdefault(capacity_bytes, []).append(buffer)
            self.free_bytes += capacity_bytes
        if granted_bytes:
            self.memory.release(granted_bytes)
        elif capacity_bytes > SMALL_CAPACITY_BYTES:
            if buffer.is_apart:
                buffer.is_apart = False
            else:
                self.memory.spare_bytes -= capacity_bytes
            if not is_kept:
                self.memory.freed_spare(capacity_bytes)

    def release_when_unpinned(self, buffer: ReceiveBuffer) -> None:
        """Return to the pool a buffer that its connection no longer reads into, once no frame in it is pinned."""
        if buffer.pinned_count == 0:
            self.give_back(buffer)
        else:
            buffer.is_awaiting_unpin = True

    def release(self, buffer: ReceiveBuffer) -> None:
        """Unpin one frame of the buffer: its request is finished."""
        buffer.pinned_count -= 1
        if buffer.pinned_count == 0 and buffer.is_awaiting_unpin:
            buffer.is_awaiting_unpin = False
            self.give_back(buffer)
