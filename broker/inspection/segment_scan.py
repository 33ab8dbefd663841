"""Reading the whole of one log file: every batch with its checksum, and every place where no right one stands.

The checksum of a batch covers neither its offset nor its length, leader epoch and format. Where the checksum holds,
those can often be told from what surrounds the batch; then nothing is lost, and the batch counts as `Mended`.

Offsets are judged by what follows: a batch that jumps ahead has a false offset if the next one has the offset that was
expected behind it, and a right one if the next one continues it, as after a gap that compaction has left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from broker.disk import LogFile
from broker.log.batch_order import CURRENT_MAGIC, MAX_RELATIVE_OFFSET, SMALLEST_BATCH_LENGTH
from protocol.record_batch import (
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    BatchHeader,
    RecordBatch,
    computed_crc,
    read_header,
)

READ_BYTES = 1024 * 1024

# Offsets below 2^48, lengths below 2^27 and leader epochs below 2^24: where it may be worth computing a checksum.
_CANDIDATE = re.compile(rb"(?=\x00\x00.{6}[\x00-\x07].{3}\x00.{3}\x02)", re.DOTALL)
_CANDIDATE_BYTES = 17


class Whole(NamedTuple):
    """A batch that is as it was written."""

    position: int
    batch: RecordBatch


class Mended(NamedTuple):
    """A batch whose records are as they were written, and whose header is so with `batch.header` in place of what the
    file says.

    reason: what is false in the file, and how the truth is known.
    """

    position: int
    batch: RecordBatch
    reason: str


class Damaged(NamedTuple):
    """A part of the file that cannot be read, or of which the offsets cannot be told.

    first_offset: of what was in it.
    end_offset:   of what follows; None where nothing does, and it is not known what was the end.
    is_tail:      nothing valid follows in this file.
    """

    position: int
    end_position: int
    first_offset: int
    end_offset: int | None
    reason: str
    is_tail: bool


Found = Whole | Mended | Damaged


class _Raw(NamedTuple):
    """A batch whose checksum holds. false_fields: of its header; offset and epoch are not judged yet."""

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
    """All of a log file, in order.

    base_offset:      none of its batches may begin below.
    next_base_offset: of the next segment, at which its last batch ends at the latest; None for the last segment.
    end_offset:       where the last segment is known to end; None where that is not known.
    Raises StorageError.
    """
    judge = _OffsetJudge(base_offset, next_base_offset, end_offset)
    for raw in _raw_batches(file, judge):
        yield from judge.take(raw)
    yield from judge.finish()


class _OffsetJudge:
    """Decides which offsets are true, with those in doubt held back until the next batch tells."""

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
            doubtful.append(raw)
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
            yield from self._give_up(doubtful[:-1], last.header.base_offset, is_tail=False)
            doubtful.clear()
            yield self._accept(last)
            yield from self.take(raw)
            return
        doubtful.append(raw)

    def _jumps_on(self, last: _Raw | _Hole, raw: _Raw) -> bool:
        """Whether two batches in a row leave a gap before them, as in a log that was compacted."""
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
            yield from self._give_up(doubtful[:-1], last.header.base_offset, is_tail=False)
            yield self._accept(last)
        elif contiguous_end is not None and self._end_offset is None:
            # Only the active segment ends where nothing is known: it is appended to without gaps.
            yield from self._mend_all("the batch before it ends there")
        else:
            yield from self._give_up(doubtful, self._end_offset, is_tail=True)
        doubtful.clear()

    def _may_end_with(self, last: _Raw) -> bool:
        """Whether a jump in the last batch can be a gap that compaction has left."""
        if self._end_offset is None:
            return len(self._doubtful) > 1 and isinstance(self._doubtful[0], _Hole)
        return (
            last.header.last_offset < self._end_offset
            if not self._is_last_segment
            else (last.header.last_offset + 1 == self._end_offset)
        )

    def _contiguous_end(self) -> int | None:
        """Where the log goes on if those in doubt follow each other without a gap; None if that cannot be."""
        offset = self.expected
        for raw in self._doubtful:
            if isinstance(raw, _Hole):
                return None
            offset += raw.header.last_offset_delta + 1
        return offset

    def _mend_all(self, evidence: str) -> Iterator[Found]:
        for raw in self._doubtful:
            assert isinstance(raw, _Raw)
            yield self._accept(raw, evidence)
        self._doubtful.clear()

    def _accept(self, raw: _Raw, evidence: str | None = None) -> Found:
        """Take a batch for the next one: with the offset that it has, or (evidence) with the one that was expected."""
        header = raw.header
        false_fields = raw.false_fields
        if evidence is not None and header.base_offset != self.expected:
            false_fields += (f"base offset {header.base_offset} instead of {self.expected}: {evidence}",)
            header = header._replace(base_offset=self.expected)
        self.expected = header.last_offset + 1
        batch = RecordBatch(header, raw.buffer)
        if not false_fields:
            return Whole(raw.position, batch)
        return Mended(raw.position, batch, "; ".join(false_fields))

    def _give_up(self, items: list[_Raw | _Hole], end_offset: int | None, *, is_tail: bool) -> Iterator[Damaged]:
        if not items:
            return
        last = items[-1]
        end_position = last.end_position if isinstance(last, _Hole) else last.position + len(last.buffer)
        reasons = [
            item.reason
            if isinstance(item, _Hole)
            else f"a batch with base offset {item.header.base_offset} where offset {self.expected} was expected"
            for item in items[:3]
        ]
        yield Damaged(items[0].position, end_position, self.expected, end_offset, "; ".join(reasons), is_tail)
        if end_offset is not None:
            self.expected = end_offset


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
    """The batch between two positions, if all that is wrong with it is what it says of its length."""
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
    """Where the first batch at or after a position begins that can be the next one; the file's end if there is none."""
    size_bytes = file.size_bytes
    while position + HEADER_BYTES <= size_bytes:
        chunk = bytes(file.read(position, READ_BYTES))
        for match in _CANDIDATE.finditer(chunk):
            candidate = position + match.start()
            if _stands_at(file, candidate, judge):
                return candidate
        if len(chunk) < READ_BYTES:
            break
        position += len(chunk) - _CANDIDATE_BYTES + 1
    return size_bytes


def _stands_at(file: LogFile, position: int, judge: _OffsetJudge) -> bool:
    """Whether a batch begins here that may be the next one; one inside of another's records has no neighbour behind."""
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
