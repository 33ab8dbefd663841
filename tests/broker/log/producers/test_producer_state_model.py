"""Producer state against a model that is slow and plain: it keeps the whole log and looks everything up in it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fencepost.broker.log.files.producer_snapshot import ProducerSnapshot, decode_snapshot, encode_snapshot
from fencepost.broker.log.log_types import AppendOrigin
from fencepost.broker.log.producers.producer_state import Duplicate, ProducerState
from fencepost.broker.log.segment.transaction_index import TransactionIndexEntry
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import TRANSACTIONAL_BIT, BatchHeader

PRODUCER_IDS = (1, 2, 3)
NEVER_MS = 2**62
SEQUENCE_COUNT = 2**31


@dataclass(frozen=True)
class Data:
    offset: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    is_transactional: bool
    timestamp_ms: int

    @property
    def last_offset(self) -> int:
        return self.offset + self.count - 1

    @property
    def sequences(self) -> tuple[int, int]:
        return self.sequence, (self.sequence + self.count - 1) % SEQUENCE_COUNT

    def header(self) -> BatchHeader:
        return BatchHeader(
            self.offset,
            0,
            -1,
            2,
            0,
            TRANSACTIONAL_BIT if self.is_transactional else 0,
            self.count - 1,
            self.timestamp_ms,
            self.timestamp_ms,
            self.producer_id,
            self.epoch,
            self.sequence,
            self.count,
        )


@dataclass(frozen=True)
class Marker:
    offset: int
    producer_id: int
    epoch: int
    coordinator_epoch: int
    committed: bool


@dataclass
class Model:
    """Every answer is computed from the whole log."""

    log: list[Data | Marker] = field(default_factory=list)

    def of(self, producer_id: int) -> list[Data | Marker]:
        return [entry for entry in self.log if entry.producer_id == producer_id]

    def epoch(self, producer_id: int) -> int:
        entries = self.of(producer_id)
        return entries[-1].epoch if entries else -1

    def coordinator_epoch(self, producer_id: int) -> int:
        markers = [entry for entry in self.of(producer_id) if isinstance(entry, Marker)]
        return markers[-1].coordinator_epoch if markers else -1

    def recent(self, producer_id: int) -> list[Data]:
        """The last five batches since the epoch changed."""
        since: list[Data] = []
        epoch = None
        for entry in self.of(producer_id):
            if entry.epoch != epoch:
                since = []
                epoch = entry.epoch
            if isinstance(entry, Data):
                since.append(entry)
        return since[-5:]

    def transactions(self) -> list[tuple[int, int, int | None]]:
        """All transactions: producer, first offset, offset of the marker or None."""
        found: list[tuple[int, int, int | None]] = []
        open_since: dict[int, int] = {}
        for entry in self.log:
            if isinstance(entry, Data):
                if entry.is_transactional:
                    open_since.setdefault(entry.producer_id, entry.offset)
            elif entry.producer_id in open_since:
                found.append((entry.producer_id, open_since.pop(entry.producer_id), entry.offset))
        found += [(producer_id, first_offset, None) for producer_id, first_offset in open_since.items()]
        return found

    def first_offset_of_open(self, producer_id: int) -> int | None:
        for owner, first_offset, marker_offset in self.transactions():
            if owner == producer_id and marker_offset is None:
                return first_offset
        return None

    def last_stable_offset(self, high_watermark: int, log_start_offset: int) -> int:
        undecided = [
            first_offset
            for _, first_offset, marker_offset in self.transactions()
            if marker_offset is None or marker_offset >= high_watermark
        ]
        return min(high_watermark, max(log_start_offset, min(undecided, default=high_watermark)))

    def is_transactional(self, producer_id: int) -> bool:
        return self.first_offset_of_open(producer_id) is not None or self.coordinator_epoch(producer_id) != -1

    def verdict(self, batch: Data) -> ErrorCode | tuple[int, int]:
        """What is to become of a client's batch whose verification, where it needs one, succeeded."""
        epoch = self.epoch(batch.producer_id)
        recent = self.recent(batch.producer_id)
        open_since = self.first_offset_of_open(batch.producer_id)
        ended = [earlier for earlier in recent if open_since is None or earlier.offset < open_since]
        if batch.epoch == epoch:
            for earlier in recent:
                if earlier.sequences == batch.sequences and not (batch.is_transactional and earlier in ended):
                    return earlier.offset, earlier.last_offset
        if batch.epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == -1:
            expected = batch.sequence
        elif batch.epoch != epoch or not recent:
            expected = 0
        else:
            expected = (recent[-1].sequences[1] + 1) % SEQUENCE_COUNT
        if batch.sequence != expected:
            if batch.is_transactional and batch.epoch == epoch and batch.sequence in {each.sequence for each in ended}:
                return ErrorCode.UNKNOWN_PRODUCER_ID
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not batch.is_transactional and self.is_transactional(batch.producer_id):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE


def append_to(
    state: ProducerState, entry: Data | Marker, *, is_replicated: bool = False
) -> TransactionIndexEntry | None:
    if isinstance(entry, Data):
        state.apply_data_batch(
            entry.header(), base_offset=entry.offset, max_timestamp_ms=entry.timestamp_ms, now_ms=entry.timestamp_ms
        )
        return None
    return state.apply_marker(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        committed=entry.committed,
        coordinator_epoch=entry.coordinator_epoch,
        offset=entry.offset,
        timestamp_ms=entry.offset,
        now_ms=entry.offset,
        is_replicated=is_replicated,
    )


def comparable(state: ProducerState) -> dict[int, ProducerSnapshot]:
    """All of a state but the times of single batches: a snapshot keeps only that of the producer's last activity."""
    return {
        snapshot.producer_id: snapshot._replace(
            recent_batches=tuple(batch._replace(max_timestamp_ms=0) for batch in snapshot.recent_batches)
        )
        for snapshot in state.snapshot()
    }


class ProducerStateMachine(RuleBasedStateMachine):
    """Appends, retries and markers of three producers, restarts from snapshots, and a moving high watermark."""

    def __init__(self) -> None:
        super().__init__()
        self.state = ProducerState()
        self.model = Model()
        self.log_end_offset = 0
        self.high_watermark = 0
        self.log_start_offset = 0
        self.first_sequence = 0

    @initialize(first_sequence=st.sampled_from([0, SEQUENCE_COUNT - 1, SEQUENCE_COUNT - 4, SEQUENCE_COUNT - 9]))
    def begin(self, first_sequence: int) -> None:
        self.first_sequence = first_sequence

    def append(self, entry: Data | Marker, *, is_replicated: bool = False) -> TransactionIndexEntry | None:
        self.model.log.append(entry)
        self.log_end_offset = (entry.last_offset if isinstance(entry, Data) else entry.offset) + 1
        if is_replicated:
            self.high_watermark = self.log_end_offset
        return append_to(self.state, entry, is_replicated=is_replicated)

    @rule(
        producer_id=st.sampled_from(PRODUCER_IDS),
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        sequence_step=st.sampled_from([0, 0, 0, 0, 0, 1, -1, -3]),
        count=st.integers(1, 4),
        is_transactional=st.booleans(),
        restart_sequence=st.booleans(),
    )
    def write(
        self,
        producer_id: int,
        epoch_step: int,
        sequence_step: int,
        count: int,
        is_transactional: bool,
        restart_sequence: bool,
    ) -> None:
        epoch = max(self.model.epoch(producer_id), 0) + epoch_step
        assume(epoch >= 0)
        recent = self.model.recent(producer_id)
        if epoch_step or restart_sequence:
            sequence = 0
        else:
            sequence = recent[-1].sequences[1] + 1 if recent else self.first_sequence
        sequence = (sequence + sequence_step) % SEQUENCE_COUNT
        self.try_to_write(
            Data(self.log_end_offset, producer_id, epoch, sequence, count, is_transactional, self.log_end_offset)
        )

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        batches = [entry for entry in self.model.log if isinstance(entry, Data)]
        assume(batches)
        again = data.draw(st.sampled_from(batches))
        self.try_to_write(
            Data(
                self.log_end_offset,
                again.producer_id,
                again.epoch,
                again.sequence,
                again.count,
                again.is_transactional,
                again.timestamp_ms,
            )
        )

    def try_to_write(self, batch: Data) -> None:
        expected = self.model.verdict(batch)
        before = self.state.snapshot()
        guard = None
        if batch.is_transactional:
            verification = self.state.begin_verification(
                batch.producer_id, batch.epoch, batch.sequence, transaction_version_2=False
            )
            if isinstance(verification, ErrorCode):
                assert verification is ErrorCode.INVALID_PRODUCER_EPOCH
                assert batch.epoch < self.model.epoch(batch.producer_id)
            else:
                guard = verification
        outcome = self.state.check_data_batch(batch.header(), origin=AppendOrigin.CLIENT, guard=guard)
        assert self.state.snapshot() == before
        if isinstance(outcome, Duplicate):
            assert (outcome.base_offset, outcome.last_offset) == expected
        elif outcome is not expected:
            # A verification under way remembers the lowest sequence that was refused since it began.
            assert outcome is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert not isinstance(expected, tuple)
            verification_entry = self.state.verifications.get(batch.producer_id)
            assert verification_entry is not None
            assert batch.sequence > verification_entry.lowest_sequence
        if outcome is ErrorCode.NONE:
            self.append(batch)

    @rule(
        producer_id=st.sampled_from(PRODUCER_IDS),
        epoch_step=st.sampled_from([0, 0, 1, -1]),
        coordinator_step=st.sampled_from([0, 0, 0, 1, -1]),
        version=st.sampled_from([0, 2]),
        committed=st.booleans(),
        is_replicated=st.booleans(),
    )
    def mark(
        self,
        producer_id: int,
        epoch_step: int,
        coordinator_step: int,
        version: int,
        committed: bool,
        is_replicated: bool,
    ) -> None:
        epoch = max(self.model.epoch(producer_id), 0) + epoch_step
        coordinator_epoch = max(self.model.coordinator_epoch(producer_id), 0) + coordinator_step
        assume(epoch >= 0)
        first_offset = self.model.first_offset_of_open(producer_id)
        known_epoch = self.model.epoch(producer_id)
        if epoch < known_epoch or (version == 2 and epoch == known_epoch and first_offset is not None):
            expected = ErrorCode.INVALID_PRODUCER_EPOCH
        elif coordinator_epoch < self.model.coordinator_epoch(producer_id):
            expected = ErrorCode.TRANSACTION_COORDINATOR_FENCED
        else:
            expected = ErrorCode.NONE
        outcome = self.state.check_marker(
            producer_id=producer_id,
            producer_epoch=epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        assert outcome is expected
        if outcome is ErrorCode.NONE:
            marker = Marker(self.log_end_offset, producer_id, epoch, coordinator_epoch, committed)
            aborted = self.append(marker, is_replicated=is_replicated)
            others = [first for _, first, marker_offset in self.model.transactions() if marker_offset is None]
            if first_offset is None or committed:
                assert aborted is None
            else:
                assert aborted == TransactionIndexEntry(
                    producer_id, first_offset, marker.offset, min(others, default=marker.offset + 1)
                )

    @rule(share=st.floats(0, 1))
    def advance_high_watermark(self, share: float) -> None:
        self.high_watermark += int((self.log_end_offset - self.high_watermark) * share)

    @rule()
    def replicate_all(self) -> None:
        self.high_watermark = self.log_end_offset

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        self.log_start_offset += int((self.high_watermark - self.log_start_offset) * share)

    @rule()
    def restart_from_a_snapshot(self) -> None:
        producers = decode_snapshot(encode_snapshot(self.state.snapshot()))
        assert isinstance(producers, list)
        self.high_watermark = self.log_end_offset
        self.state = ProducerState()
        self.state.restore(producers, now_ms=0, expiration_ms=NEVER_MS)

    @rule(share=st.floats(0, 1))
    def restart_from_an_older_snapshot_and_the_tail(self, share: float) -> None:
        snapshot_count = int(len(self.model.log) * share)
        earlier = ProducerState()
        for entry in self.model.log[:snapshot_count]:
            append_to(earlier, entry)
        restarted = ProducerState()
        producers = decode_snapshot(encode_snapshot(earlier.snapshot()))
        assert isinstance(producers, list)
        restarted.restore(producers, now_ms=0, expiration_ms=NEVER_MS)
        for entry in self.model.log[snapshot_count:]:
            append_to(restarted, entry)
        assert comparable(restarted) == comparable(self.state)
        self.high_watermark = self.log_end_offset
        self.state = restarted

    @invariant()
    def the_last_stable_offset_is_that_of_the_log(self) -> None:
        assert self.state.last_stable_offset(self.high_watermark, self.log_start_offset) == (
            self.model.last_stable_offset(self.high_watermark, self.log_start_offset)
        )

    @invariant()
    def every_producer_is_what_the_log_says(self) -> None:
        for producer_id in PRODUCER_IDS:
            entry = self.state.get(producer_id)
            if entry is None:
                assert not self.model.of(producer_id)
                continue
            assert entry.producer_epoch == self.model.epoch(producer_id)
            assert entry.coordinator_epoch == self.model.coordinator_epoch(producer_id)
            first_offset = self.model.first_offset_of_open(producer_id)
            assert entry.current_transaction_first_offset == (-1 if first_offset is None else first_offset)
            assert [(batch.base_offset, batch.last_offset) for batch in entry.recent_batches] == [
                (batch.offset, batch.last_offset) for batch in self.model.recent(producer_id)
            ]


class LongProducerStateMachine(ProducerStateMachine):
    """The same, with a larger budget."""


TestProducerState = ProducerStateMachine.TestCase
TestProducerState.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

TestProducerStateAtLength = pytest.mark.long(LongProducerStateMachine.TestCase)
TestProducerStateAtLength.settings = settings(max_examples=1_500, stateful_step_count=80, deadline=None)
