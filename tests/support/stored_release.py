"""A data directory as release 0.1.0 wrote it, stored in `tests/stored`, and a check of it record by record.

    python -m tests.support.stored_release

writes it anew with that version, which the history of the checkout must have. That version had no users, rights,
clusters or brokers of several processes.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import BrokerProcess
from tests.support.conditions import PATIENCE_S, until
from tests.support.earlier_version import earlier_program
from tests.support.stored_state import STORED

COMMIT: Final = "7f655e7c"
"""Of version 0.1.0."""
PACKAGES: Final = ("fencepost", "broker", "protocol")
ARCHIVE: Final = STORED / f"release-0.1.0-{COMMIT}.tar.xz"
SETTINGS: Final = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "offsets.retention.minutes": "2000000000",  # the file is older each day
    "log.cleaner.backoff.ms": "200",
}
TOPICS: Final = {"orders": 2, "stock": 1, "empty": 1}
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.ms": "50000",
    "retention.ms": "-1",
}
OFFSET: Final = 5
TIME_MS: Final = 1_700_000_000_000
Record = list[Any]
"""offset, key, value, timestamp in ms, headers: as JSON has them."""


def records(bootstrap: str, topic: str, isolation: str) -> dict[str, list[Record]]:
    """All records of a topic up to the end that a consumer of that isolation level sees, by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: dict[str, list[Record]] = {}
    try:
        for number in range(TOPICS[topic]):
            consumer.assign([TopicPartition(topic, number, 0)])
            read: list[Record] = []
            while True:
                message = consumer.poll(PATIENCE_S)
                assert message is not None, f"{topic}-{number} has no end after {read}"
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    break
                headers = [[name, value.decode()] for name, value in message.headers() or []]
                key, value = (each and each.decode() for each in (message.key(), message.value()))
                read.append([message.offset(), key, value, message.timestamp()[1], headers])
            found[str(number)] = read
    finally:
        consumer.close()
    return found


def fill(bootstrap: str) -> dict[str, Any]:
    """Write committed, aborted and open transactions, a compacted topic, and offsets of a group; returns the facts."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {"orders": {"retention.ms": "-1"}, "stock": COMPACTED, "empty": {}}
    made = admin.create_topics([NewTopic(name, count, 1, config=settings[name]) for name, count in TOPICS.items()])
    for each in made.values():
        each.result(PATIENCE_S)
    till = Producer({"bootstrap.servers": bootstrap, "transactional.id": "till", "linger.ms": 0})
    till.init_transactions(PATIENCE_S)
    for number in range(6):
        till.begin_transaction()
        _order(till, f"{'sale' if number % 3 else 'mistake'} {number}", number)
        if number % 3:
            till.commit_transaction(PATIENCE_S)
        else:
            assert till.flush(PATIENCE_S) == 0
            till.abort_transaction(PATIENCE_S)
    _count_stock(bootstrap)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shop"})
    consumer.commit(
        offsets=[TopicPartition("orders", 0, OFFSET), TopicPartition("orders", 1, OFFSET)], asynchronous=False
    )
    consumer.close()
    committed = records(bootstrap, "orders", "read_committed")
    still_open = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": "open", "transaction.timeout.ms": 900_000}
    )
    still_open.init_transactions(PATIENCE_S)
    still_open.begin_transaction()
    _order(still_open, "open", 6)
    assert still_open.flush(PATIENCE_S) == 0
    return {
        "committed": committed,
        "uncommitted": records(bootstrap, "orders", "read_uncommitted"),
        "stock": records(bootstrap, "stock", "read_committed"),
    }


def _order(producer: Producer, value: str, number: int) -> None:
    for partition in range(TOPICS["orders"]):
        headers: list[tuple[str, str | bytes | None]] = [("till", f"{number}".encode())]
        producer.produce(
            "orders", value, f"customer {number}", partition=partition, timestamp=TIME_MS + number, headers=headers
        )


def _count_stock(bootstrap: str) -> None:
    """Write until the cleaner has removed an older value of each key."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(40):
        for name in ("apples", "melons"):
            producer.produce("stock", f"{number} " + "x" * 20, name, timestamp=TIME_MS + 10_000 * number)
            assert producer.flush(PATIENCE_S) == 0
    until(lambda: len(records(bootstrap, "stock", "read_committed")["0"]) < 70)


def check(bootstrap: str, facts: dict[str, Any]) -> None:
    """Each record is there, the open transaction is not committed, and groups and transactions go on."""
    seen = records(bootstrap, "orders", "read_uncommitted")
    assert seen == facts["uncommitted"]
    for partition in map(str, range(TOPICS["orders"])):
        assert [one[2] for one in seen[partition] if one not in facts["committed"][partition]] == [
            *("mistake 0", "mistake 3", "open")
        ]
    for name in ("open", "till"):  # ends the transaction that is open, if its time has not yet done so
        producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
        producer.init_transactions(PATIENCE_S)
    committed = records(bootstrap, "orders", "read_committed")
    assert committed == facts["committed"]
    producer.begin_transaction()
    _order(producer, "later", 7)
    producer.commit_transaction(PATIENCE_S)
    later = records(bootstrap, "orders", "read_committed")
    assert {name: [one[2] for one in read[len(committed[name]) :]] for name, read in later.items()} == {
        str(partition): ["later"] for partition in range(TOPICS["orders"])
    }
    # The cleaner works on: it may have removed more of the older values.
    stock = records(bootstrap, "stock", "read_committed")["0"]
    assert [one for one in stock if one not in facts["stock"]["0"]] == []
    assert {one[1]: one for one in stock} == {one[1]: one for one in facts["stock"]["0"]}
    assert records(bootstrap, "empty", "read_committed") == {"0": []}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    offsets = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("shop")])["shop"].result(PATIENCE_S)
    assert {one.partition: one.offset for one in offsets.topic_partitions} == {0: OFFSET, 1: OFFSET}


def unpack(directory: Path) -> dict[str, Any]:
    """Put the data directory into `data` of the directory; returns the facts."""
    with tarfile.open(ARCHIVE) as tar:
        tar.extractall(directory, filter="data")
    facts: dict[str, Any] = json.loads((directory / "facts.json").read_text())
    return facts


def write() -> None:
    """Write the archive anew."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        broker = BrokerProcess(directory / "data", settings=SETTINGS)
        broker.program = earlier_program(directory / "earlier", COMMIT, PACKAGES)
        with broker:
            facts = fill(broker.bootstrap)
            assert broker.terminate() == 0
        (directory / "facts.json").write_text(json.dumps(facts))
        with tarfile.open(ARCHIVE, "w:xz") as tar:
            for name in ("facts.json", "data"):
                tar.add(directory / name, name)
    sys.stdout.write(f"{ARCHIVE}: {ARCHIVE.stat().st_size} bytes\n")


if __name__ == "__main__":
    write()
