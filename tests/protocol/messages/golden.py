"""Messages beside their bytes, written down once after another implementation (kio) had read and written the same."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.schema import decode, encode

TOPIC_ID = bytes(range(16))


def assert_bytes(message: Any, version: int, *expected: str) -> None:
    """A message is these bytes at a version, in hex, and is read from them as it was."""
    encoded = bytes(encode(message, version))
    assert encoded.hex(" ") == " ".join(expected)
    assert decode(type(message), encoded, version) == message
