"""`fencepost bench`: a small measurement of throughput and latency, with one producer and one consumer.

It measures the client as much as the broker: other clients reach more. It tells whether a machine, a disk or a
network is as expected, and compares settings.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import click

from fencepost.cli.connection import admin_client, bootstrap_option, check_results, client_options, json_option
from fencepost.cli.output import progress

ROUNDS = 200
WAIT_S = 60.0


@click.command()
@bootstrap_option
@json_option
@click.option("--records", type=click.IntRange(min=1), default=50_000, show_default=True, help="Records to write.")
@click.option("--size", type=click.IntRange(min=1, max=1 << 20), default=100, show_default=True, help="Bytes of each.")
@click.option("-p", "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Of the topic.")
@click.option("--compression", type=click.Choice(["gzip", "snappy", "lz4", "zstd"]), help="Compress batches.")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True, help="To wait for.")
def bench(
    bootstrap: str, as_json: bool, records: int, size: int, partitions: int, compression: str | None, acks: str
) -> None:
    """Measure throughput and latency with one client.

    In a topic of its own, which is deleted at the end. First all records are written and read; then single records go
    from the producer to the consumer, one after another. One client in Python is measured along: others reach more.
    """
    topic = f"fencepost-bench-{os.getpid()}-{time.time_ns() // 1_000_000}"
    with admin_client(bootstrap) as admin:
        wanted = {"num_partitions": partitions, "replication_factor": -1}
        check_results(admin.create_topics({topic: wanted}, raise_errors=False)["topics"])
        try:
            options = {"acks": acks if acks == "all" else int(acks), "compression_type": compression}
            figures = _measure(bootstrap, topic, records, size, options)
        finally:
            admin.delete_topics([topic], raise_errors=False)
    if as_json:
        click.echo(json.dumps(figures, indent=2))
        return
    click.echo(f"{records} records of {size} bytes in {partitions} partition{'s' if partitions != 1 else ''}")
    for what in ("written", "read"):
        rate, megabytes = figures[f"{what}_records_per_s"], figures[f"{what}_mb_per_s"]
        click.echo(f"{what + ':':9}{rate:>10,.0f} records/s {megabytes:>9.2f} MB/s")
    for what in ("acknowledged", "end_to_end"):
        median, high = figures[f"{what}_p50_ms"], figures[f"{what}_p99_ms"]
        click.echo(f"one record {what.replace('_', ' ')} after {median:.2f} ms (median), {high:.2f} ms (99 %)")


def _measure(bootstrap: str, topic: str, records: int, size: int, options: dict[str, Any]) -> dict[str, float]:
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition

    payload = os.urandom(size)
    producer = KafkaProducer(**client_options(bootstrap), linger_ms=5, max_request_size=1 << 30, **options)
    consumer = KafkaConsumer(**client_options(bootstrap), enable_auto_commit=False, max_poll_records=5_000)
    prompt = KafkaProducer(**client_options(bootstrap), linger_ms=0, max_request_size=1 << 30, **options)
    try:
        places = [TopicPartition(topic, partition) for partition in sorted(producer.partitions_for(topic))]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        written_s = _write(producer, topic, payload, records)
        read_s = _read(consumer, records)
        acknowledged_ms, end_to_end_ms = _round_trips(prompt, consumer, topic, payload)
    finally:
        for client in (producer, prompt, consumer):
            client.close()
    return {
        "records": records,
        "size_bytes": size,
        "partitions": len(places),
        "written_records_per_s": records / written_s,
        "written_mb_per_s": records * size / written_s / 1e6,
        "read_records_per_s": records / read_s,
        "read_mb_per_s": records * size / read_s / 1e6,
        "acknowledged_p50_ms": _quantile(acknowledged_ms, 0.5),
        "acknowledged_p99_ms": _quantile(acknowledged_ms, 0.99),
        "end_to_end_p50_ms": _quantile(end_to_end_ms, 0.5),
        "end_to_end_p99_ms": _quantile(end_to_end_ms, 0.99),
    }


def _write(producer: Any, topic: str, payload: bytes, records: int) -> float:
    """Write the records and wait for all; returns the seconds."""
    started_s = time.perf_counter()
    with progress("writing", total=records) as bar:
        last = [producer.send(topic, payload) for _ in range(records)]
        producer.flush(WAIT_S)
        for future in last:
            future.get(timeout=WAIT_S)
        bar.advance(records)
    return time.perf_counter() - started_s


def _read(consumer: Any, records: int) -> float:
    """Read the records; returns the seconds."""
    started_s = time.perf_counter()
    count = 0
    with progress("reading", total=records) as bar:
        while count < records:
            found = sum(len(polled) for polled in consumer.poll(timeout_ms=1_000).values())
            count += found
            bar.advance(found)
            if time.perf_counter() - started_s > WAIT_S and not found:
                raise click.ClickException(f"only {count} of {records} records came back within {WAIT_S:g} s")
    return time.perf_counter() - started_s


def _round_trips(producer: Any, consumer: Any, topic: str, payload: bytes) -> tuple[list[float], list[float]]:
    """Times from the send of a record to its acknowledgement, and to its arrival at the consumer, in ms."""
    acknowledged, arrived = [], []
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        future = producer.send(topic, payload)
        future.get(timeout=WAIT_S)
        acknowledged.append((time.perf_counter() - started_s) * 1e3)
        while not consumer.poll(timeout_ms=1_000):
            if time.perf_counter() - started_s > WAIT_S:
                raise click.ClickException(f"a record did not come back within {WAIT_S:g} s")
        arrived.append((time.perf_counter() - started_s) * 1e3)
    return acknowledged, arrived


def _quantile(values: list[float], share: float) -> float:
    """The value that this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
