"""Scrapes after real clients did known things; and readiness."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from fencepost import Broker
from fencepost.broker.kernel.topic_partition import TopicPartition as TopicPartitionName
from fencepost.broker.storage.disk import StorageError
from fencepost.soak.free_port import free_port
from tests.support import conditions
from tests.support.admin_client import create
from tests.support.http_node import http_node

TIMEOUT_S = 20
until = partial(conditions.until, timeout_s=TIMEOUT_S)


class Metered:
    """A broker with an HTTP listener, and what its clients do."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self.http_port = free_port()
        given = {"fencepost.http.listener": f"127.0.0.1:{self.http_port}", **settings}
        self.broker = Broker(directory, settings=given)

    def start(self) -> None:
        self.broker.start()
        self.admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})

    def scrape(self, query: str = "", **headers: str) -> str:
        response = httpx.get(f"http://127.0.0.1:{self.http_port}/metrics{query}", headers=headers, timeout=TIMEOUT_S)
        assert response.status_code == 200, response.text
        return response.text

    def values(self) -> dict[str, float]:
        """By name and labels, as in `name{topic="x"}`; labels in order of their names."""
        return values_of(self.scrape())

    def producer(self, **settings: Any) -> Producer:
        return Producer({"bootstrap.servers": self.broker.bootstrap_servers, **settings})

    def transactional(self, name: str) -> Producer:
        producer = self.producer(**{"transactional.id": name, "client.id": f"client of {name}"})
        producer.init_transactions(TIMEOUT_S)
        return producer

    def commit(self, group: str, topic: str, offset: int) -> None:
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        consumer.close()


def values_of(text: str) -> dict[str, float]:
    found = {}
    for family in read_text(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def send(producer: Producer, topic: str, count: int) -> None:
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=0)
    assert not producer.flush(TIMEOUT_S)


@pytest.fixture
def metered(tmp_path: Path) -> Iterator[Metered]:
    found = Metered(tmp_path / "data", **{"transaction.state.log.num.partitions": "2"})
    found.start()
    yield found
    found.broker.close()


