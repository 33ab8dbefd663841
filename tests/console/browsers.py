"""Chromium, driven by Playwright; the system's, nothing is downloaded."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Dialog, Page, expect, sync_playwright

from tests.support.missing_tools import missing

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
AXE = Path(__file__).parent / "axe" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
Scheme = Literal["light", "dark"]
WIDTH = 1280
TIMEOUT_MS = 60_000
"""Of every step and every expectation: what a busy machine may take."""

expect.set_options(timeout=TIMEOUT_MS)


def executable() -> str:
    """The path of Chromium. Without one the test is skipped; in CI it fails."""
    found = os.environ.get("FENCEPOST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        missing("there is no Chromium: .ci/run installs it")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    path = executable()
    with sync_playwright() as playwright:
        # Containers have no user namespaces for the sandbox, and the pages are ours.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Browser,
    address: str,
    *,
    scheme: Scheme = "light",
    scripts: bool = True,
    height: int = 800,
    width: int = WIDTH,
) -> Iterator[Page]:
    """A page of a new session. It fails for what pages must not do: errors, violations of the policy, dialogs, and
    requests to anywhere else.

    Keys have an effect once a page's script has run: after `goto` or `wait_for_url`, not as soon as `expect` sees the
    address.
    """
    context = browser.new_context(
        base_url=address,
        color_scheme=scheme,
        java_script_enabled=scripts,
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
    )
    wrong: list[str] = []

    def refuse(dialog: Dialog) -> None:
        wrong.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    page = context.new_page()
    page.set_default_timeout(TIMEOUT_MS)
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("dialog", refuse)
    page.on("request", lambda sent: None if sent.url.startswith(address) else wrong.append(f"asks {sent.url}"))
    try:
        yield page
        # What the answer of a page is has its own tests; Chromium calls every 4xx and 5xx an error.
        assert not [one for one in wrong if "the server responded with a status of" not in one]
    finally:
        context.close()


def violations(page: Page, *, only_colours: bool = False) -> list[str]:
    """What axe-core finds, each with where."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    kind, values = ("rule", ["color-contrast"]) if only_colours else ("tag", RULES)
    chosen = json.dumps({"runOnly": {"type": kind, "values": values}, "resultTypes": ["violations"]})
    found: dict[str, Any] = page.evaluate(f"() => axe.run(document, {chosen})")
    return [
        f"{page.url}: {one['id']}: {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]
