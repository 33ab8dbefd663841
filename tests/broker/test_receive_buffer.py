"""The memory that connections read into."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.receive_buffer import LARGE_CAPACITY_BYTES, SMALL_CAPACITY_BYTES, BufferPool, ReceiveBuffer, Receiver


def feed(receiver: Receiver, content: bytes) -> int:
    """What a socket does: fill as much as there is room for."""
    room = receiver.writable()
    byte_count = min(len(room), len(content))
    assert byte_count > 0
    room[:byte_count] = content[:byte_count]
    receiver.received(byte_count)
    return byte_count


def read_frames(receiver: Receiver) -> list[memoryview]:
    frames = []
    while receiver.available_bytes >= 4:
        length = int.from_bytes(receiver.peek(4), "big")
        if receiver.available_bytes < 4 + length:
            receiver.expect(4 + length)
            break
        receiver.take(4)
        frames.append(receiver.take(length))
    return frames


def frame(index: int, length: int) -> bytes:
    return length.to_bytes(4, "big") + bytes([index % 251]) * length


@given(
    lengths=st.lists(
        st.one_of(st.integers(0, 100), st.integers(0, 3 * SMALL_CAPACITY_BYTES)),
        min_size=1,
        max_size=12,
    ),
    piece_bytes=st.integers(1, 2 * SMALL_CAPACITY_BYTES),
    held=st.sets(st.integers(0, 11)),
)
def test_frames_arrive_whole_and_held_ones_stay_as_they_are(
    lengths: list[int], piece_bytes: int, held: set[int]
) -> None:
    piece_bytes = max(piece_bytes, sum(lengths) // 200)
    pool = BufferPool()
    receiver = Receiver(pool)
    stream = b"".join(frame(index, length) for index, length in enumerate(lengths))
    position = 0
    received = 0
    kept: list[tuple[int, memoryview, ReceiveBuffer]] = []
    while position < len(stream):
        position += feed(receiver, stream[position : position + piece_bytes])
        for content in read_frames(receiver):
            assert content == frame(received, lengths[received])[4:]
            if received in held:
                receiver.buffer.held_count += 1
                kept.append((received, content, receiver.buffer))
            received += 1
        receiver.rest()
        for index, content, _ in kept:
            assert content == frame(index, lengths[index])[4:]
    assert received == len(lengths)
    for _, _, buffer in kept:
        pool.release(buffer)
    receiver.close()


def test_connections_that_have_nothing_to_say_share_one_buffer() -> None:
    pool = BufferPool()
    receivers = [Receiver(pool) for _ in range(3)]
    used = set()
    for index in range(100):
        for receiver in receivers:
            feed(receiver, frame(index, 10_000))
            used.add(id(receiver.buffer))
            assert len(read_frames(receiver)) == 1
            receiver.rest()
    assert len(used) == 1
    assert pool.free_bytes == SMALL_CAPACITY_BYTES


def test_a_buffer_is_kept_while_a_frame_is_incomplete() -> None:
    pool = BufferPool()
    receiver = Receiver(pool)
    content = frame(1, 10_000)
    feed(receiver, content[:5_000])
    receiver.rest()
    assert pool.free_bytes == 0
    feed(receiver, content[5_000:])
    assert len(read_frames(receiver)) == 1


def test_a_large_frame_gets_a_larger_buffer_which_goes_back_after_small_ones() -> None:
    receiver = Receiver(BufferPool())
    content = frame(1, 1_000_000)
    position = 0
    while position < len(content):
        position += feed(receiver, content[position:])
        read_frames(receiver)
    assert receiver.buffer.capacity_bytes > 1_000_000
    receiver.rest()
    capacities = []
    for index in range(20):
        feed(receiver, frame(index, 100))
        capacities.append(receiver.buffer.capacity_bytes)
        read_frames(receiver)
        receiver.rest()
    assert capacities[0] > 1_000_000
    assert capacities[-1] == SMALL_CAPACITY_BYTES


def test_a_retired_buffer_is_free_only_when_its_last_frame_is_let_go() -> None:
    pool = BufferPool()
    buffer = pool.take(SMALL_CAPACITY_BYTES)
    buffer.held_count = 2
    pool.retire(buffer)
    assert pool.free_bytes == 0
    pool.release(buffer)
    assert pool.free_bytes == 0
    pool.release(buffer)
    assert pool.free_bytes == SMALL_CAPACITY_BYTES
    assert pool.take(1) is buffer
    assert pool.free_bytes == 0


def test_the_pool_keeps_no_more_than_its_limit_and_no_giants() -> None:
    pool = BufferPool(limit_bytes=2 * SMALL_CAPACITY_BYTES)
    for buffer in [pool.take(1) for _ in range(5)]:
        pool.retire(buffer)
    assert pool.free_bytes == 2 * SMALL_CAPACITY_BYTES
    roomy = BufferPool(limit_bytes=1 << 40)
    roomy.retire(roomy.take(LARGE_CAPACITY_BYTES + 1))
    assert roomy.free_bytes == 0