def test_traffic_is_counted_by_topic_and_in_all(metered: Metered) -> None:
    create(metered.admin, "orders", 2)
    create(metered.admin, "quiet")
    producer = metered.producer()
    send(producer, "orders", 5)
    consumer = Consumer(
        {"bootstrap.servers": metered.broker.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert len(consumer.consume(5, TIMEOUT_S)) == 5
    consumer.close()
    found = metered.values()
    name = "kafka_server_brokertopicmetrics"
    assert found[f'{name}_messagesin_total{{topic="orders"}}'] == 5
    assert found[f'{name}_messagesin_total{{topic="quiet"}}'] == 0
    assert found[f"{name}_messagesin_total"] == 5
    assert found[f'{name}_bytesin_total{{topic="orders"}}'] == found['kafka_log_log_size{partition="0",topic="orders"}']
    assert found[f'{name}_bytesout_total{{topic="orders"}}'] >= found[f'{name}_bytesin_total{{topic="orders"}}'] > 80
    assert found[f'{name}_totalproducerequests_total{{topic="orders"}}'] >= 1
    assert found[f'{name}_totalfetchrequests_total{{topic="orders"}}'] >= 1
    assert found['kafka_log_log_logendoffset{partition="0",topic="orders"}'] == 5
    assert found['kafka_topic_partition_current_offset{partition="0",topic="orders"}'] == 5
    assert found['kafka_topic_partitions{topic="orders"}'] == 2
    assert found["kafka_controller_kafkacontroller_globaltopiccount"] >= 2
    assert found["kafka_controller_kafkacontroller_globalpartitioncount"] >= 3
    assert found["fencepost_flush_seconds_count"] >= 1
    assert found["fencepost_flushed_bytes_total"] >= found[f"{name}_bytesin_total"]
    counted = "kafka_network_requestmetrics_requests_total"
    assert found['kafka_network_requestmetrics_errors_total{error="NONE",request="Produce"}'] >= 1
    produces = sum(value for one, value in found.items() if one.startswith(f'{counted}{{request="Produce"'))
    assert produces >= 1
    assert found['kafka_network_requestmetrics_totaltimems_count{request="Produce"}'] == produces
    assert 0 < found['kafka_network_requestmetrics_totaltimems{quantile="0.99",request="Produce"}'] < 10_000


def test_counts_over_all_topics_do_not_fall_when_one_is_deleted(metered: Metered) -> None:
    for topic in ("first", "second"):
        create(metered.admin, topic)
        send(metered.producer(), topic, 3)
    before = metered.values()
    metered.admin.delete_topics(["first"])["first"].result(TIMEOUT_S)
    after = metered.values()
    for name in ("messagesin", "bytesin", "totalproducerequests"):
        family = f"kafka_server_brokertopicmetrics_{name}_total"
        assert after[family] == before[family] > 0
        assert f'{family}{{topic="first"}}' not in after


def test_refused_batches_are_counted(metered: Metered) -> None:
    create(metered.admin, "small", max_message_bytes="1000")
    errors: list[Any] = []
    producer = metered.producer(**{"message.max.bytes": 100_000})
    producer.produce("small", b"x" * 20_000, on_delivery=lambda error, _: errors.append(error))
    producer.flush(TIMEOUT_S)
    assert errors
    assert errors[0] is not None
    found = metered.values()
    assert found['kafka_server_brokertopicmetrics_failedproducerequests_total{topic="small"}'] == 1
    assert found['kafka_server_brokertopicmetrics_bytesrejected_total{topic="small"}'] > 20_000
    assert found['kafka_network_requestmetrics_errors_total{error="MESSAGE_TOO_LARGE",request="Produce"}'] == 1


def test_ends_of_transactions_are_counted_by_outcome(metered: Metered) -> None:
    create(metered.admin, "orders")
    producer = metered.transactional("a")
    for is_committed in (True, True, False):
        producer.begin_transaction()
        send(producer, "orders", 1)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(TIMEOUT_S)
    until(lambda: metered.values()['fencepost_transactions_ended_total{outcome="aborted"}'] == 1)
    producer.begin_transaction()
    send(producer, "orders", 1)
    metered.transactional("a")
    until(lambda: metered.values()['fencepost_transactions_ended_total{outcome="fenced"}'] == 1)
    late = metered.producer(**{"transactional.id": "late", "transaction.timeout.ms": 1_000})
    late.init_transactions(TIMEOUT_S)
    late.begin_transaction()
    send(late, "orders", 1)
    until(lambda: metered.values()['fencepost_transactions_ended_total{outcome="timed_out"}'] == 1)
    found = metered.values()
    assert found['fencepost_transactions_ended_total{outcome="committed"}'] == 2
    assert found["fencepost_transaction_duration_seconds_count"] == 5
    assert found["fencepost_transaction_completion_seconds_count"] == 5
    assert found["fencepost_transaction_duration_seconds_sum"] >= 1
    assert found["fencepost_producer_clients"] == 2
    assert sum(found[f'fencepost_transactions{{state="{state}"}}'] for state in ("Empty", "CompleteAbort")) == 2
    with pytest.raises(KafkaException):
        late.commit_transaction(TIMEOUT_S)


def test_an_open_transaction_holds_the_last_stable_offset_and_a_lag_has_three_parts(metered: Metered) -> None:
    create(metered.admin, "orders")
    send(metered.producer(), "orders", 6)
    opened_s = time.time()
    stuck = metered.transactional("stuck")
    stuck.begin_transaction()
    send(stuck, "orders", 5)
    shop = metered.transactional("shop")
    shop.begin_transaction()
    send(shop, "orders", 5)
    shop.commit_transaction(TIMEOUT_S)
    until(lambda: metered.values()['fencepost_transactions_ended_total{outcome="committed"}'] == 1)
    metered.commit("billing", "orders", 6)
    metered.commit("slow", "orders", 2)
    found = metered.values()
    partition = '{partition="0",topic="orders"}'
    assert found[f"fencepost_last_stable_offset{partition}"] == 6
    assert found[f"fencepost_last_stable_offset_lag{partition}"] == 11
    age_s = found[f"fencepost_oldest_open_transaction_age_seconds{partition}"]
    assert 0 <= age_s <= time.time() - opened_s + 1
    assert found['fencepost_transactions{state="Ongoing"}'] == 1
    of_billing = '{consumergroup="billing",partition="0",topic="orders"}'
    of_slow = '{consumergroup="slow",partition="0",topic="orders"}'
    lag = "fencepost_consumergroup_lag"
    parts = ("kafka_consumergroup_lag", f"{lag}_read_committed", f"{lag}_blocked")
    assert [found[f"{name}{of_billing}"] for name in parts] == [11, 0, 11]
    assert [found[f"{name}{of_slow}"] for name in parts] == [15, 4, 11]
    assert found[f"kafka_consumergroup_current_offset{of_slow}"] == 2
    assert found['kafka_consumergroup_lag_sum{consumergroup="slow",topic="orders"}'] == 15
    assert 0 <= found[f"fencepost_consumergroup_lag_seconds{of_slow}"] < 60
    assert found['kafka_consumergroup_members{consumergroup="slow"}'] == 0
    stuck.abort_transaction(TIMEOUT_S)
    until(lambda: metered.values()[f"fencepost_last_stable_offset_lag{partition}"] == 0)
    found = metered.values()
    assert f"fencepost_oldest_open_transaction_age_seconds{partition}" not in found
    assert [found[f"{name}{of_billing}"] for name in parts] == [12, 5, 0]


def test_families_can_be_chosen_by_name_in_both_formats(metered: Metered) -> None:
    query = "?name[]=kafka_brokers&name[]=fencepost_flushed_bytes_total"
    assert {family.name for family in read_text(metered.scrape(query))} == {"kafka_brokers", "fencepost_flushed_bytes"}
    accept = "application/openmetrics-text"
    assert openmetrics_names(metered.scrape("?name[]=fencepost_flushed_bytes", Accept=accept)) == {
        "fencepost_flushed_bytes"
    }
    assert openmetrics_names(metered.scrape(Accept=accept)) == {family.name for family in read_text(metered.scrape())}


def openmetrics_names(text: str) -> set[str]:
    return {family.name for family in read_openmetrics(text)}  # type: ignore[no-untyped-call]


def test_families_for_each_partition_stop_at_a_bound(tmp_path: Path) -> None:
    metered = Metered(tmp_path / "data", **{"fencepost.metrics.max.partitions": "3"})
    metered.start()
    try:
        create(metered.admin, "one", 3)
        assert 'kafka_log_log_size{topic="one",partition="2"}' in metered.scrape()
        create(metered.admin, "two", 1)
        text = metered.scrape()
        assert "kafka_log_log_size" not in text
        assert "# left out: families for each partition, as there are 4 partitions" in text
        assert values_of(text)['kafka_server_brokertopicmetrics_messagesin_total{topic="one"}'] == 0
    finally:
        metered.broker.close()


async def test_an_offline_partition_is_counted_and_an_internal_one_makes_the_broker_unready(
    tmp_path: Path,
) -> None:
    async with http_node(tmp_path) as http:
        topics = http.node.services.topics
        await topics.ensure_internal("__transaction_state")
        await http.node.ensure_loaded()
        assert (await http.json("/readyz")) == {"status": "ok"}
        names = ("fencepost_partitions_offline", "kafka_server_replicamanager_offlinereplicacount")
        found = values_of((await http.get("/metrics")).text)
        assert [found[name] for name in names] == [0, 0]
        log = topics.log(TopicPartitionName("__transaction_state", 1))
        assert log is not None
        log.give_up(StorageError("the disk is gone"))
        found = values_of((await http.get("/metrics")).text)
        assert [found[name] for name in names] == [1, 1]
        assert found["kafka_controller_kafkacontroller_offlinepartitionscount"] == 1
        answer = await http.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["reasons"] == ["__transaction_state-1 is offline: the disk is gone"]
        assert (await http.get("/livez")).status_code == 200, "a restart would not help"
