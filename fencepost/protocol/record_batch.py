"""Record batches of format version 2: reading and writing of headers, records, checksums and markers.

A batch is a 61-byte header and its records, which may be compressed as one stream. The CRC-32C covers everything from
the attributes on, so a broker sets offset and leader epoch of a batch without a change of the checksum or the records.
Source: Kafka's DefaultRecordBatch, DefaultRecord, EndTransactionMarker and ControlRecordType; KIP-98.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from crc32c import crc32c

from fencepost.protocol.compression import MAXIMUM_DECOMPRESSED_BYTES, Codec, compress, decompress
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.record import PlainRecord, around_key, plain_record, read_record, write_record
from fencepost.protocol.record import Record as Record
from fencepost.protocol.sequence import MAXIMUM_SEQUENCE

CURRENT_MAGIC: Final = 2
HEADER_BYTES: Final = 61
LENGTH_OVERHEAD_BYTES: Final = 12
"""Size of base offset and batch length, which the batch length does not count."""
PREFIX_BYTES: Final = 16
"""Size of the part that a broker overwrites at the append: base offset, batch length, partition leader epoch."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
_ATTRIBUTES_MASK: Final = 0x7F


NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_PRODUCER: Final = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
NO_SEQUENCE: Final = -1
NO_TIMESTAMP_MS: Final = -1
NO_LEADER_EPOCH: Final = -1

_new_tuple = tuple.__new__
"""The call behind `_make` of a named tuple: `_make` itself was a quarter of reading a header."""
_CODECS = {codec.value: codec for codec in Codec}
_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qii")
_UNCHECKED_HEADER = struct.Struct(">qiibI")  # up to the checksum
_CHECKED_HEADER = struct.Struct(">hiqqqhii")  # the fields after the checksum, which covers them
_SEQUENCE_AND_COUNT = struct.Struct(">ii")  # its end
_CONTROL_KEY = struct.Struct(">hh")  # version, type
_END_TRANSACTION_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_CONTROL_RECORD_VERSION = 0
_ABORT = 0
_COMMIT = 1
_MARKER_AFTER_CRC = struct.Struct(_CHECKED_HEADER.format + "12six")
"""Checked header fields, start of the record, coordinator epoch, and 0 for the count of record headers."""
_MARKER_RECORD_START = struct.Struct(">BBBBBhhBh")
"""Length, attributes, both distances, key length, key, value length, and the version at the start of the value."""
_MARKER_LENGTHS = (2 * 16, 2 * 4, 2 * 6)
"""Lengths of the record after its length, of the key and of the value, zig-zag."""
MARKER_BYTES = _UNCHECKED_HEADER.size + _MARKER_AFTER_CRC.size
_MARKER_BATCH_LENGTH = MARKER_BYTES - LENGTH_OVERHEAD_BYTES
_MAGIC_AND_CRC = struct.Struct(">bI")
_CRC = struct.Struct(">I")
CRC_POSITION: Final = 17
_NO_CRC_YET = 0
CHECKED_POSITION: Final = 21
"""Position of the first byte that the checksum covers."""


