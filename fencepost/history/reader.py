"""Reader of a history's lines as objects; docs/history.md has the format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from fencepost.protocol.checked_json import JsonError, parse

LONGEST_LINE_BYTES = 256 << 20
LINE_START = b'{"time_ms"'
OUTCOMES = frozenset(["invoke", "ok", "fail", "unknown"])


class MalformedHistoryError(ValueError):
    """A line is not as docs/history.md describes; `line` is its number, from 1, `reason` the fault."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line}: {reason}")
        self.line = line
        self.reason = reason


class HistoryReader:
    """Iterates over (line number, object) of a history; blank lines are skipped.

    torn_line_count: lines that a killed recorder left unfinished. Such a line is the last of the file or, if several
    processes share it, is followed on the same line by a whole one, which is read.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self.line_count = 0
        self.torn_line_count = 0

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        for number, line in enumerate(self._lines, 1):
            try:
                parsed = parse(line, most_bytes=LONGEST_LINE_BYTES)
            except JsonError as error:
                if not line.strip():
                    continue
                parsed = self._whole_end(line)
                self.torn_line_count += 1
                if parsed is None:
                    if not line.endswith(b"\n"):
                        break
                    raise MalformedHistoryError(number, f"not a JSON object: {error}") from None
            if not isinstance(parsed, dict):
                raise MalformedHistoryError(number, "not a JSON object")
            yield number, parsed
        self.line_count = number

    @staticmethod
    def _whole_end(line: bytes) -> dict[str, Any] | None:
        """The line that another process appended to a torn one, if any."""
        start = line.rfind(LINE_START)
        if start <= 0:
            return None
        try:
            parsed = parse(line[start:], most_bytes=LONGEST_LINE_BYTES)
        except JsonError:
            return None
        return parsed if isinstance(parsed, dict) and "operation" in parsed else None
