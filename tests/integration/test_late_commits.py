"""A commit that comes after the coordinator's abort: what clients report, and what their applications do then."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaAdminClient
from kafka import KafkaProducer as PythonProducer
from kafka.errors import KafkaError as PythonKafkaError
from kafka.errors import ProducerFencedError

from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION, kafka_class_path
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import committed_records
from tests.support.stable_offsets import until_stable

PROGRAM = Path(__file__).parent / "java" / "LateCommit.java"


def wait_for_the_abort(broker: BrokerProcess, transactional_id: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        end = time.monotonic() + 60
        while admin.describe_transactions([transactional_id])[transactional_id].state != "CompleteAbort":
            assert time.monotonic() < end
            time.sleep(0.05)
    finally:
        admin.close()


def create(broker: BrokerProcess, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1}})
    admin.close()


def values(broker: BrokerProcess, topic: str) -> list[bytes]:
    until_stable({"bootstrap.servers": broker.bootstrap}, topic, 1)
    return [record.value for record in committed_records(broker.bootstrap, topic)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("version", "refusal"), [(KAFKA_CLIENTS_VERSION, "InvalidTxnStateException"), ("3.9.2", "ProducerFencedException")]
)
def test_javas_producer_turns_fatal_and_a_new_one_writes_the_records_again(
    broker: BrokerProcess, version: str, refusal: str
) -> None:
    topic = f"late-java-{version}"
    create(broker, topic)
    with subprocess.Popen(
        ["java", "-cp", kafka_class_path("kafka-clients", version), str(PROGRAM), broker.bootstrap, topic],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        wait_for_the_abort(broker, topic)
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.read().splitlines() == [
            f"commit: {refusal}",
            f"abort: {'KafkaException' if version == KAFKA_CLIENTS_VERSION else refusal}",
            "close: done",
            "commit of a new producer: done",
        ]
    assert values(broker, topic) == [b"late, written again"]


def test_librdkafkas_producer_is_fenced_and_a_new_one_writes_the_records_again(broker: BrokerProcess) -> None:
    create(broker, "late-librdkafka")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": "late-librdkafka",
        "transaction.timeout.ms": 1000,
        "message.timeout.ms": 1000,
    }
    late = Producer(settings)
    late.init_transactions(60)
    late.begin_transaction()
    late.produce("late-librdkafka", b"late")
    late.flush(60)
    wait_for_the_abort(broker, "late-librdkafka")
    with pytest.raises(KafkaException) as refused:
        late.commit_transaction(60)
    error = refused.value.args[0]
    assert (error.code(), error.fatal(), error.txn_requires_abort()) == (KafkaError._FENCED, True, False)
    successor = Producer(settings)
    successor.init_transactions(60)
    successor.begin_transaction()
    successor.produce("late-librdkafka", b"late, written again")
    successor.commit_transaction(60)
    assert values(broker, "late-librdkafka") == [b"late, written again"]


def test_kafka_pythons_producer_is_fenced_and_a_new_one_writes_the_records_again(broker: BrokerProcess) -> None:
    create(broker, "late-python")

    def producer() -> PythonProducer:
        opened = PythonProducer(
            bootstrap_servers=broker.bootstrap, transactional_id="late-python", transaction_timeout_ms=1000
        )
        opened.init_transactions()
        opened.begin_transaction()
        return opened

    late = producer()
    late.send("late-python", b"late").get(60)
    wait_for_the_abort(broker, "late-python")
    with pytest.raises(ProducerFencedError):
        late.commit_transaction()
    with pytest.raises(PythonKafkaError):
        late.abort_transaction()
    late.close(5)
    successor = producer()
    successor.send("late-python", b"late, written again")
    successor.commit_transaction()
    successor.close()
    assert values(broker, "late-python") == [b"late, written again"]
