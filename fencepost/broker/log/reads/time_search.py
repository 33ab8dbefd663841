"""Search of a log for the records of a time, in steps, so that the event loop serves others meanwhile.

A batch may hold a million records, and be as long as the largest message. So between two steps a search asks for a turn
of the event loop, for memory, or for a thread to decompress on. At most IN_WORK_COUNT searches hold memory; those that
need none, nearly all, never wait for them.
Source: Kafka's LogSegment.findOffsetByTimestamp and FileRecords.searchForTimestamp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from fencepost.broker.kernel.sliced_work import SLICE_S, Slices
from fencepost.broker.kernel.threads import on_a_thread
from fencepost.broker.log.log_types import TimestampedOffset
from fencepost.broker.log.segment.batch_scan import ScannedBatch
from fencepost.broker.log.segment.header_plausibility import HeaderFault
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.log.segment.remote_segment import SegmentNotLocalError
from fencepost.broker.log.segment.segment import Segment
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.compression import Codec, TooLargeForOneStepError, decompress
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.record import LEAST_DELTA_MS, FoundRecord, find_record
from fencepost.protocol.record_batch import (
    CHECKED_POSITION,
    HEADER_BYTES,
    BatchHeader,
    RecordBatch,
    crc_of,
    read_header,
)

T = TypeVar("T")

IN_WORK_COUNT: Final = 2
"""The most searches that hold a large batch."""
HEADERS_PER_STEP: Final = 500
RECORDS_PER_STEP: Final = 2_000
MOST_SELECTED: Final = 8
"""Batches that are searched in the order of their greatest timestamps; the others then follow in that of the log."""
READ_AT_ONCE_BYTES: Final = 512 * 1024
PARTS_TRIED: Final = 4
"""Parts of remote segments that a search has fetched, and begins again with each: the indexes of one, a block and the
next in nearly all cases. After that it has whole segments fetched."""


class Need(Enum):
    """The request of a search between two steps. NEXT: a turn of the event loop; its memory is free again."""

    TURN = 1
    MEMORY = 2
    NEXT = 3


Work: TypeAlias = Callable[[], "Buffer | DecodeError"]
Search: TypeAlias = Generator[Need | Work | SegmentNotLocalError, Buffer | DecodeError | None, T]
"""Each `send` does a step; work that it yields is done elsewhere, and the result is sent next. Parts of a remote
segment are fetched; if that fails, StorageError is thrown in."""


class Searches:
    """The searches of one broker."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(IN_WORK_COUNT)

    async def finish(self, search: Search[T]) -> T:
        """Run a search while other tasks run. Raises the errors of the search."""
        slices = Slices(SLICE_S)
        result: Buffer | DecodeError | None = None
        error: StorageError | None = None
        has_slot = False
        parts_count = 0
        try:
            while True:
                try:
                    need = search.send(result) if error is None else search.throw(error)
                except StopIteration as end:
                    found: T = end.value
                    return found
                result = error = None
                if need is Need.MEMORY:
                    if not has_slot:
                        await self._slots.acquire()
                        has_slot = True
                elif need is Need.TURN or need is Need.NEXT:
                    if has_slot and need is Need.NEXT:
                        self._slots.release()
                        has_slot = False
                    await slices.turn()
                elif isinstance(need, SegmentNotLocalError):
                    if has_slot:
                        self._slots.release()
                        has_slot = False
                    parts_count += 1
                    try:
                        await (need.fetch_part() if parts_count <= PARTS_TRIED else need.fetch())
                    except StorageError as failed:
                        error = failed
                    slices.begin()
                else:
                    assert not isinstance(need, Need)
                    result = await on_a_thread(need)
                    slices.begin()
        finally:
            if has_slot:
                self._slots.release()


def searched_at_once(search: Search[T]) -> T:
    """Run all steps of a search now. Raises the errors of the search; StorageError if a segment is not local."""
    result: Buffer | DecodeError | None = None
    error: StorageError | None = None
    while True:
        try:
            need = search.send(result) if error is None else search.throw(error)
        except StopIteration as end:
            found: T = end.value
            return found
        error = StorageError(str(need)) if isinstance(need, SegmentNotLocalError) else None
        result = need() if callable(need) else None


def find_first(segments: LogSegments, timestamp_ms: int, start_offset: int) -> Search[TimestampedOffset | None]:
    """Find the first record from `start_offset` on whose timestamp is `timestamp_ms` or later.

    The segments must stay the same between steps; records appended meanwhile may be missed. Raises StorageError;
    DamagedLogError if a batch on the way cannot be read.
    """
    for segment in segments.from_offset(start_offset):
        indexes = segment.indexes
        if indexes.max_timestamp_ms >= timestamp_ms:
            first_offset = max(indexes.time_index.offset_before(timestamp_ms), start_offset - segment.base_offset)
            found = yield from _find_in_segment(segment, first_offset, timestamp_ms, start_offset)
            if found is not None:
                return found
        yield Need.TURN
    return None


