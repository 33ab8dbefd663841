"""Batches that are looked at together: none passes that would not pass by itself, and what is behind one that does not
pass is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol import record_validation
from fencepost.protocol.batch_run import BatchShape, RunColumns, count_equal, count_leading, shape_of_batch
from fencepost.protocol.compression import Codec
from fencepost.protocol.record_batch import HEADER_BYTES, Record, build_batch, check_crc, read_header
from fencepost.protocol.record_validation import RecordRules, check_records, equal_length_records, validate_batch
from fencepost.protocol.sequence import MAXIMUM_SEQUENCE, advance_sequence
from tests.support.batch_runs import equal_batch, run_of, with_byte, with_header

NOW_MS = 1_700_000_000_000
ANY_TIME = RecordRules(timestamp_after_max_ms=2**63 - 1)
PRODUCER_FIELDS = range(43, 57)
"""Id, epoch and sequence: where they differ, batches do not follow each other."""


def batch(value: bytes = b"value", **build: Any) -> bytes:
    return equal_batch(value, **{"timestamp_ms": NOW_MS, **build})


def form(one: bytes) -> BatchShape:
    record_validation._known_tables.clear()  # it happens when there are many, and might here in the midst of a batch
    found = shape_of_batch(memoryview(one), read_header(one))
    assert found is not None
    return found


def read(batches: Sequence[bytes], like: bytes | None = None) -> RunColumns:
    return form(batches[0] if like is None else like).read(run_of(batches))


def read_count(batches: Sequence[bytes], like: bytes | None = None) -> int:
    return len(read(batches, like).producer_ids)


def is_right(one: bytes) -> bool:
    """Whether a batch passes by itself."""
    header = read_header(one)
    return (
        header.size_bytes == len(one)
        and check_crc(one)
        and validate_batch(memoryview(one), header, ANY_TIME, now_ms=NOW_MS) is None
    )


def follows(one: bytes, before: bytes) -> bool:
    """Whether a batch is of the form and, where it is a producer's, the next of the same."""
    header, earlier = read_header(one), read_header(before)
    alike = ("base_offset", "partition_leader_epoch", "magic", "attributes", "last_offset_delta", "records_count")
    if any(getattr(header, name) != getattr(earlier, name) for name in (*alike, "producer_id")):
        return False
    return header.producer_id < 0 or (
        header.producer_epoch == earlier.producer_epoch
        and header.base_sequence == earlier.last_sequence + 1 <= MAXIMUM_SEQUENCE
    )


@st.composite
def runs(draw: st.DrawFn) -> list[bytes]:
    """Batches that pass together."""
    records_count = draw(st.sampled_from((6, 7, 20, 64, 70, 134, 200)))
    producer = draw(st.sampled_from(((-1, -1), (-7, 3), (9, 0), (2**62, 32_767))))
    key = draw(st.sampled_from((None, b"", b"key", b"k" * 70)))
    value_bytes = draw(st.sampled_from((0, 1, 90)))
    step_ms = draw(st.sampled_from((0, 1)))
    count = draw(st.integers(1, 6))
    is_transactional = draw(st.booleans())
    first = draw(st.integers(0, 2**31 - 1 - count * records_count)) if producer[0] >= 0 else -1
    values = draw(st.lists(st.binary(min_size=value_bytes, max_size=value_bytes), min_size=count, max_size=count))
    times_ms = draw(st.lists(st.integers(NOW_MS - 10**6, NOW_MS + 10**6), min_size=count, max_size=count))
    return [
        batch(
            value,
            records_count=records_count,
            key=key,
            timestamp_ms=time_ms,
            step_ms=step_ms,
            producer=producer,
            base_sequence=first if first < 0 else first + index * records_count,
            is_transactional=is_transactional,
        )
        for index, (value, time_ms) in enumerate(zip(values, times_ms, strict=True))
    ]


