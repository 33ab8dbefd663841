"""Compares the rows of a service with its records, by the ids of their commits. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.two_phase.commit_ids import time_of


class Place(NamedTuple):
    """The position of a record."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class TooManyCommits(Exception):  # noqa: N818  # the command handles it
    """More commits than were allowed for are in the range."""


@dataclass
class Comparison:
    """Commits of which one side alone has the id. Add all rows, then all records, then ask.

    since_ms, until_ms: commits that began before or after, by the time in their ids, are left out: the two sides were
                        read at different moments. Both in ms since 1970.
    most: commits at most that are held in memory.
    rows, records: commits counted, by side. without_id: rows and records that have no id, or another text for one.
    """

    since_ms: int
    until_ms: int
    most: int
    rows: int = 0
    records: int = 0
    without_id: int = 0
    _in_rows: set[str] = field(default_factory=set)
    _records: dict[str, Place] = field(default_factory=dict)

    def add_rows(self, ids: Iterable[object]) -> None:
        """Raises TooManyCommits."""
        for commit_id in ids:
            if self._counts(commit_id):
                self._in_rows.add(str(commit_id))
                if len(self._in_rows) > self.most:
                    raise TooManyCommits
        self.rows = len(self._in_rows)

    def add_record(self, commit_id: object, place: Place) -> None:
        """place: the first one counts. Raises TooManyCommits."""
        if self._counts(commit_id) and commit_id not in self._records:
            self._records[str(commit_id)] = place
            self.records += 1
            if self.records > self.most:
                raise TooManyCommits

    def rows_without_records(self) -> list[str]:
        """The ids, oldest first."""
        return sorted(self._in_rows - self._records.keys())

    def records_without_rows(self) -> list[tuple[str, Place]]:
        """The ids and the first record of each, oldest first."""
        return sorted((one, place) for one, place in self._records.items() if one not in self._in_rows)

    def _counts(self, commit_id: object) -> bool:
        time_ms = time_of(str(commit_id))
        if time_ms is None:
            self.without_id += 1
            return False
        return self.since_ms <= time_ms <= self.until_ms
