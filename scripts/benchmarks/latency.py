"""End to end: from a record's sending by one client to its arrival at another."""

from __future__ import annotations

import math
from collections.abc import Iterator

from scripts.benchmarks.client_process import bootstrap, client, measure_client, measured
from scripts.benchmarks.figures import COMPARED_BOTH_WAYS, COMPARED_WITH_LIMIT, Figure, RatioTarget, Round, Sample
from scripts.benchmarks.measuring import percentiles, topic_of

WANTED = (50, 99, 99.9)


def measure_one_at_a_time(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    records = round_.sizes["records"]
    common = {"record_bytes": 100, "records": records}
    with topic_of(broker, f"one-at-a-time-{round_.number}", 1) as topic:
        round_.say("bare sockets")
        host, port = broker.address
        result, _ = measure_client(broker, "bare-one-at-a-time", host=host, port=port, topic=topic, **common)
        yield from percentiles("bare sockets", "end to end", result["latencies_ms"], WANTED)
        yield from percentiles("bare sockets", "acknowledged", result["acks_ms"], WANTED)
        round_.say("librdkafka")
        result, _ = measure_client(broker, "one-at-a-time", bootstrap=bootstrap(broker), topic=topic, **common)
        yield from percentiles("librdkafka", "end to end", result["latencies_ms"], WANTED)


def measure_steady(round_: Round) -> Iterator[Sample]:
    broker = round_.running()
    sizes = round_.sizes
    with topic_of(broker, f"steady-{round_.number}", 1) as topic:
        consuming = client(
            "steady-consumer", bootstrap=bootstrap(broker), topic=topic, skipped_s=sizes["skipped_ms"] / 1e3
        )
        with consuming:
            consuming.go()
            producing = client(
                "steady-producer",
                bootstrap=bootstrap(broker),
                topic=topic,
                record_bytes=1_000,
                bytes_per_s=sizes["bytes_per_s"],
                duration_s=sizes["duration_ms"] / 1e3,
            )
            round_.say("producing")
            result, cpu_s = measured(broker, producing)
            latencies_ms = consuming.result()["latencies_ms"]
    yield from percentiles("", "end to end", latencies_ms, WANTED)
    if not math.isnan(cpu_s):
        yield Sample("broker CPU, both ways", cpu_s / (result["records"] * 1_000 / 1e9), "s/GB")


FIGURES = (
    Figure(
        name="latency",
        about="one record of 100 B at a time, end to end; with bare sockets the consumer's fetch waits already",
        measure=measure_one_at_a_time,
        sizes={"records": 3_000},
        small_sizes={"records": 20},
        ratio_targets=(RatioTarget("end to end p50", 0.5), RatioTarget("end to end p99", 0.1)),
        subjects=COMPARED_WITH_LIMIT,
        needs_launches=False,
        is_headline=True,
        in_the_way="a record on its way is a fetch that waits, a produce that is checked and appended, and a delivery: "
        "some 2,700 bytecode instructions, 0.03 to 0.06 ms of Python. The limit, which does none of that, shows what "
        "it takes to wake two processes and to send three messages over the loopback. An idle processor of a virtual "
        "machine is slow to wake, and a record wakes five by librdkafka: where Linux polls before it halts one "
        "(guest_halt_poll_ns), its p50 was 0.44 of Kafka's.",
    ),
    Figure(
        name="steady-latency",
        about="end to end under a steady 20 MB/s of 1 KB records, librdkafka",
        measure=measure_steady,
        sizes={"bytes_per_s": 20_000_000, "duration_ms": 8_000, "skipped_ms": 2_000},
        small_sizes={"bytes_per_s": 1_000_000, "duration_ms": 300, "skipped_ms": 100},
        subjects=COMPARED_BOTH_WAYS,
        needs_launches=False,
    ),
)
