"""A partition in memory, written as transactions do, with an account of its own of what read_committed readers see."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost.console.record_marks import Aborted, Batch, Mark, read_batches
from fencepost.protocol.record_batch import Record, build_batch, build_end_transaction_marker

BEGINNING_MS = 1_700_000_000_000


@dataclass
class WrittenPartition:
    """log: the batches back to back. marks: by offset, as they stand now. stable: (end, last stable offset) after each
    batch, the first for the empty log.
    """

    log: bytearray = field(default_factory=bytearray)
    end: int = 0
    marks: dict[int, Mark] = field(default_factory=dict)
    stable: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    aborted: list[tuple[Aborted, int]] = field(default_factory=list)
    first_offsets: dict[int, int] = field(default_factory=dict)
    open_offsets: dict[int, list[int]] = field(default_factory=dict)

    @property
    def batches(self) -> list[Batch]:
        return read_batches(self.log)

    @property
    def last_stable_offset(self) -> int:
        return self.stable[-1][1]

    def write(self, producer_id: int, records: int, *, in_transaction: bool = True) -> None:
        """Append a batch."""
        built = [Record(self.end + number, BEGINNING_MS + self.end, b"key", b"value", ()) for number in range(records)]
        self.log += build_batch(
            built,
            base_offset=self.end,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=in_transaction,
        )
        offsets = list(range(self.end, self.end + records))
        if in_transaction:
            self.first_offsets.setdefault(producer_id, self.end)
            self.open_offsets.setdefault(producer_id, []).extend(offsets)
        self.marks.update(dict.fromkeys(offsets, Mark.OPEN if in_transaction else Mark.PLAIN))
        self._ended(self.end + records)

    def finish(self, producer_id: int, *, commit: bool) -> None:
        """Append a marker."""
        self.log += build_end_transaction_marker(producer_id, 0, commit, 0, BEGINNING_MS + self.end, self.end)
        outcome = Mark.COMMITTED if commit else Mark.ABORTED
        self.marks.update(dict.fromkeys(self.open_offsets.pop(producer_id, []), outcome))
        self.marks[self.end] = Mark.MARKER
        first = self.first_offsets.pop(producer_id, None)
        if first is not None and not commit:
            self.aborted.append((Aborted(producer_id, first), self.end))
        self._ended(self.end + 1)

    def aborted_from(self, offset: int) -> list[Aborted]:
        """The list that a read_committed fetch from an offset gets."""
        return [one for one, last in self.aborted if last >= offset and one.first_offset < self.last_stable_offset]

    def _ended(self, end: int) -> None:
        self.end = end
        self.stable.append((end, min(self.first_offsets.values(), default=end)))


Action = tuple[str, int, int]
"""What is done: write, plain, commit or abort; the producer; how many records."""


def carry_out(actions: list[Action]) -> WrittenPartition:
    partition = WrittenPartition()
    for kind, producer_id, records in actions:
        if kind == "write":
            partition.write(producer_id, records)
        elif kind == "plain":
            partition.write(producer_id, records, in_transaction=False)
        else:
            partition.finish(producer_id, commit=kind == "commit")
    return partition
