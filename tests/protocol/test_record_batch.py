"""Record batches: header, checksum, building, reading, what a leader patches, and markers."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.compression import Codec, decompress
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    PREFIX_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    EndTransactionMarker,
    Record,
    RecordBatch,
    build_batch,
    build_end_transaction_marker,
    build_plain_batch,
    check_crc,
    iterate_batches,
    pack_prefix,
    read_end_transaction_marker,
    read_header,
    read_records,
    recompressed,
    rewritten_header,
)

MARKER = bytes.fromhex(
    "0000000000000000 00000042 ffffffff 02 d42be584 0030 00000000 00000000000003e8 00000000000003e8"
    "0000000000000007 0003 ffffffff 00000001 20 00 00 00 08 00000001 0c 000000000005 00"
)
RECORDS = [
    Record(0, 1_000, b"key", b"value", (("trace", b"1"), ("empty", b""), ("nothing", None))),
    Record(1, 990, None, b"no key"),
    Record(2, 5_000_000, b"tombstone", None),
    Record(3, 1_003, b"", b""),
    Record(4, 1_004, b"k" * 200, b"v" * 20_000),
]

nullable_bytes = st.none() | st.binary(max_size=300)
record_lists = st.lists(
    st.tuples(
        st.integers(-1, 2**50),
        nullable_bytes,
        nullable_bytes,
        st.lists(st.tuples(st.text(max_size=5), nullable_bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=100,
).map(lambda rows: [Record(offset, *row) for offset, row in enumerate(rows)])


def recompress(batch: RecordBatch, codec: Codec) -> bytearray:
    """The same batch, its records compressed in another way, as an append does it."""
    content = decompress(batch.header.codec, batch.buffer[HEADER_BYTES:])
    return recompressed(batch.header, content, codec, None)


def one(buffer: bytes | bytearray | memoryview) -> RecordBatch:
    (batch,) = iterate_batches(buffer)
    return batch


def with_header(batch: bytes | bytearray, **changes: int) -> bytearray:
    """The same batch with header fields replaced and nothing else made to fit, not even the checksum."""
    header = read_header(batch)._replace(**changes)
    return bytearray(struct.pack(">qiibIhiqqqhii", *header)) + batch[HEADER_BYTES:]


def test_every_header_field_is_read_from_its_place() -> None:
    header = BatchHeader(1, 49, 3, 2, 5, 0x70, 7, 8, 9, 10, 11, 12, 13)
    assert read_header(b"\xff" * 3 + struct.pack(">qiibIhiqqqhii", *header), 3) == header
    assert header.size_bytes == HEADER_BYTES
    assert header.last_offset == 8
    assert header.last_sequence == 19
    assert header.is_transactional
    assert header.is_control
    assert header.has_delete_horizon
    assert not header.is_log_append_time


@pytest.mark.parametrize("size_bytes", [0, 1, 60])
def test_a_header_cut_short_is_undecodable(size_bytes: int) -> None:
    with pytest.raises(DecodeError):
        read_header(MARKER[:size_bytes])


def test_a_sequence_that_wraps_within_the_batch_ends_at_its_remainder() -> None:
    batch = build_batch(RECORDS[:3], producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    assert read_header(batch).last_sequence == 0
    assert read_header(build_batch(RECORDS)).last_sequence == -1


@pytest.mark.parametrize("number", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_undecodable(number: int) -> None:
    header = read_header(MARKER)._replace(attributes=number)
    with pytest.raises(DecodeError):
        _ = header.codec


@pytest.mark.parametrize("codec", list(Codec))
def test_records_read_back_from_the_batch_built_of_them(codec: Codec) -> None:
    buffer = build_batch(RECORDS, base_offset=100, partition_leader_epoch=4, codec=codec)
    batch = one(buffer)
    assert batch.buffer == buffer
    assert batch.header.codec is codec
    assert batch.header.base_timestamp_ms == 1_000
    assert batch.header.max_timestamp_ms == 5_000_000
    assert batch.header.records_count == 5
    assert check_crc(buffer)
    assert list(read_records(batch)) == [record._replace(offset=100 + record.offset) for record in RECORDS]


@given(record_lists, st.sampled_from(Codec), st.integers(0, 2**60))
def test_any_records_read_back(records: list[Record], codec: Codec, base_offset: int) -> None:
    buffer = build_batch(records, base_offset=base_offset, codec=codec)
    assert check_crc(buffer)
    assert list(read_records(one(buffer))) == [
        record._replace(offset=base_offset + record.offset) for record in records
    ]


@given(
    st.lists(st.tuples(nullable_bytes, nullable_bytes), min_size=1, max_size=100),
    st.integers(-1, 2**50),
    st.integers(0, 2**60),
    st.none() | st.tuples(st.integers(0, 2**60), st.integers(0, 2**15 - 1)),
    st.booleans(),
)
def test_a_plain_batch_equals_the_encoding_of_its_records(
    pairs: list[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    base_offset: int,
    producer: tuple[int, int] | None,
    is_log_append_time: bool,
) -> None:
    records = [Record(offset, timestamp_ms, *pair) for offset, pair in enumerate(pairs)]
    producer_id, producer_epoch = producer or (-1, -1)
    assert build_plain_batch(
        records,
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        partition_leader_epoch=3,
        producer=producer,
        is_log_append_time=is_log_append_time,
    ) == build_batch(
        records,
        base_offset=base_offset,
        partition_leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=producer is not None,
        is_log_append_time=is_log_append_time,
    )


@pytest.mark.parametrize("key_bytes", [0, 1, 63, 64])
@pytest.mark.parametrize("value_bytes", [0, 1, 63, 64, 8_191, 8_192, 1_000_000])
@pytest.mark.parametrize("producer", [None, (2**40, 3)])
def test_a_plain_batch_of_one_record_is_the_same_whatever_its_lengths_take(
    key_bytes: int, value_bytes: int, producer: tuple[int, int] | None
) -> None:
    record = Record(0, 5_000_000, b"k" * key_bytes, b"v" * value_bytes)
    producer_id, producer_epoch = producer or (-1, -1)
    assert build_plain_batch(
        [record], timestamp_ms=5_000_000, base_offset=7, partition_leader_epoch=3, producer=producer
    ) == build_batch(
        [record],
        base_offset=7,
        partition_leader_epoch=3,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=producer is not None,
    )


def test_offsets_of_records_become_distances_to_the_first() -> None:
    buffer = build_batch([record._replace(offset=record.offset * 3 + 70) for record in RECORDS], base_offset=7)
    assert [record.offset for record in read_records(one(buffer))] == [7, 10, 13, 16, 19]
    assert one(buffer).header.last_offset == 19


def test_all_records_of_a_log_append_time_batch_have_the_time_of_the_append() -> None:
    buffer = build_batch(RECORDS, is_log_append_time=True)
    assert {record.timestamp_ms for record in read_records(one(buffer))} == {5_000_000}


def test_header_keys_that_are_no_utf8_are_read_as_java_reads_them() -> None:
    buffer = build_batch([Record(0, 0, None, None, (("name", b""),))])
    broken = bytearray(buffer)
    broken[broken.index(b"name")] = 0xFF
    assert next(read_records(one(broken))).headers == (("\ufffdame", b""),)


def test_batches_back_to_back_are_found_one_by_one_and_a_torn_one_is_left_out() -> None:
    buffer = bytes(build_batch(RECORDS)) + MARKER + bytes(build_batch(RECORDS[:1]))
    assert [batch.header.records_count for batch in iterate_batches(buffer)] == [5, 1, 1]
    assert [batch.header.records_count for batch in iterate_batches(buffer[:-1])] == [5, 1]
    assert [batch.header.records_count for batch in iterate_batches(buffer[: len(buffer) - 70])] == [5, 1]
    assert list(iterate_batches(b"")) == []


@pytest.mark.parametrize("length", [0, -1, -12, -(2**31), 48])
def test_a_batch_whose_length_cannot_be_one_is_undecodable(length: int) -> None:
    with pytest.raises(DecodeError):
        list(iterate_batches(with_header(MARKER, batch_length=length)))


def test_a_bit_turned_anywhere_behind_the_checksum_is_noticed() -> None:
    for position in range(17, len(MARKER)):
        broken = bytearray(MARKER)
        broken[position] ^= 0x10
        assert not check_crc(broken), position
    assert check_crc(MARKER)
    assert not check_crc(MARKER[:-1])
    assert not check_crc(MARKER[:20])


def test_a_leader_gives_offset_and_epoch_without_touching_the_checksum() -> None:
    batch = build_batch(RECORDS)
    prefix = pack_prefix(2**40, read_header(batch).batch_length, 17)
    assert len(prefix) == PREFIX_BYTES
    stored = prefix + batch[PREFIX_BYTES:]
    assert check_crc(stored)
    assert read_header(stored) == read_header(batch)._replace(base_offset=2**40, partition_leader_epoch=17)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_the_time_of_the_append_takes_the_place_of_the_records_times(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec)
    head = rewritten_header(
        batch, base_offset=9, partition_leader_epoch=2, max_timestamp_ms=77, is_log_append_time=True
    )
    stored = head + batch[HEADER_BYTES:]
    assert len(head) == HEADER_BYTES
    assert check_crc(stored)
    assert [(record.offset, record.timestamp_ms) for record in read_records(one(stored))] == [
        (9 + index, 77) for index in range(5)
    ]
    unused = bytearray(batch)
    unused[21] = 0x7F
    assert head == rewritten_header(
        unused, base_offset=9, partition_leader_epoch=2, max_timestamp_ms=77, is_log_append_time=True
    )
    back = rewritten_header(
        stored, base_offset=0, partition_leader_epoch=-1, max_timestamp_ms=5_000_000, is_log_append_time=False
    )
    assert back + stored[HEADER_BYTES:] == batch


@pytest.mark.parametrize("before", list(Codec))
@pytest.mark.parametrize("after", list(Codec))
def test_compressing_otherwise_changes_nothing_else(before: Codec, after: Codec) -> None:
    batch = one(
        build_batch(RECORDS, codec=before, producer_id=5, producer_epoch=1, base_sequence=3, is_transactional=True)
    )
    changed = one(recompress(batch, after))
    assert check_crc(changed.buffer)
    assert changed.header.codec is after
    assert list(read_records(changed)) == list(read_records(batch))
    assert changed.header._replace(batch_length=0, crc=0, attributes=0) == batch.header._replace(
        batch_length=0, crc=0, attributes=0
    )


def test_compressing_otherwise_leaves_bits_without_a_meaning_behind() -> None:
    batch = one(build_batch(RECORDS, is_transactional=True))
    odd = batch._replace(header=batch.header._replace(attributes=batch.header.attributes | 0x7F80))
    assert one(recompress(odd, Codec.LZ4)).header.attributes == TRANSACTIONAL_BIT | Codec.LZ4


def test_a_commit_marker_has_the_bytes_that_kafka_gives_it() -> None:
    marker = build_end_transaction_marker(
        producer_id=7, producer_epoch=3, committed=True, coordinator_epoch=5, timestamp_ms=1000
    )
    assert marker == MARKER


@pytest.mark.parametrize("is_log_append_time", [True, False])
def test_a_marker_is_built_as_it_is_stored(is_log_append_time: bool) -> None:
    marker = build_end_transaction_marker(
        producer_id=7,
        producer_epoch=3,
        committed=True,
        coordinator_epoch=5,
        timestamp_ms=1000,
        base_offset=2**40,
        partition_leader_epoch=17,
        is_log_append_time=is_log_append_time,
    )
    header = rewritten_header(
        MARKER,
        base_offset=2**40,
        partition_leader_epoch=17,
        max_timestamp_ms=1000,
        is_log_append_time=is_log_append_time,
    )
    assert marker == header + MARKER[HEADER_BYTES:]


@pytest.mark.parametrize("committed", [True, False])
def test_a_marker_reads_back(committed: bool) -> None:
    marker = build_end_transaction_marker(
        producer_id=2**50, producer_epoch=32767, committed=committed, coordinator_epoch=2**31 - 1, timestamp_ms=1
    )
    batch = one(marker)
    assert batch.header.is_control
    assert batch.header.is_transactional
    assert batch.header.base_sequence == -1
    assert read_end_transaction_marker(batch) == EndTransactionMarker(committed, 2**31 - 1)


def control_batch(key: bytes | None, value: bytes | None) -> RecordBatch:
    return one(build_batch([Record(0, 0, key, value)], is_control=True, is_transactional=True))


def test_a_batch_without_marker_decodes_to_no_marker() -> None:
    assert read_end_transaction_marker(one(build_batch(RECORDS))) is None
    assert read_end_transaction_marker(control_batch(bytes.fromhex("00000002"), b"")) is None


def test_higher_versions_of_a_marker_are_read_as_version_0() -> None:
    batch = control_batch(bytes.fromhex("00030001ffff"), bytes.fromhex("000900000004aaaa"))
    assert read_end_transaction_marker(batch) == EndTransactionMarker(committed=True, coordinator_epoch=4)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, "000000000001"),
        ("000000", "000000000001"),
        ("ffff0000", "000000000001"),
        ("00000000", None),
        ("00000000", "0000000000"),
        ("00000000", "ffff00000001"),
    ],
)
def test_a_marker_too_short_or_of_a_negative_version_is_undecodable(key: str | None, value: str | None) -> None:
    batch = control_batch(None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    with pytest.raises(DecodeError):
        read_end_transaction_marker(batch)


@given(st.binary(max_size=200))
def test_garbage_is_undecodable_and_nothing_worse(garbage: bytes) -> None:
    buffer = MARKER[:8] + struct.pack(">i", 49 + len(garbage)) + MARKER[12:61] + garbage
    try:
        list(iterate_batches(garbage))
        for batch in iterate_batches(buffer):
            check_crc(batch.buffer)
            read_end_transaction_marker(batch)
            list(read_records(batch))
    except DecodeError:
        return


@given(st.sampled_from(Codec), st.data())
def test_a_batch_with_changed_bytes_reads_or_is_undecodable(codec: Codec, data: st.DataObject) -> None:
    buffer = build_batch(RECORDS[:4], codec=codec)
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(12, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    try:
        for batch in iterate_batches(buffer):
            for count, _ in enumerate(read_records(batch, maximum_bytes=100_000)):
                assert count < len(buffer) * 2000
    except DecodeError:
        return
