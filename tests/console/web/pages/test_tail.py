"""The live tail of a topic over HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.console.running import RunningConsole, get_json, options_for, text_of
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process


@pytest.fixture(scope="module")
def browser(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with RunningConsole(options_for(broker)) as running, running.browser() as client:
        yield client


def create(broker: BrokerProcess, name: str, partitions: int = 3) -> str:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
    return name


def write(broker: BrokerProcess, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 3)
    assert producer.flush(60) == 0


def next_of(browser: httpx.Client, address: str) -> str:
    found = re.search(r'data-next="([^"]+)"', browser.get(address).text)
    assert found
    return address.partition("?")[0] + unescape(found[1]) + "&new=yes"


def values_at(browser: httpx.Client, address: str) -> list[str]:
    return [one["value"] for one in get_json(browser, address)["rows"]]


def test_each_answer_has_the_records_since_the_last_one(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "tailed")
    write(broker, topic, "a", "b", "c")
    first = f"/topics/{topic}/tail"
    assert sorted(values_at(browser, first)) == ["a", "b", "c"]
    second = next_of(browser, first)
    assert values_at(browser, second) == []
    write(broker, topic, "d", "e")
    assert sorted(values_at(browser, second)) == ["d", "e"]
    third = next_of(browser, second)
    assert values_at(browser, third) == []
    write(broker, topic, "f")
    assert values_at(browser, third) == ["f"]


def test_skipped_records_are_counted(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "fast")
    follows = next_of(browser, f"/topics/{topic}/tail")
    write(broker, topic, *map(str, range(1_000)))
    found = get_json(browser, follows)
    assert len(found["rows"]) == 100
    assert found["skipped"] == 900
    assert "900 offsets skipped" in text_of(browser.get(follows).text)
    assert get_json(browser, next_of(browser, follows))["skipped"] == 0


def test_a_tail_takes_filters(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "filtered")
    follows = next_of(browser, f"/topics/{topic}/tail?field=id&op=%3E&operand=7")
    write(broker, topic, *(f'{{"id": {number}}}' for number in range(10)))
    assert sorted(values_at(browser, follows)) == ['{"id": 8}', '{"id": 9}']


def test_a_tail_ends_at_its_limit_and_when_it_is_stopped(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "limited")
    running = browser.get(f"/topics/{topic}/tail").text
    assert 'http-equiv="refresh"' in running
    for ended in ("since=1000", "since=99999999999", "stop=yes"):
        page = browser.get(f"/topics/{topic}/tail?{ended}").text
        assert "The tail has ended" in text_of(page)
        assert 'http-equiv="refresh"' not in page
        assert "data-next" not in page


def test_a_topic_that_was_made_again_ends_its_tail(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "again")
    write(broker, topic, "a", "b", "c")
    follows = next_of(browser, f"/topics/{topic}/tail")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)
    assert browser.get(follows).status_code == 404
    create(broker, "again")
    answer = browser.get(follows)
    assert answer.status_code == 422
    assert "deleted and made again" in text_of(answer.text)


def test_deleted_records_that_were_not_shown_are_counted(broker: BrokerProcess, browser: httpx.Client) -> None:
    topic = create(broker, "deleted")
    follows = next_of(browser, f"/topics/{topic}/tail")
    write(broker, topic, *map(str, range(30)))
    from confluent_kafka import TopicPartition

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(60)
    found = get_json(browser, follows)
    assert len(found["rows"]) == 26
    assert found["notes"] == ["Retention has deleted 4 offsets that were not shown."]
