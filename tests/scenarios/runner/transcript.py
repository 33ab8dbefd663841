"""The text of a scenario: what it tells, its steps, and under each step the lines that are expected to come of it.

`README.md` describes the language; here only the form matters: which lines are steps and which are answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

ANSWER_MARK = "  -> "
_ROWS = re.compile(r"^# Crash matrix: (.+?)\.?$", re.MULTILINE)
_BROKEN = re.compile(r"^# Breaks invariants: (.+?)\.?$", re.MULTILINE)
_CLAIM = re.compile(r"^# Claims?: (.+?)\.?$", re.MULTILINE)


class TranscriptError(Exception):
    """A line that is not of the language, with its number."""


@dataclass
class ReconciliationStep:
    """One line that does something. line_number: from 1; expected: the answers written under it."""

    line_number: int
    text: str
    expected: list[str] = field(default_factory=list)


@dataclass
class Transcript:
    """A scenario as it was written. lines: all of them, as they are."""

    lines: list[str]
    steps: list[ReconciliationStep]

    @property
    def title(self) -> str:
        return self.lines[0].removeprefix("# ")

    @property
    def crash_rows(self) -> list[int]:
        """The rows of the crash matrix that it says it shows."""
        return self._numbers(_ROWS)

    @property
    def broken_invariants(self) -> list[int]:
        """The invariants that do not hold in it, because a client or an operator does what none should do."""
        return self._numbers(_BROKEN)

    @property
    def claims(self) -> list[str]:
        """What it says it shows to be so, in words."""
        return _CLAIM.findall("\n".join(self.lines))

    def _numbers(self, line: re.Pattern[str]) -> list[int]:
        return [int(number) for found in line.findall("\n".join(self.lines)) for number in found.split(", ")]

    def with_answers(self, answers: Sequence[Sequence[str]]) -> str:
        """The same text, with other answers under its steps; steps that have none in `answers` keep theirs."""
        by_line = {step.line_number: answer for step, answer in zip(self.steps, answers, strict=False)}
        lines: list[str] = []
        is_replaced = False
        for number, line in enumerate(self.lines, start=1):
            if line.startswith(ANSWER_MARK):
                if not is_replaced:
                    lines.append(line)
                continue
            lines.append(line)
            if line and not line.startswith("#"):
                is_replaced = number in by_line
                lines += [ANSWER_MARK + answer for answer in by_line.get(number, ())]
        return "\n".join(lines) + "\n"


def parse_transcript(text: str) -> Transcript:
    """Raises TranscriptError for a text without a title, an answer without a step, and anything indented otherwise."""
    lines = text.rstrip("\n").split("\n")
    if not lines[0].startswith("# "):
        raise TranscriptError("line 1: the first line says, after `# `, what the scenario shows")
    steps: list[ReconciliationStep] = []
    for number, line in enumerate(lines, start=1):
        if not line or line.startswith("#"):
            continue
        if line.startswith(ANSWER_MARK):
            if not steps:
                raise TranscriptError(f"line {number}: an answer before the first step")
            steps[-1].expected.append(line.removeprefix(ANSWER_MARK))
        elif line != line.strip():
            raise TranscriptError(f"line {number}: steps begin at the margin, answers with {ANSWER_MARK!r}")
        else:
            steps.append(ReconciliationStep(number, line))
    return Transcript(lines, steps)
