"""Batches of aborted transactions, which a read_committed reader leaves out. Pure.

Source: Kafka's CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fencepost.protocol.record_batch import RecordBatch, read_end_transaction_marker


class AbortedTransaction(Protocol):
    """A transaction as a Fetch reports it: aborted from `first_offset` to its marker."""

    @property
    def producer_id(self) -> int: ...
    @property
    def first_offset(self) -> int: ...


class AbortedTransactions:
    """The aborted transactions of one read, whose batches are visited in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = sorted(aborted, key=lambda one: one.first_offset, reverse=True)
        self._open_producer_ids: set[int] = set()

    def hide(self, batch: RecordBatch) -> bool:
        """Whether the next batch has records of an aborted transaction. A marker has none: it ends one."""
        header, ahead, open_producer_ids = batch.header, self._ahead, self._open_producer_ids
        if not header.is_transactional or not (ahead or open_producer_ids):
            return False
        while ahead and ahead[-1].first_offset <= header.last_offset:
            open_producer_ids.add(ahead.pop().producer_id)
        if not header.is_control:
            return header.producer_id in open_producer_ids
        marker = read_end_transaction_marker(batch)
        if marker is not None and not marker.committed:
            open_producer_ids.discard(header.producer_id)
        return False
