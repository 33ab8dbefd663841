"""Scan of one log file: every batch with its checksum, and every place without a right batch.

A batch's checksum covers neither its offset nor its length, leader epoch and format. Where the checksum is right, the
surrounding batches often determine these fields; then nothing is lost, and the batch counts as `Mended`.

The following batch decides about offsets: a batch that jumps ahead has a false offset if the next one has the expected
offset, and a right one if the next one continues it, as after a gap that compaction has left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fencepost.broker.log.segment.header_plausibility import CURRENT_MAGIC, MAX_RELATIVE_OFFSET, SMALLEST_BATCH_LENGTH
from fencepost.broker.storage.disk import LogFile
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    RecordBatch,
    computed_crc,
    read_header,
)

READ_BYTES = 1024 * 1024
DOUBTFUL_LIMIT = 128
"""The most batches that wait until the fault is known."""

# Offsets below 2^48, lengths below 2^27 and leader epochs below 2^24: then a checksum is worth its cost.
_CANDIDATE = re.compile(rb"(?=\x00\x00.{6}[\x00-\x07].{3}\x00.{3}\x02)", re.DOTALL)
_CANDIDATE_BYTES = 17


class Whole(NamedTuple):
    """A batch as it was written."""

    position: int
    batch: RecordBatch


class Mended(NamedTuple):
    """A batch with its records as they were written, and its header with `batch.header` in place of the file's.

    reason: description of the false value, and the source of the true one.
    """

    position: int
    batch: RecordBatch
    reason: str


class Damaged(NamedTuple):
    """A part of the file that cannot be read, or whose offsets are unknown.

    first_offset: first offset of its records.
    end_offset:   offset after it; None if nothing follows, and the end is unknown.
    is_tail:      whether nothing valid follows in this file.
    """

    position: int
    end_position: int
    first_offset: int
    end_offset: int | None
    reason: str
    is_tail: bool


Found = Whole | Mended | Damaged


class _Raw(NamedTuple):
    """A batch with a right checksum. false_fields: of its header, except offset and epoch, which are not judged yet."""

    position: int
    header: BatchHeader
    buffer: memoryview
    false_fields: tuple[str, ...]


class _Hole(NamedTuple):
    position: int
    end_position: int
    reason: str


def scan_segment(
    file: LogFile, base_offset: int, next_base_offset: int | None, *, end_offset: int | None = None
) -> Iterator[Found]:
    """Yield the content of a log file, in order.

    base_offset:      none of its batches may begin below.
    next_base_offset: base of the next segment, the bound on its last batch's end; None for the last segment.
    end_offset:       the known end of the last segment; None if it is unknown.
    Raises StorageError.
    """
    judge = _OffsetJudge(base_offset, next_base_offset, end_offset)
    for raw in _raw_batches(file, judge):
        yield from judge.take(raw)
    yield from judge.finish()


class _OffsetJudge:
    """Decides which offsets are true; doubtful batches wait until the next one decides."""

    def __init__(self, base_offset: int, next_base_offset: int | None, end_offset: int | None) -> None:
        self.expected = base_offset
        self._ceiling = next_base_offset if next_base_offset is not None else base_offset + MAX_RELATIVE_OFFSET + 1
        self._end_offset = next_base_offset if next_base_offset is not None else end_offset
        self._is_last_segment = next_base_offset is None
        self._doubtful: list[_Raw | _Hole] = []

    def may_be_next(self, header: BatchHeader) -> bool:
        return self.expected <= header.base_offset and header.last_offset < self._ceiling

    def take(self, raw: _Raw | _Hole) -> Iterator[Found]:
        doubtful = self._doubtful
        if isinstance(raw, _Hole):
            self._doubt(raw)
            return
        if not doubtful:
            if raw.header.base_offset == self.expected:
                yield self._accept(raw)
            else:
                doubtful.append(raw)
            return
        contiguous_end = self._contiguous_end()
        if contiguous_end is not None and raw.header.base_offset == contiguous_end:
            yield from self._mend_all(f"the batch behind it begins at offset {contiguous_end}")
            yield self._accept(raw)
            return
        last = doubtful[-1]
        is_continued = (
            isinstance(last, _Raw)
            and self.may_be_next(last.header)
            and raw.header.base_offset == last.header.last_offset + 1
            and raw.header.last_offset < self._ceiling
        )
        if is_continued or (len(doubtful) == 1 and self._jumps_on(last, raw)):
            assert isinstance(last, _Raw)
            doubtful.pop()
            yield from self._resolve(last.header.base_offset, is_tail=False)
            yield self._accept(last)
            yield from self.take(raw)
            return
        self._doubt(raw)

    def _doubt(self, raw: _Raw | _Hole) -> None:
        """Defer a decision. Of a file full of doubt only DOUBTFUL_LIMIT batches are kept; the rest stays undecided."""
        doubtful = self._doubtful
        doubtful.append(raw)
        if len(doubtful) > DOUBTFUL_LIMIT:
            first, last = doubtful[0], doubtful[DOUBTFUL_LIMIT // 2]
            reason = f"batches whose offsets do not follow offset {self.expected}"
            doubtful[: DOUBTFUL_LIMIT // 2 + 1] = [_Hole(first.position, _end_position(last), reason)]

    def _jumps_on(self, last: _Raw | _Hole, raw: _Raw) -> bool:
        """Whether two consecutive batches leave a gap before them, as in a compacted log."""
        return (
            isinstance(last, _Raw)
            and self.may_be_next(last.header)
            and last.header.last_offset < raw.header.base_offset
            and raw.header.last_offset < self._ceiling
        )

    def finish(self) -> Iterator[Found]:
        doubtful = self._doubtful
        if not doubtful:
            return
        contiguous_end = self._contiguous_end()
        if contiguous_end is not None and contiguous_end == self._end_offset:
            yield from self._mend_all(f"the log goes on at offset {contiguous_end}")
            return
        last = doubtful[-1]
        if isinstance(last, _Raw) and self.may_be_next(last.header) and self._may_end_with(last):
            doubtful.pop()
            yield from self._resolve(last.header.base_offset, is_tail=False)
            yield self._accept(last)
        elif contiguous_end is not None and self._end_offset is None:
            # Only the active segment has an unknown end: it is appended to without gaps.
            yield from self._mend_all("the batch before it ends there")
        elif self._end_offset is not None:
            yield from self._resolve(self._end_offset, is_tail=True)
        else:
            yield from self._give_up(doubtful, None, is_tail=True)
        doubtful.clear()

    def _may_end_with(self, last: _Raw) -> bool:
        """Whether a jump in the last batch can be a gap from compaction."""
        if self._end_offset is None:
            return len(self._doubtful) > 1 and isinstance(self._doubtful[0], _Hole)
        return (
            last.header.last_offset < self._end_offset
            if not self._is_last_segment
            else (last.header.last_offset + 1 == self._end_offset)
        )

    def _contiguous_end(self) -> int | None:
        """Return the end of the doubtful batches if they join without a gap; None if they cannot."""
        offset = self.expected
        for raw in self._doubtful:
            if isinstance(raw, _Hole):
                return None
            offset += raw.header.last_offset_delta + 1
        return offset

    def _resolve(self, next_offset: int, *, is_tail: bool) -> Iterator[Found]:
        """Decide about all doubtful batches, now that the offset after them is known."""
        true = self._true_offsets(next_offset)
        given_up: list[_Raw | _Hole] = []
        for raw, offset in zip(self._doubtful, true, strict=True):
            if offset is None or not isinstance(raw, _Raw):
                given_up.append(raw)
                continue
            yield from self._give_up(given_up, offset, is_tail=False)
            given_up = []
            yield self._accept(raw, "the batches around it prove it", offset)
        yield from self._give_up(given_up, next_offset, is_tail=is_tail)
        self._doubtful.clear()

    def _true_offsets(self, next_offset: int) -> list[int | None]:
        """Return the base offset of each doubtful batch; None if it is unknown."""
        doubtful = self._doubtful
        true: list[int | None] = [None] * len(doubtful)
        start = 0
        while start < len(doubtful):
            if isinstance(doubtful[start], _Hole):
                start += 1
                continue
            end = start
            while end < len(doubtful) and isinstance(doubtful[end], _Raw):
                end += 1
            run = [raw.header for raw in doubtful[start:end] if isinstance(raw, _Raw)]
            after = next_offset if end == len(doubtful) else None
            true[start:end] = _offsets_of_run(
                run, self.expected if start == 0 else None, after, self._bounds(next_offset)
            )
            start = end
        return true

    def _bounds(self, next_offset: int) -> range:
        return range(self.expected, min(self._ceiling, next_offset))

    def _mend_all(self, evidence: str) -> Iterator[Found]:
        for raw in self._doubtful:
            assert isinstance(raw, _Raw)
            yield self._accept(raw, evidence)
        self._doubtful.clear()

    def _accept(self, raw: _Raw, evidence: str | None = None, true_offset: int | None = None) -> Found:
        """Accept a batch as the next one: with its own offset, or (evidence) with another, or the expected one."""
        header = raw.header
        false_fields = raw.false_fields
        true_offset = self.expected if true_offset is None else true_offset
        if evidence is not None and header.base_offset != true_offset:
            false_fields += (f"base offset {header.base_offset} instead of {true_offset}: {evidence}",)
            header = header._replace(base_offset=true_offset)
        self.expected = header.last_offset + 1
        batch = RecordBatch(header, raw.buffer)
        if not false_fields:
            return Whole(raw.position, batch)
        return Mended(raw.position, batch, "; ".join(false_fields))

    def _give_up(self, items: list[_Raw | _Hole], end_offset: int | None, *, is_tail: bool) -> Iterator[Damaged]:
        if not items:
            return
        last = items[-1]
        end_position = _end_position(last)
        reasons = [
            item.reason
            if isinstance(item, _Hole)
            else f"a batch with base offset {item.header.base_offset} where offset {self.expected} was expected"
            for item in items[:3]
        ]
        yield Damaged(items[0].position, end_position, self.expected, end_offset, "; ".join(reasons), is_tail)
        if end_offset is not None:
            self.expected = end_offset


def _end_position(item: _Raw | _Hole) -> int:
    return item.end_position if isinstance(item, _Hole) else item.position + len(item.buffer)


def _offsets_of_run(run: list[BatchHeader], before: int | None, after: int | None, bounds: range) -> list[int | None]:
    """Return the base offsets of adjacent batches; None if they are unknown.

    before, after: the offsets at which the run begins and ends; None if something unreadable is in between.
    bounds:        the range of all of them.

    Without false offsets and gaps, every batch has the same distance from its offset in a run that begins at 0. Gaps
    from compaction make that distance rise. So the longest rising row of distances is true, if two of them confirm
    each other; and a batch between two of equal distance has that distance, too.
    """
    ideal, distances = 0, []
    for header in run:
        is_possible = header.base_offset in bounds and header.last_offset in bounds
        distances.append(header.base_offset - ideal if is_possible else None)
        ideal += header.last_offset_delta + 1
    row: list[int | None] = [before, *distances, None if after is None else after - ideal]
    members = _longest_rising_row(row, must_end=after is not None)
    is_unanimous = len(members) == sum(1 for distance in row if distance is not None) and None not in distances
    true: list[int | None] = []
    ideal = 0
    for slot, header in enumerate(run, 1):
        lower = max((one for one in members if one < slot), default=None)
        upper = min((one for one in members if one > slot), default=None)
        neighbours = {row[one] for one in (lower, upper) if one is not None}
        distance = None
        if slot in members:
            is_confirmed = is_unanimous or len(run) == 1 or row[slot] in neighbours
            distance = row[slot] if is_confirmed else None
        elif lower is not None and upper is not None and row[lower] == row[upper]:
            distance = row[lower]
        true.append(None if distance is None else distance + ideal)
        ideal += header.last_offset_delta + 1
    return true


def _longest_rising_row(row: list[int | None], *, must_end: bool) -> list[int]:
    """Return the slots of the longest subsequence that does not fall; with `must_end`, of those with the last slot.

    Among equally long ones, that with the most equal neighbours.
    """
    best: list[tuple[int, int, list[int]]] = []  # length, equal neighbours, slots
    for slot, value in enumerate(row):
        found: tuple[int, int, list[int]] = (0, 0, [])
        if value is not None:
            found = (1, 0, [slot])
            for earlier in range(slot):
                other = row[earlier]
                if other is not None and other <= value:
                    length, equal, slots = best[earlier]
                    found = max(found, (length + 1, equal + (other == value), [*slots, slot]))
        best.append(found)
    return best[-1][2] if must_end else max(best)[2]


def _raw_batches(file: LogFile, judge: _OffsetJudge) -> Iterator[_Raw | _Hole]:
    position = 0
    chunk = memoryview(b"")
    chunk_position = 0
    size_bytes = file.size_bytes
    while position < size_bytes:
        start = position - chunk_position
        if start + HEADER_BYTES > len(chunk):
            chunk, chunk_position, start = file.read(position, READ_BYTES), position, 0
        if len(chunk) - start < HEADER_BYTES:
            yield _Hole(position, size_bytes, f"{size_bytes - position} bytes are no batch")
            return
        header = read_header(chunk, start)
        length_bytes = header.size_bytes
        if header.batch_length >= SMALLEST_BATCH_LENGTH and position + length_bytes <= size_bytes:
            if start + length_bytes > len(chunk):
                chunk, chunk_position, start = file.read(position, max(READ_BYTES, length_bytes)), position, 0
            buffer = chunk[start : start + length_bytes]
            if header.crc == computed_crc(buffer) and header.last_offset_delta >= 0:
                yield _checked(position, header, buffer)
                position += length_bytes
                continue
        end_position = _next_batch(file, position + 1, judge)
        mended = _with_true_length(file, position, end_position, header)
        yield mended or _Hole(position, end_position, _what_is_wrong(header, size_bytes - position))
        position = end_position


def _checked(position: int, header: BatchHeader, buffer: memoryview) -> _Raw:
    if header.magic == CURRENT_MAGIC:
        return _Raw(position, header, buffer, ())
    reason = f"format {header.magic} instead of {CURRENT_MAGIC}: the checksum is that of format {CURRENT_MAGIC}"
    return _Raw(position, header._replace(magic=CURRENT_MAGIC), buffer, (reason,))


def _with_true_length(file: LogFile, position: int, end_position: int, header: BatchHeader) -> _Raw | None:
    """Return the batch between two positions, if its length is its only fault."""
    length_bytes = end_position - position
    if length_bytes < HEADER_BYTES or header.size_bytes == length_bytes or header.last_offset_delta < 0:
        return None
    buffer = file.read(position, length_bytes)
    if header.crc != computed_crc(buffer):
        return None
    true_length = length_bytes - LENGTH_OVERHEAD_BYTES
    reason = f"length {header.batch_length} instead of {true_length}: that is where its checksum holds"
    raw = _checked(position, header._replace(batch_length=true_length), buffer)
    return raw._replace(false_fields=(reason, *raw.false_fields))


def _what_is_wrong(header: BatchHeader, left_bytes: int) -> str:
    if not any(header):
        return "zeros"
    if header.batch_length < SMALLEST_BATCH_LENGTH:
        return f"no batch has a length of {header.batch_length} bytes"
    if header.size_bytes > left_bytes:
        return f"a batch of {header.size_bytes} bytes, of which {left_bytes} are left in the file"
    return "the checksum of a batch does not hold"


def _next_batch(file: LogFile, position: int, judge: _OffsetJudge) -> int:
    """Return the position of the first possible next batch from a position on; the file's end if there is none."""
    size_bytes = file.size_bytes
    while position + HEADER_BYTES <= size_bytes:
        chunk = bytes(file.read(position, READ_BYTES))
        for match in _CANDIDATE.finditer(chunk):
            candidate = position + match.start()
            if _has_batch_at(file, candidate, judge):
                return candidate
        if len(chunk) < READ_BYTES:
            break
        position += len(chunk) - _CANDIDATE_BYTES + 1
    return size_bytes


def _has_batch_at(file: LogFile, position: int, judge: _OffsetJudge) -> bool:
    """Whether a possible next batch begins here; one inside of another's records has no neighbour behind."""
    start = file.read(position, HEADER_BYTES)
    if len(start) < HEADER_BYTES:
        return False
    header = read_header(start)
    end_position = position + header.size_bytes
    if header.batch_length < SMALLEST_BATCH_LENGTH or end_position > file.size_bytes:
        return False
    if header.last_offset_delta < 0 or not judge.may_be_next(header):
        return False
    if header.crc != computed_crc(file.read(position, header.size_bytes)):
        return False
    if end_position == file.size_bytes:
        return True
    behind = file.read(end_position, HEADER_BYTES)
    return len(behind) < HEADER_BYTES or read_header(behind).magic == CURRENT_MAGIC
