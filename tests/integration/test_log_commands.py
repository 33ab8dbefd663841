"""`fencepost log` on what a broker and its clients leave: no false alarm, whatever the stop; repaired, it serves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from tests.support.broker_process import BrokerProcess
from tests.support.data_directory import batches_of, flip
from tests.support.json_outputs import check_output

SETTINGS = {
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "log.cleaner.backoff.ms": "100",
}
ORDERS = TopicPartition("orders", 0)


def log_command(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command, *rest = arguments
    directory = str(broker.data_directory)
    line = [sys.executable, "-m", "fencepost", "log", command, "--data-dir", directory, *rest]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def findings(broker: BrokerProcess) -> list[dict[str, Any]]:
    shown = log_command(broker, "verify", "--json").stdout
    check_output("log verify", shown)
    found: list[dict[str, Any]] = json.loads(shown)["findings"]
    return found


def use(broker: BrokerProcess) -> None:
    """Topics of every kind: compacted, with transactions of which some are aborted, read by a group, and empty."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
    admin.create_topics(
        {
            "orders": {"num_partitions": 2, "replication_factor": -1},
            "latest": {"num_partitions": 1, "replication_factor": -1, "configs": compacted},
            "empty": {"num_partitions": 3, "replication_factor": -1},
        }
    )
    plain = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
    for number in range(300):
        plain.send("orders", b"%05d" % number * 2_000, partition=number % 2)
        plain.send("latest", b"x" * 10_000, key=b"%d" % (number % 7))
        if number % 4 == 0:
            plain.flush()
    plain.close()
    transactional = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id="teller")
    transactional.init_transactions()
    for number in range(12):
        transactional.begin_transaction()
        for partition in (0, 1):
            transactional.send("orders", b"in transaction %d" % number, partition=partition)
        if number % 3:
            transactional.commit_transaction()
        else:
            transactional.abort_transaction()
    transactional.close()
    consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="earliest")
    for _, _message in zip(range(200), consumer, strict=False):
        pass
    consumer.commit()
    consumer.close()
    admin.close()


def read_offsets(broker: BrokerProcess) -> list[int]:
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    consumer.assign([ORDERS])
    consumer.seek(ORDERS, 0)
    end = consumer.end_offsets([ORDERS])[ORDERS]
    offsets: list[int] = []
    while consumer.position(ORDERS) < end:
        for messages in consumer.poll(timeout_ms=500).values():
            offsets += [message.offset for message in messages]
    consumer.close()
    return offsets


@pytest.mark.integration
@pytest.mark.parametrize("end", ["clean", "kill -9"])
def test_no_false_alarm_and_a_repaired_log_is_served(tmp_path: Path, end: str) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS)
    with broker:
        use(broker)
        running = log_command(broker, "verify")
        assert (running.returncode, "is in use by a broker" in running.stderr) == (1, True)
        before = read_offsets(broker)
        if end == "clean":
            broker.terminate()
        else:
            broker.kill()
    assert findings(broker) == []
    first = min((tmp_path / "data" / "orders-0").glob("*.log"))
    (tmp_path / "data" / "orders-0" / "segment-checksums").unlink()  # as in a directory that Apache Kafka has written
    assert findings(broker) == []

    batches = batches_of(str(first))
    position, header = batches[len(batches) // 2]
    mended_position, _ = batches[3]
    flip(str(first), position + 90)
    flip(str(first), mended_position + 6)
    assert {(one["position"], one["severity"]) for one in findings(broker)} == {
        (position, "damage"),
        (mended_position, "damage"),
    }
    repaired = log_command(broker, "repair", "--accept-loss", "--json", "orders-0")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    check_output("log repair", repaired.stdout)
    (partition,) = json.loads(repaired.stdout)["partitions"]
    assert {one["position"] for one in partition["repaired"]} >= {position, mended_position}
    assert partition["lost_offsets"] == header.last_offset - header.base_offset + 1
    assert {one["severity"] for one in findings(broker)} == {"note"}
    with broker:
        lost = set(range(header.base_offset, header.last_offset + 1))
        assert read_offsets(broker) == [offset for offset in before if offset not in lost]
        broker.terminate()
    assert {one["severity"] for one in findings(broker)} == {"note"}
