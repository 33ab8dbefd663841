"""Messages and their live tail in a real browser, wide and narrow, with and without JavaScript."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, expect

from tests.console.browsers import chromium, opened, violations
from tests.console.running import RunningConsole, options_for
from tests.support.broker_process import BrokerProcess

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPICS = ("orders", "tailed", "reloaded")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        for future in admin.create_topics([NewTopic(name, 3, 1) for name in TOPICS]).values():
            future.result(60)
        write(process, *range(120))
        yield process


@pytest.fixture(scope="module")
def address(broker: BrokerProcess) -> Iterator[str]:
    with RunningConsole(options_for(broker)) as running:
        yield running.address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def write(broker: BrokerProcess, *numbers: int, topic: str = "orders") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in numbers:
        value = json.dumps({"id": number, "note": "n" * 300 if number % 10 == 0 else ""})
        producer.produce(topic, value, f"key-{number}", partition=number % 3, headers={"source": "shop"})
    assert producer.flush(60) == 0


def is_too_wide(page: Page) -> bool:
    return bool(page.evaluate("() => document.documentElement.scrollWidth > innerWidth"))


@pytest.mark.parametrize("width", [1280, 390])
def test_pages_of_messages_fit_and_can_be_used_by_everybody(
    browser: Browser, address: str, width: int, tmp_path: Path
) -> None:
    with opened(browser, address) as page:
        page.set_viewport_size({"width": width, "height": 800})
        for path in (
            "/topics/orders/messages",
            "/topics/orders/messages?field=id&op=%3E&operand=100&header=source",
            "/topics/orders/0/records/3",
            "/topics/orders/tail",
            "/topics/orders/tail?stop=yes",
            "/topics/orders/copy?field=id&op=%3E&operand=100",
            "/copies",
        ):
            page.goto(path)
            page.screenshot(path=tmp_path / "page.png", full_page=True)
            assert not is_too_wide(page), path
            assert violations(page) == []


def test_a_person_finds_a_record_and_goes_through_pages(browser: Browser, address: str) -> None:
    with opened(browser, address) as page:
        page.goto("/topics/orders/messages")
        expect(page.locator("tbody tr")).to_have_count(50)
        page.get_by_role("link", name="Older →").click()
        expect(page.get_by_role("link", name="← Newest")).to_be_visible()
        page.get_by_role("link", name="Older →").click()
        expect(page.locator("tbody tr")).to_have_count(20)
        page.locator("details.more > summary").click()
        page.get_by_label("Field of the value").fill("id")
        page.get_by_label("to", exact=True).fill("77")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("tbody tr")).to_have_count(1)
        page.locator("tbody td.number a").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("orders-2 at 25")


def test_a_tail_shows_what_is_written_while_it_is_open(browser: Browser, broker: BrokerProcess, address: str) -> None:
    with opened(browser, address) as page:
        page.goto("/topics/tailed/tail")
        write(broker, 1_001, topic="tailed")
        expect(page.locator("tbody tr").first).to_contain_text("key-1001")
        write(broker, 1_002, topic="tailed")
        expect(page.locator("tbody tr").first).to_contain_text("key-1002")
        expect(page.locator("tbody")).to_contain_text("key-1001")
        page.get_by_role("link", name="Stop").click()
        expect(page.get_by_role("status").first).to_contain_text("The tail has ended")


def test_a_tail_without_javascript_loads_itself_again(browser: Browser, broker: BrokerProcess, address: str) -> None:
    with opened(browser, address, scripts=False) as page:
        page.goto("/topics/reloaded/tail")
        write(broker, 2_001, topic="reloaded")
        expect(page.locator("tbody")).to_contain_text("key-2001")
