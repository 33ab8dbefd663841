"""The size of a cluster of machines at the end of a piece of a soak: objects, rows, local files, memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

TABLES: Final = (
    *("cluster", "nodes", "fences", "topics", "deletions", "partitions", "segments", "tail", "tail_objects", "garbage"),
    *("documents", "changes"),
)
SCHEMA: Final = "fencepost"
TIMEOUT_S: Final = 60.0
NO_MEMORY: Final = -1


@dataclass
class Holdings:
    """rows: number in each table. resident_bytes: memory of each broker; NO_MEMORY of one that is not there."""

    objects: int = 0
    object_bytes: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    local_bytes: int = 0
    resident_bytes: list[int] = field(default_factory=list)

    def as_object(self) -> dict[str, Any]:
        return asdict(self)


def files_in(directories: Iterable[Path]) -> tuple[int, int]:
    """The number of files in directories, and their bytes; some may be removed meanwhile."""
    count = size_bytes = 0
    for directory in directories:
        for path in directory.rglob("*"):
            try:
                if path.is_file():
                    size_bytes += path.stat().st_size
                    count += 1
            except FileNotFoundError:
                continue
    return count, size_bytes


def rows_of(psql: Sequence[str]) -> dict[str, int]:
    """The rows of each table; none if PostgreSQL does not answer. psql: the command, up to its statement."""
    counts = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM {SCHEMA}.{table}" for table in TABLES)
    done = subprocess.run(
        [*psql, "-X", "-A", "-t", "-F", " ", "-c", counts],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        cwd="/",
    )
    lines = (line.split() for line in done.stdout.splitlines())
    return {table: int(count) for table, count in lines}


def resident_bytes_of(process_id: int | None) -> int:
    """The memory of a process that is in use; NO_MEMORY if there is none."""
    try:
        lines = Path(f"/proc/{process_id}/status").read_text().splitlines()
    except OSError:
        return NO_MEMORY
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:")), NO_MEMORY)
