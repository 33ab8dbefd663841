"""Argument and result types of `PartitionLog`: enums and result classes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.errors import ErrorCode


class AppendOrigin(Enum):
    """The writer of a batch. COORDINATOR batches (offset commits, transaction states) carry no sequence and skip the
    duplicate and sequence checks."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


CLIENT: Final = AppendOrigin.CLIENT
"""A constant, as every append needs it, like `NO_ERROR`."""


class Isolation(Enum):
    """The bound of a read: high watermark, last stable offset, or log end offset (loading coordinators, tools)."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"
    LOG_END = "log_end"


# Constants, as every read needs them: Python 3.11 takes ten times as long to look up a member in its enum class.
READ_UNCOMMITTED: Final = Isolation.READ_UNCOMMITTED
READ_COMMITTED: Final = Isolation.READ_COMMITTED


@dataclass(frozen=True, slots=True)
class RecordError:
    """Why one record of a refused batch was refused; `index` counts from the first record of the batch."""

    index: int
    message: str


class AppendResult(NamedTuple):
    """The result of one batch's append.

    base_offset, last_offset: inclusive; those of the original when `is_duplicate`; -1 when refused.
    log_append_time_ms:       -1 on CreateTime topics.
    record_errors, message:   details if `error` is INVALID_RECORD or INVALID_TIMESTAMP.
    """

    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    is_duplicate: bool = False
    record_errors: tuple[RecordError, ...] = ()
    message: str | None = None


class AppendedRun(NamedTuple):
    """Batches that were appended together: their number, and the offset of the first; each has `records_count`
    records."""

    batches_count: int
    base_offset: int
    records_count: int

    @property
    def base_offsets(self) -> range:
        return range(self.base_offset, self.end_offset, self.records_count)

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.batches_count * self.records_count


class AbortedRange(NamedTuple):
    """An aborted transaction whose records a read_committed consumer must leave out, from `first_offset` to its
    marker."""

    producer_id: int
    first_offset: int


@dataclass(slots=True)
class LogRead:
    """Result of one read: whole batches as on disk, and the offsets of a Fetch response.

    aborted_transactions: None unless READ_COMMITTED, or if nothing fits.
    error:                NONE, or OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR; then `records` is empty.
    slice:                file range in place of `records`, for a lazy read that found much.
    is_cut_off:           whether something was found, and `max_bytes` cut off the next batch.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted_transactions: list[AbortedRange] | None = None
    error: ErrorCode = ErrorCode.NONE
    slice: FileSlice | None = None
    is_cut_off: bool = False


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class EpochEndOffset(NamedTuple):
    """The largest leader epoch not above the one asked for, and the offset after its last record; (-1, -1) when
    unknown."""

    leader_epoch: int
    end_offset: int


class ActiveProducer(NamedTuple):
    """One producer as DescribeProducers shows it; -1 if there is none."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_transaction_first_offset: int


class LastRecord(NamedTuple):
    """The origin of a producer's state: its last batch, or the marker of its epoch if `offset` is None."""

    offset: int | None
    producer_epoch: int


class LogTraffic(NamedTuple):
    """The counts of a log's traffic since it was opened.

    appended_count: offsets that were given, as in Kafka's MessagesInPerSec: of records and markers.
    refused_count:  batches that were not appended; rejected_bytes: of those that were too large.
    fetches_count, fetched_bytes: counted only while requests are observed.
    """

    appended_count: int = 0
    appended_bytes: int = 0
    refused_count: int = 0
    rejected_bytes: int = 0
    corrupt_batches_count: int = 0
    fetches_count: int = 0
    fetched_bytes: int = 0
    failed_fetches_count: int = 0


class MarkerObserver(Protocol):
    """Called with every marker, in log order, in the step that appends it."""

    def marker_appended(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None: ...
