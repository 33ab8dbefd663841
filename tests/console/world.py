"""A cluster as people meet it: orders and payments in transactions, groups that read them; whole, or broken."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.soak.free_port import free_port
from tests.support.broker_process import BrokerProcess

STUCK_ID = "checkout-7"
HOSTILE = "<script>alert('1')</script>\u202egnp.\n\"&"
TOPICS = {"orders": 3, "payments": 6, "page-views": 3, "shipments": 1, "archive": 1}
TRANSACTIONS = 24


def fill(bootstrap: str) -> None:
    """Write topics, committed and aborted transactions, and let groups read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        future.result(30)
    views = Producer({"bootstrap.servers": bootstrap, "client.id": "web-3"})
    for number in range(300):
        value = json.dumps({"page": f"/product/{number % 37}", "visitor": f"v{number % 91}", "ms": number * 13 % 700})
        views.produce("page-views", value, f"v{number % 91}")
    views.produce("archive", "kept")
    views.flush(30)
    shops = [_producer(bootstrap, f"shop-{number}", 900_000) for number in range(3)]
    for number in range(TRANSACTIONS):
        shop = shops[number % 3]
        shop.begin_transaction()
        for item in range(3 + number % 3):
            order = 1_000 + number * 10 + item
            value = json.dumps({"order": order, "customer": f"c{order % 40}", "total": round(order * 0.37, 2)})
            headers = {"source": "shop", "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
            shop.produce("orders", value, f"c{order % 40}", partition=number // 3 % 3, headers=headers)
            shop.produce("payments", json.dumps({"order": order, "state": "captured"}), str(order))
        shop.flush(30)
        if number % 7 == 3:
            shop.abort_transaction(30)
        else:
            shop.commit_transaction(30)
    for group_id, topics, least in (("billing", ["orders"], 60), ("audit", ["orders", "payments"], 120)):
        _read(bootstrap, group_id, topics, least)
    _read(bootstrap, "search-index", ["page-views"], 100)


def _producer(bootstrap: str, transactional_id: str, timeout_ms: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "client.id": transactional_id.partition("\n")[0][:40],
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    return producer


def _read(bootstrap: str, group_id: str, topics: list[str], least: int) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "client.id": f"{group_id}-1",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(topics)
    count, deadline_s = 0, time.monotonic() + 30
    while count < least:
        count += consumer.poll(0.2) is not None
        assert time.monotonic() < deadline_s, f"{group_id} read {count} records"
    consumer.commit(asynchronous=False)
    consumer.close()


def leave_open(bootstrap: str, topic: str, transactional_id: str = STUCK_ID, *, partition: int = 0) -> Producer:
    """A transaction that holds readers, with five records; and a committed one behind it."""
    stuck = _producer(bootstrap, transactional_id, 900_000)
    stuck.begin_transaction()
    for number in range(5):
        stuck.produce(topic, json.dumps({"order": 5_000 + number}), "c9", partition=partition)
    stuck.flush(30)
    behind = _producer(bootstrap, f"{topic}-behind", 60_000)
    behind.begin_transaction()
    for number in range(4):
        behind.produce(topic, json.dumps({"order": 6_000 + number}), "c1", partition=partition)
    behind.commit_transaction(30)
    return stuck


@contextmanager
def broken_broker(directory: Path) -> Iterator[tuple[BrokerProcess, str, Producer]]:
    """A filled broker with a partition that cannot be opened and a transaction that stays open; the address of its HTTP
    listener, and the producer.
    """
    http = f"127.0.0.1:{free_port()}"
    broker = BrokerProcess(directory / "data", settings={"fencepost.http.listener": http})
    broker.start()
    try:
        fill(broker.bootstrap)
        assert broker.terminate() == 0
        archive = broker.data_directory / "archive-0"
        archive.rename(directory / "kept")
        archive.write_text("a file")
        broker.start()
        yield broker, f"http://{http}", leave_open(broker.bootstrap, "orders")
    finally:
        broker.kill()
