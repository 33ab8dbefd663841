"""Unsigned variable-length integers and tagged fields at their edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.primitives import (
    MalformedError,
    read_unsigned_varint,
    skip_tagged_fields,
    write_unsigned_varint,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2**28 - 1, "ffffff7f"),
        (2**28, "8080808001"),
        (2**32 - 1, "ffffffff0f"),
    ],
)
def test_a_varint_has_seven_bits_per_byte_lowest_first(value: int, encoded: str) -> None:
    out = bytearray()
    write_unsigned_varint(out, value)
    assert out.hex() == encoded
    assert read_unsigned_varint(out, 0) == (value, len(out))


@given(st.integers(0, 2**32 - 1), st.binary(max_size=3))
def test_any_varint_is_read_back_at_any_position(value: int, before: bytes) -> None:
    out = bytearray(before)
    write_unsigned_varint(out, value)
    assert read_unsigned_varint(bytes(out) + b"\xff", len(before)) == (value, len(out))


@pytest.mark.parametrize("encoded", ["ffffffff1f", "808080808000", "ffffffffff"])
def test_a_varint_beyond_32_bits_is_malformed(encoded: str) -> None:
    with pytest.raises(MalformedError):
        read_unsigned_varint(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("encoded", ["", "80", "ffffffff"])
def test_a_varint_without_end_runs_out_of_bytes(encoded: str) -> None:
    with pytest.raises(IndexError):
        read_unsigned_varint(bytes.fromhex(encoded), 0)


def test_tagged_fields_are_skipped_by_their_sizes() -> None:
    assert skip_tagged_fields(b"\x00\x02ab\x81\x01\x00rest", 0, 2) == 7


@pytest.mark.parametrize(("encoded", "count"), [("0005ab", 1), ("", 1), ("00", 3), ("0001", 1)])
def test_tagged_fields_beyond_the_end_are_malformed(encoded: str, count: int) -> None:
    with pytest.raises((MalformedError, IndexError)):
        skip_tagged_fields(bytes.fromhex(encoded), 0, count)
