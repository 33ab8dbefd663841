"""A console in a thread, and what a browser without JavaScript does with it."""

from __future__ import annotations

import json
import re
import threading
import time
from html import unescape
from typing import Any, Self

import httpx
import uvicorn

from fencepost.console.options import ConsoleOptions
from fencepost.console.web.app import make_app
from tests.support.broker_process import BrokerProcess


class RunningConsole:
    """A console in a thread, on a port of its own."""

    def __init__(self, options: ConsoleOptions, port: int = 0) -> None:
        self.bootstrap = options.bootstrap
        self.app = make_app(options)
        readers = self.app.state.console.readers
        # What a test has just done is on the next page, however busy the machine is.
        readers.fresh_s, readers.patience_s = 0, 30
        config = uvicorn.Config(self.app, host="127.0.0.1", port=port, log_level="warning", lifespan="on")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        deadline_s = time.monotonic() + 60
        while not self._server.started:
            assert time.monotonic() < deadline_s, "the console did not start"
            time.sleep(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    @property
    def address(self) -> str:
        port: int = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, headers={"Accept": "text/html"}, follow_redirects=True, timeout=60)


def options_for(broker: BrokerProcess, **changes: object) -> ConsoleOptions:
    return ConsoleOptions(bootstrap=((broker.host, broker.port),), **changes)  # type: ignore[arg-type]


def csrf_in(page: str) -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', page)
    assert found, "the page has no form"
    return found[1]


def text_of(page: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", page)).split())


def get_json(browser: httpx.Client, address: str) -> dict[str, Any]:
    answer = browser.get(address, headers={"Accept": "application/json"})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = json.loads(answer.text)
    return found


REASON = "its service is gone"


def hidden_fields(page: str) -> dict[str, str]:
    """The hidden fields of the form that confirms a change."""
    form = page[page.index('<form class="confirm"') :]
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', form)
    return {unescape(name): unescape(value) for name, value in found}


def look(browser: httpx.Client, kind: str, **fields: str) -> dict[str, str]:
    """Look at a change, and return the form that confirms it, without what a person adds."""
    shown = browser.post(f"/change/{kind}", data={"csrf": csrf_in(browser.get("/topics").text), **fields})
    assert shown.status_code == 200, text_of(shown.text)
    return hidden_fields(shown.text)


def change(browser: httpx.Client, kind: str, typed: str, **fields: str) -> httpx.Response:
    """Carry out a change as a person does: look at it first, then give a reason and type the name."""
    shown = browser.post(f"/change/{kind}", data={"csrf": csrf_in(browser.get("/topics").text), **fields})
    assert shown.status_code == 200, text_of(shown.text)
    assert f"type {typed}" in text_of(shown.text)
    return browser.post(f"/change/{kind}", data={**hidden_fields(shown.text), "reason": REASON, "typed_name": typed})


def eventually(browser: httpx.Client, address: str, text: str) -> str:
    """Read a page until it has a text: markers are written after the client knows of the outcome."""
    deadline_s = time.monotonic() + 60
    while text not in (page := text_of(browser.get(address).text)):
        assert time.monotonic() < deadline_s, f"{text!r} never was on {address}: {page}"
        time.sleep(0.05)
    return page
