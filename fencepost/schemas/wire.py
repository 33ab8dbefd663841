"""How a record names its schema. Pure.

In front of the content: a zero byte and the id in 4 bytes; or a one byte and a GUID in 16 bytes. With Protobuf follow
the indexes that lead to the message in its file: their number and each of them as zigzag varints, where a single zero
stands for the first message. The same may stand in a header, and the content is then bare.
Source: the wire format in Confluent's documentation; SchemaId of confluent-kafka.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple
from uuid import UUID

from fencepost.schemas.schema import SchemaError

HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
_BY_ID: Final = 0
_BY_GUID: Final = 1
MOST_INDEXES: Final = 32
"""Messages within each other; protoc stops at about as many."""

Identity = int | UUID


class Named(NamedTuple):
    """A schema's id or GUID, and the bytes behind it. rest: the indexes of a header; else indexes and content."""

    identity: Identity
    rest: bytes


def in_header(part: str, headers: Iterable[tuple[str, bytes | None]]) -> Named | None:
    """The schema that a header names for a key or a value; None if there is no such header. part: of HEADERS."""
    for name, content in headers:
        if name == HEADERS[part] and content is not None:
            return in_front(content, takes_guids=True)
    return None


def in_front(content: bytes, *, takes_guids: bool = False) -> Named | None:
    """The schema that a content begins with; None if it begins with none.

    takes_guids: whether a GUID counts. In front of a content it does not: text may well begin with a one byte.
    """
    if len(content) >= 5 and content[0] == _BY_ID:
        schema_id = struct.unpack_from(">i", content, 1)[0]
        return Named(schema_id, content[5:]) if schema_id >= 0 else None
    if takes_guids and len(content) >= 17 and content[0] == _BY_GUID:
        return Named(UUID(bytes=content[1:17]), content[17:])
    return None


def read_indexes(content: bytes) -> tuple[tuple[int, ...], bytes]:
    """Read the indexes of a Protobuf message; returns them and the rest. Raises SchemaError."""
    number, at = _read_varint(content, 0)
    if not 0 <= number <= MOST_INDEXES:
        raise SchemaError(f"its message has {number:,} indexes; at most {MOST_INDEXES} are read")
    if number == 0:
        return (0,), content[at:]
    indexes = []
    for _ in range(number):
        index, at = _read_varint(content, at)
        indexes.append(index)
    return tuple(indexes), content[at:]


def with_prefix(schema_id: int, indexes: tuple[int, ...] | None, content: bytes) -> bytes:
    """Content behind the id of its schema and, for Protobuf, the indexes of its message."""
    written = b""
    if indexes == (0,):
        written = b"\x00"
    elif indexes is not None:
        written = b"".join(_varint(one) for one in (len(indexes), *indexes))
    return struct.pack(">bi", _BY_ID, schema_id) + written + content


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 35, 7):
        if at >= len(content):
            break
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
    raise SchemaError("the indexes of its message are damaged")


def _varint(number: int) -> bytes:
    left = number << 1
    written = bytearray()
    while left > 0x7F:
        written.append(left & 0x7F | 0x80)
        left >>= 7
    written.append(left)
    return bytes(written)
