"""The site's navigation has a place for every page."""

from __future__ import annotations

from collections import Counter

import yaml

from scripts.site_pages import leaves, listed
from tests.docs.code_blocks import DOCS, ROOT


def test_every_page_has_one_place_in_the_navigation_of_the_site() -> None:
    """Write it into mkdocs.yml; a decision has its place by its folder."""
    _, begin, nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    placed = Counter(leaves(listed(yaml.safe_load(begin + nav)["nav"], DOCS)))
    assert placed == Counter(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
