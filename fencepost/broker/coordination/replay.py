"""Replay of a coordinator's log: reads the log from its start and applies the records to a shard.

Where only the latest record of each key counts, the others are not decoded: the cleaner has only not removed them yet.
The work is sliced; the event loop answers other requests in between.
Source: Kafka's CoordinatorLoaderImpl and TransactionStateManager.loadTransactionMetadata.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from fencepost.broker.coordination.shard import RecordOrigin, Shard
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    BatchHeader,
    RecordBatch,
    check_crc,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)

if TYPE_CHECKING:
    from fencepost.broker.log.partition_log import PartitionLog

CHUNK_BYTES = 64 * 1024  # of a log, read in one turn
APPLIED_PER_TURN = 500


class Replay:
    """One load of one shard.

    only_latest_count: the last record of a key holds its whole state.
    is_wanted:         False once the broker has resigned from the partition; the replay then ends early.
    """

    def __init__(
        self, partition_log: PartitionLog, shard: Shard, *, only_latest_count: bool, is_wanted: Callable[[], bool]
    ) -> None:
        self.record_count = 0
        self._log = partition_log
        self._shard = shard
        self._only_latest_count = only_latest_count
        self._is_wanted = is_wanted
        self._offset = partition_log.log_start_offset
        self._latest: dict[bytes, tuple[bytes | None, RecordOrigin]] = {}  # in the order of their offsets

    async def run(self) -> bool:
        """Apply the whole log, including records appended meanwhile; return False if `is_wanted` ended it.

        It returns in the step in which it reached the end of the log.
        Raises StorageError, also for an impossible record; DecodeError.
        """
        while self._is_wanted():
            if self._offset < self._log.log_end_offset:
                self._apply_chunk()
            elif self._latest:
                await self._apply_latest()
                continue
            elif self._log.offline_reason is not None:
                # The log may end where damage begins: the shard would lack acknowledged records.
                raise StorageError(f"{self._log.topic_partition} is offline: {self._log.offline_reason}")
            else:
                return True
            if self._offset < self._log.log_end_offset:
                await asyncio.sleep(0)
        return False

    def _apply_chunk(self) -> None:
        start_offset = self._offset
        read = self._log.read(start_offset, CHUNK_BYTES, isolation=Isolation.LOG_END)
        for batch in iterate_batches(read.records):
            if not check_crc(batch.buffer):
                raise self._damaged("the batch there has a wrong checksum")
            self._check_order(batch.header, is_first=self._offset == start_offset)
            self._offset = batch.header.last_offset + 1
            self.record_count += batch.header.records_count
            if batch.header.is_control:
                self._apply_marker(batch)
            else:
                self._apply_records(batch)
        if self._offset == start_offset:
            # Ending here would forget acknowledged decisions.
            raise StorageError(f"{self._log.topic_partition} cannot be read from offset {start_offset} on")

    def _check_order(self, header: BatchHeader, *, is_first: bool) -> None:
        """Check the offsets of a batch: the greater one of two commits of a key counts, and no checksum covers offsets.

        is_first: whether it is the first batch of a read: it holds the requested offset, and may begin before it.
        Raises StorageError.
        """
        base_offset, last_offset = header.base_offset, header.last_offset
        if (last_offset if is_first else base_offset) < self._offset:
            raise self._damaged(f"the batch there has the offsets {base_offset} to {last_offset}")
        if not 0 <= base_offset <= last_offset < self._log.log_end_offset:
            reason = f"the batch there has the offsets {base_offset} to {last_offset}, and the log ends before "
            raise self._damaged(f"{reason}{self._log.log_end_offset}")

    def _damaged(self, reason: str) -> StorageError:
        return StorageError(f"{self._log.topic_partition} is damaged at offset {self._offset}: {reason}")

    def _impossible(self, offset: int, error: DecodeError) -> StorageError:
        """The error of an impossible record. Without the record, the one that it replaces would count."""
        place = f"the record at offset {offset} of {self._log.files.directory}"
        return StorageError(f"{place} cannot be what the coordinator wrote: {error}")

    def _apply_marker(self, batch: RecordBatch) -> None:
        header = batch.header
        try:
            marker = read_end_transaction_marker(batch)
        except DecodeError as error:
            raise self._impossible(header.base_offset, error) from error
        if marker is not None:
            self._shard.apply_marker(
                header.producer_id, header.producer_epoch, committed=marker.committed, offset=header.base_offset
            )

    def _apply_records(self, batch: RecordBatch) -> None:
        header = batch.header
        producer_id, producer_epoch = -1, -1
        if header.is_transactional:
            producer_id, producer_epoch = header.producer_id, header.producer_epoch
        latest = self._latest if self._only_latest_count else None
        offset = header.base_offset
        try:
            for record in read_records(batch):
                offset, key = record.offset, record.key
                if key is None:
                    raise DecodeError("it has no key")
                origin = RecordOrigin(offset, record.timestamp_ms, producer_id, producer_epoch)
                if latest is None:
                    self._shard.apply(key, record.value, origin)
                else:
                    latest.pop(key, None)  # or the key would keep its place in the order
                    latest[key] = record.value, origin
        except DecodeError as error:
            raise self._impossible(offset, error) from error

    async def _apply_latest(self) -> None:
        for applied_count, (key, (value, origin)) in enumerate(self._latest.items(), start=1):
            try:
                self._shard.apply(key, value, origin)
            except DecodeError as error:
                raise self._impossible(origin.offset, error) from error
            if applied_count % APPLIED_PER_TURN == 0:
                await asyncio.sleep(0)
        self._latest.clear()
