"""Blocks of a log file: their places, their checksums, and metadata that say nothing usable of them."""

from __future__ import annotations

import hashlib

import pytest

from fencepost.broker.log.segment.block_layout import decode_block_layout, encode_block_checksums

CONTENT = bytes(range(100))


def checksums(block_bytes: int) -> list[bytes]:
    return [
        hashlib.sha256(CONTENT[start : start + block_bytes]).digest() for start in range(0, len(CONTENT), block_bytes)
    ]


@pytest.mark.parametrize("block_bytes", [1, 30, 50, 99, 100, 101])
def test_the_blocks_cover_the_file_and_have_their_checksums(block_bytes: int) -> None:
    layout = decode_block_layout(len(CONTENT), encode_block_checksums(block_bytes, checksums(block_bytes)))
    assert layout is not None
    pieces = [CONTENT[layout.start(one) : layout.start(one) + layout.length(one)] for one in range(layout.blocks_count)]
    assert b"".join(pieces) == CONTENT
    assert [hashlib.sha256(piece).digest() for piece in pieces] == [
        layout.checksum(one) for one in range(layout.blocks_count)
    ]
    assert all(layout.start(layout.at(position)) <= position for position in range(len(CONTENT)))


@pytest.mark.parametrize(
    "encoded",
    [
        None,
        b"",
        b"\0\0\0",
        encode_block_checksums(0, []),
        encode_block_checksums(50, checksums(30)),
        encode_block_checksums(50, checksums(50))[:-1],
        encode_block_checksums(2**32 - 1, []),
    ],
)
def test_metadata_that_do_not_fit_the_file_name_no_blocks(encoded: bytes | None) -> None:
    assert decode_block_layout(len(CONTENT), encoded) is None
