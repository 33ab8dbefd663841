"""Clients over TLS: brokers inside the process, on both event loops, and a process whose certificate is replaced."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

from fencepost import Broker
from tests.support.broker_process import BrokerProcess
from tests.support.certificates import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def of_librdkafka(bootstrap_servers: str, authority: Authority) -> dict[str, Any]:
    files = authority.client("alice")
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.path),
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
    }


@pytest.mark.parametrize("durable", [False, True], ids=["for tests, on asyncio", "durable, on uvloop"])
def test_a_broker_inside_the_process_serves_clients_with_certificates(
    tmp_path: Path, authority: Authority, durable: bool
) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().both),
        "ssl.truststore.location": str(authority.path),
        "ssl.client.auth": "required",
    }
    values = [b"%d" % number * 1_000 for number in range(1_000)]
    with Broker(tmp_path / "data", settings=settings, durable=durable) as broker:
        client = of_librdkafka(broker.bootstrap_servers, authority)
        producer = Producer({**client, "transactional.id": "t"})
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.produce("orders", value)
        producer.commit_transaction()
        consumer = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        read: list[bytes] = []
        while len(read) < len(values):
            message = consumer.poll(60)
            assert message is not None
            assert message.error() is None
            read.append(message.value())
        consumer.close()
        assert read == values
        files = authority.client("bob")
        other = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_cafile": str(authority.path),
            "ssl_certfile": str(files.certificate),
            "ssl_keyfile": str(files.key),
        }
        sender = KafkaProducer(**other)
        assert sender.send("others", b"x" * 500_000).get(60).offset == 0
        sender.close()
        reader = KafkaConsumer("others", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **other)
        assert next(reader).value == b"x" * 500_000
        reader.close()


def test_a_client_without_the_authority_or_without_a_certificate_is_not_served(
    tmp_path: Path, authority: Authority
) -> None:
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().both),
        "ssl.truststore.location": str(authority.path),
        "ssl.client.auth": "required",
    }
    with Broker(tmp_path / "data", settings=settings) as broker:
        right = of_librdkafka(broker.bootstrap_servers, authority)
        assert AdminClient(right).list_topics(timeout=60) is not None
        stranger = Authority(tmp_path / "stranger", "stranger")
        without = {name: text for name, text in right.items() if not name.startswith(("ssl.cert", "ssl.key"))}
        for wrong in ({**right, "ssl.ca.location": str(stranger.path)}, without):
            with pytest.raises(KafkaException):
                AdminClient(wrong).list_topics(timeout=2)


def test_a_certificate_is_replaced_at_a_signal_and_open_connections_stay(tmp_path: Path, authority: Authority) -> None:
    path = tmp_path / "server.pem"
    path.touch(mode=0o600)
    path.write_bytes(authority.server("first").both.read_bytes())

    def shown(host: str, port: int) -> str:
        with (
            socket.create_connection((host, port)) as plain,
            authority.context().wrap_socket(plain, server_hostname="127.0.0.1") as client,
        ):
            subject: Any = client.getpeercert()["subject"]  # type: ignore[index]
            return str(dict(part[0] for part in subject)["commonName"])

    process = BrokerProcess(tmp_path / "data", settings={"ssl.keystore.location": str(path)})
    process.settings |= {"listeners": f"SSL://{process.host}:{process.port}"}
    process.settings |= {"listener.security.protocol.map": "PLAINTEXT:SSL"}
    with process:
        assert shown(process.host, process.port) == "first"
        client = AdminClient(of_librdkafka(process.bootstrap, authority))
        assert client.list_topics(timeout=60) is not None
        path.write_bytes(authority.server("second").both.read_bytes())
        os.kill(process.process_id, signal.SIGHUP)
        process.wait_for_output("tls_reloaded")
        assert shown(process.host, process.port) == "second"
        assert client.list_topics(timeout=60) is not None
        assert "connection_refused" not in process.output
