"""Recovery after kill -9: from the start of the process to the first answers, with logs, ids and open transactions.

Everything in the logs was written by transactions over the wire; then the broker was killed with some of them open.
The recovery point is taken back to 0, so that every batch is read and checked again: the worst that a kill can leave.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from scripts.benchmarks.batches import BatchTemplate, with_records_of
from scripts.benchmarks.client import (
    Client,
    connect,
    create_topic,
    end_transaction_request,
    init_producer_id_request,
    init_producers,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.figures import DURABLE, DURABLE_REFERENCE, REFERENCE, Figure, Round, Sample, Sizes, Target
from scripts.benchmarks.prepared import copy, prepared

TOPIC = "measured"
NEVER_MS = 2**31 - 2  # the greatest int32 is the mark of a transaction of a two-phase commit
SETTINGS = {
    "producer.id.expiration.ms": str(NEVER_MS),
    "transaction.max.timeout.ms": str(NEVER_MS),
    "transactional.id.expiration.ms": str(NEVER_MS),
    "log.retention.ms": "-1",
}
RECORD_BYTES = 1024
OPEN_FILE = "open-transactions.json"
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"

Requests = Callable[[Client], object]


def measure(round_: Round) -> Iterator[Sample]:
    sizes, say = round_.sizes, round_.say
    source = prepared(round_.cache, "recovery", sizes, lambda directory: prepare(round_, directory))
    open_producers: dict[str, tuple[int, int]] = {
        name: (producer[0], producer[1]) for name, producer in json.loads((source / OPEN_FILE).read_text()).items()
    }
    for in_page_cache in (True, False):
        case = "logs in the page cache" if in_page_cache else "logs read from the disk"
        say(f"copying the logs ({case})")
        data_directory = copy(source / "data", round_.scratch / f"data-{in_page_cache}", in_page_cache=in_page_cache)
        say(f"recovering ({case})")
        yield from first_answers(round_, data_directory, open_producers, case)


def first_answers(
    round_: Round, data_directory: Path, open_producers: dict[str, tuple[int, int]], case: str
) -> Iterator[Sample]:
    """Start the broker on a directory that a killed one left, with three clients waiting for it."""
    (transactional_id, producer), *_ = open_producers.items()
    batch = BatchTemplate(record_bytes=100, records_count=1).batch()
    requests = {
        "first Produce answered": produce_request(TOPIC, [(0, batch)]),
        "first InitProducerId answered": init_producer_id_request(idle_id(0), NEVER_MS),
        "first EndTxn answered": end_transaction_request(transactional_id, producer),
    }
    answered_at_s: dict[str, float] = {}
    cpu_then_s: dict[str, float] = {}

    def ask(quantity: str) -> None:
        with connect(broker) as client:
            wait_until_answered(client, requests[quantity])
        answered_at_s[quantity] = time.monotonic()
        cpu_then_s[quantity] = broker.cpu_s()

    started_at_s = time.monotonic()
    broker = round_.subject.launch(data_directory, SETTINGS)
    try:
        threads = [threading.Thread(target=ask, args=(quantity,)) for quantity in requests]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for quantity in requests:
            yield Sample(quantity, answered_at_s[quantity] - started_at_s, "s", case)
        yield Sample("CPU time until the first Produce", cpu_then_s["first Produce answered"], "s", case)
        yield Sample("CPU time until all three", max(cpu_then_s.values()), "s", case)
        yield Sample("memory after it", broker.resident_bytes() / 2**20, "MiB", case)
    finally:
        broker.kill()


def prepare(round_: Round, directory: Path) -> None:
    """Fill `directory/data` and kill the broker; the transactions left open are listed beside it."""
    sizes = round_.sizes
    data_directory = directory / "data"
    data_directory.mkdir()
    broker = round_.subject.launch(data_directory, SETTINGS)
    try:
        with connect(broker) as client:
            create_topic(client, TOPIC, sizes["partitions"])
            round_.say(f"preparing: {sizes['transactional_ids']:,} producer sessions")
            count = sizes["transactional_ids"]
            names = [idle_id(number) for number in range(count)] + [open_id(n) for n in range(sizes["open"])]
            producers = dict(zip(names, init_producers(client, names, NEVER_MS), strict=True))
            for number, total in write_transactions(client, producers, sizes):
                round_.say(f"preparing: {number:,} of {total:,} batches")
    finally:
        broker.kill()
    for path in data_directory.rglob(RECOVERY_POINT_FILE):
        path.unlink()
    opened = {name: producer for name, producer in producers.items() if name.startswith("open")}
    (directory / OPEN_FILE).write_text(json.dumps(opened))


def write_transactions(
    client: Client, producers: dict[str, tuple[int, int]], sizes: Sizes
) -> Iterator[tuple[int, int]]:
    """Every producer writes its share into one partition; all but those that stay open commit. Yields progress."""
    template = BatchTemplate(
        record_bytes=RECORD_BYTES,
        records_count=with_records_of(sizes["batch_bytes"], RECORD_BYTES),
        is_transactional=True,
    )
    batches_per_producer = max(1, sizes["log_bytes"] // (template.size_bytes * len(producers)))
    total = batches_per_producer * len(producers)
    written = 0
    for share in _shares(list(producers), 200):
        requests = (
            produce_request(
                TOPIC,
                [(_partition(name, sizes), template.batch(producers[name], number * template.records_count))],
                transactional_id=name,
            )
            for number in range(batches_per_producer)
            for name in share
        )
        for reply in client.pipeline(requests, in_flight_count=32):
            require_success(reply)
            written += 1
        ending = [end_transaction_request(name, producers[name]) for name in share if not name.startswith("open")]
        for reply in client.pipeline(ending):
            require_success(reply)
        yield written, total


def _shares(names: list[str], count: int) -> Iterable[list[str]]:
    return (names[start : start + count] for start in range(0, len(names), count))


def _partition(name: str, sizes: Sizes) -> int:
    return int(name.rpartition("-")[2]) % sizes["partitions"]


def idle_id(number: int) -> str:
    return f"application-{number}"


def open_id(number: int) -> str:
    return f"open-{number}"


FIGURES = (
    Figure(
        name="recovery",
        about="after kill -9: 1 GiB in 100 partitions, 10,000 transactional ids, 100 open transactions",
        measure=measure,
        sizes={
            "log_bytes": 2**30,
            "partitions": 100,
            "transactional_ids": 10_000,
            "open": 100,
            "batch_bytes": 16_384,
        },
        small_sizes={
            "log_bytes": 2**20,
            "partitions": 3,
            "transactional_ids": 10,
            "open": 2,
            "batch_bytes": 16_384,
        },
        targets=(Target("first Produce answered", 2.0),),
        subjects=(DURABLE, REFERENCE, DURABLE_REFERENCE),
    ),
    Figure(
        name="recovery-small-batches",
        about="the same with batches of 1 KiB, 16 times as many to look at",
        measure=measure,
        sizes={
            "log_bytes": 2**30,
            "partitions": 100,
            "transactional_ids": 10_000,
            "open": 100,
            "batch_bytes": 1024,
        },
        small_sizes={
            "log_bytes": 2**18,
            "partitions": 3,
            "transactional_ids": 10,
            "open": 2,
            "batch_bytes": 1024,
        },
    ),
)
