"""Makes the pictures of docs/console.md: `python -m tests.console.pictures`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from tests.console.browsers import Scheme, chromium, opened
from tests.console.running import RunningConsole, options_for
from tests.console.world import broken_broker

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures" / "console"
PICTURES: Final[dict[str, tuple[str, Scheme, int]]] = {
    "overview": ("/", "light", 900),
    "stuck": ("/stuck/orders/0", "light", 760),
    "in-doubt": ("/in-doubt", "light", 560),
    "messages": ("/topics/orders/messages?partition=0&from=36", "light", 720),
    "time-travel": ("/topics/orders/0/time-travel?at=53", "dark", 760),
    "group": ("/group?id=billing", "dark", 640),
    "topic": ("/topics/orders", "light", 820),
}
"""By name: address, colours, and height."""


def take(browser: Browser, address: str, folder: Path) -> None:
    """Take all pictures into a folder."""
    for name, (shown, scheme, height) in PICTURES.items():
        with opened(browser, address, scheme=scheme, height=height) as page:
            page.goto(shown)
            page.wait_for_load_state("networkidle")
            page.screenshot(path=folder / f"{name}.png")


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as directory,
        chromium() as browser,
        broken_broker(Path(directory)) as (broker, http, _),
        RunningConsole(options_for(broker, broker_http=http)) as console,
    ):
        take(browser, console.address, FOLDER)


if __name__ == "__main__":
    main()
