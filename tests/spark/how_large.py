"""What batches of many tasks take: `python -m tests.spark.how_large KIND TASKS`, for the figures of docs/spark.md.

KIND: a name of `world.BROKERS`. Prints one line for each figure. All of it runs on one machine, behind the wire that
counts requests, and which takes its time, too.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import confluent_kafka as ck
import psutil

from tests.spark.world import PARTITIONS, Flow, Spark, World, world

ROWS_OF_A_TASK = 100
BATCHES = 4
ONLOOKER = "onlooker"
MIB = 1 << 20


class Onlooker(threading.Thread):
    """A reader of committed records: when the first and the last record of each batch have come."""

    def __init__(self, here: World, flow: Flow, batches: int, rows: int) -> None:
        super().__init__(daemon=True)
        self._servers, self._topic = here.wire.bootstrap, flow.target
        self._rows, self._wanted = rows, batches * rows
        self.spans_s: list[float] = []

    def run(self) -> None:
        settings = {"group.id": ONLOOKER, "client.id": ONLOOKER, "isolation.level": "read_committed"}
        own = {"bootstrap.servers": self._servers, "fetch.wait.max.ms": 5, "enable.auto.commit": False}
        consumer = ck.Consumer({**settings, **own})
        arrived: dict[int, list[float]] = {}
        count = 0
        with contextlib.closing(consumer):
            consumer.assign([ck.TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
            while count < self._wanted:
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    count += 1
                    number = int(message.value().partition(b"#")[0])
                    arrived.setdefault(number // self._rows, []).append(time.monotonic())
        self.spans_s = [max(times) - min(times) for _, times in sorted(arrived.items())]


def workers_of(spark: Spark) -> list[psutil.Process]:
    """Python workers that have run tasks: children of Spark's daemon."""
    return [
        process
        for process in spark.processes()
        if process.name().startswith("python") and "pyspark.worker" in " ".join(process.cmdline()) and process.ppid()
    ]


def measured(kind: str, tasks: int, batches: int, cores: int, folder: Path) -> dict[str, str]:
    rows = tasks * ROWS_OF_A_TASK
    found: dict[str, str] = {}
    with world(kind, folder) as here, here.spark(f"local[{cores},3]") as spark:
        flow = here.flow("large", batches=batches, rows=rows, partitions=tasks, is_recorded=False)
        onlooker = Onlooker(here, flow, batches, rows)
        onlooker.start()
        here.wire.requests.clear()
        spark.ask("start", **flow.fields)
        error = spark.ask("wait", name=flow.name)["error"]
        assert error is None, error
        asked = Counter(dict(here.wire.requests))
        onlooker.join(60)
        assert len(onlooker.spans_s) == batches
        assert here.values(flow) == flow.expected
        times_ms = spark.ask("times", name=flow.name)["ms"][:batches]
        found["batch, s"] = ", ".join(f"{one / 1000:.1f}" for one in times_ms)
        found["half visible, s"] = ", ".join(f"{one:.2f}" for one in onlooker.spans_s)
        found["commits, s"] = f"{statistics.median(here.completions_ms(flow)) / 1000:.2f}"
        by_api: Counter[str] = Counter()
        for (client, api), count in asked.items():
            if client != ONLOOKER:
                by_api[f"{client or '-'}:{api.name}"] += count
        found["requests per task"] = ", ".join(
            f"{name} {count / tasks / batches:.3g}" for name, count in by_api.most_common(16)
        )
        for process in workers_of(spark):
            memory = process.memory_full_info()
            found[f"worker {process.pid}"] = (
                f"{memory.rss / MIB:.0f} MiB, {memory.uss / MIB:.0f} of its own, {process.num_fds()} file descriptors, "
                f"{process.num_threads()} threads"
            )
    return found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.how_large", description=__doc__)
    parser.add_argument("kind")
    parser.add_argument("tasks", type=int)
    parser.add_argument("--batches", type=int, default=BATCHES)
    parser.add_argument("--cores", type=int, default=4)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in measured(asked.kind, asked.tasks, asked.batches, asked.cores, Path(folder)).items():
            print(f"{asked.kind} {asked.tasks}: {name}: {text}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
