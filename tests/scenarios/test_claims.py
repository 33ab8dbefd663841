"""The list of claims and the transcripts that show them say the same."""

from __future__ import annotations

import re
from pathlib import Path

from tests.scenarios.runner.transcript import parse_transcript

FOLDER = Path(__file__).parent / "claims"
ROW = re.compile(r"^\| (?P<claim>.+?) \| (?P<here>.+?) \| (?P<transcripts>\[.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^]]+)\]\(([^)]+)\)")


def rows() -> list[tuple[str, list[str]]]:
    """Claims as they are listed, each with its transcripts, by their paths below the folder."""
    found = []
    for row in ROW.finditer((FOLDER / "README.md").read_text(encoding="utf-8")):
        links = LINK.findall(row["transcripts"])
        assert all(path == f"{name}.txt" for name, path in links), row["claim"]
        found.append((row["claim"], [path for _, path in links]))
    return found


def test_every_row_of_the_list_is_read() -> None:
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(rows()) == sum(line.startswith("| ") for line in lines) - 1  # the first is the heading


def test_no_claim_is_listed_twice() -> None:
    claims = [claim for claim, _ in rows()]
    assert len(set(claims)) == len(claims)


def test_list_and_transcripts_name_the_same_claims() -> None:
    listed = {(path, claim) for claim, paths in rows() for path in paths}
    shown = {
        (path.relative_to(FOLDER).as_posix(), claim)
        for path in FOLDER.rglob("*.txt")
        for claim in parse_transcript(path.read_text(encoding="utf-8")).claims
    }
    assert listed == shown


def test_every_transcript_shows_a_claim_and_says_what_it_is_about() -> None:
    for path in FOLDER.rglob("*.txt"):
        transcript = parse_transcript(path.read_text(encoding="utf-8"))
        assert transcript.claims, path
        assert transcript.title, path
