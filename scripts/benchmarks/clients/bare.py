"""Clients without a library between socket and clock: what remains is mostly the broker's."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

from fencepost.protocol.record_batch import HEADER_BYTES, read_header
from scripts.benchmarks.batches import BatchTemplate, with_records_of
from scripts.benchmarks.client import (
    Client,
    end_offsets,
    fetch_request,
    init_producer_id_request,
    produce_request,
    require_success,
    wait_until_answered,
)

WARM_UP_RECORDS = 200
PRODUCER_TIMEOUT_MS = 60_000


def consume(*, host: str, port: int, topic: str, fetch_bytes: int, total_bytes: int) -> Generator[Any]:
    """Seconds for reading `total_bytes` of partition 0 with one Fetch after another, and the bytes read.

    Of what arrives only the headers of the batches are looked at; at the end of the log it begins anew.
    """
    with Client((host, port)) as client:
        (end,) = end_offsets(client, topic, 1, 0)
        yield None
        began_at_s = time.monotonic()
        read_bytes = offset = 0
        while read_bytes < total_bytes:
            records = _fetch(client, topic, offset, fetch_bytes)
            read_bytes += len(records)
            offset = _next_offset(records)
            if offset >= end:
                offset = 0
        yield {"duration_s": time.monotonic() - began_at_s, "bytes": read_bytes}


def one_at_a_time(*, host: str, port: int, topic: str, record_bytes: int, records: int) -> Generator[Any]:
    """Milliseconds from sending a Produce until a Fetch that waits has the record; the next when both are answered."""
    produce = produce_request(topic, [(0, BatchTemplate(record_bytes=record_bytes, records_count=1).batch())])
    with Client((host, port)) as producer, Client((host, port)) as consumer:
        (offset,) = end_offsets(producer, topic, 1, 0)

        def pass_one() -> tuple[float, float]:
            nonlocal offset
            consumer.send(fetch_request(topic, offset, 2**20))
            time.sleep(0.0005)  # until the fetch waits at the broker
            began_at_s = time.monotonic()
            producer.send(produce)
            fetched = consumer.receive()
            arrived_at_s = time.monotonic()
            require_success(producer.receive())
            acknowledged_at_s = time.monotonic()
            offset = _next_offset(require_success(fetched).responses[0].partitions[0].records)
            return arrived_at_s - began_at_s, acknowledged_at_s - began_at_s

        for _ in range(WARM_UP_RECORDS):
            pass_one()
        yield None
        both_s = [pass_one() for _ in range(records)]
        yield {
            "latencies_ms": [arrived * 1e3 for arrived, _ in both_s],
            "acks_ms": [acked * 1e3 for _, acked in both_s],
        }


def idempotent_produce(
    *, host: str, port: int, topic: str, record_bytes: int, batch_bytes: int, records: int, in_flight: int
) -> Generator[Any]:
    """Seconds until at least `records` records of one idempotent producer are acknowledged, and their bytes.

    Each request is one batch for partition 0; all are made before the clock runs.
    """
    template = BatchTemplate(record_bytes=record_bytes, records_count=with_records_of(batch_bytes, record_bytes))
    with Client((host, port)) as client:
        identity = wait_until_answered(client, init_producer_id_request(None, PRODUCER_TIMEOUT_MS))
        producer = (identity.producer_id, identity.producer_epoch)
        records = -(-records // template.records_count) * template.records_count
        requests = [
            produce_request(topic, [(0, template.batch(producer, sequence))])
            for sequence in range(0, records, template.records_count)
        ]
        yield None
        began_at_s = time.monotonic()
        for reply in client.pipeline(requests, in_flight_count=in_flight):
            require_success(reply)
        duration_s = time.monotonic() - began_at_s
        (end,) = end_offsets(client, topic, 1, 0)
        if end != records:
            raise RuntimeError(f"{end:,} records were written instead of {records:,}")
        yield {"duration_s": duration_s, "bytes": records * record_bytes}


def _fetch(client: Client, topic: str, offset: int, fetch_bytes: int) -> memoryview:
    reply = require_success(client.call(fetch_request(topic, offset, fetch_bytes)))
    return memoryview(reply.responses[0].partitions[0].records)


def _next_offset(records: memoryview | bytes) -> int:
    """The offset behind the last whole batch; a fetch may end within one."""
    position, following = 0, -1
    while position + HEADER_BYTES <= len(records):
        header = read_header(records[position:])
        if position + header.size_bytes > len(records):
            break
        position += header.size_bytes
        following = header.last_offset + 1
    if following < 0:
        raise ValueError("a fetch brought no whole batch")
    return following
