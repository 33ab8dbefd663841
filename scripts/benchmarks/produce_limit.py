"""How far produce is from the least that an asyncio server can do for the same bytes, see `byte_limit.py`."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from fencepost.protocol.framing import request_frame
from scripts.benchmarks.batches import BatchTemplate, with_records_of
from scripts.benchmarks.broker_process import ROOT, cpu_s
from scripts.benchmarks.client import (
    CLIENT_ID,
    VERSIONS,
    connect,
    create_topic,
    produce_request,
    require_success,
    wait_until_answered,
)
from scripts.benchmarks.figures import PAGE_CACHE, Figure, Round, Sample, Target

TOPIC = "measured"
RECORD_BYTES = 1_000
IN_FLIGHT_BYTES = 1024 * 1024
IN_PAGE_CACHE = {"log.flush.interval.messages": str(2**31 - 1), "log.segment.bytes": str(2**30)}


def measure(round_: Round) -> Iterator[Sample]:
    for name, case in (("small", "16 KB batches"), ("large", "1 MB batches")):
        batch = BatchTemplate(
            record_bytes=RECORD_BYTES, records_count=with_records_of(round_.sizes[f"{name}_batch_bytes"], RECORD_BYTES)
        ).batch()
        frame = produce_frame(batch)
        count = max(2, round_.sizes["total_bytes"] // len(batch))
        round_.say(f"{case}: the broker")
        broker_mb_per_s, broker_cpu_s = _on_broker(round_, name, batch, frame, count)
        round_.say(f"{case}: the limit")
        limit_mb_per_s, limit_cpu_s = _on_limit(round_, frame, count)
        gigabytes = len(batch) * count / 1e9
        yield Sample("broker", broker_mb_per_s, "MB/s", case)
        yield Sample("limit", limit_mb_per_s, "MB/s", case)
        yield Sample("broker against limit", broker_mb_per_s / limit_mb_per_s, "times", case)
        yield Sample("processor time of the broker", broker_cpu_s / gigabytes, "s/GB", case)
        yield Sample("processor time at the limit", limit_cpu_s / gigabytes, "s/GB", case)


def produce_frame(batch: bytes) -> bytes:
    """A whole Produce request with its length, as any client sends it."""
    return request_frame(1, CLIENT_ID, produce_request(TOPIC, [(0, batch)]), VERSIONS["ProduceRequest"])


def _on_broker(round_: Round, name: str, batch: bytes, frame: bytes, count: int) -> tuple[float, float]:
    data_directory = round_.scratch / f"data-{name}"
    data_directory.mkdir()
    broker = round_.subject.launch(data_directory, IN_PAGE_CACHE)
    try:
        with connect(broker) as client:
            create_topic(client, TOPIC, 1)
            require_success(wait_until_answered(client, produce_request(TOPIC, [(0, batch)])))
        before_s = broker.cpu_s()
        mb_per_s = pump(broker.address, frame, count)
        return mb_per_s, broker.cpu_s() - before_s
    finally:
        broker.kill()


def _on_limit(round_: Round, frame: bytes, count: int) -> tuple[float, float]:
    path = round_.scratch / "limit.log"
    command = [sys.executable, "-m", "scripts.benchmarks.byte_limit", "--file", str(path)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().split()[-1].rpartition(":")
        before_s = cpu_s(process.pid)
        mb_per_s = pump((host, int(port)), frame, count)
        return mb_per_s, cpu_s(process.pid) - before_s
    finally:
        process.kill()
        process.communicate()
        path.unlink(missing_ok=True)


def pump(address: tuple[str, int], frame: bytes, count: int) -> float:
    """Send a request many times, about a megabyte ahead of the replies. Returns MB/s."""
    ahead_count = max(1, IN_FLIGHT_BYTES // len(frame))
    with (
        socket.create_connection(address, timeout=60) as connection,
        connection.makefile("rb", 65_536) as replies,
    ):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began_at_s = time.monotonic()
        for number in range(count):
            connection.sendall(frame)
            if number >= ahead_count:
                _skip_reply(replies.read)
        for _ in range(min(count, ahead_count)):
            _skip_reply(replies.read)
        return len(frame) * count / (time.monotonic() - began_at_s) / 1e6


def _skip_reply(read: Callable[[int], bytes]) -> None:
    read(int.from_bytes(read(4), "big"))


FIGURES = (
    Figure(
        name="produce-against-limit",
        about="one connection, one partition, in the page cache, beside the least that an asyncio server must do",
        measure=measure,
        sizes={"small_batch_bytes": 16_384, "large_batch_bytes": 1_000_000, "total_bytes": 2**30},
        small_sizes={"small_batch_bytes": 16_384, "large_batch_bytes": 100_000, "total_bytes": 2**20},
        subjects=(PAGE_CACHE,),
        is_headline=True,
        targets=(Target("broker against limit", 0.8, is_lower_bound=True),),
        in_the_way="what the limit leaves out is checks of the request, the batch and its records, the producer's "
        "state, the indexes, the order of replies. For requests that arrive together that is done together, in native "
        "code: 1.5 to 2 µs for a batch of 16 KB, of which the limit needs 5.3 in all, 4.3 of them the system's.",
    ),
)
