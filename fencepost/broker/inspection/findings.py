"""Findings of `fencepost log verify` in words: the fault, the reaction of the next start, and the choices."""

from __future__ import annotations

import os
import shlex
from enum import StrEnum
from typing import Any, NamedTuple

from fencepost.broker.inspection.problems import DirectoryProblem, Kind
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.file_names import lost_path
from fencepost.broker.log.files.partition_files import METADATA_FILE


class Severity(StrEnum):
    """damage:  something acknowledged cannot be read, is missing, or would be taken for something else.
    cut:     the next start cuts something off that was never acknowledged.
    rebuilt: a file that is derived from others is wrong; the next start rebuilds it.
    note:    nothing is wrong.
    """

    DAMAGE = "damage"
    CUT = "would be cut"
    REBUILT = "rebuilt at start"
    NOTE = "note"


class Choice(NamedTuple):
    """Something that can be done, and its cost."""

    action: str
    cost: str


class Finding(NamedTuple):
    """One row. partition: None if it is about the directory as a whole. end_offset: after the last one concerned."""

    severity: Severity
    partition: TopicPartition | None
    path: str
    what: str
    at_next_start: str
    choices: tuple[Choice, ...] = ()
    position: int | None = None
    size_bytes: int = 0
    first_offset: int | None = None
    end_offset: int | None = None

    def as_row(self) -> dict[str, Any]:
        """Return the finding for JSON."""
        return {
            "severity": str(self.severity),
            "partition": None if self.partition is None else str(self.partition),
            "path": self.path,
            "position": self.position,
            "bytes": self.size_bytes,
            "first_offset": self.first_offset,
            "end_offset": self.end_offset,
            "what": self.what,
            "at_next_start": self.at_next_start,
            "choices": [choice._asdict() for choice in self.choices],
        }


_SEVERITIES = {
    Kind.HEADER: Severity.DAMAGE,
    Kind.DAMAGE: Severity.DAMAGE,
    Kind.MISSING: Severity.DAMAGE,
    Kind.NOT_RECORDED: Severity.DAMAGE,
    Kind.FOREIGN: Severity.DAMAGE,
    Kind.UNREADABLE: Severity.DAMAGE,
    Kind.REFUSED: Severity.DAMAGE,
    Kind.SUPERFLUOUS: Severity.DAMAGE,
    Kind.TAIL: Severity.CUT,
    Kind.STALE: Severity.REBUILT,
    Kind.NOTE: Severity.NOTE,
}


def finding(
    data_directory: str, name: TopicPartition, problem: DirectoryProblem, at_next_start: str, *, is_offline: bool
) -> Finding:
    """Return a problem of a partition's files in words."""
    severity = _SEVERITIES[problem.kind]
    if problem.kind is Kind.NOTE:
        at_next_start = "nothing changes"
    elif problem.kind is Kind.STALE and not is_offline:
        at_next_start = "it is rebuilt"
    return Finding(
        severity,
        name,
        problem.path,
        problem.what,
        at_next_start,
        tuple(_choices(data_directory, name, problem, is_offline=is_offline)),
        problem.position,
        problem.size_bytes,
        problem.first_offset,
        problem.end_offset,
    )


def repair_command(data_directory: str, name: TopicPartition | None, *options: str) -> str:
    """Return the command that repairs one partition, or all (None)."""
    partitions = [] if name is None else [str(name)]
    return shlex.join(["fencepost", "log", "repair", "--data-dir", data_directory, *partitions, *options])


def _choices(data_directory: str, name: TopicPartition, problem: DirectoryProblem, *, is_offline: bool) -> list[Choice]:
    kind = problem.kind
    repair = repair_command(data_directory, name)
    accept = repair_command(data_directory, name, "--accept-loss")
    restore = Choice(f"restore {os.path.basename(problem.path)} from a backup", "nothing is lost")
    if kind is Kind.HEADER:
        return [Choice(repair, "nothing is lost: the checksum of the records holds")]
    if kind is Kind.SUPERFLUOUS:
        return [Choice(repair, f"nothing is lost: {problem.size_bytes:,} bytes are kept {_kept(problem)}")]
    if kind is Kind.STALE:
        return [Choice(repair, "nothing is lost" if is_offline else "nothing is lost; the next start does the same")]
    if kind is Kind.UNREADABLE:
        copy = Choice(
            "copy what can be read of the file (with ddrescue, say), put the copy in its place and verify again",
            "what cannot be read",
        )
        return [restore, copy]
    if kind is Kind.DAMAGE:
        kept = f"{problem.size_bytes:,} bytes are kept {_kept(problem)}"
        choices = [restore, Choice(accept, f"{offsets_text(problem)} given up; {kept}; all other records stay")]
        if problem.follows_valid:
            cut = repair_command(data_directory, name, "--accept-loss", "--cut")
            choices.append(
                Choice(cut, f"all from offset {problem.first_offset} on is given up, and kept in the same way")
            )
        return choices
    if kind is Kind.MISSING:
        return [restore, Choice(accept, f"{offsets_text(problem)} given up; all other records stay")]
    if kind is Kind.FOREIGN:
        there = "nothing is lost: both logs go back to their places, if the other one is in this data directory, too"
        all_partitions = repair_command(data_directory, None)  # one that is named stays in its place
        kept = f"{offsets_text(problem)} given up; the file is kept"
        return [Choice(all_partitions, there), restore, Choice(accept, kept)]
    if kind is Kind.NOT_RECORDED and problem.path.endswith(METADATA_FILE):
        return [
            Choice("where directories were mixed up, give each its own name again", "nothing is lost"),
            Choice("move the directory away, and restore the right one from a backup", "nothing is lost"),
            Choice(f"move the directory away, then {accept}", "all records of the partition are given up"),
        ]
    if kind is Kind.NOT_RECORDED:
        return [restore, Choice(accept, "the file is accepted as it is: its former content is lost")]
    if kind is Kind.REFUSED:
        whole = Choice("restore the partition's directory from a backup", "nothing is lost")
        cost = "the log is accepted as it is: its former content is lost"
        if problem.end_offset is not None and problem.position is None:
            cost = f"{offsets_text(problem)} given up; all other records stay"
        return [restore if problem.path.endswith(".log") else whole, Choice(accept, cost)]
    return []


def _kept(problem: DirectoryProblem) -> str:
    return f"in {os.path.basename(lost_path(problem.path, problem.position or 0))}"


def offsets_text(problem: DirectoryProblem) -> str:
    """Return text such as `offsets 50 to 99 (at most 50 records)`."""
    first, end = problem.first_offset, problem.end_offset
    if first is None:
        return "no records are"
    if end is None:
        return f"offset {first} and what followed are"
    if end - first == 1:
        return f"offset {first} (1 record) is"
    return f"offsets {first} to {end - 1} (at most {end - first} records) are"
