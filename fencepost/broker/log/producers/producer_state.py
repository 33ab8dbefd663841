"""State of a partition's producers: which batch must come next, which transactions are open, which records are stable.

Decide, then apply: the `check_…` methods change nothing and the `apply_…` methods refuse nothing, so recovery applies
the log without checking it again. Pure: callers pass the time as `now_ms`; nothing is read or written here.
Source: KIP-98, KIP-360, KIP-890; Kafka's ProducerStateManager, ProducerAppendInfo and ProducerStateEntry.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from fencepost.broker.log.files.producer_snapshot import PRODUCERS_PER_SLICE, ProducerBatch, ProducerSnapshot
from fencepost.broker.log.log_types import CLIENT, ActiveProducer, AppendOrigin
from fencepost.broker.log.producers.verification import ANSWERED_AT_ONCE, PendingVerifications, VerificationGuard
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.record_batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, TRANSACTIONAL_BIT, BatchHeader
from fencepost.protocol.sequence import MAXIMUM_SEQUENCE, advance_sequence

NO_OFFSET: Final = -1
NO_COORDINATOR_EPOCH: Final = -1
MAXIMUM_PRODUCER_EPOCH: Final = 32767
RECENT_BATCHES_COUNT: Final = 5
"""The most batches that a client may have in flight; a retry of any of them is recognised."""


class Duplicate(NamedTuple):
    """The batch was appended before: the original's offsets, inclusive, and its greatest timestamp."""

    base_offset: int
    last_offset: int
    max_timestamp_ms: int


class ProducerEntry:
    """One producer of this partition.

    recent_batches:    batches of the current epoch, at most five, oldest first.
    last_timestamp_ms: greatest record timestamp of its last batch, or that of its last marker.
    last_activity_ms:  the greater of that and the time of the append, so that backdated records keep the producer.
    current_transaction_first_offset: NO_OFFSET if no transaction is open.
    transactional_id:  id confirmed by the coordinator for the producer id since the log was opened; else None.
    """

    __slots__ = (
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_activity_ms",
        "last_timestamp_ms",
        "producer_epoch",
        "recent_batches",
        "transactional_id",
    )

    def __init__(self) -> None:
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp_ms = -1
        self.last_activity_ms = -1
        self.current_transaction_first_offset = NO_OFFSET
        self.recent_batches: list[ProducerBatch] = []
        self.transactional_id: str | None = None

    @property
    def last_sequence(self) -> int:
        return self.recent_batches[-1].last_sequence if self.recent_batches else NO_SEQUENCE

    @property
    def has_open_transaction(self) -> bool:
        return self.current_transaction_first_offset != NO_OFFSET

    @property
    def is_transactional(self) -> bool:
        """Whether the producer has written in a transaction here: its id belongs to a transactional id."""
        return self.current_transaction_first_offset != NO_OFFSET or self.coordinator_epoch != NO_COORDINATOR_EPOCH

    def find_duplicate(self, header: BatchHeader) -> Duplicate | None:
        """Return the original of a batch: the same epoch, first and last sequence."""
        recent = self.recent_batches
        if header.producer_epoch != self.producer_epoch or not recent:
            return None
        last_sequence = header.last_sequence
        for batch in recent:
            if batch.last_sequence == last_sequence and batch.offset_delta == header.last_offset_delta:
                return Duplicate(batch.base_offset, batch.last_offset, batch.max_timestamp_ms)
        return None

    def is_ended(self, offset: int) -> bool:
        """Whether a transactional batch at `offset`, one of the recent ones, belongs to a transaction that has
        ended."""
        first_offset = self.current_transaction_first_offset
        return first_offset == NO_OFFSET or offset < first_offset

    def sequence_error(self, header: BatchHeader) -> ErrorCode:
        """Return the error of a batch that is not next: UNKNOWN_PRODUCER_ID if a transactional one begins with a
        sequence that an ended transaction has used.

        Its record is a new one: as a duplicate it would be lost, though its transaction commits. Clients answer this
        error by an abort and a new epoch.
        """
        if header.attributes & TRANSACTIONAL_BIT and header.producer_epoch == self.producer_epoch:
            for batch in self.recent_batches:
                first_sequence = (batch.last_sequence - batch.offset_delta) & MAXIMUM_SEQUENCE
                if first_sequence == header.base_sequence and self.is_ended(batch.base_offset):
                    return ErrorCode.UNKNOWN_PRODUCER_ID
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def move_to_epoch(self, producer_epoch: int) -> None:
        """Enter another epoch: its sequences start again."""
        self.producer_epoch = producer_epoch
        self.recent_batches.clear()

    def touch(self, timestamp_ms: int, now_ms: int) -> None:
        self.last_timestamp_ms = timestamp_ms
        self.last_activity_ms = max(timestamp_ms, now_ms)


