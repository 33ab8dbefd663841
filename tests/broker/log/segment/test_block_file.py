"""A log file of which some blocks are local: reads of them equal reads of the whole file, and others raise."""

from __future__ import annotations

import hashlib
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from fencepost.broker.log.segment.block_file import BlockFile, LocalBlock
from fencepost.broker.log.segment.block_layout import decode_block_layout, encode_block_checksums
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.broker.storage.local_disk import LocalDisk

CONTENT = random.Random(7).randbytes(1_000)
BLOCK_BYTES = 64


class MissingError(Exception):
    """block: the one that was needed."""

    def __init__(self, block: int | None) -> None:
        super().__init__(block)
        self.block = block


def _missing(block: int | None) -> NoReturn:
    raise MissingError(block)


class Blocks:
    """A file, and its blocks, which can be added and dropped."""

    def __init__(self, disk: LocalDisk, directory: Path) -> None:
        pieces = [CONTENT[start : start + BLOCK_BYTES] for start in range(0, len(CONTENT), BLOCK_BYTES)]
        encoded = encode_block_checksums(BLOCK_BYTES, [hashlib.sha256(piece).digest() for piece in pieces])
        layout = decode_block_layout(len(CONTENT), encoded)
        self.count = len(pieces)
        self.file = BlockFile(str(directory / "0.log"), len(CONTENT), 123, layout, _missing)
        self._disk, self._directory, self._pieces = disk, directory, pieces

    def add(self, number: int) -> None:
        if number not in self.file.blocks:
            file = self._disk.open(str(self._directory / f"{number}-{random.random()}"))
            file.append(self._pieces[number])
            self.file.blocks[number] = LocalBlock(file)

    def drop(self, number: int) -> None:
        found = self.file.blocks.pop(number, None)
        if found is not None:
            found.file.close()
            os.unlink(found.file.path)


@pytest.fixture
def blocks(tmp_path: Path) -> Iterator[Blocks]:
    disk = LocalDisk()
    yield Blocks(disk, tmp_path)
    disk.close()


@pytest.mark.parametrize("seed", range(5))
def test_random_reads_equal_those_of_the_whole_file_while_blocks_come_and_go(blocks: Blocks, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(2_000):
        position, length_bytes = chance.randrange(len(CONTENT) + 10), chance.randrange(200)
        expected = CONTENT[position : position + length_bytes]
        needed: int | None = None
        try:
            assert bytes(blocks.file.read(position, length_bytes)) == expected
        except MissingError as missing:
            needed = missing.block
        if needed is not None:
            assert needed not in blocks.file.blocks
            assert needed * BLOCK_BYTES < position + length_bytes
            blocks.add(needed)
        if chance.random() < 0.1:
            blocks.drop(chance.randrange(blocks.count))


def test_the_end_of_what_is_local_without_a_gap_is_known(blocks: Blocks) -> None:
    for number in (0, 1, 3, blocks.count - 1):
        blocks.add(number)
    assert blocks.file.local_end(0) == blocks.file.local_end(100) == 2 * BLOCK_BYTES
    assert blocks.file.local_end(2 * BLOCK_BYTES + 5) == 2 * BLOCK_BYTES + 5
    assert blocks.file.local_end(3 * BLOCK_BYTES) == 4 * BLOCK_BYTES
    assert blocks.file.local_end(len(CONTENT) - 1) == len(CONTENT)


def test_a_range_over_several_blocks_is_sent_whole_and_holds_its_blocks_meanwhile(blocks: Blocks) -> None:
    for number in range(5):
        blocks.add(number)
    sent = FileSlice(blocks.file.held(30, 200), 30, 200)
    assert [blocks.file.blocks[number].holders for number in range(5)] == [1, 1, 1, 1, 0]
    assert b"".join(bytes(piece) for piece in sent.pieces()) == CONTENT[30:230]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        rest, sent_bytes = sent, 0
        while sent_bytes < 200:
            sent_bytes += rest.send(ours.fileno())
            rest = sent.from_position(sent_bytes) if sent_bytes < 200 else rest
        assert theirs.recv(1_000) == CONTENT[30:230]
    del sent, rest
    assert not any(one.holders for one in blocks.file.blocks.values())


def test_a_range_of_which_a_block_is_missing_cannot_be_held(blocks: Blocks) -> None:
    blocks.add(0)
    with pytest.raises(MissingError) as raised:
        blocks.file.held(0, BLOCK_BYTES + 1)
    assert raised.value.block == 1
    assert blocks.file.blocks[0].holders == 0


def test_a_reply_whose_block_was_removed_nevertheless_ends_with_an_error_and_not_with_other_bytes(
    blocks: Blocks,
) -> None:
    blocks.add(0)
    sent = FileSlice(blocks.file.held(0, BLOCK_BYTES), 0, BLOCK_BYTES)
    blocks.drop(0)
    with pytest.raises(StorageError, match="it is closed"):
        list(sent.pieces())


def test_nothing_is_read_of_a_file_without_blocks_and_nothing_written(tmp_path: Path) -> None:
    file = BlockFile(str(tmp_path / "0.log"), 100, 123, None, _missing)
    for read in (file.read, file.read_to_send):
        with pytest.raises(MissingError) as raised:
            read(0, 10)
        assert raised.value.block is None
    with pytest.raises(StorageError, match="does not change"):
        file.append(b"x")
    with pytest.raises(StorageError, match="does not change"):
        file.truncate(0)
    assert file.last_write_ms() == 123
