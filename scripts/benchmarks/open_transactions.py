"""What open transactions cost: memory, opening them, ending one among many, and the time-out of all of them at once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Client,
    connect,
    create_topic,
    end_offsets,
    end_transaction_request,
    init_producers,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.figures import Broker, Figure, Round, Sample

TOPIC = "measured"
PARTITION_COUNT = 10
TIMED_COUNT = 200
TIME_OUT_BASE_MS = 3_000
TIME_OUT_PER_TRANSACTION_MS = 3
PAUSE_MARGIN_S = 0.5
TIME_OUT_PATIENCE_S = 120.0


def measure(round_: Round) -> Iterator[Sample]:
    for count in round_.sizes.values():
        yield from measure_one(round_, count)


def measure_one(round_: Round, open_count: int) -> Iterator[Sample]:
    case = f"{open_count:,} open transactions"
    data_directory = round_.scratch / f"data-{open_count}"
    data_directory.mkdir()
    template = BatchTemplate(record_bytes=100, records_count=1, is_transactional=True)
    timeout_ms = TIME_OUT_BASE_MS + TIME_OUT_PER_TRANSACTION_MS * open_count
    names = [f"application-{number}" for number in range(open_count)]
    timed_names = [f"timed-{number}" for number in range(min(TIMED_COUNT, open_count))]
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker) as client:
            create_topic(client, TOPIC, PARTITION_COUNT)
            round_.say(f"{case}: beginning sessions")
            timed = dict(zip(timed_names, init_producers(client, timed_names, timeout_ms), strict=True))
            producers = dict(zip(names, init_producers(client, names, timeout_ms), strict=True))
            wait_until_answered(client, produce_request(TOPIC, [(0, _plain_batch())]))
            before_bytes = broker.resident_bytes()
            round_.say(f"{case}: opening")
            began_at_s = time.monotonic()
            _open(client, template, producers)
            opened_at_s = time.monotonic()
            yield Sample("time to open one", (opened_at_s - began_at_s) / open_count * 1e6, "µs", case)
            grown_bytes = broker.resident_bytes() - before_bytes
            yield Sample("memory per open transaction", grown_bytes / open_count, "B", case)
            yield Sample("memory for all", grown_bytes / 2**20, "MiB", case)
            round_.say(f"{case}: committing others")
            yield from _commit_others(client, template, timed, case)
            round_.say(f"{case}: waiting until all time out")
            yield from _time_out(broker, client, opened_at_s + timeout_ms / 1000, case)
    finally:
        broker.kill()


def _open(client: Client, template: BatchTemplate, producers: dict[str, tuple[int, int]]) -> None:
    requests = (
        produce_request(TOPIC, [(number % PARTITION_COUNT, template.batch(producer, 0))], transactional_id=name)
        for number, (name, producer) in enumerate(producers.items())
    )
    for reply in client.pipeline(requests):
        require_success(reply)


def _commit_others(
    client: Client, template: BatchTemplate, producers: dict[str, tuple[int, int]], case: str
) -> Iterator[Sample]:
    """One transaction after another, while all those opened before stay open."""
    whole_s, commit_s = [], []
    for number, (name, producer) in enumerate(producers.items()):
        request = produce_request(
            TOPIC, [(number % PARTITION_COUNT, template.batch(producer, 0))], transactional_id=name
        )
        began_at_s = time.monotonic()
        require_success(client.call(request))
        produced_at_s = time.monotonic()
        require_success(client.call(end_transaction_request(name, producer)))
        commit_s.append(time.monotonic() - produced_at_s)
        whole_s.append(time.monotonic() - began_at_s)
    yield Sample("one transaction of another producer", statistics.median(whole_s) * 1e6, "µs", case)
    yield Sample("its commit", statistics.median(commit_s) * 1e6, "µs", case)


def _time_out(broker: Broker, client: Client, overdue_at_s: float, case: str) -> Iterator[Sample]:
    """Hold the broker still until every transaction is overdue; then all are aborted at once."""
    assert time.monotonic() < overdue_at_s, "the transactions ran out of time before all were open"
    broker.pause()
    try:
        time.sleep(max(0.0, overdue_at_s - time.monotonic()) + PAUSE_MARGIN_S)
    finally:
        broker.resume()
    began_at_s = time.monotonic()
    slowest_s = 0.0
    while True:
        requested_at_s = time.monotonic()
        require_success(client.call(produce_request(TOPIC, [(0, _plain_batch())])))
        slowest_s = max(slowest_s, time.monotonic() - requested_at_s)
        high_watermarks = end_offsets(client, TOPIC, PARTITION_COUNT, READ_UNCOMMITTED)
        if end_offsets(client, TOPIC, PARTITION_COUNT, READ_COMMITTED) >= high_watermarks:
            break
        if time.monotonic() - began_at_s > TIME_OUT_PATIENCE_S:
            raise TimeoutError("the transactions were not aborted")
        time.sleep(0.01)
    yield Sample("all timed out and aborted", time.monotonic() - began_at_s, "s", case)
    yield Sample("slowest Produce meanwhile", slowest_s * 1e3, "ms", case)


def _plain_batch() -> bytes:
    return BatchTemplate(record_bytes=100, records_count=1).batch()


FIGURES = (
    Figure(
        name="open-transactions",
        about="1,000 to 10,000 open transactions over 10 partitions of one node",
        measure=measure,
        sizes={"first": 1_000, "second": 2_000, "third": 5_000, "fourth": 10_000},
        small_sizes={"first": 10},
    ),
)
