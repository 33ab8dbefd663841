"""Topics whose logs live in memory, with flushes that a test can hold back or let fail: what a coordinator needs of the
real ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, cast
from unittest.mock import patch

from fencepost.broker.config import Settings
from fencepost.broker.hosting.placement import NodeAddress, Placement, SingleNodePlacement
from fencepost.broker.hosting.topic_rules import refused_factor
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import AppendResult, Isolation, LogRead, MarkerObserver
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.metadata.image import MetadataImage, TopicMetadata
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record import PlainRecord
from fencepost.protocol.record_batch import (
    EndTransactionMarker,
    build_end_transaction_marker,
    build_plain_batch,
    read_header,
)

INTERNAL_PARTITION_COUNT = 4


@dataclass(frozen=True)
class WrittenMarker:
    """A marker as a partition took it."""

    producer_id: int
    producer_epoch: int
    marker: EndTransactionMarker


@dataclass(frozen=True)
class _Flush:
    """Nobody needs to wait for it, as for a log's own future."""

    log: MemoryLog
    offset: int

    def __await__(self) -> Generator[Any, Any, None]:
        return self.log.reach(self.offset).__await__()


@dataclass
class NoEngine:
    """Durability without a cluster."""

    is_shared = False


class NoFiles:
    """Where the files of a log would be, for what is said about them."""

    directory: str = "/data/partition-0"


@dataclass
class MemoryLog:
    """A partition's log. `flush_gate`: while cleared, `flushed` waits; `refusal`: what appends answer instead of
    appending.
    """

    topic_partition: TopicPartition
    leader_epoch: int = 0
    files: NoFiles = field(default_factory=NoFiles)
    observer: MarkerObserver | None = None
    log_start_offset: int = 0
    log_end_offset: int = 0
    batches: list[bytearray] = field(default_factory=list)
    markers: list[WrittenMarker] = field(default_factory=list)
    high_watermark: int = 0
    flush_gate: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: ErrorCode = ErrorCode.NONE
    offline_reason: str | None = None
    disk_failed: bool = False
    is_deleted: bool = False
    durability: NoEngine = field(default_factory=NoEngine)
    verification: object | None = None
    guards: list[object | None] = field(default_factory=list)
    owners: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flush_gate.set()

    @property
    def is_offline(self) -> bool:
        return self.offline_reason is not None

    def append_records(
        self,
        records: Sequence[PlainRecord],
        *,
        now_ms: int,
        producer: tuple[int, int] | None = None,
        guard: object | None = None,
        is_awaited: bool = True,
    ) -> ErrorCode:
        self.guards.append(guard)
        batch = build_plain_batch(
            records, timestamp_ms=now_ms, base_offset=0, partition_leader_epoch=self.leader_epoch, producer=producer
        )
        return self._append(batch).error

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transaction_version_2: bool,
        transactional_id: str,
    ) -> object | None:
        return self.verification

    def confirm_owner(self, producer_id: int, transactional_id: str) -> None:
        self.owners[producer_id] = transactional_id

    def withdraw_verification(self, producer_id: int, guard: object) -> None:
        pass

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> ErrorCode:
        result = self._append(
            build_end_transaction_marker(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=committed,
                coordinator_epoch=coordinator_epoch,
                timestamp_ms=now_ms,
            )
        )
        if result.error is ErrorCode.NONE:
            marker = EndTransactionMarker(committed, coordinator_epoch)
            self.markers.append(WrittenMarker(producer_id, producer_epoch, marker))
            if self.observer is not None:
                self.observer.marker_appended(
                    producer_id, producer_epoch, committed=committed, offset=result.base_offset
                )
        return result.error

    def _append(self, built: bytes | bytearray) -> AppendResult:
        if self.disk_failed:
            raise StorageError("the disk failed")
        if self.refusal is not ErrorCode.NONE:
            return AppendResult(self.refusal)
        base_offset = self.log_end_offset
        batch = bytearray(built)
        batch[:8] = base_offset.to_bytes(8, "big")
        self.batches.append(batch)
        self.log_end_offset += read_header(batch).last_offset_delta + 1
        return AppendResult(ErrorCode.NONE, base_offset, self.log_end_offset - 1)

    async def reach(self, offset: int) -> None:
        if self.high_watermark >= offset:
            return
        await self.flush_gate.wait()
        await asyncio.sleep(0)
        if self.disk_failed:
            raise StorageError("the disk failed")
        self.high_watermark = max(self.high_watermark, offset)

    def flushed(self, offset: int | None = None) -> Awaitable[None]:
        return _Flush(self, self.log_end_offset if offset is None else offset)

    def read(self, offset: int, max_bytes: int, *, isolation: Isolation, minimum_one_batch: bool = True) -> LogRead:
        assert isolation is Isolation.LOG_END
        next_offset = 0
        for batch in self.batches:
            header = read_header(batch)
            if header.base_offset < next_offset:
                break  # nothing is read behind what is not the next batch
            next_offset = header.last_offset + 1
            if header.last_offset >= offset:
                return LogRead(memoryview(batch), self.log_end_offset, self.log_end_offset, 0)
        return LogRead(memoryview(b""), self.log_end_offset, self.log_end_offset, 0)


