"""One partition's log: append, read, transactions' effect on what is stable, and the watchers that wait for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from broker.log.log_config import LogConfig
from broker.log.results import (
    AbortedTransaction,
    ActiveProducer,
    AppendOrigin,
    AppendResult,
    EpochEndOffset,
    Isolation,
    LogRead,
    MarkerObserver,
    RecordError,
    TimestampedOffset,
)
from broker.topic_partition import TopicPartition
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.log.verification import VerificationGuard

__all__ = [
    "AbortedTransaction",
    "ActiveProducer",
    "AppendOrigin",
    "AppendResult",
    "EpochEndOffset",
    "Isolation",
    "LogRead",
    "MarkerObserver",
    "PartitionLog",
    "RecordError",
    "TimestampedOffset",
]


class PartitionLog:
    """The log of one partition."""

    topic_partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    leader_epoch: int
    observer: MarkerObserver | None
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int
    is_offline: bool
    is_deleted: bool

    def append(
        self, batch: memoryview, *, origin: AppendOrigin, now_ms: int, guard: VerificationGuard | None = None
    ) -> AppendResult:
        """Append one record batch. Raises StorageError."""
        raise NotImplementedError

    def append_marker(
        self,
        *,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> AppendResult:
        """Append the marker that ends a transaction. Raises StorageError."""
        raise NotImplementedError

    def flushed(self, offset: int | None = None) -> Awaitable[None]:
        """Wait until the log is durable. Raises StorageError."""
        raise NotImplementedError

    def read(self, offset: int, max_bytes: int, *, isolation: Isolation, minimum_one_batch: bool = True) -> LogRead:
        raise NotImplementedError

    def add_watcher(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def remove_watcher(self, callback: Callable[[], None]) -> None:
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp_ms: int, *, isolation: Isolation) -> TimestampedOffset | None:
        raise NotImplementedError

    def offset_of_max_timestamp(self, isolation: Isolation) -> TimestampedOffset | None:
        raise NotImplementedError

    def end_offset_for_leader_epoch(self, epoch: int) -> EpochEndOffset:
        raise NotImplementedError

    def begin_verification(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, transaction_version_2: bool
    ) -> VerificationGuard | ErrorCode | None:
        raise NotImplementedError

    def active_producers(self, now_ms: int) -> list[ActiveProducer]:
        raise NotImplementedError

    def delete_records(self, before_offset: int) -> ErrorCode:
        """Move the log start offset up; -1 means to the high watermark. OFFSET_OUT_OF_RANGE beyond it."""
        raise NotImplementedError

    @property
    def size_bytes(self) -> int:
        raise NotImplementedError

    def sweep(self, now_ms: int) -> None:
        raise NotImplementedError
