"""Result of a recovery: the loaded log, or why it is refused, and what giving up the damaged records would cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.storage.disk import LogFile


class RecoveryRefusal(NamedTuple):
    """Why a partition is offline, and what giving up the records behind the bad place would cost.

    path:            of the damaged or missing file; of the directory where no single file is at fault.
    what:            what is wrong, in words, with path and position.
    position:        in that file; None for a whole file.
    expected_offset: that should be there: giving up loses records from it on.
    found_offset:    of a batch there; None when no header can be read.
    end_offset:      of the known loss from `expected_offset` on; there may be more.
    lost_bytes:      of it, in this file and those behind it.
    is_missing:      whether the file is missing, so that nothing more than its content is given up.
    is_of_another:   whether the file is valid, and another log's.
    """

    path: str
    what: str
    position: int | None
    expected_offset: int
    found_offset: int | None
    end_offset: int
    lost_bytes: int
    is_missing: bool = False
    is_of_another: bool = False

    @property
    def cost(self) -> str:
        """Return what giving up loses for good, in words."""
        if self.is_missing:
            return f"the offsets {self.expected_offset} to {self.end_offset - 1}, which are not there any more"
        offsets = f"the offsets from {self.expected_offset} on (up to {self.end_offset - 1} they were on the disk)"
        return f"{offsets}, {self.lost_bytes} bytes, which are kept beside the log"


class LoadedLog(NamedTuple):
    """Result of loading a partition's directory.

    unsynced:   files of segments that were read again: sync them before anything in them counts as durable.
    side_files: other files that were written; sync and close them, too.
    epochs:     the last of them is the epoch of the next records, also where none has been written in it yet.
    recovery_point: the recovery point once these files are synced.
    refusal:   why the log is refused; None when it may be used.
    """

    segments: LogSegments
    producers: ProducerState
    epochs: LeaderEpochs
    log_start_offset: int
    unsynced: Sequence[LogFile]
    side_files: Sequence[LogFile]
    recovery_point: int
    refusal: RecoveryRefusal | None

    @property
    def offline_reason(self) -> str | None:
        return None if self.refusal is None else self.refusal.what
