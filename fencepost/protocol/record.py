"""Single records of format version 2, which follow the header of a batch one after another, decompressed.

Source: Kafka's DefaultRecord; KIP-98, KIP-82 (headers).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.varints import VARINTS, read_varint, read_varlong

_NO_ATTRIBUTES = bytes(1)  # none are in use
_NO_HEADERS = VARINTS[0]
_NULL_LENGTH = -1
LEAST_DELTA_MS: Final = -(2**63)
"""A bound that every timestamp delta reaches."""


class Record(NamedTuple):
    """One record. `offset`: absolute when read; in a batch to be built, only the distance to the first one counts."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class PlainRecord(Protocol):
    """A record with key and value, written without headers."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


def write_record(
    out: bytearray,
    key: bytes | None,
    value: bytes | None,
    timestamp_delta_ms: int,
    offset_delta: int,
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> None:
    """Append one record to a records section."""
    body = b"".join(
        (
            _NO_ATTRIBUTES,
            VARINTS[timestamp_delta_ms],
            VARINTS[offset_delta],
            VARINTS[_NULL_LENGTH if key is None else len(key)],
            key or b"",
            VARINTS[_NULL_LENGTH if value is None else len(value)],
            value or b"",
            _encoded_headers(headers) if headers else _NO_HEADERS,
        )
    )
    out += VARINTS[len(body)]
    out += body


def plain_record(key: bytes | None, value: bytes | None, offset_delta: int) -> bytes:
    """Encode as `write_record` a record with the batch's time, without headers."""
    before_key, before_value = around_key(
        _NULL_LENGTH if key is None else len(key), _NULL_LENGTH if value is None else len(value), offset_delta
    )
    return b"".join((before_key, key or b"", before_value, value or b"", _NO_HEADERS))


@lru_cache(maxsize=4_096)  # coordinators write records of few lengths
def around_key(key_length: int, value_length: int, offset_delta: int) -> tuple[bytes, bytes]:
    """Encode the bytes before a plain record's key, and those between key and value. One byte of 0 follows the value.

    A length is -1 for no key or no value.
    """
    start = _NO_ATTRIBUTES + VARINTS[0] + VARINTS[offset_delta] + VARINTS[key_length]
    before_value = bytes(VARINTS[value_length])
    length = len(start) + max(key_length, 0) + len(before_value) + max(value_length, 0) + len(_NO_HEADERS)
    return VARINTS[length] + start, before_value


def _encoded_headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytearray:
    out = bytearray(VARINTS[len(headers)])
    for name, value in headers:
        encoded_name = name.encode()
        out += VARINTS[len(encoded_name)]
        out += encoded_name
        out += VARINTS[_NULL_LENGTH if value is None else len(value)]
        out += value or b""
    return out


def read_record(
    content: Buffer, position: int, *, base_offset: int, base_timestamp_ms: int, append_time_ms: int | None = None
) -> tuple[Record, int]:
    """Read one record of a decompressed records section; return it and the position after it.

    append_time_ms: the time of all records of a LogAppendTime batch, in place of their own.
    Raises DecodeError.
    """
    start = position
    try:
        length_bytes, position = read_varint(content, position)
        end = position + length_bytes
        if length_bytes < 0 or end > len(content):
            raise DecodeError("a record's length is negative or beyond its batch", position=start)
        timestamp_delta_ms, position = read_varlong(content, position + 1)
        offset_delta, position = read_varint(content, position)
        key, position = _read_nullable(content, position, end)
        value, position = _read_nullable(content, position, end)
        headers_count, position = read_varint(content, position)
        if headers_count < 0:
            raise DecodeError("a record's count of headers is negative", position=position)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if headers_count:
            headers, position = _read_record_headers(content, position, end, headers_count)
    except IndexError:
        raise DecodeError("a batch ends inside a record", position=start) from None
    if position != end:
        raise DecodeError("a record is not as long as it says", position=start)
    timestamp_ms = base_timestamp_ms + timestamp_delta_ms if append_time_ms is None else append_time_ms
    return Record(base_offset + offset_delta, timestamp_ms, key, value, headers), end


class FoundRecord(NamedTuple):
    """A found record: its distances from base timestamp and base offset of the batch."""

    timestamp_delta_ms: int
    offset_delta: int


def find_record(
    content: Buffer, position: int, count: int, least_delta_ms: int, least_offset_delta: int
) -> tuple[int, FoundRecord | None]:
    """Find among `count` records the first one whose distances are at least those given.

    Keys, values and headers are skipped unread. Returns the position of that record, else that after the last one.
    Raises DecodeError.
    """
    size_bytes = len(content)
    try:
        for _ in range(count):
            start = position
            length = content[position]
            if length < 0x80:  # read in place: a step is many records
                length, position = length >> 1 ^ -(length & 1), position + 1
            else:
                length, position = read_varint(content, position)
            end = position + length
            if length < 0 or end > size_bytes:
                raise DecodeError("a record's length is negative or beyond its batch", position=start)
            timestamp_delta_ms, position = read_varlong(content, position + 1)
            if timestamp_delta_ms >= least_delta_ms:
                offset_delta, position = read_varint(content, position)
                if position > end:
                    raise DecodeError("a record is not as long as it says", position=start)
                if offset_delta >= least_offset_delta:
                    return start, FoundRecord(timestamp_delta_ms, offset_delta)
            position = end
    except IndexError:
        raise DecodeError("a batch ends inside a record", position=position) from None
    return position, None


def _read_nullable(content: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    length_bytes, position = read_varint(content, position)
    if length_bytes < 0:
        if length_bytes != -1:
            raise DecodeError("a key, value or header has a negative length", position=position)
        return None, position
    field_end = position + length_bytes
    if field_end > end:
        raise DecodeError("a key, value or header is longer than its record", position=position)
    return bytes(content[position:field_end]), field_end


def _read_record_headers(
    content: Buffer, position: int, end: int, count: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    if count * 2 > end - position:
        raise DecodeError("a record has more headers than room for them", position=position)
    headers = []
    for _ in range(count):
        name, position = _read_nullable(content, position, end)
        if name is None:
            raise DecodeError("a record header has no key", position=position)
        value, position = _read_nullable(content, position, end)
        headers.append((name.decode(errors="replace"), value))  # as Java's String does; valid UTF-8 is not guaranteed
    return tuple(headers), position