@given(batches=runs())
def test_batches_that_are_alike_are_read_together(batches: list[bytes]) -> None:
    headers = [read_header(one) for one in batches]
    columns = read(batches)
    assert columns.max_timestamps_ms == tuple(header.max_timestamp_ms for header in headers)
    assert columns.producer_ids == tuple(header.producer_id for header in headers)
    assert columns.producer_epochs == tuple(header.producer_epoch for header in headers)
    assert columns.base_sequences == tuple(header.base_sequence for header in headers)


@given(batches=runs(), data=st.data(), change=st.integers(1, 255), is_sealed=st.booleans())
def test_a_batch_with_another_byte_is_read_with_the_others_only_if_it_passes_by_itself(
    batches: list[bytes], data: st.DataObject, change: int, is_sealed: bool
) -> None:
    index = data.draw(st.integers(0, len(batches) - 1))
    size_bytes = len(batches[0])
    position = data.draw(st.integers(0, HEADER_BYTES - 1) | st.integers(0, size_bytes - 1))
    like = batches[0]
    batches[index] = changed = with_byte(batches[index], position, change, is_sealed=is_sealed)
    count = read_count(batches, like)
    for one in batches[:count]:
        assert is_right(one)
    for before, one in pairwise(batches[:count]):
        assert follows(one, before)
    assert count >= index, "those before it pass"
    if count > index:
        assert (changed[:17], changed[21:27], changed[57:61]) == (like[:17], like[21:27], like[57:61])
        if position not in PRODUCER_FIELDS:
            assert count == len(batches), "those behind it pass as well"


@given(
    records_count=st.integers(6, 9),
    moves=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=4),
)
def test_records_that_lie_in_another_way_are_not_read_together(
    records_count: int, moves: list[tuple[int, int]]
) -> None:
    def uneven(lengths: list[int]) -> bytes:
        return bytes(build_batch([Record(at, NOW_MS, None, b"v" * length) for at, length in enumerate(lengths)]))

    even, lengths = [4] * records_count, [4] * records_count
    for source, target in moves:
        lengths[source % records_count] -= 1
        lengths[target % records_count] += 1
    one, other = uneven(even), uneven(lengths)
    assert len(one) == len(other)
    assert is_right(other)
    assert read_count([one, other, one]) == (3 if lengths == even else 1)
    assert (shape_of_batch(memoryview(other), read_header(other)) is None) is (lengths != even)


@given(content=st.binary(min_size=40, max_size=80), count=st.integers(6, 8), other=st.binary(max_size=80))
def test_equal_length_records_are_records(content: bytes, count: int, other: bytes) -> None:
    plain = equal_batch(content, records_count=count)[HEADER_BYTES:]
    uniform = equal_length_records(plain, count)
    assert uniform is not None
    assert uniform.count_same_shape([uniform.columns(plain)] * 3) == 3
    for wrong in (other, content, plain[1:], plain[:-1], b""):
        as_long = (wrong * len(plain))[: len(plain)].ljust(len(plain), b"\0")
        assert uniform.count_same_shape([uniform.columns(one) for one in (plain, as_long, plain)]) == 1


@given(
    records_count=st.sampled_from((6, 64, 66, 70, 136)),
    position=st.integers(0, 10_000),
    change=st.integers(1, 255),
    key=st.sampled_from((None, b"", b"key")),
    step_ms=st.sampled_from((0, 100, 10_000)),
)
def test_equal_length_records_with_another_byte_are_records_if_they_are_equally_long(
    records_count: int, position: int, change: int, key: bytes | None, step_ms: int
) -> None:
    plain = batch(records_count=records_count, key=key, step_ms=step_ms)[HEADER_BYTES:]
    uniform = equal_length_records(plain, records_count)
    if uniform is None:
        return
    assert uniform.misses_key is (key is None)
    changed = bytearray(plain)
    changed[position % len(plain)] ^= change
    if uniform.count_same_shape([uniform.columns(bytes(changed))]):
        assert check_records(changed, records_count) is uniform.misses_key


