"""Invariants 15, 16 and 22: what lies beside and instead of the whole log says the same as the log."""

from __future__ import annotations

import re
import struct
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from crc32c import crc32c

from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.protocol.errors import ErrorCode
from tests.simulation.broker import SimulatedBroker
from tests.simulation.invariants.history import PartitionHistory, PartitionTransaction
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.reads import LARGE_FETCH_BYTES, consumed, has_away
from tests.simulation.invariants.stored_log import StoredBatch, read_batches

INDEX_ENTRY = struct.Struct(">hqqqq")
SNAPSHOT_HEAD = struct.Struct(">hIi")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
REMEMBERED_BATCHES = 5
_NUMBERED = re.compile(r"(\d{20})\.(log|txnindex|snapshot)")


class _OfLiveLogs(Invariant):
    """Holds for every log that is served: once it is recovered, and in the end."""

    def restarted(self, broker: SimulatedBroker) -> Iterable[Violation]:
        for history, partition_log in self.evidence.live_logs():
            if history.node_id == broker.node_id:
                yield from self.check(history, partition_log)

    def settled(self) -> Iterable[Violation]:
        for history, partition_log in self.evidence.live_logs():
            yield from self.check(history, partition_log)

    @abstractmethod
    def check(self, history: PartitionHistory, partition_log: PartitionLog) -> Iterator[Violation]: ...


class TransactionIndexes(_OfLiveLogs):
    """15. A .txnindex holds exactly the aborted, non-empty transactions whose marker lies in its segment; made anew
    from the log it has the same bytes.
    """

    number = 15

    def check(self, history: PartitionHistory, _: PartitionLog) -> Iterator[Violation]:
        files = numbered(self.evidence.files_of(history))
        bases = sorted(files.get("log", {}))
        for base_offset, next_base_offset in zip(bases, [*bases[1:], 2**63], strict=True):
            content = files.get("txnindex", {}).get(base_offset, b"")
            aborted = [
                transaction
                for offset, transaction in history.ended_by.items()
                if transaction.is_aborted and base_offset <= offset < next_base_offset
            ]
            expected = b"".join(sorted(map(index_entry, aborted), key=lambda entry: INDEX_ENTRY.unpack(entry)[3]))
            if content == expected:
                continue
            if not history.is_whole and self._is_enough(history, content, aborted):
                continue
            yield self.violation(
                f"the index of aborted transactions of {history} from offset {base_offset} is not what the log says",
                f"file: {_entries(content)}",
                f"log:  {_entries(expected)}",
            )

    def _is_enough(self, history: PartitionHistory, content: bytes, aborted: list[PartitionTransaction]) -> bool:
        """Where records were removed: nothing else is in the index, and whatever still has data is, from where on it
        still has some.
        """
        if len(content) % INDEX_ENTRY.size:
            return False
        found = {(entry[1], entry[3]): entry[2] for entry in INDEX_ENTRY.iter_unpack(content)}
        left = {batch.base_offset for batch in history.present if not batch.is_control and batch.record_count}
        for transaction in aborted:
            assert transaction.marker is not None
            first_offset = found.pop((transaction.producer_id, transaction.marker.base_offset), None)
            first_left = next((batch.base_offset for batch in transaction.batches if batch.base_offset in left), None)
            if first_offset is None:
                if first_left is not None:
                    return False
            elif first_offset < transaction.first_offset or (first_left is not None and first_offset > first_left):
                return False
        return not found


def _entries(content: bytes) -> str:
    if len(content) % INDEX_ENTRY.size:
        return content.hex()
    return str([entry[1:] for entry in INDEX_ENTRY.iter_unpack(content)])


def index_entry(transaction: PartitionTransaction) -> bytes:
    """The entry for an aborted transaction, as Kafka's AbortedTxn lays it out."""
    assert transaction.marker is not None
    last_offset = transaction.marker.base_offset
    stable = last_offset + 1 if transaction.first_open_after is None else transaction.first_open_after
    return INDEX_ENTRY.pack(0, transaction.producer_id, transaction.first_offset, last_offset, stable)