class BatchHeader(NamedTuple):
    """Header of a batch: the 61 bytes before the records, in their order.

    batch_length:      bytes of the batch after this field.
    base_timestamp_ms: base of the records' timestamps; the delete horizon if `has_delete_horizon`.
    max_timestamp_ms:  greatest timestamp of the records; the append time if `is_log_append_time`.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records_count: int

    @property
    def size_bytes(self) -> int:
        return self.batch_length + LENGTH_OVERHEAD_BYTES

    @property
    def codec(self) -> Codec:
        """The codec of the records. Raises DecodeError for one of the three unused numbers."""
        return codec_of(self.attributes)

    @property
    def is_log_append_time(self) -> bool:
        return self.attributes & LOG_APPEND_TIME_BIT != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_BIT != 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; NO_SEQUENCE if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & MAXIMUM_SEQUENCE


class RecordBatch(NamedTuple):
    """A batch: its decoded header and exactly its bytes."""

    header: BatchHeader
    buffer: memoryview


def codec_of(attributes: int) -> Codec:
    """The codec in a batch's attributes. Raises DecodeError for one of the three unused numbers."""
    codec = _CODECS.get(attributes & CODEC_MASK)
    if codec is None:
        raise DecodeError(f"there is no compression codec {attributes & CODEC_MASK}", position=CHECKED_POSITION)
    return codec


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`, unchecked. Raises DecodeError for under 61 bytes."""
    try:
        return _new_tuple(BatchHeader, _HEADER.unpack_from(buffer, position))
    except struct.error as error:
        raise DecodeError("a record batch ends inside its header", position=position) from error


def iterate_batches(buffer: Buffer) -> Iterator[RecordBatch]:
    """Iterate over the whole batches back to back in `buffer`; a torn one at the end is left out.

    Raises DecodeError for an impossible length. Checksums and record counts are not checked.
    """
    view = memoryview(buffer)
    position = 0
    limit = len(view)
    while limit - position >= HEADER_BYTES:
        header = read_header(view, position)
        size_bytes = header.size_bytes
        if size_bytes < HEADER_BYTES:
            raise DecodeError(f"a record batch cannot have length {header.batch_length}", position=position + 8)
        if size_bytes > limit - position:
            return
        yield RecordBatch(header, view[position : position + size_bytes])
        position += size_bytes


def check_crc(batch: Buffer) -> bool:
    """Whether the checksum in exactly one batch is right; False if it is too short for one."""
    if len(batch) < HEADER_BYTES:
        return False
    stored: int = _CRC.unpack_from(batch, CRC_POSITION)[0]
    return stored == computed_crc(memoryview(batch))


def computed_crc(batch: memoryview) -> int:
    """Compute the checksum of exactly one batch."""
    computed: int = crc32c(batch[CHECKED_POSITION:])
    return computed


def crc_of(piece: Buffer, crc_before: int) -> int:
    """Continue the checksum of the bytes from CHECKED_POSITION on by one piece; it is 0 before the first."""
    computed: int = crc32c(piece, crc_before)
    return computed


pack_prefix = _PREFIX.pack
"""Encode the first 16 bytes of a batch for the log: `pack_prefix(base_offset, batch_length, epoch)`. The rest,
`batch[PREFIX_BYTES:]`, stays unchanged and uncopied."""


put_prefix = _PREFIX.pack_into
"""Write them over those bytes of a batch: `put_prefix(buffer, position, base_offset, batch_length, epoch)`."""


def rewritten_header(
    batch: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    max_timestamp_ms: int,
    is_log_append_time: bool,
) -> bytes:
    """Encode the header of a batch with another time and its checksum; `batch[HEADER_BYTES:]` follows unchanged.

    A leader stores it for topics with LogAppendTime: `max_timestamp_ms` is then the time of every record in the batch.
    Unused attribute bits are cleared, as by Kafka's DefaultRecordBatch.setMaxTimestamp.
    """
    header = read_header(batch)
    attributes = header.attributes & _ATTRIBUTES_MASK & ~LOG_APPEND_TIME_BIT
    if is_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    changed = header._replace(
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
        max_timestamp_ms=max_timestamp_ms,
    )
    return sealed_header(changed, memoryview(batch)[HEADER_BYTES:])


def sealed_header(header: BatchHeader, records: Buffer) -> bytes:
    """Encode `header` with length and checksum for the records section that follows."""
    checked = _CHECKED_HEADER.pack(*header[5:])
    length = HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(records)
    checksum = crc32c(records, crc32c(checked))
    unchecked = header.base_offset, length, header.partition_leader_epoch, CURRENT_MAGIC, checksum
    return _UNCHECKED_HEADER.pack(*unchecked) + checked


def recompressed(header: BatchHeader, content: Buffer, codec: Codec, level: int | None) -> bytearray:
    """Build the batch of that header with its decompressed records compressed as the topic's settings require."""
    section = compress(codec, content, level)
    # Unused attribute bits are dropped, as Kafka rebuilds the batch.
    kept = header.attributes & (LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    changed = header._replace(attributes=kept | codec)
    return bytearray().join((sealed_header(changed, section), section))


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
    is_log_append_time: bool = False,
) -> bytearray:
    """Build one batch of at least one record. Its first offset is `base_offset`; the records' distances are kept."""
    first = records[0]
    attributes = int(codec)
    if is_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    if is_transactional:
        attributes |= TRANSACTIONAL_BIT
    if is_control:
        attributes |= CONTROL_BIT
    count = len(records)
    first_timestamp_ms = first.timestamp_ms
    batch = bytearray(HEADER_BYTES)
    section = batch if codec is Codec.NONE else bytearray()
    write_records(section, first_timestamp_ms, first.offset, records)
    if section is not batch:
        batch += compress(codec, section)
    _seal(
        batch,
        base_offset,
        partition_leader_epoch,
        attributes,
        records[-1].offset - first.offset,
        first_timestamp_ms,
        first_timestamp_ms if count == 1 else max([record.timestamp_ms for record in records]),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    return batch


def build_plain_batch(
    records: Sequence[PlainRecord],
    *,
    timestamp_ms: int,
    base_offset: int,
    partition_leader_epoch: int,
    producer: tuple[int, int] | None = None,
    is_log_append_time: bool = False,
) -> bytes:
    """Build as `build_batch` a batch of a coordinator's records: of one time, without headers, not compressed.

    producer: (id, epoch) of their transaction.
    """
    attributes = LOG_APPEND_TIME_BIT if is_log_append_time else 0
    if producer is not None:
        attributes |= TRANSACTIONAL_BIT
    producer_id, producer_epoch = producer or NO_PRODUCER
    count = len(records)
    if count == 1:
        key, value = records[0].key, records[0].value
        if key is not None and value is not None:  # nearly all of them
            layout, batch_length, before_key, before_value = _single_record(len(key), len(value))
            covered = layout.pack(
                attributes,
                timestamp_ms,
                timestamp_ms,
                producer_id,
                producer_epoch,
                before_key,
                key,
                before_value,
                value,
            )
            checksum = crc32c(covered)
            return (
                _UNCHECKED_HEADER.pack(base_offset, batch_length, partition_leader_epoch, CURRENT_MAGIC, checksum)
                + covered
            )
    section = b"".join([plain_record(one.key, one.value, offset_delta) for offset_delta, one in enumerate(records)])
    checked = _CHECKED_HEADER.pack(
        attributes, count - 1, timestamp_ms, timestamp_ms, producer_id, producer_epoch, NO_SEQUENCE, count
    )
    unchecked = _UNCHECKED_HEADER.pack(
        base_offset,
        HEADER_BYTES - LENGTH_OVERHEAD_BYTES + len(section),
        partition_leader_epoch,
        CURRENT_MAGIC,
        crc32c(section, crc32c(checked)),
    )
    return b"".join((unchecked, checked, section))


@lru_cache(maxsize=4_096)  # coordinators write records of few lengths
def _single_record(key_length: int, value_length: int) -> tuple[struct.Struct, int, bytes, bytes]:
    """For a batch of one plain record: layout of the checked part, batch length, and the bytes before and after the
    key, those before it with the end of the header.

    Bytes that the layout skips are 0: the last offset's distance, and after the value the count of headers.
    """
    start, before_value = around_key(key_length, value_length, 0)
    before_key = _SEQUENCE_AND_COUNT.pack(NO_SEQUENCE, 1) + start
    layout = struct.Struct(f">h4xqqqh{len(before_key)}s{key_length}s{len(before_value)}s{value_length}sx")
    return layout, _UNCHECKED_HEADER.size + layout.size - LENGTH_OVERHEAD_BYTES, before_key, before_value


def _seal(batch: bytearray, base_offset: int, partition_leader_epoch: int, *checked: int) -> None:
    """Write the header of a batch whose records are written.

    checked: the fields after the checksum, in their order.
    """
    length = len(batch) - LENGTH_OVERHEAD_BYTES
    _HEADER.pack_into(batch, 0, base_offset, length, partition_leader_epoch, CURRENT_MAGIC, _NO_CRC_YET, *checked)
    _CRC.pack_into(batch, CRC_POSITION, computed_crc(memoryview(batch)))


def write_records(out: bytearray, base_timestamp_ms: int, first_offset: int, records: Sequence[Record]) -> None:
    for record in records:
        offset, timestamp_ms, key, value, headers = record
        write_record(out, key, value, timestamp_ms - base_timestamp_ms, offset - first_offset, headers)


def read_records(
    batch: RecordBatch, *, maximum_bytes: int = MAXIMUM_DECOMPRESSED_BYTES, content: bytes | None = None
) -> Iterator[Record]:
    """Read the records of a batch, decompressed if need be; the header's count must be that of all records.

    content: the records section, if it was decompressed before.
    Raises DecodeError if they contradict the header, or decompression would yield more than `maximum_bytes`.
    """
    header = batch.header
    # Bytes are faster to read than a view; one copy of the whole, then one of each key and value.
    if content is None:
        content = bytes(decompress(header.codec, batch.buffer[HEADER_BYTES:], maximum_bytes=maximum_bytes))
    append_time_ms = header.max_timestamp_ms if header.is_log_append_time else None
    position = 0
    for _ in range(header.records_count):
        record, position = read_record(
            content,
            position,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp_ms,
            append_time_ms=append_time_ms,
        )
        yield record
    if position != len(content):
        raise DecodeError("bytes follow the last record of a batch", position=position)


class EndTransactionMarker(NamedTuple):
    """Content of a marker: commit or abort, and the epoch of the coordinator that decided."""

    committed: bool
    coordinator_epoch: int


def build_end_transaction_marker(
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    base_offset: int = 0,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    is_log_append_time: bool = False,
) -> bytes:
    """Build the control batch of `MARKER_BYTES` that ends a producer's transaction in one partition."""
    return _PREFIX.pack(base_offset, _MARKER_BATCH_LENGTH, partition_leader_epoch) + _marker_behind_prefix(
        producer_id, producer_epoch, committed, coordinator_epoch, timestamp_ms, is_log_append_time
    )


@lru_cache(maxsize=256)
def _marker_behind_prefix(
    producer_id: int,
    producer_epoch: int,
    committed: bool,
    coordinator_epoch: int,
    timestamp_ms: int,
    is_log_append_time: bool,
) -> bytes:
    """Encode the common part of a transaction's markers: the checksum covers neither offset nor leader epoch."""
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    if is_log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
    checked = _MARKER_AFTER_CRC.pack(
        attributes,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
        _COMMIT_START if committed else _ABORT_START,
        coordinator_epoch,
    )
    return _MAGIC_AND_CRC.pack(CURRENT_MAGIC, crc32c(checked)) + checked


def _marker_record_start(control_type: int) -> bytes:
    version = _CONTROL_RECORD_VERSION
    length, key_length, value_length = _MARKER_LENGTHS
    return _MARKER_RECORD_START.pack(length, 0, 0, 0, key_length, version, control_type, value_length, version)


_COMMIT_START = _marker_record_start(_COMMIT)
_ABORT_START = _marker_record_start(_ABORT)


def read_end_transaction_marker(batch: RecordBatch) -> EndTransactionMarker | None:
    """Read a marker. None for other batches, those that the cleaner emptied, and control records of other types.

    Raises DecodeError if the key or the value is too short or has a negative version; higher versions are read as
    version 0.
    """
    if not batch.header.is_control or batch.header.records_count == 0:
        return None
    record = next(read_records(batch), None)
    if record is None:
        return None
    control_type = _unpack_control(_CONTROL_KEY, record.key)
    if control_type not in (_ABORT, _COMMIT):
        return None
    coordinator_epoch = _unpack_control(_END_TRANSACTION_VALUE, record.value)
    return EndTransactionMarker(control_type == _COMMIT, coordinator_epoch)


def _unpack_control(layout: struct.Struct, content: bytes | None) -> int:
    if content is None or len(content) < layout.size:
        raise DecodeError("a control record is too short")
    version: int
    field: int
    version, field = layout.unpack_from(content)
    if version < 0:
        raise DecodeError(f"a control record cannot have version {version}")
    return field
