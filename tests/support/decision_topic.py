"""A topic of decisions, as `record` resolvers read it: its writer commits a record that lists tokens."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient

from fencepost.two_phase import Token

KEY = b"sink"


def create_decisions(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    configs = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    try:
        admin.create_topics({topic: {"num_partitions": 1, "replication_factor": 1, "configs": configs}})
    finally:
        admin.close()


def write_decision(bootstrap: str, topic: str, tokens: Iterable[Token], *, committed: bool = True) -> None:
    """Write a decision in a transaction of its own; one that is not committed never counts."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-driver", "log_level": 0}
    producer = Producer(settings)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, json.dumps({"batch": 1, "tokens": [str(token) for token in tokens]}), KEY, partition=0)
    if committed:
        producer.commit_transaction(60)
    else:
        producer.flush(60)
        producer.abort_transaction(60)
