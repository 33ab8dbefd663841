"""Whatever bytes arrive: a reader returns a message or raises DecodeError and nothing else, and allocates little."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.messages.fetch import FetchRequest, FetchResponse
from fencepost.protocol.messages.group_membership import JoinGroupRequest
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from fencepost.protocol.messages.produce import ProduceRequest
from fencepost.protocol.messages.transactions import AddOffsetsToTxnRequest, EndTxnRequest, EndTxnResponse
from fencepost.protocol.reader import MAXIMUM_REQUEST_ELEMENTS
from fencepost.protocol.schema import DecodeError, decode, encode
from tests.protocol.message_strategies import LONG, SHORT, Case, for_every_layout, for_every_version, messages

VARINT_LENGTH_OF_4_GIB = b"\xff\xff\xff\xff\x0f"


def decode_or_refuse(case: Case, buffer: bytes) -> None:
    with contextlib.suppress(DecodeError):
        decode(case.message_type, buffer, case.version)


def check_broken(case: Case, data: st.DataObject) -> None:
    encoded = bytes(encode(data.draw(messages(case)), case.version))
    for size in range(0, len(encoded), 1 + len(encoded) // 40):
        with pytest.raises(DecodeError, match=case.message_type.__name__):
            decode(case.message_type, encoded[:size], case.version)
    chance = Random(data.draw(st.integers(0, 2**32)))
    for _ in range(20):
        damaged = bytearray(encoded)
        for _ in range(chance.randint(1, 4) if encoded else 0):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        decode_or_refuse(case, bytes(damaged))
        decode_or_refuse(case, chance.randbytes(chance.randrange(100)))


@for_every_layout
@given(data=st.data())
@SHORT
def test_a_truncated_message_is_refused_and_a_damaged_one_read_or_refused(case: Case, data: st.DataObject) -> None:
    check_broken(case, data)


@pytest.mark.long
@for_every_version
@given(data=st.data())
@LONG
def test_many_broken_messages_are_read_or_refused(case: Case, data: st.DataObject) -> None:
    check_broken(case, data)


@for_every_version
def test_runs_of_one_byte_are_read_or_refused(case: Case) -> None:
    for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
        for size in (0, 1, 2, 3, 5, 8, 13, 40, 200):
            decode_or_refuse(case, bytes([byte]) * size)


@pytest.mark.parametrize(
    ("message_type", "version", "prefix"),
    [
        pytest.param(FetchRequest, 4, bytes(17) + b"\x7f\xff\xff\xff", id="array count of 2^31-1"),
        pytest.param(FetchRequest, 12, bytes(25) + VARINT_LENGTH_OF_4_GIB, id="compact array count of 2^32-1"),
        pytest.param(ProduceRequest, 9, b"\x00" + bytes(6) + VARINT_LENGTH_OF_4_GIB, id="compact count in a produce"),
        pytest.param(JoinGroupRequest, 0, b"\x7f\xff", id="string length of 32767"),
        pytest.param(EndTxnRequest, 3, VARINT_LENGTH_OF_4_GIB, id="compact string length of 2^32-1"),
        pytest.param(EndTxnRequest, 3, b"\xff" * 6, id="variable-length integer without end"),
        pytest.param(EndTxnRequest, 3, b"\xff\xff\xff\xff\x1f", id="variable-length integer of 33 bits"),
        pytest.param(EndTxnRequest, 3, b"\x02x" + bytes(11) + VARINT_LENGTH_OF_4_GIB, id="count of tagged fields"),
        pytest.param(
            EndTxnRequest, 3, b"\x02x" + bytes(11) + b"\x01\x09" + VARINT_LENGTH_OF_4_GIB, id="tagged field size"
        ),
        pytest.param(FetchRequest, 12, bytes(26) + b"\x01\x01" + VARINT_LENGTH_OF_4_GIB, id="known tagged field"),
    ],
)
def test_an_absurd_length_is_refused_before_memory_is_taken(
    message_type: type[Any], version: int, prefix: bytes
) -> None:
    with pytest.raises(DecodeError):
        decode(message_type, prefix, version)  # compiles the reader
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            decode(message_type, prefix + bytes(64), version)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000


def test_negative_lengths_other_than_null_are_refused() -> None:
    encoded = bytes(encode(EndTxnRequest(transactional_id="a"), 0))
    for length in (b"\xff\xff", b"\xff\xfe", b"\x80\x00"):
        with pytest.raises(DecodeError, match="transactional_id"):
            decode(EndTxnRequest, length + encoded[2:], 0)


def offset_commit(length: Callable[[int], bytes]) -> bytes:
    """A request with every kind of length and count, each written by `length`."""
    partition = bytes(4) + bytes(8) + bytes(4) + length(3) + b"ab" + length(0)
    topic = length(2) + b"t" + length(2) + partition + length(0)
    return length(2) + b"g" + bytes(4) + length(2) + b"m" + length(0) + length(2) + topic + length(0)


@pytest.mark.parametrize("further_bytes", [b"\x00", b"\x80\x00", b"\x80\x80\x80\x00"])
def test_a_length_may_take_more_bytes_than_it_needs(further_bytes: bytes) -> None:
    request = decode(OffsetCommitRequest, offset_commit(lambda length: bytes([length])), 8)
    assert request.topics[0].partitions[0].committed_metadata == "ab"
    padded = offset_commit(lambda length: bytes([length | 0x80]) + further_bytes)
    assert decode(OffsetCommitRequest, padded, 8) == request
    for size in range(len(padded)):
        with pytest.raises(DecodeError):
            decode(OffsetCommitRequest, padded[:size], 8)


def test_the_error_has_the_right_position_after_a_field_of_variable_width() -> None:
    with pytest.raises(DecodeError) as caught:
        decode(OffsetCommitRequest, offset_commit(lambda length: bytes([length]))[:20], 8)
    assert caught.value.position == 13
    assert caught.value.expected == "topics[].partitions[]"


def test_the_error_names_the_array_that_must_not_be_null() -> None:
    encoded = offset_commit(lambda length: bytes([length]))
    with pytest.raises(DecodeError) as caught:
        decode(OffsetCommitRequest, encoded[:9] + b"\x00" + encoded[10:], 8)
    assert (caught.value.position, caught.value.expected) == (10, "topics[]")


def test_bytes_that_are_not_utf_8_are_refused() -> None:
    encoded = bytes(encode(EndTxnRequest(transactional_id="ab"), 3))
    with pytest.raises(DecodeError, match="transactional_id"):
        decode(EndTxnRequest, encoded.replace(b"ab", b"\xc3\x28"), 3)


def test_bytes_behind_a_reply_are_refused_and_behind_a_request_left_unread() -> None:
    request = EndTxnRequest(transactional_id="a", committed=True)
    assert decode(EndTxnRequest, bytes(encode(request, 5)) + b"more", 5) == request
    with pytest.raises(DecodeError):
        decode(EndTxnResponse, bytes(encode(EndTxnResponse(), 5)) + b"m", 5)


def test_the_error_has_position_field_and_expected_value() -> None:
    encoded = bytes(encode(EndTxnRequest(transactional_id="abc", producer_id=7), 0))
    with pytest.raises(DecodeError) as caught:
        decode(EndTxnRequest, encoded[:9], 0)
    assert caught.value.position == 5
    assert caught.value.expected == "producer_id, producer_epoch, committed"
    assert str(caught.value) == (
        "EndTxnRequest v0: the bytes end too early, at byte 5 of 9, expected producer_id, producer_epoch, committed"
    )


def test_the_error_names_the_path_to_a_nested_field() -> None:
    with pytest.raises(DecodeError, match=r"responses\[\].partitions\[\]"):
        decode(FetchResponse, bytes(10) + b"\x00\x00\x00\x01" + b"\x00\x01t" + b"\x00\x00\x00\x01" + bytes(12), 8)


def test_an_undeclared_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="no version 6"):
        decode(EndTxnRequest, b"", 6)


def test_a_request_with_an_absurd_number_of_elements_is_refused() -> None:
    half = MAXIMUM_REQUEST_ELEMENTS // 2
    topics = [OffsetFetchRequestTopic("t", list(range(half - 1))) for _ in range(2)]
    most = bytes(encode(OffsetFetchRequest("g", topics), 1))
    assert len(decode(OffsetFetchRequest, most, 1).topics or []) == 2
    topics.append(OffsetFetchRequestTopic("t", []))
    with pytest.raises(DecodeError, match="more than 250000 elements"):
        decode(OffsetFetchRequest, bytes(encode(OffsetFetchRequest("g", topics), 1)), 1)


def test_a_reply_may_have_any_number_of_elements() -> None:
    partitions = [
        OffsetFetchResponsePartition(partition_index=number) for number in range(MAXIMUM_REQUEST_ELEMENTS + 1)
    ]
    reply = OffsetFetchResponse(topics=[OffsetFetchResponseTopic("t", partitions)])
    assert decode(OffsetFetchResponse, bytes(encode(reply, 1)), 1) == reply


@pytest.mark.parametrize(
    "request_",
    [EndTxnRequest(transactional_id="a"), AddOffsetsToTxnRequest(transactional_id="a")],
    ids=["of a message with some", "of one without any"],
)
def test_very_many_tagged_fields_are_refused(request_: Any) -> None:
    encoded = bytes(encode(request_, 3))
    assert decode(type(request_), encoded[:-1] + b"\xe8\x07" + b"\x63\x00" * 1_000, 3) == request_
    with pytest.raises(DecodeError, match="1001 tagged fields, at most 1000"):
        decode(type(request_), encoded[:-1] + b"\xe9\x07" + b"\x63\x00" * 1_001, 3)
