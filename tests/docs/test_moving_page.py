"""docs/moving-from-kafka.md: its program copies committed records and groups' offsets from one broker to another."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.docs.code_blocks import DOCS, blocks
from tests.support.broker_process import BrokerProcess

(PROGRAM,) = [
    block.text
    for block in blocks((DOCS / "moving-from-kafka.md").read_text(encoding="utf-8"))
    if block.file_name == "copy_topic.py"
]
LIMIT_S = 60.0


def read(bootstrap: str, partition: int) -> list[tuple[Any, ...]]:
    """Key, value, headers and time of the committed records of a partition of `orders`."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition("orders", partition, 0)])
    found: list[tuple[Any, ...]] = []
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is not None:
            consumer.close()
            return found
        if message is not None:
            found.append((message.key(), message.value(), message.headers(), message.timestamp()[1]))
    raise AssertionError(found)


def fill(bootstrap: str) -> None:
    """Two partitions: committed transactions, an aborted one among them, headers, old times, a null value."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till"})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(
                "orders",
                b"value %d" % number if number else None,
                b"key %d" % number,
                partition,
                headers=[("number", b"%d" % number)],
                timestamp=1_700_000_000_000 + number,
            )
        assert producer.flush(30) == 0
        if number == 1:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


@pytest.mark.integration
def test_the_program_copies_records_and_offsets_so_that_groups_go_on_where_they_were(tmp_path: Path) -> None:
    program = tmp_path / "copy_topic.py"
    program.write_text(PROGRAM, encoding="utf-8")
    with BrokerProcess(tmp_path / "old") as old, BrokerProcess(tmp_path / "new") as new:
        admin = AdminClient({"bootstrap.servers": old.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(10)
        fill(old.bootstrap)
        # Every record is followed by its marker: 0 is committed, 2 is aborted, 4 and 6 are committed.
        positions = [TopicPartition("orders", 0, 4), TopicPartition("orders", 1, 8)]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("shop", positions)])["shop"].result(10)

        copied = subprocess.run(
            [sys.executable, str(program), old.bootstrap, new.bootstrap, "orders", "shop", "nobody"],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        assert copied.returncode == 0, copied.stderr
        assert copied.stdout == "orders: 6 records, 2 groups\n"

        for partition in range(2):
            records = read(new.bootstrap, partition)
            assert records == read(old.bootstrap, partition)
            assert [value for _, value, _, _ in records] == [None, b"value 2", b"value 3"]
        target = AdminClient({"bootstrap.servers": new.bootstrap})
        found = target.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shop")])["shop"].result(10)
        assert {one.partition: one.offset for one in found.topic_partitions} == {0: 1, 1: 3}
