"""How the transactions of an id went, record by record."""

from __future__ import annotations

from fencepost.diagnosis.transaction_history import TransactionHistory, state_name
from fencepost.protocol.record_batch import Record
from fencepost.protocol.stored.transaction_state import (
    PartitionsSchema,
    TransactionLogValue,
    encode_transaction_log_key,
)
from fencepost.protocol.stored.versioned import encode_versioned

EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4


def record(offset: int, status: int | None, name: str = "till", epoch: int = 0, **topics: list[int]) -> Record:
    value = None
    if status is not None:
        partitions = [PartitionsSchema(topic, indexes) for topic, indexes in topics.items()] if status else None
        stored = TransactionLogValue(
            producer_id=7,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_status=status,
            transaction_partitions=partitions,
            transaction_last_update_timestamp_ms=1_000 + 10 * offset,
            transaction_start_timestamp_ms=1_010 if status else -1,
        )
        value = encode_versioned(stored, 1)
    return Record(offset, 1_000 + 10 * offset, encode_transaction_log_key(name), value)


def history(*records: Record, most: int = 100) -> TransactionHistory:
    found = TransactionHistory("till", most)
    for one in records:
        found.add(one)
    return found


def test_each_record_says_what_has_changed_and_after_what_time() -> None:
    found = history(
        record(0, EMPTY),
        record(1, EMPTY, "another id"),
        record(2, ONGOING, orders=[1, 0]),
        record(3, ONGOING, orders=[0, 1], payments=list(range(8))),
        record(4, PREPARE_COMMIT, orders=[0, 1]),
        record(5, COMPLETE_COMMIT, epoch=1),
        record(6, None),
        record(7, EMPTY),
    )
    assert found.is_whole
    assert [(one.offset, one.state, one.note, one.after_ms) for one in found.moments] == [
        (0, "Empty", "first seen here", None),
        (2, "Ongoing", "+ orders-0, orders-1", 20),
        (3, "Ongoing", "+ payments-0, payments-1, payments-2, payments-3, payments-4, payments-5 and 2 more", 10),
        (4, "PrepareCommit", "", 10),
        (5, "CompleteCommit", "epoch 0 → 1", 10),
        (6, "Forgotten", "", 10),
        (7, "Empty", "first seen here", 10),
    ]
    ongoing = found.moments[1]
    assert (ongoing.producer_id, ongoing.producer_epoch, ongoing.timeout_ms, ongoing.start_ms) == (7, 0, 60_000, 1_010)
    assert (ongoing.time_ms, ongoing.timestamp_ms) == (1_020, 1_020)
    assert ongoing.partitions == ("orders-0", "orders-1")


def test_the_latest_records_are_kept_and_it_says_that_earlier_ones_are_not() -> None:
    found = history(*(record(offset, ONGOING, orders=[0]) for offset in range(5)), most=2)
    assert [one.offset for one in found.moments] == [3, 4]
    assert not found.is_whole
    assert history(record(0, EMPTY), record(1, EMPTY), most=2).is_whole


def test_a_record_of_a_later_release_is_left_out_and_the_history_is_not_called_whole() -> None:
    later = Record(1, 5, encode_transaction_log_key("till"), b"\x00\x09anything")
    found = history(record(0, EMPTY), later, record(2, 9))
    assert [one.state for one in found.moments] == ["Empty", "state 9"]
    assert not found.is_whole
    assert state_name(3) == "PrepareAbort"
