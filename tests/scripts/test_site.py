"""The site of docs/: whole without a server and without another host, and on a telephone; it says what the pages say.

Its links are checked here by a parser of their own; MkDocs, which makes them, checks them before.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pytest
from markdown_it import MarkdownIt
from playwright.sync_api import Browser, expect

from scripts.site_pages import as_python_markdown_reads, into_the_repository, listed
from tests.console.browsers import chromium, opened
from tests.docs.code_blocks import DOCS, ROOT

THEME = ROOT / "scripts" / "site_theme"
REPOSITORY = "https://git.example/fencepost"
FETCHES = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
BLOCKS = ("li", "table", "tr", "pre", "h1", "h2", "h3", "h4", "blockquote", "img", "ol", "ul")
TELEPHONE = 390


class Read(HTMLParser):
    """What a page of the site has: ids, links, what it fetches, and its blocks between `<article>` and its end."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.blocks: Counter[str] = Counter()
        self.is_article = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids |= {values[name] for name in ("id", "name") if name in values}
        self.is_article |= tag == "article"
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHES and FETCHES[tag] in values and values.get("rel") != "canonical":
            self.fetched.append(values[FETCHES[tag]])
        if self.is_article and tag in BLOCKS:
            self.blocks[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self.is_article &= tag != "article"


read = functools.cache(Read)


def build(*arguments: str | Path, folder: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(folder / "scripts" / "site"), *map(str, arguments)],
        env=os.environ | {"FENCEPOST_REPOSITORY": REPOSITORY} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    built = build(target)
    assert built.returncode == 0, built.stdout + built.stderr
    return target


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def pages_of(site: Path) -> list[Path]:
    """All but the page for an address that is not there: a server's, with links from its root."""
    return [path for path in sorted(site.rglob("*.html")) if path.name != "404.html"]


def dead_links(site: Path) -> list[str]:
    dead = []
    for page in pages_of(site):
        for link in read(page).links + read(page).fetched:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = read(target).ids if target.suffix == ".html" and target.is_file() else set()
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in anchors):
                dead.append(f"{page.relative_to(site)}: {link}")
    return dead


def address_of(page: Path) -> str:
    name = "index" if page.stem == "README" else page.stem
    return page.relative_to(DOCS).with_name(f"{name}.html").as_posix()


@pytest.mark.integration
def test_each_page_is_on_the_site_and_every_link_and_anchor_leads_somewhere(site: Path) -> None:
    pages = {path.relative_to(site).as_posix() for path in pages_of(site)}
    assert pages == {address_of(path) for path in DOCS.rglob("*.md")}
    assert sum(len(read(page).links) for page in pages_of(site)) > 1000
    assert dead_links(site) == []


@pytest.mark.integration
def test_links_that_leave_the_pages_lead_to_files_of_the_repository(site: Path) -> None:
    begin = f"{REPOSITORY}/"
    links = {link for page in pages_of(site) for link in read(page).links if link.startswith(begin)}
    found = [
        re.fullmatch(r"(?:blob|tree)/main/([^#]+)(?:#.*)?", link.removeprefix(begin)) for link in links - {REPOSITORY}
    ]
    assert all(one is not None and (ROOT / one[1]).exists() for one in found)
    assert f"{begin}blob/main/CONTRIBUTING.md" in links
    assert f"{begin}blob/main/docs/examples/testing_java/ivy.xml" in links


@pytest.mark.integration
def test_no_page_and_no_stylesheet_fetches_anything_from_another_host(site: Path) -> None:
    fetched = {one for page in site.rglob("*.html") for one in read(page).fetched}
    assert {one for one in fetched if urlsplit(one).scheme not in ("", "data") or one.startswith("//")} == set()
    for sheet in site.rglob("*.css"):
        named = re.findall(r"(?:url\(|@import )[\"']?(\S{4,60})", sheet.read_text(encoding="utf-8"))
        assert [one for one in named if re.match(r"(https?:)?//", one)] == [], sheet