class ProducerCapture:
    """The producers of one moment. Before an entry changes, the capture gets a copy of it."""

    __slots__ = ("_entries", "_kept", "_producer_ids")

    def __init__(self, producers: Mapping[int, ProducerEntry]) -> None:
        self._producer_ids = list(producers)
        self._entries = list(producers.values())
        # By the entry itself: a producer that was removed and writes again has another one.
        self._kept: dict[ProducerEntry, ProducerSnapshot] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, producer_id: int, entry: ProducerEntry) -> None:
        if entry not in self._kept:
            self._kept[entry] = _snapshot_of(producer_id, entry)

    def producers(self) -> Iterator[ProducerSnapshot]:
        """Yield the producers that `ProducerState.snapshot` returned at that moment."""
        for producer_id, entry in zip(self._producer_ids, self._entries, strict=True):
            kept = self._kept.get(entry)
            yield _snapshot_of(producer_id, entry) if kept is None else kept


class _UndurableTransaction(NamedTuple):
    first_offset: int
    last_offset: int


_UNKNOWN_PRODUCER: Final = ProducerEntry()


def _has_no_owner(_producer_id: int) -> bool:
    return False


class ProducerState:
    """The producers and transactions of one partition."""

    __slots__ = (
        "_captures",
        "_open_transactions",
        "_producers",
        "_unreplicated_transactions",
        "has_owner",
        "verifications",
    )

    def __init__(self) -> None:
        self.has_owner: Callable[[int], bool] = _has_no_owner  # whether a producer id is of a transactional id
        self.verifications = PendingVerifications()
        self._captures: list[ProducerCapture] = []
        self._producers: dict[int, ProducerEntry] = {}
        # First offset -> producer id. Transactions open in offset order, so the first item is the earliest; unlike a
        # dict, an OrderedDict finds it in constant time after any number of removals.
        self._open_transactions: OrderedDict[int, int] = OrderedDict()
        # In the order of their markers, in which they also leave. One that began later than one behind it can never be
        # the earliest, so it is dropped: first offsets rise, and the first is the earliest. A deque takes 760 bytes.
        self._unreplicated_transactions: list[_UndurableTransaction] = []

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    # Verification

    def begin_verification(
        self,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        *,
        transaction_version_2: bool,
        transactional_id: str = "",
        in_this_step: bool = False,
    ) -> VerificationGuard | ErrorCode | None:
        """Return the guard for the append of a transactional batch, once verified; None when its transaction is open
        here, and was confirmed under the same transactional id.

        A batch under another one is verified too: the coordinator knows to whom the producer id belongs.

        in_this_step: whether the answer may come in this step: the guard is then ANSWERED_AT_ONCE, except for a
            transaction of version 2, which verification opens, and while a verification of the producer is pending.
        Refuses with INVALID_PRODUCER_EPOCH.
        """
        entry = self._producers.get(producer_id, _UNKNOWN_PRODUCER)
        if producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if (
            entry.current_transaction_first_offset != NO_OFFSET
            and producer_epoch == entry.producer_epoch
            and entry.transactional_id == transactional_id
        ):
            return None
        if in_this_step and not transaction_version_2 and producer_id not in self.verifications:
            return ANSWERED_AT_ONCE
        return self.verifications.begin(
            producer_id,
            producer_epoch,
            base_sequence,
            transaction_version_2=transaction_version_2,
            transactional_id=transactional_id,
        )

    def confirm_owner(self, producer_id: int, transactional_id: str) -> None:
        """Remember the transactional id under which a batch was verified and appended."""
        entry = self._producers.get(producer_id)
        if entry is not None:
            entry.transactional_id = transactional_id
            self.verifications.transactional_batch_appended(producer_id, entry.producer_epoch, is_control=False)

    # Data batches

    def check_data_batch(
        self,
        header: BatchHeader,
        *,
        origin: AppendOrigin,
        guard: VerificationGuard | None = None,
        verification_is_enabled: bool = True,
    ) -> Duplicate | ErrorCode:
        """Check whether a batch with a producer id may be appended.

        Returns ErrorCode.NONE when it may; the original's offsets when it was appended already. Refuses with
        INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID (the sequence of an ended transaction
        is used again), or INVALID_TXN_STATE (not verified, or not transactional though the producer is). Coordinators'
        batches carry no sequence: neither duplicates nor sequences are checked for them.
        guard: ANSWERED_AT_ONCE proves nothing while a verification of the producer is pending.
        """
        producer_id = header.producer_id
        producer_epoch = header.producer_epoch
        entry = self._producers.get(producer_id, _UNKNOWN_PRODUCER)
        recent = entry.recent_batches
        is_client = origin is CLIENT
        is_transactional = header.attributes & TRANSACTIONAL_BIT
        has_open_transaction = entry.current_transaction_first_offset != NO_OFFSET
        follows = (
            is_client
            and recent
            and header.base_sequence == (recent[-1].last_sequence + 1) & MAXIMUM_SEQUENCE
            and producer_epoch == entry.producer_epoch
        )
        verification = self.verifications.get(producer_id)
        if follows and verification is None:  # most batches: one rule of all is left to check
            if not is_transactional:
                return ErrorCode.INVALID_TXN_STATE if entry.is_transactional else NO_ERROR
            is_confirmed = has_open_transaction or guard is ANSWERED_AT_ONCE or not verification_is_enabled
            return NO_ERROR if is_confirmed else ErrorCode.INVALID_TXN_STATE
        if is_client and not follows and recent:
            duplicate = entry.find_duplicate(header)
            if duplicate is not None and not (is_transactional and entry.is_ended(duplicate.base_offset)):
                return duplicate
        if producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if verification is not None:
            verification = self.verifications.current(producer_id, guard) if is_transactional else None
        if is_transactional:
            is_open = has_open_transaction and producer_epoch == entry.producer_epoch
            if is_open:
                verification = None  # one is pending under another transactional id, or since a restart
            current_guard = ANSWERED_AT_ONCE if verification is None else verification
            if not is_open and verification_is_enabled and guard is not current_guard:
                return ErrorCode.INVALID_TXN_STATE
        if is_client and not self._is_in_sequence(header, entry, verification):
            return entry.sequence_error(header)
        if not is_transactional and (
            entry.is_transactional or (entry is _UNKNOWN_PRODUCER and self.has_owner(producer_id))
        ):
            return ErrorCode.INVALID_TXN_STATE
        return NO_ERROR

    def may_append_run(self, header: BatchHeader, transactional_id: str | None) -> bool:
        """Whether consecutive batches of a client may be appended together, without a guard.

        header: header of the first one; the others are of the same producer, epoch and attributes.
        transactional_id: id of transactional batches that have to be verified.
        """
        if header.producer_id in self.verifications:
            return False
        if transactional_id is not None and header.attributes & TRANSACTIONAL_BIT:
            entry = self._producers.get(header.producer_id, _UNKNOWN_PRODUCER)
            if entry.transactional_id != transactional_id:
                return False
        return self.check_data_batch(header, origin=CLIENT) is NO_ERROR

    def _is_in_sequence(
        self, header: BatchHeader, entry: ProducerEntry, verification: VerificationGuard | None
    ) -> bool:
        base_sequence = header.base_sequence
        if verification is not None:
            if verification.is_transaction_version_2 and not entry.recent_batches and base_sequence != 0:
                return False
            if base_sequence > verification.lowest_sequence:
                return False  # an earlier batch of the same transaction is still being verified, or failed verification
        if entry.producer_epoch == NO_PRODUCER_EPOCH:
            return True  # retention may have deleted all it wrote: any sequence will do
        if header.producer_epoch != entry.producer_epoch or not entry.recent_batches:
            return base_sequence == 0
        return base_sequence == advance_sequence(entry.last_sequence, 1)

    def apply_data_batch(self, header: BatchHeader, *, base_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        """Apply an appended batch that carries a producer id.

        base_offset, max_timestamp_ms: values as stored; `header` differs if the broker has changed them.
        """
        producer_id = header.producer_id
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry()
        elif self._captures:
            self._keep(producer_id, entry)
        if header.producer_epoch != entry.producer_epoch:
            entry.move_to_epoch(header.producer_epoch)
        recent = entry.recent_batches
        if len(recent) == RECENT_BATCHES_COUNT:
            del recent[0]
        delta = header.last_offset_delta
        recent.append(ProducerBatch(header.last_sequence, base_offset + delta, delta, max_timestamp_ms))
        entry.touch(max_timestamp_ms, now_ms)
        if header.attributes & TRANSACTIONAL_BIT:
            if entry.current_transaction_first_offset == NO_OFFSET:
                entry.current_transaction_first_offset = base_offset
                self._open_transactions[base_offset] = producer_id
            if producer_id in self.verifications:
                self.verifications.transactional_batch_appended(producer_id, header.producer_epoch, is_control=False)

    # Markers

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, transaction_version: int
    ) -> ErrorCode:
        """Check whether a marker may be appended: NONE, INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.

        From transaction version 2 on a marker's epoch is above that of the data, unless the marker is a repeated one.
        """
        entry = self._producers.get(producer_id, _UNKNOWN_PRODUCER)
        if producer_epoch < entry.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if (
            transaction_version >= 2
            and producer_epoch == entry.producer_epoch
            and entry.has_open_transaction
            and producer_epoch != MAXIMUM_PRODUCER_EPOCH
        ):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if coordinator_epoch < entry.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        return NO_ERROR

    def apply_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        committed: bool,
        coordinator_epoch: int,
        offset: int,
        timestamp_ms: int,
        now_ms: int,
        is_replicated: bool = False,
    ) -> TransactionIndexEntry | None:
        """Apply an appended marker; return the transaction that it aborted, None if there was none.

        is_replicated: whether the marker, with all before it, is below the high watermark in the same step.
        """
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry()
        elif self._captures:
            self._keep(producer_id, entry)
        if producer_epoch != entry.producer_epoch:
            entry.move_to_epoch(producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.touch(timestamp_ms, now_ms)
        self.verifications.transactional_batch_appended(producer_id, producer_epoch, is_control=True)
        first_offset = entry.current_transaction_first_offset
        if first_offset == NO_OFFSET:
            return None
        entry.current_transaction_first_offset = NO_OFFSET
        del self._open_transactions[first_offset]
        if not is_replicated:
            unreplicated = self._unreplicated_transactions
            while unreplicated and unreplicated[-1].first_offset >= first_offset:
                unreplicated.pop()
            unreplicated.append(_UndurableTransaction(first_offset, offset))
        if committed:
            return None
        earliest_open_offset = next(iter(self._open_transactions), offset + 1)
        return TransactionIndexEntry(producer_id, first_offset, offset, earliest_open_offset)

    # Stability

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the earliest transaction without a marker."""
        return next(iter(self._open_transactions), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """First offset of the earliest transaction without a marker below the high watermark, which never goes down."""
        unreplicated = self._unreplicated_transactions
        while unreplicated and unreplicated[0].last_offset < high_watermark:
            del unreplicated[0]
        first_open_offset = next(iter(self._open_transactions), None)
        if not unreplicated:
            return first_open_offset
        first_unreplicated_offset = unreplicated[0].first_offset
        if first_open_offset is None or first_unreplicated_offset < first_open_offset:
            return first_unreplicated_offset
        return first_open_offset

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        """The offset below which all transactions are decided, between the log's start and the high watermark."""
        if not self._open_transactions and not self._unreplicated_transactions:
            return high_watermark
        first_unstable_offset = self.first_unstable_offset(high_watermark)
        if first_unstable_offset is None or first_unstable_offset >= high_watermark:
            return high_watermark
        if log_start_offset <= first_unstable_offset:
            return first_unstable_offset
        return min(log_start_offset, high_watermark)

    # Snapshots, expiry, views

    def snapshot(self) -> list[ProducerSnapshot]:
        """Return all producers, in the order of their first writes. Leaves out which markers are replicated."""
        return [_snapshot_of(producer_id, entry) for producer_id, entry in self._producers.items()]

    def capture(self) -> ProducerCapture:
        """Capture the result of `snapshot` as of now, in constant time; entries are copied as they change, until
        `release`."""
        capture = ProducerCapture(self._producers)
        self._captures.append(capture)
        return capture

    def release(self, capture: ProducerCapture) -> None:
        """Drop a capture that is no longer needed."""
        if capture in self._captures:
            self._captures.remove(capture)

    def release_all(self) -> None:
        self._captures.clear()

    def _keep(self, producer_id: int, entry: ProducerEntry) -> None:
        """Copy an entry to the captures before it changes."""
        for capture in self._captures:
            capture.keep(producer_id, entry)

    def restore(self, producers: Iterable[ProducerSnapshot], *, now_ms: int, expiration_ms: int) -> None:
        """Restore a snapshot, without the producers that have expired meanwhile."""
        for _ in self.restoring_steps(producers, now_ms=now_ms, expiration_ms=expiration_ms):
            pass

    def restoring_steps(
        self, producers: Iterable[ProducerSnapshot], *, now_ms: int, expiration_ms: int
    ) -> Generator[None, None, None]:
        """Restore as `restore` does, in steps; do not use the state before the last one."""
        self._producers.clear()
        self._open_transactions.clear()
        self._unreplicated_transactions.clear()
        self.verifications.clear()
        open_transactions: dict[int, int] = {}
        for index, snapshot in enumerate(producers, 1):
            entry = ProducerEntry()
            entry.producer_epoch = snapshot.producer_epoch
            entry.coordinator_epoch = snapshot.coordinator_epoch
            entry.last_timestamp_ms = entry.last_activity_ms = snapshot.timestamp_ms
            entry.current_transaction_first_offset = snapshot.current_transaction_first_offset
            entry.recent_batches.extend(snapshot.recent_batches)
            if not _is_expired(entry, now_ms, expiration_ms):
                self._producers[snapshot.producer_id] = entry
                if entry.has_open_transaction:
                    open_transactions[entry.current_transaction_first_offset] = snapshot.producer_id
            if index % PRODUCERS_PER_SLICE == 0:
                yield
        for first_offset in sorted(open_transactions):
            self._open_transactions[first_offset] = open_transactions[first_offset]

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers silent for `expiration_ms` without an open transaction; return how many."""
        count_before = len(self._producers)
        for _ in self.expiring_steps(now_ms, expiration_ms):
            pass
        return count_before - len(self._producers)

    def expiring_steps(self, now_ms: int, expiration_ms: int) -> Generator[None, None, None]:
        """Expire as `expire` does, in steps; the state may change between two of them."""
        latest_ms = now_ms - expiration_ms
        producers = self._producers
        producer_ids = list(producers)
        for start in range(0, len(producer_ids), PRODUCERS_PER_SLICE):
            if start:
                yield
            for producer_id in producer_ids[start : start + PRODUCERS_PER_SLICE]:
                entry = producers.get(producer_id, _UNKNOWN_PRODUCER)
                if entry.last_activity_ms <= latest_ms and entry.current_transaction_first_offset == NO_OFFSET:
                    producers.pop(producer_id, None)
        self.verifications.expire(now_ms, expiration_ms)

    def open_transactions(self) -> list[tuple[int, int]]:
        """Return the first offset and the producer id of each open transaction, the earliest first."""
        return list(self._open_transactions.items())

    def producer_ids(self) -> list[int]:
        """Return all producer ids, in the order of their first writes."""
        return list(self._producers)

    def active_producers(self, producer_ids: Iterable[int] | None = None) -> Iterator[ActiveProducer]:
        """Yield producers, all or those named, as DescribeProducers shows them; unknown ones are left out."""
        for producer_id in self._producers if producer_ids is None else producer_ids:
            entry = self._producers.get(producer_id)
            if entry is None:
                continue
            yield ActiveProducer(
                producer_id,
                entry.producer_epoch,
                entry.last_sequence,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                entry.current_transaction_first_offset,
            )


def _snapshot_of(producer_id: int, entry: ProducerEntry) -> ProducerSnapshot:
    return ProducerSnapshot(
        producer_id,
        entry.producer_epoch,
        entry.last_activity_ms,
        entry.coordinator_epoch,
        entry.current_transaction_first_offset,
        tuple(entry.recent_batches),
    )


def _is_expired(entry: ProducerEntry, now_ms: int, expiration_ms: int) -> bool:
    return not entry.has_open_transaction and now_ms - entry.last_activity_ms >= expiration_ms
