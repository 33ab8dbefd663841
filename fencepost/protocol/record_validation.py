"""Validation of the records in a producer's batch before the append: they must agree with the header.

Consumers trust the log; a wrong batch would stop them for good, or lead them past other records. So the lengths and the
offset of every record are checked. That costs about half a microsecond a record, a fifth of it where records are
equally long; keys and values are skipped by their length. Unlike Apache Kafka, it does not check the greatest timestamp
in the header: a wrong one misleads only searches by time.
Source: Kafka's LogValidator and DefaultRecordBatch; KIP-467 for the record errors.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Final, NamedTuple

from fencepost.protocol.compression import MAXIMUM_DECOMPRESSED_BYTES, TooLargeForOneStepError, decompress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import Buffer, DecodeError, write_unsigned_varint
from fencepost.protocol.record_batch import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP_MS,
    BatchHeader,
)
from fencepost.protocol.varints import VARINTS, read_varint, read_varlong

MAXIMUM_RECORD_ERRORS: Final = 100
"""Bound on the record errors reported per batch, so that replies stay small."""
NO_LIMIT_MS: Final = 2**63 - 1
RECORDS_PER_BLOCK: Final = 64
RECORDS_AT_ONCE: Final = 16_384
"""Bound on records checked in one step: 8 ms on the machine of the figures. More are checked in several steps."""
RECORDS_PER_STEP: Final = 4_096
EXAMINED_AT_ONCE: Final = 4_096
"""Bound on records examined one by one in one step, which takes four times as long as checking them."""
HEADERS_AT_ONCE: Final = 8_192
"""Bound on the headers of all records together that are checked in one step."""
_SMALLEST_RECORD_BYTES: Final = 7  # length, attributes, two deltas, two lengths and a count, of a byte each
_NULL: Final = 1  # the length -1, zig-zag
_CONTINUED_BYTES: Final = bytes(range(0x80, 0x100))  # bytes after which a variable-length integer continues
_WORTH_TRYING_COUNT: Final = 6
_KNOWN_TABLES_COUNT: Final = 256
_LONGEST_VARINT_BYTES: Final = 5
_LONGEST_VARLONG_BYTES: Final = 10
_OF_A_FIRST_RECORD: Final = bytes(3)
"""Attributes, which are unused, and distances of 0 from the batch's time and offset."""
_headers_left = [HEADERS_AT_ONCE]
"""The number of record headers that may still be checked in this step."""
_WRONG_OFFSET: Final = "a record's offset is not the one after the record before it"


@dataclass(frozen=True, slots=True)
class RecordRules:
    """Requirements of a topic on its records.

    timestamp_before_max_ms, timestamp_after_max_ms: the most that a CreateTime may be before and after the broker's
    clock.
    maximum_record_bytes: size of a record in a compressed batch, without its length.
    """

    requires_keys: bool = False
    uses_log_append_time: bool = False
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = 3_600_000
    maximum_decompressed_bytes: int = MAXIMUM_DECOMPRESSED_BYTES
    maximum_record_bytes: int = MAXIMUM_DECOMPRESSED_BYTES


class RecordRefusal(NamedTuple):
    """Error of one record of a batch; `record_index` counts from 0."""

    record_index: int
    message: str


class BatchRefusal(NamedTuple):
    """Refusal of a batch: INVALID_RECORD, INVALID_TIMESTAMP or UNSUPPORTED_COMPRESSION_TYPE."""

    error: ErrorCode
    message: str
    record_errors: tuple[RecordRefusal, ...] = ()


