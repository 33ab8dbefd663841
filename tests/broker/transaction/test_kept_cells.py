"""A kept transaction (KIP-939): every event, by every pair, in both transaction versions.

It has two pairs: T wrote the records, and C, of the newest session, may end the transaction. What must come of an event
is written down here from KIP-939 and its rules, without a look at the broker's table.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import Producer, TransactionMetadata, from_value
from fencepost.broker.transaction.shard import ProducerReply
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
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.stored.transaction_state import TransactionLogValue
from tests.support.captured_events import capture_logs
from tests.support.transaction_shard import (
    NOW_MS,
    OUT_0,
    OUT_1,
    TIMEOUT_MS,
    TRANSACTIONAL_ID,
    ShardDriver,
    transaction_in,
)

V1, V2 = TransactionVersion.V1, TransactionVersion.V2
OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NO_TIME_OUT_MS = 2**31 - 1
FRESH_ID = 100
LATER_MS = NOW_MS + 5
LAST_OF_CLIENTS, LAST = 32766, 32767


class Pairs(NamedTuple):
    """The two pairs of a kept transaction, and the client's successor; None if that takes a new producer id."""

    writer: Producer
    client: Producer
    successor: Producer | None


PAIRS = [
    pytest.param(Pairs(Producer(7, 0), Producer(7, 1), Producer(7, 2)), id="first"),
    pytest.param(Pairs(Producer(7, 0), Producer(7, 9), Producer(7, 10)), id="kept nine times"),
    pytest.param(Pairs(Producer(7, LAST_OF_CLIENTS), Producer(8, 0), Producer(8, 1)), id="kept at the last epoch"),
    pytest.param(Pairs(Producer(7, 3), Producer(7, LAST_OF_CLIENTS), None), id="client at the last epoch"),
]
every_pair = pytest.mark.parametrize("pairs", PAIRS)
either_version = pytest.mark.parametrize("version", TransactionVersion)
either_outcome = pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])


def kept(pairs: Pairs, *, timeout_ms: int = TIMEOUT_MS) -> TransactionMetadata:
    return transaction_in(ONGOING, producer=pairs.writer, timeout_ms=timeout_ms)._replace(
        state=KEPT,
        previous_producer_id=-1,
        next_producer_id=pairs.client.producer_id,
        next_producer_epoch=pairs.client.producer_epoch,
    )


def shard_with(
    pairs: Pairs, version: TransactionVersion = V2, *, has_id: bool = True, timeout_ms: int = TIMEOUT_MS
) -> ShardDriver:
    driver = ShardDriver(version=version, producer_ids=(FRESH_ID,) if has_id else ())
    driver.put(kept(pairs, timeout_ms=timeout_ms))
    return driver


def successor_of(pairs: Pairs) -> Producer:
    return pairs.successor or Producer(FRESH_ID, 0)


def strangers(pairs: Pairs) -> dict[Producer, ErrorCode]:
    """Pairs that are not the newest session's, each with the error that it gets."""
    writer, client = pairs.writer, pairs.client
    refused = {
        writer: FENCED,
        Producer(writer.producer_id, writer.producer_epoch + 1): FENCED,
        Producer(client.producer_id, client.producer_epoch + 1): FENCED,
        Producer(client.producer_id, max(client.producer_epoch - 1, 0)): FENCED,
        Producer(55, client.producer_epoch): MAPPING,
    }
    refused.pop(client, None)
    return refused


def do(driver: ShardDriver, decision: Decision[Any]) -> Any:
    reply = driver.do(decision)
    assert driver.replayed().transactions == driver.shard.transactions
    return reply


def init(
    driver: ShardDriver, *, keep: bool, expected: Producer | None = None, timeout_ms: int = TIMEOUT_MS
) -> ProducerReply:
    reply = do(
        driver,
        driver.shard.decide_init_producer_id(
            TRANSACTIONAL_ID, timeout_ms=timeout_ms, expected=expected, now_ms=LATER_MS, keep_prepared=keep
        ),
    )
    assert isinstance(reply, ProducerReply)
    return reply


def end(driver: ShardDriver, producer: Producer, version: TransactionVersion, *, committed: bool) -> ProducerReply:
    reply = do(
        driver,
        driver.shard.decide_end_transaction(
            TRANSACTIONAL_ID, producer, committed=committed, version=version, now_ms=LATER_MS
        ),
    )
    assert isinstance(reply, ProducerReply)
    return reply


def complete(driver: ShardDriver) -> TransactionMetadata:
    do(driver, driver.shard.decide_completion(TRANSACTIONAL_ID, now_ms=LATER_MS))
    return driver.transaction


# Records: Apache Kafka 4.4's TransactionLogValue reads each of these whole


