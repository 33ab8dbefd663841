"""Inbox of a connection: the bytes that have arrived, as frames, and the memory for the frame that is arriving.

A buffer is written only behind the bytes that have arrived, so a frame that a waiting handler still reads is never
overwritten. When the end is reached, the incomplete frame moves: to the front of the same buffer if no frame in it is
pinned, else to another buffer. A connection without unconsumed bytes has no buffer: it reads into the shared one, which
is still in the processor's cache, and which becomes the connection's own only if many bytes in it have to stay. A few
are kept as they are, and put before those that arrive next: a client that sends half a length holds two bytes.
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
KEPT_BYTES: Final = 16 * 1024
STRANGERS_KEPT_BYTES: Final = 64 * 1024
"""The most that is kept without a buffer: a copy of it takes a microsecond for each 16 KiB. Tokens are no longer."""
LARGEST_SHARE: Final = 4
"""A stranger's buffer has at most this many times the bytes that have arrived: of a longer frame before, for one."""
SHRINK_AFTER_SMALL_FILLINGS: Final = 8
"""A large buffer is released after this many fillings in a row that would have fitted into a small one."""


class Inbox:
    """The bytes of one connection that have arrived and are not consumed yet.

    The connection calls `writable_memory`, then `received` or `received_frame`; it takes frames with the other methods,
    and has to call `release_if_idle` in the step in which bytes were received.

    maximum_frame_bytes: longest frame, without the length before it. The shortest has MINIMUM_FRAME_BYTES.
                         `bound_frames` sets other bounds.
    buffer:       its own; None while all its bytes are in the pool's shared one, or kept, or it has none.
    wanted_bytes: the size of the arriving frame, with the length before it; 0 if none is arriving.
    has_memory:   whether memory is granted for the arriving frame, or for one that has arrived since `claim_memory`.
    """

    __slots__ = (
        "_capacity_bytes",
        "_end",
        "_kept",
        "_maximum_frame_bytes",
        "_memory",
        "_minimum_frame_bytes",
        "_pool",
        "_reserved_bytes",
        "_small_fillings",
        "_start",
        "_stranger",
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
        self._capacity_bytes = SMALL_CAPACITY_BYTES  # of the next buffer: enough for the latest frames
        self._small_fillings = 0
        self._start = 0
        self._end = 0
        self.wanted_bytes = 0
        self.has_memory = False
        self._reserved_bytes = 0  # granted, and no buffer taken for it yet
        self._kept: memoryview | None = None  # all bytes, until more have been read behind them into another buffer
        self._stranger: MemoryUser | None = None  # counted apart, while the client has not authenticated

    def count_apart(self, stranger: MemoryUser | None) -> None:
        """Count the held bytes as those of a client that has not authenticated; None: it has now."""
        if self._stranger is not None:
            self._memory.strangers.left(self._stranger)
        self._stranger = stranger

    def bound_frames(self, minimum_bytes: int, maximum_bytes: int) -> None:
        """Set the bounds of the frames that are not taken yet. minimum_bytes: at most MINIMUM_FRAME_BYTES."""
        self._minimum_frame_bytes = minimum_bytes
        self._maximum_frame_bytes = maximum_bytes

    def writable_memory(self) -> memoryview:
        """The memory to read into; never empty."""
        buffer = self.buffer
        if buffer is None:
            if self._kept is not None:
                return self._memory_behind(self._kept)
            if self._capacity_bytes <= SMALL_CAPACITY_BYTES or not self._memory.has_spare(self._capacity_bytes):
                return self._pool.shared.view
            self.buffer = buffer = self._pool.take(self._capacity_bytes)
            return buffer.view
        if self._reserved_bytes or buffer.room_bytes - self._end < self._needed_bytes():
            buffer = self._make_room(buffer)
        return buffer.view[self._end : buffer.room_bytes]

    def _memory_behind(self, kept: memoryview) -> memoryview:
        """The memory to read into, with the bytes that were kept before it."""
        kept_bytes = len(kept)
        if self._reserved_bytes:
            buffer = self._take_reserved()
        elif self._capacity_bytes > SMALL_CAPACITY_BYTES and self._memory.has_spare(self._capacity_bytes):
            buffer = self._pool.take(self._capacity_bytes)
        else:
            view = self._pool.shared.view
            view[:kept_bytes] = kept  # and anew before the next attempt, if nothing is read in this one
            return view[kept_bytes:]
        self.buffer = buffer
        self._kept = None
        buffer.view[:kept_bytes] = kept
        return buffer.view[kept_bytes : buffer.room_bytes]

    def received(self, byte_count: int) -> None:
        self._kept = None
        self._end += byte_count
        if (
            self._end == SMALL_CAPACITY_BYTES
            and self._capacity_bytes == SMALL_CAPACITY_BYTES
            and self._stranger is None
        ):
            self._capacity_bytes = PIPELINE_CAPACITY_BYTES  # there is more than fits

    def received_frame(self, byte_count: int) -> memoryview | None:
        """Do `received` and, if one whole frame has arrived alone, as most do, `take_frame`.

        Returns None, and consumes nothing, in all other cases. Without a `buffer` afterwards there is nothing to
        release.
        """
        if self.buffer is None and self._kept is None:
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
        view = self._pool.shared.view if self.buffer is None and self._kept is None else self._view
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
        view = self._pool.shared.view if self.buffer is None and self._kept is None else self._view
        frame_end = start + read_frame_length(view, self._start, self._maximum_frame_bytes, self._minimum_frame_bytes)
        if frame_end > arrived_end:
            self.wanted_bytes = frame_end - self._start
            return None
        self._start = frame_end
        self.wanted_bytes = 0
        return view[start:frame_end]

    def peek(self, byte_count: int) -> bytes:
        """The first bytes that have arrived and are not consumed, at most `byte_count`."""
        return bytes(self._view[self._start : min(self._end, self._start + byte_count)])

    @property
    def _view(self) -> memoryview:
        """The memory with the bytes that have arrived."""
        if self.buffer is not None:
            return self.buffer.view
        return self._pool.shared.view if self._kept is None else self._kept

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
        """Whether every arrived byte is consumed."""
        return self._start == self._end

    def pin_frame(self) -> ReceiveBuffer:
        """Keep the frame that was taken last unchanged until the returned buffer is passed to `release`."""
        if self._kept is not None:
            self.buffer = self._pool.take(SMALL_CAPACITY_BYTES)
            self.buffer.view[: self._end] = self._kept
            self._kept = None
        elif self.buffer is None:
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
        """Give the buffer back if all bytes are consumed and no frame is pinned; else keep the bytes."""
        buffer = self.buffer
        if buffer is None:
            if self._start != self._end:
                self._keep()
            else:
                self._start = self._end = 0
                self._kept = None
                if self._stranger is not None:
                    self._count_stranger()
            return
        if self._start != self._end or buffer.pinned_count:
            if self._stranger is not None:
                self._keep_little()
            return
        if self._capacity_bytes > SMALL_CAPACITY_BYTES:
            self._small_fillings = self._small_fillings + 1 if self._end <= SMALL_CAPACITY_BYTES else 0
            if self._small_fillings >= SHRINK_AFTER_SMALL_FILLINGS:
                self._capacity_bytes = SMALL_CAPACITY_BYTES
                self._small_fillings = 0
        self.buffer = None
        self._start = self._end = 0
        self._pool.give_back(buffer)
        if self._stranger is not None:
            self._count_stranger()

    def _keep(self) -> None:
        """Keep the bytes that have arrived and lie in the shared buffer; many of them with the buffer."""
        start, end = self._start, self._end
        is_shared = self._kept is None
        if is_shared and end - start > (KEPT_BYTES if self._stranger is None else STRANGERS_KEPT_BYTES):
            self.buffer = self._pool.take_shared()
        elif is_shared or start:
            self._kept = memoryview(bytearray(self._view[start:end]))  # offsets are written into batches where they lie
            self._start, self._end = 0, end - start
        if self._stranger is not None:
            self._count_stranger()

    def _keep_little(self) -> None:
        """Give a stranger's buffer back for the few bytes in it, or exchange it for one that they fill to a quarter."""
        buffer, start, end = self.buffer, self._start, self._end
        assert buffer is not None
        arrived_bytes = end - start
        is_little = arrived_bytes <= STRANGERS_KEPT_BYTES
        if not buffer.pinned_count and (is_little or buffer.capacity_bytes > LARGEST_SHARE * arrived_bytes):
            arrived = buffer.view[start:end]
            if is_little:
                self._kept = memoryview(bytearray(arrived))
                self.buffer = None
            else:
                self.buffer = self._pool.take(arrived_bytes, is_apart=True)
                self.buffer.view[:arrived_bytes] = arrived
            self._start, self._end = 0, arrived_bytes
            self._pool.give_back(buffer)
        self._count_stranger()

    def _count_stranger(self) -> None:
        """Count the bytes held now. The connection may be closed by it."""
        assert self._stranger is not None
        held_bytes = 0 if self._kept is None else len(self._kept)
        if self.buffer is not None:
            held_bytes += self.buffer.capacity_bytes
        self._memory.strangers.hold(self._stranger, held_bytes)

    def close(self) -> None:
        """Give the buffer back as soon as no frame in it is pinned."""
        self.count_apart(None)
        self._kept = None
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
        if wanted_bytes <= SMALL_CAPACITY_BYTES or self._reserved_bytes or self._stranger is not None:
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

    def _take_reserved(self) -> ReceiveBuffer:
        """Take the buffer that memory is granted for."""
        buffer = self._pool.take(self.wanted_bytes, reserved_bytes=self._reserved_bytes)
        self._reserved_bytes = 0
        self._capacity_bytes = min(max(self._capacity_bytes, buffer.capacity_bytes), LARGE_CAPACITY_BYTES)
        return buffer

    def _make_room(self, buffer: ReceiveBuffer) -> ReceiveBuffer:
        start, end = self._start, self._end
        incomplete_bytes = end - start
        if self._reserved_bytes:
            other = self._take_reserved()
            other.view[:incomplete_bytes] = buffer.view[start:end]
            self._pool.release_when_unpinned(buffer)
            self.buffer = other
            self._start = 0
            self._end = incomplete_bytes
            return other
        wanted_bytes = incomplete_bytes + self._needed_bytes()
        is_apart = self._stranger is not None
        if not is_apart and self._memory.has_spare(self._capacity_bytes):
            wanted_bytes = max(wanted_bytes, self._capacity_bytes)
        if buffer.pinned_count == 0 and wanted_bytes <= buffer.room_bytes:
            # The halves may overlap; assignment between slices of one memoryview moves like memmove.
            buffer.view[:incomplete_bytes] = buffer.view[start:end]
        else:
            other = self._pool.take(wanted_bytes, is_apart=is_apart)
            other.view[:incomplete_bytes] = buffer.view[start:end]
            self._pool.release_when_unpinned(buffer)
            self.buffer = buffer = other
            if not is_apart:
                self._capacity_bytes = min(max(self._capacity_bytes, other.capacity_bytes), LARGE_CAPACITY_BYTES)
        self._start = 0
        self._end = incomplete_bytes
        return buffer