def numbered(files: Mapping[str, bytes]) -> dict[str, dict[int, bytes]]:
    """The numbered files of a partition: suffix -> offset -> content."""
    found: dict[str, dict[int, bytes]] = {}
    for name, content in files.items():
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            found.setdefault(match[2], {})[int(match[1])] = content
    return found


@dataclass
class _Producer:
    """One producer as a replay of the log makes it.

    recent:        last sequence, last offset and offset delta of its last batches.
    first_at_s, last_at_s: when it first wrote, and when it or its coordinator last did.
    last_data_at_s: when it last wrote.
    """

    producer_epoch: int = -1
    coordinator_epoch: int = -1
    first_offset: int = -1
    recent: list[tuple[int, int, int]] = field(default_factory=list)
    first_at_s: float = 0.0
    last_at_s: float = 0.0
    last_data_at_s: float = 0.0

    def move_to(self, producer_epoch: int) -> None:
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.recent = []


def replayed(batches: Iterable[StoredBatch], end_offset: int) -> dict[int, _Producer]:
    """The producers after all batches below an offset. Source: Kafka's ProducerStateManager."""
    producers: dict[int, _Producer] = {}
    for batch in batches:
        if batch.producer_id < 0 or batch.last_offset >= end_offset or (batch.is_control and batch.marker is None):
            continue
        producer = producers.setdefault(batch.producer_id, _Producer(first_at_s=batch.at_s))
        producer.move_to(batch.producer_epoch)
        producer.last_at_s = batch.at_s
        if batch.marker is not None:
            producer.coordinator_epoch = batch.marker.coordinator_epoch
            producer.first_offset = -1
            continue
        producer.last_data_at_s = batch.at_s
        last_sequence = batch.last_sequence if batch.base_sequence >= 0 else -1
        recent = (last_sequence, batch.last_offset, batch.last_offset - batch.base_offset)
        producer.recent = [*producer.recent, recent][-REMEMBERED_BATCHES:]
        if batch.is_transactional and producer.first_offset < 0:
            producer.first_offset = batch.base_offset
    return producers


class ReplayedProducers(_OfLiveLogs):
    """16. Producer state after snapshot and replay equals that after a full replay (modulo the older of the five last
    batches), and every snapshot file equals a full replay up to its offset.
    """

    number = 16

    def check(self, history: PartitionHistory, partition_log: PartitionLog) -> Iterator[Violation]:
        live = {
            producer.producer_id: _Producer(
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_transaction_first_offset,
                [(batch.last_sequence, batch.last_offset, batch.offset_delta) for batch in producer.recent_batches],
            )
            for producer in partition_log.producers.snapshot()
        }
        yield from self.compare(history, "the live state", live, replayed(history.batches, 2**63))
        if not history.is_whole:
            return  # a snapshot that was taken after the cleaning says less of what was cleaned
        for offset, content in numbered(self.evidence.files_of(history)).get("snapshot", {}).items():
            if offset > history.end_offset:
                yield self.violation(f"{history} ends at {history.end_offset} and has a snapshot of offset {offset}")
                continue
            stored = decode_snapshot(content)
            if stored is None:
                continue  # torn by a power loss: the one before it is used
            yield from self.compare(history, f"the snapshot at {offset}", stored, replayed(history.batches, offset))

    def compare(
        self, history: PartitionHistory, what: str, found: dict[int, _Producer], expected: dict[int, _Producer]
    ) -> Iterator[Violation]:
        for producer_id in sorted(found.keys() | expected.keys()):
            mine, theirs = expected.get(producer_id), found.get(producer_id)
            if theirs is None:
                assert mine is not None
                if mine.first_offset < 0 and (self._is_expired(mine) or not history.is_whole):
                    continue
            if mine is not None and theirs is not None:
                # Of a snapshot's producers a restart drops those that it shows to be silent for long, whatever they
                # have written since.
                is_forgotten = self.evidence.now_s - mine.first_at_s >= self.evidence.producer_expiration_s
                if _is_equal(mine, theirs, is_tail_enough=is_forgotten or not history.is_whole):
                    continue
                # A marker that comes after that is all that is known of the producer.
                is_silent = self.evidence.now_s - mine.last_data_at_s >= self.evidence.producer_expiration_s
                if is_silent and not theirs.recent and _is_equal(replace(mine, recent=[]), theirs, is_tail_enough=True):
                    continue
            yield self.violation(
                f"{what} of {history} has another idea of producer {producer_id} than its log",
                f"log:   {mine}",
                f"state: {theirs}",
            )

    def _is_expired(self, producer: _Producer) -> bool:
        return self.evidence.now_s - producer.last_at_s >= self.evidence.producer_expiration_s