def validate_batch(batch: memoryview, header: BatchHeader, rules: RecordRules, *, now_ms: int) -> BatchRefusal | None:
    """Check one batch of a producer after magic, size and CRC were checked; return the refusal, or None.

    Raises TooLargeForOneStepError if the header is right but the records take longer than one step of an event loop:
    pass the decompressed content to `validation_steps`.
    """
    attributes = header.attributes
    records_count = header.records_count
    if attributes & CONTROL_BIT:
        return _invalid("clients may not write control records")
    if records_count <= 0 or header.last_offset_delta != records_count - 1:
        return _invalid(f"the batch counts {records_count} records but its last offset is {header.last_offset_delta}")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return _invalid(f"producer {header.producer_id} sent the invalid sequence number {header.base_sequence}")
    if attributes & LOG_APPEND_TIME_BIT and (rules.uses_log_append_time or header.max_timestamp_ms == NO_TIMESTAMP_MS):
        message = "clients may not set the timestamp type to LogAppendTime"
        refusals = (RecordRefusal(index, message) for index in range(min(records_count, MAXIMUM_RECORD_ERRORS)))
        return BatchRefusal(ErrorCode.INVALID_TIMESTAMP, message, tuple(refusals))
    try:
        content: Buffer = batch[HEADER_BYTES:]
        if attributes & CODEC_MASK:
            if records_count > RECORDS_AT_ONCE:
                raise TooLargeForOneStepError
            limit_bytes = rules.maximum_decompressed_bytes
            content = decompress(header.codec, content, maximum_bytes=limit_bytes, is_one_step=True)
        misses_key = check_records(content, records_count)
        latest_ms = now_ms + rules.timestamp_after_max_ms
        is_on_time = rules.timestamp_before_max_ms == NO_LIMIT_MS and header.max_timestamp_ms <= latest_ms
        is_short = len(content) <= rules.maximum_record_bytes or not attributes & CODEC_MASK
        if not (is_short and (is_on_time or rules.uses_log_append_time)) or (misses_key and rules.requires_keys):
            if records_count > EXAMINED_AT_ONCE:
                raise TooLargeForOneStepError
            return _result_of(_examination_steps(header, content, rules, now_ms))
    except DecodeError as error:
        return _invalid(str(error))
    return None


def validation_steps(
    content: Buffer, header: BatchHeader, rules: RecordRules, *, now_ms: int
) -> Generator[None, None, BatchRefusal | None]:
    """Check the decompressed records of a batch that `validate_batch` found too large, in steps.

    Each step is at most `RECORDS_PER_STEP` records; `content` must not change between them.
    """
    try:
        misses_key = yield from checking_steps(content, header.records_count)
        latest_ms = now_ms + rules.timestamp_after_max_ms
        is_on_time = rules.timestamp_before_max_ms == NO_LIMIT_MS and header.max_timestamp_ms <= latest_ms
        is_short = len(content) <= rules.maximum_record_bytes or not header.attributes & CODEC_MASK
        if not (is_short and (is_on_time or rules.uses_log_append_time)) or (misses_key and rules.requires_keys):
            return (yield from _examination_steps(header, content, rules, now_ms))
    except DecodeError as error:
        return invalid_records(error)
    return None


def invalid_records(error: DecodeError) -> BatchRefusal:
    """Make the refusal of a batch whose records cannot be read."""
    return _invalid(str(error))


def check_records(content: Buffer, count: int) -> bool:
    """Check that a decompressed records section is `count` records with offsets 0, 1, 2 … and nothing else.

    Returns whether any of them has no key. Raises DecodeError for invalid records, and TooLargeForOneStepError for too
    many records or headers: pass those to `checking_steps`.
    """
    if count * _SMALLEST_RECORD_BYTES > len(content):
        raise DecodeError(f"{count} records do not fit into {len(content)} bytes")
    try:
        if count == 1:
            only_misses_key = _misses_key_of_plain_record(content)
            if only_misses_key is not None:
                return only_misses_key
        if count <= RECORDS_PER_BLOCK:
            position, misses_key = _check_next_block(content, 0, 0, count)
        else:
            if count > RECORDS_AT_ONCE:
                raise TooLargeForOneStepError
            position, misses_key = 0, False
            _headers_left[0] = HEADERS_AT_ONCE
            for first_of_block in range(0, count, RECORDS_PER_BLOCK):
                block_count = min(RECORDS_PER_BLOCK, count - first_of_block)
                position, block_misses_key = _check_next_block(content, position, first_of_block, block_count)
                misses_key |= block_misses_key
    except IndexError:
        raise DecodeError("the last record of the batch is cut short", position=len(content)) from None
    if position != len(content):
        raise DecodeError("the records do not end where the batch ends", position=position)
    return misses_key


def checking_steps(content: Buffer, count: int) -> Generator[None, None, bool]:
    """As `check_records`, for any number of records and headers, in steps of at most `RECORDS_PER_STEP` records."""
    if count * _SMALLEST_RECORD_BYTES > len(content):
        raise DecodeError(f"{count} records do not fit into {len(content)} bytes")
    position, misses_key = 0, False
    _headers_left[0] = HEADERS_AT_ONCE
    try:
        for first_of_block in range(0, count, RECORDS_PER_BLOCK):
            if first_of_block and first_of_block % RECORDS_PER_STEP == 0:
                yield
                _headers_left[0] = HEADERS_AT_ONCE  # other batches were checked meanwhile
            block_count = min(RECORDS_PER_BLOCK, count - first_of_block)
            try:
                position, block_misses_key = _check_next_block(content, position, first_of_block, block_count)
            except TooLargeForOneStepError:
                offsets = _offset_varints(first_of_block, block_count)
                position, block_misses_key = yield from _block_steps(content, position, *offsets)
            misses_key |= block_misses_key
    except IndexError:
        raise DecodeError("the last record of the batch is cut short", position=len(content)) from None
    if position != len(content):
        raise DecodeError("the records do not end where the batch ends", position=position)
    return misses_key


