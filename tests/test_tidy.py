"""Rules that formatters do not check: tables stand in columns, prose is not torn, and words are plain."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted(path for folder in ("fencepost", "tests", "scripts") for path in (ROOT / folder).rglob("*.py"))

OFF, ON = "# fmt: off", "# fmt: on"
TORN_BEFORE = 60
"""A line of prose that ends before this column, in the middle of a phrase, was torn by a careless reflow."""


RIDDLES = re.compile(
    r"(?<![a-z])(whoever|so[ _]many|as far as is known|insist(?:s|ed|_\w+)?|(?:is|are)[ _]told|told apart"
    r"|who (?:asks|waits|comes|reads|writes)|somebody (?:newer|else)|let(?:s)? go of|turnstile)(?![a-z])",
    re.IGNORECASE,
)
"""Phrases that hide the actor or the number. docs/words.md has the terms to use instead."""
SPEAKS_OF_RIDDLES = {Path(__file__).resolve(), ROOT / "docs/words.md"}
"""The pages that name these phrases."""
PAGES = sorted(
    [path for path in (ROOT / "docs").glob("**/*.md") if path.name != "0007-appendix-diary.md"]
    + [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")]
)


@lru_cache(1)
def comments(source: str) -> list[tuple[int, str, bool]]:
    """Line, text, and whether it has the line to itself, of each comment."""
    if "#" not in source:
        return []
    return [
        (token.start[0], token.string, not token.line[: token.start[1]].strip())
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]


def swallowed_markers(source: str) -> list[int]:
    """The lines of comments that speak of `fmt: off` or `fmt: on` without being just that."""
    joined = [(number, text) for number, text, is_alone in comments(source) if not is_alone or text not in (OFF, ON)]
    return [number for number, text in joined if re.search(r"\bfmt:(?! skip)", text)]


def unpaired_markers(source: str) -> list[int]:
    markers = [(number, text) for number, text, _ in comments(source) if text in (OFF, ON)]
    expected = [OFF, ON] * (len(markers) // 2 + 1)
    return [number for (number, text), wanted in zip(markers, expected, strict=False) if text != wanted] + [
        number for number, text in markers[-1:] if text == OFF
    ]


def cells_of(row: str) -> list[int]:
    """The columns in which the cells of a table's row begin: `    KEY: (CELL, CELL),`."""
    return [match.start(1) for match in re.finditer(r"[(,] *([^ ,()][^,()]*)", row)]


def ragged_rows(source: str) -> list[int]:
    """The lines of a table between the markers whose cells do not begin where those of its first row do."""
    ragged: list[int] = []
    is_table, columns = False, list[int]()
    for number, line in enumerate(source.splitlines(), 1):
        stripped = line.strip()
        if stripped in (OFF, ON):
            is_table, columns = stripped == OFF, []
        elif is_table and re.match(r"\s+[\w.]+: *\(.*\),$", line):
            found = cells_of(line)
            columns = columns or found
            if found != columns:
                ragged.append(number)
        elif is_table and stripped in ("}", ")"):
            columns = []
    return ragged


def torn_prose(source: str) -> list[int]:
    """The lines of docstrings and comments that end early though their sentence goes on."""
    torn = []
    for first_line, lines in _paragraphs(source):
        for number, (line, following) in enumerate(pairwise(lines), first_line):
            word = following.split()[0]
            ends_a_phrase = re.search(r"[.:;)`-]$", line) or (line.endswith(",") and " " in line.strip("# "))
            if word[0].islower() and not ends_a_phrase and len(line) < TORN_BEFORE:
                torn.append(number)
    return torn


def _paragraphs(source: str) -> Iterator[tuple[int, list[str]]]:
    """Each paragraph of a docstring, or of comments that stand alone: its first line's number and its lines.

    What is indented further than the prose around it, such as examples and lists of names, is left out.
    """
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield from _split(node.lineno, lines[node.lineno - 1 : node.end_lineno], node.col_offset)
    block: list[str] = []
    begins_at = 0
    for number, text, is_alone in comments(source):
        if not is_alone:
            continue
        if block and number != begins_at + len(block):
            yield from _split(begins_at, block, 2)
            block = []
        if not block:
            begins_at = number
        block.append(text.replace("#", " ", 1).rstrip())
    yield from _split(begins_at, block, 2)


def _split(first_line: int, lines: list[str], indent: int) -> Iterator[tuple[int, list[str]]]:
    paragraph: list[str] = []
    for number, line in enumerate([*lines, ""], first_line):
        if line.strip().strip('"') and len(line) - len(line.lstrip()) == indent:
            paragraph.append(line)
        elif paragraph:
            yield number - len(paragraph), paragraph
            paragraph = []


def riddles(source: str) -> list[tuple[int, str]]:
    """Line and phrase of each riddle, in names, comments and texts."""
    return [
        (number, found[0]) for number, line in enumerate(source.splitlines(), 1) for found in RIDDLES.finditer(line)
    ]


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in FILES}), ids=lambda folder: str(folder.relative_to(ROOT))
)
def test_the_files_of_a_folder_are_tidy(folder: Path) -> None:
    for path in folder.glob("*.py"):
        source = path.read_text(encoding="utf-8")
        assert not swallowed_markers(source), f"{path}: `# fmt: off` has to stand alone"
        assert not unpaired_markers(source), f"{path}: `# fmt: off` and `# fmt: on` come in pairs"
        assert not ragged_rows(source), f"{path}: the cells of a table begin in the same columns"
        assert not torn_prose(source), f"{path}: the sentence goes on in the next line: fill this one"
        assert not found_riddles(path, source), f"{path}: name the actor or the number: docs/words.md"


def test_pages_have_no_riddles() -> None:
    for path in PAGES:
        assert not found_riddles(path, path.read_text(encoding="utf-8")), path


def found_riddles(path: Path, source: str) -> list[tuple[int, str]]:
    return [] if path.resolve() in SPEAKS_OF_RIDDLES else riddles(source)


def test_untidy_lines_are_found() -> None:
    assert swallowed_markers("# as in Kafka. fmt:\n# off\n") == [1]
    assert unpaired_markers("# fmt: off\nx = 1\n") == [1]
    assert ragged_rows("# fmt: off\nT = {\n    A:  (ONE,   TWO),\n    BB: (THREE, TWO),\n    C:  (ONE, TWO),\n}") == [5]
    assert torn_prose('"""A cache keeps what was\nread, until it is full."""\n') == [1]
    assert torn_prose('"""A cache keeps what was read.\n\n    an example\n    of code\n"""\n') == []
    assert riddles("def insist_on_life():  # whoever asks\n    not_told = so_many") == [
        (1, "insist_on_life"),
        (1, "whoever"),
        (2, "so_many"),
    ]
    assert riddles("somebody; resist; the reply is tolded; twofold") == []
