"""Every request in every state with every relation of its identity to the stored one, for both transaction versions.

What must come of it is computed here a second time, from the order of checks and the tables that Kafka's
TransactionCoordinator has, without a look at this broker's. A reply is more than its code: the records, the producer
ids before and after, epochs, partitions and times are compared as well, and the shard that replays them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.shard import ProducerReply
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
    TransactionVersion,
)
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from tests.support.allowed_replies import ABSENT, decided_in
from tests.support.transaction_shard import (
    NOW_MS,
    ONE_PAIR,
    OUT_0,
    OUT_1,
    TIMEOUT_MS,
    TRANSACTIONAL_ID,
    ShardDriver,
    transaction_in,
)

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
OK = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

PRODUCER_ID, EARLIER_ID, FOREIGN_ID, NEXT_ID = 7, 6, 8, 100
EXHAUSTED, RESERVED = 32766, 32767
LATER_MS = NOW_MS + 5
NEW_TIMEOUT_MS = 30_000
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)
COMPLETE = (COMPLETE_COMMIT, COMPLETE_ABORT)


class Identity(NamedTuple):
    """The stored epoch, and the producer id before: -1 when its holder did not ask for what led to the current one."""

    epoch: int
    previous_id: int

    @property
    def last(self) -> Producer | None:
        if self.previous_id == -1:
            return None
        return Producer(PRODUCER_ID, self.epoch - 1) if self.previous_id == PRODUCER_ID else Producer(6, EXHAUSTED)


IDENTITIES = [
    Identity(5, PRODUCER_ID),
    Identity(5, -1),
    Identity(0, -1),
    Identity(0, EARLIER_ID),
    Identity(EXHAUSTED, PRODUCER_ID),
    Identity(EXHAUSTED, -1),
    Identity(RESERVED, -1),  # left by a fence of version 1
    Identity(RESERVED, PRODUCER_ID),  # on its way to the next producer id
]
REQUESTING_PRODUCERS = [
    Producer(producer_id, epoch)
    for producer_id in (PRODUCER_ID, EARLIER_ID, FOREIGN_ID)
    for epoch in (0, 1, 3, 4, 5, 6, EXHAUSTED - 1, EXHAUSTED, RESERVED)
]


class Outcome(NamedTuple):
    """The reply's error, the identity in the reply, and the metadata after it; `records` counts the records."""

    error: ErrorCode
    producer: Producer = Producer(-1, -1)
    after: TransactionMetadata | None = None
    records: int = 0


def stored(state: TransactionState, identity: Identity) -> TransactionMetadata:
    version = V2
    metadata = transaction_in(
        state,
        producer=Producer(PRODUCER_ID, identity.epoch),
        previous_producer_id=identity.previous_id,
        version=version,
    )
    if state in PREPARED and identity == Identity(RESERVED, PRODUCER_ID):
        metadata = metadata._replace(next_producer_id=NEXT_ID)
    return metadata


def cases() -> Iterator[tuple[TransactionState | None, Identity]]:
    yield None, IDENTITIES[0]
    for state in ONE_PAIR:
        for identity in IDENTITIES:
            yield state, identity


every_cell = pytest.mark.parametrize(
    ("state", "identity"),
    [
        pytest.param(state, identity, id=f"{state.name if state is not None else 'none'}-{identity.epoch}"
                     f"-after-{identity.previous_id}")
        for state, identity in cases()
    ],
)  # fmt: skip
either_version = pytest.mark.parametrize("version", TransactionVersion)


class Cell:
    """One shard in one state, thrown away after one request."""

    def __init__(
        self, state: TransactionState | None, identity: Identity, server: TransactionVersion, *, has_id: bool = True
    ) -> None:
        self.state = state
        self.server = server
        self.next_id = NEXT_ID if has_id else None
        self.driver = ShardDriver(version=server, producer_ids=(NEXT_ID,) if has_id else ())
        self.before = None if state is None else stored(state, identity)
        if self.before is not None:
            self.driver.put(self.before)
        self.identity = identity

    def check(self, decision: Decision[Any], expected: Outcome, what: str) -> None:
        reply = self.driver.do(decision)
        error, producer = (reply.error, reply.producer) if isinstance(reply, ProducerReply) else (reply, None)
        after = self.driver.shard.transactions.get(TRANSACTIONAL_ID)
        assert error is expected.error, what
        assert producer is None or producer == expected.producer, what
        assert len(decision.records) == expected.records, what
        assert after == (expected.after if expected.records else self.before), what
        assert self.driver.replayed().transactions == self.driver.shard.transactions, what

    def allowed(self, api: ApiKey, version: int) -> frozenset[ErrorCode]:
        return decided_in(api, version, ABSENT if self.state is None else self.state)


