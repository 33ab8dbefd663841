"""Blocks of a remote segment's log file: the units in which readers fetch it, each with a checksum of its own.

Encoded in the segment's metadata: the size of a block in four bytes, then the SHA-256 of each block, back to back. So
segments that were stored with another size stay readable.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

BLOCK_BYTES: Final = 4 * 1024 * 1024
CHECKSUM_BYTES: Final = 32
_SIZE: Final = struct.Struct(">I")


class BlockLayout(NamedTuple):
    """The blocks of a file of `size_bytes`. checksums: SHA-256 of each, back to back."""

    size_bytes: int
    block_bytes: int
    checksums: bytes

    @property
    def blocks_count(self) -> int:
        """The number of blocks; the last one may be shorter than the others."""
        return _count(self.size_bytes, self.block_bytes)

    def at(self, position: int) -> int:
        """The number of the block that holds a position."""
        return position // self.block_bytes

    def start(self, block: int) -> int:
        """The position of a block."""
        return block * self.block_bytes

    def length(self, block: int) -> int:
        """The size of a block in bytes."""
        return min(self.block_bytes, self.size_bytes - self.start(block))

    def checksum(self, block: int) -> bytes:
        """The SHA-256 of a block."""
        return self.checksums[block * CHECKSUM_BYTES : (block + 1) * CHECKSUM_BYTES]


def encode_block_checksums(block_bytes: int, checksums: Sequence[bytes]) -> bytes:
    """Encode the checksums of all blocks of a file."""
    return _SIZE.pack(block_bytes) + b"".join(checksums)


def decode_block_layout(size_bytes: int, encoded: bytes | None) -> BlockLayout | None:
    """The layout of a file; None if nothing usable is stored, so that the file is fetched as a whole."""
    if encoded is None or len(encoded) < _SIZE.size:
        return None
    (block_bytes,) = _SIZE.unpack_from(encoded)
    checksums = encoded[_SIZE.size :]
    if not block_bytes or len(checksums) != CHECKSUM_BYTES * _count(size_bytes, block_bytes):
        return None
    return BlockLayout(size_bytes, block_bytes, checksums)


def _count(size_bytes: int, block_bytes: int) -> int:
    return -(-size_bytes // block_bytes)
