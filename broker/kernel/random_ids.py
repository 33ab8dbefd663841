"""UUIDs of version 4 as their 16 bytes, made of random ones; `uuid` brings with it what finds out about the machine."""

from __future__ import annotations


def random_uuid(random_bytes: bytes) -> bytes:
    """The UUID that takes its random bits from 16 bytes: never all zeros, which means "no id" on the wire."""
    marked = bytearray(random_bytes)
    marked[6] = marked[6] & 0x0F | 0x40
    marked[8] = marked[8] & 0x3F | 0x80
    return bytes(marked)


def uuid_text(uuid: bytes) -> str:
    """As it is written for people: `123e4567-e89b-42d3-a456-426614174000`."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