def _is_equal(mine: _Producer, theirs: _Producer, *, is_tail_enough: bool) -> bool:
    """is_tail_enough: what was before the newest batch may be unknown by now."""
    if (mine.producer_epoch, mine.first_offset) != (theirs.producer_epoch, theirs.first_offset):
        return False
    if mine.coordinator_epoch != theirs.coordinator_epoch and not (is_tail_enough and theirs.coordinator_epoch < 0):
        return False
    if not mine.recent or not theirs.recent:
        return not mine.recent and not theirs.recent
    count = 1 if is_tail_enough else len(theirs.recent)
    return mine.recent[-count:] == theirs.recent[-count:]


def decode_snapshot(content: bytes) -> dict[int, _Producer] | None:
    """A .snapshot file by Kafka's layout; None when it is not whole."""
    if len(content) < SNAPSHOT_HEAD.size:
        return None
    version, checksum, count = SNAPSHOT_HEAD.unpack_from(content)
    if version != 1 or crc32c(content[6:]) != checksum:
        return None
    producers = {}
    for slot in range(count):
        producer_id, epoch, sequence, offset, delta, _, coordinator_epoch, first_offset = SNAPSHOT_ENTRY.unpack_from(
            content, SNAPSHOT_HEAD.size + slot * SNAPSHOT_ENTRY.size
        )
        recent = [(sequence, offset, delta)] if offset >= 0 else []
        producers[producer_id] = _Producer(epoch, coordinator_epoch, first_offset, recent)
    return producers


class CompactionChangesNothing(_OfLiveLogs):
    """22. Compaction leaves what read_committed consumers see of each key unchanged, and never drops a marker before
    the data of its transaction.
    """

    number = 22

    def check(self, history: PartitionHistory, partition_log: PartitionLog) -> Iterator[Violation]:
        if history.is_whole or not self.evidence.is_compacted(history.topic_partition.topic):
            return
        present = {batch.base_offset: batch for batch in history.present}
        for transaction in history.transactions:
            if transaction.marker is None or self._has_marker(transaction, present):
                continue
            left = [
                present[batch.base_offset]
                for batch in transaction.batches
                if batch.base_offset in present and present[batch.base_offset].record_count
            ]
            if left:
                yield self.violation(f"the cleaner took a marker out of {history} before its data", transaction, *left)
        if not has_away(partition_log):
            yield from self._check_keys(history, partition_log)

    def _has_marker(self, transaction: PartitionTransaction, present: dict[int, StoredBatch]) -> bool:
        assert transaction.marker is not None
        kept = present.get(transaction.marker.base_offset)
        return kept is not None and kept.record_count > 0

    def _check_keys(self, history: PartitionHistory, partition_log: PartitionLog) -> Iterator[Violation]:
        stable_offset = partition_log.last_stable_offset
        before: dict[bytes, tuple[int, bytes | None]] = {}
        for batch in history.batches:
            if batch.last_offset < stable_offset and history.is_visible(batch):
                before.update(
                    {record.key: (record.offset, record.value) for record in batch.records if record.key is not None}
                )
        after: dict[bytes, tuple[int, bytes | None]] = {}
        offset = partition_log.log_start_offset
        while offset < stable_offset:
            read = partition_log.read(offset, LARGE_FETCH_BYTES, isolation=Isolation.READ_COMMITTED)
            batches = read_batches(read.records)
            if read.error is not ErrorCode.NONE or not batches:
                break
            aborted = [(entry.producer_id, entry.first_offset) for entry in read.aborted_transactions or ()]
            for record in consumed(batches, aborted, offset):
                if record.key is not None:
                    after[record.key] = record.offset, record.value
            offset = batches[-1].last_offset + 1
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key), after.get(key)
            if old == new or (new is None and old is not None and old[1] is None):
                continue
            yield self.violation(f"{history}: key {key!r} was {old} before it was cleaned, and is {new}")
