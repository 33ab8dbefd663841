"""Count of all changes of the metadata, which decides which of two states is the newer one.

The database holds it, and its copy with it; triggers raise it, so that no statement can forget to, nor an earlier
version of the broker. A file beside them holds it, too, and the cluster id. That file is written after each commit,
without a sync: it is never ahead of a sound database, and after the death of the process it is not behind one either.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final, NamedTuple

from crc32c import crc32c

COUNT_SUFFIX: Final = ".count"
NOT_COUNTED: Final = 0
"""The count of a state that was written by a version of the broker that did not count."""

_COUNTED: Final = ("topics", "deletions", "versioned_values", "nodes", "partitions")
_FORMAT: Final = "fencepost metadata count 1"
_LONGEST_BYTES: Final = 200


class Counted(NamedTuple):
    """A state of a cluster's metadata. change: the number of changes that have led to it."""

    cluster_id: str
    change: int


def begin_counting(database: sqlite3.Connection) -> None:
    """Count all changes of the existing tables from now on."""
    tables = {str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    triggers = {str(row[0]) for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
    statements = []
    if "change_count" not in tables:
        statements.append("CREATE TABLE change_count (one INTEGER PRIMARY KEY CHECK (one = 1), count INTEGER NOT NULL)")
    if "change_count" not in tables or not count_of(database):
        statements.append("INSERT OR REPLACE INTO change_count VALUES (1, 1)")
    for table in _COUNTED:
        for event in ("INSERT", "UPDATE", "DELETE"):
            name = f"count_{table}_{event.lower()}"
            if table in tables and name not in triggers:
                statements.append(
                    f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN "
                    "UPDATE change_count SET count = count + 1; END"
                )
    if statements:
        database.executescript(f"BEGIN IMMEDIATE;{';'.join(statements)};COMMIT;")


def count_of(database: sqlite3.Connection) -> int:
    """Return the count of a state; NOT_COUNTED if it has none. Raises sqlite3.Error."""
    if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'change_count'").fetchone():
        return NOT_COUNTED
    row = database.execute("SELECT count FROM change_count").fetchone()
    return NOT_COUNTED if row is None else int(row[0])


def counted_state(database: sqlite3.Connection) -> Counted:
    """Raises sqlite3.Error."""
    row = database.execute("SELECT cluster_id FROM cluster").fetchone()
    return Counted("" if row is None else str(row[0]), count_of(database))


def raise_count(database: sqlite3.Connection, count: int) -> None:
    """Raise the count above all earlier ones."""
    database.execute("UPDATE change_count SET count = max(count, ?)", (count,))


def have_same_rows(database: sqlite3.Connection, other: sqlite3.Connection) -> bool:
    """Whether two states have the same rows. Raises sqlite3.Error."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    tables = [str(row[0]) for row in database.execute(query)]
    if tables != [str(row[0]) for row in other.execute(query)]:
        return False
    return all(_rows(database, table) == _rows(other, table) for table in tables)


def _rows(database: sqlite3.Connection, table: str) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = database.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2').fetchall()
    return rows


def read_recorded(path: str) -> Counted | None:
    """Read the file; None if it is missing, unreadable or damaged."""
    try:
        with open(path, "rb") as file:
            return _decode(file.read(_LONGEST_BYTES))
    except OSError:
        return None


class RecordedCount:
    """The file, open to be written."""

    def __init__(self, path: str, *, mode: int) -> None:
        """Raises OSError."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)

    def write(self, state: Counted) -> None:
        """Write in place, without a sync, unless the file names a later state of the cluster. Raises OSError."""
        known = _decode(os.pread(self._descriptor, _LONGEST_BYTES, 0))
        if known is not None and known.cluster_id == state.cluster_id and known.change >= state.change:
            return
        if known is None:
            os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, _encode(state), 0)

    def close(self) -> None:
        os.close(self._descriptor)


def _encode(state: Counted) -> bytes:
    text = f"{_FORMAT}\n{state.cluster_id} {state.change:020d}"
    return f"{text} {crc32c(text.encode()):08x}\n".encode()


def _decode(content: bytes) -> Counted | None:
    text, _, checksum = content.decode("ascii", "replace").rstrip("\n").rpartition(" ")
    fields = text.rpartition("\n")[2].split(" ")
    is_written = text.startswith(f"{_FORMAT}\n") and checksum == f"{crc32c(text.encode()):08x}"
    if not is_written or len(fields) != 2 or not fields[1].isdecimal():
        return None
    return Counted(fields[0], int(fields[1]))
