"""docs/moving-from-kafka.md: its program copies committed records and groups' offsets from one broker to another."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.harness import NotHereError
from tests.compat.jvm import class_path
from tests.docs.code_blocks import DOCS, blocks
from tests.support.broker_process import BrokerProcess

FILES = {block.file_name: block.text for block in blocks((DOCS / "moving-from-kafka.md").read_text(encoding="utf-8"))}
LIMIT_S = 60.0
MIRROR_VERSION = "4.3.1"  # the newest that Maven Central has
MIRROR_LIMIT_S = 150.0
# What a test cannot wait a minute for.
QUICKER = "emit.checkpoints.interval.seconds = 2\nsync.group.offsets.interval.seconds = 2\n"


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
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", 2, 1)])["orders"].result(10)
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
    # Every record is followed by its marker: 0 is committed, 2 is aborted, 4 and 6 are committed.
    positions = [TopicPartition("orders", 0, 4), TopicPartition("orders", 1, 8)]
    deadline = time.monotonic() + LIMIT_S
    while True:  # a coordinator of Apache Kafka may still be loading
        request = [ConsumerGroupTopicPartitions("shop", positions)]
        altered = admin.alter_consumer_group_offsets(request)["shop"].result(10).topic_partitions
        if not any(one.error for one in altered):
            return
        assert time.monotonic() < deadline, altered
        time.sleep(0.2)


def offsets(bootstrap: str, group: str) -> dict[int, int]:
    """The committed offsets of a group in `orders`; nothing if there is no such group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(10)
    return {one.partition: one.offset for one in found.topic_partitions if one.offset >= 0}


@pytest.mark.integration
def test_the_program_copies_records_and_offsets_so_that_groups_go_on_where_they_were(tmp_path: Path) -> None:
    program = tmp_path / "copy_topic.py"
    program.write_text(FILES["copy_topic.py"], encoding="utf-8")
    with BrokerProcess(tmp_path / "old") as old, BrokerProcess(tmp_path / "new") as new:
        fill(old.bootstrap)
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
        assert offsets(new.bootstrap, "shop") == {0: 1, 1: 3}


@pytest.mark.compat
@pytest.mark.timeout(400)
def test_mirror_maker_with_the_settings_of_the_page_copies_committed_records_and_groups(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not on PATH")
    try:
        jars = class_path(("connect-mirror", MIRROR_VERSION))
    except NotHereError as missing:
        pytest.skip(str(missing))
    with BrokerProcess(tmp_path / "old") as old, BrokerProcess(tmp_path / "new") as new:
        fill(old.bootstrap)
        settings = FILES["mm2.properties"].replace("kafka.example:9092", old.bootstrap)
        properties = tmp_path / "mm2.properties"
        properties.write_text(settings.replace("127.0.0.1:9092", new.bootstrap) + QUICKER, encoding="utf-8")
        output = tmp_path / "output"
        with output.open("wb") as sink:
            mirror = subprocess.Popen(
                ["java", "-Xmx512m", "-cp", jars, "org.apache.kafka.connect.mirror.MirrorMaker", str(properties)],
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        try:
            deadline = time.monotonic() + MIRROR_LIMIT_S
            while set(offsets(new.bootstrap, "shop")) != {0, 1}:
                assert mirror.poll() is None, output.read_text()
                assert time.monotonic() < deadline, output.read_text()
                time.sleep(0.5)
        finally:
            mirror.terminate()
            mirror.wait(60)
        for partition in range(2):
            assert read(new.bootstrap, partition) == read(old.bootstrap, partition)
        moved = offsets(new.bootstrap, "shop")
        assert moved[0] <= 1, "no record is left out"
        assert moved[1] == 3
