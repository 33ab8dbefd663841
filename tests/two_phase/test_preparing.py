"""Preparing with confluent-kafka: the pair is that of the open transaction, without a wait for each one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from fencepost.two_phase import (
    Coordinator,
    NotPrepared,
    confluent_producer,
    prepare,
    preparing,
    start_session,
    transaction,
)
from fencepost.two_phase.client_calls import BlockingCalls
from tests.testing.clients import QUIET
from tests.two_phase.brokers import Orders
from tests.two_phase.databases import sqlite_database

pytestmark = pytest.mark.integration

Make = Callable[..., Any]


@pytest.fixture
def make(own_orders: Orders) -> Iterator[Make]:
    made: list[Any] = []

    def producer(**options: Any) -> Any:
        config = {
            "bootstrap.servers": own_orders.servers,
            "transactional.id": own_orders.transactional_id,
            **QUIET,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        made.append(confluent_producer(config))
        made[-1].init_transactions(30)
        return made[-1]

    yield producer
    for one in made:
        one.close()


def pair_at_coordinator(orders: Orders) -> tuple[int, int]:
    with Coordinator(orders.servers) as coordinator:
        found = coordinator.describe(orders.transactional_id)
    assert found is not None
    assert found.state == "Ongoing"
    return found.producer_id, found.producer_epoch


def prepared_pair(producer: Any, orders: Orders) -> tuple[int, int]:
    producer.begin_transaction()
    producer.produce(orders.topic, b"a")
    token = prepare(producer, timeout_s=30)
    assert token[:2] == pair_at_coordinator(orders)
    assert prepare(producer, timeout_s=30) == token
    return token[:2]


def test_only_the_first_transaction_of_a_session_waits_for_statistics(own_orders: Orders, make: Make) -> None:
    producer = make(statistics_interval_ms=4_000)
    pairs = {prepared_pair(producer, own_orders)}
    producer.commit_transaction(30)
    began_s = time.monotonic()
    for _ in range(10):
        pairs.add(prepared_pair(producer, own_orders))
        producer.commit_transaction(30)
    assert time.monotonic() - began_s < 20  # half of what ten waits would take
    assert len(pairs) == 1, "librdkafka has transaction version 2: lower LAST_THAT_KEEPS_ITS_PAIR"


def test_a_version_that_is_not_known_to_keep_its_pair_gets_new_statistics_each_time(
    own_orders: Orders, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparing, "LAST_THAT_KEEPS_ITS_PAIR", (0, 0))
    producer = make(statistics_interval_ms=500)
    began_s = time.monotonic()
    for _ in range(3):
        prepared_pair(producer, own_orders)
        producer.commit_transaction(30)
    assert time.monotonic() - began_s > 1


def test_the_installed_librdkafka_is_known_to_keep_its_pair() -> None:
    major, minor, *_ = confluent_kafka.libversion()[0].split(".")
    assert (int(major), int(minor)) <= preparing.LAST_THAT_KEEPS_ITS_PAIR, "the test above says whether it does"


def test_a_record_that_was_refused_is_the_reason_and_the_session_goes_on(own_orders: Orders, make: Make) -> None:
    own_orders.broker.topic(f"{own_orders.topic}-small", configs={"max.message.bytes": 1_000})
    producer = make()
    before = prepared_pair(producer, own_orders)
    producer.commit_transaction(30)
    producer.begin_transaction()
    producer.produce(f"{own_orders.topic}-small", b"a" * 5_000)
    with pytest.raises(NotPrepared, match="Message size too large"):
        prepare(producer, timeout_s=30)
    producer.abort_transaction(30)
    assert prepared_pair(producer, own_orders)[0] == before[0]
    producer.commit_transaction(30)


def test_the_pair_after_an_epoch_that_librdkafka_has_raised_itself_is_the_new_one(
    own_orders: Orders, make: Make
) -> None:
    producer = make(delivery_timeout_ms=1_500, request_timeout_ms=1_000, socket_timeout_ms=1_200)
    before = prepared_pair(producer, own_orders)
    producer.commit_transaction(30)
    producer.begin_transaction()
    with own_orders.broker.hold("Produce"):
        producer.produce(own_orders.topic, b"late")
        with pytest.raises(NotPrepared):
            prepare(producer, timeout_s=30)
    producer.abort_transaction(30)
    assert prepared_pair(producer, own_orders) > before
    producer.commit_transaction(30)


def test_without_a_transaction_nothing_is_prepared_and_none_is_begun(own_orders: Orders, make: Make) -> None:
    producer = make()
    with pytest.raises(NotPrepared, match="none is open"):
        prepare(producer, timeout_s=30)
    prepared_pair(producer, own_orders)
    confluent_kafka.Producer.commit_transaction(producer, 30)  # past the class that notes it
    producer.fencepost_is_idle = False
    with pytest.raises(NotPrepared, match="none is open"):
        prepare(producer, timeout_s=30)
    producer.fencepost_is_idle = True
    prepared_pair(producer, own_orders)
    producer.commit_transaction(30)


def test_a_session_knows_its_pair_from_its_start_and_no_transaction_waits(own_orders: Orders, tmp_path: Path) -> None:
    database = sqlite_database(tmp_path)
    connection = database.connect()
    config = {"bootstrap.servers": own_orders.servers, "transactional.id": own_orders.transactional_id, **QUIET}
    producer = confluent_producer({**config, "statistics.interval.ms": 60_000})
    began_s = time.monotonic()
    with Coordinator(own_orders.servers) as coordinator:
        generation = start_session(producer, coordinator, database.log, connection)
        for name in ("a", "b"):
            with transaction(producer, coordinator, database.log, connection, generation=generation):
                database.insert(connection, name)
                producer.produce(own_orders.topic, name.encode())
    assert time.monotonic() - began_s < 30
    assert database.orders() == own_orders.values() == ["a", "b"]
    producer.close()
    database.close()


def test_a_session_that_a_stranger_was_before_waits_for_its_own_statistics(
    own_orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = sqlite_database(tmp_path)
    connection = database.connect()
    config = {"bootstrap.servers": own_orders.servers, "transactional.id": own_orders.transactional_id, **QUIET}
    producer = confluent_producer({**config, "statistics.interval.ms": 500})
    initialize = BlockingCalls.initialize

    async def late(*about: Any) -> None:
        stranger = confluent_kafka.Producer(config)
        stranger.init_transactions(30)
        await initialize(*about)

    with Coordinator(own_orders.servers) as coordinator:
        monkeypatch.setattr(BlockingCalls, "initialize", late)
        start_session(producer, coordinator, database.log, connection)
    assert producer.fencepost_statistics is None
    prepared_pair(producer, own_orders)
    producer.commit_transaction(30)
    producer.close()
    database.close()
