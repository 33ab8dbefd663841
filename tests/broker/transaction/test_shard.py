"""The coordinator's decisions, cell by cell: every request in every state, for both transaction versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.kernel.deadlines import REFUSED_PAUSE_MS
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import EXHAUSTED_EPOCH, LAST_EPOCH, TWO_PHASE_COMMIT_TIMEOUT_MS, Producer
from fencepost.broker.transaction.shard import ProducerReply, TransactionShard
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
from fencepost.protocol.errors import ErrorCode
from tests.support.captured_events import capture_logs
from tests.support.transaction_shard import (
    NOTHING_OPEN,
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
CURRENT, LAST, OLDER, NEWER, FOREIGN = Producer(7, 5), Producer(7, 4), Producer(7, 2), Producer(7, 6), Producer(8, 5)
OK = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


@dataclass(frozen=True)
class Expected:
    """The reply's error; the states of the records appended; the identity in the reply, or that of the transaction
    afterwards.
    """

    error: ErrorCode
    appended: tuple[TransactionState, ...] = ()
    producer: Producer | None = None


def driver_in(state: TransactionState | None, *, version: TransactionVersion = V2) -> ShardDriver:
    driver = ShardDriver(version=version)
    if state is not None:
        driver.put(transaction_in(state))
    return driver


def states_appended(driver: ShardDriver, before: int) -> tuple[TransactionState, ...]:
    replay = ShardDriver(limits=driver.limits)
    states = []
    for record in driver.records[before:]:
        replay.apply(record)
        states.append(replay.transaction.state)
    return tuple(states)


def init(driver: ShardDriver, expected: Producer | None) -> ProducerReply:
    return driver.do(
        driver.shard.decide_init_producer_id(
            TRANSACTIONAL_ID, timeout_ms=TIMEOUT_MS, expected=expected, now_ms=NOW_MS + 1
        )
    )


def end(driver: ShardDriver, producer: Producer, *, committed: bool, version: TransactionVersion) -> ProducerReply:
    return driver.do(
        driver.shard.decide_end_transaction(
            TRANSACTIONAL_ID, producer, committed=committed, version=version, now_ms=NOW_MS + 1
        )
    )


def add(driver: ShardDriver, producer: Producer, *, version: TransactionVersion = V2) -> ErrorCode:
    return driver.do(
        driver.shard.decide_add_partitions(TRANSACTIONAL_ID, producer, (OUT_0,), version=version, now_ms=NOW_MS + 1)
    )


CREATED = Expected(OK, (EMPTY,), Producer(100, 0))
BUMPED = Expected(OK, (EMPTY,), Producer(7, 6))
UNCHANGED = Expected(OK, (EMPTY,), Producer(7, 5))
FENCES = Expected(CONCURRENT, (PREPARE_ABORT,))
BUSY, REFUSED = Expected(CONCURRENT), Expected(FENCED)

# fmt: off
INIT_PRODUCER_ID_CELLS = {
    #          none     Empty      Ongoing  PrepareCommit PrepareAbort CompleteCommit CompleteAbort
    None:     (CREATED, BUMPED,    FENCES,  BUSY,         BUSY,        BUMPED,        BUMPED),
    CURRENT:  (CREATED, BUMPED,    FENCES,  BUSY,         BUSY,        BUMPED,        BUMPED),
    LAST:     (CREATED, UNCHANGED, REFUSED, BUSY,         BUSY,        UNCHANGED,     UNCHANGED),
    OLDER:    (CREATED, REFUSED,   REFUSED, BUSY,         BUSY,        REFUSED,       REFUSED),
    NEWER:    (CREATED, REFUSED,   REFUSED, BUSY,         BUSY,        REFUSED,       REFUSED),
    FOREIGN:  (CREATED, REFUSED,   REFUSED, BUSY,         BUSY,        REFUSED,       REFUSED),
}
# fmt: on
STATES = (None, *ONE_PAIR)


@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize(
    ("expected", "state", "outcome"),
    [
        pytest.param(expected, state, outcome, id=f"{expected}-{state.name if state is not None else 'none'}")
        for expected, row in INIT_PRODUCER_ID_CELLS.items()
        for state, outcome in zip(STATES, row, strict=True)
    ],
)
def test_init_producer_id_in_every_state(
    expected: Producer | None, state: TransactionState | None, outcome: Expected, version: TransactionVersion
) -> None:
    driver = driver_in(state, version=version)
    before = len(driver.records)
    reply = init(driver, expected)
    assert reply.error is outcome.error
    assert states_appended(driver, before) == outcome.appended
    assert reply.producer == (outcome.producer or Producer(-1, -1))


@dataclass(frozen=True)
class EndCell:
    producer: Producer
    committed: bool
    row: tuple[Expected, ...]


NO_SUCH = Expected(MAPPING)
WRONG = Expected(INVALID)
SAME = Expected(OK, (), CURRENT)
COMMITS_V1 = Expected(OK, (PREPARE_COMMIT,), CURRENT)
ABORTS_V1 = Expected(OK, (PREPARE_ABORT,), CURRENT)
COMMITS_V2 = Expected(OK, (PREPARE_COMMIT,), NEWER)
ABORTS_V2 = Expected(OK, (PREPARE_ABORT,), NEWER)
EMPTY_ABORT = Expected(OK, (PREPARE_ABORT, COMPLETE_ABORT), NEWER)

# fmt: off
END_TRANSACTION_CELLS = {
    V1: (
        #                       none     Empty        Ongoing     PrepareC. PrepareA. CompleteCommit CompleteAbort
        EndCell(CURRENT, True,  (NO_SUCH, WRONG,       COMMITS_V1, BUSY,     BUSY,     SAME,          WRONG)),
        EndCell(CURRENT, False, (NO_SUCH, WRONG,       ABORTS_V1,  BUSY,     BUSY,     WRONG,         SAME)),
        EndCell(LAST,    True,  (NO_SUCH, REFUSED,     REFUSED,    REFUSED,  REFUSED,  REFUSED,       REFUSED)),
        EndCell(LAST,    False, (NO_SUCH, REFUSED,     REFUSED,    REFUSED,  REFUSED,  REFUSED,       REFUSED)),
        EndCell(NEWER,   True,  (NO_SUCH, REFUSED,     REFUSED,    REFUSED,  REFUSED,  REFUSED,       REFUSED)),
        EndCell(FOREIGN, True,  (NO_SUCH, NO_SUCH,     NO_SUCH,    NO_SUCH,  NO_SUCH,  NO_SUCH,       NO_SUCH)),
    ),
    V2: (
        EndCell(CURRENT, True,  (NO_SUCH, WRONG,       COMMITS_V2, BUSY,     BUSY,     WRONG,         WRONG)),
        EndCell(CURRENT, False, (NO_SUCH, EMPTY_ABORT, ABORTS_V2,  BUSY,     BUSY,     EMPTY_ABORT,   EMPTY_ABORT)),
        EndCell(LAST,    True,  (NO_SUCH, REFUSED,     REFUSED,    BUSY,     BUSY,     SAME,          WRONG)),
        EndCell(LAST,    False, (NO_SUCH, REFUSED,     REFUSED,    BUSY,     BUSY,     WRONG,         SAME)),
        EndCell(OLDER,   True,  (NO_SUCH, REFUSED,     REFUSED,    BUSY,     BUSY,     REFUSED,       REFUSED)),
        EndCell(NEWER,   False, (NO_SUCH, REFUSED,     REFUSED,    BUSY,     BUSY,     REFUSED,       REFUSED)),
        EndCell(FOREIGN, True,  (NO_SUCH, NO_SUCH,     NO_SUCH,    BUSY,     BUSY,     NO_SUCH,       NO_SUCH)),
    ),
}
# fmt: on


@pytest.mark.parametrize(
    ("version", "cell", "state", "outcome"),
    [
        pytest.param(
            version,
            cell,
            state,
            outcome,
            id=f"{version.name}-{cell.producer}-{cell.committed}-{state.name if state is not None else 'none'}",
        )
        for version, cells in END_TRANSACTION_CELLS.items()
        for cell in cells
        for state, outcome in zip(STATES, cell.row, strict=True)
    ],
)
def test_end_transaction_in_every_state(
    version: TransactionVersion, cell: EndCell, state: TransactionState | None, outcome: Expected
) -> None:
    driver = driver_in(state)
    before = len(driver.records)
    reply = end(driver, cell.producer, committed=cell.committed, version=version)
    assert reply.error is outcome.error
    assert states_appended(driver, before) == outcome.appended
    assert reply.producer == (outcome.producer or Producer(-1, -1))


# fmt: off
ADD_CELLS = {
    #         none     Empty    Ongoing  PrepareCommit PrepareAbort CompleteCommit CompleteAbort
    CURRENT: (MAPPING, OK,      OK,      CONCURRENT,   CONCURRENT,  OK,            OK),
    LAST:    (MAPPING, FENCED,  FENCED,  CONCURRENT,   CONCURRENT,  FENCED,        FENCED),
    NEWER:   (MAPPING, FENCED,  FENCED,  CONCURRENT,   CONCURRENT,  FENCED,        FENCED),
    FOREIGN: (MAPPING, MAPPING, MAPPING, CONCURRENT,   CONCURRENT,  MAPPING,       MAPPING),
}
VERIFY_CELLS = {
    #         none     Empty      Ongoing  PrepareCommit PrepareAbort CompleteCommit CompleteAbort
    CURRENT: (MAPPING, ABORTABLE, OK,      CONCURRENT,   CONCURRENT,  ABORTABLE,     ABORTABLE),
    LAST:    (MAPPING, FENCED,    FENCED,  FENCED,       FENCED,      FENCED,        FENCED),
    NEWER:   (MAPPING, FENCED,    FENCED,  FENCED,       FENCED,      FENCED,        FENCED),
    FOREIGN: (MAPPING, MAPPING,   MAPPING, MAPPING,      MAPPING,     MAPPING,       MAPPING),
}
# fmt: on


@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize(
    ("producer", "state", "error"),
    [(producer, state, error) for producer, row in ADD_CELLS.items() for state, error in zip(STATES, row, strict=True)],
)
def test_add_partitions_in_every_state(
    producer: Producer, state: TransactionState | None, error: ErrorCode, version: TransactionVersion
) -> None:
    driver = driver_in(state)
    before = len(driver.records)
    decision = driver.shard.decide_add_partitions(
        TRANSACTIONAL_ID, producer, (OUT_0, OUT_1), version=version, now_ms=NOW_MS + 1
    )
    assert driver.do(decision) is error
    assert states_appended(driver, before) == ((ONGOING,) if error is OK else ())
    if error is OK:
        assert driver.transaction.partitions == {OUT_0, OUT_1}
        assert driver.transaction.client_transaction_version is version


@pytest.mark.parametrize(
    ("producer", "state", "error"),
    [
        (producer, state, error)
        for producer, row in VERIFY_CELLS.items()
        for state, error in zip(STATES, row, strict=True)
    ],
)
def test_verification_in_every_state(producer: Producer, state: TransactionState | None, error: ErrorCode) -> None:
    driver = driver_in(state)
    assert driver.shard.verify_partitions(TRANSACTIONAL_ID, producer, (OUT_0,)) == {OUT_0: error}


@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize("state", ONE_PAIR)
def test_time_out_in_every_state(state: TransactionState, version: TransactionVersion) -> None:
    driver = driver_in(state, version=version)
    driver.do(driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1))
    assert driver.transaction.state is (PREPARE_ABORT if state is ONGOING else state)
    assert driver.transaction.producer == (NEWER if state is ONGOING else CURRENT)


@pytest.mark.parametrize("state", TransactionState)
def test_expiry_in_every_state(state: TransactionState) -> None:
    driver = ShardDriver(limits=TransactionLimits(transactional_id_expiration_ms=1000, expiry_interval_ms=100))
    driver.put(transaction_in(state, timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS))
    driver.do(driver.shard.decide_deadline(NOW_MS + 1000 + 99))
    has_expired = state in NOTHING_OPEN
    assert (TRANSACTIONAL_ID not in driver.shard.transactions) is has_expired
    assert TRANSACTIONAL_ID not in driver.replayed().transactions or not has_expired


@pytest.mark.parametrize("state", TransactionState)
def test_written_markers_in_every_state(state: TransactionState) -> None:
    driver = driver_in(state)
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS + 1))
    completed = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
    assert driver.transaction.state is completed.get(state, state)
    assert driver.transaction.producer == CURRENT
    if state.is_prepared:
        assert driver.transaction.partitions == frozenset()
        assert driver.transaction.last_update_ms == NOW_MS + 1


# Identities


def test_a_new_session_forgets_the_producer_that_may_retry() -> None:
    driver = driver_in(EMPTY)
    assert init(driver, None) == ProducerReply(OK, 7, 6)
    assert init(driver, CURRENT).error is FENCED


def test_a_lost_reply_to_a_bump_is_answered_again_and_also_after_a_restart() -> None:
    driver = driver_in(EMPTY)
    assert init(driver, CURRENT) == ProducerReply(OK, 7, 6)
    assert init(driver, CURRENT) == ProducerReply(OK, 7, 6)
    driver.shard = driver.replayed()
    assert init(driver, CURRENT) == ProducerReply(OK, 7, 6)


def test_an_exhausted_epoch_moves_to_a_new_producer_id() -> None:
    for expected in (None, Producer(7, EXHAUSTED_EPOCH)):
        driver = ShardDriver()
        driver.put(transaction_in(COMPLETE_ABORT, producer=Producer(7, EXHAUSTED_EPOCH)))
        assert init(driver, expected) == ProducerReply(OK, 100, 0)
        again = init(driver, Producer(7, EXHAUSTED_EPOCH))
        assert again == (ProducerReply(FENCED) if expected is None else ProducerReply(OK, 100, 0))


def test_an_exhausted_epoch_and_an_expected_one_that_is_neither_current_nor_last_is_fenced() -> None:
    driver = ShardDriver()
    driver.put(transaction_in(EMPTY, producer=Producer(7, EXHAUSTED_EPOCH)))
    assert init(driver, Producer(7, EXHAUSTED_EPOCH - 1)) == ProducerReply(OK, 7, EXHAUSTED_EPOCH)
    assert init(driver, Producer(7, EXHAUSTED_EPOCH - 2)).error is FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_ending_with_an_exhausted_epoch_marks_with_the_old_id_and_goes_on_with_a_new_one(committed: bool) -> None:
    exhausted = Producer(7, EXHAUSTED_EPOCH)
    driver = ShardDriver()
    driver.put(transaction_in(ONGOING, producer=exhausted))
    assert end(driver, exhausted, committed=committed, version=V2) == ProducerReply(OK, 100, 0)
    assert driver.transaction.producer == Producer(7, LAST_EPOCH)
    assert driver.transaction.next_producer_id == 100
    driver.shard = driver.replayed()
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
    assert driver.transaction.producer == Producer(100, 0)
    driver.shard = driver.replayed()
    assert end(driver, exhausted, committed=committed, version=V2) == ProducerReply(OK, 100, 0)
    assert end(driver, exhausted, committed=not committed, version=V2).error is INVALID
    assert init(driver, exhausted) == ProducerReply(OK, 100, 0)


def test_the_owner_of_an_exhausted_id_has_no_say_once_the_new_id_is_in_use() -> None:
    exhausted = Producer(7, EXHAUSTED_EPOCH)
    driver = ShardDriver()
    driver.put(transaction_in(EMPTY, producer=exhausted))
    assert init(driver, exhausted) == ProducerReply(OK, 100, 0)
    assert add(driver, Producer(100, 0)) is OK
    assert init(driver, exhausted).error is FENCED
    assert end(driver, exhausted, committed=True, version=V2).error is MAPPING
    assert driver.transaction.state is ONGOING


def test_fencing_an_exhausted_epoch_uses_the_one_epoch_that_no_client_gets() -> None:
    exhausted = Producer(7, EXHAUSTED_EPOCH)
    for version, completed in ((V1, Producer(7, LAST_EPOCH)), (V2, Producer(100, 0))):
        driver = ShardDriver(version=version)
        driver.put(transaction_in(ONGOING, producer=exhausted))
        assert init(driver, None).error is CONCURRENT
        assert driver.transaction.producer == Producer(7, LAST_EPOCH)
        driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
        assert driver.transaction.producer == completed
        assert init(driver, None).error is OK
        assert driver.transaction.producer in (Producer(100, 0), Producer(100, 1))


def test_without_a_producer_id_at_hand_nothing_changes() -> None:
    exhausted = Producer(7, EXHAUSTED_EPOCH)
    loading = ProducerReply(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    driver = ShardDriver(producer_ids=())
    assert init(driver, None) == loading
    driver.put(transaction_in(ONGOING, producer=exhausted))
    assert end(driver, exhausted, committed=True, version=V2) == loading
    assert init(driver, None) == loading
    driver.do(driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1))
    assert driver.transaction.state is ONGOING
    assert driver.shard.next_deadline_ms() == NOW_MS + TIMEOUT_MS + 1 + driver.limits.time_out_retry_ms
    assert end(driver, exhausted, committed=True, version=V1).error is OK


def test_after_a_time_out_a_version_2_producer_recovers_by_aborting() -> None:
    driver = driver_in(ONGOING)
    driver.do(driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1))
    assert end(driver, CURRENT, committed=False, version=V2).error is CONCURRENT
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
    assert add(driver, CURRENT) is FENCED
    assert end(driver, CURRENT, committed=True, version=V2).error is INVALID
    assert end(driver, CURRENT, committed=False, version=V2) == ProducerReply(OK, 7, 6)


def test_after_a_time_out_a_version_1_producer_is_fenced() -> None:
    driver = driver_in(ONGOING, version=V1)
    driver.do(driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1))
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
    assert end(driver, CURRENT, committed=False, version=V1).error is FENCED
    assert init(driver, CURRENT).error is FENCED


def test_after_an_internal_fence_the_requesting_producer_gets_the_fenced_epoch_in_version_2() -> None:
    driver = driver_in(ONGOING)
    assert init(driver, CURRENT).error is CONCURRENT
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
    assert init(driver, CURRENT) == ProducerReply(OK, 7, 6)


@pytest.mark.parametrize("committed", [True, False])
def test_a_producer_fenced_by_a_new_session_is_not_taken_for_a_retry(committed: bool) -> None:
    driver = driver_in(EMPTY)
    successor = init(driver, None)
    assert (successor.producer_id, successor.producer_epoch) == NEWER
    assert add(driver, NEWER) is OK
    assert end(driver, NEWER, committed=committed, version=V1).error is OK
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
    assert end(driver, CURRENT, committed=committed, version=V2).error is FENCED


def test_a_client_may_end_with_version_1_what_it_began_with_version_2() -> None:
    driver = driver_in(ONGOING)
    assert end(driver, CURRENT, committed=True, version=V1) == ProducerReply(OK, 7, 5)
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS))
    assert end(driver, CURRENT, committed=True, version=V1) == ProducerReply(OK, 7, 5)


# Partitions and time


def test_partitions_that_are_in_already_are_acknowledged_without_a_record() -> None:
    driver = driver_in(ONGOING)
    before = len(driver.records)
    assert add(driver, CURRENT) is OK
    assert len(driver.records) == before


def test_no_partitions_open_a_transaction_all_the_same_and_it_ends_without_markers() -> None:
    driver = driver_in(EMPTY)
    decision = driver.shard.decide_add_partitions(TRANSACTIONAL_ID, CURRENT, (), version=V1, now_ms=NOW_MS)
    assert driver.do(decision) is OK
    assert driver.transaction.state is ONGOING
    assert end(driver, CURRENT, committed=True, version=V1).error is OK
    assert driver.transaction.state is COMPLETE_COMMIT
    assert driver.shard.take_prepared() == []


def test_the_time_out_counts_from_the_first_partition() -> None:
    driver = driver_in(EMPTY)
    for step_ms, partition in enumerate((OUT_0, OUT_1)):
        driver.do(
            driver.shard.decide_add_partitions(
                TRANSACTIONAL_ID, CURRENT, (partition,), version=V2, now_ms=NOW_MS + 1000 * step_ms
            )
        )
    assert driver.transaction.start_ms == NOW_MS
    assert driver.transaction.last_update_ms == NOW_MS + 1000
    assert not driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS).records
    assert driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1).records


def test_a_transaction_that_began_by_a_clock_ahead_times_out_a_time_out_after_the_next_start() -> None:
    driver = ShardDriver()
    driver.put(transaction_in(ONGOING)._replace(start_ms=NOW_MS + 86_400_000))
    shard = driver.replayed()
    assert not shard.decide_deadline(NOW_MS + TIMEOUT_MS).records
    assert shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1).records


def test_a_two_phase_commit_transaction_never_times_out() -> None:
    driver = ShardDriver()
    driver.put(transaction_in(EMPTY, timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS))
    expiry_ms = driver.shard.next_deadline_ms()
    assert expiry_ms is not None
    driver.put(transaction_in(ONGOING, timeout_ms=TWO_PHASE_COMMIT_TIMEOUT_MS))
    assert not driver.shard.decide_deadline(expiry_ms).records
    assert not driver.shard.decide_deadline(NOW_MS + TWO_PHASE_COMMIT_TIMEOUT_MS + 1).records


def test_ids_that_match_a_glob_expire_after_its_time() -> None:
    limits = TransactionLimits(
        transactional_id_expiration_ms=10_000,
        expiry_interval_ms=100,
        expirations_by_name=(("sink-*", 1000), ("s*", 20_000)),
    )
    driver = ShardDriver(limits=limits)
    kept_ms = {"sink-1": 1000, "sink-": 1000, "sinks": 20_000, "shop": 20_000, "other": 10_000}
    for name in kept_ms:
        driver.put(transaction_in(EMPTY)._replace(transactional_id=name))
    for at_ms in (999, 1000, 1099, 9_999, 10_099, 19_999, 20_099):
        while (decision := driver.shard.decide_deadline(NOW_MS + at_ms)).records:
            driver.do(decision)
        still_kept = {name for name, ms in kept_ms.items() if at_ms < -(-(NOW_MS + ms) // 100) * 100 - NOW_MS}
        assert set(driver.shard.transactions) == still_kept


def test_time_outs_and_expiries_that_are_due_together_are_decided_together() -> None:
    limits = TransactionLimits(transactional_id_expiration_ms=1000, expiry_interval_ms=100)
    driver = ShardDriver(limits=limits)
    driver.put(transaction_in(EMPTY)._replace(transactional_id="unused"))
    driver.put(transaction_in(ONGOING))
    driver.do(driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1))
    assert {name: known.state for name, known in driver.shard.transactions.items()} == {TRANSACTIONAL_ID: PREPARE_ABORT}


def test_a_time_out_that_the_log_refused_stays_due() -> None:
    driver = driver_in(ONGOING)
    now_ms = NOW_MS + TIMEOUT_MS + 1
    decision = driver.shard.decide_deadline(now_ms)
    assert decision.records
    assert decision.on_refused is not None
    decision.on_refused(ErrorCode.KAFKA_STORAGE_ERROR)
    assert driver.shard.next_deadline_ms() == now_ms
    assert driver.shard.decide_deadline(now_ms).records == decision.records


def test_a_time_out_whose_records_are_too_large_does_not_keep_others_from_being_aborted() -> None:
    driver = ShardDriver(producer_ids=range(100))
    for number in range(100):
        name = "large" if number == 40 else f"tx-{number}"
        driver.do(driver.shard.decide_init_producer_id(name, timeout_ms=10, expected=None, now_ms=NOW_MS))
        driver.do(driver.shard.decide_add_partitions(name, Producer(number, 0), (OUT_0,), version=V2, now_ms=NOW_MS))
    now_ms = NOW_MS + 11
    while (deadline_ms := driver.shard.next_deadline_ms()) is not None and deadline_ms <= now_ms:
        decision = driver.shard.decide_deadline(now_ms)
        if any(b"large" in record.key for record in decision.records):
            assert decision.on_refused is not None
            decision.on_refused(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            driver.do(decision)
    assert len(driver.shard.take_prepared()) == 99
    assert driver.shard.next_deadline_ms() == now_ms + REFUSED_PAUSE_MS
    driver.do(driver.shard.decide_deadline(now_ms + REFUSED_PAUSE_MS))
    assert driver.shard.take_prepared() == ["large"]


def test_an_abort_for_which_no_producer_id_is_at_hand_is_tried_again_after_a_pause() -> None:
    limits = TransactionLimits()
    driver = ShardDriver(limits=limits)
    driver.put(transaction_in(ONGOING)._replace(producer_epoch=EXHAUSTED_EPOCH))
    now_ms = NOW_MS + TIMEOUT_MS + 1
    driver.shard._take_producer_id = lambda: None
    decision = driver.shard.decide_deadline(now_ms)
    driver.do(decision)
    assert not decision.records
    assert driver.shard.next_deadline_ms() == now_ms + limits.time_out_retry_ms


@pytest.mark.parametrize("error", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.KAFKA_STORAGE_ERROR])
@pytest.mark.parametrize(
    ("state", "decide"),
    [
        (EMPTY, lambda shard: shard.decide_add_partitions(TRANSACTIONAL_ID, CURRENT, (OUT_0,), version=V2, now_ms=9)),
        (
            EMPTY,
            lambda shard: shard.decide_init_producer_id(TRANSACTIONAL_ID, timeout_ms=5, expected=None, now_ms=NOW_MS),
        ),
        (
            ONGOING,
            lambda shard: shard.decide_init_producer_id(TRANSACTIONAL_ID, timeout_ms=5, expected=None, now_ms=NOW_MS),
        ),
        (
            ONGOING,
            lambda shard: shard.decide_end_transaction(
                TRANSACTIONAL_ID, CURRENT, committed=True, version=V2, now_ms=NOW_MS
            ),
        ),
        (PREPARE_ABORT, lambda shard: shard.decide_completion(TRANSACTIONAL_ID, now_ms=NOW_MS)),
        (ONGOING, lambda shard: shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1)),
        (EMPTY, lambda shard: shard.decide_deadline(2 * NOW_MS)),
    ],
)
def test_a_decision_that_the_log_refuses_has_changed_nothing(
    state: TransactionState, decide: Callable[[TransactionShard], Decision[Any]], error: ErrorCode
) -> None:
    driver = driver_in(state)
    before, deadlines = dict(driver.shard.transactions), dict(driver.shard._deadlines._deadline_ms)
    with capture_logs() as lines:
        decision = decide(driver.shard)
        assert decision.records
        if decision.on_refused is not None:
            decision.on_refused(error)
    assert driver.shard.transactions == before
    assert driver.shard._deadlines._deadline_ms.keys() == deadlines.keys()
    assert not lines
    driver.do(decision)
    assert driver.shard.transactions != before


def test_many_time_outs_are_decided_in_bounded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # unwatched: a picture of so large a shard takes long
    count = 2000
    driver = ShardDriver(producer_ids=range(count))
    for number in range(count):
        transactional_id = f"tx-{number}"
        shard = driver.shard
        driver.do(shard.decide_init_producer_id(transactional_id, timeout_ms=10, expected=None, now_ms=NOW_MS))
        producer = Producer(number, 0)
        driver.do(shard.decide_add_partitions(transactional_id, producer, (OUT_0,), version=V2, now_ms=NOW_MS))
    batches = 0
    while (deadline_ms := driver.shard.next_deadline_ms()) is not None and deadline_ms <= NOW_MS + 11:
        decision = driver.shard.decide_deadline(NOW_MS + 11)
        assert len(decision.records) < count
        driver.do(decision)
        batches += 1
    assert batches > 1
    assert len(driver.shard.take_prepared()) == count


def test_an_id_that_is_used_again_does_not_expire() -> None:
    limits = TransactionLimits(transactional_id_expiration_ms=1000, expiry_interval_ms=100)
    driver = ShardDriver(limits=limits)
    driver.put(transaction_in(EMPTY))
    driver.do(driver.shard.decide_init_producer_id(TRANSACTIONAL_ID, timeout_ms=1, expected=None, now_ms=NOW_MS + 900))
    assert not driver.shard.decide_deadline(NOW_MS + 1500).records
    driver.do(driver.shard.decide_deadline(NOW_MS + 2000))
    assert TRANSACTIONAL_ID not in driver.shard.transactions
    assert driver.shard.next_deadline_ms() is None


def test_an_id_that_expired_begins_anew() -> None:
    driver = ShardDriver(limits=TransactionLimits(transactional_id_expiration_ms=1000, expiry_interval_ms=100))
    driver.put(transaction_in(EMPTY))
    driver.do(driver.shard.decide_deadline(NOW_MS + 2000))
    assert add(driver, CURRENT) is MAPPING
    assert init(driver, CURRENT) == ProducerReply(OK, 100, 0)


@pytest.mark.parametrize("version", TransactionVersion)
def test_an_empty_transactional_id_is_an_invalid_request(version: TransactionVersion) -> None:
    shard = ShardDriver().shard
    invalid = ErrorCode.INVALID_REQUEST
    assert shard.decide_add_partitions("", CURRENT, (OUT_0,), version=version, now_ms=NOW_MS).reply is invalid
    assert shard.verify_partitions("", CURRENT, (OUT_0,)) == {OUT_0: invalid}
    decision = shard.decide_end_transaction("", CURRENT, committed=True, version=version, now_ms=NOW_MS)
    assert decision.reply == ProducerReply(invalid)


@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize("expected", [None, CURRENT])
def test_a_session_after_a_restore_gets_a_producer_id_of_its_own(
    version: TransactionVersion, expected: Producer | None
) -> None:
    driver = ShardDriver(limits=TransactionLimits(transaction_version=version, lowest_producer_id=50))
    driver.put(transaction_in(COMPLETE_COMMIT))
    # Epoch 6 of id 7 may be held by a producer from the history that is lost.
    assert init(driver, expected) == ProducerReply(OK, 100, 0)
    assert init(driver, None) == ProducerReply(OK, 100, 1)
    assert add(driver, CURRENT) is MAPPING
    assert add(driver, Producer(100, 1)) is OK


def test_a_transaction_that_was_open_at_a_restore_may_still_end() -> None:
    driver = ShardDriver(limits=TransactionLimits(lowest_producer_id=50))
    driver.put(transaction_in(ONGOING))
    assert end(driver, CURRENT, committed=True, version=V2) == ProducerReply(OK, 7, 6)


def test_after_a_restore_a_session_waits_for_a_producer_id() -> None:
    driver = ShardDriver(limits=TransactionLimits(lowest_producer_id=50), producer_ids=())
    driver.put(transaction_in(EMPTY))
    assert init(driver, None).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
