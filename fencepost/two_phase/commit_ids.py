"""Names of commits, for the rows and the records of each: by them a person finds rows without records, and the reverse.

A token cannot do this: clients of transaction version 1 keep their pair, so all transactions of a session have one.
Pure but for the clock and the random numbers that are passed in.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from typing import Final, NamedTuple

HEADER: Final = "fencepost-commit-id"


class Commit(NamedTuple):
    """One commit over a database and a log.

    id: a name for a column of the rows; no other commit has it, after restores too.
    headers: the name for the records, as all client libraries take headers.
    """

    id: str

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [(HEADER, self.id.encode())]


def new_commit(now_s: Callable[[], float] = time.time, random_bytes: Callable[[int], bytes] = os.urandom) -> Commit:
    """Name a commit that begins. Its id is a UUID of version 7 (RFC 9562): a time in ms, and 74 random bits."""
    milliseconds = max(0, int(now_s() * 1000)) & ((1 << 48) - 1)
    random = int.from_bytes(random_bytes(10))
    value = milliseconds << 80 | random & ((1 << 80) - 1)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return Commit(str(uuid.UUID(int=value)))


def time_of(commit_id: str) -> int | None:
    """The time at which the commit of an id began, in ms since 1970; None if the text is no id."""
    try:
        found = uuid.UUID(commit_id)
    except ValueError:
        return None
    return found.int >> 80 if found.version == 7 and str(found) == commit_id else None