def moved(metadata: TransactionMetadata, state: TransactionState, **changes: object) -> TransactionMetadata:
    return metadata._replace(state=state, last_update_ms=LATER_MS, **changes)  # type: ignore[arg-type]


def ended(
    cell: Cell, outcome: TransactionState, version: TransactionVersion, *, requested_by_owner: bool
) -> TransactionMetadata | None:
    """The Prepare record; None when a producer id is needed and none is at hand."""
    before = cell.before
    assert before is not None
    if version is V1 and requested_by_owner:
        return moved(before, outcome, client_transaction_version=V1)
    next_id = -1
    if version is V2 and before.producer_epoch >= EXHAUSTED:
        if cell.next_id is None:
            return None
        next_id = cell.next_id
    is_open = before.state is ONGOING
    return moved(
        before,
        outcome,
        producer_epoch=min(before.producer_epoch + 1, RESERVED),
        previous_producer_id=PRODUCER_ID if version is V2 else -1,
        next_producer_id=next_id,
        partitions=before.partitions if is_open else frozenset(),
        start_ms=before.start_ms if is_open else LATER_MS,
        client_transaction_version=version,
    )


def completed(prepared: TransactionMetadata) -> TransactionMetadata:
    moves_on = prepared.next_producer_id != -1
    return moved(
        prepared,
        COMPLETE_COMMIT if prepared.state is PREPARE_COMMIT else COMPLETE_ABORT,
        producer_id=prepared.next_producer_id if moves_on else prepared.producer_id,
        producer_epoch=0 if moves_on else prepared.producer_epoch,
        next_producer_id=-1,
        partitions=frozenset(),
    )


# InitProducerId


def expected_of_init(cell: Cell, expected: Producer | None) -> Outcome:
    before = cell.before
    if before is None:
        if cell.next_id is None:
            return Outcome(LOADING)
        created = TransactionMetadata(
            TRANSACTIONAL_ID, cell.next_id, 0, timeout_ms=NEW_TIMEOUT_MS, state=EMPTY, last_update_ms=LATER_MS
        )
        return Outcome(OK, created.producer, created, 1)
    if before.state in PREPARED:
        return Outcome(CONCURRENT)
    previous_id = before.previous_producer_id
    if expected is not None and not (
        expected.producer_id == PRODUCER_ID
        or (expected.producer_id == previous_id and expected.producer_epoch >= EXHAUSTED)
    ):
        return Outcome(FENCED)
    if before.state is ONGOING and expected not in (None, before.producer):
        return Outcome(FENCED)  # not in Kafka, where a zombie that is refused aborts its successor's transaction
    if before.state is ONGOING:
        fence = ended(cell, PREPARE_ABORT, cell.server, requested_by_owner=False)
        return Outcome(LOADING) if fence is None else Outcome(CONCURRENT, after=fence, records=1)
    producer = before.producer
    if expected is not None and expected == cell.identity.last:
        pass  # asked again: no bump
    elif expected is not None and expected != producer:
        return Outcome(FENCED)
    else:
        previous_id = -1 if expected is None else PRODUCER_ID
        if before.producer_epoch >= EXHAUSTED:
            if cell.next_id is None:
                return Outcome(LOADING)
            producer = Producer(cell.next_id, 0)
        else:
            producer = Producer(PRODUCER_ID, before.producer_epoch + 1)
    after = moved(
        before,
        EMPTY,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        previous_producer_id=previous_id,
        timeout_ms=NEW_TIMEOUT_MS,
        partitions=frozenset(),
        start_ms=-1,
    )
    return Outcome(OK, producer, after, 1)


@either_version
@every_cell
def test_init_producer_id(state: TransactionState | None, identity: Identity, version: TransactionVersion) -> None:
    for expected in (None, *REQUESTING_PRODUCERS):
        for has_id in (True, False):
            cell = Cell(state, identity, version, has_id=has_id)
            outcome = expected_of_init(cell, expected)
            assert outcome.error in cell.allowed(ApiKey.INIT_PRODUCER_ID, 5)
            cell.check(
                cell.driver.shard.decide_init_producer_id(
                    TRANSACTIONAL_ID, timeout_ms=NEW_TIMEOUT_MS, expected=expected, now_ms=LATER_MS
                ),
                outcome,
                f"{expected}, an id at hand: {has_id}",
            )


