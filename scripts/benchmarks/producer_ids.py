"""What producers cost a partition that remembers them: memory, time per Produce, the snapshot, the next start."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import (
    Client,
    connect,
    create_topic,
    init_each,
    init_producer_id_request,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.figures import Figure, Round, Sample

TOPIC = "measured"
TIMED_COUNT = 500
ROOM_BATCHES = 100  # what fits into the segment beside all that is written before the one that must roll it
KEPT_BATCHES = 5


def measure(round_: Round) -> Iterator[Sample]:
    for count in round_.sizes.values():
        yield from measure_one(round_, count)


def measure_one(round_: Round, producers_count: int) -> Iterator[Sample]:
    case = f"{producers_count:,} producer ids in one partition"
    data_directory = round_.scratch / f"data-{producers_count}"
    data_directory.mkdir()
    template = BatchTemplate(record_bytes=100, records_count=1)
    batches_count = producers_count * KEPT_BATCHES + TIMED_COUNT
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker) as client:
            segment_bytes = (batches_count + ROOM_BATCHES) * template.size_bytes
            create_topic(client, TOPIC, 1, {"internal.segment.bytes": str(segment_bytes)})
            wait_until_answered(client, produce_request(TOPIC, [(0, template.batch())]))
            round_.say(f"{case}: asking for the ids")
            producers = _new_producers(client, producers_count)
            before_bytes = broker.resident_bytes()
            round_.say(f"{case}: a batch from each")
            duration_s = _write(client, template, producers, 0)
            grown_bytes = broker.resident_bytes() - before_bytes
            yield Sample("memory per producer with one batch", grown_bytes / producers_count, "B", case)
            yield Sample("time per Produce of a new producer", duration_s / producers_count * 1e6, "µs", case)
            for number in range(1, KEPT_BATCHES):
                round_.say(f"{case}: batch {number + 1} of {KEPT_BATCHES} from each")
                duration_s = _write(client, template, producers, number)
            grown_bytes = broker.resident_bytes() - before_bytes
            yield Sample("memory per producer with five batches", grown_bytes / producers_count, "B", case)
            yield Sample("memory for all producers", grown_bytes / 2**20, "MiB", case)
            yield Sample("time per Produce, 64 in flight", duration_s / producers_count * 1e6, "µs", case)
            round_.say(f"{case}: one Produce at a time")
            latencies_s = [_timed(client, template.batch()) for _ in range(TIMED_COUNT)]
            yield Sample("time of one Produce", statistics.median(latencies_s) * 1e6, "µs", case)
            # Fills the segment, so that the next batch begins another one, with a snapshot before it.
            slowest_s = max(_timed(client, template.batch()) for _ in range(2 * ROOM_BATCHES))
            yield Sample("Produce that rolls the segment", slowest_s * 1e3, "ms", case)
        round_.say(f"{case}: stopping and starting again")
        yield Sample("clean stop", broker.terminate(), "s", case)
        snapshot_bytes = max(path.stat().st_size for path in data_directory.rglob("*.snapshot"))
        yield Sample("snapshot", snapshot_bytes / 2**20, "MiB", case)
        yield Sample("start after a clean stop", _restart(round_, data_directory, template), "s", case)
        yield Sample("start after kill -9", _restart(round_, data_directory, template), "s", case)
    finally:
        broker.kill()


def _new_producers(client: Client, count: int) -> list[tuple[int, int]]:
    wait_until_answered(client, init_producer_id_request(None, 60_000))
    replies = init_each(client, [None] * count, 60_000)
    return [(reply.producer_id, reply.producer_epoch) for reply in replies]


def _write(client: Client, template: BatchTemplate, producers: list[tuple[int, int]], sequence: int) -> float:
    began_at_s = time.monotonic()
    requests = (produce_request(TOPIC, [(0, template.batch(producer, sequence))]) for producer in producers)
    for reply in client.pipeline(requests):
        require_success(reply)
    return time.monotonic() - began_at_s


def _timed(client: Client, batch: bytes) -> float:
    began_at_s = time.monotonic()
    require_success(client.call(produce_request(TOPIC, [(0, batch)])))
    return time.monotonic() - began_at_s


def _restart(round_: Round, data_directory: Path, template: BatchTemplate) -> float:
    """Start, and kill once the first Produce is answered; how long that took."""
    started_at_s = time.monotonic()
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker) as client:
            wait_until_answered(client, produce_request(TOPIC, [(0, template.batch())]))
        return time.monotonic() - started_at_s
    finally:
        broker.kill()


FIGURES = (
    Figure(
        name="producer-ids",
        about="10,000 to 100,000 idempotent producers in one partition",
        measure=measure,
        sizes={"first": 10_000, "second": 20_000, "third": 50_000, "fourth": 100_000},
        small_sizes={"first": 50, "second": 100},
    ),
)