def test_the_records_of_a_kept_transaction_have_the_bytes_that_kafka_reads() -> None:
    driver = ShardDriver()
    driver.put(
        TransactionMetadata(
            TRANSACTIONAL_ID,
            7,
            0,
            NO_TIME_OUT_MS,
            ONGOING,
            last_update_ms=1_000,
            start_ms=1_000,
            partitions=frozenset({OUT_0}),
            client_transaction_version=V2,
        )
    )
    shard = driver.shard
    for at_ms in (2_000, 2_500):
        driver.do(
            shard.decide_init_producer_id(
                TRANSACTIONAL_ID, timeout_ms=1_000, expected=None, now_ms=at_ms, keep_prepared=True
            )
        )
    driver.do(shard.decide_end_transaction(TRANSACTIONAL_ID, Producer(7, 2), committed=True, version=V2, now_ms=3_000))
    driver.do(shard.decide_completion(TRANSACTIONAL_ID, now_ms=4_000))
    values = [record.value.hex() if record.value is not None else "" for record in driver.records]
    # fmt: off
    assert values[1] == (
        "0001000000000000000700007fffffff0102046f757402000000000000000000000007d000000000000003e8"
        "03010800000000000000070202000203020001"
    )
    assert values[3:] == [
        (
            "0001000000000000000700017fffffff0202046f75740200000000000000000000000bb800000000000003e8"
            "0400080000000000000007010800000000000000070202000203020003"
        ),
        "0001000000000000000700037fffffff04010000000000000fa000000000000003e8020008000000000000000702020002",
    ]
    # fmt: on


@pytest.mark.parametrize(("next_id", "next_epoch"), [(-1, 0), (7, -2), (-1, 5)])
def test_a_record_with_half_a_next_pair_is_never_believed(next_id: int, next_epoch: int) -> None:
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=0,
        transaction_status=1,
        next_producer_id=next_id,
        next_producer_epoch=next_epoch,
    )
    with pytest.raises(DecodeError, match="is followed by epoch"):
        from_value(TRANSACTIONAL_ID, value)


# InitProducerId that keeps


@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize(
    ("writer", "client"),
    [
        (Producer(7, 0), Producer(7, 1)),
        (Producer(7, LAST_OF_CLIENTS - 1), Producer(7, LAST_OF_CLIENTS)),
        (Producer(7, LAST_OF_CLIENTS), Producer(FRESH_ID, 0)),
    ],
)
def test_a_session_that_keeps_gets_the_next_pair_and_the_pair_of_the_open_transaction(
    writer: Producer, client: Producer, version: TransactionVersion
) -> None:
    driver = ShardDriver(version=version, producer_ids=(FRESH_ID,))
    before = transaction_in(ONGOING, producer=writer)
    driver.put(before)
    assert init(driver, keep=True) == ProducerReply(OK, *client, ongoing=writer)
    assert driver.transaction == before._replace(
        state=KEPT,
        last_update_ms=LATER_MS,
        previous_producer_id=-1,
        next_producer_id=client.producer_id,
        next_producer_epoch=client.producer_epoch,
    )
    assert driver.transaction.producer == writer
    assert driver.transaction.client == client
    assert driver.transaction.state.display_name == "Ongoing"


@every_pair
def test_each_session_that_keeps_gets_a_pair_of_its_own_and_the_same_open_transaction(pairs: Pairs) -> None:
    driver = shard_with(pairs)
    assert init(driver, keep=True) == ProducerReply(OK, *successor_of(pairs), ongoing=pairs.writer)
    assert driver.transaction.client == successor_of(pairs)
    assert driver.transaction.partitions == {OUT_0}
    assert driver.transaction.start_ms == NOW_MS


@every_pair
@pytest.mark.parametrize("keep", [True, False])
def test_the_newest_session_may_say_which_it_is_and_no_other_may(pairs: Pairs, keep: bool) -> None:
    for stranger in strangers(pairs):
        driver = shard_with(pairs)
        assert init(driver, keep=keep, expected=stranger).error is FENCED
        assert driver.transaction == kept(pairs), "a refused request changes nothing"
    driver = shard_with(pairs)
    reply = init(driver, keep=keep, expected=pairs.client)
    assert reply.error is (OK if keep else CONCURRENT)


