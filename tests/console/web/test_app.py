"""The console's application: failures, forms and hosts."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fencepost.client.cluster import Cluster
from fencepost.console.options import ConsoleOptions
from fencepost.console.web.pages import overview
from tests.console.running import RunningConsole


def test_an_unexpected_failure_is_logged_and_shown_without_details(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(overview, "SHOWN", None)
    broken = ConsoleOptions(bootstrap=(("127.0.0.1", 1),))

    async def view(*_: Any) -> Any:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(Cluster, "view", view)
    with RunningConsole(broken) as console, console.browser() as browser, caplog.at_level(logging.ERROR):
        answer = browser.get("/")
    assert answer.status_code == 500
    assert "The console itself failed" in answer.text
    assert "secret detail" not in answer.text
    assert answer.headers["content-security-policy"]
    assert "secret detail" in caplog.text


def test_a_form_that_is_too_large_is_refused() -> None:
    options = ConsoleOptions(bootstrap=(("127.0.0.1", 1),))
    with RunningConsole(options) as console, console.browser() as browser:
        browser.get("/")
        answer = browser.post("/change/produce-record", content=b"x" * (2 << 20))
    assert answer.status_code == 422
    assert "at most 1,048,576 bytes" in answer.text


@pytest.mark.parametrize("back", ["//evil.example", "/\\evil.example", "https://evil.example", "/topics"])
def test_the_choice_of_colours_leads_back_and_nowhere_else(back: str) -> None:
    options = ConsoleOptions(bootstrap=(("127.0.0.1", 1),))
    with RunningConsole(options) as console, console.browser() as browser:
        answer = browser.get("/theme", params={"to": "dark", "back": back}, follow_redirects=False)
    assert answer.headers["location"] == ("/topics" if back == "/topics" else "/")
