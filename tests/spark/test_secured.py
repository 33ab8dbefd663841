"""The sink at a broker that wants TLS and a login: with the options that a user of Spark's own sink has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from fencepost import Broker
from fencepost.spark import clients
from fencepost.spark.committing import Committer
from fencepost.spark.decisions import Batch
from fencepost.spark.messages import Chunk, Layout
from fencepost.spark.options import SinkOptions
from fencepost.spark.writing import Task, write
from tests.support.certificates import Authority
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

pytestmark = pytest.mark.integration

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="her-secret"'
LAYOUT = Layout({"value": 0}, "out")
BATCH = Batch("8cd0ef86-096d-4b7d-8237-fcb86ebd341a", 0)


@pytest.fixture
def options(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Of a sink, at a broker of its own."""
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().both),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN} user_ann="her-secret";',
    }
    with Broker(tmp_path / "data", settings=settings) as broker:
        yield {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f"{LOGIN};",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(authority.path),
            "kafka.log_level": "0",
            "topic": "out",
            "sink": "orders",
        }


@pytest.fixture(autouse=True)
def clients_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(clients, "_kept", kept)
    yield
    for client, _ in kept.values():
        client.close()


def test_a_batch_is_committed_over_tls_with_a_login(options: dict[str, str]) -> None:
    sink = SinkOptions.read(options)
    chunks = iter([Chunk([b"a", b"b"], None, None, None, None)])
    report = write(sink, LAYOUT, Task("orders", BATCH, "3f9a1c02", 0, 0), chunks)
    Committer(sink, "orders").commit(BATCH, [report], LAYOUT)

    reader = confluent_kafka.Consumer({**sink.connection(), "group.id": "g", "isolation.level": "read_committed"})
    reader.assign([confluent_kafka.TopicPartition("out", 0, 0)])
    found = [message.value() for message in reader.consume(2, 20)]
    reader.close()
    assert sorted(found) == [b"a", b"b"]
