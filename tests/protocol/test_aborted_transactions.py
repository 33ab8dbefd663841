"""Batches of aborted transactions, by the producers that a Fetch names."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.protocol.aborted_transactions import AbortedTransactions
from fencepost.protocol.record_batch import Record, build_batch, build_end_transaction_marker, iterate_batches


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def of_producer(offset: int, producer_id: int = 7, *, is_transactional: bool = True) -> bytes:
    batch = build_batch(
        [Record(0, 1, None, b"v")],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=is_transactional,
    )
    return bytes(batch)


def marker(offset: int, producer_id: int = 7, *, committed: bool) -> bytes:
    return build_end_transaction_marker(producer_id, 0, committed, 0, 0, base_offset=offset)


def hidden(log: list[bytes], *aborted: Aborted) -> list[int]:
    transactions = AbortedTransactions(iter(aborted))
    return [batch.header.base_offset for batch in iterate_batches(b"".join(log)) if transactions.hide(batch)]


def test_records_are_hidden_from_the_first_of_an_aborted_transaction_to_its_marker() -> None:
    log = [of_producer(0), of_producer(1, 8), marker(2, committed=False), of_producer(3), marker(4, committed=True)]
    assert hidden(log, Aborted(7, 0)) == [0]
    assert hidden(log, Aborted(8, 1), Aborted(7, 0)) == [0, 1]
    assert hidden(log) == []


def test_a_producers_records_outside_of_transactions_are_not_hidden() -> None:
    assert hidden([of_producer(0), of_producer(1, is_transactional=False)], Aborted(7, 0)) == [0]


def test_each_of_a_producers_aborted_transactions_ends_at_its_own_marker() -> None:
    log = [of_producer(0), marker(1, committed=False), of_producer(2), marker(3, committed=False), of_producer(4)]
    assert hidden(log, Aborted(7, 2), Aborted(7, 0)) == [0, 2]