def _block_steps(
    content: Buffer, position: int, lowest_bytes: bytes, higher_bytes: bytes
) -> Generator[None, None, tuple[int, bool]]:
    """As `_check_block`, for records with very many headers, in steps. Raises IndexError and DecodeError."""
    misses_key = False
    for lowest_byte in lowest_bytes:
        yield
        _headers_left[0] = HEADERS_AT_ONCE
        try:
            position, record_misses_key = _check_block(content, position, bytes((lowest_byte,)), higher_bytes)
        except TooLargeForOneStepError:
            offset = bytes((lowest_byte,)) + higher_bytes
            position, record_misses_key = yield from _record_steps(content, position, offset)
        misses_key |= record_misses_key
    _headers_left[0] = HEADERS_AT_ONCE
    return position, misses_key


def _record_steps(content: Buffer, position: int, offset: bytes) -> Generator[None, None, tuple[int, bool]]:
    """Check one record whose headers alone are more than one step. Raises IndexError and DecodeError."""
    length, body = read_varint(content, position)
    end = body + length
    _, cursor = read_varlong(content, body + 1)
    if length < 0 or content[cursor : cursor + len(offset)] != offset:
        raise DecodeError(_WRONG_OFFSET, position=cursor)
    key = cursor + len(offset)
    key_length, _ = read_varint(content, key)
    headers = _skip_field(content, _skip_field(content, key))
    count, cursor = read_varint(content, headers)
    if count < 0 or count * 2 > end - cursor:
        raise DecodeError("a record cannot have that many headers", position=headers)
    while count > 0:
        step_count = min(count, HEADERS_AT_ONCE)
        cursor = _skip_record_headers(content, cursor, step_count)
        count -= step_count
        yield
    if cursor != end:
        raise DecodeError("a record is not as long as it says", position=end)
    return end, key_length < 0


def _check_next_block(content: Buffer, position: int, first_of_block: int, count: int) -> tuple[int, bool]:
    """Check the `count` records of one block; return the position after it, and whether any has no key.

    Raises IndexError and DecodeError.
    """
    lowest_bytes, higher_bytes = _offset_varints(first_of_block, count)
    if count >= _WORTH_TRYING_COUNT:
        end, misses_key = _check_equal_length_block(content, position, lowest_bytes, higher_bytes)
        if end is not None:
            return end, misses_key
    if not first_of_block:  # the headers checked before in this step are another batch's
        _headers_left[0] = HEADERS_AT_ONCE
    return _check_block(content, position, lowest_bytes, higher_bytes)


def _misses_key_of_plain_record(content: Buffer) -> bool | None:
    """Whether the only record of a batch has no key; None if the record needs a full check.

    Mostly it has the time of its batch, a short key or none, a value and no headers. Then the number of bytes
    determines all but the key's length, and the rest is compared, not read. Raises IndexError.
    """
    size_bytes = len(content)
    start = _length_that_fills(size_bytes) + _OF_A_FIRST_RECORD
    cursor = len(start)
    if content[:cursor] != start:
        return None
    key_length = content[cursor]
    cursor += 1
    if key_length != _NULL:
        if key_length & 0x81:  # long or negative
            return None
        cursor += key_length >> 1
    end = size_bytes - 1
    length = _length_that_fills(end - cursor)
    if content[cursor : cursor + len(length)] != length or content[end]:
        return None
    return key_length == _NULL


@lru_cache(maxsize=2048)
def _length_that_fills(size_bytes: int) -> bytes:
    """The zig-zag length of a field that takes `size_bytes` together with its length.

    If no length fits, as where one more byte of the field makes its length longer, the result takes more bytes.
    """
    for width in range(1, min(size_bytes, _LONGEST_VARINT_BYTES) + 1):
        length = VARINTS[size_bytes - width]
        if len(length) == width:
            return length
    return bytes(max(size_bytes, 0) + 2)


