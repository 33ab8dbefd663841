"""Prose of the product stays plain: clauses with *what*, and parameter notes without a noun, only become fewer.

Counted are docstrings and comments, by room. `python -m tests.test_english` writes today's numbers down.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.support.source_trees import ROOT

BUDGET = ROOT / "tests" / "english_budget.txt"
COMMENT = re.compile(r"(?:^ *|  )# (.*)$", re.MULTILINE)
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
WHAT = re.compile(r"\bwhat(ever)?\b", re.IGNORECASE)
NOTE_WITHOUT_NOUN = re.compile(
    r"^ *[a-z_][a-z_0-9, ]*: +(of|for|in|by|that|how|as|at|to|with|from|on|what|where|why|than|without|after|before"
    r"|under|until|since|when)\b",
    re.MULTILINE,
)
"""Such as `leader_epoch: that wrote it`, which has to be joined with its key to be a sentence."""


class Count(NamedTuple):
    """words: of docstrings and comments. whats: the word. notes: of parameters and fields, without a noun."""

    words: int
    whats: int
    notes: int


def prose_of(source: str) -> Iterator[str]:
    """The docstrings, those of assignments too, and the comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documentation = ast.get_docstring(node)
            if documentation:
                yield documentation
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for before, after in pairwise(body):
                match before, after:
                    case ast.Assign() | ast.AnnAssign(), ast.Expr(value=ast.Constant(value=str() as text)):
                        yield text
    yield from COMMENT.findall(source)


def counted(texts: Iterator[str]) -> Count:
    words = whats = notes = 0
    for text in texts:
        words += len(WORD.findall(text))
        whats += len(WHAT.findall(text))
        notes += len(NOTE_WITHOUT_NOUN.findall(text))
    return Count(words, whats, notes)


def room_of(path: Path) -> str:
    """`broker/log` for a module of a room, else the package."""
    parts = path.relative_to(ROOT / "fencepost").parts
    return "/".join(parts[:2]) if parts[0] == "broker" and len(parts) > 2 else parts[0]


def count_by_room() -> dict[str, Count]:
    sums: dict[str, Counter[str]] = {}
    for path in sorted((ROOT / "fencepost").rglob("*.py")):
        count = counted(prose_of(path.read_text(encoding="utf-8")))
        sums.setdefault(room_of(path), Counter()).update(count._asdict())
    return {room: Count(**{field: sums[room][field] for field in Count._fields}) for room in sorted(sums)}


def budget_text(counts: dict[str, Count]) -> str:
    return "".join(f"{room}: {count.whats} {count.notes}\n" for room, count in counts.items())


def complaints(counts: dict[str, Count], text: str) -> list[str]:
    budget = {
        room: tuple(map(int, limits.split())) for room, _, limits in (line.partition(":") for line in text.splitlines())
    }
    found = []
    for room, count in counts.items():
        whats, notes = budget.get(room, (0, 0))
        if count.whats > whats:
            found.append(f"{room} has {count.whats} clauses with what, at most {whats} are allowed: write the noun")
        if count.notes > notes:
            found.append(f"{room} has {count.notes} parameter notes without a noun, at most {notes} are allowed")
        if count.whats < whats or count.notes < notes:
            found.append(f"{room} has become better: run python -m tests.test_english")
    return found + [f"{room} is gone: run python -m tests.test_english" for room in budget.keys() - counts.keys()]


def test_no_room_exceeds_its_budget() -> None:
    assert complaints(count_by_room(), BUDGET.read_text(encoding="utf-8")) == []


def test_a_room_that_grows_and_one_that_shrinks_are_named() -> None:
    budget = "broker/log: 2 1\ncli: 3 0\n"
    assert complaints({"broker/log": Count(900, 3, 2), "cli": Count(100, 2, 0)}, budget) == [
        "broker/log has 3 clauses with what, at most 2 are allowed: write the noun",
        "broker/log has 2 parameter notes without a noun, at most 1 are allowed",
        "cli has become better: run python -m tests.test_english",
    ]
    assert complaints({"new": Count(10, 1, 0)}, "") == [
        "new has 1 clauses with what, at most 0 are allowed: write the noun"
    ]


def test_docstrings_comments_and_notes_are_counted() -> None:
    source = '''"""What it holds."""
x = 1  # what is left
"""Whatever."""


def f(a):
    """Return it.

    a: that was given. b: the other.
    epoch: of the leader.
    """
    return "what"
'''
    assert counted(prose_of(source)) == Count(20, 3, 2)


if __name__ == "__main__":
    BUDGET.write_text(budget_text(count_by_room()), encoding="utf-8")
