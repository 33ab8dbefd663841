"""Parts of remote segments that are on this node's disk, and the order in which they are evicted.

Blocks that their readers have passed go first, the earliest first; then those that were read longest ago. A part stays
for a time that a reader waits for, or that is being sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.segment.remote_segment import INDEXES, RemoteSegment
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

ASKED_FOR_S: Final = 5.0
"""How long a part waits for the reader that has asked for it."""
SENT_FOR_S: Final = 30.0
"""How long a client may take for its reply; after that its connection may be closed."""
END_BYTES: Final = 128 * 1024
"""A reader this close to the end of a block has passed it: the next read needs the next one."""


class _Part:
    """One part. read_s: when it was read last, or came. stays_until_s: for the reader that has asked for it."""

    __slots__ = ("is_passed", "number", "paths", "read_s", "segment", "size_bytes", "stays_until_s")

    def __init__(self, segment: RemoteSegment, number: int, size_bytes: int, now_s: float) -> None:
        self.segment = segment
        self.number = number
        self.size_bytes = size_bytes
        self.read_s = now_s
        self.stays_until_s = 0.0
        self.is_passed = False
        self.paths: tuple[str, ...] = ()
        if number != INDEXES:
            self.paths = (segment.log_blocks.blocks[number].file.path,)

    def may_go(self, now_s: float) -> bool:
        if now_s < self.stays_until_s:
            return False
        block = self.segment.log_blocks.blocks.get(self.number)
        return block is None or not block.holders or now_s - self.read_s >= SENT_FOR_S

    def drop(self) -> None:
        """Remove it from the disk. Raises StorageError."""
        segment = self.segment
        if segment.log_blocks.is_closed:
            for path in self.paths:
                segment.files.disk.delete(path)
        elif self.number == INDEXES:
            segment.drop_indexes()
        elif segment.has(self.number):
            segment.drop_block(self.number)


class LocalParts:
    """The parts of one node.

    total_bytes:  size of all; passed_bytes: size of those that no reader is at.
    blocks_count: blocks that were added. reads_count, read_bytes: reads that blocks have answered.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.total_bytes = 0
        self.passed_bytes = 0
        self.blocks_count = 0
        self.reads_count = 0
        self.read_bytes = 0
        self._now_s = now_s
        self._parts: dict[tuple[RemoteSegment, int], _Part] = {}
        self._passed: OrderedDict[_Part, None] = OrderedDict()
        self._current: OrderedDict[_Part, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, segment: RemoteSegment, number: int, size_bytes: int, *, is_asked_for: bool) -> None:
        """Add a part that is local from now on. is_asked_for: by a reader that waits for it."""
        now_s = self._now_s()
        part = self._parts[segment, number] = _Part(segment, number, size_bytes, now_s)
        if is_asked_for:
            part.stays_until_s = now_s + ASKED_FOR_S
        self.blocks_count += number != INDEXES
        self._current[part] = None
        self.total_bytes += size_bytes

    def keep(self, segment: RemoteSegment, number: int) -> None:
        """Keep the parts that a reader needs beside one that it waits for: the indexes and the blocks before it."""
        until_s = self._now_s() + ASKED_FOR_S
        for known in (INDEXES, *range(number - 1, -1, -1)):
            part = self._parts.get((segment, known))
            if part is not None and not part.is_passed:
                part.stays_until_s = until_s
            elif known != INDEXES:
                return

    def note_read(self, segment: RemoteSegment, position: int, end: int) -> None:
        """Note that a reader has got a range of the log file."""
        layout = segment.log_blocks.layout
        if layout is None:
            return
        self.reads_count += 1
        self.read_bytes += end - position
        now_s = self._now_s()
        last = layout.at(end - 1)
        near_end_bytes = min(END_BYTES, layout.block_bytes // 4)
        for number in range(layout.at(position), last + 1):
            block_end = layout.start(number) + layout.length(number)
            has_passed = number < last or end >= block_end - (0 if block_end == layout.size_bytes else near_end_bytes)
            self._note_read((segment, number), now_s, has_passed=has_passed)
        self._note_read((segment, INDEXES), now_s, has_passed=end == layout.size_bytes)

    def _note_read(self, known_as: tuple[RemoteSegment, int], now_s: float, *, has_passed: bool) -> None:
        part = self._parts.get(known_as)
        if part is not None:
            part.read_s = now_s
            part.stays_until_s = 0.0
            self._move(part, is_passed=has_passed)

    def is_passed(self, segment: RemoteSegment, number: int) -> bool:
        """Whether a part is local and all of its readers have passed it."""
        part = self._parts.get((segment, number))
        return part is not None and part.is_passed

    def let_go(self, segment: RemoteSegment) -> None:
        """Note that a local segment has taken the place of a remote one, with its index files; blocks go first."""
        for part in [one for one in self._parts.values() if one.segment is segment]:
            if part.number == INDEXES:
                self._forget(part)
            else:
                part.stays_until_s = 0.0
                self._move(part, is_passed=True)
                self._passed.move_to_end(part, last=False)

    def evict(self, excess_bytes: int) -> int:
        """Evict parts until the bytes are free, or nothing more may go. Returns the bytes of those evicted."""
        now_s = self._now_s()
        evicted_bytes = 0
        for parts in (self._passed, self._current):
            for part in list(parts) if evicted_bytes < excess_bytes else ():
                if evicted_bytes >= excess_bytes:
                    break
                if part.may_go(now_s):
                    evicted_bytes += part.size_bytes
                    self._drop(part)
        return evicted_bytes

    def evict_idle(self, idle_s: float, excess_bytes: int) -> int:
        """Evict parts that nobody has read for a time, until that many bytes are free; returns the bytes. All parts of
        segments go that were closed."""
        now_s = self._now_s()
        evicted_bytes = 0
        for part in list(self._parts.values()):
            if part.segment.log_blocks.is_closed:
                self._drop(part)
            elif evicted_bytes < excess_bytes and now_s - part.read_s >= idle_s and part.may_go(now_s):
                evicted_bytes += part.size_bytes
                self._drop(part)
        return evicted_bytes

    def _move(self, part: _Part, *, is_passed: bool) -> None:
        if part.is_passed is not is_passed:
            part.is_passed = is_passed
            self.passed_bytes += part.size_bytes if is_passed else -part.size_bytes
            before, after = (self._current, self._passed) if is_passed else (self._passed, self._current)
            del before[part]
            after[part] = None
        elif not is_passed:
            self._current.move_to_end(part)

    def _drop(self, part: _Part) -> None:
        self._forget(part)
        try:
            part.drop()
        except StorageError as error:
            log.warning("block_not_removed", path=part.segment.log_blocks.path, reason=str(error))

    def _forget(self, part: _Part) -> None:
        del self._parts[part.segment, part.number]
        del (self._passed if part.is_passed else self._current)[part]
        self.total_bytes -= part.size_bytes
        self.passed_bytes -= part.size_bytes if part.is_passed else 0
