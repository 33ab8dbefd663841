"""Validation of a producer's batch before it goes into the log: the checks that need no log, and a topic's changes.

Source: Kafka's UnifiedLog.analyzeAndValidateRecords and LogValidator.
"""

from __future__ import annotations

from typing import TypeAlias

from fencepost.broker.log.append.append_rules import AppendRules
from fencepost.broker.log.log_types import AppendResult, RecordError
from fencepost.protocol.compression import TooLargeForOneStepError, decompress
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    NO_PRODUCER_ID,
    PREFIX_BYTES,
    BatchHeader,
    computed_crc,
    read_header,
    recompressed,
    rewritten_header,
)
from fencepost.protocol.record_validation import BatchRefusal, validate_batch

PreparedBatch: TypeAlias = tuple[BatchHeader, tuple[bytes | bytearray | memoryview, ...]]
"""A batch that may be written once it has its offset: its header as it will be stored, without base offset and leader
epoch, and the bytes after the first 16, in one or two pieces."""


def read_client_batch(batch: memoryview) -> BatchHeader | AppendResult:
    """Return the header of exactly one v2 batch. Refuses: CORRUPT_MESSAGE, INVALID_RECORD."""
    try:
        header = read_header(batch)
    except DecodeError as error:
        return AppendResult(ErrorCode.CORRUPT_MESSAGE, message=str(error))
    if header.magic != CURRENT_MAGIC:
        return AppendResult(ErrorCode.INVALID_RECORD, message=f"record format {header.magic} is not {CURRENT_MAGIC}")
    if header.size_bytes != len(batch):
        message = f"{len(batch)} bytes are not one batch of {header.size_bytes}"
        return AppendResult(ErrorCode.INVALID_RECORD, message=message)
    return header


def prepare_client_batch(
    batch: memoryview, header: BatchHeader | None, rules: AppendRules, now_ms: int
) -> PreparedBatch | AppendResult:
    """Check a producer's batch in Kafka's order, and give it the topic's time and compression.

    header: result of `read_client_batch`, if it has been called.
    Refuses: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE, INVALID_TIMESTAMP, UNSUPPORTED_COMPRESSION_TYPE,
    RECORD_LIST_TOO_LARGE.
    Raises TooLargeForOneStepError for a batch that needs `LargeBatches.check`, and then `finish_preparation`.
    """
    if header is None:
        read = read_client_batch(batch)
        if isinstance(read, AppendResult):
            return read
        header = read
    size_bytes = len(batch)
    if header.base_offset != 0:
        message = f"the base offset of a batch to be appended is 0, not {header.base_offset}"
        return AppendResult(ErrorCode.INVALID_RECORD, message=message)
    if size_bytes > rules.maximum_bytes:
        return too_large(size_bytes, rules)
    if computed_crc(batch) != header.crc:
        return AppendResult(ErrorCode.CORRUPT_MESSAGE, message="the checksum of the batch does not match")
    refusal = validate_batch(batch, header, rules.record_rules, now_ms=now_ms)
    if refusal is not None:
        return refused_records(refusal)
    if rules.codec is not None and header.attributes & CODEC_MASK != rules.codec:
        if header.producer_id < NO_PRODUCER_ID:
            return refuse_without_producer_id(header)
        content = decompress(header.codec, batch[HEADER_BYTES:], is_one_step=True)
        if len(content) > rules.compressed_at_once_bytes:
            raise TooLargeForOneStepError
        batch = memoryview(recompressed(header, content, rules.codec, rules.level))
        header = read_header(batch)
        size_bytes = len(batch)
    if size_bytes > rules.largest_batch_bytes:
        return too_large(size_bytes, rules)
    if rules.uses_log_append_time or header.attributes & LOG_APPEND_TIME_BIT:
        return _with_topic_time(batch, header, rules, now_ms)
    return header, (batch[PREFIX_BYTES:],)


def finish_preparation(
    batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int
) -> PreparedBatch | AppendResult:
    """Prepare a batch that was checked before, by the same rules; as `prepare_client_batch`."""
    if len(batch) > rules.largest_batch_bytes:
        return too_large(len(batch), rules)
    if rules.uses_log_append_time or header.attributes & LOG_APPEND_TIME_BIT:
        return _with_topic_time(batch, header, rules, now_ms)
    return header, (batch[PREFIX_BYTES:],)


def refused_records(refusal: BatchRefusal) -> AppendResult:
    """Return the refusal of a batch for its content."""
    record_errors = tuple(RecordError(index, message) for index, message in refusal.record_errors)
    return AppendResult(refusal.error, record_errors=record_errors, message=refusal.message)


def refuse_without_producer_id(header: BatchHeader) -> AppendResult:
    """Return the refusal of a batch that is to be recompressed but has a producer id below -1.

    A batch that is not recompressed counts as one without producer; here Kafka says UNKNOWN_SERVER_ERROR.
    """
    return AppendResult(ErrorCode.INVALID_RECORD, message=f"{header.producer_id} is no producer id")


def too_large(size_bytes: int, rules: AppendRules) -> AppendResult:
    """Return the refusal of a batch above `rules.largest_batch_bytes`: MESSAGE_TOO_LARGE, or RECORD_LIST_TOO_LARGE."""
    if size_bytes > rules.maximum_bytes:
        message = f"a batch of {size_bytes} bytes is above the topic's max.message.bytes of {rules.maximum_bytes}"
        return AppendResult(ErrorCode.MESSAGE_TOO_LARGE, message=message)
    message = f"a batch of {size_bytes} bytes is above the topic's segment.bytes of {rules.segment_bytes}"
    return AppendResult(ErrorCode.RECORD_LIST_TOO_LARGE, message=message)


def _with_topic_time(batch: memoryview, header: BatchHeader, rules: AppendRules, now_ms: int) -> PreparedBatch:
    # Producers are refused the bit if it would count; else it is removed, or consumers would see the batch's
    # time for all records.
    head = rewritten_header(
        batch,
        base_offset=header.base_offset,
        partition_leader_epoch=header.partition_leader_epoch,
        max_timestamp_ms=now_ms if rules.uses_log_append_time else header.max_timestamp_ms,
        is_log_append_time=rules.uses_log_append_time,
    )
    return read_header(head), (head[PREFIX_BYTES:], batch[HEADER_BYTES:])
