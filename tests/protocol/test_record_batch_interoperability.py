"""Our record batches are read by kafka-python and aiokafka, and theirs by us, with every codec."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

from fencepost.protocol.compression import Codec
from fencepost.protocol.record_batch import (
    Record,
    RecordBatch,
    build_batch,
    build_end_transaction_marker,
    check_crc,
    iterate_batches,
    read_records,
)
from fencepost.protocol.record_validation import RecordRules, validate_batch

NOW_MS = 1_700_000_000_000
RECORDS = [
    Record(
        index,
        NOW_MS + index * 37,
        None if index % 3 == 0 else b"key %d" % index,
        None if index % 5 == 0 else b"value " * (index % 60),
        (("header", b"%d" % index), ("other", b"")) if index % 7 == 0 else (),
    )
    for index in range(9_000)
]
PRODUCER: dict[str, Any] = {"producer_id": 4_000_000_000, "producer_epoch": 12, "base_sequence": 7}
# kafka-python needs libraries for snappy and zstd that nothing else here uses; aiokafka has its own.
KAFKA_PYTHON_CODECS = [Codec.NONE, Codec.GZIP, Codec.LZ4]


def ours(buffer: bytes) -> RecordBatch:
    (batch,) = iterate_batches(buffer)
    assert check_crc(batch.buffer)
    return batch


def fields(batch: KafkaPythonBatch | AiokafkaBatch) -> list[Record]:
    return [
        Record(
            record.offset,
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((name, value) for name, value in record.headers),
        )
        for record in batch
    ]


def assert_header(batch: RecordBatch, codec: Codec, count: int) -> None:
    header = batch.header
    assert header.magic == 2
    assert header.codec is codec
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == tuple(PRODUCER.values())
    assert header.records_count == count
    assert header.base_timestamp_ms == NOW_MS
    assert header.max_timestamp_ms == NOW_MS + (count - 1) * 37


# kafka-python leaves uncompressed what compression makes no smaller, as it does a single small record.
@pytest.mark.parametrize("count", [20, 64, 9_000])
@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_batches_of_kafka_python_are_read_and_found_valid(codec: Codec, count: int) -> None:
    builder = KafkaPythonBuilder(
        magic=2, compression_type=codec, is_transactional=True, batch_size=10_000_000, **PRODUCER
    )
    for record in RECORDS[:count]:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    batch = ours(bytes(builder.build()))
    assert_header(batch, codec, count)
    assert list(read_records(batch)) == RECORDS[:count]
    assert validate_batch(batch.buffer, batch.header, RecordRules(), now_ms=NOW_MS) is None


@pytest.mark.parametrize("count", [1, 64, 9_000])
@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_aiokafka_are_read_and_found_valid(codec: Codec, count: int) -> None:
    builder = AiokafkaBuilder(magic=2, compression_type=codec, is_transactional=1, batch_size=10_000_000, **PRODUCER)
    for record in RECORDS[:count]:
        builder.append(
            record.offset,
            timestamp=record.timestamp_ms,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
    batch = ours(bytes(builder.build()))
    assert_header(batch, codec, count)
    assert list(read_records(batch)) == RECORDS[:count]
    assert validate_batch(batch.buffer, batch.header, RecordRules(), now_ms=NOW_MS) is None


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_kafka_python_reads_our_batches(codec: Codec) -> None:
    buffer = bytes(build_batch(RECORDS, codec=codec, base_offset=0, is_transactional=True, **PRODUCER))
    batch = KafkaPythonBatch(buffer)
    assert batch.validate_crc()
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == tuple(PRODUCER.values())
    assert batch.last_sequence == 7 + 8_999
    assert fields(batch) == RECORDS


@pytest.mark.parametrize("codec", list(Codec))
def test_aiokafka_reads_our_batches(codec: Codec) -> None:
    buffer = bytes(build_batch(RECORDS, codec=codec, is_transactional=True, **PRODUCER))
    batch = AiokafkaBatch(buffer)
    assert batch.validate_crc()
    assert fields(batch) == RECORDS


def test_uncompressed_batches_are_byte_for_byte_those_of_kafka_python() -> None:
    builder = KafkaPythonBuilder(magic=2, compression_type=0, is_transactional=True, batch_size=10_000_000, **PRODUCER)
    for record in RECORDS:
        builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    theirs = bytes(builder.build())
    assert bytes(build_batch(RECORDS, is_transactional=True, **PRODUCER))[61:] == theirs[61:]
    assert bytes(build_batch(RECORDS, is_transactional=True, **PRODUCER))[21:61] == theirs[21:61]


@pytest.mark.parametrize("committed", [True, False])
def test_kafka_python_reads_our_markers(committed: bool) -> None:
    marker = build_end_transaction_marker(
        producer_id=7, producer_epoch=3, committed=committed, coordinator_epoch=5, timestamp_ms=1000
    )
    batch = KafkaPythonBatch(bytes(marker))
    assert batch.is_control_batch
    (record,) = batch
    assert (record.commit, record.abort) == (committed, not committed)
