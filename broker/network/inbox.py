"""Inbox of a connection: the bytes that have arrived, as frames, and the memory for the frame that is arriving.

A buffer is written only behind the bytes that have arrived, so a frame that a waiting handler still reads is never
overwritten. When the end is reached, the incomplete frame moves: to the front of the same buffer if no frame in it is
pinned, else to another buffer. A connection without unconsumed bytes has no buffer: it reads into the shared one, which
is still in the processor's cache, and which becomes the connection's own only if bytes in it have to stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fencepost.broker.network.receive_buffer import (
    LARGE_CAPACITY_BYTES,
    PIPELINE_CAPACITY_BYTES,
    SMALL_CAPACITY_BYTES,
    BufferPool,
    ReceiveBuffer,
    capacity_for,
)
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, read_frame_length, unpack_length

if TYPE_CHECKING:
    from fencepost.broker.network.network_memory import MemoryUser

MINIMUM_FRAME_BYTES: Final = 8  # api key, api version, correlation id
MIN_PIPELINED: Final = 4
"""At least this many requests of one length must be buffered before the connection tries to start them together."""
MINIMUM_READ_BYTES: Final = 16 * 1024
SHRINK_AFTER_SMALL_FILLINGS: Final = 8
"""A large buffer is released after this many fillings in a row that would have fitted into a small one."""


class Inbox:
    """The bytes of one connection that have arrived and are not consumed yet.

    The connection calls `writable_memory`, then `received` or `received_frame`; it takes frames with the other methods,
    and has to call `release_if_idle` in the step in which bytes were received.

    maximum_frame_bytes: longest frame, without the length before it. The shortest has MINIMUM_FRAME_BYTES.
                         `bound_frames` sets other bounds.
    buffer:       its own; None while all its bytes are in the pool's shared one, or it has none.
    wanted_bytes: of the arriving frame, with the length before it; 0 if none is arriving.
    has_memory:   whether memory is granted for the arriving frame, or for one that has arrived since `claim_memory`.
    """

    __slots__ = (
        "_capacity_bytes",
        "_end",
        "_maximum_frame_bytes",
        "_memory",
        "_minimum_frame_bytes",
        "_pool",
        "_reserved_bytes",
        "_small_fillings",
        "_start",
        "buffer",
        "has_memory",
        "wanted_bytes",
    )

    def __init__(self, pool: BufferPool, maximum_frame_bytes: int) -> None:
        self._pool = pool
        self._memory = pool.memory
        self._maximum_frame_bytes = maximum_frame_bytes
        self._minimum_frame_bytes = MINIMUM_FRAME_BYTES
        self.buffer: ReceiveBuffer | None = None
        self._capacity_bytes = SMALL_CAPACITY_BYTES  # of the next buffer: what was needed lately
        self._small_fillings = 0
        self._start = 0
        self._end = 0
        self.wanted_bytes = 0
        self.has_memory = False
        self._reserved_bytes = 0  # granted, and no buffer taken for it yet

    def bound_frames(self, minimum_bytes: int, maximum_bytes: int) -> None:
        """Set the bounds of the frames that are not taken yet. minimum_bytes: at most MINIMUM_FRAME_BYTES."""
        self._minimum_frame_bytes = minimum_bytes
        self._maximum_frame_bytes = maximum_bytes

    def writable_memory(self) -> memoryview:
        """The memory to read into; never empty."""
        buffer = self.buffer
        if buffer is None:
            if self._capacity_bytes <= SMALL_CAPACITY_BYTES or not self._memory.has_spare(self._capacity_bytes):
                return self._pool.shared.view
            self.buffer = buffer = self._pool.take(self._capacity_bytes)
            return buffer.view
        if self._reserved_bytes or buffer.room_bytes - self._end < self._needed_bytes():
            buffer = self._make_room(buffer)
        return buffer.view[self._end : buffer.room_bytes]

    def received(self, byte_count: int) -> None:
        self._end += byte_count
        if self._end == SMALL_CAPACITY_BYTES and self._capacity_bytes == SMALL_CAPACITY_BYTES:
            self._capacity_bytes = PIPELINE_CAPACITY_BYTES  # there is more than fits

    def received_frame(self, byte_count: int) -> memoryview | None:
        """Do `received` and, if one whole frame has arrived alone, as most do, `take_frame`.

        Returns None, and consumes nothing, in all other cases. Without a `buffer` afterwards there is nothing to
        release.
        """
        if self.buffer is None:
            view = self._pool.shared.view
            length_bytes = byte_count - LENGTH_BYTES
            if (
                unpack_length(view) == (length_bytes,)
                and MINIMUM_FRAME_BYTES <= length_bytes <= self._maximum_frame_bytes
            ):
                return view[LENGTH_BYTES:byte_count]
        self.received(byte_count)
        return None

    def equal_frames(self, max_count: int) -> EqualLengthFrames | None:
        """The arrived bytes as frames of the first one's length, at most `max_count`; None if there are fewer than
        MIN_PIPELINED, or the second has another length. The caller must find where the lengths begin to differ. Nothing
        is consumed.
        """
        start, end = self._start, self._end
        if end - start < MIN_PIPELINED * (LENGTH_BYTES + MINIMUM_FRAME_BYTES):
            return None
        view = self._pool.shared.view if self.buffer is None else self.buffer.view
        length = unpack_length(view, start)
        frame_bytes = length[0] + LENGTH_BYTES
        if (
            start + MIN_PIPELINED * frame_bytes > end
            or not MINIMUM_FRAME_BYTES <= length[0] <= self._maximum_frame_bytes
            or unpack_length(view, start + frame_bytes) != length
        ):
            return None
        count = min(max_count, (end - start) // frame_bytes)
        return EqualLengthFrames(view[start : start + count * frame_bytes], frame_bytes)

    def skip(self, byte_count: int) -> None:
        """Consume whole frames that `equal_frames` returned."""
        self._start += byte_count
        self.wanted_bytes = 0

    def take_frame(self) -> memoryview | None:
        """Consume the next frame, without the length before it; None while it has not arrived as a whole.

        The slice is valid until its buffer is released and reused. The missing bytes will fit as they arrive.
        Raises DecodeError for a length outside the bounds.
        """
        start = self._start + LENGTH_BYTES
        arrived_end = self._end
        if start > arrived_end:
            return None
        buffer = self.buffer
        view = self._pool.shared.view if buffer is None else buffer.view
        frame_end = start + read_frame_length(view, self._start, self._maximum_frame_bytes, self._minimum_frame_bytes)
        if frame_end > arrived_end:
            self.wanted_bytes = frame_end - self._start
            return None
        self._start = frame_end
        self.wanted_bytes = 0
        return view[start:frame_end]

    def peek(self, byte_count: int) -> bytes:
        """The first bytes that have arrived and are not consumed, at most `byte_count`."""
        view = self._pool.shared.view if self.buffer is None else self.buffer.view
        return bytes(view[self._start : min(self._end, self._start + byte_count)])

    @property
    def arrived_bytes(self) -> int:
        """Bytes that have arrived and are not consumed."""
        return self._end - self._start

    def claim_memory(self, user: MemoryUser) -> bool:
        """Claim memory for the rest of the arriving frame, after frames were taken; False if the connection has to wait
        for it, until the connection is granted it, and is not read meanwhile."""
        if self.has_memory:
            if self.wanted_bytes:
                return True
            self.has_memory = False
            self._memory.arrived(user)
        byte_count = self._unreserved_bytes()
        if byte_count:
            if not self._memory.reserve(user, byte_count):
                return False
            self.memory_granted(byte_count)
        return True

    def memory_granted(self, byte_count: int) -> None:
        """Read the arriving frame into a buffer of its own size: its memory is reserved."""
        self.has_memory = True
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
        if self._reserved_bytes:
            self._memory.release(self._reserved_bytes)
        self._reserved_bytes = 0
        self._start = self._end = self.wanted_bytes = 0

    def _unreserved_bytes(self) -> int:
        """Bytes of memory to reserve before the rest of the arriving frame is read; 0 for none."""
        wanted_bytes = self.wanted_bytes
        if wanted_bytes <= SMALL_CAPACITY_BYTES or self._reserved_bytes:
            return 0
        buffer = self.buffer
        if buffer is not None and wanted_bytes <= buffer.room_bytes - (self._start if buffer.pinned_count else 0):
            return 0
        return capacity_for(wanted_bytes)

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
        if self._memory.has_spare(self._capacity_bytes):
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