# AddPartitionsToTxn, AddOffsetsToTxn, verification


def expected_of_add(cell: Cell, producer: Producer, version: TransactionVersion) -> Outcome:
    before = cell.before
    if before is None:
        return Outcome(MAPPING)
    if before.state in PREPARED:
        return Outcome(CONCURRENT)  # before the producer id: completion may be about to change it
    if producer.producer_id != PRODUCER_ID:
        return Outcome(MAPPING)
    if producer.producer_epoch != before.producer_epoch:
        return Outcome(FENCED)
    is_open = before.state is ONGOING
    previous_id = before.previous_producer_id
    return Outcome(
        OK,
        after=moved(
            before,
            ONGOING,
            partitions=frozenset({OUT_0, OUT_1}) if is_open else frozenset({OUT_1}),
            start_ms=before.start_ms if is_open else LATER_MS,
            # Once the new id is in use, the owner of the exhausted one has had its answer.
            previous_producer_id=previous_id if previous_id in (-1, PRODUCER_ID) else PRODUCER_ID,
            client_transaction_version=version,
        ),
        records=1,
    )


@either_version
@every_cell
def test_add_partitions(state: TransactionState | None, identity: Identity, version: TransactionVersion) -> None:
    for producer in REQUESTING_PRODUCERS:
        cell = Cell(state, identity, V2)
        outcome = expected_of_add(cell, producer, version)
        assert outcome.error in cell.allowed(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
        assert outcome.error in cell.allowed(ApiKey.ADD_OFFSETS_TO_TXN, 4)
        decision = cell.driver.shard.decide_add_partitions(
            TRANSACTIONAL_ID, producer, (OUT_1,), version=version, now_ms=LATER_MS
        )
        cell.check(decision, outcome, f"{producer}")
        if outcome.error is OK:
            again = cell.driver.shard.decide_add_partitions(
                TRANSACTIONAL_ID, producer, (OUT_1,), version=version, now_ms=LATER_MS + 1
            )
            assert (again.reply, again.records) == (OK, ())


@every_cell
def test_verification(state: TransactionState | None, identity: Identity) -> None:
    for producer in REQUESTING_PRODUCERS:
        cell = Cell(state, identity, V2)
        before = cell.before
        in_it = not_in_it = OK
        if before is None or producer.producer_id != PRODUCER_ID:
            in_it = not_in_it = MAPPING
        elif producer.producer_epoch != before.producer_epoch:
            in_it = not_in_it = FENCED
        elif before.state in PREPARED:
            in_it = not_in_it = CONCURRENT
        else:
            in_it, not_in_it = OK if before.state is ONGOING else ABORTABLE, ABORTABLE
        assert {in_it, not_in_it} <= cell.allowed(ApiKey.ADD_PARTITIONS_TO_TXN, 4)
        answers = cell.driver.shard.verify_partitions(TRANSACTIONAL_ID, producer, (OUT_0, OUT_1))
        assert answers == {OUT_0: in_it, OUT_1: not_in_it}
        for partition, error in answers.items():
            confirmed = cell.driver.shard.is_partition_confirmed(TRANSACTIONAL_ID, *producer, partition)
            assert confirmed == (error is OK)


# EndTxn

SAME, AGAIN = "the current epoch", "the epoch before: the reply was lost"
PREPARES = "prepares"
EMPTY_ABORT = "begins and ends an abort"
DONE = "acknowledged"
# fmt: off
VERSION_1_CELLS: dict[tuple[bool, str], tuple[str | ErrorCode, ...]] = {
    # commit, epoch    Empty        Ongoing   CompleteCommit  CompleteAbort
    (True,  SAME):    (INVALID,     PREPARES, DONE,           INVALID),
    (False, SAME):    (INVALID,     PREPARES, INVALID,        DONE),
}
VERSION_2_CELLS: dict[tuple[bool, str], tuple[str | ErrorCode, ...]] = {
    (True,  SAME):    (INVALID,     PREPARES, INVALID,        INVALID),
    (False, SAME):    (EMPTY_ABORT, PREPARES, EMPTY_ABORT,    EMPTY_ABORT),
    (True,  AGAIN):   (FENCED,      FENCED,   DONE,           INVALID),
    (False, AGAIN):   (FENCED,      FENCED,   INVALID,        DONE),
}
# fmt: on
COLUMNS = {EMPTY: 0, ONGOING: 1, COMPLETE_COMMIT: 2, COMPLETE_ABORT: 3}


def expected_of_end(cell: Cell, producer: Producer, version: TransactionVersion, *, committed: bool) -> Outcome:
    before = cell.before
    if before is None:
        return Outcome(MAPPING)
    is_again = version is V2 and producer == cell.identity.last
    if before.state in PREPARED and version is V2:
        return Outcome(CONCURRENT)
    if not is_again and producer.producer_id != PRODUCER_ID:
        return Outcome(MAPPING)
    if not is_again and producer.producer_epoch != before.producer_epoch:
        return Outcome(FENCED)
    if before.state in PREPARED:
        return Outcome(CONCURRENT)
    cells = VERSION_1_CELLS if version is V1 else VERSION_2_CELLS
    found = cells[committed, AGAIN if is_again else SAME][COLUMNS[before.state]]
    if isinstance(found, ErrorCode):
        return Outcome(found)
    if found is DONE:
        return Outcome(OK, before.producer)
    prepared = ended(cell, PREPARE_COMMIT if committed else PREPARE_ABORT, version, requested_by_owner=True)
    if prepared is None:
        return Outcome(LOADING)
    after = completed(prepared)
    return Outcome(OK, after.producer, *((after, 2) if found is EMPTY_ABORT else (prepared, 1)))


@either_version
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
@every_cell
def test_end_txn(
    state: TransactionState | None, identity: Identity, committed: bool, version: TransactionVersion
) -> None:
    for producer in REQUESTING_PRODUCERS:
        for has_id in (True, False):
            cell = Cell(state, identity, V2, has_id=has_id)
            outcome = expected_of_end(cell, producer, version, committed=committed)
            assert outcome.error in cell.allowed(ApiKey.END_TXN, 4 if version is V1 else 5)
            cell.check(
                cell.driver.shard.decide_end_transaction(
                    TRANSACTIONAL_ID, producer, committed=committed, version=version, now_ms=LATER_MS
                ),
                outcome,
                f"{producer}, an id at hand: {has_id}",
            )


# What the coordinator begins by itself


@either_version
@every_cell
def test_time_out(state: TransactionState | None, identity: Identity, version: TransactionVersion) -> None:
    cell = Cell(state, identity, version)
    due_ms = NOW_MS + TIMEOUT_MS + 1
    assert not cell.driver.shard.decide_deadline(due_ms - 1).records
    cell.driver.do(cell.driver.shard.decide_deadline(due_ms))
    after = cell.driver.shard.transactions.get(TRANSACTIONAL_ID)
    if state is not ONGOING:
        assert after == cell.before
        return
    fence = ended(cell, PREPARE_ABORT, version, requested_by_owner=False)
    assert fence is not None
    assert after == fence._replace(last_update_ms=due_ms)
    assert cell.driver.shard.take_prepared() == [TRANSACTIONAL_ID]


@every_cell
def test_markers_written(state: TransactionState | None, identity: Identity) -> None:
    cell = Cell(state, identity, V2)
    cell.driver.do(cell.driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=LATER_MS))
    after = cell.driver.shard.transactions.get(TRANSACTIONAL_ID)
    assert after == (completed(cell.before) if cell.before is not None and state in PREPARED else cell.before)
    assert cell.driver.replayed().transactions == cell.driver.shard.transactions


@every_cell
def test_expiry(state: TransactionState | None, identity: Identity) -> None:
    limits = TransactionLimits(transactional_id_expiration_ms=1000, expiry_interval_ms=100)
    driver = ShardDriver(limits=limits)
    if state is not None:
        driver.put(stored(state, identity)._replace(timeout_ms=2**31 - 1))  # only its client may end it
    driver.do(driver.shard.decide_deadline(NOW_MS + 999))
    assert (TRANSACTIONAL_ID in driver.shard.transactions) is (state is not None)
    driver.do(driver.shard.decide_deadline(NOW_MS + 1099))
    assert (TRANSACTIONAL_ID in driver.shard.transactions) is (state in (ONGOING, *PREPARED))
    assert driver.replayed().transactions == driver.shard.transactions
