"""What the configs of a topic, and of the broker, make of a batch: codec, times and size, as Apache Kafka 4.4 does.

Every expectation was compared with what Apache Kafka answered to, and stored of, the same requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import Isolation
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from fencepost.protocol.record_batch import Record, RecordBatch, build_batch, codec_of, iterate_batches, read_records
from tests.support.handler_context import NOW_MS, HandlerBroker, open_broker

LOG_APPEND_TIME_BIT = 8
BROKER, SET, DELETE = 4, 0, 1


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


def batch(*values: bytes, timestamps_ms: list[int] | None = None, codec: Codec = Codec.NONE) -> bytes:
    times_ms = timestamps_ms or [NOW_MS] * len(values)
    records = [Record(offset, times_ms[offset], b"key", value, ()) for offset, value in enumerate(values)]
    return bytes(build_batch(records, codec=codec))


async def produce(broker: HandlerBroker, sent: bytes, topic: str = "orders") -> PartitionProduceResponse:
    partition = PartitionProduceData(index=0, records=sent)
    request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name=topic, partition_data=[partition])])
    (answer,) = (await broker.call(request, 12)).responses[0].partition_responses
    assert isinstance(answer, PartitionProduceResponse)
    return answer


def stored(broker: HandlerBroker, topic: str = "orders") -> list[RecordBatch]:
    log = broker.log(topic)
    found: list[RecordBatch] = []
    while not found or found[-1].header.last_offset + 1 < log.log_end_offset:
        offset = found[-1].header.last_offset + 1 if found else 0
        found += iterate_batches(log.read(offset, 1_000_000, isolation=Isolation.LOG_END).records)
    return found


CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("wanted", [*CODECS, "producer"])
async def test_a_topic_decides_how_its_batches_are_compressed(broker: HandlerBroker, wanted: str, sent: Codec) -> None:
    await broker.create_topic("orders", 1, {"compression.type": wanted})
    values = [b"a" * 100, b"b" * 100]
    answer = await produce(broker, batch(*values, codec=sent))
    assert (answer.error_code, answer.base_offset) == (0, 0)
    (kept,) = stored(broker)
    assert codec_of(kept.header.attributes) is CODECS.get(wanted, sent)
    assert [record.value for record in read_records(kept)] == values


@pytest.mark.parametrize(("codec", "least", "most"), [("gzip", "1", "9"), ("lz4", "1", "17"), ("zstd", "-5", "19")])
async def test_a_topic_decides_how_thoroughly(broker: HandlerBroker, codec: str, least: str, most: str) -> None:
    words = [b"%d" % (number * 7919 % 1000) for number in range(50)]
    value = b" ".join(words[(number * number * 31 + number // 7) % 50] for number in range(4000))
    sizes = []
    for level in (least, most):
        topic = f"orders{level}"
        await broker.create_topic(topic, 1, {"compression.type": codec, f"compression.{codec}.level": level})
        assert (await produce(broker, batch(value), topic)).error_code == 0
        (kept,) = stored(broker, topic)
        assert [record.value for record in read_records(kept)] == [value]
        sizes.append(kept.header.size_bytes)
    assert sizes[0] > sizes[1]


async def test_the_broker_decides_for_topics_that_do_not_and_may_change_its_mind(broker: HandlerBroker) -> None:
    await broker.create_topic("orders")
    for operation, value in ((SET, "zstd"), (DELETE, None)):
        change = IncrementalAlterableConfig(name="compression.type", config_operation=operation, value=value)
        resource = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="", configs=[change])
        (done,) = (await broker.call(IncrementalAlterConfigsRequest(resources=[resource]))).responses
        assert done.error_code == 0
        await produce(broker, batch(b"v" * 100, codec=Codec.LZ4))
    assert [codec_of(kept.header.attributes) for kept in stored(broker)] == [Codec.ZSTD, Codec.LZ4]


@pytest.mark.parametrize("configs", [{}, {"compression.type": "gzip"}], ids=["as sent", "compressed anew"])
async def test_log_append_time_is_the_time_of_every_record(broker: HandlerBroker, configs: dict[str, str]) -> None:
    await broker.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime", **configs})
    # The producers' times do not count, so they may be as far off as they like.
    answer = await produce(broker, batch(b"a", b"b", timestamps_ms=[NOW_MS - 10**10, NOW_MS + 10**10]))
    assert (answer.error_code, answer.log_append_time_ms) == (0, NOW_MS)
    (kept,) = stored(broker)
    assert kept.header.attributes & LOG_APPEND_TIME_BIT
    assert kept.header.max_timestamp_ms == NOW_MS
    assert [record.timestamp_ms for record in read_records(kept)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize(
    ("distances_ms", "refused"),
    [([0], []), ([-60_000, 60_000], []), ([-60_001], [0]), ([60_001], [0]), ([0, -70_000, 70_000], [1, 2])],
)
async def test_records_too_early_or_too_late_are_named(
    broker: HandlerBroker, distances_ms: list[int], refused: list[int]
) -> None:
    configs = {"message.timestamp.before.max.ms": "60000", "message.timestamp.after.max.ms": "60000"}
    await broker.create_topic("orders", 1, configs)
    times_ms = [NOW_MS + distance_ms for distance_ms in distances_ms]
    answer = await produce(broker, batch(*[b"v"] * len(times_ms), timestamps_ms=times_ms))
    assert ErrorCode(answer.error_code) is (ErrorCode.INVALID_TIMESTAMP if refused else ErrorCode.NONE)
    assert [error.batch_index for error in answer.record_errors] == refused


async def test_records_without_a_time_are_taken_whatever_the_limits(broker: HandlerBroker) -> None:
    await broker.create_topic("orders", 1, {"message.timestamp.before.max.ms": "60000"})
    assert (await produce(broker, batch(b"v", timestamps_ms=[-1]))).error_code == 0


@pytest.mark.parametrize(
    ("value_bytes", "codec", "wanted", "error"),
    [
        (900, Codec.NONE, "producer", ErrorCode.NONE),
        (2000, Codec.NONE, "producer", ErrorCode.MESSAGE_TOO_LARGE),
        (2000, Codec.NONE, "gzip", ErrorCode.MESSAGE_TOO_LARGE),  # it is judged as it came
        (5000, Codec.GZIP, "producer", ErrorCode.NONE),
        (5000, Codec.GZIP, "uncompressed", ErrorCode.MESSAGE_TOO_LARGE),  # and as it would be kept
    ],
)
async def test_a_batch_is_measured_as_it_came_and_as_it_would_be_kept(
    broker: HandlerBroker, value_bytes: int, codec: Codec, wanted: str, error: ErrorCode
) -> None:
    await broker.create_topic("orders", 1, {"max.message.bytes": "1000", "compression.type": wanted})
    answer = await produce(broker, batch(b"x" * value_bytes, codec=codec))
    assert ErrorCode(answer.error_code) is error
    assert broker.log("orders").log_end_offset == (1 if error is ErrorCode.NONE else 0)


async def test_a_batch_that_holds_more_than_the_setting_allows_is_refused_however_small_it_is(tmp_path: Path) -> None:
    async with open_broker(tmp_path, fencepost_batch_max_decompressed_bytes=20_000) as broker:
        await broker.topics.create("bound", 1, {})
        log = broker.topics.log(TopicPartition("bound", 0))
        assert log is not None
        small, large = (memoryview(batch(b"a" * size, codec=Codec.ZSTD)) for size in (5_000, 50_000))
        assert log.append(small, now_ms=NOW_MS).error is ErrorCode.NONE
        assert len(large) < 500
        assert log.append(large, now_ms=NOW_MS).error is ErrorCode.INVALID_RECORD
