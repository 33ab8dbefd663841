"""Copy of the metadata file: the whole SQLite database with a checksum, replaced as a whole."""

from __future__ import annotations

import os

try:  # as hashlib has it, which also loads OpenSSL: 4 MB
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

COPY_SUFFIX = ".copy"

_MAGIC = b"fencepost metadata copy 1\n"
_DIGEST_BYTES = 32
_JOURNAL_MODE = slice(18, 20)
_ROLLBACK_JOURNAL = b"\x01\x01"
"""The bytes of SQLite's header for a database without a write-ahead log."""

_OWNER_ONLY = 0o600


def _digest(content: bytes | bytearray) -> bytes:
    return blake2b(content, digest_size=_DIGEST_BYTES).digest()


def write_copy(path: str, image: bytes) -> None:
    """Replace the copy, durably. image: the database as SQLite serializes it. Raises OSError."""
    content = bytearray(image)
    content[_JOURNAL_MODE] = _ROLLBACK_JOURNAL
    write_durably(path, _MAGIC + _digest(content) + content)


def read_copy(path: str) -> bytes | None:
    """Read the database from the copy; None if it is missing or its checksum is wrong."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError:
        return None
    digest_end = len(_MAGIC) + _DIGEST_BYTES
    image = content[digest_end:]
    if not content.startswith(_MAGIC) or _digest(image) != content[len(_MAGIC) : digest_end]:
        return None
    return image


def write_durably(path: str, content: bytes | bytearray) -> None:
    """Replace a file that only its owner may read. Raises OSError; the old file is then unchanged."""
    temporary = path + ".tmp"
    try:
        with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, _OWNER_ONLY)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    descriptor = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
