"""The page of a share group counts its dead letters, names the newest one, and leads to their topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.client.blocking import BlockingCluster
from fencepost.client.options import addresses_of
from fencepost.client.session import ClientOptions
from fencepost.client.view import CoordinatorKind
from fencepost.console.reading import dead_letters
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from tests.console.running import RunningConsole, get_json, options_for, text_of
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

GROUP, DEAD = "workers", "dlq.orders"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("letters") / "data") as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap})
        for future in admin.create_topics([NewTopic("orders", 1, 1), NewTopic(DEAD, 2, 1)]).values():
            future.result(60)
        with closing(BlockingCluster(addresses_of(process.bootstrap), ClientOptions(client_id="member"))) as cluster:
            request = ShareGroupHeartbeatRequest(GROUP, "m" * 22, 0, None, ["orders"])
            joining = cluster.routes.to_coordinator(
                CoordinatorKind.GROUP, GROUP, request, lambda reply: int(reply.error_code)
            )
            cluster.run(joining, 60.0)
        yield process


@pytest.fixture
def browser(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with RunningConsole(options_for(broker)) as running, running.browser() as client:
        yield client


def name_topic(broker: BrokerProcess, topic: str) -> None:
    with closing(BlockingCluster(addresses_of(broker.bootstrap), ClientOptions(client_id="admin"))) as cluster:
        config = IncrementalAlterableConfig("errors.deadletterqueue.topic.name", 0, topic)
        reply = cluster.send(IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(32, GROUP, [config])]))
        assert reply.responses[0].error_code == 0


def write(broker: BrokerProcess, group: str, *offsets: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in offsets:
        headers = {"topic": "orders", "partition": "0", "offset": str(number), "group": group, "message": "<why>"}
        named = [(f"__dlq.errors.{name}", text) for name, text in headers.items()]
        producer.produce(DEAD, b"v", partition=number % 2, headers=named, timestamp=1_700_000_000_000 + number)
    assert producer.flush(60) == 0


def shown(browser: httpx.Client) -> Any:
    return get_json(browser, f"/group?id={GROUP}")["state"]["dead_letters"]


def test_the_page_of_a_share_group_shows_its_dead_letters(
    broker: BrokerProcess, browser: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "It has no dead-letter topic" in text_of(browser.get(f"/group?id={GROUP}").text)
    name_topic(broker, "dlq.missing")
    assert "it does not exist, or you may not see it" in shown(browser)["error"]
    name_topic(broker, DEAD)
    assert (shown(browser)["count"], shown(browser)["newest"], shown(browser)["is_all"]) == (0, None, True)
    write(broker, GROUP, 40, 41, 42)
    write(broker, "others", 99)
    found = shown(browser)
    assert (found["topic"], found["count"], found["is_all"]) == (DEAD, 3, True)
    assert [found["newest"][name] for name in ("topic", "offset", "place", "place_offset")] == ["orders", "42", 0, 1]
    page = browser.get(f"/group?id={GROUP}").text
    assert f'href="/topics/{DEAD}"' in page
    assert "&lt;why&gt;" in page
    assert f"{DEAD}-0 at 1" in text_of(page)
    assert browser.get(f"/topics/{DEAD}/messages?partition=0&from=1").status_code == 200
    monkeypatch.setattr(dead_letters, "MOST_RECORDS", 1)
    bounded = shown(browser)
    assert (bounded["is_all"], bounded["count"], bounded["newest"]["offset"]) == (False, 1, "42")
    assert "Only the last ones of each partition were counted." in text_of(browser.get(f"/group?id={GROUP}").text)
