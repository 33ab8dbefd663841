"""UUIDs of version 4 as 16 bytes. Python's `uuid` is not used: it imports code that inspects the machine."""

from __future__ import annotations

import base64
import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

BEGINS_WITH_DASH: Final = 0b111110
"""The first six bits of bytes whose URL-safe base64 begins with a dash."""


class RandomIds:
    """Maker of UUIDs. randomness: their source; the system's, unless given."""

    def __init__(self, randomness: random.Random | None = None) -> None:
        self._randomness = randomness

    def uuid(self) -> bytes:
        randomness = self._randomness
        return random_uuid(os.urandom(16) if randomness is None else randomness.getrandbits(128).to_bytes(16, "big"))

    def text(self) -> str:
        """Make a UUID, formatted for people."""
        return uuid_text(self.uuid())


def random_uuid(random_bytes: bytes) -> bytes:
    """Make a UUID from 16 random bytes.

    It is never all zeros, which means "no id" on the wire. Its base64 never begins with a dash, because command lines
    would read an option (Kafka's Uuid.randomUuid).
    """
    marked = bytearray(random_bytes)
    if marked[0] >> 2 == BEGINS_WITH_DASH:
        marked[0] ^= 0x80
    marked[6] = marked[6] & 0x0F | 0x40
    marked[8] = marked[8] & 0x3F | 0x80
    return bytes(marked)


def uuid_text(uuid: bytes) -> str:
    """Format a UUID for people: `123e4567-e89b-42d3-a456-426614174000`."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def base64_uuid() -> str:
    """Make a UUID as Kafka writes one: 22 characters of URL-safe base64, without padding (Uuid.toString)."""
    return base64.urlsafe_b64encode(random_uuid(os.urandom(16))).rstrip(b"=").decode()
