"""Options of the sink, and what they mean for its two clients."""

from __future__ import annotations

from typing import Any

import pytest

from fencepost.spark.decisions import Batch
from fencepost.spark.options import Mode, SinkOptions, client_properties, kafka_python_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_options_are_read_whatever_their_case() -> None:
    options = SinkOptions.read({"Kafka.Bootstrap.Servers": "localhost:9092", "Topic": "out", "SINK": "orders"})
    assert (options.topic, options.sink, options.mode) == ("out", "orders", Mode.PREPARED)
    assert options.bootstrap_servers == "localhost:9092"
    assert options.decision_topic("orders") == "fencepost-sink-orders"


def test_the_same_key_goes_where_the_java_client_puts_it() -> None:
    assert SinkOptions.read(SERVERS).client["partitioner"] == "murmur2_random"


def test_a_users_client_options_count_more_than_the_sinks() -> None:
    client = SinkOptions.read({**SERVERS, "kafka.transaction.timeout.ms": "5000", "kafka.linger.ms": "20"}).client
    assert (client["transaction.timeout.ms"], client["linger.ms"]) == ("5000", "20")


@pytest.mark.parametrize(("transaction_ms", "delivery_ms"), [("5000", "5000"), ("600000", "120000")])
def test_a_delivery_takes_no_longer_than_its_transaction(transaction_ms: str, delivery_ms: str) -> None:
    client = SinkOptions.read({**SERVERS, "kafka.transaction.timeout.ms": transaction_ms}).client
    assert client["delivery.timeout.ms"] == delivery_ms


def test_a_batch_job_without_a_name_shares_a_decision_topic() -> None:
    options = SinkOptions.read(SERVERS).one_off()
    assert options.decision_topic("batch-1") == options.decision_topic("batch-2") == "fencepost-sink-batch"
    assert SinkOptions.read({**SERVERS, "decision.topic": "mine"}).one_off().decision_topic("batch-1") == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "'kafka.bootstrap.servers' must be specified"),
        ({"kafka.bootstrap.servers": ""}, "'kafka.bootstrap.servers' must be specified"),
        ({**SERVERS, "mode": "both"}, "'mode' is 'prepared' or 'driver'; got 'both'"),
        ({**SERVERS, "sink": "a/b"}, "the sink's name"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "'transactional.id' is not supported"),
        ({**SERVERS, "kafka.acks": "1"}, "'acks' is not supported"),
        ({**SERVERS, "kafka.enable.idempotence": "false"}, "'enable.idempotence' is not supported"),
    ],
)
def test_what_cannot_work_is_refused_in_words(options: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SinkOptions.read(options)


def test_javas_login_is_understood_by_both_clients() -> None:
    properties = client_properties(
        {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" '
            'password="a\\"b";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/ca.pem",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert "sasl.jaas.config" not in properties
    assert (properties["sasl.username"], properties["sasl.password"]) == ("ann", 'a"b')
    assert properties["ssl.ca.location"] == "/ca.pem"
    assert properties["ssl.endpoint.identification.algorithm"] == "none"
    assert kafka_python_options(properties) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ann",
        "sasl_plain_password": 'a"b',
        "ssl_cafile": "/ca.pem",
        "ssl_check_hostname": False,
    }


def test_certificates_of_the_client_are_given_to_both_clients() -> None:
    properties = client_properties(
        {
            "bootstrap.servers": "localhost:9092",
            "security.protocol": "ssl",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "/me.pem",
        }
    )
    expected: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_certfile": "/me.pem",
        "ssl_keyfile": "/me.pem",
        "ssl_check_hostname": True,
    }
    assert kafka_python_options(properties) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.truststore.location": "/a.jks"}, "the truststore is JKS"),
        ({"ssl.keystore.location": "/a.jks"}, "the keystore is JKS"),
        ({"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"}, "with username and password"),
    ],
)
def test_what_only_java_reads_is_refused_with_the_way_out(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        client_properties({"bootstrap.servers": "localhost:9092", **given})


def test_a_mechanism_that_cannot_end_transactions_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'GSSAPI'"):
        kafka_python_options({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"})


def test_a_batch_of_foreach_batch_is_named_by_its_number_and_the_sink() -> None:
    given = {"kafka.bootstrap.servers": "localhost:9092", "sink": "orders", "batch": "7"}
    assert SinkOptions.read(given).batch == Batch("orders", 7)


@pytest.mark.parametrize(
    ("wrong", "reason"), [({"batch": "7"}, "needs option 'sink'"), ({"batch": "x", "sink": "orders"}, "got 'x'")]
)
def test_a_batch_needs_a_number_and_a_sink(wrong: dict[str, str], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        SinkOptions.read({"kafka.bootstrap.servers": "localhost:9092", **wrong})


@pytest.mark.parametrize("options", [{"topic": "fencepost-sink-s"}, {"topic": "t", "decision.topic": "t"}])
def test_records_do_not_go_where_the_decisions_are(options: dict[str, str]) -> None:
    read = SinkOptions.read({"kafka.bootstrap.servers": "127.0.0.1:9092", "sink": "s", **options})
    with pytest.raises(ValueError, match="write to another one"):
        read.decision_topic("s")
