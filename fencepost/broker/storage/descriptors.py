"""File descriptors: how many this process may have, and how connections and files share them.

Files can be opened again when they are used, connections cannot. As clients come, fewer files are kept open, down to a
number that is reserved for them. A connection beyond the limit is closed; a file beyond it would take a partition
offline.
"""

from __future__ import annotations

import resource
from collections.abc import Callable

ENOUGH_DESCRIPTORS = 1 << 20
"""The limit if the system sets none."""

_WHERE_INFINITY_IS_REFUSED = 10_240  # macOS

MOST_KEPT_FOR_FILES = 1_024
LEAST_RESERVED, MOST_RESERVED = 48, 128
"""Reserved for everything else: listeners, sync threads, directories, other nodes, modules that are imported late."""


def raise_limit() -> None:
    """Raise the limit of this process to the hard limit: the soft limit that shells set is meant for other programs."""
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard_limit, _WHERE_INFINITY_IS_REFUSED):
        if wanted == soft_limit or (soft_limit != resource.RLIM_INFINITY and 0 <= wanted < soft_limit):
            return
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard_limit))
        except (OSError, ValueError):
            continue
        return


def descriptor_limit() -> int:
    """Return how many descriptors this process may have."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH_DESCRIPTORS if soft_limit == resource.RLIM_INFINITY else soft_limit


class Descriptors:
    """The descriptors of a process, shared between its connections and its files.

    limit:            all descriptors of the process.
    connection_limit: the most connections.
    file_limit:       the most files that may be kept open now.
    on_fewer_files:   called when `file_limit` has become less.
    open_file_count:  files that are kept open now, as the disk that opens them counts.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._for_both = limit - min(MOST_RESERVED, max(LEAST_RESERVED, limit // 8), limit // 2)
        self._kept_for_files = max(1, min(MOST_KEPT_FOR_FILES, limit // 4))
        self._most_files = min(limit // 2, self._for_both)
        self.connection_limit = self._for_both - self._kept_for_files
        self.connection_count = 0
        self.file_limit = self._most_files
        self.on_fewer_files: Callable[[], None] | None = None
        self.open_file_count: Callable[[], int] = int

    def connected(self, connection_count: int) -> None:
        """Set the number of open connections."""
        self.connection_count = connection_count
        file_limit_before = self.file_limit
        self.file_limit = max(self._kept_for_files, min(self._most_files, self._for_both - connection_count))
        if self.file_limit < file_limit_before and self.on_fewer_files is not None:
            self.on_fewer_files()

    @property
    def has_room_for_each_connection(self) -> bool:
        """Whether each connection could have a second descriptor while a reply of it is being sent: a map of the file,
        or a copy of the socket's if the system sends."""
        return 2 * self.connection_count + self.open_file_count() < self._for_both
