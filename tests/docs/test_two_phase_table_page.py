"""The page about the table of prepared transactions is what the log and the examples in other languages do."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from fencepost.two_phase import SqliteLog, Token
from fencepost.two_phase.logs import COLUMNS, DEFAULT_TABLE

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
PAGE = (ROOT / "docs" / "two-phase-table.md").read_text(encoding="utf-8")
CREATE = f"CREATE TABLE IF NOT EXISTS {DEFAULT_TABLE} {COLUMNS}"
OTHERS = (EXAMPLES / "two_phase_java" / "TwoPhase.java", EXAMPLES / "two_phase_go" / "twophase.go")


def columns_of_page() -> list[tuple[str, str, str]]:
    """Name, type in PostgreSQL and type in SQLite of each column."""
    return re.findall(r"^\| `(\w+)` \| `(\w+)`, [^|]* \| `(\w+)`, [^|]* \|", PAGE, re.MULTILINE)


def whole_strings(source: str) -> str:
    """A source in Java or Go whose strings, which go on over lines, are in one piece."""
    return re.sub(r'"\s*\+\s*"', "", source)


def test_the_page_has_the_statement_of_the_log() -> None:
    assert re.findall(r"```sql\n(.*?)\n```", PAGE, re.DOTALL) == [CREATE]
    assert PAGE.startswith("# The table of prepared transactions, version 1\n")


def test_the_page_has_the_columns_of_the_table() -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(CREATE)
    made = [(name, kind.upper()) for _, name, kind, *_ in connection.execute(f"PRAGMA table_info({DEFAULT_TABLE})")]
    connection.close()
    assert [(name, sqlite) for name, _, sqlite in columns_of_page()] == made
    of_postgres = [f"{name} {kind}" for name, kind, _ in columns_of_page()]
    assert [re.match(r"\w+ \w+", column.strip("( "))[0] for column in COLUMNS.split(",")] == of_postgres  # type: ignore[index]


def test_create_makes_the_table_of_the_page(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "orders.sqlite")
    SqliteLog().create(connection)
    (made,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (DEFAULT_TABLE,)).fetchone()
    connection.close()
    assert made == CREATE.replace("IF NOT EXISTS ", "")


@pytest.mark.parametrize("source", OTHERS, ids=["java", "go"])
def test_the_examples_in_other_languages_make_the_table_of_the_page(source: Path) -> None:
    text = whole_strings(source.read_text(encoding="utf-8"))
    assert CREATE in text
    assert re.findall(r"CREATE TABLE [^(]*fencepost_prepared", text) == [
        "CREATE TABLE IF NOT EXISTS fencepost_prepared"
    ]
    assert "version 1 of the table" in " ".join(text.replace("*", " ").replace("//", " ").split())


def test_the_texts_of_the_page_are_tokens_or_are_refused() -> None:
    texts = re.findall(r"^\| `([^`]*:[^`]*)` \| (a token|refused)", PAGE, re.MULTILINE)
    assert len(texts) == 6
    for text, answer in texts:
        if answer == "refused":
            with pytest.raises(ValueError, match="expected PRODUCER_ID:EPOCH:TRANSACTIONAL_ID"):
                Token.parse(text)
        else:
            assert str(Token.parse(text)) == text
