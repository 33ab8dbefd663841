"""UUIDs of version 4 as 16 bytes. Python's `uuid` is not used: it imports code that inspects the machine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


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
    """Make a UUID from 16 random bytes; it is never all zeros, which means "no id" on the wire."""
    marked = bytearray(random_bytes)
    marked[6] = marked[6] & 0x0F | 0x40
    marked[8] = marked[8] & 0x3F | 0x80
    return bytes(marked)


def uuid_text(uuid: bytes) -> str:
    """Format a UUID for people: `123e4567-e89b-42d3-a456-426614174000`."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
