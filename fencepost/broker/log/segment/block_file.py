"""Log file of a remote segment of which some blocks are on this node: each is a file of its own, and comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeAlias

from fencepost.broker.log.segment.block_layout import BlockLayout
from fencepost.broker.storage.disk import LogFile, StorageError

NotLocal: TypeAlias = "Callable[[int | None], NoReturn]"
"""Raises the error for a block that is not local; for the whole file if that is None."""


class LocalBlock:
    """A block that is here. holders: replies that are being sent from it."""

    __slots__ = ("file", "holders")

    def __init__(self, file: LogFile) -> None:
        self.file = file
        self.holders = 0


class BlockFile:
    """A `LogFile` that is read only. layout: None if the file has no blocks. blocks: those that are here, by number."""

    __slots__ = ("_last_write_ms", "_not_local", "blocks", "is_closed", "layout", "path", "size_bytes")

    def __init__(
        self, path: str, size_bytes: int, last_write_ms: int, layout: BlockLayout | None, not_local: NotLocal
    ) -> None:
        self.path = path
        self.size_bytes = size_bytes
        self.layout = layout
        self.blocks: dict[int, LocalBlock] = {}
        self.is_closed = False
        self._last_write_ms = last_write_ms
        self._not_local = not_local

    def local_end(self, position: int) -> int:
        """The end of the blocks that are here without a gap, from the one of a position on; the position if that one is
        missing."""
        layout = self.layout
        if layout is None:
            return position
        first = block = layout.at(position)
        while block in self.blocks:
            block += 1
        return min(layout.start(block), self.size_bytes) if block > first else position

    def read(self, position: int, length_bytes: int) -> memoryview:
        layout, end = self.layout, min(position + length_bytes, self.size_bytes)
        if layout is None:
            self._not_local(None)
        if end <= position:
            return memoryview(b"")
        pieces = []
        for block in range(layout.at(position), layout.at(end - 1) + 1):
            found = self.blocks.get(block)
            if found is None:
                self._not_local(block)
            start = max(position - layout.start(block), 0)
            pieces.append(found.file.read(start, min(end - layout.start(block), layout.block_bytes) - start))
        return pieces[0] if len(pieces) == 1 else memoryview(b"".join(pieces))

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        return self.held(position, length_bytes).read_to_send(position, length_bytes)

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        return self.held(position, length_bytes).send(descriptor, position, length_bytes)

    def held(self, position: int, length_bytes: int) -> HeldBlocks:
        """The blocks of a range, which stay while the result is used. Raises the error for a block that is missing."""
        layout = self.layout
        if layout is None:
            self._not_local(None)
        numbers = range(layout.at(position), layout.at(position + length_bytes - 1) + 1)
        for block in numbers:
            if block not in self.blocks:
                self._not_local(block)
        return HeldBlocks(self.path, layout, {block: self.blocks[block] for block in numbers})

    def append(self, *buffers: bytes | bytearray | memoryview) -> None:
        raise self._is_read_only("append to")

    def truncate(self, size_bytes: int) -> None:
        raise self._is_read_only("truncate")

    def _is_read_only(self, action: str) -> StorageError:
        return StorageError(f"cannot {action} {self.path}: it is in the object store, and does not change")

    def last_write_ms(self) -> int:
        return self._last_write_ms

    def set_last_write_ms(self, time_ms: int) -> None:
        pass

    def release_room(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True
        for block in self.blocks.values():
            block.file.close()
        self.blocks.clear()


class HeldBlocks:
    """A range of a block file that is being sent: its blocks are not evicted meanwhile, unless that takes too long.

    Each call sends or reads from one block, and so perhaps fewer bytes than were asked for.
    """

    __slots__ = ("_blocks", "_layout", "path")

    def __init__(self, path: str, layout: BlockLayout, blocks: dict[int, LocalBlock]) -> None:
        self.path = path
        self._layout = layout
        self._blocks = blocks
        for block in blocks.values():
            block.holders += 1

    def __del__(self) -> None:
        for block in self._blocks.values():
            block.holders -= 1

    def read_to_send(self, position: int, length_bytes: int) -> memoryview:
        file, start, most_bytes = self._in_block(position)
        return file.read_to_send(start, min(length_bytes, most_bytes))

    def send(self, descriptor: int, position: int, length_bytes: int) -> int:
        file, start, most_bytes = self._in_block(position)
        return file.send(descriptor, start, min(length_bytes, most_bytes))

    def _in_block(self, position: int) -> tuple[LogFile, int, int]:
        """The file of a position's block, the position in it, and the bytes from there to its end."""
        block = self._layout.at(position)
        start = position - self._layout.start(block)
        return self._blocks[block].file, start, self._layout.length(block) - start
