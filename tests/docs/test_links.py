"""Every link of README and docs leads to a page, a section, a file, a test or a picture that is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.code_blocks import DOCS, ROOT

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
FENCED = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
TEST = re.compile(r"\[`(test_\w+)`\]\(([^)\s]+\.py)\)")
EVIDENCE = "How this is tested"
EVIDENCE_ROW = re.compile(r"^\| \[[^]]*\]\(#([\w-]+)\) \| (?P<claim>.+) \| (?P<evidence>\[.+\)) \|$", re.MULTILINE)
CLAIMING = (
    "README",
    "docs/cluster",
    "docs/cluster-appendix",
    "docs/comparison",
    "docs/console",
    "docs/console-access",
    "docs/security",
    "docs/spark",
    "docs/testing",
    "docs/two-phase",
    "docs/two-phase-appendix",
    "docs/two-phase-operating",
    "docs/two-phase-table",
)
"""The pages that promise most: each ends with a table of the tests, figures and limits behind its sections."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
    *sorted((ROOT / "tests").rglob("*.md")),
]


@cache
def prose(path: Path) -> str:
    """A page without its code blocks, which may show brackets and hashes of their own."""
    return FENCED.sub("", path.read_text(encoding="utf-8"))


def anchor(heading: str) -> str:
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(anchor(heading) for heading in HEADING.findall(prose(path)))


def links(path: Path) -> list[tuple[Path, str]]:
    """File and anchor of every relative link of a page."""
    found = []
    for target in LINK.findall(prose(path)):
        if not re.match(r"[a-z]+:", target):
            name, _, section = target.partition("#")
            found.append(((path.parent / name).resolve() if name else path, section))
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    dead = []
    for target, section in links(path):
        if not target.exists() or (section and section not in anchors(target)):
            dead.append(f"{target.relative_to(ROOT)}#{section}")
    assert not dead


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_a_page_names_is_in_the_file_that_it_links(path: Path) -> None:
    missing = []
    for name, target in TEST.findall(prose(path)):
        file = path.parent / target
        if name != file.stem and not re.search(rf"^ *(async )?def {name}\(", file.read_text("utf-8"), re.MULTILINE):
            missing.append(f"{target}: {name}")
    assert missing == []


@pytest.mark.parametrize("name", CLAIMING)
def test_each_section_of_a_page_that_promises_much_has_a_test_a_figure_or_a_limit(name: str) -> None:
    text = prose(ROOT / f"{name}.md")
    sections = [anchor(heading) for heading in re.findall(r"^## (.+)$", text, re.MULTILINE)]
    table = text.partition(f"\n## {EVIDENCE}\n")[2].partition("\n## ")[0]
    rows = EVIDENCE_ROW.findall(table)
    assert len(rows) == table.count("\n|") - 2, "each row has a section, a claim and links"
    shown = {section for section, *_ in rows}
    assert shown <= set(sections)
    assert set(sections) - shown <= {anchor(EVIDENCE), "read-on", "it-is-not"}


def test_the_part_of_the_changelog_that_the_upgrade_page_names_is_there() -> None:
    (part,) = re.findall(r'CHANGELOG\.md\) for the versions in between, "(.+)" above all', prose(DOCS / "upgrade.md"))
    assert f"\n### {part}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_page_can_be_reached_from_the_index_in_one_step() -> None:
    reached = {target for target, _ in links(DOCS / "index.md")}
    missing = {path for path in DOCS.rglob("*.md") if path.name != "index.md"} - reached
    assert not missing


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: str(path.relative_to(DOCS)))
def test_a_page_opens_with_words_for_its_reader(path: Path) -> None:
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("<!--")]
    assert lines[0].startswith("# ")
    assert not lines[1].startswith(("#", "|", "-", "!", "<", "Generated")), "a page opens with what it is for"


@pytest.mark.parametrize(
    ("heading", "expected"),
    [
        ("Looking closer, and keeping clients within bounds", "looking-closer-and-keeping-clients-within-bounds"),
        ("`fencepost serve`", "fencepost-serve"),
        ("See [decision 4](x.md)", "see-decision-4"),
    ],
)
def test_an_anchor_is_made_as_on_github(heading: str, expected: str) -> None:
    assert anchor(heading) == expected