def find_latest(segments: LogSegments, start_offset: int) -> Search[TimestampedOffset | None]:
    """Find the first record from `start_offset` on with the greatest timestamp; None if there is no record.

    Same conditions and exceptions as `find_first`.
    """
    by_time: list[tuple[int, Segment]] = []
    for segment in segments.from_offset(start_offset):
        by_time.append((segment.indexes.max_timestamp_ms, segment))
        yield Need.TURN
    by_time.sort(key=lambda one: -one[0])
    latest: TimestampedOffset | None = None
    for max_timestamp_ms, segment in by_time:
        if max_timestamp_ms <= (-1 if latest is None else latest.timestamp_ms):
            break
        found = yield from _find_latest_in_segment(segment, max_timestamp_ms, start_offset)
        if found is not None and (latest is None or found.timestamp_ms > latest.timestamp_ms):
            latest = found
        yield Need.TURN
    return latest


def _find_latest_in_segment(
    segment: Segment, max_timestamp_ms: int, start_offset: int
) -> Search[TimestampedOffset | None]:
    first_offset = max(segment.indexes.offset_of_max_timestamp, start_offset) - segment.base_offset
    latest = yield from _find_in_segment(segment, first_offset, max_timestamp_ms, start_offset)
    # The greatest time may be that of a batch that compaction has emptied or thinned, or of records below the start.
    searched: set[int] = set()
    while latest is None or latest.timestamp_ms < max_timestamp_ms:
        if len(searched) == MOST_SELECTED:
            return (yield from _find_latest_in_turn(segment, start_offset, searched, latest))
        candidate = yield from _latest_batch(segment, start_offset, searched)
        if candidate is None:
            break
        max_timestamp_ms = candidate.header.max_timestamp_ms
        if latest is not None and latest.timestamp_ms >= max_timestamp_ms:
            break
        searched.add(candidate.position)
        latest = yield from _later(segment, candidate, start_offset, latest)
    return latest


def _find_latest_in_turn(
    segment: Segment, start_offset: int, searched: AbstractSet[int], latest: TimestampedOffset | None
) -> Search[TimestampedOffset | None]:
    """Search each batch once: a client may write any number of greatest timestamps that no record has."""
    for count, batch in enumerate(segment.scan_from(max(0, start_offset - segment.base_offset)), 1):
        header = batch.header
        is_later = header.max_timestamp_ms > (-1 if latest is None else latest.timestamp_ms)
        if is_later and header.records_count and header.last_offset >= start_offset and batch.position not in searched:
            latest = yield from _later(segment, batch, start_offset, latest)
            yield Need.TURN
        elif count % HEADERS_PER_STEP == 0:
            yield Need.TURN
    return latest


def _later(
    segment: Segment, batch: ScannedBatch, start_offset: int, latest: TimestampedOffset | None
) -> Search[TimestampedOffset | None]:
    """Return the latest record of a batch, if it is later than `latest`, else that one."""
    position, header = batch
    search = _find_latest_in_batch(segment, position, header, start_offset)
    found = yield from _undamaged(segment, position, header, search)
    return found if latest is None or (found is not None and found.timestamp_ms > latest.timestamp_ms) else latest


def _latest_batch(segment: Segment, start_offset: int, searched: AbstractSet[int]) -> Search[ScannedBatch | None]:
    """Return the first batch with records that has the greatest timestamp of those that were not searched."""
    latest: ScannedBatch | None = None
    for count, batch in enumerate(segment.scan_from(max(0, start_offset - segment.base_offset)), 1):
        header = batch.header
        is_later = header.max_timestamp_ms > (-1 if latest is None else latest.header.max_timestamp_ms)
        if is_later and header.records_count and header.last_offset >= start_offset and batch.position not in searched:
            latest = batch
        if count % HEADERS_PER_STEP == 0:
            yield Need.TURN
    return latest


def _find_latest_in_batch(
    segment: Segment, position: int, header: BatchHeader, start_offset: int
) -> Search[TimestampedOffset | None]:
    """Find the greatest timestamp among the records from `start_offset` on, which may be below the batch's greatest.

    Raises DecodeError.
    """
    found = yield from _find_in_batch(segment, position, header, header.max_timestamp_ms, start_offset)
    if found is not None:
        return found
    header, buffer = yield from _checked_batch(segment, position, header)
    content = yield from _content(header, buffer[HEADER_BYTES:])
    latest: FoundRecord | None = None
    record_position, least_delta_ms = 0, LEAST_DELTA_MS
    for count in range(1, header.records_count + 1):
        record_position, later = find_record(
            content, record_position, 1, least_delta_ms, start_offset - header.base_offset
        )
        if later is not None:
            latest, least_delta_ms = later, later.timestamp_delta_ms + 1
            record_position, _ = find_record(content, record_position, 1, least_delta_ms, 0)
        if count % RECORDS_PER_STEP == 0:
            yield Need.TURN
    if latest is None:
        return None
    latest_ms = header.base_timestamp_ms + latest.timestamp_delta_ms
    return TimestampedOffset(header.base_offset + latest.offset_delta, latest_ms, header.partition_leader_epoch)


