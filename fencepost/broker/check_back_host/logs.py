"""Logs as the check-back reads and writes them, and those of partitions that this node leads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import AbortedRange, Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.check_back.ports import Unavailable
from fencepost.protocol.errors import NO_ERROR, ErrorCode

CHUNK_BYTES: Final = 65_536
"""Read and decoded in one step."""


class PlainRecord(NamedTuple):
    """A record without a time of its own."""

    key: bytes | None
    value: bytes | None


class Chunk(NamedTuple):
    """Batches of a log; of a committed read also the aborted transactions among them."""

    records: memoryview
    aborted: Sequence[AbortedRange]
    log_start_offset: int
    error: ErrorCode = NO_ERROR


class ReadableLog(Protocol):
    """One partition. Each method raises Unavailable."""

    @property
    def place(self) -> TopicPartition: ...

    async def read(self, offset: int, *, is_committed: bool = True) -> Chunk:
        """The batches from an offset on, CHUNK_BYTES or one batch. Refuses, as a value: OFFSET_OUT_OF_RANGE.

        is_committed: whether the last stable offset ends the read; else the high watermark, with open transactions.
        """
        ...

    async def high_watermark(self) -> int: ...

    async def last_stable_offset(self) -> int: ...

    async def append(self, records: Sequence[PlainRecord]) -> None:
        """Append records; returns when they are durable."""
        ...


class LogHere:
    """The log of a partition that this node leads."""

    def __init__(self, log: PartitionLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    @property
    def place(self) -> TopicPartition:
        return self._log.topic_partition

    async def read(self, offset: int, *, is_committed: bool = True) -> Chunk:
        isolation = Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED
        read = self._log.read(offset, CHUNK_BYTES, isolation=isolation)
        if read.error not in (NO_ERROR, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise Unavailable(f"{self.place} cannot be read: {read.error.name}")
        return Chunk(read.records, read.aborted_transactions or (), self._log.log_start_offset, read.error)

    async def high_watermark(self) -> int:
        return self._log.high_watermark

    async def last_stable_offset(self) -> int:
        return self._log.last_stable_offset

    async def append(self, records: Sequence[PlainRecord]) -> None:
        try:
            error = self._log.append_records(records, now_ms=self._clock.now_ms())
            if error is not NO_ERROR:
                raise Unavailable(f"{self.place.topic} refuses records: {error.name}")
            await self._log.flushed()
        except StorageError as failure:
            raise Unavailable(f"{self.place.topic} cannot be written: {failure}") from None
