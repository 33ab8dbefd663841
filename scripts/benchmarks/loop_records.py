"""Operations on many records, and on many producers of one partition, for `loop_operations`."""

from __future__ import annotations

import time

from fencepost.protocol.compression import Codec, compress
from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.record_batch import Record, build_batch, read_header, sealed_header
from scripts.benchmarks.batches import BatchTemplate
from scripts.benchmarks.client import produce_request, require_success
from scripts.benchmarks.loop_bench import Bench

BOMB_BYTES = 95 * 1024 * 1024


def _topic(bench: Bench, **configs: str) -> None:
    given = [CreatableTopicConfig(name.replace("_", "."), value) for name, value in configs.items()]
    wanted = CreatableTopic(name="records", num_partitions=1, replication_factor=1, configs=given)
    require_success(bench.client.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000)))


def _large_batch(bench: Bench, *, keys_count: int = 1) -> bytes:
    """A batch of small records of different lengths, which is the slower case."""
    now_ms = time.time_ns() // 1_000_000
    records = [
        Record(offset, now_ms, b"%d" % (offset % keys_count), b"v" * (offset % 7))
        for offset in range(bench.sizes["records"])
    ]
    return bytes(build_batch(records, codec=Codec.ZSTD))


def produce_large(bench: Bench) -> None:
    _topic(bench, max_message_bytes="100000000")
    bench.measure(produce_request("records", [(0, _large_batch(bench))]))


def produce_large_with_topic_time(bench: Bench) -> None:
    _topic(bench, max_message_bytes="100000000", message_timestamp_type="LogAppendTime", compression_type="gzip")
    bench.measure(produce_request("records", [(0, _large_batch(bench))]))


def produce_bomb(bench: Bench) -> None:
    _topic(bench)
    content = compress(Codec.ZSTD, bytes(BOMB_BYTES))
    header = read_header(build_batch([Record(0, 0, None, b"v")]))._replace(attributes=int(Codec.ZSTD))
    bomb = sealed_header(header, content) + content
    with bench.measured():
        bench.client.call(produce_request("records", [(0, bomb)]))


def compact_large(bench: Bench) -> None:
    """Two large batches of the same keys, in segments that are sealed at once."""
    _topic(
        bench,
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes="1048576",
        segment_ms="1",
        max_message_bytes="1048576",
    )
    batch = _large_batch(bench, keys_count=max(1, bench.sizes["records"] // 2))
    with bench.measured():
        for _ in range(2):
            require_success(bench.client.call(produce_request("records", [(0, batch)])))
        time.sleep(bench.sizes["records"] / 50_000)


def _with_producers(bench: Bench) -> bytes:
    _topic(bench, segment_bytes="1048576")
    template = BatchTemplate(record_bytes=10, records_count=1)
    for producer_id in range(bench.sizes["producers"]):
        require_success(bench.client.call(produce_request("records", [(0, template.batch((producer_id, 0), 0))])))
    return BatchTemplate(record_bytes=1_000_000, records_count=1).batch()


def describe_producers(bench: Bench) -> None:
    _with_producers(bench)
    bench.measure(DescribeProducersRequest(topics=[TopicRequest("records", [0])]))


def roll_with_producers(bench: Bench) -> None:
    batch = _with_producers(bench)
    with bench.measured():
        for _ in range(3):
            require_success(bench.client.call(produce_request("records", [(0, batch)])))