def _find_in_segment(
    segment: Segment, relative_offset: int, timestamp_ms: int, start_offset: int
) -> Search[TimestampedOffset | None]:
    """Search the batches from the one that holds an offset on."""
    for count, (position, header) in enumerate(segment.scan_from(relative_offset), 1):
        if header.max_timestamp_ms >= timestamp_ms and header.last_offset - segment.base_offset >= relative_offset:
            found = yield from _undamaged(
                segment, position, header, _find_in_batch(segment, position, header, timestamp_ms, start_offset)
            )
            if found is not None:
                return found
            yield Need.TURN
        elif count % HEADERS_PER_STEP == 0:
            yield Need.TURN
    return None


def _undamaged(segment: Segment, position: int, header: BatchHeader, search: Search[T]) -> Search[T]:
    """Run the search of a batch. Raises DamagedLogError if its records cannot be read."""
    try:
        return (yield from search)
    except DecodeError as error:
        offset = header.base_offset
        reason = f"its records cannot be read: {error}"
        raise segment.batches.damaged(HeaderFault(position, offset, offset, reason)) from error


def _find_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> Search[TimestampedOffset | None]:
    """Search the records of a batch, which another process may have written. Raises DecodeError."""
    header, buffer = yield from _checked_batch(segment, position, header)
    content = yield from _content(header, buffer[HEADER_BYTES:])
    least_delta_ms = timestamp_ms - header.base_timestamp_ms
    if header.is_log_append_time:
        least_delta_ms = LEAST_DELTA_MS  # the records' own timestamps do not count
    least_offset_delta = start_offset - header.base_offset
    record_position = 0
    for skipped in range(0, header.records_count, RECORDS_PER_STEP):
        count = min(RECORDS_PER_STEP, header.records_count - skipped)
        record_position, found = find_record(content, record_position, count, least_delta_ms, least_offset_delta)
        if found is not None:
            found_ms = header.base_timestamp_ms + found.timestamp_delta_ms
            if header.is_log_append_time:
                found_ms = header.max_timestamp_ms
            return TimestampedOffset(header.base_offset + found.offset_delta, found_ms, header.partition_leader_epoch)
        yield Need.TURN
    if record_position != len(content):
        raise DecodeError("bytes follow the last record of a batch", position=record_position)
    return None


def _checked_batch(segment: Segment, position: int, header: BatchHeader) -> Search[RecordBatch]:
    """Check a batch as `SegmentBatches.checked_batch` does, in steps."""
    size_bytes = header.size_bytes
    if size_bytes <= READ_AT_ONCE_BYTES:
        return segment.batches.checked_batch(position, header)
    yield Need.MEMORY
    buffer = bytearray()
    while len(buffer) < size_bytes:
        piece = segment.batches.log.read(position + len(buffer), min(READ_AT_ONCE_BYTES, size_bytes - len(buffer)))
        if not len(piece):
            break
        buffer += piece
        yield Need.TURN
    view = memoryview(buffer)
    crc = 0
    for start in range(CHECKED_POSITION, len(view), READ_AT_ONCE_BYTES):
        crc = crc_of(view[start : start + READ_AT_ONCE_BYTES], crc)
        yield Need.TURN
    if len(view) < size_bytes or read_header(view).crc != crc:
        raise segment.batches.wrong_checksum(position, header)
    return RecordBatch(read_header(view), view)


def _content(header: BatchHeader, section: memoryview) -> Search[Buffer]:
    """Return the records of a batch, decompressed. Raises DecodeError."""
    codec = header.codec
    if codec is Codec.NONE and header.size_bytes > READ_AT_ONCE_BYTES:
        return section
    try:
        return bytes(decompress(codec, section, is_one_step=True))
    except TooLargeForOneStepError:
        pass

    def decompressed() -> Buffer | DecodeError:
        try:
            return decompress(codec, section)
        except DecodeError as error:
            return error

    yield Need.MEMORY
    content = yield decompressed
    if isinstance(content, DecodeError):
        try:
            raise content
        finally:
            del content  # the error refers to this frame: a cycle would keep the memory of both
    assert content is not None
    return content
