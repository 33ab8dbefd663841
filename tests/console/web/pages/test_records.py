"""The messages of a topic over HTTP, over all its partitions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from html import unescape

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.console.reading.scan import Scan
from fencepost.console.values import Values
from fencepost.console.web.pages import records
from fencepost.console.web.record_queries import Hit, Query
from tests.console.running import RunningConsole, get_json, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until

pytestmark = pytest.mark.integration

PARTITIONS = 3
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
        assert "Traceback" not in process.output, process.output


@pytest.fixture(scope="module")
def browser(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with RunningConsole(options_for(broker)) as running, running.browser() as client:
        yield client


def create(broker: BrokerProcess, name: str, partitions: int = PARTITIONS, **configs: str) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1, config=configs)])[name].result(60)
    return name


@pytest.fixture(scope="module")
def orders(broker: BrokerProcess, browser: httpx.Client) -> str:
    """130 records, one each second, over three partitions; of each ten one is in an aborted transaction."""
    create(broker, "orders", 4)
    producers = {}
    for kind in ("commit", "abort"):
        producers[kind] = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"orders-{kind}"})
        producers[kind].init_transactions(60)
    for number in range(130):
        producer = producers["abort" if number % 10 == 3 else "commit"]
        producer.begin_transaction()
        value = json.dumps({"order": {"id": number, "customer": {"id": f"c{number % 7}"}}})
        headers = {"source": "shop" if number % 2 else "web"}
        time_ms = FIRST_MS + number * 1_000
        producer.produce("orders", value, f"k{number}", partition=number % 3, headers=headers, timestamp=time_ms)
        producer.flush(60)
        producer.abort_transaction(60) if number % 10 == 3 else producer.commit_transaction(60)
    whole = "/topics/orders/messages?contains=nowhere"
    until(lambda: get_json(browser, whole)["cost"]["records"] == 260, timeout_s=60)
    return "orders"


def next_of(page: str) -> str | None:
    found = re.search(r'rel="next" href="([^"]+)"', page)
    return unescape(found[1]) if found else None


def all_pages(browser: httpx.Client, address: str) -> list[tuple[int, int]]:
    """(partition, offset) of all records of all pages."""
    found: list[tuple[int, int]] = []
    follows: str | None = address
    while follows:
        found += [(one["partition"], one["row"]["offset"]) for one in get_json(browser, follows)["rows"]]
        follows = next_of(browser.get(follows).text)
    return found


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_pages_over_all_partitions_have_each_record_once(browser: httpx.Client, orders: str, order: str) -> None:
    everything = all_pages(browser, f"/topics/{orders}/messages?order={order}")
    assert len(everything) == len(set(everything)) == 260
    values = all_pages(browser, f"/topics/{orders}/messages?order={order}&stands=committed")
    assert len(values) == 117
    for index in range(3):
        offsets = [offset for partition, offset in values if partition == index]
        assert offsets == sorted(offsets, reverse=order == "newest")


def test_records_of_all_partitions_come_in_the_order_of_their_time(browser: httpx.Client, orders: str) -> None:
    rows = get_json(browser, f"/topics/{orders}/messages?stands=committed")["rows"]
    numbers = [json.loads(one["value"])["order"]["id"] for one in rows]
    assert numbers == [number for number in range(129, -1, -1) if number % 10 != 3][:50]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("field=order.customer.id&op=%3D&operand=c3", [n for n in range(130) if n % 7 == 3]),
        ("field=order.id&op=%3C&operand=5", [0, 1, 2, 3, 4]),
        ("header=source&header_value=shop&field=order.id&op=%3E&operand=120", [121, 123, 125, 127, 129]),
        ("key=k11", [11, 110, 111, 112, 113, 114, 115, 116, 117, 118, 119]),
        ("key=k11&key_is=yes", [11]),
        ("contains=%22id%22%3A+77", [77]),
        ("stands=aborted", list(range(3, 130, 10))),
        ("partition=1-2&field=order.id&op=%3C&operand=6", [1, 2, 4, 5]),
        ("time=2023-11-14T22:13:25&until=2023-11-14T22:13:27", [5, 6]),
    ],
)
def test_filters_find_what_they_say(browser: httpx.Client, orders: str, asked: str, expected: list[int]) -> None:
    found = get_json(browser, f"/topics/{orders}/messages?order=oldest&{asked}")
    numbers = [json.loads(one["value"])["order"]["id"] for one in found["rows"] if one["value"] is not None]
    assert sorted(numbers) == expected
    assert found["cost"]["ended"] == "complete"
    assert found["cost"]["records"] > 0


def test_old_records_between_markers_of_today_come_in_their_order(browser: httpx.Client, orders: str) -> None:
    rows = get_json(browser, f"/topics/{orders}/messages?order=oldest&stands=committed")["rows"]
    numbers = [json.loads(one["value"])["order"]["id"] for one in rows]
    assert numbers == [number for number in range(130) if number % 10 != 3][:50]


def test_a_page_says_what_it_read(browser: httpx.Client, orders: str) -> None:
    page = text_of(browser.get(f"/topics/{orders}/messages?contains=nowhere").text)
    assert "No such record among 260 looked at." in page
    assert re.search(r"260 records looked at, [0-9.]+ KiB read in [0-9.]+ s", page)


def test_a_search_for_nobody_ends(browser: httpx.Client, orders: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scans: list[Scan] = []

    async def slow_hits(values: Values, topic: str, query: Query, scan: Scan, most: int) -> list[Hit]:
        scans.append(scan)
        async for _ in scan.batches(1):
            await asyncio.sleep(0.05)
        return []

    monkeypatch.setattr(records, "first_hits", slow_hits)
    with pytest.raises(httpx.ReadTimeout):
        browser.get(f"/topics/{orders}/messages?contains=nowhere", timeout=0.5)
    until(lambda: bool(scans) and scans[0].ended == "nobody waits for it any more", timeout_s=30)


def test_a_continued_page_does_not_move_when_records_are_written(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "moving")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(120):
        producer.produce(topic, str(number), partition=number % 3)
    producer.flush(60)
    first = get_json(browser, f"/topics/{topic}/messages")
    follows = next_of(browser.get(f"/topics/{topic}/messages").text)
    for number in range(30):
        producer.produce(topic, f"later {number}", partition=number % 3)
    producer.flush(60)
    assert follows
    found = [one["value"] for one in first["rows"]] + [
        row["value"]
        for row in get_json(browser, follows)["rows"]
        + get_json(browser, next_of(browser.get(follows).text) or "")["rows"]
    ]
    assert sorted(found) == sorted(map(str, range(120)))


def test_a_topic_that_was_made_again_is_not_taken_for_the_first(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "again")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(80):
        producer.produce(topic, str(number), partition=0)
    producer.flush(60)
    follows = next_of(browser.get(f"/topics/{topic}/messages").text)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    create(broker, "again")
    assert follows
    answer = browser.get(follows)
    assert answer.status_code == 422
    assert "was deleted and made again since this page" in text_of(answer.text)


def test_large_values_are_cut_and_the_record_has_its_own_page(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "large")
    producer = Producer({"bootstrap.servers": broker.bootstrap, "message.max.bytes": 2_000_000})
    for number in range(60):
        producer.produce(topic, f"{number}" + "x" * 900_000, partition=number % 3)
        producer.flush(60)
    page = browser.get(f"/topics/{topic}/messages")
    assert len(page.text) < 500_000
    assert "all of 878.9 KiB" in text_of(page.text)
    assert len(all_pages(browser, f"/topics/{topic}/messages")) == 60
    full = browser.get(f"/topics/{topic}/1/records/0")
    assert "1" + "x" * 900_000 in full.text
    raw = browser.get(f"/topics/{topic}/1/records/0?raw=yes")
    assert raw.content == b"1" + b"x" * 900_000
    assert "attachment" in raw.headers["content-disposition"]
    assert browser.get(f"/topics/{topic}/1/records/99").status_code == 404
    assert browser.get(f"/topics/{topic}/x/records/0").status_code == 404
    assert browser.get(f"/topics/{topic}/0/records/x").status_code == 422


def test_parameters_that_it_does_not_know_do_nothing(browser: httpx.Client, orders: str) -> None:
    for page in ("messages", "tail", "copy"):
        for name in ("address", "self", "at", "order", "new", "since", "stop"):
            answer = browser.get(f"/topics/{orders}/{page}?{name}=x")
            assert answer.status_code in (200, 422), (page, name)
            if name in ("address", "self"):
                assert answer.status_code == 200


def test_a_partition_that_cannot_be_read_is_named_and_the_others_are_shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    broken = BrokerProcess(tmp_path_factory.mktemp("broken") / "data")
    broken.start()
    try:
        create(broken, "half")
        producer = Producer({"bootstrap.servers": broken.bootstrap})
        for number in range(90):
            producer.produce("half", str(number), partition=number % 3)
        producer.flush(60)
        assert broken.terminate() == 0
        lost = broken.data_directory / "half-1"
        lost.rename(tmp_path_factory.mktemp("kept") / "half-1")
        lost.write_text("a file")
        broken.start()
        with RunningConsole(options_for(broken)) as running, running.browser() as client:
            page = client.get("/topics/half/messages?order=oldest")
            assert page.status_code == 200
            assert "1 partition cannot be read; all others are shown: half-1" in text_of(page.text)
            assert len(all_pages(client, "/topics/half/messages?order=oldest")) == 60
            last = json.loads(client.get("/topics/half/download").text.splitlines()[-1])["end"]
            assert not last["complete"]
            assert last["reasons"][0].startswith("half-1: ")
            assert len(get_json(client, "/topics/half/tail")["rows"]) == 50
    finally:
        broken.kill()


def test_empty_topics_and_topics_of_only_markers_have_pages(broker: BrokerProcess, browser: httpx.Client) -> None:
    empty = create(broker, "empty", 40)
    for order in ("newest", "oldest"):
        assert "There are no records here." in text_of(browser.get(f"/topics/{empty}/messages?order={order}").text)
    markers = create(broker, "markers", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "only-markers"})
    producer.init_transactions(60)
    for _ in range(3):
        producer.begin_transaction()
        producer.produce(markers, "gone")
        producer.flush(60)
        producer.abort_transaction(60)
    assert get_json(browser, f"/topics/{markers}/messages?stands=committed")["rows"] == []
    # The last one is written after the client knows of the outcome.
    until(lambda: len(get_json(browser, f"/topics/{markers}/messages?stands=markers")["rows"]) == 3, timeout_s=60)


def test_a_compacted_topic_has_each_record_that_is_left_once(broker: BrokerProcess, browser: httpx.Client) -> None:
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "1",
    }
    topic = create(broker, "compacted", 2, **settings)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(400):
        producer.produce(topic, str(number), f"k{number % 5}", partition=number % 2)
        if number % 20 == 0:
            producer.flush(60)
    producer.flush(60)
    for order in ("newest", "oldest"):
        found = all_pages(browser, f"/topics/{topic}/messages?order={order}")
        assert len(found) == len(set(found)) >= 10
