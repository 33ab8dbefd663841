"""A topic that stores batches in its own compression: what is written to it, read from it, found in it by time.

Compressed, the same records have other sizes on both brokers. So it is read as a whole, and compared is what its
batches and records say.
"""

from __future__ import annotations

import time
from random import Random
from typing import Any, Final

from crc32c import crc32c

from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.record_batch import RecordBatch, iterate_batches, read_records
from tests.differences.exchange import FIRST_TIMESTAMP_MS, SET, Exchange
from tests.differences.plain import A_DAY_MS, NOW
from tests.differences.random_sequences.steps import SlicedWork

TOPIC: Final = 2
FETCH_BY_NAME: Final = 12
ALL_BYTES: Final = 1 << 24
LARGEST_TIMESTAMP: Final = -3
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "compression.type": ("gzip", "snappy", "lz4", "zstd", "uncompressed", "producer"),
    "compression.gzip.level": ("-1", "1", "9"),
    "compression.zstd.level": ("3", "1", "-5"),
    "compression.lz4.level": ("9", "1", "17"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "cleanup.policy": ("delete", "compact"),
    "message.timestamp.after.max.ms": ("0", "9223372036854775807"),
}


class ConvertedLog:
    """One partition of such a topic."""

    def __init__(self, exchange: Exchange, random: Random, steps: SlicedWork) -> None:
        self.exchange = exchange
        self.random = random
        self.steps = steps
        settings = {"min_cleanable_dirty_ratio": "1"}  # nothing is compacted while the sequence runs
        settings["compression_type"] = random.choice(SETTINGS["compression.type"])
        if steps.happens(0.3):
            settings["message_timestamp_type"] = "LogAppendTime"
        exchange.note(steps.situation("the converted topic is made"), 0, settings)
        self.name = exchange.create_topic("converted", partitions=1, version=None, **settings)
        self._end = 0
        self._has_times = False

    def alter(self) -> None:
        setting = self.random.choice(list(SETTINGS))
        value = self.random.choice(SETTINGS[setting])
        change = IncrementalAlterableConfig(setting, SET, value)
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, self.name, [change])])
        version = self.steps.version(IncrementalAlterConfigsRequest)
        self.steps.ask(f"{setting} of the converted topic becomes {value}", request, version)
        self.exchange.settle()

    def write(self, records: bytes, what: str, count: int, *, has_times: bool) -> bool:
        """Whether it was appended."""
        version = self.steps.version(ProduceRequest, lowest=3, highest=12)
        data = TopicProduceData(name=self.name, partition_data=[PartitionProduceData(0, memoryview(records))])
        request = ProduceRequest(None, -1, 5_000, [data])
        reply = self.steps.ask(f"write {what} to the converted topic", request, version)
        is_appended = reply is not None and not reply.responses[0].partition_responses[0].error_code
        if is_appended:
            self._end += count
            self._has_times |= has_times
        return is_appended

    def read(self) -> None:
        offset = self.random.choice((0, 0, self.random.randint(0, self._end)))
        wanted = FetchPartition(0, fetch_offset=offset, partition_max_bytes=ALL_BYTES)
        request = FetchRequest(max_bytes=ALL_BYTES, topics=[FetchTopic(self.name, partitions=[wanted])])
        reply = self.exchange.call(request, FETCH_BY_NAME)
        partition = reply.responses[0].partitions[0]
        batches = [self._shown(batch) for batch in iterate_batches(partition.records or b"")]
        situation = self.steps.situation(f"what the converted topic holds from {offset} on")
        self.exchange.note(situation, FETCH_BY_NAME, [partition.error_code, partition.high_watermark, batches])

    @staticmethod
    def _shown(batch: RecordBatch) -> dict[str, Any]:
        header = batch.header
        now_ms = time.time() * 1000
        times_ms = (header.base_timestamp_ms, header.max_timestamp_ms)
        return {
            "base_offset": header.base_offset,
            "last_offset_delta": header.last_offset_delta,
            "attributes": header.attributes,
            "records_count": header.records_count,
            "base_sequence": header.base_sequence,
            "times": [NOW if abs(one - now_ms) < A_DAY_MS else one for one in times_ms],
            "records": f"{checksum_of(batch):08x}",
        }

    def list_offsets(self) -> None:
        times_ms = [FIRST_TIMESTAMP_MS + distance for distance in (-40 * A_DAY_MS, 0, 1, 50, 9 * A_DAY_MS)]
        marks = (-1, -2, LARGEST_TIMESTAMP) if self._has_times else (-1, -2)
        timestamp = self.random.choice((*marks, *times_ms))
        wanted = ListOffsetsTopic(self.name, [ListOffsetsPartition(0, timestamp=timestamp)])
        version = self.steps.version(ListOffsetsRequest, lowest=7)
        self.steps.ask(f"offsets of the converted topic at {timestamp}", ListOffsetsRequest(-1, 0, [wanted]), version)


def checksum_of(batch: RecordBatch) -> int:
    """Of what its records say, and when, but for times of the run itself."""
    checksum = 0
    now_ms = time.time() * 1000
    for record in read_records(batch):
        is_now = abs(record.timestamp_ms - now_ms) < A_DAY_MS
        checksum = crc32c(repr(record._replace(timestamp_ms=0) if is_now else record).encode(), checksum)
    return checksum
