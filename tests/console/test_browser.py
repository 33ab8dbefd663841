"""The console in a real browser: accessible, by keyboard, without scripts, and with the pictures of docs/console.md."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect

from fencepost.client.cluster import Cluster
from fencepost.client.session import ClientOptions
from fencepost.client.view import CoordinatorKind
from fencepost.console.options import ConsoleOptions
from fencepost.console.reading.group_offsets import CommittedOffset, commit_offsets
from fencepost.console.web.pages import PAGES
from fencepost.console.web.visit import path, with_query
from tests.console.browsers import AXE, Scheme, chromium, opened, violations
from tests.console.pictures import FOLDER, PICTURES, take
from tests.console.running import RunningConsole, options_for
from tests.console.world import DOUBTFUL_ID, HOSTILE, STUCK_ID, broken_broker, leave_open
from tests.support.broker_process import BrokerProcess

# One process makes the brokers and the browser for all of these.
pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("console-browser"), pytest.mark.timeout(240)]

MOST_PICTURE_BYTES = 150_000
OF_BROKEN = [
    "/",
    "/search?q=o",
    "/stuck",
    "/stuck/orders/0",
    "/stuck/archive/0",
    "/in-doubt",
    f"/in-doubt/transaction?id={DOUBTFUL_ID}",
    "/topics",
    "/topics?internal=yes&sort=-size",
    "/topics/orders",
    "/topics/orders/settings?q=retention",
    "/topics/orders/messages?partition=0&from=20",
    "/topics/orders/tail",
    "/topics/orders/copy",
    "/copies",
    "/topics/orders/0/records/20",
    "/topics/orders/0/time-travel",
    "/transactions",
    f"/transaction?id={STUCK_ID}",
    "/groups",
    "/group?id=billing",
    "/producers",
    "/acls",
    "/users",
    "/quotas",
    "/settings?q=log",
    "/log-levels?q=log",
    "/connections",
    "/no-such-page",
]
WITHOUT = ("/topics/{topic}/download", "/copies/{id}")
"""Not among these: a file, and the page of a copy, of which there is none."""
OF_EMPTY = [
    "/",
    "/stuck",
    "/in-doubt",
    "/topics",
    "/transactions",
    "/groups",
    "/producers",
    "/quotas",
    "/connections",
    "/search",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def broker(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str]]:
    with broken_broker(tmp_path_factory.mktemp("broken")) as (process, http, _producer):
        yield process, http


@pytest.fixture(scope="module")
def console(broker: tuple[BrokerProcess, str]) -> Iterator[str]:
    with RunningConsole(options_for(broker[0], broker_http=broker[1])) as running:
        yield running.address


@pytest.fixture(scope="module")
def empty_console(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with (
        BrokerProcess(tmp_path_factory.mktemp("empty") / "data") as process,
        RunningConsole(options_for(process)) as running,
    ):
        yield running.address


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page_of_a_busy_and_broken_broker(
    browser: Browser, console: str, scheme: Scheme
) -> None:
    shown = {re.sub(r"\?.*", "", address) for address in OF_BROKEN}
    patterns = {re.sub(r"\{\w+\}", "[^/]+", pattern) for pattern in PAGES if pattern not in WITHOUT}
    assert all(any(re.fullmatch(pattern, one) for one in shown) for pattern in patterns), "a page is left out"
    with opened(browser, console, scheme=scheme) as page:
        for address in OF_BROKEN:
            page.goto(address)
            assert not violations(page, only_colours=scheme == "dark")


def test_axe_finds_nothing_on_an_empty_broker_nor_at_the_log_in(browser: Browser, empty_console: str) -> None:
    with opened(browser, empty_console) as page:
        for address in OF_EMPTY:
            page.goto(address)
            assert not violations(page)
        page.goto("/")
        expect(page.get_by_role("heading", level=1)).to_have_text("All is well.")
    host, port = empty_console.removeprefix("http://").split(":")
    options = ConsoleOptions(bootstrap=((host, int(port)),), needs_log_in=True)
    with RunningConsole(options) as running, opened(browser, running.address) as page:
        page.goto("/log-in")
        assert not violations(page)


def test_a_stuck_partition_is_freed_by_keyboard_alone(
    browser: Browser, broker: tuple[BrokerProcess, str], console: str
) -> None:
    leave_open(broker[0].bootstrap, "shipments", "by-keyboard")
    with opened(browser, console) as page:
        page.goto("/")
        page.clock.set_fixed_time(datetime.now(UTC))  # the second key is one within 1.5 s of the first
        page.keyboard.press("g")
        page.keyboard.press("s")
        page.wait_for_url(re.compile("/stuck$"))
        page.keyboard.press("/")
        page.keyboard.type("by-keyboard")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/search"))
        page.keyboard.press("Escape")
        page.get_by_role("heading", level=1).click()
        page.goto("/stuck/shipments/0")
        expect(page.locator(".chain")).to_contain_text("by-keyboard")
        reach(page, "Abort now…")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Abort transaction")
        assert not violations(page)
        # Reason and name are asked for, and the first field has the focus; then the one that is wrong.
        reason = page.get_by_role("textbox", name="Reason")
        expect(reason).to_be_focused()
        page.keyboard.type("its service is gone")
        page.keyboard.press("Tab")
        field = page.get_by_role("textbox", name="To confirm")
        expect(field).to_be_focused()
        page.keyboard.type("something")
        page.keyboard.press("Enter")
        expect(page.locator("#wrong")).to_contain_text("Nothing was changed")
        expect(field).to_be_focused()
        expect(reason).to_have_value("its service is gone")
        page.keyboard.type("by-keyboard")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_contain_text("by-keyboard was fenced")
        page.goto("/stuck/shipments/0")
        expect(page.locator(".answer")).to_contain_text("is not stuck")


def reach(page: Page, text: str) -> None:
    """Press Tab until a button has the focus."""
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent").strip() == text:
            return
    raise AssertionError(f"Tab does not reach {text!r}")


def test_rows_and_keys_are_reached_by_letters(browser: Browser, console: str) -> None:
    with opened(browser, console) as page:
        page.goto("/topics")
        names = page.locator("tbody tr td:first-child a").all_inner_texts()
        for _ in range(names.index("orders") + 1):
            page.keyboard.press("j")
        expect(page.locator("tr.current a").first).to_have_text("orders")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("/topics/orders$"))
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        assert not violations(page)
        page.keyboard.press("Escape")
        expect(page.locator("#keys")).to_be_hidden()
        page.keyboard.press("Tab")
        expect(page.locator(".skip")).to_be_focused()


def test_the_client_behind_a_stuck_partition_is_named_with_its_address(browser: Browser, console: str) -> None:
    with opened(browser, console) as page:
        page.goto("/stuck/orders/0")
        client = page.locator(".chain li").last
        expect(client).to_contain_text(STUCK_ID)
        expect(client).to_contain_text(re.compile(r"127\.0\.0\.1:\d+"))
        expect(client).to_contain_text("connection open")
        page.goto("/stuck/archive/0")
        expect(page.locator(".answer")).to_contain_text("archive-0 does not answer")


def test_a_page_reads_itself_again(browser: Browser, broker: tuple[BrokerProcess, str], console: str) -> None:
    with opened(browser, console) as page:
        page.goto("/stuck/payments/0")
        expect(page.locator(".answer")).to_contain_text("is not stuck")
        producer = leave_open(broker[0].bootstrap, "payments", "comes-later")
        expect(page.locator(".answer")).to_contain_text("comes-later")
        producer.abort_transaction(60)
        expect(page.locator(".answer")).to_contain_text("is not stuck")


def test_a_page_that_reads_itself_again_leaves_the_keyboard_where_it_is(browser: Browser, console: str) -> None:
    with opened(browser, console) as page:
        page.clock.install()
        page.goto("/topics")
        page.keyboard.press("j")
        page.keyboard.press("j")
        chosen = page.locator("tr.current a").first.inner_text()
        page.evaluate("document.querySelector('tr.current').dataset.before = 'yes'")
        page.clock.fast_forward(6_000)
        expect(page.locator("[data-before]")).to_have_count(0)
        expect(page.locator("tr.current a").first).to_have_text(chosen)
        expect(page.locator("tr.current a").first).to_be_focused()
        # A button would not be found again: the page waits until it is left.
        page.goto("/stuck/orders/0")
        reach(page, "Abort now…")
        asked: list[str] = []
        page.on("request", lambda sent: asked.append(sent.url))
        page.clock.fast_forward(6_000)
        expect(page.get_by_role("button", name="Abort now")).to_be_focused()
        assert not asked


def test_everything_works_without_scripts(browser: Browser, broker: tuple[BrokerProcess, str], console: str) -> None:
    leave_open(broker[0].bootstrap, "shipments", "without-scripts")
    with opened(browser, console, scripts=False) as page:
        page.goto("/stuck")
        page.get_by_role("link", name="Why? shipments-0").click()
        page.get_by_role("button", name="Abort now").click()
        page.get_by_label("Reason").fill("its service is gone")
        page.get_by_label("To confirm, type").fill("without-scripts")
        page.get_by_role("button", name="Abort transaction").click()
        expect(page.get_by_role("status")).to_contain_text("was fenced")
        page.get_by_role("link", name="dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "dark")


LONG = "n" * 249
ODD = "odd\n\0\u202egnp \\u000a <b>"
"""As an id may be: what a browser sends otherwise than it was, and what turns the direction of writing."""
TOO_NARROW = """() => [...document.querySelectorAll("td, th, dd, li, p, label, button")].filter(one => {
    const shape = one.getBoundingClientRect();
    return shape.width > 0 && shape.width < 40 && shape.height > 80 && one.textContent.trim().length > 8;
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def odd_names(broker: tuple[BrokerProcess, str]) -> list[str]:
    """Pages with the longest names, and with control characters and turned writing in keys, values, headers and ids."""
    bootstrap = broker[0].bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(LONG, 1, 1)]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "client.id": LONG})
    producer.produce(LONG, ODD.encode() * 9, ODD.encode(), headers={LONG: ODD.encode()})
    producer.produce(LONG, b"w" * 9_000, b"k" * 900)
    assert producer.flush(60) == 0
    leave_open(bootstrap, LONG, "t" * 249)
    for group in (LONG, ODD):
        commit(bootstrap, group, LONG)
    topic, of_group, of_transaction = path("topics", LONG), with_query("/group", id=ODD), "/transaction?id=" + "t" * 249
    addresses = [topic, f"{topic}/messages?partition=0&from=0", f"{topic}/settings", f"/stuck/{LONG}/0"]
    return [*addresses, f"{topic}/0/time-travel", of_group, with_query("/group", id=LONG), of_transaction]


