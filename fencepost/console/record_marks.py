"""How each record stands: committed, aborted, open, a marker, or without a transaction. Pure.

A record of a transaction says nothing about its outcome. That is known from
- the marker of the same producer that follows it, if it was read;
- the list of aborted transactions that comes with a read_committed fetch, for offsets below the last stable offset;
- the open transactions that the partition has (DescribeProducers).
Source: KIP-98; Kafka's CompletedFetch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from fencepost.protocol.compression import Codec
from fencepost.protocol.primitives import Buffer, DecodeError
from fencepost.protocol.record_batch import (
    BatchHeader,
    Record,
    RecordBatch,
    iterate_batches,
    read_end_transaction_marker,
    read_records,
)


class Mark(Enum):
    """How a record stands."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"
    MARKER = "marker"
    PLAIN = "plain"  # written outside of transactions
    UNDECIDED = "decided later"  # its transaction has ended, but the marker lies beyond the range that was read


class Aborted(NamedTuple):
    """An aborted transaction: its producer, and the first offset that it wrote in the partition."""

    producer_id: int
    first_offset: int


class Batch(NamedTuple):
    """A batch of the log. committed: whether it is a commit marker, or an abort marker; None for all others."""

    header: BatchHeader
    committed: bool | None
    content: RecordBatch

    @property
    def is_marker(self) -> bool:
        return self.committed is not None


def read_batches(buffer: Buffer) -> list[Batch]:
    """Read the whole batches of a Fetch. Raises DecodeError."""
    return [Batch(batch.header, _outcome(batch), batch) for batch in iterate_batches(buffer)]


def _outcome(batch: RecordBatch) -> bool | None:
    marker = read_end_transaction_marker(batch)
    return None if marker is None else marker.committed


class Outcomes:
    """Outcomes of the records of a range of a partition, by producer.

    batches: batches in the order of their offsets; they may continue behind the records that are shown.
    aborted: aborted transactions of a read_committed fetch from the offset at which `batches` begin.
    open_since: first offset of the open transaction, by producer id.
    """

    def __init__(
        self,
        batches: Iterable[Batch],
        aborted: Iterable[Aborted],
        open_since: Mapping[int, int],
        last_stable_offset: int,
    ) -> None:
        self._markers: dict[int, list[tuple[int, bool]]] = {}
        for batch in batches:
            if batch.committed is not None:
                ends = self._markers.setdefault(batch.header.producer_id, [])
                ends.append((batch.header.base_offset, batch.committed))
        self._aborted: dict[int, list[int]] = {}
        for one in aborted:
            self._aborted.setdefault(one.producer_id, []).append(one.first_offset)
        self._open_since = open_since
        self._last_stable_offset = last_stable_offset

    def of(self, header: BatchHeader, offset: int) -> Mark:
        """How the record at `offset`, in a batch with this header, stands."""
        if header.is_control:
            return Mark.MARKER
        if not header.is_transactional:
            return Mark.PLAIN
        producer_id = header.producer_id
        markers = self._markers.get(producer_id, ())
        for marker_offset, committed in markers:
            if marker_offset > offset:
                return Mark.COMMITTED if committed else Mark.ABORTED
        since = self._open_since.get(producer_id)
        if since is not None and since <= offset:
            return Mark.OPEN
        if offset >= self._last_stable_offset:
            return Mark.UNDECIDED
        last_end = markers[-1][0] if markers else -1
        is_aborted = any(last_end < first <= offset for first in self._aborted.get(producer_id, ()))
        # Transactions that began before the batches were read are in the list, too, and no marker of theirs was read.
        return Mark.ABORTED if is_aborted else Mark.COMMITTED


class ShownRecord(NamedTuple):
    """A row of a partition's records. `record` is None for a marker, whose outcome `committed` is."""

    offset: int
    timestamp_ms: int
    mark: Mark
    record: Record | None
    producer_id: int
    producer_epoch: int
    sequence: int
    codec: Codec
    committed: bool | None


def shown_records(batches: Sequence[Batch], outcomes: Outcomes, first_offset: int) -> Iterable[ShownRecord]:
    """The records from `first_offset` on, and the markers among them. Raises DecodeError for a damaged batch."""
    for batch in batches:
        header = batch.header
        if header.last_offset < first_offset:
            continue
        if header.is_control:
            yield _marker_row(batch)
            continue
        for position, record in enumerate(read_records(batch.content)):
            if record.offset < first_offset:
                continue
            sequence = -1 if header.base_sequence < 0 else header.base_sequence + position
            yield ShownRecord(
                record.offset,
                record.timestamp_ms,
                outcomes.of(header, record.offset),
                record,
                header.producer_id,
                header.producer_epoch,
                sequence,
                header.codec,
                None,
            )


def _marker_row(batch: Batch) -> ShownRecord:
    header = batch.header
    return ShownRecord(
        header.base_offset,
        header.max_timestamp_ms,
        Mark.MARKER,
        None,
        header.producer_id,
        header.producer_epoch,
        -1,
        Codec.NONE,
        batch.committed,
    )


class Gap(NamedTuple):
    """Offsets without a record, both ends inclusive: compacted away, or never there."""

    first: int
    last: int


def with_gaps(records: Iterable[ShownRecord], first_offset: int) -> Iterable[ShownRecord | Gap]:
    """Put a Gap wherever offsets are missing."""
    expected = first_offset
    for row in records:
        if row.offset > expected:
            yield Gap(expected, row.offset - 1)
        yield row
        expected = row.offset + 1


UNREADABLE: Final = (DecodeError, UnicodeDecodeError)
"""Exceptions from reading batches with damaged content."""
