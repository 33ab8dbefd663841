"""The `.snapshot` file: Kafka's bytes, what follows them, and how a damaged file is noticed."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.log.files.producer_snapshot import (
    CorruptSnapshot,
    ProducerBatch,
    ProducerSnapshot,
    decode_snapshot,
    encode_snapshot,
)

ONE_PRODUCER = bytes.fromhex(
    "0001 017ecf19 00000001 0000000000000007 0003 00000009 0000000000000013 00000004 00000000000003e8 00000005"
    "000000000000000f"
)
PRODUCER = ProducerSnapshot(7, 3, 1000, 5, 15, (ProducerBatch(9, 19, 4, 1000),))

int16s = st.integers(-1, 2**15 - 1)
int32s = st.integers(-1, 2**31 - 1)
int64s = st.integers(-1, 2**63 - 1)


@st.composite
def producers(draw: st.DrawFn, producer_id: int) -> ProducerSnapshot:
    timestamp_ms = draw(int64s)
    batches = draw(
        st.lists(
            st.builds(ProducerBatch, int32s, st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1), int64s), max_size=5
        )
    )
    if batches:
        batches[-1] = batches[-1]._replace(max_timestamp_ms=timestamp_ms)
    return ProducerSnapshot(producer_id, draw(int16s), timestamp_ms, draw(int32s), draw(int64s), tuple(batches))


def sealed(body: bytes, version: int = 1) -> bytes:
    return struct.pack(">hI", version, crc32c(body)) + body


def test_a_producer_has_the_bytes_that_kafka_gives_it() -> None:
    assert encode_snapshot([PRODUCER]) == ONE_PRODUCER
    assert decode_snapshot(ONE_PRODUCER) == [PRODUCER]


def test_no_producers_are_a_snapshot_too() -> None:
    assert encode_snapshot([]) == sealed(bytes(4))
    assert decode_snapshot(encode_snapshot([])) == []


def test_a_producer_without_batches_reads_back() -> None:
    producer = PRODUCER._replace(recent_batches=(), current_transaction_first_offset=-1)
    content = encode_snapshot([producer])
    assert len(content) == len(ONE_PRODUCER)
    assert decode_snapshot(content) == [producer]


def test_a_reader_that_knows_only_the_newest_batches_finds_them_where_kafka_puts_them() -> None:
    earlier = (ProducerBatch(3, 12, 0, 900), ProducerBatch(4, 14, 1, 950))
    content = encode_snapshot([PRODUCER._replace(recent_batches=(*earlier, *PRODUCER.recent_batches))])
    assert content[6 : len(ONE_PRODUCER)] == ONE_PRODUCER[6:]
    assert struct.unpack_from(">I", content, 2)[0] == crc32c(content[6:]), "Kafka's checksum covers all that follows it"


@given(st.integers(0, 20).flatmap(lambda count: st.tuples(*(producers(producer_id) for producer_id in range(count)))))
def test_any_producers_read_back(snapshot: tuple[ProducerSnapshot, ...]) -> None:
    assert decode_snapshot(encode_snapshot(snapshot)) == list(snapshot)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        ONE_PRODUCER[:9],
        ONE_PRODUCER[:-1],
        ONE_PRODUCER + b"\x00",
        sealed(ONE_PRODUCER[6:], version=2),
        sealed(ONE_PRODUCER[6:], version=0),
        sealed(struct.pack(">i", 2) + ONE_PRODUCER[10:]),
        sealed(struct.pack(">i", -1) + ONE_PRODUCER[10:]),
        sealed(struct.pack(">i", 2**31 - 1)),
    ],
    ids=["empty", "short", "cut", "longer", "newer", "older", "count too high", "negative count", "huge count"],
)
def test_a_file_that_is_no_snapshot_is_recognised(content: bytes) -> None:
    outcome = decode_snapshot(content)
    assert isinstance(outcome, CorruptSnapshot)
    assert outcome.reason


def test_a_changed_bit_anywhere_is_noticed() -> None:
    content = encode_snapshot(
        [PRODUCER._replace(recent_batches=(ProducerBatch(3, 12, 0, 900), *PRODUCER.recent_batches))]
    )
    for position in range(len(content)):
        broken = bytearray(content)
        broken[position] ^= 0x40
        assert isinstance(decode_snapshot(bytes(broken)), CorruptSnapshot), position


@pytest.mark.parametrize(
    "trailer", [b"\x00", b"\x00\x02\x00\x00\x00\x01" + bytes(32), b"\x00\x01\x00\x00\x00\x02" + bytes(32)]
)
def test_a_section_of_earlier_batches_of_another_make_is_as_good_as_none(trailer: bytes) -> None:
    assert decode_snapshot(sealed(ONE_PRODUCER[6:] + trailer)) == [PRODUCER]


@given(st.binary(max_size=200))
def test_garbage_is_never_an_exception(garbage: bytes) -> None:
    assert isinstance(decode_snapshot(garbage), CorruptSnapshot)
    decode_snapshot(sealed(garbage))
