"""Kafka's own Java client, unmodified: it is the one that speaks transactions version 2 (KIP-890)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import committed_records
from tests.support.stable_offsets import until_stable

PROGRAM = Path(__file__).parent / "java" / "VersionTwoTransactions.java"


@pytest.mark.timeout(300)
def test_transactions_of_version_2_commit_abort_survive_a_crash_and_fence(own_broker: BrokerProcess) -> None:
    admin = KafkaAdminClient(bootstrap_servers=own_broker.bootstrap)
    admin.create_topics({"java": {"num_partitions": 2, "replication_factor": 1}})
    admin.close()
    with subprocess.Popen(
        ["java", "-cp", kafka_clients_class_path(), str(PROGRAM), own_broker.bootstrap, "java"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == "open\n"
        own_broker.restart_after_kill()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.read().split("\n") == ["fenced", "done", ""]
    until_stable({"bootstrap.servers": own_broker.bootstrap}, "java", 2)
    values = sorted(
        record.value.decode()
        for partition in range(2)
        for record in committed_records(own_broker.bootstrap, "java", partition)
    )
    assert values == ["after the crash", "before the crash", "committed", "committed", "successor"]
    admin = KafkaAdminClient(bootstrap_servers=own_broker.bootstrap)
    description = admin.describe_transactions(["java"])["java"]
    admin.close()
    # Every transaction has its own epoch in version 2: five sessions and transactions, and the fence.
    assert description.producer_epoch >= 5