def test_a_new_session_never_shortens_the_time_of_what_was_prepared() -> None:
    pairs = Pairs(Producer(7, 0), Producer(7, 1), Producer(7, 2))
    for stored_ms, asked_ms, kept_ms in ((NO_TIME_OUT_MS, 1_000, NO_TIME_OUT_MS), (1_000, 60_000, 60_000)):
        driver = shard_with(pairs, timeout_ms=stored_ms)
        init(driver, keep=True, timeout_ms=asked_ms)
        assert driver.transaction.timeout_ms == kept_ms


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_with_nothing_open_there_is_nothing_to_keep(state: TransactionState) -> None:
    replies = []
    for keep in (True, False):
        driver = ShardDriver()
        driver.put(transaction_in(state))
        replies.append((init(driver, keep=keep), driver.transaction))
    assert replies[0] == replies[1]
    assert replies[0][0].ongoing is None
    assert init(ShardDriver(), keep=True).ongoing is None


@pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
def test_a_decided_transaction_cannot_be_kept(state: TransactionState) -> None:
    driver = ShardDriver()
    driver.put(transaction_in(state))
    assert init(driver, keep=True).error is CONCURRENT
    assert driver.transaction == transaction_in(state)


# InitProducerId that does not keep, and time


@every_pair
@either_version
def test_a_session_that_does_not_keep_aborts_and_gets_a_pair_above_all_others(
    pairs: Pairs, version: TransactionVersion
) -> None:
    driver = shard_with(pairs, version)
    driver.producer_ids = iter((FRESH_ID, FRESH_ID + 1))
    assert init(driver, keep=False).error is CONCURRENT
    prepared = driver.transaction
    assert prepared.state is PREPARE_ABORT
    assert prepared.producer == (pairs.writer.producer_id, min(pairs.writer.producer_epoch + 1, LAST))
    assert prepared.partitions == {OUT_0}
    assert complete(driver).producer == successor_of(pairs)
    reply = init(driver, keep=False)
    assert reply.error is OK
    assert reply.producer > successor_of(pairs) if pairs.successor else reply.producer.producer_id == FRESH_ID
    assert reply.producer not in (pairs.writer, pairs.client, successor_of(pairs))


@every_pair
@either_version
def test_the_time_out_aborts_and_fences_both_pairs(pairs: Pairs, version: TransactionVersion) -> None:
    driver = shard_with(pairs, version)
    do(driver, driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS))
    assert driver.transaction == kept(pairs)
    do(driver, driver.shard.decide_deadline(NOW_MS + TIMEOUT_MS + 1))
    assert driver.transaction.state is PREPARE_ABORT
    completed = complete(driver)
    assert completed.producer == successor_of(pairs)
    for fenced in (pairs.writer, pairs.client):
        assert end(driver, fenced, V2, committed=True).error in (FENCED, MAPPING, INVALID)
        assert driver.transaction == completed
    # In version 2 the newest session learns that its commit came too late, and may recover by an abort.
    if version is V2:
        assert end(driver, pairs.client, V2, committed=True).error is INVALID
        assert end(driver, pairs.client, V2, committed=False) == ProducerReply(OK, *successor_of(pairs))


@pytest.mark.parametrize("state", [ONGOING, KEPT])
def test_time_never_ends_a_two_phase_transaction_and_the_log_names_it(state: TransactionState) -> None:
    pairs = Pairs(Producer(7, 0), Producer(7, 1), Producer(7, 2))
    limits = TransactionLimits(two_phase_warn_age_ms=3_600_000)
    driver = ShardDriver(limits=limits)
    before = kept(pairs, timeout_ms=NO_TIME_OUT_MS)
    if state is ONGOING:
        before = transaction_in(ONGOING, timeout_ms=NO_TIME_OUT_MS)
    driver.put(before)
    ages_ms = []
    with capture_logs() as lines:
        for hours in range(1, 31 * 24):
            do(driver, driver.shard.decide_deadline(NOW_MS + hours * 3_600_000 - 1))
            do(driver, driver.shard.decide_deadline(NOW_MS + hours * 3_600_000))
            assert driver.transaction == before
            ages_ms.append(hours * 3_600_000)
    named = [line for line in lines if line["event"] == "transaction_in_doubt"]
    assert [line["age_ms"] for line in named] == ages_ms
    assert {entry["log_level"] for entry in named} == {"warning"}


# Records in the transaction


@every_pair
@either_version
def test_nothing_can_be_added_to_a_kept_transaction(pairs: Pairs, version: TransactionVersion) -> None:
    for producer, error in {pairs.client: INVALID, **strangers(pairs)}.items():
        driver = shard_with(pairs)
        for partition in (OUT_0, OUT_1):
            decision = driver.shard.decide_add_partitions(
                TRANSACTIONAL_ID, producer, (partition,), version=version, now_ms=LATER_MS
            )
            assert do(driver, decision) is error
            assert driver.shard.verify_partitions(TRANSACTIONAL_ID, producer, (partition,)) == {partition: error}
            assert not driver.shard.is_partition_confirmed(TRANSACTIONAL_ID, *producer, partition)
        assert driver.transaction == kept(pairs)


# EndTxn


