"""Plausibility of batch headers: the next batch's fields that no checksum covers.

A leader writes base offset, batch length, leader epoch and the format's number without touching the CRC, so a flipped
bit in one of them leaves a batch that seems whole. Each of them is determined by the neighbours of the batch:
- Offsets join without gaps, except after compaction. Then a jump is false if the batch behind it contradicts it, if it
  leaves the range of the segment, or if the log ends with it.
- Leader epochs never fall along a log, and rise only to one that is known, or that the next batch confirms.
- A false length leads to a place where no batch begins, or to a wrong checksum.
Nothing here reads a file: the callers pass the headers in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fencepost.broker.log.files.leader_epochs import UNKNOWN_EPOCH, LeaderEpochs
from fencepost.protocol.record_batch import HEADER_BYTES, LENGTH_OVERHEAD_BYTES, BatchHeader

CURRENT_MAGIC = 2
SMALLEST_BATCH_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD_BYTES
MAX_RELATIVE_OFFSET = 2**31 - 1
"""The greatest distance from a segment's base offset that its indexes can hold."""
GREATEST_FIRST_EPOCH = 2**16
"""Where a log's epochs are unknown, a lone batch with a higher one is rejected."""
NO_EPOCHS = LeaderEpochs()


class HeaderFault(NamedTuple):
    """A place in a log file where the next batch does not begin.

    expected_offset: offset that the batch there should have.
    found_offset:    offset that it has; None if no header could be read.
    reason:          description of the fault.
    """

    position: int
    expected_offset: int
    found_offset: int | None
    reason: str


class HeaderPlausibility:
    """Expectations of the next batch, while a file is read from its start or from an index entry on.

    next_offset:    offset of the next batch.
    end_offset:     no batch reaches it.
    may_skip:       compaction may have left gaps.
    is_open:        the end of the log is unknown, so that a gap needs a batch behind it that confirms it.
    leader_epoch:   epoch of the batch before; -1 if unknown.
    known_epochs:   the log's checkpoint of epochs and offsets.
    greatest_epoch: the partition's leader epoch now, as known here.
    fault:          place and cause of the end of the reading; None while it continues.
    """

    __slots__ = (
        "end_offset",
        "fault",
        "greatest_epoch",
        "is_open",
        "known_epochs",
        "leader_epoch",
        "may_skip",
        "next_offset",
    )

    def __init__(
        self,
        next_offset: int,
        end_offset: int,
        *,
        may_skip: bool,
        is_open: bool = False,
        leader_epoch: int = UNKNOWN_EPOCH,
        known_epochs: LeaderEpochs = NO_EPOCHS,
        greatest_epoch: int = UNKNOWN_EPOCH,
    ) -> None:
        self.next_offset = next_offset
        self.end_offset = end_offset
        self.may_skip = may_skip
        self.is_open = is_open
        self.leader_epoch = leader_epoch
        self.known_epochs = known_epochs
        self.greatest_epoch = greatest_epoch
        self.fault: HeaderFault | None = None

    def accept(self, header: BatchHeader, position: int, following: Callable[[], BatchHeader | None]) -> bool:
        """Accept the batch at a position if it can be the next; else set `fault` to the reason.

        header:    a plausible one.
        following: reads the header behind the batch; None when there is none. Called only for an unusual batch.
        """
        base_offset = header.base_offset
        last_offset = base_offset + header.last_offset_delta
        if (
            base_offset != self.next_offset
            or header.partition_leader_epoch != self.leader_epoch
            or last_offset >= self.end_offset
        ):
            reason = self._reason_against(header, following)
            if reason is not None:
                self.fault = HeaderFault(position, self.next_offset, base_offset, reason)
                return False
            self.leader_epoch = header.partition_leader_epoch
        self.next_offset = last_offset + 1
        return True

    def reject(self, position: int, header: BatchHeader | None, reason: str) -> None:
        """Set `fault` for a reason that lies outside the header."""
        self.fault = HeaderFault(position, self.next_offset, None if header is None else header.base_offset, reason)

    def _reason_against(self, header: BatchHeader, following: Callable[[], BatchHeader | None]) -> str | None:
        base_offset, last_offset = header.base_offset, header.last_offset
        if base_offset < self.next_offset:
            return f"the batch there has offset {base_offset}, and {self.next_offset} comes next"
        if last_offset >= self.end_offset:
            return (
                f"the batch there has the offsets {base_offset} to {last_offset}, {self.next_offset} comes next, and "
                f"the segment ends before {self.end_offset}"
            )
        if base_offset > self.next_offset:
            behind = _plausible(following()) if self.may_skip else None
            if not self.may_skip or (behind is None and self.is_open):
                return f"the batch there has offset {base_offset}, and {self.next_offset} comes next"
            if behind is not None and self.next_offset + header.last_offset_delta < behind.base_offset <= last_offset:
                return (
                    f"the batch there has offset {base_offset}, {self.next_offset} comes next, and the batch behind it "
                    f"has {behind.base_offset}"
                )
        if header.partition_leader_epoch != self.leader_epoch:
            return self._reason_against_epoch(header, following)
        return None

    def _reason_against_epoch(self, header: BatchHeader, following: Callable[[], BatchHeader | None]) -> str | None:
        epoch = header.partition_leader_epoch
        if epoch < self.leader_epoch:
            return f"the batch there has leader epoch {epoch}, and the one before it has {self.leader_epoch}"
        behind = _plausible(following())
        if behind is not None and behind.partition_leader_epoch < epoch:
            return (
                f"the batch there has leader epoch {epoch}, and the one behind it has {behind.partition_leader_epoch}"
            )
        if behind is not None and behind.partition_leader_epoch == epoch:
            return None
        known = self.known_epochs.epoch_at(header.base_offset)
        if behind is not None and epoch < known <= behind.partition_leader_epoch:
            return f"the batch there has leader epoch {epoch}, and leader-epoch-checkpoint says {known}"
        # No batch behind it has that epoch.
        greatest = max(self.leader_epoch, self.known_epochs.latest, self.greatest_epoch)
        is_known = max(self.leader_epoch, self.known_epochs.latest) > UNKNOWN_EPOCH
        if epoch > (greatest + 1 if is_known else max(greatest, GREATEST_FIRST_EPOCH)):
            return f"the batch there has leader epoch {epoch}, and the highest that is known is {greatest}"
        return None


def implausibility(header: BatchHeader) -> str | None:
    """Return which field of a header cannot be right; None if its length is credible enough to read the batch."""
    if header.magic != CURRENT_MAGIC:
        return f"what stands there has format {header.magic}, and batches have {CURRENT_MAGIC}"
    if header.batch_length < SMALLEST_BATCH_LENGTH:
        return f"the batch there has length {header.batch_length}, and the least is {SMALLEST_BATCH_LENGTH}"
    if header.base_offset < 0:
        return f"the batch there has offset {header.base_offset}"
    if header.last_offset_delta < 0:
        return f"the batch there ends {-header.last_offset_delta} offsets before it begins"
    return None


def _plausible(header: BatchHeader | None) -> BatchHeader | None:
    return header if header is not None and implausibility(header) is None else None