@lru_cache(maxsize=256)
def _offset_varints(first_of_block: int, count: int) -> tuple[bytes, bytes]:
    """Encode the offsets of one block of `count`: the first byte of each, and the common bytes after it.

    The results are cached: most batches have the same number of records as those before them.
    """
    if not first_of_block:
        return bytes(range(0, 2 * count, 2)), b""
    higher_bytes = bytearray()
    write_unsigned_varint(higher_bytes, first_of_block // RECORDS_PER_BLOCK)
    return bytes(range(0x80, 0x80 + 2 * count, 2)), bytes(higher_bytes)


def _check_block(content: Buffer, position: int, lowest_bytes: bytes, higher_bytes: bytes) -> tuple[int, bool]:
    """Check records one by one; return the position after the block, and whether any has no key.

    This is the innermost loop of a produce request, written for speed: integers of one and two bytes are read in place.
    Zig-zag puts the sign into the lowest bit, so the signs of all lengths but null are collected and checked once.
    The end of a record is compared after its last field; until then a wrong length only leads forward.
    Raises IndexError and DecodeError.
    """
    misses_key = False
    second_byte = higher_bytes[0] if higher_bytes else None
    offset_bytes = 1 + len(higher_bytes)
    signs = 0
    for lowest_byte in lowest_bytes:
        length = content[position]
        signs |= length
        if length < 0x80:
            cursor = position + 2  # after the length and the attributes
            position += 1 + (length >> 1)
        elif (higher := content[position + 1]) < 0x80:
            cursor = position + 3
            position += 2 + (higher << 6) + (length >> 1 & 0x3F)
        else:
            length, cursor = read_varint(content, position)
            position = cursor + length
            cursor += 1
        if content[cursor] > 0x7F:  # the timestamp takes more than a byte
            cursor += 1
            if content[cursor] > 0x7F:
                cursor = read_varlong(content, cursor - 1)[1] - 1
        cursor += 1
        if content[cursor] != lowest_byte or (second_byte is not None and content[cursor + 1] != second_byte):
            raise DecodeError(_WRONG_OFFSET, position=cursor)
        if offset_bytes > 2 and content[cursor + 1 : cursor + offset_bytes] != higher_bytes:
            raise DecodeError(_WRONG_OFFSET, position=cursor)
        cursor += offset_bytes
        length = content[cursor]
        if length == _NULL:
            misses_key = True
            cursor += 1
        elif length < 0x80:
            signs |= length
            cursor += 1 + (length >> 1)
        else:
            cursor = _skip_field(content, cursor)
        length = content[cursor]
        if length == _NULL:
            cursor += 1
        elif length < 0x80:
            signs |= length
            cursor += 1 + (length >> 1)
        elif (higher := content[cursor + 1]) < 0x80:
            signs |= length
            cursor += 2 + (higher << 6) + (length >> 1 & 0x3F)
        else:
            cursor = _skip_field(content, cursor)
        if content[cursor] or cursor + 1 != position:
            _check_record_headers(content, cursor, position)
    if signs & 1:
        raise DecodeError("a record has a negative length")
    return position, misses_key


def _skip_field(content: Buffer, position: int) -> int:
    """Return the position after a key or value, whose length may be -1, for null. Raises IndexError and DecodeError."""
    length, end = read_varint(content, position)
    if length < -1:
        raise DecodeError("a key or value has a negative length", position=position)
    return end + max(length, 0)


def _check_record_headers(content: Buffer, position: int, end: int) -> None:
    """Check a record's headers, and that the record has the given length. Raises IndexError and DecodeError."""
    start = position
    count, position = read_varint(content, position)
    if count < 0 or count * 2 > end - position:
        raise DecodeError("a record cannot have that many headers", position=start)
    _headers_left[0] -= count
    if _headers_left[0] < 0:
        raise TooLargeForOneStepError
    if _skip_record_headers(content, position, count) != end:
        raise DecodeError("a record is not as long as it says", position=end)


def _skip_record_headers(content: Buffer, position: int, count: int) -> int:
    """Return the position after `count` headers. Raises IndexError and DecodeError."""
    for _ in range(count):
        length, position = read_varint(content, position)
        if length < 0:
            raise DecodeError("a record header has no key", position=position)
        position = _skip_field(content, position + length)
    return position


class EqualLengthRecords:
    """Layout of the records in batches of the same shape: block by block, equally long in each block.

    columns:    extracts from a batch, from the position given for the first one, the bytes to compare.
    misses_key: whether any record has no key.
    """

    __slots__ = ("_expected", "_lowest_count", "columns", "misses_key")

    columns: Callable[[bytes], tuple[bytes, ...]]

    def __init__(self, blocks: Sequence[tuple[int, _Table]]) -> None:
        """blocks: start and table of each."""
        known: list[slice] = []
        expected: list[bytes] = []
        continued: list[slice] = []
        lowest: list[slice] = []
        for start, table in blocks:
            row_bytes, end = table.row_bytes, start + table.size_bytes
            columns = [slice(start + number, end, row_bytes) for number in range(row_bytes)]
            known += [columns[number] for number in table.known]
            expected += table.expected
            continued += columns[table.timestamp : table.offset - 1]
            lowest.append(columns[table.offset - 1])
        self.columns = itemgetter(*known, *continued, *lowest)
        self._expected = tuple(expected)
        self._lowest_count = len(lowest)
        self.misses_key = any(table.misses_key for _, table in blocks)

    def count_same_shape(self, found: Sequence[tuple[bytes, ...]]) -> int:
        """Count the leading batches of the same length that have such records; `found`: `columns` of each."""
        if self._have_same_shape(found):
            return len(found)
        return next(index for index, one in enumerate(found) if not self._have_same_shape((one,)))

    def _have_same_shape(self, found: Sequence[tuple[bytes, ...]]) -> bool:
        """Do as `_are_rows` for all blocks of all batches, without Python code for each."""
        count = len(found)
        columns = list(zip(*found, strict=True))
        first_continued, first_lowest = len(self._expected), len(columns) - self._lowest_count
        return (
            all(map(count.__eq__, map(tuple.count, columns, self._expected)))
            and not b"".join(map(b"".join, columns[first_continued:first_lowest])).translate(None, _CONTINUED_BYTES)
            and b"".join(map(b"".join, columns[first_lowest:])).isascii()
        )


def equal_length_records(content: Buffer, count: int, start: int = 0) -> EqualLengthRecords | None:
    """Return the layout of the records in the section from `start` on; None if they are not equally long.

    Raises DecodeError as `check_records`.
    """
    check_records(content[start:], count)
    blocks = []
    position = start
    for first_of_block in range(0, count, RECORDS_PER_BLOCK):
        offsets = _offset_varints(first_of_block, min(RECORDS_PER_BLOCK, count - first_of_block))
        table = _known_tables.get((content[position], content[position + 1], *offsets))
        if table is None or not _are_rows(content, position, table):
            return None
        blocks.append((position, table))
        position += table.size_bytes
    return EqualLengthRecords(blocks)


class _Table(NamedTuple):
    """Layout of the equally long records of a block, as rows of a table.

    known:      the columns whose bytes are known; `columns` extracts them from the rows, and must find `expected`.
    timestamp:  the first column of the timestamps, which differ but take the same number of bytes.
    offset:     the column after them.
    """

    row_bytes: int
    size_bytes: int
    known: tuple[int, ...]
    columns: Callable[[bytes], tuple[bytes, ...]]
    expected: tuple[bytes, ...]
    timestamp: int
    offset: int
    misses_key: bool


_known_tables: Final[dict[tuple[int, int, bytes, bytes], _Table]] = {}
"""Cache by first two bytes and offsets: the table of the last such block, which mostly fits the next."""


def _check_equal_length_block(
    content: Buffer, position: int, lowest_bytes: bytes, higher_bytes: bytes
) -> tuple[int | None, bool]:
    """As `_check_block`, for records of equal length; the position is None if they need a full check.

    Such records are rows of a table; a slice with a stride extracts a column, which is compared natively. That is four
    times as fast as record by record, and costs next to nothing where the first column differs.
    Raises IndexError and DecodeError.
    """
    kind = (content[position], content[position + 1], lowest_bytes, higher_bytes)
    table = _known_tables.get(kind)
    if table is None or not _are_rows(content, position, table):
        length, body = read_varint(content, position)
        count = len(lowest_bytes)
        row_bytes = body + length - position
        end = position + row_bytes * count
        if length <= 0 or end > len(content) or content[position:end:row_bytes] != bytes((content[position],)) * count:
            return None, False
        first_row = bytes(content[position : position + row_bytes])
        table = _table(first_row, body - position, lowest_bytes, higher_bytes)
        if table is None or not _are_rows(content, position, table):
            return None, False
        if len(_known_tables) >= _KNOWN_TABLES_COUNT:
            _known_tables.clear()
        _known_tables[kind] = table
    return position + table.size_bytes, table.misses_key


def _are_rows(content: Buffer, position: int, table: _Table) -> bool:
    """Whether the rows fit the table: every used byte is equal, except those of the timestamps' values."""
    row_bytes, size_bytes, _, columns, expected, timestamp, offset, _ = table
    rows = bytes(content[position : position + size_bytes])
    if columns(rows) != expected:
        return False
    while timestamp < offset - 1:
        if rows[timestamp::row_bytes].translate(None, _CONTINUED_BYTES):
            return False
        timestamp += 1
    return rows[timestamp::row_bytes].isascii() and len(rows) == size_bytes


def _table(first_row: bytes, body: int, lowest_bytes: bytes, higher_bytes: bytes) -> _Table | None:
    """Make the table for such a first row, whose attributes are at `body`; None if the row has headers, a wrong length
    or a timestamp of the greatest width. Raises IndexError and DecodeError.
    """
    timestamp = body + 1
    offset = timestamp + 1 if first_row[timestamp] < 0x80 else read_varlong(first_row, timestamp)[1]
    key = offset + 1 + len(higher_bytes)
    key_length, key_end = read_varint(first_row, key)
    value = key_end + max(key_length, 0)
    value_length, value_end = read_varint(first_row, value)
    if key_length < -1 or value_length < -1:
        raise DecodeError("a key or value has a negative length")
    if (
        offset - timestamp == _LONGEST_VARLONG_BYTES  # in other rows it might have more than 64 bits
        or first_row[offset + 1 : key] != higher_bytes
        or value_end + max(value_length, 0) != len(first_row) - 1
        or first_row[-1]
    ):
        return None
    row_bytes = len(first_row)
    alike = (*range(body), *range(offset + 1, key_end), *range(value, value_end), row_bytes - 1)
    count = len(lowest_bytes)
    known = (offset, *alike)
    columns = itemgetter(*(slice(column, None, row_bytes) for column in known))
    expected = (lowest_bytes, *(first_row[column : column + 1] * count for column in alike))
    return _Table(row_bytes, row_bytes * count, known, columns, expected, timestamp, offset, key_length < 0)


def _examination_steps(
    header: BatchHeader, content: Buffer, rules: RecordRules, now_ms: int
) -> Generator[None, None, BatchRefusal | None]:
    """Examine the records, all of them valid, and return those that break the topic's rules."""
    earliest_ms = now_ms - rules.timestamp_before_max_ms
    latest_ms = now_ms + rules.timestamp_after_max_ms
    error = ErrorCode.INVALID_RECORD
    refusals: list[RecordRefusal] = []
    most_bytes = rules.maximum_record_bytes if header.attributes & CODEC_MASK else len(content)
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    checks_times = not rules.uses_log_append_time
    position = 0
    for index in range(header.records_count):
        if len(refusals) == MAXIMUM_RECORD_ERRORS:
            break
        if index and index % EXAMINED_AT_ONCE == 0:
            yield
        length_bytes, body = read_varint(content, position)
        position = body + length_bytes
        if length_bytes > most_bytes:
            return _invalid(f"a record of {length_bytes} bytes is above max.decompressed.message.bytes of {most_bytes}")
        timestamp_delta_ms, cursor = read_varlong(content, body + 1)
        key_length, _ = read_varint(content, read_varint(content, cursor)[1])
        timestamp_ms = header.base_timestamp_ms + timestamp_delta_ms if append_time_ms is None else append_time_ms
        if rules.requires_keys and key_length < 0:
            refusals.append(RecordRefusal(index, "a compacted topic takes no record without a key"))
        elif checks_times and timestamp_ms != NO_TIMESTAMP_MS and not earliest_ms <= timestamp_ms <= latest_ms:
            error = ErrorCode.INVALID_TIMESTAMP
            message = f"timestamp {timestamp_ms} is not within [{earliest_ms}, {latest_ms}]"
            refusals.append(RecordRefusal(index, message))
    if not refusals:
        return None
    return BatchRefusal(error, refusals[0].message, tuple(refusals))


def _result_of(steps: Generator[None, None, BatchRefusal | None]) -> BatchRefusal | None:
    """Run all steps, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: BatchRefusal | None = end.value
            return result


def _invalid(message: str) -> BatchRefusal:
    return BatchRefusal(ErrorCode.INVALID_RECORD, message)
