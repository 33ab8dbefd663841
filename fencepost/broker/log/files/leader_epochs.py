"""Leader epochs of a log with their first offsets: OffsetForLeaderEpoch uses them, so that clients notice a cut log.

Source: Kafka's LeaderEpochFileCache.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from fencepost.broker.log.files.checkpoints import EpochStart
from fencepost.broker.log.log_types import EpochEndOffset

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log with their first offsets, in order.

    changed: whether they differ from their file.
    latest:  the epoch of the last record; -1 when nothing has been written.
    """

    __slots__ = ("_starts", "changed", "latest")

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self._find_latest()
        self.changed = False

    @property
    def starts(self) -> tuple[EpochStart, ...]:
        return tuple(self._starts)

    def _find_latest(self) -> None:
        self.latest = self._starts[-1].leader_epoch if self._starts else UNKNOWN_EPOCH

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Record that records from `start_offset` on are written in this epoch; an epoch that is not newer changes
        nothing."""
        if leader_epoch > self.latest:
            while self._starts and self._starts[-1].start_offset >= start_offset:
                self._starts.pop()
            self._starts.append(EpochStart(leader_epoch, start_offset))
            self._find_latest()
            self.changed = True

    def forget_above(self, leader_epoch: int, end_offset: int) -> bool:
        """Remove epochs above that of the records before `end_offset`, if they are recorded to begin before it.

        Returns whether there were any.
        """
        kept = [
            start for start in self._starts if start.leader_epoch <= leader_epoch or start.start_offset >= end_offset
        ]
        if len(kept) == len(self._starts):
            return False
        self._starts = kept
        self._find_latest()
        self.changed = True
        return True

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after the end of the log."""
        while self._starts and self._starts[-1].start_offset >= end_offset:
            self._starts.pop()
            self.changed = True
        self._find_latest()

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or before the start of the log; the one in force there begins there."""
        before = bisect_right(self._starts, start_offset, key=lambda start: start.start_offset)
        if before and (before > 1 or self._starts[0].start_offset < start_offset):
            in_force = EpochStart(self._starts[before - 1].leader_epoch, start_offset)
            self._starts[:before] = [in_force]
            self.changed = True

    def epoch_at(self, offset: int) -> int:
        """Return the epoch that wrote an offset; -1 when unknown."""
        slot = bisect_right(self._starts, offset, key=lambda start: start.start_offset)
        return self._starts[slot - 1].leader_epoch if slot else UNKNOWN_EPOCH

    def end_offset_for(self, leader_epoch: int, current_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the largest epoch up to the given one, and the start of the next one; (-1, -1) when unknown.

        For the leader's current epoch that is the log end offset. An epoch in which nothing has been written yet
        begins there, too: the one before it has ended.
        """
        if leader_epoch == UNKNOWN_EPOCH or leader_epoch > max(current_epoch, self.latest):
            return EpochEndOffset(UNKNOWN_EPOCH, UNKNOWN_OFFSET)
        if leader_epoch == current_epoch:
            return EpochEndOffset(leader_epoch, log_end_offset)
        slot = bisect_right(self._starts, leader_epoch, key=lambda start: start.leader_epoch)
        next_start = self._starts[slot].start_offset if slot < len(self._starts) else log_end_offset
        if slot == 0:
            return EpochEndOffset(leader_epoch, next_start)
        return EpochEndOffset(self._starts[slot - 1].leader_epoch, next_start)