def commit(bootstrap: str, group: str, topic: str) -> None:
    """Commit offset 0 of a group of any name: librdkafka takes none with NUL."""

    async def commit_it() -> None:
        host, _, port = bootstrap.rpartition(":")
        cluster = Cluster([(host, int(port))], ClientOptions(client_id=ODD))
        try:
            coordinator = await cluster.coordinator(CoordinatorKind.GROUP, group)
            offset = CommittedOffset(0, metadata=ODD)
            assert await commit_offsets(cluster, coordinator, group, {(topic, 0): offset}) == {}
        finally:
            cluster.close()

    # In a thread: the browser's driver has an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, commit_it()).result()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1024, "light"), (1280, "light")])
def test_no_page_is_wider_than_its_window_and_no_column_a_letter_wide(
    browser: Browser, console: str, odd_names: list[str], width: int, scheme: Scheme
) -> None:
    with opened(browser, console, width=width, scheme=scheme) as page:
        for address in [*OF_BROKEN, *odd_names]:
            page.goto(address)
            assert page.evaluate("document.documentElement.scrollWidth") <= width, address
            assert page.evaluate(TOO_NARROW) == [], address
            text = page.locator("body").inner_text()
            assert not re.search("[\0\ufffd\u202a-\u202e\u2066-\u2069]", text), address