@every_pair
@either_version
@either_outcome
def test_only_the_newest_session_ends_a_kept_transaction(
    pairs: Pairs, version: TransactionVersion, committed: bool
) -> None:
    for stranger, error in strangers(pairs).items():
        driver = shard_with(pairs)
        assert end(driver, stranger, version, committed=committed).error is error
        assert driver.transaction == kept(pairs)
    driver = shard_with(pairs)
    reply = end(driver, pairs.client, version, committed=committed)
    after = successor_of(pairs) if version is V2 else pairs.client
    assert reply == ProducerReply(OK, *after)
    prepared = driver.transaction
    assert prepared == kept(pairs)._replace(
        state=PREPARE_COMMIT if committed else PREPARE_ABORT,
        producer_epoch=min(pairs.writer.producer_epoch + 1, LAST),
        last_update_ms=LATER_MS,
        previous_producer_id=pairs.client.producer_id if version is V2 else -1,
        next_producer_id=after.producer_id,
        next_producer_epoch=after.producer_epoch,
        client_transaction_version=version,
    )
    completed = complete(driver)
    assert completed.state is (COMPLETE_COMMIT if committed else COMPLETE_ABORT)
    assert completed.producer == completed.client == after
    assert (completed.next_producer_id, completed.next_producer_epoch) == (-1, -1)


@every_pair
@either_version
@either_outcome
def test_a_repeated_end_gets_the_same_reply_and_the_other_outcome_is_refused(
    pairs: Pairs, version: TransactionVersion, committed: bool
) -> None:
    driver = shard_with(pairs)
    first = end(driver, pairs.client, version, committed=committed)
    assert end(driver, pairs.client, version, committed=committed).error is CONCURRENT
    for stranger, error in strangers(pairs).items():
        expected = CONCURRENT if version is V2 else error
        assert end(driver, stranger, version, committed=committed).error is expected
    completed = complete(driver)
    assert end(driver, pairs.client, version, committed=committed) == first
    assert end(driver, pairs.client, version, committed=not committed).error is INVALID
    assert end(driver, pairs.writer, version, committed=committed).error in (FENCED, MAPPING)
    assert driver.transaction == completed


@every_pair
@either_version
def test_the_session_goes_on_with_its_pair_and_a_late_end_cannot_end_its_next_transaction(
    pairs: Pairs, version: TransactionVersion
) -> None:
    driver = shard_with(pairs)
    own = end(driver, pairs.client, version, committed=True).producer
    complete(driver)
    added = driver.shard.decide_add_partitions(TRANSACTIONAL_ID, own, (OUT_1,), version=version, now_ms=LATER_MS)
    assert do(driver, added) is OK
    open_one = driver.transaction
    assert (open_one.state, open_one.producer, open_one.partitions) == (ONGOING, own, frozenset({OUT_1}))
    late = [pairs.writer] if version is V1 else [pairs.writer, pairs.client]
    for pair in late:
        for committed in (True, False):
            assert end(driver, pair, version, committed=committed).error in (FENCED, MAPPING)
    assert driver.transaction == open_one


# Producer ids at their end


def test_without_a_producer_id_at_hand_nothing_changes() -> None:
    at_the_end = Pairs(Producer(7, 3), Producer(7, LAST_OF_CLIENTS), None)
    driver = shard_with(at_the_end, has_id=False)
    assert init(driver, keep=True).error is LOADING
    assert init(driver, keep=False).error is LOADING
    assert end(driver, at_the_end.client, V2, committed=True).error is LOADING
    assert driver.transaction == kept(at_the_end)
    driver = ShardDriver(producer_ids=())
    driver.put(transaction_in(ONGOING, producer=Producer(7, LAST_OF_CLIENTS)))
    assert init(driver, keep=True).error is LOADING
    assert driver.transaction.state is ONGOING


def test_no_pair_is_ever_given_twice_and_none_has_the_last_epoch() -> None:
    driver = ShardDriver()
    driver.put(transaction_in(ONGOING, producer=Producer(7, LAST_OF_CLIENTS - 50)))
    given = [driver.transaction.client]
    for number in range(200):
        if number % 10 == 9:
            ended = end(driver, given[-1], V2 if number % 20 == 9 else V1, committed=True)
            complete(driver)
            add = driver.shard.decide_add_partitions(
                TRANSACTIONAL_ID, ended.producer, (OUT_0,), version=V2, now_ms=LATER_MS
            )
            assert do(driver, add) is OK
            given += [ended.producer] if ended.producer != given[-1] else []
        else:
            given.append(init(driver, keep=True).producer)
    assert len(set(given)) == len(given)
    assert max(pair.producer_epoch for pair in given) <= LAST_OF_CLIENTS
    assert given == sorted(given)