def in_page_cache() -> AbstractContextManager[object]:
    """All that is appended counts as durable, as where the page cache is enough."""
    end_offset = property(lambda log: log.log_end_offset, lambda log, offset: None)
    return patch.object(MemoryLog, "high_watermark", end_offset)


class MemoryTopics:
    """The part of `Topics` that coordinators use. A second service on the same topics is the broker after a restart."""

    def __init__(self, **partition_counts: int) -> None:
        self.metadata = MetadataImage()
        self.on_created: list[Callable[[TopicMetadata], None]] = []
        self.on_deleted: list[Callable[[TopicMetadata], None]] = []
        self.on_led: list[Callable[[PartitionLog], None]] = []
        self.on_resigned: list[Callable[[TopicPartition], None]] = []
        self.placement: Placement = SingleNodePlacement(NodeAddress(1, "localhost", 9092))
        self.logs: dict[TopicPartition, MemoryLog] = {}
        self.creation_refusals: dict[str, str | StorageError] = {}
        for name, partition_count in partition_counts.items():
            self.add(name, partition_count)

    def add(self, name: str, partition_count: int) -> TopicMetadata:
        topic = TopicMetadata(name, name.encode().ljust(16, b"-")[:16], partition_count)
        self.metadata.put(topic)
        for partition in range(partition_count):
            topic_partition = TopicPartition(name, partition)
            self.logs[topic_partition] = MemoryLog(topic_partition)
        for hook in self.on_created:
            hook(topic)
        return topic

    def refused_factor(self, factor: int) -> str | None:
        return refused_factor(factor, 1, Settings())

    def remove(self, name: str) -> None:
        topic = self.metadata.get(name)
        assert topic is not None
        self.metadata.remove(name)
        for hook in self.on_deleted:
            hook(topic)
        for topic_partition in [known for known in self.logs if known.topic == name]:
            del self.logs[topic_partition]

    def log(self, topic_partition: TopicPartition) -> MemoryLog | None:
        return self.logs.get(topic_partition)

    def error_of_absent_log(self, topic_partition: TopicPartition) -> ErrorCode:
        topic = self.metadata.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= topic.partition_count:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def is_unopened(self, topic_partition: TopicPartition) -> bool:
        return False

    def has_leaders(self, name: str) -> bool:
        topic = self.metadata.get(name)
        return topic is None or all(self.placement.leader(each) is not None for each in topic.partitions())

    def resign(self, topic_partition: TopicPartition) -> None:
        """The partition is led by another node from now on. Its log stays, for `lead`."""
        for hook in self.on_resigned:
            hook(topic_partition)
        self.logs[topic_partition].disk_failed = True  # as a log that has gone: nothing of it becomes durable here

    def lead(self, topic_partition: TopicPartition) -> None:
        """The partition is led here again, in a higher epoch."""
        found = self.logs[topic_partition]
        found.disk_failed = False
        found.leader_epoch += 1
        for hook in self.on_led:
            hook(cast("PartitionLog", found))

    async def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> tuple[ErrorCode, str | None]:
        """As `creation_refusals` says, by name; a StorageError there is raised."""
        refusal = self.creation_refusals.get(name)
        if isinstance(refusal, StorageError):
            raise refusal
        if refusal is not None:
            return ErrorCode.POLICY_VIOLATION, refusal
        if self.metadata.get(name) is not None:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic {name!r} already exists."
        self.add(name, partition_count)
        return ErrorCode.NONE, None

    async def ensure_internal(self, name: str) -> TopicMetadata:
        return self.metadata.get(name) or self.add(name, INTERNAL_PARTITION_COUNT)
