"""The memory that a connection reads into: filled front to back, frames handed out as slices, reused when none is held.

A buffer is only ever written behind what has arrived, so a frame that a waiting handler still reads is never
overwritten. When the end is reached, the incomplete rest moves: to the front of the same buffer when no frame in it is
held, else to another one. A connection whose client has said all that it wanted to has no buffer: what a client says
next is read into the one that all of them share, which is still in the processor's cache, and which becomes the
connection's own only when something in it is to stay.
"""

from __future__ import annotations

import mmap

from fencepost.broker.network.request_memory import RequestMemory
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, read_frame_length, unpack_length

SMALL_CAPACITY_BYTES = 128 * 1024
PIPELINE_CAPACITY_BYTES = 1024 * 1024
"""For a client that sends more at once than fits into a small one: what arrives together is handled together."""
LARGE_CAPACITY_BYTES = 4 * 1024 * 1024
MINIMUM_READ_BYTES = 16 * 1024
# A large buffer goes back once this many fillings in a row would have fitted into a small one.
SHRINK_AFTER_SMALL_ROUNDS = 8


class ReceiveBuffer:
    """One block of memory.

    room_bytes:    how far it is read into: the capacity, or the end of the request that it was reserved for. What
                   follows that request is read elsewhere, or it would keep the memory and wait for more.
    held_count:    requests in flight whose frame lies in it.
    counted_bytes: granted for a request, of the memory of all connections. Others above 128 KiB are counted as spare.
    """

    __slots__ = ("capacity_bytes", "counted_bytes", "held_count", "is_retired", "room_bytes", "view")

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes <= LARGE_CAPACITY_BYTES:
            self.view = memoryview(bytearray(capacity_bytes))
        else:
            # The system gives each page as it is written to, and gets all of them back at once.
            self.view = memoryview(mmap.mmap(-1, capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
        self.counted_bytes = 0
        self.capacity_bytes = capacity_bytes
        self.room_bytes = capacity_bytes
        self.held_count = 0
        self.is_retired = False  # goes back to the pool when no frame in it is held any more


def capacity_for(wanted_bytes: int) -> int:
    """The capacity of a buffer that takes `wanted_bytes`."""
    if wanted_bytes > LARGE_CAPACITY_BYTES:
        return -(-wanted_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
    return max(SMALL_CAPACITY_BYTES, 1 << (wanted_bytes - 1).bit_length())


class BufferPool:
    """Retired buffers of all connections of a server, up to a number of bytes; further ones are freed.

    shared: a small one that any connection may be read into, as long as nothing in it is needed when that step ends.
    memory: where all buffers in use that are larger are counted; None where that is nobody's concern.
    """

    __slots__ = ("_free", "_limit_bytes", "free_bytes", "memory", "shared")

    def __init__(self, limit_bytes: int = 32 * 1024 * 1024, *, memory: RequestMemory | None = None) -> None:
        self.memory = memory
        self._free: dict[int, list[ReceiveBuffer]] = {}
        self.free_bytes = 0
        self._limit_bytes = limit_bytes
        self.shared = ReceiveBuffer(SMALL_CAPACITY_BYTES)

    def take(self, wanted_bytes: int, *, reserved_bytes: int = 0) -> ReceiveBuffer:
        """A buffer of at least so many bytes.

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

    def take_spare(self, capacity_bytes: int) -> ReceiveBuffer | None:
        """A buffer above 128 KiB of a capacity that others have had; None where there is no memory to spare."""
        if self.memory is not None and not self.memory.has_spare(capacity_bytes):
            return None
        return self.take(capacity_bytes)

    def take_shared(self) -> ReceiveBuffer:
        """The shared buffer, with what has just been read into it; from now on another one is shared."""
        buffer = self.shared
        self.shared = self.take(SMALL_CAPACITY_BYTES)
        return buffer

    def give_back(self, buffer: ReceiveBuffer) -> None:
        """Take a buffer that nobody reads or writes any more."""
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

    def retire(self, buffer: ReceiveBuffer) -> None:
        """A connection reads into this one no longer; it is free when the last frame in it is let go."""
        if buffer.held_count == 0:
            self.give_back(buffer)
        else:
            buffer.is_retired = True

    def release(self, buffer: ReceiveBuffer) -> None:
        """One request whose frame lay in the buffer is finished."""
        buffer.held_count -= 1
        if buffer.held_count == 0 and buffer.is_retired:
            buffer.is_retired = False
            self.give_back(buffer)


class Receiver:
    """The bytes of one connection that have arrived and are not consumed yet.

    `writable` and `received` or `received_frame` are the two halves of BufferedProtocol; the rest is the side of who
    reads frames, and who has to call `rest` in the step in which something was received.

    buffer:       its own; None while all that it has is in the pool's shared one, or it has nothing.
    wanted_bytes: of the frame that is arriving, with the length before it; 0 where none has begun to.
    """

    __slots__ = (
        "_capacity_bytes",
        "_end",
        "_pool",
        "_reserved_bytes",
        "_small_rounds",
        "_start",
        "buffer",
        "wanted_bytes",
    )

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self.buffer: ReceiveBuffer | None = None
        self._capacity_bytes = SMALL_CAPACITY_BYTES  # of the next buffer: what lately has been of use
        self._small_rounds = 0
        self._start = 0
        self._end = 0
        self.wanted_bytes = 0
        self._reserved_bytes = 0

    def writable(self) -> memoryview:
        """Where to read to; never empty."""
        buffer = self.buffer
        if buffer is None:
            if self._capacity_bytes <= SMALL_CAPACITY_BYTES:
                return self._pool.shared.view
            self.buffer = buffer = self._pool.take_spare(self._capacity_bytes)
            return self._pool.shared.view if buffer is None else buffer.view
        if self._reserved_bytes or buffer.room_bytes - self._end < self._needed_bytes():
            buffer = self._make_room(buffer)
        return buffer.view[self._end : buffer.room_bytes]

    def received(self, byte_count: int) -> None:
        self._end += byte_count
        if self._end == SMALL_CAPACITY_BYTES and self._capacity_bytes == SMALL_CAPACITY_BYTES:
            self._capacity_bytes = PIPELINE_CAPACITY_BYTES  # there is more than fits

    def received_frame(self, byte_count: int, minimum_bytes: int, maximum_bytes: int) -> memoryview | None:
        """As `received`, and, if there was nothing before and one whole frame has come, as `take_frame`: that is what
        most clients send at a time. None, and nothing is consumed, for anything else. Without a `buffer` afterwards
        there is nothing to let go.
        """
        if self.buffer is None:
            view = self._pool.shared.view
            length_bytes = byte_count - LENGTH_BYTES
            if unpack_length(view) == (length_bytes,) and minimum_bytes <= length_bytes <= maximum_bytes:
                return view[LENGTH_BYTES:byte_count]
        self.received(byte_count)
        return None

    def equal_frames(
        self, least_count: int, most_count: int, minimum_bytes: int, maximum_bytes: int
    ) -> EqualLengthFrames | None:
        """What has arrived, if it is enough for so many frames like the first, and the second is as long; at most
        `most_count` of them. From which one on they have another length is for the caller to see. Nothing is consumed.

        least_count: two or more.
        """
        start, end = self._start, self._end
        if end - start < least_count * (LENGTH_BYTES + minimum_bytes):
            return None
        view = self._pool.shared.view if self.buffer is None else self.buffer.view
        length = unpack_length(view, start)
        frame_bytes = length[0] + LENGTH_BYTES
        if (
            start + least_count * frame_bytes > end
            or not minimum_bytes <= frame_bytes - LENGTH_BYTES <= maximum_bytes
            or unpack_length(view, start + frame_bytes) != length
        ):
            return None
        count = min(most_count, (end - start) // frame_bytes)
        return EqualLengthFrames(view[start : start + count * frame_bytes], frame_bytes)

    def skip(self, byte_count: int) -> None:
        """Consume whole frames that have been seen in `equal_frames`."""
        self._start += byte_count
        self.wanted_bytes = 0

    def take_frame(self, minimum_bytes: int, maximum_bytes: int) -> memoryview | None:
        """Consume the next frame, without the length before it; None while it has not arrived as a whole.

        The slice is good until the buffer it lies in is released and reused. What is missing will fit as it arrives.
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
        """How much has arrived that is not consumed."""
        return self._end - self._start

    def unreserved_bytes(self) -> int:
        """How much memory has to be reserved before the rest of the frame that is arriving is read; 0 for none."""
        wanted_bytes = self.wanted_bytes
        if wanted_bytes <= SMALL_CAPACITY_BYTES or self._reserved_bytes:
            return 0
        buffer = self.buffer
        if buffer is not None and wanted_bytes <= buffer.room_bytes - (self._start if buffer.held_count else 0):
            return 0
        return capacity_for(wanted_bytes)

    def reserve(self, byte_count: int) -> None:
        """The memory that the frame needs is reserved: it is read into a buffer of its own size."""
        self._reserved_bytes = byte_count

    @property
    def is_empty(self) -> bool:
        """Whether all that has arrived is consumed."""
        return self._start == self._end

    def hold(self) -> ReceiveBuffer:
        """Keep the frame that was taken last as it is until the returned buffer is given to `release`."""
        if self.buffer is None:
            self.buffer = self._pool.take_shared()
            if not self._end:  # a frame received alone is not counted
                self._start = self._end = self.buffer.capacity_bytes
        self.buffer.held_count += 1
        return self.buffer

    def release(self, buffer: ReceiveBuffer) -> None:
        """The request whose frame lay in the buffer is finished."""
        self._pool.release(buffer)
        self.rest()

    def rest(self) -> None:
        """Let the memory go if it has no use now: everything is consumed and nothing held. Else keep it."""
        buffer = self.buffer
        if buffer is None:
            if self._start != self._end:
                self.buffer = self._pool.take_shared()
            else:
                self._start = self._end = 0
            return
        if self._start != self._end or buffer.held_count:
            return
        if self._capacity_bytes > SMALL_CAPACITY_BYTES:
            self._small_rounds = self._small_rounds + 1 if self._end <= SMALL_CAPACITY_BYTES else 0
            if self._small_rounds >= SHRINK_AFTER_SMALL_ROUNDS:
                self._capacity_bytes = SMALL_CAPACITY_BYTES
                self._small_rounds = 0
        self.buffer = None
        self._start = self._end = 0
        self._pool.give_back(buffer)

    def close(self) -> None:
        """Let the memory go, as soon as nothing in it is held."""
        if self.buffer is not None:
            self._pool.retire(self.buffer)
            self.buffer = None
        if self._reserved_bytes and self._pool.memory is not None:
            self._pool.memory.release(self._reserved_bytes)
        self._reserved_bytes = 0
        self._start = self._end = self.wanted_bytes = 0

    def _needed_bytes(self) -> int:
        """How much should fit behind what is there.

        An announced frame gets no more room than has proved useful before, or as much again as has arrived of it; and
        none behind its end, for which a larger buffer would be needed than for the frame.
        """
        available_bytes = self._end - self._start
        missing_bytes = self.wanted_bytes - available_bytes
        if missing_bytes <= 0:
            missing_bytes = MINIMUM_READ_BYTES
        return min(missing_bytes, max(available_bytes, self._capacity_bytes))

    def _make_room(self, buffer: ReceiveBuffer) -> ReceiveBuffer:
        start, end = self._start, self._end
        rest_bytes = end - start
        if self._reserved_bytes:
            other = self._pool.take(self.wanted_bytes, reserved_bytes=self._reserved_bytes)
            self._reserved_bytes = 0
            other.view[:rest_bytes] = buffer.view[start:end]
            self._pool.retire(buffer)
            self.buffer = other
            self._capacity_bytes = min(max(self._capacity_bytes, other.capacity_bytes), LARGE_CAPACITY_BYTES)
            self._start = 0
            self._end = rest_bytes
            return other
        wanted_bytes = rest_bytes + self._needed_bytes()
        memory = self._pool.memory
        if memory is None or memory.has_spare(self._capacity_bytes):
            wanted_bytes = max(wanted_bytes, self._capacity_bytes)
        if buffer.held_count == 0 and wanted_bytes <= buffer.room_bytes:
            # The halves may overlap; assignment between slices of one memoryview moves like memmove.
            buffer.view[:rest_bytes] = buffer.view[start:end]
        else:
            other = self._pool.take(wanted_bytes)
            other.view[:rest_bytes] = buffer.view[start:end]
            self._pool.retire(buffer)
            self.buffer = buffer = other
            self._capacity_bytes = min(max(self._capacity_bytes, other.capacity_bytes), LARGE_CAPACITY_BYTES)
        self._start = 0
        self._end = rest_bytes
        return buffer
