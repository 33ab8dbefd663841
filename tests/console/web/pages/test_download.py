"""Records of a topic as lines of JSON, which say how they ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.web.pages import download
from tests.console.running import RunningConsole, options_for
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until
from tests.support.stable_offsets import until_stable

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with RunningConsole(options_for(broker)) as running:
        yield running


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.browser() as client:
        yield client


@pytest.fixture(scope="module")
def topic(broker: BrokerProcess) -> str:
    """300 records over three partitions, one of them of bytes that are no text; and 30 aborted ones."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("kept", 3, 1)])["kept"].result(60)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "kept"})
    producer.init_transactions(60)
    for outcome, numbers in (("commit", range(300)), ("abort", range(300, 330))):
        producer.begin_transaction()
        for number in numbers:
            value = b"\xff\x00" if number == 7 else json.dumps({"id": number}).encode()
            producer.produce("kept", value, f"k{number}", partition=number % 3, headers={"n": b"\xfe"})
        producer.flush(60)
        producer.commit_transaction(60) if outcome == "commit" else producer.abort_transaction(60)
    until_stable({"bootstrap.servers": broker.bootstrap}, "kept", 3)
    return "kept"


def lines_of(browser: httpx.Client, address: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    answer = browser.get(address)
    assert answer.status_code == 200
    assert "attachment" in answer.headers["content-disposition"]
    *lines, last = [json.loads(line) for line in answer.text.splitlines()]
    return lines, last["end"]


def test_all_of_it_comes_in_order_and_the_last_line_says_so(browser: httpx.Client, topic: str) -> None:
    lines, end = lines_of(browser, f"/topics/{topic}/download?stands=committed")
    assert [one["key"] for one in lines if one["partition"] == 1] == [f"k{number}" for number in range(1, 300, 3)]
    assert len(lines) == end["records"] == 300
    assert (end["complete"], end["reasons"], end["at"]) == (True, [], None)
    assert end["looked_at"] >= 300
    assert end["read_bytes"] > 0


def test_filters_hold_for_a_download(browser: httpx.Client, topic: str) -> None:
    lines, end = lines_of(browser, f"/topics/{topic}/download?field=id&op=%3E&operand=297&stands=committed")
    assert [json.loads(one["value"])["id"] for one in lines] == [298, 299]
    assert end["complete"]


def test_records_are_written_with_all_their_bytes_and_only_committed_ones(browser: httpx.Client, topic: str) -> None:
    lines, _ = lines_of(browser, f"/topics/{topic}/download?as=records")
    assert len(lines) == 300
    [odd] = [one for one in lines if one["key"] == "k7"]
    assert odd["value"] == {"base64": "/wA="}
    assert odd["headers"] == [["n", {"base64": "/g=="}]]
    shown, _ = lines_of(browser, f"/topics/{topic}/download?as=shown")
    assert {one["stands"] for one in shown} == {"committed", "aborted", "marker"}
    assert [one["value"] for one in shown if one.get("key") == "k7"] == ["ff 00"]


def test_a_download_that_reaches_a_bound_says_where_it_stopped(
    browser: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "MOST_RECORDS", 120)
    lines, end = lines_of(browser, f"/topics/{topic}/download?stands=committed")
    assert not end["complete"]
    assert end["reasons"] == ["120 records were looked at"]
    monkeypatch.undo()
    rest, end = lines_of(browser, f"/topics/{topic}/download?stands=committed&at={end['at']}")
    assert end["complete"]
    assert sorted(one["key"] for one in lines + rest) == sorted(f"k{number}" for number in range(300))


def test_a_download_for_nobody_ends(
    console: RunningConsole, browser: httpx.Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "RECORDS_AT_ONCE", 1)
    browser.get("/")
    [session] = [
        found
        for one in console.app.state.console.sessions._browsers.values()
        if one.token == browser.cookies["fencepost_console"]
        for found in one.sessions.values()
    ]

    async def slowly(*_: object) -> list[object]:
        await asyncio.sleep(0.05)
        return []

    monkeypatch.setattr(download, "hits_in", slowly)
    with browser.stream("GET", f"/topics/{topic}/download"):
        until(lambda: session.downloads == 1, timeout_s=30)
    until(lambda: session.downloads == 0, timeout_s=30)
