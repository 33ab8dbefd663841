"""A cluster as people meet it: orders and payments in transactions, groups that read them; whole, or broken."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.check_back.case import Case, Decider, State
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.records import TOPIC_CONFIGS, asked_entry, case_entry, decided_entry, resolver_entry
from fencepost.check_back.settings import ResolverSettings
from fencepost.client.cluster import Cluster
from fencepost.client.session import ClientOptions
from fencepost.console.in_doubt import token_of
from fencepost.console.reading.transactions import describe_transaction
from fencepost.diagnosis.stuck import CoordinatorView
from fencepost.soak.free_port import free_port
from tests.support.broker_process import BrokerProcess

STUCK_ID = "checkout-7"
DOUBTFUL_ID = "receipt-writer-3"
HOSTILE = "<script>alert('1')</script>\u202egnp.\n\"&"
TOPICS = {"orders": 3, "payments": 6, "page-views": 3, "shipments": 1, "archive": 1}
TRANSACTIONS = 24


def fill(bootstrap: str) -> None:
    """Write topics, committed and aborted transactions, and let groups read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, count, 1) for name, count in TOPICS.items()]).values():
        future.result(60)
    views = Producer({"bootstrap.servers": bootstrap, "client.id": "web-3"})
    for number in range(300):
        value = json.dumps({"page": f"/product/{number % 37}", "visitor": f"v{number % 91}", "ms": number * 13 % 700})
        views.produce("page-views", value, f"v{number % 91}")
    views.produce("archive", "kept")
    views.flush(60)
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
        shop.flush(60)
        if number % 7 == 3:
            shop.abort_transaction(60)
        else:
            shop.commit_transaction(60)
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
    producer.init_transactions(60)
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
    count, deadline_s = 0, time.monotonic() + 60
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
    stuck.flush(60)
    behind = _producer(bootstrap, f"{topic}-behind", 60_000)
    behind.begin_transaction()
    for number in range(4):
        behind.produce(topic, json.dumps({"order": 6_000 + number}), "c1", partition=partition)
    behind.commit_transaction(60)
    return stuck


def leave_in_doubt(bootstrap: str) -> list[Producer]:
    """Transactions in doubt, and what a check-back has written: one waits for its first question, one for its second,
    one is parked.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = [NewTopic(name, 1, 1, config=dict(configs)) for name, configs in TOPIC_CONFIGS.items()]
    for future in admin.create_topics([*topics, NewTopic("receipts", 3, 1)]).values():
        future.result(60)
    producers = []
    for number in range(1, 4):
        producer = _producer(bootstrap, f"receipt-writer-{number}", 900_000)
        producer.begin_transaction()
        for receipt in range(number):
            producer.produce("receipts", json.dumps({"receipt": receipt}), "c1", partition=number - 1)
        producer.flush(60)
        producers.append(producer)
    # In a thread: the browser's driver has an event loop in this one.
    with ThreadPoolExecutor(1) as thread:
        views = thread.submit(asyncio.run, _described(bootstrap, ["receipt-writer-2", DOUBTFUL_ID])).result()
    now_ms = int(time.time() * 1000)
    settings = ResolverSettings("receipts", ("receipt-writer-*",), "http", checks_max=3)
    entries = [resolver_entry(settings, up=True, reason=None, since_ms=now_ms)]
    for name, checks, is_parked in (("receipt-writer-2", 1, False), (DOUBTFUL_ID, 3, True)):
        question = Question(token_of(views[name]), views[name].started_ms, tuple(views[name].partitions))
        case = Case(question, "receipts", State.WAITING, now_ms + 570_000, checks, 0, Answer.UNKNOWN, now_ms)
        entries += [
            asked_entry(replace(case, checks=check), Answer.UNKNOWN, None, latency_ms=7 + check, now_ms=now_ms + check)
            for check in range(1, checks + 1)
        ]
        if is_parked:
            entries.append(decided_entry(case, "park", Decider.EXHAUSTED, now_ms + 4))
        entries.append(case_entry(replace(case, is_parked=is_parked)))
    writer = Producer({"bootstrap.servers": bootstrap})
    for entry in entries:
        writer.produce(entry.topic, entry.encoded_value(), entry.key)
    writer.flush(60)
    return producers


async def _described(bootstrap: str, ids: list[str]) -> dict[str, CoordinatorView]:
    host, _, port = bootstrap.rpartition(":")
    cluster = Cluster([(host, int(port))], ClientOptions())
    try:
        return {name: await describe_transaction(cluster, name) for name in ids}
    finally:
        cluster.close()


@contextmanager
def broken_broker(directory: Path) -> Iterator[tuple[BrokerProcess, str, Producer]]:
    """A filled broker with a partition that cannot be opened and a transaction that stays open; the address of its HTTP
    listener, and the producer.
    """
    http = f"127.0.0.1:{free_port()}"
    settings = {
        "fencepost.http.listener": http,
        "transaction.two.phase.commit.enable": "true",
        "fencepost.two.phase.transactional.ids": "receipt-writer-*",
    }
    broker = BrokerProcess(directory / "data", settings=settings)
    broker.start()
    try:
        fill(broker.bootstrap)
        assert broker.terminate() == 0
        archive = broker.data_directory / "archive-0"
        archive.rename(directory / "kept")
        archive.write_text("a file")
        broker.start()
        stuck = leave_open(broker.bootstrap, "orders")
        waiting = leave_in_doubt(broker.bootstrap)
        yield broker, f"http://{http}", stuck
        del waiting
    finally:
        broker.kill()
