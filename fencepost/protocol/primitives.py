# ruff: noqa: PYI042  (int32 and its like are Kafka's own names of these types)
"""Primitive types of the wire format, variable-length integers, and the error for undecodable bytes.

Message classes are annotated with type aliases such as `int32`. For a type checker they are plain `int`, `bytes` or
`float`; the message compiler finds the wire type in their metadata. All integers of Kafka are big-endian.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

ZERO_UUID = bytes(16)
"""Kafka's "no id": 16 zero bytes, which no topic has."""

MAXIMUM_STRING_BYTES = 0x7FFF
MAXIMUM_TAGGED_FIELDS = 1_000
"""Bound on the tagged fields of one struct. No message has ten; very many keep the reader busy."""
MAXIMUM_VARINT = 0xFFFF_FFFF


class DecodeError(ValueError):
    """Bytes are truncated, malformed, or longer than they should be.

    position: position of the error in the buffer, in bytes; None if a position means nothing.
    expected: the expected field, e.g. `topics[].partitions[].fetch_offset`.
    """

    def __init__(self, reason: str, *, position: int | None = None, expected: str | None = None) -> None:
        super().__init__(reason)
        self.position = position
        self.expected = expected


class EncodeError(ValueError):
    """A message object has a value that its field cannot carry: a bug of the code that filled it."""


class MalformedError(ValueError):
    """Bytes are present but malformed; readers raise it, and `decode` makes it a `DecodeError` with position."""


@dataclass(frozen=True, slots=True)
class FixedWidth:
    """Wire type of constant width; `code` is its letter in `struct` formats."""

    name: str
    code: str
    default: Any

    @property
    def size_bytes(self) -> int:
        return Struct(">" + self.code).size


@dataclass(frozen=True, slots=True)
class VariableWidth:
    """Wire type that carries its length: `string`, `bytes`, or `records` (bytes that are never copied when read)."""

    name: str
    default: Any


BOOL = FixedWidth("bool", "?", default=False)
STRING = VariableWidth("string", default="")
BYTES = VariableWidth("bytes", default=b"")
RECORDS = VariableWidth("records", default=None)

int8: TypeAlias = Annotated[int, FixedWidth("int8", "b", 0)]
int16: TypeAlias = Annotated[int, FixedWidth("int16", "h", 0)]
int32: TypeAlias = Annotated[int, FixedWidth("int32", "i", 0)]
int64: TypeAlias = Annotated[int, FixedWidth("int64", "q", 0)]
uint16: TypeAlias = Annotated[int, FixedWidth("uint16", "H", 0)]
uint32: TypeAlias = Annotated[int, FixedWidth("uint32", "I", 0)]
float64: TypeAlias = Annotated[float, FixedWidth("float64", "d", 0.0)]
uuid: TypeAlias = Annotated[bytes, FixedWidth("uuid", "16s", ZERO_UUID)]
records: TypeAlias = Annotated[Buffer, RECORDS]


def read_unsigned_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned variable-length integer of at most 32 bits; return it and the position after it.

    Raises IndexError at the end of the buffer and MalformedError for more than five bytes or more than 32 bits.
    """
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    return continue_unsigned_varint(buffer, position + 1, value)


def continue_unsigned_varint(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """As `read_unsigned_varint`, after the `first` byte, which has a continuation bit, was read."""
    byte = buffer[position]
    if byte < 0x80:
        return first & 0x7F | byte << 7, position + 1
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > MAXIMUM_VARINT:
                break
            return value, position
    raise MalformedError("a variable-length integer is longer than 32 bits")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    """Append `value`, 0 to 2^32 - 1, as an unsigned variable-length integer."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def skip_tagged_fields(buffer: Buffer, position: int, first: int) -> int:
    """Skip the tagged fields whose count begins with the byte `first`, already read; return the position after them.

    A reader must accept tagged fields that it does not know (KIP-482).
    """
    count = first
    if first > 0x7F:
        count, position = continue_unsigned_varint(buffer, position, first)
    limit = len(buffer)
    if count * 2 > limit - position:
        raise MalformedError(f"{count} tagged fields do not fit into {limit - position} bytes")
    if count > MAXIMUM_TAGGED_FIELDS:
        raise MalformedError(f"{count} tagged fields, at most {MAXIMUM_TAGGED_FIELDS} are read")
    for _ in range(count):
        _, position = read_unsigned_varint(buffer, position)
        size_bytes, position = read_unsigned_varint(buffer, position)
        position += size_bytes
    if position > limit:
        raise MalformedError("a tagged field reaches beyond the end")
    return position
