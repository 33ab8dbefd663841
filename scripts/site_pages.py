"""What MkDocs calls while ./scripts/site builds: links that leave the pages lead into the repository, the navigation
lists a folder by `folder/*`, and diagrams are drawn while it builds.
"""

from __future__ import annotations

import os
import posixpath
import re
import zlib
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<before>\]\()(?P<target>[^)\s#:]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r" *```")
INSIDE_A_LIST = re.compile(r" {2,3}(?=\S)")
MAIN = "main"


class Inclusion(Protocol):
    def is_included(self) -> bool: ...


class SourceFile(Protocol):
    src_uri: str
    inclusion: Inclusion


class SourcePage(Protocol):
    file: SourceFile


class SourceFiles(Protocol):
    def __iter__(self) -> Iterator[SourceFile]: ...


def version() -> str:
    """The branch or tag that the site is of."""
    return os.environ.get("FENCEPOST_SITE_VERSION", MAIN)


def versions() -> list[str]:
    """All branches and tags with a site, each in its folder beside the others."""
    return os.environ.get("FENCEPOST_SITE_VERSIONS", "").split()


def listed(nav: list[Any], docs: Path) -> list[Any]:
    """The navigation with the pages of a folder for each `folder/*`, without those that have a place of their own."""
    placed = {path for path in leaves(nav) if not path.endswith("/*")}

    def expanded(entries: list[Any]) -> Iterator[Any]:
        for entry in entries:
            if isinstance(entry, dict):
                yield {title: [*expanded(one)] if isinstance(one, list) else one for title, one in entry.items()}
            elif entry.endswith("/*"):
                pages = (path.relative_to(docs).as_posix() for path in sorted(docs.glob(f"{entry}.md")))
                yield from (page for page in pages if page not in placed)
            else:
                yield entry

    return [*expanded(nav)]


def leaves(entry: Any) -> Iterator[str]:
    if isinstance(entry, str):
        yield entry
    else:
        for one in entry.values() if isinstance(entry, dict) else entry:
            yield from leaves(one)


def into_the_repository(markdown: str, page: str, on_site: set[str], repository: str) -> str:
    """The text of `docs/PAGE` whose links to files of the checkout that are not on the site lead to `repository`.

    A link to what is nowhere stays, so that MkDocs complains about it.
    """

    def replace(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link["target"]))
        if path.removeprefix("docs/") in on_site or path.startswith("../") or not (ROOT / path).exists():
            return link[0]
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{link['before']}{repository}/{kind}/{version()}/{path}{link['anchor'] or ''}"

    return "\n".join(line if is_code else LINK.sub(replace, line) for line, is_code in _lines(markdown))


def as_python_markdown_reads(markdown: str) -> str:
    """Python-Markdown takes what is indented by four for content of a list, and reads no Markdown inside of HTML."""
    lines: list[str] = []
    further, is_block = "", False
    for line, is_code in _lines(markdown):
        if not is_code or FENCE.match(line):
            found = INSIDE_A_LIST.match(line)
            was_block, is_block = is_block, bool(found) and (is_block or is_code or not lines or not lines[-1])
            further = " " * (4 - len(found[0])) if found and is_block else ""
            if was_block and not is_block and line:
                lines.append("")
        shifted = further + line if line else line
        lines.append(shifted if is_code else shifted.replace("<details>", '<details markdown="1">'))
    return "\n".join(lines)


def _lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Each line, and whether it is of a block of code."""
    is_code = False
    for line in markdown.split("\n"):
        is_fence = FENCE.match(line) is not None
        yield line, is_code or is_fence
        is_code ^= is_fence


def drawn(source: str, *_: Any, **__: Any) -> str:
    """A Mermaid diagram as a picture in the page: else each reader's browser would fetch 3.5 MB of script."""
    import mermaidx  # of the site's own environment

    name = f"diagram-{zlib.crc32(source.encode()):08x}"
    picture: str = mermaidx.render(source).svg()
    return f'<div class="diagram">{picture.replace("my-svg", name)}</div>'


def on_config(config: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    fence = {"name": "mermaid", "class": "diagram", "format": drawn}
    config["mdx_configs"]["pymdownx.superfences"] = {"custom_fences": [fence]}
    config["nav"] = listed(config["nav"], Path(config["docs_dir"]))
    config["extra"] |= {"site_version": version(), "site_versions": versions()}
    return config


def on_page_markdown(
    markdown: str, *, page: SourcePage, config: MutableMapping[str, Any], files: SourceFiles, **_: Any
) -> str:
    on_site = {file.src_uri for file in files if file.inclusion.is_included()}
    markdown = as_python_markdown_reads(markdown)
    return into_the_repository(markdown, page.file.src_uri, on_site, config["repo_url"].rstrip("/"))
