"""docs/comparison.md: others are compared by sources, and Fencepost by its own pages and tests."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.docs.code_blocks import DOCS

PAGE = (DOCS / "comparison.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |^\[K1\]: |\Z)", PAGE, re.DOTALL | re.MULTILINE))
COMPARED = ("Brokers with disks of their own", "Brokers over an object store", "For tests")
BETTER = "When another is the better choice"
SOURCE = re.compile(r"\[([A-Z]\d)\](?![:(])")
ADDRESS = re.compile(r"^\[([A-Z]\d)\]: (https://\S+)$", re.MULTILINE)
OWN_LINK = re.compile(r"\]\((?!https?:)[^)]+\)")


def cells(section: str) -> Iterator[tuple[str, str, str]]:
    """Feature, system and text of each cell of a section's table."""
    head, _, *rows = [line.strip("|").split(" | ") for line in SECTIONS[section].splitlines() if line.startswith("|")]
    for feature, *texts in rows:
        assert len(texts) == len(head) - 1, feature
        yield from (
            (feature.strip(), system.strip(), text.strip()) for system, text in zip(head[1:], texts, strict=True)
        )


@pytest.mark.parametrize("section", COMPARED)
def test_each_claim_about_fencepost_links_a_page_or_a_test(section: str) -> None:
    own = [(feature, text) for feature, system, text in cells(section) if system.startswith("Fencepost")]
    assert own
    assert [feature for feature, text in own if not OWN_LINK.search(text)] == []


@pytest.mark.parametrize("section", COMPARED)
def test_each_claim_about_others_has_a_source(section: str) -> None:
    others = [cell for cell in cells(section) if not cell[1].startswith("Fencepost")]
    assert others
    assert [cell for cell in others if cell[2] != "not found" and not SOURCE.search(cell[2])] == []


def test_each_claim_about_others_has_a_source_where_they_are_the_better_choice() -> None:
    reasons = [(you_need, text) for you_need, column, text in cells(BETTER) if column == "why"]
    assert len(reasons) >= 9
    assert [you_need for you_need, text in reasons if not SOURCE.search(text)] == []


def test_each_line_for_fencepost_links_its_page() -> None:
    lines = [line for line in SECTIONS["When Fencepost is"].splitlines() if line.startswith("- ")]
    assert lines
    assert [line for line in lines if not OWN_LINK.search(line)] == []


def test_each_source_is_named_linked_and_used() -> None:
    addresses = [name for name, _ in ADDRESS.findall(PAGE)]
    named = SOURCE.findall(SECTIONS["Sources"])
    used = {name for section in (BETTER, *COMPARED) for name in SOURCE.findall(SECTIONS[section])}
    assert sorted(addresses) == sorted(named) == sorted(used)
    assert "30 November 2026" in SECTIONS["Sources"]


def test_others_are_named_before_fencepost() -> None:
    assert next(iter(SECTIONS)) == BETTER
