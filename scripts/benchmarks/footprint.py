"""From the start of a process to its first answers, and its memory: after the start, under load, and idle behind it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from fencepost.protocol.messages.metadata import MetadataRequest
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import connect, create_topic, produce_request, require_success, wait_until_answered
from scripts.benchmarks.client_process import bootstrap, measure_client
from scripts.benchmarks.figures import COMPARED, Broker, Figure, RatioTarget, Round, Sample

TOPIC = "measured"
LOAD_TOPIC = "load"
SETTLING_S = 1.0
SAMPLING_S = 0.1


def measure(round_: Round) -> Iterator[Sample]:
    data_directory = round_.scratch / "data"
    data_directory.mkdir()
    batch = BatchTemplate(record_bytes=100, records_count=1).batch()
    round_.say("preparing")
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker) as client:
            create_topic(client, TOPIC, 1)
            wait_until_answered(client, produce_request(TOPIC, [(0, batch)]))
        broker.terminate()
    finally:
        broker.kill()
    round_.say("starting")
    began_at_s = time.monotonic()
    broker = round_.subject.launch(data_directory, {})
    try:
        with connect(broker) as client:
            require_success(client.call(MetadataRequest(topics=[])))
            yield Sample("start to first answer", time.monotonic() - began_at_s, "s")
            wait_until_answered(client, produce_request(TOPIC, [(0, batch)]))
            yield Sample("start to first Produce", time.monotonic() - began_at_s, "s")
            yield Sample("processor time until then", broker.cpu_s(), "s")
            create_topic(client, LOAD_TOPIC, 1)
        time.sleep(SETTLING_S)
        yield from _memory(broker, "idle memory")
        round_.say("under load")
        yield Sample("loaded memory", _most_under_load(broker, round_.sizes["total_bytes"]) / 2**20, "MiB")
        time.sleep(SETTLING_S)
        yield from _memory(broker, "idle memory after load")
    finally:
        broker.kill()


def measure_warm(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    time.sleep(SETTLING_S)
    yield from _memory(broker, "idle memory")


def _memory(broker: Broker, quantity: str) -> Iterator[Sample]:
    """What ps shows, and without the pages of mapped files, which the kernel may take back at any time."""
    memory = broker.resident_memory()
    yield Sample(quantity, memory.total_bytes / 2**20, "MiB")
    yield Sample(f"{quantity}, without mapped files", memory.private_bytes / 2**20, "MiB")


def _most_under_load(broker: Broker, total_bytes: int) -> int:
    """The largest resident memory, in bytes, while records are produced and consumed."""
    is_over = threading.Event()
    most = broker.resident_bytes()

    def watch() -> None:
        nonlocal most
        while not is_over.wait(SAMPLING_S):
            most = max(most, broker.resident_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        common = {"bootstrap": bootstrap(broker), "topic": LOAD_TOPIC, "partitions": 1, "records": total_bytes // 1_000}
        for batch_bytes in (16_384, 1_000_000):
            measure_client(
                broker,
                "produce",
                **common,
                record_bytes=1_000,
                batch_bytes=batch_bytes,
                compression="none",
                connections=5,
            )
        measure_client(broker, "consume", **common, connections=5, fetch_bytes=2**20)
    finally:
        is_over.set()
        watching.join()
    return max(most, broker.resident_bytes())


FIGURES = (
    Figure(
        name="footprint",
        about="start of a node stopped cleanly, with one record in it; memory as ps shows it",
        measure=measure,
        sizes={"total_bytes": 300_000_000},
        small_sizes={"total_bytes": 1_000_000},
        ratio_targets=(RatioTarget("start to first answer", 0.2), RatioTarget("idle memory", 0.08)),
        subjects=COMPARED,
        is_headline=True,
        in_the_way="an interpreter with its event loop and SQLite takes 17 MiB before any broker's code, most of them "
        "for files that are mapped; the broker with its messages and other libraries takes 11 more.",
    ),
    Figure(
        name="warm-memory",
        about="idle memory of the brokers that have been warmed and measured with all figures of the run so far",
        measure=measure_warm,
        sizes={},
        small_sizes={},
        ratio_targets=(RatioTarget("idle memory", 0.08),),
        subjects=COMPARED,
        needs_launches=False,
        is_headline=True,
    ),
)