def test_a_change_of_an_id_with_control_characters_is_of_that_id(
    browser: Browser, console: str, odd_names: list[str]
) -> None:
    assert with_query("/group", id=ODD) in odd_names
    with opened(browser, console) as page:
        page.goto(with_query("/group", id=ODD))
        page.get_by_text("Delete the group").click()
        page.get_by_role("button", name="Delete group").click()
        page.get_by_label("Reason").fill("it is odd")
        page.get_by_label("To confirm, type").fill("confirm")
        page.get_by_role("button", name="Delete group").click()
        expect(page.get_by_role("status")).to_contain_text("was deleted")
        page.goto("/groups?q=odd")
        expect(page.locator("main")).not_to_contain_text("gnp")


def test_the_sentence_on_what_has_changed_is_in_sight(
    browser: Browser, broker: tuple[BrokerProcess, str], console: str, odd_names: list[str]
) -> None:
    commit(broker[0].bootstrap, "seen", LONG)
    with opened(browser, console, height=500) as page:
        page.goto("/group?id=seen")
        page.get_by_text("Delete the group").click()
        page.get_by_role("button", name="Delete group").click()
        consumer = Consumer({"bootstrap.servers": broker[0].bootstrap, "group.id": "seen"})
        consumer.commit(offsets=[TopicPartition(LONG, 0, 2)], asynchronous=False)
        consumer.close()
        page.get_by_label("Reason").fill("it is old")
        page.get_by_label("To confirm, type").fill("seen")
        page.get_by_role("button", name="Delete group").click()
        expect(page.get_by_role("alert")).to_be_focused()
        expect(page.get_by_role("alert")).to_be_in_viewport()
        expect(page.get_by_role("alert")).to_contain_text("0 when you looked, 2 now.")
        assert not violations(page)
        page.get_by_label("To confirm, type").fill("seen")
        page.get_by_role("button", name="Delete group").click()
        expect(page.get_by_role("status")).to_contain_text("Group seen was deleted.")


