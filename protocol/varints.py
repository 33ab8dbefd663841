"""Zig-zag variable-length integers, as records use them: small magnitudes, positive or negative, take few bytes.

Unsigned variable-length integers, which messages use, are in `protocol.primitives`.
Source: Kafka's ByteUtils.readVarint, readVarlong, writeVarint, writeVarlong.
"""

from __future__ import annotations

from protocol.primitives import Buffer, DecodeError

_MAXIMUM_VARINT_BITS = 35  # five groups of seven bits
_MAXIMUM_VARLONG_BITS = 70


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed 32-bit integer; return it and the position after it.

    Raises IndexError at the end of the buffer and DecodeError for an integer of more than 32 bits.
    """
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_longer(buffer, position, 32, _MAXIMUM_VARINT_BITS)


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Read a signed 64-bit integer; return it and the position after it.

    Raises IndexError at the end of the buffer and DecodeError for an integer of more than 64 bits.
    """
    byte = buffer[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    return _read_longer(buffer, position, 64, _MAXIMUM_VARLONG_BITS)


def _read_longer(buffer: Buffer, position: int, width_bits: int, maximum_bits: int) -> tuple[int, int]:
    byte = buffer[position + 1]
    if byte < 0x80:  # two bytes: most lengths
        value = buffer[position] & 0x7F | byte << 7
        return (value >> 1) ^ -(value & 1), position + 2
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
    if 0 <= value < _SHORT_COUNT:
        out += _SHORT[value]
        return
    value = value << 1 if value >= 0 else ~value << 1 | 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _encoded_short(value: int) -> bytes:
    doubled = value << 1
    return bytes((doubled,)) if doubled < 0x80 else bytes((doubled & 0x7F | 0x80, doubled >> 7))


_SHORT_COUNT = 512
"""Most lengths and distances are below this, and are looked up; above 8191 there would be a third byte."""
_SHORT = tuple(map(_encoded_short, range(_SHORT_COUNT)))


def varint_size_bytes(value: int) -> int:
    """How many bytes `write_varint` appends for `value`."""
    value = value << 1 if value >= 0 else ~value << 1 | 1
    return max(1, (value.bit_length() + 6) // 7)
