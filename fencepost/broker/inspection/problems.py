"""Problems of a partition's files, as values: the place, the affected offsets, and the facts for a repair."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The kind of a problem in a partition's files."""

    HEADER = "header"
    """A batch's header has a false field outside the checksum, and the true value is known: nothing is lost."""
    DAMAGE = "damage"
    """Acknowledged records cannot be read, or their offsets are unknown."""
    MISSING = "missing"
    """Acknowledged records are missing: a file, or its end."""
    NOT_RECORDED = "not recorded"
    """A readable file is not the one that was written here, such as an old copy."""
    FOREIGN = "of another log"
    """A valid file, or a whole directory, is another partition's: the records that belong here are missing."""
    UNREADABLE = "unreadable"
    """The disk fails to read a file."""
    REFUSED = "refused"
    """The start refuses the partition for a reason that only the start finds."""
    TAIL = "tail"
    """Bytes behind the last whole batch, above the recovery point: never acknowledged."""
    SUPERFLUOUS = "superfluous"
    """Bytes between or behind batches, without offsets: nothing is lost without them."""
    STALE = "stale"
    """A file that is derived from the log and differs from it: it can be rebuilt."""
    NOTE = "note"
    """Nothing is wrong; a note for the operator."""


class DirectoryProblem(NamedTuple):
    """One problem in a partition's directory.

    position, end_position: bounds in the file, in bytes; None for the whole file.
    first_offset, end_offset: the affected offsets, end exclusive; None if there are none, or (end) if it is
        unknown.
    replacement:   bytes of a header that belong at `position`.
    follows_valid: whether valid batches follow the damage.
    leader_epoch, time_ms: epoch and time of the batches before it.
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
