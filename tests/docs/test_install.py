"""A page that installs Fencepost says what to type as long as there is no release."""

from __future__ import annotations

import re

from tests.docs.code_blocks import ROOT, pages

INSTALLS = re.compile(r"pip install '?fencepost\b")
GENERATED = ("docs/command-line.md", "docs/configuration.md")
"""Their text is that of options and settings, which stay when there is a release."""


def test_each_page_that_installs_it_says_what_to_type_before_there_is_a_release() -> None:
    texts = {page.relative_to(ROOT).as_posix(): page.read_text("utf-8") for page in pages()}
    silent = [
        name
        for name, text in texts.items()
        if name not in GENERATED
        and INSTALLS.search(text)
        and not re.search(r"[Uu]ntil\s+(Fencepost|it)\s+is\s+on\s+PyPI", text)
    ]
    assert silent == []
