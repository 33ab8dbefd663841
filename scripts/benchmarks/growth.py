"""What one request costs while something else grows: partitions, connections, transactional ids, the log.

Each is grown step by step on one broker; at every step the same requests are sent one after another by a client that
does little else. The last quantities of a figure divide the largest step by the smallest: 1 is flat.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from scripts.benchmarks.batches import BatchTemplate, with_records_of
from scripts.benchmarks.client import (
    CLIENT_ID,
    VERSIONS,
    Client,
    connect,
    create_topic,
    end_offsets,
    end_transaction_request,
    fetch_request,
    init_each,
    init_producers,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.figures import COMPARED, PAGE_CACHE, REFERENCE, Broker, Figure, Round, Sample, Sizes, Target
from scripts.benchmarks.produce_limit import pump

TOPIC, GROWN_TOPIC = "measured", "grown"
TRANSACTIONAL_ID = "measured"
TIMEOUT_MS = 600_000
TOPICS_PER_REQUEST = 10
PARTITIONS_PER_TOPIC = 100
RECORD_BYTES = 1_000
WRITTEN_BATCH_BYTES = 900_000
FLAT = 1.25
"""How much dearer a request may be at the largest step: what differs between two rounds on a quiet machine."""

WARM_UP_TIMES = 5
LONGEST_SETTLING_S = 75.0
IDLE_CPU_SHARE = 0.02
SHORTEST_CPU_S = 0.01
"""What the kernel counts processor time in."""

Grow = Callable[["Bench", int], None]


class Cost(NamedTuple):
    median_us: float
    cpu_us: float


class Bench:
    """A broker of this round's own, a connection to it, and a transactional producer.

    fetched_topic, fetched_offset: where a fetch reads.
    grown: how much there is by now of what grows: partitions, ids or bytes.
    """

    def __init__(self, round_: Round) -> None:
        data_directory = round_.scratch / "data"
        data_directory.mkdir()
        self.round = round_
        self.broker: Broker = round_.subject.launch(data_directory, {})
        self.client: Client = connect(self.broker, timeout_s=TIMEOUT_MS / 1e3)
        self.sockets: list[socket.socket] = []
        self.grown = 0
        self.batch = BatchTemplate(record_bytes=100, records_count=1).batch()
        self.fetched_topic, self.fetched_offset = TOPIC, 0
        create_topic(self.client, TOPIC, 1)
        require_success(wait_until_answered(self.client, produce_request(TOPIC, [(0, self.batch)])))
        (self._producer,) = init_producers(self.client, [TRANSACTIONAL_ID], 60_000)
        self._template = BatchTemplate(record_bytes=100, records_count=1, is_transactional=True)
        self._sequence = 0

    def close(self) -> None:
        self.client.close()
        for connection in self.sockets:
            connection.close()
        self.broker.kill()

    def settle(self) -> None:
        """Wait until what growing has left behind is done: dirty pages, and work for later."""
        os.sync()
        deadline_s = time.monotonic() + LONGEST_SETTLING_S
        quiet_s = self.round.sizes["quiet_milliseconds"] / 1000
        while time.monotonic() < deadline_s:
            before_s = self.broker.cpu_s()
            time.sleep(quiet_s)
            if self.broker.cpu_s() - before_s <= IDLE_CPU_SHARE * quiet_s:
                return

    def costs(self, count: int) -> Mapping[str, Cost]:
        """Of a produce, a fetch and a transaction in one partition (three requests), one after another."""
        producing = produce_request(TOPIC, [(0, self.batch)])
        fetching = fetch_request(self.fetched_topic, self.fetched_offset, 4_096)
        return {
            "produce": self._cost(count, lambda: require_success(self.client.call(producing))),
            "fetch": self._cost(count, lambda: require_success(self.client.call(fetching))),
            "transaction": self._cost(count // 4, self._transact),
        }

    def _cost(self, count: int, once: Callable[[], object]) -> Cost:
        durations_s = []
        before_s = self.broker.cpu_s()
        for _ in range(count):
            began_at_s = time.monotonic()
            once()
            durations_s.append(time.monotonic() - began_at_s)
        cpu_s = self.broker.cpu_s() - before_s
        return Cost(statistics.median(durations_s) * 1e6, cpu_s / count * 1e6)

    def _transact(self) -> None:
        producer_id, producer_epoch = self._producer
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        wait_until_answered(self.client, adding)  # as long as the transaction before is not complete
        batch = self._template.batch(self._producer, self._sequence)
        self._sequence += 1
        require_success(self.client.call(produce_request(TOPIC, [(0, batch)], TRANSACTIONAL_ID)))
        ended = require_success(self.client.call(end_transaction_request(TRANSACTIONAL_ID, self._producer)))
        if (ended.producer_id, ended.producer_epoch) != self._producer:  # KIP-890: each transaction has its own epoch
            self._producer, self._sequence = (ended.producer_id, ended.producer_epoch), 0


def measure(round_: Round, grow: Grow, what: str) -> Iterator[Sample]:
    sizes = [size for name, size in round_.sizes.items() if name.startswith("step")]
    count = round_.sizes["requests"]
    bench = Bench(round_)
    try:
        round_.say("warming")
        bench.costs(WARM_UP_TIMES * count)
        first: Mapping[str, Cost] = {}
        for size in sizes:
            case = f"{size:,} {what}"
            round_.say(f"growing to {case}")
            grow(bench, size)
            round_.say(f"settling with {case}")
            bench.settle()
            round_.say(f"measuring with {case}")
            costs = bench.costs(count)
            first = first or costs
            for name, cost in costs.items():
                yield Sample(f"{name} p50", cost.median_us, "µs", case)
                yield Sample(f"broker CPU per {name}", cost.cpu_us, "µs", case)
            yield Sample("memory", bench.broker.resident_bytes() / 2**20, "MiB", case)
        for name, cost in costs.items():
            case = f"{sizes[-1]:,} against {sizes[0]:,} {what}"
            yield Sample(f"{name} p50 grows", cost.median_us / first[name].median_us, "times", case)
            tick_us = SHORTEST_CPU_S / count * 1e6
            grows = max(cost.cpu_us, tick_us) / max(first[name].cpu_us, tick_us)
            yield Sample(f"broker CPU per {name} grows", grows, "times", case)
    finally:
        bench.close()


def grow_partitions(bench: Bench, size: int) -> None:
    """Topics of at most 100 partitions, a record in each partition."""
    there = bench.grown
    topics = []
    while there < size:
        count = min(PARTITIONS_PER_TOPIC, size - there)
        topics.append(CreatableTopic(name=f"{GROWN_TOPIC}-{there}", num_partitions=count, replication_factor=1))
        there += count
    for start in range(0, len(topics), TOPICS_PER_REQUEST):
        some = topics[start : start + TOPICS_PER_REQUEST]
        require_success(bench.client.call(CreateTopicsRequest(topics=some, timeout_ms=TIMEOUT_MS)))
        for topic in some:
            batches = [(partition, bench.batch) for partition in range(topic.num_partitions)]
            wait_until_answered(bench.client, produce_request(topic.name, batches))
    bench.grown = there


def grow_connections(bench: Bench, size: int) -> None:
    """Clients that have asked once and are still there; the one that measures is among them."""
    frame = request_frame(1, CLIENT_ID, MetadataRequest(topics=[]), VERSIONS["MetadataRequest"])
    while len(bench.sockets) < size - 1:
        connection = socket.create_connection(bench.broker.address, timeout=60)
        connection.sendall(frame)
        if not connection.recv(65_536):
            raise ConnectionResetError("the broker closed one of many connections")
        bench.sockets.append(connection)


def grow_transactional_ids(bench: Bench, size: int) -> None:
    there = max(1, bench.grown)
    init_each(bench.client, (f"application-{number}" for number in range(there, size)), 60_000)
    bench.grown = size


def grow_log(bench: Bench, megabytes: int) -> None:
    """The log that is fetched from, in the middle of it."""
    if not bench.grown:
        create_topic(bench.client, GROWN_TOPIC, 1)
    records_count = with_records_of(WRITTEN_BATCH_BYTES, RECORD_BYTES)
    batch = BatchTemplate(record_bytes=RECORD_BYTES, records_count=records_count).batch()
    count = max(1, (megabytes * 1_000_000 - bench.grown) // len(batch))
    request = produce_request(GROWN_TOPIC, [(0, batch)])
    pump(bench.broker.address, request_frame(1, CLIENT_ID, request, VERSIONS["ProduceRequest"]), count)
    bench.grown += count * len(batch)
    (end,) = end_offsets(bench.client, GROWN_TOPIC, 1, 0)
    if end * RECORD_BYTES < bench.grown * 0.9:
        raise RuntimeError("the log did not grow as it should")
    bench.fetched_topic, bench.fetched_offset = GROWN_TOPIC, end // 2


def _figure(name: str, about: str, grow: Grow, what: str, sizes: Sizes, small_sizes: Sizes) -> Figure:
    return Figure(
        name=f"growth-of-{name}",
        about=about,
        measure=lambda round_: measure(round_, grow, what),
        sizes=sizes,
        small_sizes=small_sizes,
        targets=tuple(
            Target(f"broker CPU per {request} grows", FLAT) for request in ("produce", "fetch", "transaction")
        ),
        subjects=COMPARED if name != "log" else (PAGE_CACHE, REFERENCE),
        most_rounds=3 if name != "log" else 1,
    )


# Brokers look after what is new every few seconds: over as long a time without work, they are done with it.
FULL = {"requests": 2_000, "quiet_milliseconds": 6_000}
SMALL = {"requests": 40, "quiet_milliseconds": 100}


def _steps(common: Sizes, *sizes: int) -> Sizes:
    return {**common, **{f"step_{number}": size for number, size in enumerate(sizes)}}


FIGURES = (
    _figure(
        "partitions",
        "cost of a request while partitions grow, a record in each",
        grow_partitions,
        "partitions",
        _steps(FULL, 10, 100, 1_000, 10_000),
        _steps(SMALL, 2, 4),
    ),
    _figure(
        "connections",
        "cost of a request while connections grow that say nothing",
        grow_connections,
        "connections",
        _steps(FULL, 1, 100, 1_000, 5_000),
        _steps(SMALL, 1, 5),
    ),
    _figure(
        "transactional-ids",
        "cost of a request while transactional ids grow",
        grow_transactional_ids,
        "transactional ids",
        _steps(FULL, 10, 100, 1_000, 10_000, 100_000),
        _steps(SMALL, 5, 10),
    ),
    _figure(
        "log",
        "cost of a request while one log grows; the fetch reads from its middle",
        grow_log,
        "MB in the log",
        _steps(FULL, 10, 100, 1_000, 10_000),
        _steps(SMALL, 1, 2),
    ),
)
