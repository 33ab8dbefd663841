"""Receive buffers: the memory that connections read into, filled front to back and handed out as slices, one per frame.

A buffer is written only behind the bytes that have arrived, so a frame that a waiting handler still reads is never
overwritten. When the end is reached, the incomplete frame moves: to the front of the same buffer if no frame in it is
pinned, else to another buffer. A connection without unconsumed bytes has no buffer: it reads into the shared one, which
is still in the processor's cache, and which becomes the connection's own only if bytes in it have to stay.
"""

from __future__ import annotations

import mmap

from fencepost.broker.network.request_memory import RequestMemory
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, read_frame_length, unpack_length

SMALL_CAPACITY_BYTES = 128 * 1024
PIPELINE_CAPACITY_BYTES = 1024 * 1024
"""For a client that sends more than a small buffer holds: requests that arrive together are dispatched together."""
LARGE_CAPACITY_BYTES = 4 * 1024 * 1024
MINIMUM_READ_BYTES = 16 * 1024
# A large buffer is released after this many fillings in a row that would have fitted into a small one.
SHRINK_AFTER_SMALL_FILLINGS = 8


class ReceiveBuffer:
    """One block of memory.

    room_bytes:    how far it is read into: the capacity, or the end of the request that it was reserved for. What
                   follows that request is read elsewhere, or it would keep the memory and wait for more.
    pinned_count:  requests in flight whose frame lies in it.
    counted_bytes: granted for a request by `RequestMemory`. Others above 128 KiB are counted as spare.
    """

    __slots__ = ("capacity_bytes", "counted_bytes", "is_awaiting_unpin", "pinned_count", "room_bytes", "view")

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes <= LARGE_CAPACITY_BYTES:
            self.view = memoryview(bytearray(capacity_bytes))
        else:
            # The system gives each page as it is written to, and gets all of them back at once.
            self.view = memoryview(mmap.mmap(-1, capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self.counted_bytes = 0
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
    memory: counts all larger buffers in use; None for no bound.
    """

    __slots__ = ("_free", "_limit_bytes", "free_bytes", "memory", "shared")

    def __init__(self, limit_bytes: int = 32 * 1024 * 1024, *, memory: RequestMemory | None = None) -> None:
        self.memory = memory
        self._free: dict[int, list[ReceiveBuffer]] = {}
        self.free_bytes = 0
        self._limit_bytes = limit_bytes
        self.shared = ReceiveBuffer(SMALL_CAPACITY_BYTES)

    def take(self, wanted_bytes: int, *, reserved_bytes: int = 0) -> ReceiveBuffer:
        """Take or allocate a buffer of at least `wanted_bytes`.

        Capacities up to 4 MiB are powers of two, so that they can be exchanged; larger ones are whole pages.

        reserved_bytes: granted for a request of `wanted_bytes`, and now counted by the buffer.
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
        elif self.memory is not None and capacity_bytes > SMALL_CAPACITY_BYTES:
            self.memory.spare_bytes += capacity_bytes
        return buffer

    def take_if_spare(self, capacity_bytes: int) -> ReceiveBuffer | None:
        """Take or allocate a buffer above 128 KiB; None if there is no spare memory."""
        if self.memory is not None and not self.memory.has_spare(capacity_bytes):
            return None
        return self.take(capacity_bytes)

    def take_shared(self) -> ReceiveBuffer:
        """Take the shared buffer with the bytes that have just been read into it; another one is shared from now on."""
        buffer = self.shared
        self.shared = self.take(SMALL_CAPACITY_BYTES)
        return buffer

    def give_back(self, buffer: ReceiveBuffer) -> None:
        """Give back a buffer that is not used any more."""
        capacity_bytes = buffer.capacity_bytes
        memory = self.memory
        is_spare = False
        if memory is not None and capacity_bytes > SMALL_CAPACITY_BYTES:
            counted_bytes = buffer.counted_bytes
            if counted_bytes:
                buffer.counted_bytes = 0
                buffer.room_bytes = capacity_bytes
                memory.release(counted_bytes)
            else:
                memory.spare_bytes -= capacity_bytes
                is_spare = True
        if capacity_bytes <= LARGE_CAPACITY_BYTES and self.free_bytes + capacity_bytes <= self._limit_bytes:
            self._free.setdefault(capacity_bytes, []).append(buffer)
            self.free_bytes += capacity_bytes
        elif is_spare and memory is not None:
            memory.freed_spare(capacity_bytes)

    def release_when_unpinned(self, buffer: ReceiveBuffer) -> None:
        """Give back a buffer that its connection does not read into any more, once no frame in it is pinned."""
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


class Receiver:
    """The bytes of one connection that have arrived and are not consumed yet.

    BufferedProtocol calls `writable_memory`, then `received` or `received_frame`; the connection takes frames with the
    other methods, and has to call `release_if_idle` in the step in which bytes were received.

    buffer:       its own; None while all its bytes are in the pool's shared one, or it has none.
    wanted_bytes: of the arriving frame, with the length before it; 0 if none is arriving.
    """

    __slots__ = (
        "_capacity_bytes",
        "_end",
        "_pool",
        "_reserved_bytes",
        "_small_fillings",
        "_start",
        "buffer",
        "wanted_bytes",
    )

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self.buffer: ReceiveBuffer | None = None
        self._capacity_bytes = SMALL_CAPACITY_BYTES  # of the next buffer: what was needed lately
        self._small_fillings = 0
        self._start = 0
        self._end = 0
        self.wanted_bytes = 0
        self._reserved_bytes = 0

    def writable_memory(self) -> memoryview:
        """The memory to read into; never empty."""
        buffer = self.buffer
        if buffer is None:
            if self._capacity_bytes <= SMALL_CAPACITY_BYTES:
                return self._pool.shared.view
            self.buffer = buffer = self._pool.take_if_spare(self._capacity_bytes)
            return self._pool.shared.view if buffer is None else buffer.view
        if self._reserved_bytes or buffer.room_bytes - self._end < self._needed_bytes():
            buffer = self._make_room(buffer)
        return buffer.view[self._end : buffer.room_bytes]

    def received(self, byte_count: int) -> None:
        self._end += byte_count
        if self._end == SMALL_CAPACITY_BYTES and self._capacity_bytes == SMALL_CAPACITY_BYTES:
            self._capacity_bytes = PIPELINE_CAPACITY_BYTES  # there is more than fits

    def received_frame(self, byte_count: int, minimum_bytes: int, maximum_bytes: int) -> memoryview | None:
        """Do `received` and, if one whole frame has arrived alone, as most do, `take_frame`.

        Returns None, and consumes nothing, in all other cases. Without a `buffer` afterwards there is nothing to
        release.
        """
        if self.buffer is None:
            view = self._pool.shared.view
            length_bytes = byte_count - LENGTH_BYTES
            if unpack_length(view) == (length_bytes,) and minimum_bytes <= length_bytes <= maximum_bytes:
                return view[LENGTH_BYTES:byte_count]
        self.received(byte_count)
        return None

    def equal_frames(
        self, min_count: int, max_count: int, minimum_bytes: int, maximum_bytes: int
    ) -> EqualLengthFrames | None:
        """The arrived bytes as frames of the first one's length, at most `max_count`; None if there are fewer than
        `min_count`, two or more, or the second has another length. The caller must find where the lengths begin to
        differ. Nothing is consumed.
        """
        start, end = self._start, self._end
        if end - start < min_count * (LENGTH_BYTES + minimum_bytes):
            return None
        view = self._pool.shared.view if self.buffer is None else self.buffer.view
        length = unpack_length(view, start)
        frame_bytes = length[0] + LENGTH_BYTES
        if (
            start + min_count * frame_bytes > end
            or not minimum_bytes <= frame_bytes - LENGTH_BYTES <= maximum_bytes
            or unpack_length(view, start + frame_bytes) != length
        ):
            return None
        count = min(max_count, (end - start) // frame_bytes)
        return EqualLengthFrames(view[start : start + count * frame_bytes], frame_bytes)

    def skip(self, byte_count: int) -> None:
        """Consume whole frames that `equal_frames` returned."""
        self._start += byte_count
        self.wanted_bytes = 0

    def take_frame(self, minimum_bytes: int, maximum_bytes: int) -> memoryview | None:
        """Consume the next frame, without the length before it; None while it has not arrived as a whole.

        The slice is valid until its buffer is released and reused. The missing bytes will fit as they arrive.
        Raises DecodeError for a length outside the bounds, both inclusive.
        """
        start = self._start + LENGTH_BYTES
        arrived_end = self._end
        if start > arrived_end:
            return None
        buffer = self.buffer
        view = self._pool.shared.view if buffer is None else buffer.view
        frame_end = start + read_frame_length(view, self._start, maximum_bytes, minimum_bytes)
        if frame_end > arrived_end:
            self.wanted_bytes = frame_end - self._start
            return None
        self._start = frame_end
        self.wanted_bytes = 0
        return view[start:frame_end]

    @property
    def arrived_bytes(self) -> int:
        """Bytes that have arrived and are not consumed."""
        return self._end - self._start

    def unreserved_bytes(self) -> int:
        """Bytes of memory to reserve before the rest of the arriving frame is read; 0 for none."""
        wanted_bytes = self.wanted_bytes
        if wanted_bytes <= SMALL_CAPACITY_BYTES or self._reserved_bytes:
            return 0
        buffer = self.buffer
        if buffer is not None and wanted_bytes <= buffer.room_bytes - (self._start if buffer.pinned_count else 0):
            return 0
        return capacity_for(wanted_bytes)

    def reserve(self, byte_count: int) -> None:
        """Read the arriving frame into a buffer of its own size: its memory is reserved."""
        self._reserved_bytes = byte_count

    @property
    def is_empty(self) -> bool:
        """Whether all that has arrived is consumed."""
        return self._start == self._end

    def pin_frame(self) -> ReceiveBuffer:
        """Keep the frame that was taken last unchanged until the returned buffer is passed to `release`."""
        if self.buffer is None:
            self.buffer = self._pool.take_shared()
            if not self._end:  # a frame received alone is not counted
                self._start = self._end = self.buffer.capacity_bytes
        self.buffer.pinned_count += 1
        return self.buffer

    def release(self, buffer: ReceiveBuffer) -> None:
        """Unpin a frame of the buffer: its request is finished."""
        self._pool.release(buffer)
        self.release_if_idle()

    def release_if_idle(self) -> None:
        """Give the buffer back if all bytes are consumed and no frame is pinned; else make it the connection's own."""
        buffer = self.buffer
        if buffer is None:
            if self._start != self._end:
                self.buffer = self._pool.take_shared()
            else:
                self._start = self._end = 0
            return
        if self._start != self._end or buffer.pinned_count:
            return
        if self._capacity_bytes > SMALL_CAPACITY_BYTES:
            self._small_fillings = self._small_fillings + 1 if self._end <= SMALL_CAPACITY_BYTES else 0
            if self._small_fillings >= SHRINK_AFTER_SMALL_FILLINGS:
                self._capacity_bytes = SMALL_CAPACITY_BYTES
                self._small_fillings = 0
        self.buffer = None
        self._start = self._end = 0
        self._pool.give_back(buffer)

    def close(self) -> None:
        """Give the buffer back as soon as no frame in it is pinned."""
        if self.buffer is not None:
            self._pool.release_when_unpinned(self.buffer)
            self.buffer = None
        if self._reserved_bytes and self._pool.memory is not None:
            self._pool.memory.release(self._reserved_bytes)
        self._reserved_bytes = 0
        self._start = self._end = self.wanted_bytes = 0

    def _needed_bytes(self) -> int:
        """Bytes that should fit behind those that have arrived.

        An announced frame gets at most the current capacity, or as much again as has arrived of it; and nothing behind
        its end, which would need a larger buffer than the frame.
        """
        available_bytes = self._end - self._start
        missing_bytes = self.wanted_bytes - available_bytes
        if missing_bytes <= 0:
            missing_bytes = MINIMUM_READ_BYTES
        return min(missing_bytes, max(available_bytes, self._capacity_bytes))

    def _make_room(self, buffer: ReceiveBuffer) -> ReceiveBuffer:
        start, end = self._start, self._end
        incomplete_bytes = end - start
        if self._reserved_bytes:
            other = self._pool.take(self.wanted_bytes, reserved_bytes=self._reserved_bytes)
            self._reserved_bytes = 0
            other.view[:incomplete_bytes] = buffer.view[start:end]
            self._pool.release_when_unpinned(buffer)
            self.buffer = other
            self._capacity_bytes = min(max(self._capacity_bytes, other.capacity_bytes), LARGE_CAPACITY_BYTES)
            self._start = 0
            self._end = incomplete_bytes
            return other
        wanted_bytes = incomplete_bytes + self._needed_bytes()
        memory = self._pool.memory
        if memory is None or memory.has_spare(self._capacity_bytes):
            wanted_bytes = max(wanted_bytes, self._capacity_bytes)
        if buffer.pinned_count == 0 and wanted_bytes <= buffer.room_bytes:
            # The halves may overlap; assignment between slices of one memoryview moves like memmove.
            buffer.view[:incomplete_bytes] = buffer.view[start:end]
        else:
            other = self._pool.take(wanted_bytes)
            other.view[:incomplete_bytes] = buffer.view[start:end]
            self._pool.release_when_unpinned(buffer)
            self.buffer = buffer = other
            self._capacity_bytes = min(max(self._capacity_bytes, other.capacity_bytes), LARGE_CAPACITY_BYTES)
        self._start = 0
        self._end = incomplete_bytes
        return buffer
