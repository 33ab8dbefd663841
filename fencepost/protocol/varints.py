"""Zig-zag variable-length integers, as records use them: small magnitudes, positive or negative, take few bytes.

Unsigned variable-length integers, which messages use, are in `protocol.primitives`.
Source: Kafka's ByteUtils.readVarint, readVarlong, writeVarint, writeVarlong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.protocol.primitives import Buffer, DecodeError

_MAXIMUM_VARINT_BITS = 35  # five groups of seven bits
_MAXIMUM_VARLONG_BITS = 70


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed 32-bit integer; return it and the position after it.

    Raises IndexError at the end of the buffer and DecodeError for an integer of more than 32 bits.
    """
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    higher = buffer[position + 1]
    if higher < 0x80:  # two bytes: most lengths
        return (higher << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
    return _read_longer(buffer, position, 32, _MAXIMUM_VARINT_BITS)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed 64-bit integer; return it and the position after it.

    Raises IndexError at the end of the buffer and DecodeError for an integer of more than 64 bits.
    """
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    higher = buffer[position + 1]
    if higher < 0x80:  # two bytes: most lengths
        return (higher << 6 | byte >> 1 & 0x3F) ^ -(byte & 1), position + 2
    return _read_longer(buffer, position, 64, _MAXIMUM_VARLONG_BITS)


def _read_longer(buffer: Buffer, position: int, width_bits: int, maximum_bits: int) -> tuple[int, int]:
    value = 0
    start = position
    for shift in range(0, maximum_bits, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> width_bits:
                break
            return (value >> 1) ^ -(value & 1), position
    raise DecodeError(f"a variable-length integer is longer than {width_bits} bits", position=start)


def write_varint(out: bytearray, value: int) -> None:
    """Append a signed integer of at most 64 bits."""
    out += VARINTS[value]


def _encoded(value: int) -> bytes:
    value = value << 1 if value >= 0 else ~value << 1 | 1
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


class _Varints(dict[int, bytes]):
    def __missing__(self, value: int) -> bytes:
        return _encoded(value)


VARINTS: Final[Mapping[int, bytes]] = _Varints((value, _encoded(value)) for value in range(-64, 512))
"""Signed integers as `write_varint` encodes them. Most lengths and distances are looked up; others are encoded."""
