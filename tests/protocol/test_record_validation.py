"""What is looked at inside a batch from a producer: a batch that lies is refused, whatever it lies about."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol import record_validation
from fencepost.protocol.compression import Codec, TooLargeForOneStepError, compress, decompress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    build_batch,
    iterate_batches,
    read_header,
    read_records,
    sealed_header,
)
from fencepost.protocol.record_validation import (
    HEADERS_AT_ONCE,
    MAXIMUM_RECORD_ERRORS,
    RECORDS_AT_ONCE,
    RECORDS_PER_STEP,
    BatchRefusal,
    RecordRules,
    check_records,
    checking_steps,
    invalid_records,
    validate_batch,
    validation_steps,
)
from fencepost.protocol.varints import write_varint

NOW_MS = 1_700_000_000_000


def records(count: int, *, size_bytes: int = 20, key: bytes | None = b"key", step_ms: int = 1) -> list[Record]:
    return [Record(index, NOW_MS + index * step_ms, key, b"v" * size_bytes) for index in range(count)]


def uneven_records(count: int) -> list[Record]:
    return [
        Record(index, NOW_MS + index * 3, None if index % 4 else b"k" * (index % 90), b"v" * (index * 7 % 200))
        for index in range(count)
    ]


def verdict(
    batch: bytes | bytearray, rules: RecordRules | None = None, **changed_header_fields: int
) -> BatchRefusal | None:
    """Validate a batch whose header says something else, with the checksum that belongs to it."""
    header = read_header(batch)._replace(**changed_header_fields)
    changed = sealed_header(header, batch[HEADER_BYTES:]) + batch[HEADER_BYTES:]
    return validated(changed, rules or RecordRules())


def done(steps: Generator[None, None, Any], count: int | None = None) -> Any:
    """The result of all steps; there must be `count` of them, where that is given."""
    done_count = 1
    while True:
        try:
            next(steps)
            done_count += 1
        except StopIteration as end:
            assert count is None or done_count == count
            return end.value


def validated(batch: bytes | bytearray, rules: RecordRules) -> BatchRefusal | None:
    """Validate a batch of any size: in one step if that is enough, else in as many as it takes."""
    header = read_header(batch)
    try:
        return validate_batch(memoryview(batch), header, rules, now_ms=NOW_MS)
    except TooLargeForOneStepError:
        pass
    limit_bytes = rules.maximum_decompressed_bytes
    try:
        content = decompress(header.codec, memoryview(batch)[HEADER_BYTES:], maximum_bytes=limit_bytes)
    except DecodeError as error:
        return invalid_records(error)
    refusal: BatchRefusal | None = done(validation_steps(content, header, rules, now_ms=NOW_MS))
    return refusal


def error_of(refusal: BatchRefusal | None) -> ErrorCode:
    return ErrorCode.NONE if refusal is None else refusal.error


def section(*bodies: bytes) -> bytes:
    """A records section of bodies, each with its length before it."""
    out = bytearray()
    for body in bodies:
        write_varint(out, len(body))
        out += body
    return bytes(out)


def varint(value: int) -> bytes:
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def body(offset_delta: int, *, key: bytes | None = None, value: bytes | None = b"v", timestamp_delta: int = 0) -> bytes:
    out = bytearray(b"\x00") + varint(timestamp_delta) + varint(offset_delta)
    for field in (key, value):
        out += b"\x01" if field is None else varint(len(field)) + field
    return bytes(out + b"\x00")


COUNTS = [1, 2, 5, 6, 63, 64, 65, 127, 128, 129, 1_000, 8_191, 8_192, 8_193, 8_300]


@pytest.mark.parametrize(
    ("codec", "count"),
    [
        *((Codec.NONE, count) for count in COUNTS),
        *((codec, count) for codec in list(Codec)[1:] for count in (1, 65, 8_193)),
    ],
)
def test_a_true_batch_passes(codec: Codec, count: int) -> None:
    assert verdict(build_batch(records(count), codec=codec)) is None
    assert verdict(build_batch(uneven_records(count), codec=codec)) is None


@pytest.mark.parametrize("size_bytes", [0, 1, 50, 100, 120, 127, 8_000, 8_180, 8_192, 20_000, 1_100_000])
def test_records_of_every_width_of_length_pass(size_bytes: int) -> None:
    assert verdict(build_batch(records(12, size_bytes=size_bytes))) is None
    assert verdict(build_batch([Record(0, NOW_MS, b"k" * size_bytes, b"v" * size_bytes)])) is None


@pytest.mark.parametrize("step_ms", [0, 1, 40, 63, 64, 130, 8_192, 2**22, -1, -70, -10_000])
def test_timestamps_of_every_width_pass(step_ms: int) -> None:
    rules = RecordRules(timestamp_after_max_ms=2**40)
    assert verdict(build_batch(records(200, step_ms=step_ms)), rules) is None


def test_records_with_headers_pass() -> None:
    headers = (("name", b"value"), ("empty", b""), ("null", None))
    many = [record._replace(headers=headers) if record.offset % 3 else record for record in records(100)]
    assert verdict(build_batch(many)) is None
    assert verdict(build_batch([record._replace(headers=headers) for record in many])) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("make", [records, uneven_records])
@pytest.mark.parametrize("count", [2, 70, 200])
def test_a_header_that_counts_more_or_fewer_records_than_there_are_is_refused(
    codec: Codec, make: Callable[[int], list[Record]], count: int
) -> None:
    batch = build_batch(make(count), codec=codec)
    for claimed in (count - 1, count + 1, count + 64, 2**31 - 1):
        refusal = verdict(batch, records_count=claimed, last_offset_delta=claimed - 1)
        assert error_of(refusal) is ErrorCode.INVALID_RECORD, claimed


@pytest.mark.parametrize(
    "changes",
    [
        {"records_count": 0, "last_offset_delta": -1},
        {"records_count": 0},
        {"records_count": -1},
        {"records_count": -(2**31), "last_offset_delta": 2**31 - 1},
        {"last_offset_delta": 1},
        {"last_offset_delta": 3},
        {"last_offset_delta": -1},
        {"attributes": 0x20},
        {"attributes": 0x30},
        {"producer_id": 5, "base_sequence": -1},
        {"attributes": 5},
        {"attributes": Codec.GZIP},
        {"attributes": Codec.SNAPPY},
        {"attributes": Codec.LZ4},
        {"attributes": Codec.ZSTD},
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_or_the_records_is_an_invalid_record(changes: dict[str, Any]) -> None:
    batch = build_batch(records(3))
    assert verdict(batch) is None
    assert error_of(verdict(batch, **changes)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("offsets", [[1], [0, 0], [0, 2], [1, 2], [1, 0], [-1, 0], [0, 64]], ids=str)
def test_offsets_that_are_not_0_1_2_and_so_on_are_refused(offsets: list[int]) -> None:
    with pytest.raises(DecodeError):
        check_records(section(*map(body, offsets)), len(offsets))


@pytest.mark.parametrize("wrong", [0, 5, 63, 64, 65, 100, 127, 128, 8_191, 8_192, 8_200, 9_999])
@pytest.mark.parametrize("uneven", [0, 1])
def test_one_wrong_offset_among_many_is_found(wrong: int, uneven: int) -> None:
    bodies = [body(index, value=b"v" * (10 + index * uneven % 7)) for index in range(10_000)]
    assert check_records(section(*bodies), 10_000)
    for instead in (-1, 1, 64, -64, 2**20):
        bodies[wrong] = body(wrong + instead, value=b"v" * (10 + wrong * uneven % 7))
        with pytest.raises(DecodeError):
            check_records(section(*bodies), 10_000)


def test_a_batch_without_an_offset_is_not_let_through_because_the_bytes_of_the_next_look_right() -> None:
    # The first record is a single byte; where its offset should be lie the length, attributes and time of the next one.
    liar = b"\x02\x00" + section(body(0), body(1))
    with pytest.raises(DecodeError):
        check_records(liar, 3)


@pytest.mark.parametrize(
    "wrong",
    [
        body(3)[:-1],
        body(3) + b"\x00",
        body(3, value=b"vv"),
        body(3)[:-1] + b"\x02",
        body(3)[:-1] + b"\x01",
        body(3)[:-3] + b"\x04v\x00",
        body(3)[:-3] + b"\x00v\x00",
        body(3)[:-3] + b"\x03v\x00",
        body(3)[:-4] + b"\x03" + body(3)[-3:],
        body(3)[:-4] + b"\x05" + body(3)[-3:],
        body(3)[:-4] + b"\x81\x01" + body(3)[-3:],
        b"\x00" + b"\xff" * 9 + b"\x03" + body(3)[2:],
        b"\x00" + b"\x80" * 10 + b"\x01" + body(3)[2:],
        b"",
        b"\x00",
        b"\x00\x00\x06",
        body(3)[:-1] + b"\x02\x01\x00",
        body(3)[:-1] + b"\x02\x02a\x03",
        body(3)[:-1] + b"\x04\x02a\x00",
        body(3)[:-1] + b"\xfe\xff\xff\xff\x0f" + b"\x00" * 20,
    ],
    ids=lambda value: value.hex() or "empty",
)
@pytest.mark.parametrize("count", [4, 5, 80])
def test_a_record_whose_fields_do_not_fill_it_is_refused(wrong: bytes, count: int) -> None:
    bodies = [body(index) for index in range(count)]
    bodies[3] = wrong
    # `vv` is as good as `v`: the one change that is none.
    if wrong == body(3, value=b"vv"):
        assert check_records(section(*bodies), count)
        return
    with pytest.raises(DecodeError):
        check_records(section(*bodies), count)


@pytest.mark.parametrize("count", [5, 8, 64, 130])
def test_a_timestamp_of_more_than_64_bits_is_refused_wherever_it_is(count: int) -> None:
    widest, too_wide = b"\xff" * 9 + b"\x01", b"\xff" * 9 + b"\x03"

    def with_timestamps(*timestamps: bytes) -> bytes:
        bodies = [b"\0" + one + varint(offset) + b"\x01\x02v\0" for offset, one in enumerate(timestamps)]
        return section(*bodies)

    check_records(with_timestamps(*[widest] * count), count)
    for wrong in (0, 1, count - 1):
        timestamps = [widest] * count
        timestamps[wrong] = too_wide
        with pytest.raises(DecodeError, match="64 bits"):
            check_records(with_timestamps(*timestamps), count)


def test_equally_long_records_of_which_one_is_malformed_are_refused() -> None:
    for column in range(len(section(body(0)))):
        content = bytearray(section(*(body(index, key=b"k", timestamp_delta=100 + index) for index in range(60))))
        row_bytes = len(content) // 60
        before = content[30 * row_bytes + column]
        for byte in range(256):
            content[30 * row_bytes + column] = byte
            accepted = is_accepted(bytes(content), 60)
            assert accepted == reads(bytes(content), 60), (column, before, byte)


def is_accepted(content: bytes, count: int) -> bool:
    try:
        check_records(content, count)
    except DecodeError:
        return False
    return True


def reads(content: bytes, count: int) -> bool:
    """What the reader of records, which looks at all of them byte by byte, makes of a section."""
    header = BatchHeader(0, 49 + len(content), -1, 2, 0, 0, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count)
    (batch,) = iterate_batches(sealed_header(header, content) + content)
    try:
        return [record.offset for record in read_records(batch)] == list(range(count))
    except DecodeError:
        return False


@given(st.integers(1, 140), st.booleans(), st.data())
def test_every_consumer_can_read_accepted_records(count: int, uneven: bool, data: st.DataObject) -> None:
    content = bytearray(build_batch(uneven_records(count) if uneven else records(count))[HEADER_BYTES:])
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    if is_accepted(bytes(content), count):
        assert reads(bytes(content), count)


@given(
    count=st.integers(6, 140),
    keys=st.lists(st.sampled_from([None, b"", b"key", b"k" * 70]), min_size=2, max_size=2),
    sizes=st.lists(st.sampled_from([0, 20, 23, 100]), min_size=2, max_size=2),
    steps_ms=st.lists(st.sampled_from([0, 1, 70, 9_000]), min_size=2, max_size=2),
    changes=st.lists(st.tuples(st.integers(0, 2**31), st.integers(0, 255)), max_size=3),
)
def test_earlier_batches_do_not_influence_a_check(
    count: int, keys: list[bytes | None], sizes: list[int], steps_ms: list[int], changes: list[tuple[int, int]]
) -> None:
    earlier, content = (
        bytearray(build_batch(records(count, key=key, size_bytes=size, step_ms=step_ms))[HEADER_BYTES:])
        for key, size, step_ms in zip(keys, sizes, steps_ms, strict=True)
    )
    for position, byte in changes:
        content[position % len(content)] = byte
    record_validation._known_tables.clear()
    alone = is_accepted(bytes(content), count)
    record_validation._known_tables.clear()
    assert is_accepted(bytes(earlier), count)
    assert is_accepted(bytes(content), count) == alone
    assert not alone or reads(bytes(content), count)


@given(
    key=st.one_of(st.none(), st.binary(max_size=70)),
    value=st.one_of(
        st.none(), st.binary(max_size=20), st.integers(0, 300).map(bytes), st.integers(8_000, 8_300).map(bytes)
    ),
    timestamp_delta=st.sampled_from([0, 0, 0, 1, -70, 9_000]),
    offset_delta=st.sampled_from([0, 0, 0, 1]),
    changes=st.lists(st.tuples(st.one_of(st.integers(0, 9), st.integers(0, 2**31)), st.integers(0, 255)), max_size=2),
    cut_bytes=st.sampled_from([0, 0, 0, 1, 5]),
)
def test_one_record_alone_is_judged_like_one_among_many(
    key: bytes | None,
    value: bytes | None,
    timestamp_delta: int,
    offset_delta: int,
    changes: list[tuple[int, int]],
    cut_bytes: int,
) -> None:
    content = bytearray(section(body(offset_delta, key=key, value=value, timestamp_delta=timestamp_delta)))
    for position, byte in changes:
        content[position % len(content)] = byte
    content = content[: len(content) - cut_bytes]
    try:
        end, misses_key = record_validation._check_block(content, 0, b"\0", b"")
        is_right = end == len(content)
    except (IndexError, DecodeError):
        is_right = False
    if not is_right:
        assert not is_accepted(bytes(content), 1)
    else:
        assert check_records(bytes(content), 1) == misses_key


@pytest.mark.parametrize("key", [None, b"", b"key", b"k" * 63])
def test_one_plain_record_needs_no_closer_look(key: bytes | None) -> None:
    sizes = [*range(1, 300), 8_192, 20_000, 1_100_000, 2**21]
    plain = [record_validation._misses_key_of_plain_record(section(body(0, key=key, value=bytes(n)))) for n in sizes]
    assert plain == [key is None] * len(sizes)


@pytest.mark.parametrize(
    "content",
    [
        bytes(4) + b"\x76" + bytes(60),  # 65 bytes, of which one of two bytes, or one of one, would be the length
        section(b"\x00\x00\x00\x01" + bytes(65) + b"\x00"),  # a value and its length that take as many
    ],
)
def test_a_field_that_no_length_fits_is_refused(content: bytes) -> None:
    assert not is_accepted(content, 1)


@given(st.binary(max_size=300), st.integers(1, 30), st.sampled_from(Codec))
def test_garbage_is_refused_as_an_invalid_record(garbage: bytes, count: int, codec: Codec) -> None:
    header = read_header(build_batch(records(1)))._replace(
        attributes=codec, records_count=count, last_offset_delta=count - 1
    )
    for content in (garbage, compress(codec, garbage)):
        batch = sealed_header(header, content) + content
        refusal = validated(batch, RecordRules())
        assert error_of(refusal) in (ErrorCode.INVALID_RECORD, ErrorCode.NONE)


def test_a_batch_that_would_decompress_beyond_the_bound_is_refused() -> None:
    batch = build_batch(records(1, size_bytes=1_000_000), codec=Codec.ZSTD)
    assert verdict(batch) is None
    refusal = verdict(batch, RecordRules(maximum_decompressed_bytes=999_999))
    assert error_of(refusal) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [1, 10, 20_000])
def test_a_record_above_the_bound_is_refused_in_a_compressed_batch_only(count: int) -> None:
    # A record without key, value and headers takes 6 bytes; the time and the offset of the 20,000th take 3 each.
    fitting = [Record(index, NOW_MS + index, None, bytes(100)) for index in range(count)]
    largest_bytes = 107 if count == 1 else 107 + (4 if count > 8192 else 0)
    rules = RecordRules(maximum_record_bytes=largest_bytes)
    compressed = build_batch(fitting, codec=Codec.ZSTD)
    assert verdict(compressed, rules) is None
    smaller = RecordRules(maximum_record_bytes=largest_bytes - 1)
    assert error_of(verdict(compressed, smaller)) is ErrorCode.INVALID_RECORD
    assert verdict(build_batch(fitting), smaller) is None


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("count", [1, 10, 100])
def test_a_compacted_topic_takes_no_record_without_a_key_and_says_which(codec: Codec, count: int) -> None:
    rules = RecordRules(requires_keys=True)
    batch_records = records(count)
    assert verdict(build_batch(batch_records, codec=codec), rules) is None
    batch_records[count // 2] = batch_records[count // 2]._replace(key=None)
    batch = build_batch(batch_records, codec=codec)
    assert verdict(batch) is None
    refusal = verdict(batch, rules)
    assert refusal is not None
    assert refusal.error is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refusal.record_errors] == [count // 2]


@pytest.mark.parametrize("key", [b"", b"k" * 63, b"k" * 64, b"k" * 10_000])
def test_a_key_of_any_length_is_a_key(key: bytes) -> None:
    assert verdict(build_batch(records(20, key=key)), RecordRules(requires_keys=True)) is None


def test_a_record_too_far_ahead_of_the_clock_is_an_invalid_timestamp() -> None:
    rules = RecordRules(timestamp_after_max_ms=10)
    assert verdict(build_batch([Record(0, NOW_MS + 10, None, None)]), rules) is None
    refusal = verdict(build_batch(records(13)), rules)
    assert refusal is not None
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [11, 12]


def test_a_record_too_old_is_an_invalid_timestamp_where_the_topic_sets_a_limit() -> None:
    old = [*records(3), Record(3, NOW_MS - 11, None, None), Record(4, 0, None, None)]
    assert verdict(build_batch(old)) is None
    refusal = verdict(build_batch(old), RecordRules(timestamp_before_max_ms=10))
    assert refusal is not None
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [3, 4]


def test_an_invalid_timestamp_prevails_over_a_missing_key() -> None:
    rules = RecordRules(requires_keys=True, timestamp_after_max_ms=1_000)
    refusal = verdict(build_batch([Record(0, NOW_MS, None, None), Record(1, NOW_MS + 2_000, b"k", None)]), rules)
    assert refusal is not None
    assert refusal.error is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in refusal.record_errors] == [0, 1]


def test_a_reply_about_a_batch_full_of_errors_stays_small() -> None:
    refusal = verdict(build_batch(records(5_000, key=None)), RecordRules(requires_keys=True))
    assert refusal is not None
    assert len(refusal.record_errors) == MAXIMUM_RECORD_ERRORS


def test_records_without_a_timestamp_are_within_any_window() -> None:
    rules = RecordRules(timestamp_before_max_ms=10, timestamp_after_max_ms=10)
    assert verdict(build_batch([Record(0, -1, None, None), Record(1, -1, None, None)]), rules) is None


def test_times_do_not_matter_where_the_topic_sets_them() -> None:
    rules = RecordRules(uses_log_append_time=True, timestamp_before_max_ms=10, timestamp_after_max_ms=10)
    assert verdict(build_batch([Record(0, 5, None, None), Record(1, 2**50, None, None)]), rules) is None


@pytest.mark.parametrize(
    ("uses_log_append_time", "timestamp_ms", "error"),
    [
        (True, NOW_MS, ErrorCode.INVALID_TIMESTAMP),
        (True, -1, ErrorCode.INVALID_TIMESTAMP),
        (False, -1, ErrorCode.INVALID_TIMESTAMP),
        (False, NOW_MS, ErrorCode.NONE),
    ],
)
def test_clients_may_not_claim_log_append_time(uses_log_append_time: bool, timestamp_ms: int, error: ErrorCode) -> None:
    batch = build_batch([Record(0, timestamp_ms, None, None)], is_log_append_time=True)
    assert error_of(verdict(batch, RecordRules(uses_log_append_time=uses_log_append_time))) is error


def test_many_records_are_too_much_at_once_and_are_checked_in_steps() -> None:
    content = build_batch(records(RECORDS_AT_ONCE))[HEADER_BYTES:]
    assert not check_records(content, RECORDS_AT_ONCE)
    for make in (records, uneven_records):
        count = RECORDS_AT_ONCE + 1
        content = build_batch(make(count))[HEADER_BYTES:]
        with pytest.raises(TooLargeForOneStepError):
            check_records(content, count)
        step_count = -(-count // RECORDS_PER_STEP)
        assert done(checking_steps(content, count), step_count) is (make is uneven_records)
        for liar in (content + b"\0", content[:-1]):
            with pytest.raises(DecodeError):
                done(checking_steps(liar, count))


def with_headers(*counts: int) -> bytearray:
    headers = [(f"{number}", None) for number in range(max(counts))]
    return build_batch([Record(offset, NOW_MS, b"k", None, tuple(headers[:n])) for offset, n in enumerate(counts)])


@pytest.mark.parametrize("counts", [(HEADERS_AT_ONCE + 1,), (5_000, 4_000, 1), (1, 20_000, 3), (9_000,) * 70])
def test_many_headers_are_too_much_at_once_and_are_checked_in_steps(counts: tuple[int, ...]) -> None:
    content = with_headers(*counts)[HEADER_BYTES:]
    with pytest.raises(TooLargeForOneStepError):
        check_records(content, len(counts))
    steps = checking_steps(content, len(counts))
    assert next(steps) is None
    assert not check_records(build_batch(records(3))[HEADER_BYTES:], 3)  # others come in between
    assert done(steps) is False
    for position in (len(content) // 2, len(content) - 2):
        liar = bytearray(content)
        liar[position] ^= 0xFF
        assert done_or_refused(liar, len(counts)) in (False, None)
    for liar in (content + b"\0", content[:-1]):
        assert done_or_refused(liar, len(counts)) is None


def done_or_refused(content: bytes | bytearray, count: int) -> Any:
    try:
        return done(checking_steps(content, count))
    except DecodeError:
        return None


def test_large_batches_are_refused_by_the_same_rules_as_small_ones() -> None:
    old = [Record(index, NOW_MS - 100 * (index == 20_000), None, b"v") for index in range(30_000)]
    refusal = validated(build_batch(old), RecordRules(timestamp_before_max_ms=10))
    assert refusal is not None
    assert (refusal.error, [index for index, _ in refusal.record_errors]) == (ErrorCode.INVALID_TIMESTAMP, [20_000])
    refusal = validated(build_batch(old), RecordRules(requires_keys=True))
    assert refusal is not None
    assert len(refusal.record_errors) == MAXIMUM_RECORD_ERRORS


def test_record_counts_are_bounded_by_the_bytes_before_anything_is_walked() -> None:
    with pytest.raises(DecodeError, match="do not fit"):
        check_records(struct.pack(">q", 0), 2**31 - 1)
