"""What can be wrong with a partition's files, as values: where it is, what it concerns, what can be done."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """What is the matter with a place in the files of a partition."""

    HEADER = "header"
    """What no checksum covers is false in a batch's header, and what it was is known: nothing is lost."""
    DAMAGE = "damage"
    """Records that cannot be read, or whose offsets cannot be told, though they were acknowledged."""
    MISSING = "missing"
    """Records that were acknowledged are not there: a file, or the end of one."""
    NOT_RECORDED = "not recorded"
    """A file can be read, and is not the one that was written here: another partition's, or an old copy."""
    UNREADABLE = "unreadable"
    """The disk refuses to read a file."""
    REFUSED = "refused"
    """The start refuses the partition for a reason that is found nowhere else."""
    TAIL = "tail"
    """What stands behind the last whole batch, above what was known to be on the disk: never acknowledged."""
    SUPERFLUOUS = "superfluous"
    """Bytes between or behind batches to which no offsets belong: nothing is lost without them."""
    STALE = "stale"
    """A file that is made from the log, and does not agree with it: it can be made again."""
    NOTE = "note"
    """Nothing is wrong; the operator may want to know."""


class DirectoryProblem(NamedTuple):
    """One finding in a partition's directory.

    position, end_position: in the file, in bytes; None where it is about the whole of it.
    first_offset, end_offset: the offsets that are concerned: from the first to before the end; None where there are
                   none, or (end) it is not known where they end.
    replacement:   for a header: the bytes that belong at `position`.
    follows_valid: for damage: valid batches stand behind it.
    leader_epoch, time_ms: of the batches before it.
    """

    kind: Kind
    path: str
    what: str
    position: int | None = None
    end_position: int | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    replacement: bytes | None = None
    follows_valid: bool = False
    leader_epoch: int = 0
    time_ms: int = -1

    @property
    def size_bytes(self) -> int:
        if self.position is None or self.end_position is None:
            return 0
        return self.end_position - self.position
