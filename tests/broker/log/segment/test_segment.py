"""Segments: what is appended is read back in whole batches, and indexes are rebuilt when they are not right."""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.log.segment.segment import Segment, SegmentLimits
from fencepost.broker.log.segment.segment_batches import SegmentRead
from fencepost.broker.log.segment.segment_indexes import SegmentIndexes
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.record_batch import Record, build_batch, iterate_batches
from tests.support.captured_events import capture_logs
from tests.support.counted_file import CountedFile

FAR = 2**62
ROOMY = SegmentLimits(size_bytes=2**31 - 1, index_entries_count=2**20, age_ms=FAR)


def batch_of(base_offset: int, *, records: int = 1, value_bytes: int = 100, timestamp_ms: int = 1000) -> bytearray:
    return build_batch(
        [Record(index, timestamp_ms, None, b"v" * value_bytes) for index in range(records)], base_offset=base_offset
    )


def fill(segment: Segment, batches: int, *, records: int = 1, value_bytes: int = 100) -> None:
    for index in range(batches):
        offset = segment.next_offset
        batch = batch_of(offset, records=records, value_bytes=value_bytes, timestamp_ms=1000 + index)
        pieces = (batch[:16], memoryview(batch)[16:])
        assert segment.append(pieces, len(batch), offset + records - 1, 1000 + index, ROOMY)


def offsets_of(segment: Segment, offset: int, max_bytes: int, bound: int = FAR) -> list[int]:
    found = segment.read(offset, max_bytes, bound, minimum_one_batch=False)
    assert found is not None
    return [batch.header.base_offset for batch in iterate_batches(found.records)]


@pytest.fixture
def segment(disk: LocalDisk, directory: str) -> Segment:
    return Segment(disk, directory, 100, next_offset=100, index_interval_bytes=512)


def test_every_offset_is_found_in_the_batch_that_holds_it(segment: Segment) -> None:
    fill(segment, 50, records=3)
    for offset in range(100, 250):
        found = segment.read(offset, 1, FAR, minimum_one_batch=True)
        assert found is not None
        (batch,) = iterate_batches(found.records)
        assert batch.header.base_offset == 100 + (offset - 100) // 3 * 3


def test_a_read_returns_the_whole_batches_that_fit(segment: Segment) -> None:
    fill(segment, 50)
    size = len(batch_of(0))
    for count in range(51):
        assert offsets_of(segment, 100, count * size) == list(range(100, 100 + count))
        assert offsets_of(segment, 100, count * size + size - 1) == list(range(100, 100 + count))


