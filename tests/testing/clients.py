"""Clients of confluent-kafka as the tests of the plugin use them: quiet, and quick to reconnect."""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import Consumer, Producer

IN_ANOTHER_PROCESS = """
import sys
from confluent_kafka import Producer
producer = Producer({"bootstrap.servers": sys.argv[1], "client.id": "elsewhere"})
producer.produce("orders", b"from elsewhere", partition=0)
sys.exit(producer.flush(20))
"""
"""A program that appends a record to `orders` at the address that it is given."""

QUIET = {"log_level": 0, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50}


def producer(broker: Any, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET, **settings})


def transactional_producer(broker: Any, transactional_id: str, **settings: Any) -> Producer:
    """With its transactions initialised. The connection is made first: librdkafka would wait for half a second."""
    made = producer(broker, **{"transactional.id": transactional_id, **settings})
    made.list_topics(timeout=10)
    made.init_transactions(10)
    return made


def consumer(broker: Any, group: str, *topics: str, **settings: Any) -> Consumer:
    made = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **QUIET,
            **settings,
        }
    )
    made.subscribe(list(topics))
    return made


def producer_in_transaction(broker: Any, transactional_id: str, topic: str, value: bytes, **settings: Any) -> Producer:
    """With an open transaction that has one record, which the broker has acknowledged; in partition 0."""
    made = transactional_producer(broker, transactional_id, **settings)
    made.begin_transaction()
    made.produce(topic, value, partition=0)
    assert made.flush(10) == 0
    return made


def consumer_with_partitions(broker: Any, group: str, *topics: str, **settings: Any) -> Consumer:
    """A member of its group, with its partitions assigned; it has read nothing that is needed later."""
    made = consumer(broker, group, *topics, **settings)
    give_up_at_s = time.monotonic() + 30
    while not made.assignment():
        assert time.monotonic() < give_up_at_s, broker.describe()
        made.poll(0.01)
    return made


def committing(made: Producer) -> threading.Thread:
    """A thread that commits the open transaction, and goes on when the broker comes back meanwhile."""
    thread = threading.Thread(target=made.commit_transaction, args=(60,))
    thread.start()
    return thread