@pytest.mark.parametrize("records_count", [1, 2, 5])
def test_few_records_have_no_form(records_count: int) -> None:
    one = batch(records_count=records_count)
    assert shape_of_batch(memoryview(one), read_header(one)) is None


@pytest.mark.parametrize("records_count", [6, 63, 64, 70, 128, 134, 64 * 70])
def test_any_number_of_whole_blocks_has_a_form(records_count: int) -> None:
    batches = [batch(bytes([index]), records_count=records_count) for index in range(3)]
    assert read_count(batches) == 3
    for position in (HEADER_BYTES, len(batches[0]) // 2, len(batches[0]) - 1):
        broken = with_byte(batches[1], position, 0x10, is_sealed=True)
        count = read_count([batches[0], broken, batches[2]], batches[0])
        assert count == 1 or (count == 3 and is_right(broken))


@pytest.mark.parametrize("records_count", [65, 69, 129])
def test_a_block_of_few_records_at_the_end_has_no_form(records_count: int) -> None:
    one = batch(records_count=records_count)
    assert shape_of_batch(memoryview(one), read_header(one)) is None


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY])
def test_compressed_batches_have_no_form(codec: Codec) -> None:
    one = batch(codec=codec)
    assert shape_of_batch(memoryview(one), read_header(one)) is None


def test_batches_of_log_append_time_have_no_form() -> None:
    one = batch(is_log_append_time=True)
    assert shape_of_batch(memoryview(one), read_header(one)) is None


def test_records_that_are_none_have_no_form() -> None:
    one = batch()
    for wrong in (one[:-1], with_header(one, records_count=9), with_header(one, records_count=7)):
        assert shape_of_batch(memoryview(wrong), read_header(wrong)) is None


@pytest.mark.parametrize(
    ("key", "misses_key"), [(None, True), (b"", False), (b"key", False)], ids=["null", "empty", "some"]
)
def test_a_form_distinguishes_a_missing_key_from_an_empty_one(key: bytes | None, misses_key: bool) -> None:
    one = batch(key=key)
    assert form(one).misses_key is misses_key
    assert read_count([one, batch(key=None if key == b"" else key)], one) == (1 if key == b"" else 2)


def test_the_first_batch_determines_the_form() -> None:
    one = batch(b"value")
    known = form(one)
    assert known.is_of(memoryview(batch(b"other", timestamp_ms=5, producer=(4, 2), base_sequence=8)))
    for other in (
        batch(b"longer"),
        batch(is_transactional=True),
        with_header(one, base_offset=1),
        with_header(one, partition_leader_epoch=0),
        with_header(one, last_offset_delta=8),
        with_header(one, attributes=64),
        one[:-1],
    ):
        assert not known.is_of(memoryview(other))


def column(*sequences: int, producer: tuple[int, int] = (9, 0)) -> RunColumns:
    count = len(sequences)
    return RunColumns((NOW_MS,) * count, producer[:1] * count, producer[1:] * count, sequences)


@given(
    first=st.integers(-(2**31), 2**31 - 1) | st.integers(MAXIMUM_SEQUENCE - 100, MAXIMUM_SEQUENCE),
    records_count=st.integers(1, 60),
    steps=st.lists(st.sampled_from((0, 0, 0, 0, 0, 0, -1, 1)), max_size=8),
)
def test_batches_are_in_sequence_up_to_the_first_that_is_not(first: int, records_count: int, steps: list[int]) -> None:
    sequences = [first]
    for step in steps:
        sequences.append(advance_sequence(sequences[-1], records_count + step))
    count = column(*sequences).in_sequence_count(records_count)
    assert (count > 0) is (first >= 0), "one that has no sequence is in none"
    ends = [sequence + records_count - 1 for sequence in sequences[:count]]
    assert all(end + 1 == sequence for end, sequence in zip(ends, sequences[1:count], strict=False))
    if 0 <= first <= MAXIMUM_SEQUENCE - len(sequences) * records_count:
        assert count == next((index for index, step in enumerate(steps, 1) if step), len(sequences))


