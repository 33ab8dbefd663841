"""A guarded transactional id: a new session does not abort its open transaction, unless it names the current pair."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.broker.transaction.metadata import Producer, from_value
from fencepost.broker.transaction.shard import ProducerReply
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    KEPT,
    ONGOING,
    TransactionVersion,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.stored.transaction_state import decode_transaction_log_value
from tests.support.transaction_shard import NOW_MS, OUT_0, TIMEOUT_MS, TRANSACTIONAL_ID, ShardDriver

VERSIONS = pytest.mark.parametrize("version", list(TransactionVersion))


def initialise(driver: ShardDriver, expected: Producer | None = None, **options: Any) -> ProducerReply:
    reply: ProducerReply = driver.do(
        driver.shard.decide_init_producer_id(
            TRANSACTIONAL_ID, timeout_ms=TIMEOUT_MS, expected=expected, now_ms=NOW_MS, **options
        )
    )
    return reply


def pair_of(reply: ProducerReply) -> Producer:
    assert reply.error is ErrorCode.NONE
    return Producer(reply.producer_id, reply.producer_epoch)


def open_transaction(driver: ShardDriver, version: TransactionVersion) -> Producer:
    """As a session does that guards its id: once by its pair, then by its client, which knows no pair."""
    initialise(driver, guard=True)
    producer = pair_of(initialise(driver))
    driver.do(driver.shard.decide_add_partitions(TRANSACTIONAL_ID, producer, [OUT_0], version=version, now_ms=NOW_MS))
    return producer


def current(driver: ShardDriver) -> Any:
    return driver.shard.transactions[TRANSACTIONAL_ID]


@VERSIONS
def test_a_new_session_does_not_abort_the_open_transaction(version: TransactionVersion) -> None:
    driver = ShardDriver(version=version)
    producer = open_transaction(driver, version)
    before = current(driver)
    assert initialise(driver).error is ErrorCode.PRODUCER_FENCED
    assert initialise(driver, guard=True).error is ErrorCode.PRODUCER_FENCED
    assert current(driver) == before
    assert before.producer == producer


@VERSIONS
@pytest.mark.parametrize("by", ["pair", "force"])
def test_a_request_with_the_pair_and_one_of_an_administrator_abort_it(version: TransactionVersion, by: str) -> None:
    driver = ShardDriver(version=version)
    producer = open_transaction(driver, version)
    options: dict[str, Any] = {"forced": True} if by == "force" else {"expected": producer}
    assert initialise(driver, **options).error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert current(driver).state.is_prepared


@VERSIONS
def test_a_session_that_finds_nothing_open_begins(version: TransactionVersion) -> None:
    driver = ShardDriver(version=version)
    first = pair_of(initialise(driver, guard=True))
    assert pair_of(initialise(driver)) == Producer(first.producer_id, first.producer_epoch + 1)


@VERSIONS
@pytest.mark.parametrize("committed", [True, False])
def test_the_guard_outlives_transactions_and_sessions_and_restarts(
    version: TransactionVersion, committed: bool
) -> None:
    driver = ShardDriver(version=version)
    producer = open_transaction(driver, version)
    driver.do(
        driver.shard.decide_end_transaction(
            TRANSACTIONAL_ID, producer, committed=committed, version=version, now_ms=NOW_MS
        )
    )
    assert current(driver).is_guarded
    driver.put(current(driver).completed(now_ms=NOW_MS))
    assert current(driver).state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    producer = pair_of(initialise(driver))
    driver.do(driver.shard.decide_add_partitions(TRANSACTIONAL_ID, producer, [OUT_0], version=version, now_ms=NOW_MS))
    assert current(driver).is_guarded
    (again,) = driver.replayed().transactions.values()
    assert again == current(driver)


@VERSIONS
def test_a_session_that_keeps_the_transaction_may_be_replaced_by_one_that_does_not(version: TransactionVersion) -> None:
    driver = ShardDriver(version=version)
    open_transaction(driver, version)
    initialise(driver, keep_prepared=True)
    assert current(driver).state is KEPT
    assert initialise(driver).error is ErrorCode.CONCURRENT_TRANSACTIONS


@VERSIONS
def test_the_guard_is_one_tagged_field_of_the_stored_state(version: TransactionVersion) -> None:
    driver = ShardDriver(version=version)
    open_transaction(driver, version)
    assert current(driver).state is ONGOING
    guarded = driver.records[-1].value
    assert guarded is not None
    value = decode_transaction_log_value(guarded)
    assert value is not None
    assert from_value(TRANSACTIONAL_ID, value).is_guarded
    assert guarded.endswith(bytes.fromhex("904e0101"))
