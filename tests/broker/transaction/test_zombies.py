"""Zombies: a producer that is no longer current is refused and changes nothing, with every request.

`test_every_cell.py` says which answer each request gets; here it is only asked what the refused leave behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest

from fencepost.broker.coordination.shard import Decision
from fencepost.broker.log.log_types import AppendOrigin
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.transaction.metadata import Producer
from fencepost.broker.transaction.shard import ProducerReply, TransactionShard
from fencepost.broker.transaction.state_machine import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    TransactionState,
    TransactionVersion,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.record_batch import TRANSACTIONAL_BIT, BatchHeader
from tests.support.transaction_shard import (
    NOW_MS,
    OUT_0,
    OUT_1,
    TIMEOUT_MS,
    TRANSACTIONAL_ID,
    ShardDriver,
    transaction_in,
)

CURRENT = Producer(7, 5)
ZOMBIES = [Producer(7, epoch) for epoch in range(5)] + [Producer(6, epoch) for epoch in (0, 5, 32_766)]
LATER_MS = NOW_MS + 1
COMMITTED = {True: COMPLETE_COMMIT, False: COMPLETE_ABORT}


def requests(zombie: Producer) -> Iterator[tuple[str, Callable[[TransactionShard], Decision[Any]]]]:
    for timeout_ms in (1, TIMEOUT_MS):
        yield (
            "InitProducerId",
            lambda shard, timeout_ms=timeout_ms: shard.decide_init_producer_id(  # type: ignore[misc]
                TRANSACTIONAL_ID, timeout_ms=timeout_ms, expected=zombie, now_ms=LATER_MS
            ),
        )
    for version in TransactionVersion:
        yield (
            "AddPartitionsToTxn",
            lambda shard, version=version: shard.decide_add_partitions(  # type: ignore[misc]
                TRANSACTIONAL_ID, zombie, (OUT_0, OUT_1), version=version, now_ms=LATER_MS
            ),
        )
        for committed in (True, False):
            yield (
                f"EndTxn {committed}",
                lambda shard, version=version, committed=committed: shard.decide_end_transaction(  # type: ignore[misc]
                    TRANSACTIONAL_ID, zombie, committed=committed, version=version, now_ms=LATER_MS
                ),
            )


@pytest.mark.parametrize("previous_producer_id", [-1, 6, 7])
@pytest.mark.parametrize("version", TransactionVersion)
@pytest.mark.parametrize("state", TransactionState)
def test_the_coordinator_is_left_as_it_was(
    state: TransactionState, version: TransactionVersion, previous_producer_id: int
) -> None:
    for zombie in ZOMBIES:
        for what, request in requests(zombie):
            driver = ShardDriver(version=version)
            driver.put(transaction_in(state, producer=CURRENT, previous_producer_id=previous_producer_id))
            driver.shard.take_prepared()
            before = (driver.transaction, driver.shard.next_deadline_ms())
            decision = request(driver.shard)
            reply = decision.reply
            error = reply.error if isinstance(reply, ProducerReply) else reply
            is_repeated = zombie == driver.transaction.previous_producer and state is not ONGOING
            if error is ErrorCode.NONE:
                # Only a retry: the producer requested the current identity itself, lost the reply, and gets it again.
                assert is_repeated, (what, zombie)
                assert reply == ProducerReply(error, *CURRENT)
                continue
            assert list(decision.records) == [], (what, zombie, error)
            assert next(driver.producer_ids) == 100, "a refused request used up a producer id"
            assert (driver.transaction, driver.shard.next_deadline_ms()) == before
            assert driver.shard.prepared_without_completion == {}


def batch_of(producer: Producer) -> BatchHeader:
    return BatchHeader(0, 0, -1, 2, 0, TRANSACTIONAL_BIT, 0, NOW_MS, NOW_MS, *producer, 0, 1)


@pytest.mark.parametrize("has_open_transaction", [True, False])
@pytest.mark.parametrize("origin", AppendOrigin)
@pytest.mark.parametrize("epoch", range(5))
def test_a_partition_is_left_as_it_was(epoch: int, origin: AppendOrigin, has_open_transaction: bool) -> None:
    """Batches of Produce, and of TxnOffsetCommit, whose origin is the coordinator; markers of an old coordinator."""
    partition = ProducerState()
    partition.apply_data_batch(batch_of(CURRENT), base_offset=0, max_timestamp_ms=NOW_MS, now_ms=NOW_MS)
    if not has_open_transaction:
        partition.apply_marker(*CURRENT, True, 0, 1, NOW_MS, NOW_MS)
        partition.begin_verification(*CURRENT, 1, transaction_version_2=False)
    before = (partition.snapshot(), deepcopy(partition.verifications))
    for version_2 in (True, False):
        for in_this_step in (True, False):
            guard = partition.begin_verification(
                7, epoch, 0, transaction_version_2=version_2, in_this_step=in_this_step
            )
            assert guard is ErrorCode.INVALID_PRODUCER_EPOCH
    verdict = partition.check_data_batch(batch_of(Producer(7, epoch)), origin=origin)
    assert verdict is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.check_marker(7, epoch, 0, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.snapshot() == before[0]
    assert partition.verifications.keys() == before[1].keys()
