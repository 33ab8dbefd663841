"""The chain through the lines of the console's audit log: each has the SHA-256 of the line before it. Pure.

So a line that was changed, removed or put in between is seen from the next one on. Who can write the file can write it
anew from some line on, and can cut its end: against that, keep the digest of the last line elsewhere from time to time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

BEFORE: Final = "before"
FIRST: Final = ""
"""The value of `before` in a line that has none before it."""
MOST_FAULTS: Final = 20


def digest(line: bytes) -> str:
    """The digest of a line, without its line end."""
    return hashlib.sha256(line.rstrip(b"\r\n")).hexdigest()


def encoded(entry: Mapping[str, Any], before: str) -> bytes:
    """A line, in ASCII, without its line end. before: the digest of the line before it."""
    return json.dumps({**entry, BEFORE: before}, ensure_ascii=True).encode()


@dataclass
class Verdict:
    """The findings on a file. begins_behind: the digest that its first line names; last: that of its last line.

    unchained: lines at the beginning from before there was a chain. has_digest: whether the digest that was looked for
    is that of a line. faults: the first of them, as sentences; faults_count: of all.
    """

    lines: int = 0
    unchained: int = 0
    begins_behind: str = FIRST
    last: str = FIRST
    has_digest: bool = False
    faults_count: int = 0
    faults: list[str] = field(default_factory=list)


def verify(lines: Iterable[bytes], wanted: str | None = None) -> Verdict:
    """Follow the chain through a file. wanted: a digest that one of its lines must have."""
    found = Verdict()
    has_begun = False
    for line in lines:
        found.lines += 1
        before = _before_of(line)
        if before is None and not has_begun:
            found.unchained += 1
        elif before is None:
            _fault(found, f"Line {found.lines:,} is no line of an audit log.")
        elif not has_begun:
            has_begun = True
            if found.unchained and before != found.last:
                _fault(found, f"The lines before line {found.lines:,} are not those that it was written behind.")
            elif not found.unchained:
                found.begins_behind = before
        elif before != found.last:
            _fault(
                found, f"Line {found.lines - 1:,} was changed, or lines between it and the next were removed or added."
            )
        found.last = digest(line)
        found.has_digest |= found.last == wanted
    return found


def _fault(found: Verdict, sentence: str) -> None:
    found.faults_count += 1
    if len(found.faults) < MOST_FAULTS:
        found.faults.append(sentence)


def _before_of(line: bytes) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    before = entry.get(BEFORE) if isinstance(entry, dict) else None
    return before if isinstance(before, str) else None
