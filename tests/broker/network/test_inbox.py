"""Inbox and receive buffers: frames, pinned frames, the shared buffer and the pool."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.broker.network.inbox import (
    KEPT_BYTES,
    MIN_PIPELINED,
    SHRINK_AFTER_SMALL_FILLINGS,
    STRANGERS_KEPT_BYTES,
    Inbox,
)
from fencepost.broker.network.receive_buffer import (
    LARGE_CAPACITY_BYTES,
    PIPELINE_CAPACITY_BYTES,
    SMALL_CAPACITY_BYTES,
    BufferPool,
    ReceiveBuffer,
)

ANY_BYTES = 2**31 - 1


def fill(inbox: Inbox, content: bytes) -> int:
    """What a socket does: fill as much as there is room for."""
    room = inbox.writable_memory()
    byte_count = min(len(room), len(content))
    assert byte_count > 0
    room[:byte_count] = content[:byte_count]
    return byte_count


def feed(inbox: Inbox, content: bytes) -> int:
    byte_count = fill(inbox, content)
    inbox.received(byte_count)
    return byte_count


def read_frames(inbox: Inbox) -> list[memoryview]:
    frames = []
    while (taken := inbox.take_frame()) is not None:
        frames.append(taken)
    return frames


def frame(index: int, length: int) -> bytes:
    return length.to_bytes(4, "big") + bytes([index % 251]) * length


@given(
    lengths=st.lists(
        st.one_of(st.integers(8, 100), st.integers(8, 3 * SMALL_CAPACITY_BYTES)),
        min_size=1,
        max_size=12,
    ),
    piece_bytes=st.integers(1, 2 * SMALL_CAPACITY_BYTES),
    held=st.sets(st.integers(0, 11)),
    takes_single_frames=st.booleans(),
)
def test_frames_arrive_whole_and_pinned_ones_stay_unchanged(
    lengths: list[int], piece_bytes: int, held: set[int], takes_single_frames: bool
) -> None:
    piece_bytes = max(piece_bytes, sum(lengths) // 200)
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    stream = b"".join(frame(index, length) for index, length in enumerate(lengths))
    position = 0
    received = 0
    kept: list[tuple[int, memoryview, ReceiveBuffer]] = []
    while position < len(stream):
        byte_count = fill(inbox, stream[position : position + piece_bytes])
        position += byte_count
        contents: list[memoryview] = []
        if not takes_single_frames:
            inbox.received(byte_count)
        elif (single := inbox.received_frame(byte_count)) is not None:
            contents.append(single)
        contents += read_frames(inbox)
        for content in contents:
            assert content == frame(received, lengths[received])[4:]
            if received in held:
                kept.append((received, content, inbox.pin_frame()))
            received += 1
        inbox.release_if_idle()
        for index, content, _ in kept:
            assert content == frame(index, lengths[index])[4:]
    assert received == len(lengths)
    for _, _, buffer in kept:
        inbox.release(buffer)
    assert inbox.buffer is None, "nothing is held or missing: no memory is needed"


@pytest.mark.parametrize(
    ("content", "length"),
    [
        (frame(1, 100), 100),
        (frame(1, 100)[:-1], None),
        (frame(1, 100) + frame(2, 1), None),
        (frame(1, 7), None),
        (frame(1, 101), None),
        (b"\0\0", None),
        (b"\xff\xff\xff\xff", None),
    ],
    ids=["one", "a part of one", "several", "too short", "too long", "a part of a length", "a negative length"],
)
def test_one_whole_frame_is_taken_as_it_is_received_and_nothing_else(content: bytes, length: int | None) -> None:
    inbox = Inbox(BufferPool(), 100)
    taken = inbox.received_frame(fill(inbox, content))
    if length is None:
        assert taken is None
        assert not inbox.is_empty
    else:
        assert bytes(taken or b"") == content[4:]
        assert inbox.is_empty


def test_idle_connections_share_one_buffer() -> None:
    pool = BufferPool()
    shared = pool.shared
    inboxes = [Inbox(pool, ANY_BYTES) for _ in range(3)]
    for index in range(100):
        for inbox in inboxes:
            feed(inbox, frame(index, 10_000))
            assert read_frames(inbox) == [frame(index, 10_000)[4:]]
            inbox.release_if_idle()
            assert inbox.buffer is None
    assert pool.shared is shared
    assert pool.free_bytes == 0


def test_incomplete_and_pinned_frames_stay_while_others_use_the_shared_buffer() -> None:
    pool = BufferPool()
    incomplete, holding, other = (Inbox(pool, ANY_BYTES) for _ in range(3))
    content = frame(1, 60_000)
    feed(incomplete, content[:50_000])
    incomplete.release_if_idle()
    feed(holding, frame(2, 10_000))
    (held,) = read_frames(holding)
    buffer = holding.pin_frame()
    holding.release_if_idle()
    for index in range(3, 6):
        feed(other, frame(index, 100_000))
        assert len(read_frames(other)) == 1
        other.release_if_idle()
    feed(incomplete, content[50_000:])
    assert read_frames(incomplete) == [content[4:]]
    assert held == frame(2, 10_000)[4:]
    incomplete.release_if_idle()
    holding.release(buffer)
    assert pool.free_bytes == 2 * SMALL_CAPACITY_BYTES, "both are free again"


@given(
    streams=st.lists(st.lists(st.integers(8, SMALL_CAPACITY_BYTES), min_size=1, max_size=6), min_size=2, max_size=4),
    turns=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2 * SMALL_CAPACITY_BYTES), st.booleans()), max_size=30),
)
def test_connections_that_are_read_in_turns_do_not_see_each_others_bytes(
    streams: list[list[int]], turns: list[tuple[int, int, bool]]
) -> None:
    pool = BufferPool()
    inboxes = [Inbox(pool, ANY_BYTES) for _ in streams]
    contents = [
        b"".join(frame(index * 50 + at, length) for at, length in enumerate(s)) for index, s in enumerate(streams)
    ]
    positions = [0] * len(streams)
    taken: list[list[bytes]] = [[] for _ in streams]
    held: list[tuple[int, memoryview, bytes, ReceiveBuffer]] = []
    everything = [(index, 2 * SMALL_CAPACITY_BYTES, False) for index in range(len(streams)) for _ in range(20)]
    for turn, piece_bytes, is_held in (*turns, *everything):
        index = turn % len(streams)
        inbox, content, position = inboxes[index], contents[index], positions[index]
        if position == len(content):
            continue
        positions[index] += feed(inbox, content[position : position + piece_bytes])
        for arrived in read_frames(inbox):
            taken[index].append(bytes(arrived))
            if is_held:
                held.append((index, arrived, bytes(arrived), inbox.pin_frame()))
        inbox.release_if_idle()
    for index, arrived, as_it_was, buffer in held:
        assert arrived == as_it_was
        inboxes[index].release(buffer)
    for index, lengths in enumerate(streams):
        assert taken[index] == [frame(index * 50 + at, length)[4:] for at, length in enumerate(lengths)]
        assert inboxes[index].buffer is None


def feed_all(inbox: Inbox, content: bytes) -> None:
    position = 0
    while position < len(content):
        position += feed(inbox, content[position : position + 50_000])
        read_frames(inbox)
        inbox.release_if_idle()


def test_large_frames_are_met_with_large_buffers_until_only_small_ones_come() -> None:
    inbox = Inbox(BufferPool(), ANY_BYTES)
    feed_all(inbox, frame(1, 1_000_000))
    assert len(inbox.writable_memory()) > 1_000_000, "the next large frame need not move"
    inbox.release_if_idle()
    for index in range(20):
        feed_all(inbox, frame(index, 100))
    assert len(inbox.writable_memory()) == SMALL_CAPACITY_BYTES


def test_an_announced_frame_gets_no_memory_before_its_bytes_arrive() -> None:
    inbox = Inbox(BufferPool(), ANY_BYTES)
    feed(inbox, (100_000_000).to_bytes(4, "big") + b"that is all")
    assert read_frames(inbox) == []
    assert len(inbox.writable_memory()) <= 2 * SMALL_CAPACITY_BYTES


def test_a_buffer_is_released_only_when_its_last_frame_is_unpinned() -> None:
    pool = BufferPool()
    buffer = pool.take(SMALL_CAPACITY_BYTES)
    buffer.pinned_count = 2
    pool.release_when_unpinned(buffer)
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
        pool.release_when_unpinned(buffer)
    assert pool.free_bytes == 2 * SMALL_CAPACITY_BYTES
    roomy = BufferPool(limit_bytes=1 << 40)
    roomy.release_when_unpinned(roomy.take(LARGE_CAPACITY_BYTES + 1))
    assert roomy.free_bytes == 0


# Frames of one length that have arrived together


def equal_count(inbox: Inbox, max_count: int = 100) -> int | None:
    found = inbox.equal_frames(max_count)
    return None if found is None else len(found.buffer) // found.frame_bytes


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (frame(1, 50) * 5, 5),
        (frame(1, 50) * 5 + frame(1, 50)[:-1], 5),
        (frame(1, 50) * 5 + b"\0", 5),
        (frame(1, 8) * 5, 5),
        (frame(1, 1_000) * 5, 5),
        (frame(1, 50) * MIN_PIPELINED, MIN_PIPELINED),
        (frame(1, 50) * 3 + frame(2, 60) * 2, 5),
        (frame(1, 50) * 2 + frame(2, 40), None),
        (frame(1, 50) * (MIN_PIPELINED - 1), None),
        (frame(1, 50) * (MIN_PIPELINED - 1) + frame(1, 50)[:-1], None),
        (frame(1, 50) + frame(2, 51) + frame(1, 50) * 5, None),
        (frame(1, 7) * 5, None),
        (frame(1, 1_001) * 5, None),
        (frame(1, 0) * 20, None),
        (b"\xff" * 500, None),
        (b"\x7f" + b"\xff" * 500, None),
        (b"\0\0", None),
        (b"", None),
    ],
    ids=[
        "five",
        "a part of another",
        "a part of another length",
        "as short as may be",
        "as long as may be",
        "as many as are asked for",
        "room for more of the first",
        "not enough for more of the first",
        "too few",
        "too few whole ones",
        "the second is longer",
        "too short",
        "too long",
        "empty ones",
        "negative lengths",
        "endless lengths",
        "no length",
        "nothing",
    ],
)
def test_equal_frames_are_seen_if_there_are_enough(content: bytes, count: int | None) -> None:
    inbox = Inbox(BufferPool(), 1_000)
    if content:
        feed(inbox, content)
    assert equal_count(inbox) == count
    assert equal_count(inbox) == count, "nothing was consumed"
    assert inbox.is_empty is (content == b"")
    if count is not None:
        found = inbox.equal_frames(100)
        assert found is not None
        assert found.buffer == content[: count * found.frame_bytes]
        assert found.first == content[4 : found.frame_bytes]


@pytest.mark.parametrize("max_count", [1, 2, 4, 5, 6])
def test_no_more_equal_frames_are_counted_than_requested(max_count: int) -> None:
    inbox = Inbox(BufferPool(), 1_000)
    feed(inbox, frame(1, 50) * 5)
    assert equal_count(inbox, max_count) == min(max_count, 5)


@given(
    counts=st.lists(st.integers(0, 8), min_size=1, max_size=8),
    lengths=st.lists(st.integers(8, 60), min_size=8, max_size=8),
    piece_bytes=st.integers(1, 2_000),
    skipped=st.lists(st.integers(0, 8), min_size=1, max_size=5),
    first_bytes=st.sampled_from((8, SMALL_CAPACITY_BYTES - 200, 3 * SMALL_CAPACITY_BYTES)),
)
def test_skipped_frames_are_consumed_and_those_behind_them_come_whole(
    counts: list[int], lengths: list[int], piece_bytes: int, skipped: list[int], first_bytes: int
) -> None:
    frames = [frame(250, first_bytes)]
    for index, count in enumerate(counts):
        frames += [frame(index, lengths[index])] * count
    stream = b"".join(frames)
    inbox = Inbox(BufferPool(), ANY_BYTES)
    taken: list[bytes] = []
    position = turn = 0
    while position < len(stream):
        until = position + (first_bytes if position < first_bytes else piece_bytes)
        position += feed(inbox, stream[position:until])
        while True:
            turn += 1
            found = inbox.equal_frames(100)
            count = skipped[turn % len(skipped)]
            if found is not None and 0 < count <= len(found.buffer) // found.frame_bytes:
                alike = [
                    bytes(found.buffer[at : at + found.frame_bytes])
                    for at in range(0, len(found.buffer), found.frame_bytes)
                ]
                count = min(count, next((at for at, one in enumerate(alike) if one[:4] != alike[0][:4]), len(alike)))
                taken += alike[:count]
                inbox.skip(count * found.frame_bytes)
                continue
            one = inbox.take_frame()
            if one is None:
                break
            taken.append(len(one).to_bytes(4, "big") + one)
        inbox.release_if_idle()
    assert taken == frames
    assert inbox.is_empty
    assert inbox.buffer is None


def burst(inbox: Inbox, content: bytes) -> list[int]:
    """Take a burst as a connection does; how much arrived each time."""
    readings = []
    position = 0
    while position < len(content):
        readings.append(feed(inbox, content[position:]))
        position += readings[-1]
        read_frames(inbox)
        inbox.release_if_idle()
    return readings


def test_a_client_that_sends_more_at_once_than_fits_gets_a_larger_buffer_for_the_next_time() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    content = frame(1, 16_000) * 40
    assert burst(inbox, content)[0] == SMALL_CAPACITY_BYTES
    assert burst(inbox, content) == [len(content)]
    assert inbox.buffer is None, "between bursts it has none"
    assert len(inbox.writable_memory()) == PIPELINE_CAPACITY_BYTES
    inbox.release_if_idle()


def test_a_burst_that_just_does_not_fill_the_shared_buffer_needs_no_larger_one() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    content = frame(1, 16_380) * 8
    assert len(content) == SMALL_CAPACITY_BYTES
    for _ in range(3):
        assert burst(inbox, content[16_384:]) == [7 * 16_384]
    assert len(inbox.writable_memory()) == SMALL_CAPACITY_BYTES
    burst(inbox, content)
    assert len(inbox.writable_memory()) == PIPELINE_CAPACITY_BYTES
    inbox.release_if_idle()


def test_the_larger_buffer_goes_back_after_small_bursts() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    burst(inbox, frame(1, 16_000) * 40)
    for _ in range(SHRINK_AFTER_SMALL_FILLINGS):
        assert len(inbox.writable_memory()) == PIPELINE_CAPACITY_BYTES
        burst(inbox, frame(2, 1_000) * 5)
    assert inbox.writable_memory() is pool.shared.view
    assert pool.free_bytes >= PIPELINE_CAPACITY_BYTES


def test_a_large_burst_in_between_keeps_the_larger_buffer() -> None:
    inbox = Inbox(BufferPool(), ANY_BYTES)
    for _ in range(5):
        burst(inbox, frame(1, 16_000) * 40)
        for _ in range(SHRINK_AFTER_SMALL_FILLINGS - 1):
            burst(inbox, frame(2, 1_000) * 5)
    assert len(inbox.writable_memory()) == PIPELINE_CAPACITY_BYTES
    inbox.release_if_idle()


def test_a_small_buffer_with_a_pinned_frame_is_replaced_by_a_larger_one() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    content = frame(1, 16_000) * 9
    arrived = feed(inbox, content)
    assert arrived == SMALL_CAPACITY_BYTES
    first, *_ = read_frames(inbox)
    buffer = inbox.pin_frame()
    inbox.release_if_idle()
    assert len(inbox.writable_memory()) > SMALL_CAPACITY_BYTES
    feed(inbox, content[arrived:])
    assert len(read_frames(inbox)) == 1
    inbox.release_if_idle()
    assert first == content[4:16_004]
    inbox.release(buffer)
    assert inbox.buffer is None
    assert pool.free_bytes == SMALL_CAPACITY_BYTES + PIPELINE_CAPACITY_BYTES


class Stranger:
    """A connection whose client has not authenticated, as the memory sees it."""

    def __init__(self, inbox: Inbox, host: str = "192.0.2.1") -> None:
        self.client_host = host
        self.inbox = inbox
        self.arrived_bytes = 0
        self.is_blocked_by_broker = False
        self.refusals: list[str] = []
        inbox.count_apart(self)

    def memory_granted(self, byte_count: int) -> None:
        raise AssertionError("strangers wait for no memory")

    def close_for(self, reason: str) -> None:
        self.refusals.append(reason)
        self.inbox.close()


@pytest.mark.parametrize("is_stranger", [False, True])
@pytest.mark.parametrize("byte_count", [1, 2, 4, 100, KEPT_BYTES])
def test_a_part_of_a_frame_holds_no_more_than_has_arrived(byte_count: int, is_stranger: bool) -> None:
    pool = BufferPool()
    inbox, other = Inbox(pool, ANY_BYTES), Inbox(pool, ANY_BYTES)
    if is_stranger:
        Stranger(inbox)
    content = frame(1, 100_000)
    shared = pool.shared
    feed(inbox, content[:byte_count])
    assert read_frames(inbox) == []
    inbox.release_if_idle()
    assert inbox.buffer is None
    assert pool.shared is shared
    assert pool.memory.strangers.held_bytes == (byte_count if is_stranger else 0)
    feed(other, frame(2, 50_000))  # into the same memory
    assert len(read_frames(other)) == 1
    other.release_if_idle()
    inbox.writable_memory()  # and nothing is read
    inbox.release_if_idle()
    feed(inbox, content[byte_count:])
    assert read_frames(inbox) == [content[4:]]
    inbox.release_if_idle()
    assert pool.memory.strangers.held_bytes == 0


@given(
    lengths=st.lists(st.integers(8, 520_000), min_size=1, max_size=4),
    pieces=st.lists(st.integers(2_000, 200_000), min_size=1, max_size=8),
    is_resumed=st.booleans(),
)
@example(
    lengths=[262_141, 65_536], pieces=[109_228], is_resumed=False
)  # a little of a second one in the first's buffer
def test_strangers_hold_little_more_than_has_arrived_and_nothing_at_the_end(
    lengths: list[int], pieces: list[int], is_resumed: bool
) -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    stranger = Stranger(inbox)
    stream = b"".join(frame(index, length) for index, length in enumerate(lengths))
    position, turn = 0, 0
    taken: list[bytes] = []
    while position < len(stream):
        position += feed(inbox, stream[position : position + pieces[turn % len(pieces)]])
        turn += 1
        if is_resumed and turn % 3 == 0:  # the connection starts nothing in this step, and resumes in another
            inbox.release_if_idle()
        taken += [bytes(one) for one in read_frames(inbox)]
        inbox.release_if_idle()
        assert not inbox.wanted_bytes or inbox.claim_memory(stranger)
        held_bytes = pool.memory.strangers.held_bytes
        assert held_bytes <= max(STRANGERS_KEPT_BYTES, 4 * inbox.arrived_bytes)
        assert (pool.memory.spare_bytes, pool.memory.request_bytes) == (0, 0), "they take nothing of the users' memory"
    assert [len(one) for one in taken] == lengths
    assert b"".join(len(one).to_bytes(4, "big") + one for one in taken) == stream
    assert pool.memory.strangers.held_bytes == 0


def test_a_frame_that_was_kept_may_be_pinned() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    content = frame(1, 100) + frame(2, 200) + frame(3, 300)
    feed(inbox, content[:-100])
    first = inbox.take_frame()
    assert first is not None
    assert first == content[4:104]
    inbox.release_if_idle()  # held back here
    second = inbox.take_frame()
    assert second is not None
    assert not second.readonly, "offsets are written into batches where they lie"
    buffer = inbox.pin_frame()
    inbox.release_if_idle()
    feed(inbox, content[-100:])
    assert read_frames(inbox) == [content[-300:]]
    assert second == content[108:308]
    inbox.release(buffer)
    assert pool.free_bytes == SMALL_CAPACITY_BYTES


def test_the_address_whose_strangers_hold_most_loses_its_oldest() -> None:
    pool = BufferPool()
    pool.memory.strangers.limit_bytes = 100_000
    mine, others = Stranger(Inbox(pool, ANY_BYTES), "192.0.2.1"), []
    for stranger in (mine, *(Stranger(Inbox(pool, ANY_BYTES), "192.0.2.2") for _ in range(8))):
        others.append(stranger)
        feed(stranger.inbox, frame(1, 60_000)[:20_000])
        assert read_frames(stranger.inbox) == []
        stranger.inbox.release_if_idle()
        assert pool.memory.strangers.held_bytes <= 100_000
    assert [bool(stranger.refusals) for stranger in others] == [False, True, True, True, True, *[False] * 4]
    for stranger in others:
        stranger.inbox.close()
    assert pool.memory.strangers.held_bytes == 0


def test_a_client_that_has_authenticated_counts_no_more_as_a_stranger() -> None:
    pool = BufferPool()
    inbox = Inbox(pool, ANY_BYTES)
    Stranger(inbox)
    feed(inbox, frame(1, 400_000)[:300])
    inbox.release_if_idle()
    assert pool.memory.strangers.held_bytes == 300
    inbox.count_apart(None)
    assert pool.memory.strangers.held_bytes == 0