@pytest.mark.integration
def test_a_page_has_the_blocks_that_its_markdown_has_for_other_readers(site: Path) -> None:
    """MkDocs reads another dialect than GitHub: lists and code inside of lists are where they differ."""
    gfm = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    for source in sorted(DOCS.rglob("*.md")):
        text = re.sub(r"^```mermaid$.*?^```$", "", source.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        expected = Counter(re.findall(rf"<({'|'.join(BLOCKS)})\b", gfm.render(text)))
        assert read(site / address_of(source)).blocks == expected, source


@pytest.mark.integration
def test_words_are_found_from_a_disk(site: Path, browser: Browser) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    assert {entry["location"].partition("#")[0] for entry in index["docs"]} == {
        address_of(path) for path in DOCS.rglob("*.md")
    }
    with opened(browser, site.as_uri()) as page:
        page.goto(f"{site.as_uri()}/index.html")
        page.locator("[data-md-component=search-query]").fill("PrepareCommit")
        expect(page.locator(".md-search-result__link[href*='transactions.html']").first).to_be_attached()


@pytest.mark.integration
def test_no_page_is_wider_than_a_telephone_or_asks_another_host(site: Path, browser: Browser) -> None:
    wide = []
    with opened(browser, site.as_uri(), width=TELEPHONE) as page:
        for path in pages_of(site):
            page.goto(path.as_uri())
            width = page.evaluate("document.documentElement.scrollWidth")
            if width > TELEPHONE:
                wide.append((path.relative_to(site).as_posix(), width))
    assert wide == []


@pytest.mark.integration
@pytest.mark.parametrize(("preferred", "chosen", "button"), [("light", "slate", "Dark"), ("dark", "default", "Light")])
def test_colours_are_those_that_the_reader_prefers_until_a_button_changes_them(
    site: Path, browser: Browser, preferred: Literal["light", "dark"], chosen: str, button: str
) -> None:
    with opened(browser, site.as_uri(), scheme=preferred) as page:
        page.goto((site / "configuration.html").as_uri())
        expect(page.locator("body")).not_to_have_attribute("data-md-color-scheme", chosen)
        page.get_by_title(f"{button} colours").click()
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", chosen)
        page.goto((site / "spark.html").as_uri())
        expect(page.locator("body")).to_have_attribute("data-md-color-scheme", chosen)


SMALL = {
    "index.md": "# Pages\n\n[Java](clients/java.md#start)\n",
    "clients/java.md": "# Java\n\n## Start\n\nA client.\n",
}


def small_checkout(folder: Path, **pages: str) -> Path:
    """A checkout with what builds the site, and few pages."""
    for name in ("scripts/site", "scripts/site_pages.py", "scripts/site_theme", "requirements/site.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    (folder / "mkdocs.yml").write_text(f"{settings}\nnav: [index.md, clients/*]\n", encoding="utf-8")
    for name, text in (SMALL | pages).items():
        (folder / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "docs" / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--al", "sites"), "--al is not known: give nothing, a folder, or --all and a folder"),
        (("--all",), "--all takes one folder"),
        (("one", "two"), "2 folders: one at most"),
    ],
)
def test_wrong_arguments_are_refused(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    built = build(*arguments, folder=small_checkout(tmp_path))
    assert built.returncode == 2
    assert says in built.stderr


def test_a_folder_with_other_files_is_refused_and_keeps_them(tmp_path: Path) -> None:
    checkout, full = small_checkout(tmp_path / "checkout"), tmp_path / "full"
    full.mkdir()
    (full / "letters.txt").write_text("Dear", encoding="utf-8")
    built = build(full, folder=checkout)
    assert built.returncode == 2
    assert "has other files, which would be deleted" in built.stderr
    assert [path.name for path in full.iterdir()] == ["letters.txt"]


def test_a_folder_that_cannot_be_written_and_a_python_that_is_too_old_are_named(tmp_path: Path) -> None:
    checkout = small_checkout(tmp_path / "checkout")
    (tmp_path / "file").touch()
    assert "cannot write to" in build(tmp_path / "file" / "site", folder=checkout).stderr
    without = {"FENCEPOST_PYTHON": "false", "FENCEPOST_SITE_TOOLS": str(tmp_path)}
    assert "is not Python 3.11 or later" in build(tmp_path / "site", folder=checkout, **without).stderr


@pytest.mark.integration
def test_a_second_run_from_elsewhere_replaces_the_site_of_the_first(tmp_path: Path) -> None:
    checkout = small_checkout(tmp_path / "a checkout")
    for _ in range(2):
        built = subprocess.run(
            [checkout / "scripts" / "site", "site"],
            env=os.environ | {"FENCEPOST_SITE_TOOLS": str(ROOT / ".cache")},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert built.returncode == 0, built.stdout + built.stderr
        assert (tmp_path / "site" / "index.html").exists()
        assert not (tmp_path / "site" / "gone.html").exists()
        (tmp_path / "site" / "gone.html").touch()
    assert not (checkout / "site").exists()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        ({"index.md": "# Pages\n\n[gone](nowhere.md)\n"}, "nowhere.md"),
        ({"index.md": "# Pages\n\n[gone](clients/java.md#nowhere)\n"}, "nowhere"),
        ({"index.md": "# Pages\n\n[gone](#nowhere)\n"}, "nowhere"),
        ({"left-out.md": "# Not in the navigation\n\nText.\n"}, "left-out.md"),
    ],
)
def test_a_dead_link_or_anchor_and_a_page_without_a_place_are_errors(
    tmp_path: Path, broken: dict[str, str], complaint: str
) -> None:
    checkout = small_checkout(tmp_path / "checkout", **broken)
    built = build(tmp_path / "site", folder=checkout, FENCEPOST_SITE_TOOLS=str(ROOT / ".cache"))
    assert built.returncode == 1
    assert complaint in built.stdout + built.stderr


# Stands for python, pip and MkDocs; an environment is made once.
FAKE_PYTHON = """#!/usr/bin/env bash
set -eu
case "$0 $*" in
    */fake-python" -m venv --clear "*)
        mkdir "$4"
        mkdir "$4/bin"
        for name in pip mkdocs; do cp "$0" "$4/bin/$name"; done ;;
    */mkdocs*) [ -f "$(dirname "$0")/../.made" ] ;;
esac
"""


def test_builds_that_start_together_make_one_environment(tmp_path: Path) -> None:
    checkout, python = small_checkout(tmp_path / "checkout"), tmp_path / "fake-python"
    python.write_text(FAKE_PYTHON)
    python.chmod(0o755)
    environment = {"FENCEPOST_SITE_TOOLS": str(tmp_path / "tools"), "FENCEPOST_PYTHON": str(python)}
    with ThreadPoolExecutor(8) as threads:
        built = list(
            threads.map(lambda number: build(tmp_path / f"{number}", folder=checkout, **environment), range(8))
        )
    assert [(one.returncode, one.stderr) for one in built] == [(0, "")] * 8


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=folder, check=True)


@pytest.mark.integration
def test_each_release_has_a_folder_and_lists_all_others_without_a_server(tmp_path: Path, browser: Browser) -> None:
    checkout, sites = small_checkout(tmp_path / "checkout"), tmp_path / "sites"
    git(checkout, "init", "--quiet", "--initial-branch=main")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=Before the site")
    git(checkout, "tag", "v0.1.0")
    git(checkout, "add", ".")
    git(checkout, "commit", "--quiet", "--message=The site")
    git(checkout, "tag", "v0.2.0")
    git(checkout, "tag", "v0.10.0")
    built = build("--all", sites, folder=checkout, FENCEPOST_SITE_TOOLS=str(ROOT / ".cache"))
    assert built.returncode == 0, built.stdout + built.stderr
    assert {path.name for path in sites.iterdir()} == {"index.html", "main", "v0.2.0", "v0.10.0"}
    assert "url=v0.10.0/index.html" in (sites / "index.html").read_text(encoding="utf-8")
    assert dead_links(sites) == []
    with opened(browser, sites.as_uri()) as page:
        page.goto(f"{sites.as_uri()}/v0.2.0/clients/java.html")
        menu = page.get_by_label("Versions")
        menu.get_by_text("Version: v0.2.0").click()
        assert menu.get_by_role("link").all_inner_texts() == ["main", "v0.10.0", "v0.2.0"]
        menu.get_by_role("link", name="v0.10.0").click()
        page.wait_for_url(f"{sites.as_uri()}/v0.10.0/index.html")


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("[x](../../README.md#try)", f"[x]({REPOSITORY}/blob/main/README.md#try)"),
        ("[x](../../tests/compat)", f"[x]({REPOSITORY}/tree/main/tests/compat)"),
        ("[x](../examples/testing_java/ivy.xml)", f"[x]({REPOSITORY}/blob/main/docs/examples/testing_java/ivy.xml)"),
        ("[x](java.md#start)", "[x](java.md#start)"),
        ("[x](https://kafka.apache.org/)", "[x](https://kafka.apache.org/)"),
        ("[x](../../nowhere.md)", "[x](../../nowhere.md)"),
        ("[x](../../../elsewhere.md)", "[x](../../../elsewhere.md)"),
        ("```md\n[x](../../README.md)\n```", "```md\n[x](../../README.md)\n```"),
    ],
)
def test_only_links_to_files_that_are_not_on_the_site_lead_to_the_repository(link: str, expected: str) -> None:
    assert into_the_repository(link, "clients/go.md", {"clients/java.md"}, REPOSITORY) == expected


def test_a_folder_in_the_navigation_stands_for_its_pages_that_have_no_place_of_their_own(tmp_path: Path) -> None:
    small_checkout(tmp_path, **{"clients/go.md": "# Go\n", "clients/flink.md": "# Flink\n"})
    nav = ["index.md", {"Clients": ["clients/*"]}, {"Streams": [{"Flink": "clients/flink.md"}]}]
    assert listed(nav, tmp_path / "docs") == [
        "index.md",
        {"Clients": ["clients/go.md", "clients/java.md"]},
        {"Streams": [{"Flink": "clients/flink.md"}]},
    ]


def test_what_is_of_others_is_what_it_says() -> None:
    (name, noted), *others = json.loads((THEME / "javascripts" / "vendor.json").read_text(encoding="utf-8")).items()
    assert not others
    assert hashlib.sha256((THEME / "javascripts" / name).read_bytes()).hexdigest() == noted["sha256"]
    assert "Permission is hereby granted" in (THEME / "javascripts" / "LICENSE").read_text(encoding="utf-8")


def test_what_stands_in_a_list_is_indented_as_python_markdown_wants_it() -> None:
    text = (
        "1. one\n\n   ```sh\n   a\n     b\n   ```\n\n- two\n  goes on\n\n  more\n  lines\n- three\n\n```py\n  c\n```\n"
    )
    assert as_python_markdown_reads(text) == (
        "1. one\n\n    ```sh\n    a\n      b\n    ```\n\n"
        "- two\n  goes on\n\n    more\n    lines\n\n- three\n\n```py\n  c\n```\n"
    )