def test_a_read_from_any_offset_begins_with_its_batch_whatever_the_sizes_of_the_batches(segment: Segment) -> None:
    sizes_bytes = [40, 3_000, 100, 100, 9_000, 9_000, 200, 600, 600, 5_000, 40, 20_000, 20_000, 40]
    ends = []
    for size_bytes in sizes_bytes:
        fill(segment, 1, records=2, value_bytes=size_bytes // 2)
        ends.append(segment.next_offset)
    for offset in range(100, segment.next_offset):
        first = next(index for index, end in enumerate(ends) if offset < end)
        for max_bytes in (1, 100, 700, 3_500, 9_100, 9_200, 12_000, 20_100, 45_000, 1 << 20):
            found = segment.read(offset, max_bytes, FAR, minimum_one_batch=True)
            assert found is not None
            batches = [batch.header for batch in iterate_batches(found.records)]
            assert [header.base_offset for header in batches] == [
                100 + 2 * index for index in range(first, first + len(batches))
            ]
            assert batches, (offset, max_bytes)
            assert len(found.records) <= max(max_bytes, batches[0].size_bytes)


@pytest.mark.parametrize("max_bytes", [150_000, 1_000_000])
def test_a_large_read_takes_little_more_from_the_file_than_it_returns(segment: Segment, max_bytes: int) -> None:
    fill(segment, 30, records=2, value_bytes=50_000)
    file = CountedFile(bytes(segment.batches.log.read(0, segment.size_bytes)))
    segment.batches.log = file
    batch_bytes = len(batch_of(0, records=2, value_bytes=50_000))
    whole_count = max_bytes // batch_bytes
    for index in range(30 - whole_count):
        file.reads.clear()
        found = segment.read(100 + 2 * index, max_bytes, FAR, minimum_one_batch=True)
        assert found is not None
        assert len(found.records) == whole_count * batch_bytes
        assert sum(length_bytes for _, length_bytes in file.reads) < max_bytes + 5_000


def content_of(found: SegmentRead | None) -> tuple[bytes, int] | None:
    if found is None:
        return None
    records = found.records if found.slice is None else b"".join(found.slice.pieces())
    return bytes(records), found.end_position


@given(
    sizes_bytes=st.lists(st.integers(1, 6_000), min_size=1, max_size=30),
    offset=st.integers(100, 165),
    max_bytes=st.integers(0, 40_000),
    bound=st.integers(100, 165),
    minimum_one_batch=st.booleans(),
)
def test_a_lazy_read_finds_the_same_as_an_eager_one(
    sizes_bytes: list[int], offset: int, max_bytes: int, bound: int, minimum_one_batch: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as directory:
        for module in ("segment_batches", "segment_reads"):
            patched.setattr(f"fencepost.broker.log.segment.{module}.SMALL_READ_BYTES", 1_500)
        disk = LocalDisk()
        segment = Segment(disk, directory, 100, next_offset=100, index_interval_bytes=512)
        for size_bytes in sizes_bytes:
            fill(segment, 1, records=2, value_bytes=size_bytes)
        bound = min(bound, segment.next_offset)
        eager = segment.read(offset, max_bytes, bound, minimum_one_batch=minimum_one_batch)
        lazy = segment.read(offset, max_bytes, bound, minimum_one_batch=minimum_one_batch, is_lazy=True)
        assert content_of(lazy) == content_of(eager)
        assert lazy is None or len(lazy.records) <= 1_500 + 512 + 28
        assert lazy is None or lazy.slice is None or len(lazy.slice) > 1_500
        disk.close()


@given(
    sizes_bytes=st.lists(st.integers(1, 3_000), min_size=1, max_size=10),
    records=st.integers(1, 3),
    gap=st.integers(0, 2),
    max_bytes=st.integers(0, 10_000),
    bound_below_end=st.integers(0, 3),
    minimum_one_batch=st.booleans(),
)
def test_the_batch_appended_last_is_read_as_one_that_was_there_when_the_segment_was_opened(
    sizes_bytes: list[int],
    records: int,
    gap: int,
    max_bytes: int,
    bound_below_end: int,
    minimum_one_batch: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as directory:
        for module in ("segment_batches", "segment_reads"):
            patched.setattr(f"fencepost.broker.log.segment.{module}.SMALL_READ_BYTES", 1_500)
        disk = LocalDisk()
        segment = Segment(disk, directory, 100, next_offset=100, index_interval_bytes=512)
        for size_bytes in sizes_bytes:
            offset = segment.next_offset + gap  # a log that was compacted elsewhere
            last_offset = offset + records - 1
            batch = batch_of(offset, records=records, value_bytes=size_bytes)
            assert segment.append((batch,), len(batch), last_offset, 1000, ROOMY)
        opened = Segment(disk, directory, 100, next_offset=segment.next_offset, index_interval_bytes=512, may_skip=True)
        opened.indexes.rebuild()
        bound = segment.next_offset - bound_below_end
        for offset in range(segment.next_offset - 3, segment.next_offset + 1):
            found = [
                content_of(one.read(offset, max_bytes, bound, minimum_one_batch=minimum_one_batch, is_lazy=is_lazy))
                for one in (segment, opened)
                for is_lazy in (False, True)
            ]
            assert found == [found[-1]] * 4
        disk.close()


def test_the_batch_appended_last_is_read_without_what_lies_around_it(segment: Segment) -> None:
    fill(segment, 30)
    file = CountedFile(bytes(segment.batches.log.read(0, segment.size_bytes)))
    segment.batches.log = file
    assert offsets_of(segment, 129, 1_000) == [129]
    assert file.reads == [(29 * len(batch_of(0)), len(batch_of(0)))]


def test_a_lazy_read_takes_little_from_the_file_however_much_it_finds(segment: Segment) -> None:
    fill(segment, 30, records=2, value_bytes=50_000)
    file = CountedFile(bytes(segment.batches.log.read(0, segment.size_bytes)))
    segment.batches.log = file
    found = segment.read(100, 2_000_000, FAR, minimum_one_batch=True, is_lazy=True)
    assert found is not None
    assert found.slice is not None
    assert len(found.slice) == 19 * len(batch_of(0, records=2, value_bytes=50_000))
    assert sum(length_bytes for _, length_bytes in file.reads) < 5_000


def test_a_lazy_read_of_a_file_that_was_cut_behind_the_brokers_back_finds_damage(segment: Segment) -> None:
    fill(segment, 30, records=2, value_bytes=50_000)
    os.truncate(segment.batches.log.path, segment.size_bytes // 2)
    with pytest.raises(DamagedLogError):
        segment.read(100, 3_000_000, FAR, minimum_one_batch=True, is_lazy=True)


def test_a_read_stays_below_its_bound(segment: Segment) -> None:
    fill(segment, 50, records=2)
    for bound in range(100, 200, 2):
        assert offsets_of(segment, 100, 1 << 20, bound) == list(range(100, bound, 2))


def test_a_batch_that_reaches_over_the_bound_is_not_read(segment: Segment) -> None:
    fill(segment, 3, records=4)
    assert offsets_of(segment, 100, 1 << 20, 107) == [100]


def test_the_first_batch_is_returned_whole_on_request_even_if_it_is_too_large(segment: Segment) -> None:
    fill(segment, 2, value_bytes=5000)
    found = segment.read(101, 10, FAR, minimum_one_batch=True)
    assert found is not None
    assert len(found.records) == len(batch_of(101, value_bytes=5000))
    assert offsets_of(segment, 101, 10) == []


def test_an_offset_beyond_the_end_is_distinguished_from_one_not_yet_readable(segment: Segment) -> None:
    fill(segment, 2)
    assert segment.read(102, 1000, FAR, minimum_one_batch=True) is None
    assert offsets_of(segment, 101, 1000, 101) == []


def test_index_files_have_the_layout_of_kafka(segment: Segment, directory: str) -> None:
    fill(segment, 20, records=2)
    segment.seal()
    size = len(batch_of(0, records=2))
    with open(f"{directory}/00000000000000000100.index", "rb") as file:
        entries = list(struct.iter_unpack(">ii", file.read()))
    assert entries
    for relative_offset, position in entries:
        assert position % size == 0
        assert relative_offset == position // size * 2 + 1
    with open(f"{directory}/00000000000000000100.timeindex", "rb") as file:
        times = list(struct.iter_unpack(">qi", file.read()))
    assert times[:-1] == [(1000 + relative_offset // 2, relative_offset) for relative_offset, _ in entries]
    assert times[-1] == (1019, 39)


@pytest.mark.parametrize("damage", ["missing", "odd length", "not rising", "beyond the log"])
def test_an_index_that_cannot_be_right_is_rebuilt_from_the_log(
    segment: Segment, disk: LocalDisk, directory: str, damage: str
) -> None:
    fill(segment, 40)
    segment.seal()
    segment.close()
    path = f"{directory}/00000000000000000100.index"
    with open(path, "rb") as file:
        good = file.read()
    if damage == "missing":
        os.unlink(path)
    else:
        bad = {
            "odd length": good[:-1],
            "not rising": good[8:16] + good[:8] + good[16:],
            "beyond the log": good + struct.pack(">ii", 60, 1 << 20),
        }[damage]
        with open(path, "wb") as file:
            file.write(bad)
    reopened = Segment(disk, directory, 100, next_offset=140, index_interval_bytes=512)
    with capture_logs() as logs:
        assert offsets_of(reopened, 130, 1 << 20) == list(range(130, 140))
    assert [entry["event"] for entry in logs] == ["index_rebuilt"]
    with open(path, "rb") as file:
        assert file.read() == good


def test_an_active_segment_goes_on_where_a_clean_stop_left_it(
    segment: Segment, disk: LocalDisk, directory: str
) -> None:
    fill(segment, 25)
    segment.write_indexes()
    segment.close()
    resumed = Segment(disk, directory, 100, next_offset=100, index_interval_bytes=512)
    assert resumed.resume().fault is None
    assert resumed.next_offset == 125
    assert (resumed.indexes.max_timestamp_ms, resumed.indexes.offset_of_max_timestamp) == (1024, 124)
    untouched = Segment(disk, directory, 0, next_offset=0, index_interval_bytes=512)
    fill(untouched, 25)
    fill(resumed, 10)
    fill(untouched, 10)
    assert resumed.indexes.offset_index.positions == untouched.indexes.offset_index.positions


def test_indexes_of_a_sealed_segment_are_given_up_when_unused_and_read_again(segment: Segment) -> None:
    fill(segment, 40)
    segment.seal()
    segment.indexes.forget_unused()
    segment.indexes.forget_unused()
    assert segment.indexes._offset_index is None
    assert segment.indexes.max_timestamp_ms == 1039
    assert offsets_of(segment, 120, 1 << 20) == list(range(120, 140))


def test_a_segment_is_full_by_size_by_offsets_by_index_and_by_age(segment: Segment) -> None:
    fill(segment, 20)
    assert segment.batches.first_timestamp_ms == 1000
    limits = SegmentLimits(
        size_bytes=segment.size_bytes + 100, index_entries_count=len(segment.indexes.offset_index) + 1, age_ms=500
    )
    assert segment.has_room_for(100, 99 + 2**31, 1500, limits)
    assert not segment.has_room_for(101, 200, 1500, limits)
    assert not segment.has_room_for(100, 100 + 2**31, 1500, limits)
    assert not segment.has_room_for(100, 200, 1501, limits)
    assert segment.has_room_for(100, 200, -1, limits), "a batch without timestamps has no age"
    assert not segment.has_room_for(
        100, 200, 1500, limits._replace(index_entries_count=len(segment.indexes.offset_index))
    )


@given(
    batches=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 1_000), st.integers(-1, 60)), max_size=40),
    limits=st.builds(
        SegmentLimits,
        size_bytes=st.integers(500, 4_000),
        index_entries_count=st.integers(0, 6),
        age_ms=st.integers(0, 60),
    ),
    interval_bytes=st.integers(0, 600),
    asks_first=st.booleans(),
)
def test_the_cached_room_equals_the_actual_room(
    batches: list[tuple[int, int, int]], limits: SegmentLimits, interval_bytes: int, asks_first: bool
) -> None:
    with pytest.MonkeyPatch.context() as patched, TemporaryDirectory() as directory:
        patched.setattr("fencepost.broker.log.segment.segment.MAX_RELATIVE_OFFSET", 8_000)
        paths = [f"{directory}/{name}" for name in ("knowing", "looking")]
        for path in paths:
            LocalDisk().make_directory(path)
        knowing, looking = (
            Segment(LocalDisk(), path, 100, next_offset=100, index_interval_bytes=interval_bytes) for path in paths
        )
        for size_bytes, delta, timestamp_ms in batches:
            last_offset = knowing.next_offset + delta
            looking._room_limits = None
            has_room = looking.has_room_for(size_bytes, last_offset, timestamp_ms, limits)
            if asks_first:
                assert knowing.has_room_for(size_bytes, last_offset, timestamp_ms, limits) is has_room
            for segment in (knowing, looking):
                end = (segment.size_bytes, segment.next_offset)
                assert segment.append((bytes(size_bytes),), size_bytes, last_offset, timestamp_ms, limits) is has_room
                if has_room:
                    end = (end[0] + size_bytes, last_offset + 1)
                assert (segment.size_bytes, segment.next_offset) == end


def test_an_empty_segment_takes_any_batch(segment: Segment) -> None:
    assert segment.has_room_for(101, 2**40, 1500, SegmentLimits(size_bytes=100, index_entries_count=0, age_ms=0))


@pytest.mark.parametrize(
    ("field_position", "content"),
    [
        pytest.param(8, struct.pack(">i", -12), id="length of nothing, on which a walk would stand still"),
        pytest.param(8, struct.pack(">i", -100), id="negative length"),
        pytest.param(8, struct.pack(">i", 2**31 - 1), id="length beyond the file"),
        pytest.param(0, struct.pack(">q", 3), id="offset of long ago"),
        pytest.param(0, struct.pack(">q", 2**60), id="offset of never"),
        pytest.param(23, struct.pack(">i", -5), id="negative offset delta"),
    ],
)
def test_a_batch_with_an_impossible_header_is_an_error_and_neither_skipped_nor_awaited(
    segment: Segment, field_position: int, content: bytes
) -> None:
    fill(segment, 5)
    position = 2 * len(batch_of(0))
    with open(segment.batches.log.path, "r+b") as file:
        file.seek(position + field_position)
        file.write(content)
    for offset in (102, 103):
        with pytest.raises(StorageError, match=f"damaged at position {position}:"):
            segment.read(offset, 10_000, FAR, minimum_one_batch=True)
    assert offsets_of(segment, 100, 2 * len(batch_of(0))) == [100, 101]


def test_a_last_batch_with_an_impossible_header_is_an_error(segment: Segment) -> None:
    for count, (field_position, content) in enumerate([(8, b"\xff" * 4), (0, bytes(8)), (23, b"\xff" * 4)], start=1):
        fill(segment, 3)
        position = (3 * count - 1) * len(batch_of(0))
        with open(segment.batches.log.path, "r+b") as file:
            file.seek(position + field_position)
            whole = file.read(len(content))
            file.seek(position + field_position)
            file.write(content)
            file.flush()
            with pytest.raises(StorageError, match=f"damaged at position {position}:"):
                segment.read(segment.next_offset - 1, 10_000, FAR, minimum_one_batch=True)
            file.seek(position + field_position)
            file.write(whole)


def test_a_file_that_ends_within_a_batch_is_an_error_for_later_reads(segment: Segment) -> None:
    fill(segment, 5)
    segment.batches.log.truncate(4 * len(batch_of(0)) + 10)
    with pytest.raises(StorageError, match="is damaged"):
        segment.read(104, 10_000, FAR, minimum_one_batch=True)


def test_a_sealed_segment_keeps_no_room_for_more(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    released = []
    monkeypatch.setattr(type(segment.batches.log), "release_room", lambda file: released.append(file.path))
    segment.seal()
    assert released == [segment.batches.log.path]


def test_the_indexes_of_a_full_segment_are_read_and_recorded_in_short_steps(disk: LocalDisk, directory: str) -> None:
    """With an entry for every 4 KiB of 1 GiB; a fetch, or the roll of the segment, waits for it.

    The yardstick is a loop that only counts the entries, on this machine at this time: 7 ms where nothing else runs.
    The limits are twice what the steps take there; Python for every entry is above them.
    """
    count = 2**18
    written = Segment(disk, directory, 100, next_offset=100, index_interval_bytes=4_096)
    written.indexes.offset_index.extend(range(0, 40 * count, 40), range(0, 4_096 * count, 4_096))
    for slot in range(count):
        written.indexes.time_index.append(1_700_000_000_000 + slot, 40 * slot)
    with open(written.batches.log.path, "r+b") as file:
        file.truncate(4_096 * count)
    for one in written.indexes.write():
        one.close()
    written.files.record(written.indexes.records()).close()

    def opened() -> SegmentIndexes:
        return Segment(disk, directory, 100, next_offset=100 + 40 * count, index_interval_bytes=4_096).indexes

    assert opened().offset_index.positions == written.indexes.offset_index.positions
    assert opened().time_index.timestamps_ms == written.indexes.time_index.timestamps_ms

    def counted_sums() -> int:
        total = 0
        for slot in range(count):
            total += slot
        return total

    yardstick_s = least_s(counted_sums)
    assert least_s(lambda: opened().offset_index) < 5 * yardstick_s
    assert least_s(written.indexes.records) < 2.5 * yardstick_s


def least_s(step: Callable[[], object]) -> float:
    """The least processor time of twelve that a step took: other processes slow one down through the caches."""
    taken_s = []
    for _ in range(12):
        before_s = time.thread_time()
        step()
        taken_s.append(time.thread_time() - before_s)
    return min(taken_s)
