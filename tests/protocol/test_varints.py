"""Zig-zag variable-length integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.varints import read_varint, read_varlong, write_varint


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_a_varint_is_written_and_read_as_kafka_does(value: int, encoded: str) -> None:
    out = bytearray()
    write_varint(out, value)
    assert out.hex() == encoded
    assert read_varint(out, 0) == (value, len(out))


@given(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=3))
def test_a_varlong_reads_back_wherever_it_lies(value: int, before: bytes) -> None:
    out = bytearray(before)
    write_varint(out, value)
    assert read_varlong(out, len(before)) == (value, len(out))


@pytest.mark.parametrize("encoded", ["ffffffff1f", "808080808001", "ffffffffffffffffffff7f"])
def test_a_varint_of_more_than_32_bits_is_refused(encoded: str) -> None:
    with pytest.raises(DecodeError):
        read_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["ffffffffffffffffff03", "8080808080808080808001"])
def test_a_varlong_of_more_than_64_bits_is_refused(encoded: str) -> None:
    with pytest.raises(DecodeError):
        read_varlong(bytes.fromhex(encoded), 0)


def test_a_varint_cut_short_is_an_index_error() -> None:
    with pytest.raises(IndexError):
        read_varint(b"\x80\x80", 0)
