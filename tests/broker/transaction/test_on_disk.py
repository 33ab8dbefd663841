"""Transactions over real logs on a real disk: what readers see, and what a restart finds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.producer_ids import ProducerIds
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import (
    Record,
    build_batch,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)
from tests.broker.transaction.test_service import eventually, producer_of

ID = "tx-1"
OUT = TopicPartition("out", 0)


class DiskBroker:
    """A transaction service over the logs of one data directory."""

    def __init__(self, topics: Topics, service: TransactionService) -> None:
        self.topics = topics
        self.service = service

    @property
    def log(self) -> PartitionLog:
        log = self.topics.log(OUT)
        assert log is not None
        return log

    async def write(self, producer: Producer, value: bytes, *, version: TransactionVersion) -> None:
        assert await self.service.add_partitions(ID, producer, (OUT,), version=version) is ErrorCode.NONE
        await self.append(producer, value, version=version)

    async def append(self, producer: Producer, value: bytes, *, version: TransactionVersion) -> None:
        batch = build_batch(
            [Record(0, 1_700_000_000_000, None, value, ())],
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        guard = self.log.begin_verification(
            producer.producer_id, producer.producer_epoch, 0, transaction_version_2=version is TransactionVersion.V2
        )
        assert not isinstance(guard, ErrorCode)
        result = self.log.append(memoryview(batch), now_ms=1_700_000_000_000, guard=guard)
        assert result.error is ErrorCode.NONE
        await self.log.flushed()

    async def end(self, producer: Producer, *, committed: bool, version: TransactionVersion) -> Producer:
        ended = producer_of(await self.service.end_transaction(ID, producer, committed=committed, version=version))
        await self.completed()
        return ended

    async def completed(self) -> None:
        def is_complete() -> bool:
            found = self.service.find(ID)
            return isinstance(found, TransactionMetadata) and not found.state.is_prepared

        await eventually(is_complete)

    def committed_values(self) -> list[bytes | None]:
        """What a read_committed consumer takes out of the partition."""
        values: list[bytes | None] = []
        offset = 0
        while len((read := self.log.read(offset, 1 << 20, isolation=Isolation.READ_COMMITTED)).records):
            coming = sorted(read.aborted_transactions or (), key=lambda entry: entry.first_offset)
            aborted: set[int] = set()
            for batch in iterate_batches(read.records):
                header = batch.header
                offset = header.last_offset + 1
                while coming and coming[0].first_offset <= header.last_offset:
                    aborted.add(coming.pop(0).producer_id)
                if header.is_control:
                    marker = read_end_transaction_marker(batch)
                    if marker is not None and not marker.committed:
                        aborted.discard(header.producer_id)
                elif header.producer_id not in aborted:
                    values += [record.value for record in read_records(batch)]
        return values


@asynccontextmanager
async def disk_broker(directory: Path, store: InMemoryMetadataStore) -> AsyncIterator[DiskBroker]:
    settings = Settings(
        log_dirs=str(directory),
        transaction_state_log_num_partitions=3,
        add_partitions_to_txn_retry_backoff_max_ms=10_000,  # markers may take their time on a busy machine
    )
    clock = SystemClock()
    disk = LocalDisk()
    logs = LogDirectory(str(directory), disk=disk, clock=clock)
    topics = Topics(store, logs, settings)
    await topics.open()
    if topics.metadata.get("out") is None:
        await topics.create("out", 1, {})
    service = TransactionService(topics, ProducerIds(store), settings, clock)
    await service.start()
    await service.ensure_loaded()
    try:
        yield DiskBroker(topics, service)
    finally:
        await service.close()
        await logs.close()
        disk.close()


@pytest.mark.parametrize("version", TransactionVersion)
async def test_readers_see_what_was_committed_and_nothing_else_also_after_a_restart(
    tmp_path: Path, version: TransactionVersion
) -> None:
    store = InMemoryMetadataStore()
    async with disk_broker(tmp_path, store) as broker:
        producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
        await broker.write(producer, b"committed", version=version)
        assert broker.committed_values() == []
        assert broker.log.last_stable_offset == 0
        await broker.end(producer, committed=True, version=version)
        assert broker.committed_values() == [b"committed"]
        producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
        await broker.write(producer, b"aborted", version=version)
        await broker.end(producer, committed=False, version=version)
        producer = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
        await broker.write(producer, b"open at the restart", version=version)
        assert broker.committed_values() == [b"committed"]
    async with disk_broker(tmp_path, store) as broker:
        assert broker.committed_values() == [b"committed"]
        await broker.end(producer, committed=True, version=version)
        assert broker.committed_values() == [b"committed", b"open at the restart"]
        assert broker.log.last_stable_offset == broker.log.log_end_offset


async def test_a_new_session_aborts_the_open_transaction_of_the_one_before_a_restart(tmp_path: Path) -> None:
    store = InMemoryMetadataStore()
    version = TransactionVersion.V2
    async with disk_broker(tmp_path, store) as broker:
        old = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
        await broker.write(old, b"left behind", version=version)
    async with disk_broker(tmp_path, store) as broker:
        new = producer_of(await broker.service.init_producer_id(ID, timeout_ms=60_000))
        assert new.producer_id == old.producer_id
        await broker.write(new, b"done", version=version)
        await broker.end(new, committed=True, version=version)
        assert broker.committed_values() == [b"done"]
        refused = await broker.service.end_transaction(ID, old, committed=True, version=version)
        assert refused.error is ErrorCode.PRODUCER_FENCED
