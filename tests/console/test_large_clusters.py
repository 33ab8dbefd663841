"""Pages at 50,000 partitions and 2,000 groups: each is bounded, and many people cost as much as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from fencepost.console.options import ConsoleOptions
from fencepost.console.reading.sharing import FRESH_S, PATIENCE_S, StillReadingError
from fencepost.console.web.pages import overview
from fencepost.console.words import NONE
from tests.console.running import RunningConsole, get_json, text_of
from tests.console.simulated import SimulatedCluster, large

PAGES = (
    "/",
    "/topics",
    "/topics?sort=-records&internal=yes",
    "/topics/wide",
    "/topics/wide?sort=-behind&page=7",
    "/groups",
    "/groups?sort=-waits&topic=wide&state=Stable",
    "/group?id=group-0",
    "/producers",
    "/producers?topic=wide",
    "/transactions",
    "/stuck",
    "/search?q=topic",
    "/connections",
)


LOOKED_AT = ("/", "/topics/wide", "/groups")


@contextmanager
def console_of(cluster: SimulatedCluster, fresh_s: float = FRESH_S) -> Iterator[RunningConsole]:
    running = RunningConsole(ConsoleOptions(bootstrap=(("simulated", 9092),)))
    console = running.app.state.console
    console.only_cluster.shared.close()
    console.only_cluster.shared = cluster
    console.readers.fresh_s = fresh_s
    with running:
        yield running


@pytest.fixture(scope="module")
def console() -> Iterator[RunningConsole]:
    cluster = large()
    cluster.stable = {"wide": 4}
    with console_of(cluster, 3_600) as running:
        yield running


@pytest.mark.parametrize("address", PAGES)
def test_no_page_lists_thousands(console: RunningConsole, address: str) -> None:
    with console.browser() as browser:
        page = browser.get(address)
        assert page.status_code == 200, text_of(page.text)
        assert len(page.content) < 150_000
        for tag, most in (("<tr", 150), ("<option", 30), ("<li", 160), ("<polyline", 500)):
            assert page.text.count(tag) <= most, tag
        assert len(browser.get(address, headers={"Accept": "application/json"}).content) < 300_000


def test_pages_say_how_many_they_left_out(console: RunningConsole) -> None:
    with console.browser() as browser:
        assert "All 4,000" in text_of(browser.get("/search?q=topic").text)
        assert "All 10,000" in text_of(browser.get("/").text)
        assert "10,000" in text_of(browser.get("/topics/wide").text)
        assert "only the first 2,000 of 10,000 partitions were asked" in text_of(browser.get("/topics/wide").text)
        assert "48,000 partitions were not asked" in text_of(browser.get("/producers").text)
        stuck = text_of(browser.get("/stuck").text)
        assert "Who holds 9,500 partitions with few waiting offsets was not asked" in stuck


def test_lag_of_all_groups_is_one_table_that_is_sorted_and_filtered_as_a_whole(console: RunningConsole) -> None:
    with console.browser() as browser:
        whole = get_json(browser, "/groups?sort=-end")["listing"]
        assert (whole["total"], whole["pages"], len(whole["rows"])) == (2_000, 40, 50)
        lags = [row["lag"]["end"] for row in whole["rows"]]
        assert lags == sorted(lags, reverse=True)
        of_topic = get_json(browser, "/groups?topic=TOPIC-0001&sort=-end")["listing"]
        assert 0 < of_topic["total"] < 2_000
        assert {row["lag"]["end"] for row in of_topic["rows"]} == {100}
        assert get_json(browser, "/groups?state=Dead")["listing"]["total"] == 0


def asked_by(people: int) -> Counter[str]:
    """The requests of that many people who each look at all pages, and once more."""
    cluster = large()

    def look(_: int) -> int:
        with running.browser() as browser:
            return sum(browser.get(address).status_code == 200 for address in LOOKED_AT * 2)

    with console_of(cluster, 3_600) as running, ThreadPoolExecutor(20) as threads:
        assert sum(threads.map(look, range(people))) == people * 6
        return cluster.asked


def test_many_people_who_look_at_once_cost_as_much_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine they take longer than answers stay fresh.
    monkeypatch.setattr("fencepost.console.reading.sharing.time", SimpleNamespace(monotonic=lambda: 1_000.0))
    one, many = asked_by(1), asked_by(20)
    assert many == one
    assert one["ListOffsets"] <= 3 * 3 * 25
    assert sum(one.values()) < 400


def test_a_page_waits_a_moment_and_then_says_that_the_cluster_is_being_read() -> None:
    cluster = SimulatedCluster({"orders": 1})
    cluster.silent = {None}
    with console_of(cluster) as running, running.browser() as browser:
        running.app.state.console.readers.of(cluster).patience_s = PATIENCE_S
        page = browser.get("/topics")
        assert page.status_code == 503
        assert "still being read" in text_of(page.text)
        assert 'data-refresh="1"' in page.text
        assert page.elapsed.total_seconds() < 10 * PATIENCE_S


@pytest.mark.parametrize("address", ["/topics", "/groups", "/topics/orders"])
def test_a_stopped_broker_costs_the_figures_of_its_partitions_and_no_page(address: str) -> None:
    cluster = SimulatedCluster({"orders": 3}, groups=3)
    cluster.dead = {2}
    with console_of(cluster) as running, running.browser() as browser:
        page = browser.get(address)
        assert page.status_code == 200
        assert "roker 2" in text_of(page.text) or "broker-2" in text_of(page.text)


def test_groups_that_are_not_read_yet_are_not_counted_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        raise StillReadingError("still")

    monkeypatch.setattr(overview, "lag_table_of", never)
    with console_of(SimulatedCluster({"orders": 1}, groups=3)) as running, running.browser() as browser:
        page = text_of(browser.get("/").text)
        assert "Groups are still being read." in page
        assert f"Groups {NONE}" in page
