"""Compaction rules: the newest record of each key stays, and those that consumers and producers need.

Source: Kafka's Cleaner and CleanedTransactionMetadata; KIP-58, KIP-98, KIP-354, KIP-534.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop
from itertools import islice
from typing import NamedTuple

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.log.log_types import LastRecord
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.protocol.record_batch import BatchHeader, Record, RecordBatch, read_end_transaction_marker, read_records

RECORDS_PER_STEP = 1_000
PARTS_COUNT = 64
PART_SHIFT = 32
KEY_OVERHEAD_BYTES = 120  # of a dict entry, a bytes object and an int, without the key itself


class CleanedTransactions:
    """The transactions of the batches that are cleaned, in order.

    Data of an aborted transaction goes. A marker goes once no batch of its transaction is left before it, which takes a
    second pass; until then an aborted transaction stays in the index of the marker's segment.
    """

    def __init__(self, aborted: Iterable[TransactionIndexEntry]) -> None:
        self._coming = [(entry.first_offset, entry) for entry in aborted]
        heapify(self._coming)
        self._ongoing_aborted: dict[int, TransactionIndexEntry] = {}
        self._aborted_with_batches: set[int] = set()
        self._committed_with_batches: set[int] = set()

    def is_aborted_data(self, header: BatchHeader) -> bool:
        """Apply a data batch; return whether its transaction was aborted."""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._ongoing_aborted:
            self._aborted_with_batches.add(header.producer_id)
            return True
        self._committed_with_batches.add(header.producer_id)
        return False

    def is_superfluous_marker(self, batch: RecordBatch, kept: list[TransactionIndexEntry]) -> bool:
        """Apply a control batch; return whether no batch of its transaction is left.

        kept: receives the aborted transaction that must stay in the index.
        """
        header = batch.header
        self._advance(header.last_offset)
        marker = read_end_transaction_marker(batch)
        if marker is None:
            return header.records_count == 0
        producer_id = header.producer_id
        if marker.committed:
            if producer_id in self._committed_with_batches:
                self._committed_with_batches.discard(producer_id)
                return False
            return True
        entry = self._ongoing_aborted.pop(producer_id, None)
        if entry is not None and producer_id in self._aborted_with_batches:
            self._aborted_with_batches.discard(producer_id)
            kept.append(entry)
            return False
        return True

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            entry = heappop(self._coming)[1]
            self._ongoing_aborted[entry.producer_id] = entry


class KeyOffsets:
    """A mapping from keys to offsets in many parts: a single one of a million keys would take tens of ms to grow or
    free.

    parts: dicts by the higher bits of the keys' hashes, as a dict places its keys by the lower ones.
    """

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: tuple[dict[bytes, int], ...] = tuple({} for _ in range(PARTS_COUNT))

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def part_of(self, key: bytes) -> dict[bytes, int]:
        return self.parts[hash(key) >> PART_SHIFT & PARTS_COUNT - 1]


class OffsetMap:
    """The newest offset of every key between the first dirty offset and `end_offset` (exclusive), in bounded memory."""

    def __init__(self, maximum_bytes: int) -> None:
        self.end_offset = 0
        self._offsets = KeyOffsets()
        self._free_bytes = maximum_bytes

    def __len__(self) -> int:
        return len(self._offsets)

    def add_batch(self, records: Iterable[Record], start_offset: int) -> SlicedWork[bool]:
        """Add the records of a batch from `start_offset` on; False when the batch is left out for lack of room.

        The first batch always fits, so cleaning proceeds with any memory bound. A step is `RECORDS_PER_STEP`.
        """
        added = KeyOffsets()
        part_of = added.part_of
        for count, record in enumerate(records, 1):
            key = record.key
            if key is not None and record.offset >= start_offset:
                part_of(key)[key] = record.offset
            if count % RECORDS_PER_STEP == 0:
                yield
        needed_bytes = 0
        count = 0
        for part, added_part in zip(self._offsets.parts, added.parts, strict=True):
            for key in added_part:
                if key not in part:
                    needed_bytes += len(key) + KEY_OVERHEAD_BYTES
                count += 1
                if count % RECORDS_PER_STEP == 0:
                    yield
        has_room = needed_bytes <= self._free_bytes or not len(self._offsets)
        if has_room:
            self._free_bytes -= needed_bytes
        for part, added_part in zip(self._offsets.parts, added.parts, strict=True):
            if has_room:
                items = iter(added_part.items())
                while taken := list(islice(items, RECORDS_PER_STEP)):
                    part.update(taken)
                    count += len(taken)
                    if count >= RECORDS_PER_STEP:
                        count = 0
                        yield
            added_part.clear()
        return has_room

    def has_newer(self, key: bytes, offset: int) -> bool:
        newest_offset = self._offsets.part_of(key).get(key)
        return newest_offset is not None and newest_offset > offset

    def clearing_steps(self) -> SlicedWork[None]:
        """Free the memory, one part per step; the map is empty afterwards."""
        for part in self._offsets.parts:
            part.clear()
            yield


class RetainedRecords(NamedTuple):
    """The kept records of a batch. records None: all, unchanged; else these, with the delete horizon given."""

    records: list[Record] | None
    delete_horizon_ms: int | None = None


class RetentionRules:
    """The decisions of one pass over a log, batch by batch: which records it keeps.

    aborted:      the aborted transactions of the cleaned range.
    last_records: last records of the log's producers, by producer id.
    """

    def __init__(
        self,
        offset_map: OffsetMap,
        aborted: Iterable[TransactionIndexEntry],
        last_records: Mapping[int, LastRecord],
        *,
        delete_retention_ms: int,
        now_ms: int,
    ) -> None:
        self._map = offset_map
        self._transactions = CleanedTransactions(aborted)
        self._last_records = last_records
        self._delete_retention_ms = delete_retention_ms
        self._now_ms = now_ms

    def retain(
        self, batch: RecordBatch, content: bytes | None, kept_aborted: list[TransactionIndexEntry], *, is_last: bool
    ) -> SlicedWork[RetainedRecords | None]:
        """Return the records of a batch to keep; None if all are removed. A step is `RECORDS_PER_STEP` records.

        content: its records, if already decompressed. Raises DecodeError.
        is_last: the batch ends a segment, and stays at least as an empty one, so that its last offset is kept.
        """
        header = batch.header
        is_bare_marker = False
        if header.is_control:
            is_bare_marker = self._transactions.is_superfluous_marker(batch, kept_aborted)
            drops_records = is_bare_marker and self._is_past_horizon(header)
        else:
            drops_records = self._transactions.is_aborted_data(header)
        is_last_of_producer = self._is_last_of_producer(header)
        must_stay = is_last or is_last_of_producer
        if drops_records:
            if header.is_control and is_last_of_producer:
                # Whole: an empty control batch means nothing in a replay. Kafka empties it, and after a replay without
                # a snapshot accepts writes of earlier epochs again.
                return RetainedRecords(None)
            return RetainedRecords([]) if must_stay else None
        if header.is_control:
            if is_bare_marker and not header.has_delete_horizon:
                return RetainedRecords(list(read_records(batch)), self._now_ms + self._delete_retention_ms)
            return RetainedRecords(None)
        return (yield from self._retain_records(batch, content, must_stay=must_stay))

    def _retain_records(
        self, batch: RecordBatch, content: bytes | None, *, must_stay: bool
    ) -> SlicedWork[RetainedRecords | None]:
        header = batch.header
        is_past_horizon = self._is_past_horizon(header)
        kept: list[Record] = []
        has_tombstone = False
        for count, record in enumerate(read_records(batch, content=content)):
            if count and count % RECORDS_PER_STEP == 0:
                yield
            if record.offset < self._map.end_offset:
                if record.key is None or self._map.has_newer(record.key, record.offset):
                    continue
                if record.value is None:
                    if is_past_horizon:
                        continue
                    has_tombstone = True
            kept.append(record)
        if has_tombstone and not header.has_delete_horizon:
            return RetainedRecords(kept, self._now_ms + self._delete_retention_ms)
        # A batch is empty already if it ended a segment, or a producer's sequence: it goes once it does not any more.
        if len(kept) == header.records_count and (kept or must_stay):
            while kept:  # freeing the memory of a million records takes a separate step, too
                del kept[-RECORDS_PER_STEP:]
                yield
            return RetainedRecords(None)
        return RetainedRecords(kept) if kept or must_stay else None

    def _is_past_horizon(self, header: BatchHeader) -> bool:
        return header.has_delete_horizon and header.base_timestamp_ms <= self._now_ms

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Whether the producer's sequence, or its epoch if it has no data, is in no other batch."""
        last = self._last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset is None:
            return header.is_control and header.producer_epoch == last.producer_epoch
        return header.last_offset == last.offset
