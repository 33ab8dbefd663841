"""What a coordinator makes of an answer of a transaction's source, and of a client that ends it at the same time.

One outcome: the same from the other side gets 0, the other one INVALID_TXN_STATE.
"""

from __future__ import annotations

import pytest

from fencepost.broker.transaction.metadata import Producer, TransactionMetadata
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    KEPT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
    TransactionVersion,
)
from fencepost.protocol.errors import ErrorCode
from tests.support.transaction_shard import NOW_MS, TRANSACTIONAL_ID, ShardDriver, transaction_in

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
OK, INVALID, MAPPING = ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
PAIR = Producer(7, 5)
LATER_MS = NOW_MS + 5
either_version = pytest.mark.parametrize("version", TransactionVersion)
either_outcome = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


def driver_with(metadata: TransactionMetadata) -> ShardDriver:
    driver = ShardDriver()
    driver.put(metadata)
    return driver


def check_back(driver: ShardDriver, *, committed: bool, pair: Producer = PAIR, start_ms: int = NOW_MS) -> ErrorCode:
    return driver.do(
        driver.shard.decide_check_back(TRANSACTIONAL_ID, pair, start_ms, committed=committed, now_ms=LATER_MS)
    )


def client_ends(driver: ShardDriver, pair: Producer, *, committed: bool, version: TransactionVersion) -> ErrorCode:
    return driver.do(
        driver.shard.decide_end_transaction(
            TRANSACTIONAL_ID, pair, committed=committed, version=version, now_ms=LATER_MS
        )
    ).error


def complete(driver: ShardDriver) -> None:
    driver.do(driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=LATER_MS))


@either_version
@either_outcome
def test_an_open_transaction_is_ended_as_its_source_says(version: TransactionVersion, committed: bool) -> None:
    driver = driver_with(transaction_in(ONGOING, version=version))
    assert check_back(driver, committed=committed) is OK
    assert driver.transaction.state is (PREPARE_COMMIT if committed else PREPARE_ABORT)


@either_outcome
def test_a_kept_transaction_is_ended_too_and_its_newest_session_goes_on(committed: bool) -> None:
    kept = transaction_in(ONGOING)._replace(
        state=KEPT, previous_producer_id=-1, next_producer_id=7, next_producer_epoch=6
    )
    driver = driver_with(kept)
    assert check_back(driver, committed=committed) is OK
    assert driver.transaction.completed_producer == (7, 7)
    assert client_ends(driver, PAIR, committed=committed, version=V2) is ErrorCode.CONCURRENT_TRANSACTIONS
    complete(driver)
    # The newest session, whose end was on its way, learns the outcome.
    assert client_ends(driver, Producer(7, 6), committed=committed, version=V2) is OK
    assert client_ends(driver, Producer(7, 6), committed=not committed, version=V2) is INVALID


@either_outcome
@pytest.mark.parametrize("says_the_same", [True, False], ids=["same", "other"])
def test_a_client_that_ends_it_afterwards_gets_zero_for_the_same_outcome_alone(
    committed: bool, says_the_same: bool
) -> None:
    driver = driver_with(transaction_in(ONGOING))
    check_back(driver, committed=committed)
    complete(driver)
    error = client_ends(driver, PAIR, committed=committed is says_the_same, version=V2)
    assert error is (OK if says_the_same else INVALID)
    assert driver.transaction.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)


def test_a_client_of_version_1_finds_its_commit_done_and_its_abort_refused() -> None:
    driver = driver_with(transaction_in(ONGOING, version=V1))
    check_back(driver, committed=True)
    complete(driver)
    assert client_ends(driver, PAIR, committed=True, version=V1) is OK
    assert client_ends(driver, PAIR, committed=False, version=V1) is INVALID


@either_outcome
def test_a_client_of_version_1_is_fenced_by_an_abort_as_by_a_time_out(committed: bool) -> None:
    driver = driver_with(transaction_in(ONGOING, version=V1))
    check_back(driver, committed=False)
    complete(driver)
    assert client_ends(driver, PAIR, committed=committed, version=V1) is ErrorCode.PRODUCER_FENCED


@either_version
@either_outcome
@pytest.mark.parametrize("says_the_same", [True, False], ids=["same", "other"])
@pytest.mark.parametrize("is_complete", [False, True], ids=["markers missing", "complete"])
def test_an_answer_after_the_clients_end_gets_zero_for_the_same_outcome_alone(
    version: TransactionVersion, committed: bool, says_the_same: bool, is_complete: bool
) -> None:
    driver = driver_with(transaction_in(ONGOING, version=version))
    assert client_ends(driver, PAIR, committed=committed, version=version) is OK
    if is_complete:
        complete(driver)
    before = list(driver.records)
    assert check_back(driver, committed=committed is says_the_same) is (OK if says_the_same else INVALID)
    assert driver.records == before


@either_outcome
def test_an_answer_about_an_earlier_transaction_of_the_same_pair_changes_nothing(committed: bool) -> None:
    driver = driver_with(transaction_in(ONGOING, version=V1)._replace(start_ms=NOW_MS + 1))
    assert check_back(driver, committed=committed) is MAPPING
    assert driver.transaction.state is ONGOING


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT, PREPARE_COMMIT, PREPARE_ABORT])
@either_outcome
def test_an_answer_about_what_a_later_session_replaced_changes_nothing(
    state: TransactionState, committed: bool
) -> None:
    driver = driver_with(transaction_in(state)._replace(start_ms=-1 if state is EMPTY else NOW_MS + 1))
    assert check_back(driver, committed=committed) is MAPPING
    assert driver.transaction.state is state


def test_an_answer_about_an_id_that_is_forgotten_changes_nothing() -> None:
    driver = ShardDriver()
    assert check_back(driver, committed=True) is MAPPING
    assert driver.records == []


@either_outcome
def test_an_exhausted_epoch_needs_a_producer_id_before_anything_is_written(committed: bool) -> None:
    driver = ShardDriver(producer_ids=[])
    driver.put(transaction_in(ONGOING, producer=Producer(7, 32_766)))
    error = driver.do(
        driver.shard.decide_check_back(
            TRANSACTIONAL_ID, Producer(7, 32_766), NOW_MS, committed=committed, now_ms=LATER_MS
        )
    )
    assert error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert driver.transaction.state is ONGOING