@pytest.mark.parametrize(
    ("columns", "count"),
    [
        (RunColumns((), (), (), ()), 0),
        (column(0, 8, 16), 3),
        (column(0, 8, 17), 2),
        (column(0, 0, 0), 1),
        (column(-1, 7, 15), 0),
        (column(-1, -1, -1), 0),
        (column(5, 90, 3, producer=(-1, -1)), 3),
        (column(5, 90, 3, producer=(-2, 6)), 3),
        (RunColumns((0,) * 3, (9, 9, 8), (0, 0, 0), (0, 8, 16)), 2),
        (RunColumns((0,) * 3, (9, 9, 9), (0, 0, 1), (0, 8, 16)), 2),
        (RunColumns((0,) * 3, (-1, -1, 9), (-1, -1, 0), (-1, -1, 0)), 2),
        (RunColumns((0,) * 3, (-1, -2, -1), (-1, -1, -1), (-1, -1, -1)), 1),
        (RunColumns((0,) * 3, (-1, -1, -1), (0, 1, 2), (-1, 3, -1)), 3),
        (column(MAXIMUM_SEQUENCE - 23, MAXIMUM_SEQUENCE - 15, MAXIMUM_SEQUENCE - 7), 1),
        (column(MAXIMUM_SEQUENCE - 24, MAXIMUM_SEQUENCE - 16, MAXIMUM_SEQUENCE - 8), 3),
        (column(MAXIMUM_SEQUENCE - 7, 0, 8), 1),
    ],
)
def test_only_what_follows_within_one_producer_and_epoch_is_in_sequence(columns: RunColumns, count: int) -> None:
    assert columns.in_sequence_count(8) == count


def test_batches_after_a_gap_in_the_sequence_are_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = [batch(producer=(9 + index % 2, 0), base_sequence=0) for index in range(100)]
    looked_at: list[int] = []
    known = form(batches[0])
    monkeypatch.setattr("fencepost.protocol.batch_run.crc32c", lambda checked: looked_at.append(len(checked)))
    known.read(run_of(batches))
    assert len(looked_at) == 1


@given(column=st.lists(st.integers(0, 2), max_size=6), value=st.integers(0, 2))
def test_a_column_is_alike_up_to_the_first_other_value(column: list[int], value: int) -> None:
    expected = next((index for index, one in enumerate(column) if one != value), len(column))
    assert count_leading(tuple(column), value) == expected
    assert count_equal(tuple(column), (value,) * len(column)) == expected


# Where batches lie


@pytest.mark.parametrize("before", [b"", b"1", b"before"])
@pytest.mark.parametrize("behind", [b"", b"1", b"behind"])
def test_a_run_knows_where_its_batches_are(before: bytes, behind: bytes) -> None:
    batches = [batch(bytes([index])) for index in range(4)]
    run = run_of(batches, before=before, behind=behind)
    assert run.batches_count == 4
    assert run.first_batch == batches[0]
    assert run.batches() == batches
    assert form(batches[0]).read(run).producer_ids == (-1,) * 4
    for count in range(1, 5):
        shorter = run.shortened(count)
        assert shorter.batches_count == count
        assert shorter.batches() == batches[:count]
        assert form(batches[0]).read(shorter).producer_ids == (-1,) * count


@pytest.mark.parametrize("count", [1, 3])
def test_offsets_and_leader_epoch_are_written_where_the_batches_lie(count: int) -> None:
    batches = [batch(bytes([index])) for index in range(4)]
    run = run_of(batches)
    form(batches[0]).place(run.shortened(count), base_offset=2**40, partition_leader_epoch=7)
    expected = [
        with_header(one, base_offset=2**40 + index * 8, partition_leader_epoch=7) if index < count else one
        for index, one in enumerate(batches)
    ]
    assert run.buffer == run_of(expected).buffer
