"""The files are Kafka's: batches that other clients build and read, entries byte for byte."""

from __future__ import annotations

import struct

import pytest
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatchBuilder

from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import Isolation
from fencepost.protocol.errors import ErrorCode
from tests.support.log_world import NOW_MS, LogWorld, content_of

PLAIN, GZIP = 0, 1


def kafka_python_batch(compression: int, *, producer_id: int = -1, base_sequence: int = -1) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=compression,
        is_transactional=False,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
        batch_size=1 << 20,
    )
    for offset in range(3):
        builder.append(offset, NOW_MS + offset, b"key", b"value %d" % offset, [("header", b"h")])
    return bytes(builder.build())


@pytest.mark.parametrize("compression", [PLAIN, GZIP])
async def test_a_batch_of_another_client_lies_in_the_log_as_it_was_sent_but_for_offset_and_epoch(
    world: LogWorld, compression: int
) -> None:
    log = world.create()
    log.leader_epoch = 9
    sent = kafka_python_batch(compression)
    for _ in range(2):
        result = log.append(memoryview(sent), now_ms=NOW_MS)
        assert result.error is ErrorCode.NONE
    await log.flushed()
    stored = content_of(log.segments.active.files.path(".log"))
    assert len(stored) == 2 * len(sent)
    for index in range(2):
        batch = stored[index * len(sent) : (index + 1) * len(sent)]
        assert batch == struct.pack(">qii", 3 * index, len(sent) - 12, 9) + sent[16:]
    read = log.read(0, 1 << 20, isolation=Isolation.READ_UNCOMMITTED)
    records = MemoryRecords(bytes(read.records))
    found = []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.value, record.headers) for record in batch]
    assert found == [(n, NOW_MS + n % 3, b"value %d" % (n % 3), [("header", b"h")]) for n in range(6)]


async def test_a_marker_has_the_bytes_of_kafka(world: LogWorld) -> None:
    log = world.create()
    log.leader_epoch = -1
    world.clock.time_ms = 1000
    error = log.append_marker(
        producer_id=7, producer_epoch=3, committed=True, coordinator_epoch=5, transaction_version=0, now_ms=1000
    )
    assert error is ErrorCode.NONE
    assert content_of(log.segments.active.files.path(".log")).hex() == (
        "000000000000000000000042ffffffff02d42be584003000000000"
        "00000000000003e800000000000003e800000000000000070003ffffffff00000001"
        "200000000800000001"
        "0c00000000000500"
    )


async def test_a_transaction_index_entry_has_the_bytes_of_kafka(world: LogWorld) -> None:
    log = world.create(LogConfig(flush_interval_messages=2))
    for _ in range(15):
        world.append(b"x")
    for sequence in range(5):
        world.append(b"x", producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    assert world.end_transaction(7, 1, committed=False) is ErrorCode.NONE
    assert content_of(log.segments.active.files.path(".txnindex")).hex() == (
        "00000000000000000007000000000000000f00000000000000140000000000000015"
    )


async def test_a_snapshot_has_the_bytes_of_kafka_for_the_newest_batch(world: LogWorld) -> None:
    log = world.create(LogConfig(flush_interval_messages=2))
    world.append(*[b"x"] * 5, producer_id=7, producer_epoch=3, base_sequence=0)
    await world.stop()
    content = content_of(log.files.snapshot_path(5))
    (version, _, count) = struct.unpack_from(">hIi", content)
    assert (version, count) == (1, 1)
    assert struct.unpack_from(">qhiqiqiq", content, 10) == (7, 3, 4, 4, 4, NOW_MS, -1, -1)
    assert len(content) == 10 + 46
