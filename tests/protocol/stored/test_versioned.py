"""Keys and values of internal topics begin with a version."""

from __future__ import annotations

import pytest

from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import int32, message
from fencepost.protocol.stored.versioned import (
    COMPACT_LENGTHS,
    RecordKinds,
    decode_known,
    decode_versioned,
    encode_versioned,
    read_version,
)


@message(versions="0")
class FirstKey:
    """A kind of record."""

    number: int32 = 0


@message(versions="1")
class SecondKey:
    """Another kind of record, whose values are not read."""

    number: int32 = 0


@message(versions="0-1")
class Value:
    """The value of the first kind."""

    number: int32 = 0


KINDS: RecordKinds[FirstKey | SecondKey] = RecordKinds({FirstKey: Value, SecondKey: None})


def test_the_version_of_a_key_is_its_kind() -> None:
    assert KINDS.encode(SecondKey(7), None) == (b"\0\x01\0\0\0\x07", None)
    assert KINDS.decode_key(b"\0\x01\0\0\0\x07") == SecondKey(7)
    assert KINDS.decode_key(b"\0\x02\0\0\0\x07") is None


def test_values_are_read_where_their_kind_says_so() -> None:
    key, value = KINDS.encode(FirstKey(1), Value(2))
    assert value is not None
    assert KINDS.decode_value(FirstKey(1), value) == Value(2)
    assert KINDS.decode_value(SecondKey(1), value) is None
    assert read_version(key) == 0


def test_an_unknown_version_is_skipped_unless_it_must_be_known() -> None:
    content = b"\0\x05" + encode_versioned(Value(2), 1)[2:]
    assert decode_versioned(Value, content) is None
    with pytest.raises(DecodeError, match="version 5, which only a later release knows"):
        decode_known(Value, content)


def test_content_without_a_version_is_refused() -> None:
    with pytest.raises(DecodeError, match="1 bytes are too few for a version"):
        read_version(b"\0")


def test_compact_lengths_are_one_more_as_a_varint() -> None:
    assert (COMPACT_LENGTHS[0], COMPACT_LENGTHS[126], COMPACT_LENGTHS[127]) == (b"\x01", b"\x7f", b"\x80\x01")
    assert COMPACT_LENGTHS[300] == b"\xad\x02"
