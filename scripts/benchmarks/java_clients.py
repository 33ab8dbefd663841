"""Kafka's own Java clients: its performance tools as they are, and a program for transactions of either version."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

from fencepost.soak.kafka_jars import KAFKA_CLIENTS_VERSION, kafka_class_path
from fencepost.soak.single_instance import alone_in
from scripts.benchmarks.broker_process import ROOT
from scripts.benchmarks.client_process import ClientFailedError, ClientProcess, bootstrap
from scripts.benchmarks.figures import Broker

SOURCE = Path(__file__).parent / "clients" / "Transactions.java"
CACHE = ROOT / ".cache" / "bench" / "java"
TOOL_TIMEOUT_S = 300
LAST_CLIENTS_OF_VERSION_1 = "3.9.2"
"""Clients from 4.0 on speak version 2 of transactions to brokers that have it; those before add their partitions."""
CONSUMER_PATIENCE_MS = 120_000  # until its next record, the first one included, on a machine that is busy
JVM_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC")
PRODUCED = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec", re.MULTILINE)


def are_here() -> bool:
    """Whether Java programs can be compiled and run on this machine."""
    return shutil.which("javac") is not None and shutil.which("java") is not None


def producer_performance(broker: Broker, topic: str, *, records: int, record_bytes: int, batch_bytes: int) -> float:
    """Records per second of kafka-producer-perf-test, once it is warm. Raises ClientFailedError."""
    output = _tool(
        "ProducerPerformance",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(record_bytes), "--throughput", "-1"),
        *("--warmup-records", str(records // 5), "--bootstrap-server", bootstrap(broker)),
        *("--command-property", f"batch.size={batch_bytes}", f"max.request.size={batch_bytes + 10_000}"),
        *("buffer.memory=67108864", "linger.ms=5", "acks=all"),
    )
    found = PRODUCED.findall(output)
    if not found:
        raise ClientFailedError(output[-2_000:])
    return float(found[-1][1])


def consumer_performance(broker: Broker, topic: str, *, records: int, fetch_bytes: int) -> float:
    """Records per second of kafka-consumer-perf-test, without joining its group. Raises ClientFailedError."""
    output = _tool(
        "ConsumerPerformance",
        *("--bootstrap-server", bootstrap(broker), "--topic", topic, "--num-records", str(records)),
        *("--fetch-size", str(fetch_bytes), "--group", f"bench-{topic}", "--hide-header"),
        *("--timeout", str(CONSUMER_PATIENCE_MS)),
    )
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, MB/s and records/s of the fetches
    lines = [line.split(", ") for line in output.splitlines() if line.count(", ") >= 9]
    if not lines or int(lines[-1][4]) < records:
        raise ClientFailedError(output[-2_000:])
    return float(lines[-1][9])


def transactions(
    broker: Broker,
    topic: str,
    *,
    partitions: int,
    per_transaction: int,
    producers: int,
    duration_ms: int,
    clients_version: str,
) -> ClientProcess:
    """The program for transactions, waiting for `go`; its first transactions are behind it.

    clients_version: of Kafka's clients, which decides what version of transactions they speak.
    """
    arguments = (bootstrap(broker), topic, partitions, per_transaction, producers, duration_ms, duration_ms)
    process = ClientProcess(
        ["java", *JVM_OPTIONS, "-cp", _compiled(clients_version), "Transactions", *map(str, arguments)]
    )
    process.wait_until_ready()
    return process


def _tool(name: str, *arguments: str) -> str:
    command = ["java", *JVM_OPTIONS, "-cp", kafka_class_path("kafka-tools", KAFKA_CLIENTS_VERSION)]
    finished = subprocess.run(
        [*command, f"org.apache.kafka.tools.{name}", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=False,
    )
    if finished.returncode != 0:
        raise ClientFailedError(f"{name}:\n{finished.stdout[-2_000:]}")
    return finished.stdout


def _compiled(clients_version: str) -> str:
    """The class path of the program with these clients, compiled where its source is not yet."""
    jars = kafka_class_path("kafka-clients", clients_version)
    classes = CACHE / f"{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}-{clients_version}"
    with alone_in(CACHE):
        if not classes.exists():
            unfinished = classes.with_name(f"{classes.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            subprocess.run(["javac", "-d", str(unfinished), "-cp", jars, str(SOURCE)], check=True)
            unfinished.rename(classes)
    return f"{classes}:{jars}"
