"""Result of a recovery: the loaded log, or the cause of its refusal, and the cost of giving up the damaged records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.log.files.leader_epochs import LeaderEpochs
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.log.segment.log_segments import LogSegments
from fencepost.broker.storage.disk import LogFile


class RecoveryRefusal(NamedTuple):
    """The cause why a partition is offline, and the cost of giving up the records behind the bad place.

    path:            path of the damaged or missing file; of the directory if no single file is at fault.
    what:            description of the fault, with path and position.
    position:        byte in that file; None for a whole file.
    expected_offset: offset that should be there: giving up loses records from it on.
    found_offset:    offset of a batch there; None if no header can be read.
    end_offset:      end of the known loss from `expected_offset` on; there may be more.
    lost_bytes:      size of the loss, in this file and those behind it.
    is_missing:      whether the file is missing, so that only its content is lost.
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
        """Describe the records that giving up loses for good."""
        if self.is_missing:
            return f"the offsets {self.expected_offset} to {self.end_offset - 1}, which are not there any more"
        offsets = f"the offsets from {self.expected_offset} on (up to {self.end_offset - 1} they were on the disk)"
        return f"{offsets}, {self.lost_bytes} bytes, which are kept beside the log"


class LoadedLog(NamedTuple):
    """Result of loading a partition's directory.

    unsynced:   files of segments that were read again: sync them before anything in them counts as durable.
    side_files: other files that were written; sync and close them, too.
    epochs:     the last of them is the epoch of the next records, also if none has been written in it yet.
    recovery_point: the recovery point once these files are synced.
    refusal:   cause of the refusal; None if the log may be used.
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
