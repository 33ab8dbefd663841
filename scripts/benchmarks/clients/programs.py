"""The table of client programs, by name.

A program is a generator: it prepares, yields nothing, measures once it is resumed, and yields what it has measured.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from scripts.benchmarks.clients import bare, librdkafka_latency, librdkafka_throughput, librdkafka_transactions, spark

Program = Generator[Any, None, None]

PROGRAMS: dict[str, Callable[..., Program]] = {
    "produce": librdkafka_throughput.produce,
    "consume": librdkafka_throughput.consume,
    "one-at-a-time": librdkafka_latency.one_at_a_time,
    "steady-producer": librdkafka_latency.steady_producer,
    "steady-consumer": librdkafka_latency.steady_consumer,
    "transactions": librdkafka_transactions.transactions,
    "loops": librdkafka_transactions.loops,
    "bare-consume": bare.consume,
    "bare-idempotent-produce": bare.idempotent_produce,
    "bare-one-at-a-time": bare.one_at_a_time,
    "spark": spark.read,
    "spark-sinks": spark.write,
}
