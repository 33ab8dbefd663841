"""The console with Apache Kafka itself, where `scripts/apache_kafka.py fetch` has put it. CI fetches it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from fencepost.console.options import ConsoleOptions
from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from tests.console.running import RunningConsole, change, eventually, get_json
from tests.console.world import STUCK_ID, fill, leave_open
from tests.support.missing_tools import require_apache_kafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_apache_kafka()
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), free_port()) as kafka:
        fill(kafka.bootstrap_servers)
        yield kafka.bootstrap_servers


@pytest.fixture(scope="module")
def browser(bootstrap: str) -> Iterator[httpx.Client]:
    host, port = bootstrap.split(":")
    options = ConsoleOptions(bootstrap=((host, int(port)),))
    with RunningConsole(options) as running, running.browser() as client:
        yield client


def test_every_page_shows_apache_kafka(browser: httpx.Client) -> None:
    addresses = set(re.findall(r'<a href="(/[^"]*)"', browser.get("/").text)) - {"/theme"}
    addresses |= {
        "/topics/orders",
        "/topics/orders/messages",
        "/topics/orders/messages?order=oldest&field=customer&operand=c9",
        "/topics/orders/0/records/0",
        "/topics/orders/0/time-travel",
        "/group?id=billing",
        "/in-doubt/transaction?id=shop-0",
        "/users",
    }
    for address in sorted(addresses):
        assert browser.get(address).status_code == 200, address


def test_a_stuck_partition_is_explained_and_freed(bootstrap: str, browser: httpx.Client) -> None:
    leave_open(bootstrap, "orders")
    page = eventually(browser, "/stuck/orders/0", "10 offsets wait behind it")
    assert f"The transaction of {STUCK_ID} is still open" in page
    rows = get_json(browser, "/topics/orders/messages?partition=0")["rows"]
    assert [one["row"]["mark"] for one in rows[9::-1]] == ["open"] * 5 + ["committed"] * 4 + ["marker"]
    change(browser, "abort-transaction", STUCK_ID, id=STUCK_ID)
    eventually(browser, "/stuck/orders/0", "orders-0 is not stuck")
    rows = get_json(browser, "/topics/orders/messages?partition=0")["rows"]
    assert "open" not in {one["row"]["mark"] for one in rows}
    steps = get_json(browser, "/topics/orders/0/time-travel")["history"]["steps"]
    assert steps[-1]["end_offset"] == steps[-1]["last_stable_offset"]
    life = get_json(browser, f"/transaction?id={STUCK_ID}")["history"]["moments"]
    assert [one["state"] for one in life][:2] == ["Empty", "Ongoing"]