def test_names_of_any_text_are_only_text(browser: Browser, broker: tuple[BrokerProcess, str], console: str) -> None:
    producer = leave_open(broker[0].bootstrap, "shipments", HOSTILE)
    try:
        with opened(browser, console) as page:
            for address in ("/", "/stuck", "/stuck/shipments/0", "/transactions", "/connections", "/search?q=script"):
                page.goto(address)
                expect(page.locator("main")).to_contain_text("alert('1')")
                expect(page.locator("main")).to_contain_text("\\u202e")
                assert page.locator("main script").count() == 0
            page.goto("/transactions")
            page.get_by_role("link", name="alert").click()
            expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")
    finally:
        producer.abort_transaction(60)


def test_the_slider_travels(browser: Browser, console: str) -> None:
    with opened(browser, console) as page:
        page.goto("/topics/orders/0/time-travel")
        slider = page.get_by_role("slider")
        slider.focus()
        page.keyboard.press("Home")
        page.wait_for_url(re.compile(r"at=0\b"))
        expect(page.locator(".answer")).to_contain_text("When the log ended at 0")


def test_the_pictures_of_the_page_are_of_this_console(browser: Browser, console: str, tmp_path: Path) -> None:
    """They are made anew by `python -m tests.console.pictures`; what changes with time and fonts is not compared."""
    take(browser, console, tmp_path)
    page = (FOLDER.parents[1] / "console.md").read_text(encoding="utf-8")
    for name in PICTURES:
        kept, made = (FOLDER / f"{name}.png").read_bytes(), (tmp_path / f"{name}.png").read_bytes()
        assert f"{FOLDER.name}/{name}.png" in page
        assert len(kept) <= MOST_PICTURE_BYTES
        assert width_of(kept) == width_of(made)
    assert {path.stem for path in FOLDER.glob("*.png")} == set(PICTURES)


def width_of(picture: bytes) -> int:
    assert picture.startswith(b"\x89PNG")
    width: int = struct.unpack(">I", picture[16:20])[0]
    return width


def test_what_is_of_others_is_what_it_says() -> None:
    noted = json.loads((AXE.parent / "vendor.json").read_text())[AXE.name]
    content = AXE.read_bytes()
    assert hashlib.sha256(content).hexdigest() == noted["sha256"]
    assert f"axe v{noted['version']}" in content[:100].decode()
    assert "Mozilla Public License" in (AXE.parent / "LICENSE").read_text()


def test_axe_does_find_what_is_wrong(browser: Browser, console: str) -> None:
    with opened(browser, console) as page:
        page.goto("/topics")
        page.evaluate(
            "document.querySelector('main').insertAdjacentHTML('beforeend', '<img src=/static/fencepost.svg>')"
        )
        (found,) = violations(page)
        assert "image-alt" in found
