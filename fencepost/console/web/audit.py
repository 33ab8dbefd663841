"""The audit log of the console: lines of JSON on every attempt to change something, in a chain (see `audit_chain`).

A change has two lines with one `id`: `begun` before anything is done, so that none is made that cannot be recorded, and
one on its end. A refused attempt has one line.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO, Final

from fencepost.console.audit_chain import FIRST, digest, encoded

LONGEST_TEXT: Final = 1_000
LONGEST_VALUE: Final = 200
MOST_VALUES: Final = 50
TAIL_BYTES: Final = 4 << 20
"""The last line lies within these: bounded as its fields are."""

Value = tuple[str, str, str]
"""A changed thing, its value before and its value after."""


class Outcome(Enum):
    """The end of an attempt. UNKNOWN: the broker's answer is missing, so the change may have been made."""

    BEGUN = "begun"
    DONE = "done"
    PARTLY_DONE = "partly done"
    FAILED = "failed"
    REFUSED = "refused"
    REPEATED = "repeated"
    INTERRUPTED = "interrupted"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Line:
    """A line of the log. change_id: the same in all lines of a change. why: the reason for an outcome, in words."""

    outcome: Outcome
    change: str
    user: str | None
    address: str
    role: str = ""
    cluster: str = ""
    bootstrap: str = ""
    change_id: str = ""
    subject: str = ""
    reason: str = ""
    details: str = ""
    values: Sequence[Value] = ()
    why: str = ""

    def entry(self, now: datetime) -> dict[str, Any]:
        """The line's fields, each cut to a length: names and reasons may be of any."""
        entry: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds"),
            "event": "console_change",
            "id": self.change_id,
            "user": _cut(self.user or "ANONYMOUS"),
            "address": self.address,
            "role": self.role,
            "cluster": _cut(self.cluster),
            "bootstrap": _cut(self.bootstrap),
            "change": _cut(self.change, LONGEST_VALUE),
            "subject": _cut(self.subject),
            "reason": _cut(self.reason),
            "details": _cut(self.details),
            "values": [[_cut(text, LONGEST_VALUE) for text in value] for value in self.values[:MOST_VALUES]],
            "outcome": self.outcome.value,
            "why": _cut(self.why),
        }
        if len(self.values) > MOST_VALUES:
            entry["values_left_out"] = len(self.values) - MOST_VALUES
        return entry


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


class AuditLog:
    """A log in a file, which several consoles may share and which may be renamed at any time; or standard error."""

    def __init__(self, path: str | None) -> None:
        """Raises OSError."""
        self._path = None if path is None else Path(path)
        self._lock = threading.Lock()
        self._last = FIRST
        if self._path is not None:
            with self._path.open("ab"):
                pass

    def write(self, entry: Mapping[str, Any]) -> None:
        """Add a line; when this returns it is on the disk. Raises OSError."""
        with self._lock:
            if self._path is None:
                line = encoded(entry, self._last)
                print(line.decode("ascii"), file=sys.stderr, flush=True)  # noqa: T201
                self._last = digest(line)
                return
            with self._path.open("ab+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                before, whole = _last_line(file)
                # A file that is new goes on with the chain of the one that was renamed.
                line = encoded(entry, self._last if before is None else digest(before))
                file.write((b"" if whole else b"\n") + line + b"\n")
                file.flush()
                os.fsync(file.fileno())
                self._last = digest(line)


def _last_line(file: BinaryIO) -> tuple[bytes | None, bool]:
    """The last line of a file, None if it is empty; and whether it ends: a write may have been cut."""
    size = file.seek(0, os.SEEK_END)
    if size == 0:
        return None, True
    file.seek(max(0, size - TAIL_BYTES))
    tail = file.read()
    whole = tail.endswith(b"\n")
    return tail.removesuffix(b"\n").rpartition(b"\n")[2], whole


_log: AuditLog | None = None


def open_audit_log(path: str | None) -> None:
    """Write the audit log to a file, to standard error for None. Raises OSError."""
    global _log
    _log = AuditLog(path)


def close_audit_log() -> None:
    """Write no audit log any more."""
    global _log
    _log = None


async def record(line: Line) -> None:
    """Write a line, in a thread, as a disk may be slow. Raises OSError."""
    if _log is not None:
        await asyncio.to_thread(_log.write, line.entry(datetime.now(UTC)))
