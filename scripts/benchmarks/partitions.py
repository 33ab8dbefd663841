"""What partitions cost: making and describing them, memory, and starting with them, after a clean stop and a crash."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import Client, connect, produce_request, require_success, wait_until_answered
from scripts.benchmarks.figures import Broker, Figure, Round, Sample, Sizes, Target

TOPICS_PER_REQUEST = 500
WRITTEN_TOPICS_COUNT = 100
CREATION_TIMEOUT_MS = 120_000
ALL_TOPICS = MetadataRequest(topics=None)


def measure(round_: Round) -> Iterator[Sample]:
    for size, topics_count in round_.sizes.items():
        if size != "partitions_per_topic":
            yield from measure_one(round_, topics_count, round_.sizes["partitions_per_topic"])


def measure_one(round_: Round, topics_count: int, partitions_per_topic: int) -> Iterator[Sample]:
    partitions_count = topics_count * partitions_per_topic
    case = f"{partitions_count:,} partitions"
    data_directory = round_.scratch / f"data-{topics_count}"
    data_directory.mkdir()
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker, timeout_s=CREATION_TIMEOUT_MS / 1000) as client:
            require_success(client.call(MetadataRequest(topics=[])))
            before_bytes = broker.resident_bytes()
            round_.say(f"{case}: creating")
            began_at_s = time.monotonic()
            _create(client, topics_count, partitions_per_topic)
            yield Sample("time to create one", (time.monotonic() - began_at_s) / partitions_count * 1e6, "µs", case)
            grown_bytes = broker.resident_bytes() - before_bytes
            yield Sample("memory per partition", grown_bytes / partitions_count, "B", case)
            yield from _describe(client, topics_count, case)
            _write(client, topics_count)
        round_.say(f"{case}: stopping")
        yield Sample("clean stop", broker.terminate(), "s", case)
    finally:
        broker.kill()
    round_.say(f"{case}: starting after a clean stop")
    yield from _start(round_, data_directory, topics_count, "after a clean stop", case)
    round_.say(f"{case}: starting after kill -9")
    yield from _start(round_, data_directory, topics_count, "after kill -9", case)


def _create(client: Client, topics_count: int, partitions_per_topic: int) -> None:
    for start in range(0, topics_count, TOPICS_PER_REQUEST):
        topics = [
            CreatableTopic(name=topic_name(number), num_partitions=partitions_per_topic, replication_factor=1)
            for number in range(start, min(start + TOPICS_PER_REQUEST, topics_count))
        ]
        require_success(client.call(CreateTopicsRequest(topics=topics, timeout_ms=CREATION_TIMEOUT_MS)))


def _describe(client: Client, topics_count: int, case: str) -> Iterator[Sample]:
    began_at_s = time.monotonic()
    reply = require_success(client.call(ALL_TOPICS))
    ended_at_s = time.monotonic()
    assert len(reply.topics) == topics_count, [topic.name for topic in reply.topics]
    # Decoding the reply is this client's work; a fifth of a second for 50,000 partitions.
    yield Sample("Metadata of all, read and decoded", ended_at_s - began_at_s, "s", case)


def _write(client: Client, topics_count: int) -> None:
    """Something in some of them, so that not every log is empty."""
    batch = BatchTemplate(record_bytes=100, records_count=10).batch()
    step = max(1, topics_count // WRITTEN_TOPICS_COUNT)
    requests = (produce_request(topic_name(number), [(0, batch)]) for number in range(0, topics_count, step))
    for reply in client.pipeline(requests):
        require_success(reply)


def _start(round_: Round, data_directory: Path, topics_count: int, how: str, case: str) -> Iterator[Sample]:
    began_at_s = time.monotonic()
    broker: Broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker, timeout_s=CREATION_TIMEOUT_MS / 1000) as client:
            reply = require_success(client.call(ALL_TOPICS))
            assert len(reply.topics) == topics_count, [topic.name for topic in reply.topics]
            yield Sample(f"Metadata of all answered {how}", time.monotonic() - began_at_s, "s", case)
            batch = BatchTemplate(record_bytes=100, records_count=1).batch()
            wait_until_answered(client, produce_request(topic_name(topics_count - 1), [(0, batch)]))
            yield Sample(f"Produce answered {how}", time.monotonic() - began_at_s, "s", case)
            yield Sample(f"memory {how}", broker.resident_bytes() / 2**20, "MiB", case)
    finally:
        broker.kill()


def topic_name(number: int) -> str:
    return f"measured-{number:05}"


def _sizes(**topics: int) -> Sizes:
    return {"partitions_per_topic": 5, **topics}


FIGURES = (
    Figure(
        name="partitions",
        about="1,000 to 50,000 partitions, in 200 to 10,000 topics",
        measure=measure,
        sizes=_sizes(first=200, second=1_000, third=4_000, fourth=10_000),
        small_sizes=_sizes(first=20),
        targets=(
            Target("Metadata of all, read and decoded", 1.0),
            Target("Metadata of all answered after a clean stop", 5.0),
            Target("Metadata of all answered after kill -9", 5.0),
        ),
    ),
)
