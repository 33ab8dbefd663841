"""Each page that installs Fencepost says on that page what to type as long as there is no release."""

from __future__ import annotations

import re

import pytest

from tests.docs.code_blocks import ROOT, pages

INSTALLS = re.compile(r"pip install (?:--upgrade )?'?fencepost\b(\[[\w,-]+\])?")
CHECKOUT = re.compile(r"pip install (?:--upgrade )?'?\.(\[[\w,-]+\])?(?=['` \n])")
IMAGE = re.compile(
    r"docker pull |docker run (?:[^`\n]|\\\n)*\bfencepost|^ *image: \S*fencepost|ghcr\.io/\S*fencepost", re.MULTILINE
)
PROGRAM = re.compile(r"fencepost-\d+\.\d+\.\d+-linux")
FOR_MAINTAINERS = "docs/releasing.md"
"""It is about a release."""
TEXTS = {
    name: page.read_text("utf-8") for page in pages() if (name := page.relative_to(ROOT).as_posix()) != FOR_MAINTAINERS
}


def missing(text: str) -> list[str]:
    """What a reader without a release cannot do by this page."""
    said = set(CHECKOUT.findall(text))
    found = [f"pip install '.{extras}'" for extras in sorted(set(INSTALLS.findall(text)) - said)]
    if IMAGE.search(text) and "docker build -f docker/" not in text:
        found.append("docker build -f docker/Dockerfile")
    if PROGRAM.search(text) and "./scripts/release --dry-run" not in text:
        found.append("./scripts/release --dry-run")
    if INSTALLS.search(text) and not re.search(r"[Uu]ntil\s+(Fencepost|it)\s+is\s+on\s+PyPI", text):
        found.append("until Fencepost is on PyPI")
    return found


def test_each_page_that_needs_a_release_says_what_to_type_before_there_is_one() -> None:
    assert {name: lacks for name, text in TEXTS.items() if (lacks := missing(text))} == {}


@pytest.mark.parametrize("pattern", [INSTALLS, IMAGE, PROGRAM])
def test_there_are_such_pages(pattern: re.Pattern[str]) -> None:
    assert [name for name, text in TEXTS.items() if pattern.search(text)]


def test_a_page_without_its_other_way_is_found() -> None:
    assert missing("pip install fencepost") == ["pip install '.'", "until Fencepost is on PyPI"]
    both = "`pip install 'fencepost[http]'`, `pip install fencepost`. Until it is on PyPI: `pip install .`"
    assert missing(both) == ["pip install '.[http]'"]
    assert missing("docker run -p 1:1 \\\n  fencepost") == ["docker build -f docker/Dockerfile"]
    assert missing("install fencepost-1.2.3-linux-x86_64 /usr/local/bin") == ["./scripts/release --dry-run"]
