"""The clients that are run as tests: the one table, which the command line and pytest read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tests.compat.builds import (
    build_go,
    build_kafka_python_2,
    build_kafka_python_tests,
    build_kcat,
    build_node,
    build_python,
    build_rust,
    build_spark_4_0,
)
from tests.compat.harness import Client
from tests.compat.jvm import JVM_CLIENTS

T = TypeVar("T")

# As the brokers that these tests start for themselves: sessions of three seconds are less than brokers usually take.
KAFKA_PYTHON_TESTS_BROKER = {
    "node.id": "0",
    "num.partitions": "4",
    "group.min.session.timeout.ms": "1000",
}

ALONE = (
    # What takes longest comes first, so that programs that run side by side end at about the same time.
    *JVM_CLIENTS,
    Client("rust-rdkafka", tools=("cargo", "cc", "make", "pkg-config"), build=build_rust),
    Client("kafka-javascript", tools=("node", "npm"), build=build_node),
    Client("confluent_kafka", tools=(), build=build_python, has_long_tests=True),
    # kcat cannot say how many partitions a topic shall have: its broker has more than one by default.
    Client("kcat", tools=(), build=build_kcat, broker_settings={"num.partitions": "3"}),
    Client("kafka_python", tools=(), build=build_python),
    Client("kafka_python_2", tools=(), build=build_kafka_python_2),
    *(
        Client(
            name,
            tools=("tar",),
            build=build_kafka_python_tests,
            broker_settings=KAFKA_PYTHON_TESTS_BROKER,
            has_long_tests=True,
        )
        for name in ("kafka_python_tests", "kafka_python_2_tests")
    ),
    Client("aiokafka", tools=(), build=build_python),
    Client("franz-go", tools=("go",), build=build_go),
    Client("sarama", tools=("go",), build=build_go),
    Client("kafka-go", tools=("go",), build=build_go),
    Client("spark-4.0", tools=("java",), build=build_spark_4_0, is_long=True),
    Client("kafkajs", tools=("node", "npm"), build=build_node),
    Client("platformatic", tools=("node", "npm"), build=build_node),
)
# What a client has a list of checks for, it is also run against a secured broker.
CLIENTS = {
    client.name: client
    for client in (*ALONE, *(one.secured() for one in ALONE if one.secured().list_of_checks.exists()))
}


def in_order_of_clients(tests: Sequence[T], client_of: Callable[[T], object]) -> list[T]:
    """Tests in the order that `CLIENTS` has their clients in; those of no client keep their places.

    The programs run in that order, whatever order the tests were put in. A test that came before its client's turn
    would wait for all programs, and exceed the time that it has for one.
    """
    turns = {name: turn for turn, name in enumerate(CLIENTS)}
    of_clients = [test for test in tests if client_of(test) in turns]
    ordered = iter(sorted(of_clients, key=lambda test: turns[str(client_of(test))]))
    return [next(ordered) if client_of(test) in turns else test for test in tests]
