"""The transcripts as a whole: what they must be about, and what their text may look like."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.scenarios.runner.performance import perform_transcript
from tests.scenarios.runner.transcript import TranscriptError, parse_transcript

FOLDER = Path(__file__).parent
CRASH_ROWS = range(1, 52)
CRASH_ROW = re.compile(r"^\| (?P<row>\d+) \|.+\| (?P<transcripts>\[.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")

STORY = """\
# A story

broker starts
clerk: CreateTopic out
  -> SOMETHING ELSE
  -> and more
# A remark
wait 1 s
"""


def listed_transcripts(folder: Path) -> dict[int, set[str]]:
    """The transcripts of each row of a list of crash points."""
    listed = {}
    for row in CRASH_ROW.finditer((folder / "README.md").read_text(encoding="utf-8")):
        links = LINK.findall(row["transcripts"])
        assert all(path == f"{name}.txt" for name, path in links), row["row"]
        listed[int(row["row"])] = {path for _, path in links}
    return listed


def test_every_row_of_the_crash_matrix_is_shown() -> None:
    shown: set[int] = set()
    for path in (FOLDER / "crash_matrix").glob("*.txt"):
        transcript = parse_transcript(path.read_text(encoding="utf-8"))
        assert int(path.name[:2]) in transcript.crash_rows, path.name
        shown.update(transcript.crash_rows)
    assert [row for row in CRASH_ROWS if row not in shown] == []


def test_list_of_crash_points_and_transcripts_name_the_same_rows() -> None:
    folder = FOLDER / "crash_matrix"
    shown: dict[int, set[str]] = {row: set() for row in CRASH_ROWS}
    for path in folder.glob("*.txt"):
        for crash_row in parse_transcript(path.read_text(encoding="utf-8")).crash_rows:
            shown[crash_row].add(path.name)
    assert listed_transcripts(folder) == shown


def test_list_of_crash_points_of_machines_and_transcripts_name_the_same_rows() -> None:
    folder = FOLDER / "machines"
    shown: dict[int, set[str]] = {}
    for path in folder.glob("[0-9]*.txt"):
        shown.setdefault(int(path.name[:2]), set()).add(path.name)
    assert listed_transcripts(folder) == shown
    assert sorted(shown) == list(range(1, len(shown) + 1))


def test_expected_lines_are_replaced_by_actual_ones() -> None:
    performance = perform_transcript(parse_transcript(STORY))
    assert performance.text == STORY.replace("  -> SOMETHING ELSE\n  -> and more\n", "  -> NONE\n")
    assert performance.violations == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("broker starts", "line 1: the first line says"),
        ("# A story\n  -> NONE", "line 2: an answer before the first step"),
        ("# A story\n broker starts", "line 2: steps begin at the margin"),
    ],
)
def test_text_that_is_no_transcript_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(TranscriptError, match=complaint):
        parse_transcript(text)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ("the broker dances", "no step reads like this"),
        ("broker starts\nbroker starts", "it is running"),
        ("broker starts\ntill: Dance", "Dance is none of"),
        ("broker starts\ntill: EndTxn sideways", "not in sideways"),
        ("broker starts\ntill: Produce out", "'out' is not a partition"),
        ("broker starts\nbroker dies before the append to nowhere", "this never came about"),
    ],
)
def test_a_step_that_is_not_of_the_language_is_refused_with_its_reason(steps: str, complaint: str) -> None:
    with pytest.raises(TranscriptError, match=complaint):
        perform_transcript(parse_transcript(f"# A story\n{steps}\n"))
