"""The chain through the lines of the console's audit log: each has the SHA-256 of the line before it. Pure.

So a line that was changed, removed or put in between is seen from the next one on. Who can write the file can write it
anew from some line on, and can cut its end: against that, keep the digest of the last line elsewhere from time to time.

`python -m fencepost.console.audit_chain FILE [DIGEST]` follows the chain through a file.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

BEFORE: Final = "before"
FIRST: Final = ""
"""The value of `before` in a line that has none before it."""
MOST_FAULTS: Final = 20
LONGEST_LINE_BYTES: Final = 4 << 20
RIGHT, WRONG, NOT_READ = 0, 1, 2


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


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; one that is too long for a line of the log comes in pieces, which are no lines of it."""
    while line := file.readline(LONGEST_LINE_BYTES):
        yield line


def main(arguments: Sequence[str]) -> int:
    """Follow the chain through the file that is named first, and look for the digest that is named second."""
    if len(arguments) not in (1, 2):
        print("usage: python -m fencepost.console.audit_chain FILE [DIGEST]", file=sys.stderr)  # noqa: T201
        return NOT_READ
    wanted = arguments[1] if len(arguments) == 2 else None
    try:
        with open(arguments[0], "rb") as file:
            found = verify(lines_of(file), wanted)
    except OSError as error:
        print(f"{arguments[0]} cannot be read: {error.strerror}", file=sys.stderr)  # noqa: T201
        return NOT_READ
    said = list(found.faults)
    if found.faults_count > len(found.faults):
        said.append(f"{found.faults_count - len(found.faults):,} more faults.")
    if wanted is not None and not found.has_digest:
        said.append("No line has the digest that you named: lines were removed or written anew.")
    if found.unchained:
        said.append(f"The first {found.unchained:,} lines are from before there was a chain.")
    if found.begins_behind:
        said.append(f"The file goes on behind a line with the digest {found.begins_behind}, of a file before it.")
    said.append(f"{found.lines:,} lines; the last has the digest {found.last or 'of no line'}.")
    print("\n".join(said))  # noqa: T201
    return WRONG if found.faults_count or (wanted is not None and not found.has_digest) else RIGHT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
