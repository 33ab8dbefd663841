"""A broker whose disk is full, unreadable or damaged: it says so, loses nothing in silence and does not pretend."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import shutil
import sqlite3
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from kafka.errors import CorruptRecordError

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from fencepost.protocol.record_batch import Record, build_batch, iterate_batches
from fencepost.protocol.schema import DecodeError
from tests.support.broker_process import BrokerFailedError, BrokerProcess
from tests.support.conditions import until
from tests.support.stable_offsets import until_stable
from tests.support.wire import WireConnection

ONE_PARTITION_EACH = {
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # All logs are open once it is ready, on a slow disk, too: raw requests are not repeated as those of clients are.
    "fencepost.start.opening.logs.ms": "600000",
}


@pytest.fixture
def disk_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Started; whatever the test does to it, it never writes a traceback."""
    process = BrokerProcess(tmp_path / "data", settings=ONE_PARTITION_EACH)
    process.start()
    yield process
    process.kill()
    assert "Traceback" not in process.output, process.output


def client(broker: BrokerProcess) -> dict[str, Any]:
    """What every client is made with. That its broker goes away is no news here."""
    return {"bootstrap.servers": broker.bootstrap, "log_level": 2}


def create(broker: BrokerProcess, topic: str, *, partitions: int = 1, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({**client(broker)})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(60)


def topic_names(broker: BrokerProcess) -> set[str]:
    listed = AdminClient({**client(broker)}).list_topics(timeout=60).topics
    return {name for name in listed if not name.startswith("__")}


def cluster_id(broker: BrokerProcess) -> str:
    return str(AdminClient({**client(broker)}).list_topics(timeout=60).cluster_id)


def write(broker: BrokerProcess, topic: str, *values: bytes) -> None:
    """Each value in its own batch."""
    producer = Producer({**client(broker), "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value=value, partition=0)
        assert producer.flush(60) == 0


def produce_raw(
    broker: BrokerProcess, topic: str, value: bytes, *, producer_id: int = -1, base_sequence: int = -1
) -> tuple[ErrorCode, int]:
    """One batch in one request, without a client that retries: the partition's error and base offset."""
    batch = build_batch(
        [Record(0, int(time.time() * 1000), None, value)],
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=60_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])],
    )
    with WireConnection(broker.host, broker.port) as connection:
        response = connection.call(request, ProduceResponse, 9, flexible_header=True)
    (answer,) = response.responses[0].partition_responses
    return ErrorCode(answer.error_code), answer.base_offset


def fetch_raw(broker: BrokerProcess, topic: str, offset: int) -> tuple[ErrorCode, list[int]]:
    """The partition's error, and the base offsets of the batches that came."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(max_wait_ms=200, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[asked])])
    with WireConnection(broker.host, broker.port) as connection:
        response = connection.call(request, FetchResponse, 11, flexible_header=False)
    (answer,) = response.responses[0].partitions
    offsets: list[int] = []
    with contextlib.suppress(DecodeError):  # what follows is damaged, as any client would find
        offsets.extend(batch.header.base_offset for batch in iterate_batches(memoryview(answer.records or b"")))
    return ErrorCode(answer.error_code), offsets


def commit_raw(broker: BrokerProcess, group: str, topic: str, metadata: str = "") -> ErrorCode:
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=metadata)
    request = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])])
    with WireConnection(broker.host, broker.port) as connection:
        response = connection.call(request, OffsetCommitResponse, 8, flexible_header=True)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def read(broker: BrokerProcess, topic: str, *, isolation_level: str = "read_committed") -> list[bytes]:
    """Everything in partition 0. No transaction is open."""
    until_stable(client(broker), topic, 1)
    consumer = Consumer(
        {
            **client(broker),
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation_level,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 60
    while True:
        assert time.monotonic() < deadline, f"end of {topic} never reached after {len(values)} records"
        message = consumer.poll(0.5)
        if message is None:
            continue
        if message.error() is not None:
            break
        values.append(message.value())
    consumer.close()
    return values


def log_file(broker: BrokerProcess, partition: str, base_offset: int = 0) -> Path:
    return broker.data_directory / partition / f"{base_offset:020}.log"


def overwrite(path: Path, position: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(content)


def batch_positions(path: Path) -> list[int]:
    positions = [0]
    for batch in iterate_batches(memoryview(path.read_bytes())):
        positions.append(positions[-1] + batch.header.size_bytes)
    return positions[:-1]


def refused_start(broker: BrokerProcess) -> str:
    """Start a broker that must refuse; returns its last line, which says why."""
    with pytest.raises(BrokerFailedError) as raised:
        broker.start()
    message = str(raised.value)
    assert "ended with 1:" in message
    assert "Traceback" not in message
    *_, last = message.strip().splitlines()
    assert last.startswith("fencepost: ")
    return last


# A full disk


def test_a_partition_on_a_full_disk_refuses_and_keeps_acknowledged_records_while_others_go_on(
    disk_broker: BrokerProcess,
) -> None:
    create(disk_broker, "filling")
    create(disk_broker, "other")
    write(disk_broker, "other", b"0")
    disk_broker.limit_file_size(300_000)
    acknowledged: list[bytes] = []

    def delivered(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value()[:8])

    producer = Producer({**client(disk_broker), "enable.idempotence": True})
    is_full, number = False, 0
    while not is_full:
        for _ in range(3):
            value = f"{number:08}".encode() + b"x" * 9_992
            producer.produce("filling", value=value, partition=0, on_delivery=delivered)
            number += 1
        while producer.flush(0.1) and not is_full:
            is_full = "partition_went_offline" in disk_broker.output
    producer.purge()
    assert 5 < len(acknowledged) < 30
    line = disk_broker.wait_for_output("partition_went_offline")
    assert "topic=filling" in line
    assert "partition=0" in line
    assert f"cannot append to {log_file(disk_broker, 'filling-0')}: File too large" in line
    assert "free space on the disk" in line
    assert "restart the broker" in line
    assert produce_raw(disk_broker, "filling", b"x")[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert fetch_raw(disk_broker, "filling", 0)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    write(disk_broker, "other", b"1")
    assert read(disk_broker, "other") == [b"0", b"1"]
    assert disk_broker.terminate() == 0
    assert not (disk_broker.data_directory / ".kafka_cleanshutdown").exists()
    disk_broker.file_size_limit_bytes = None
    disk_broker.start()
    kept = [value[:8] for value in read(disk_broker, "filling")]
    assert kept[: len(acknowledged)] == acknowledged
    write(disk_broker, "filling", b"after")
    assert read(disk_broker, "filling")[-1] == b"after"
    assert read(disk_broker, "other") == [b"0", b"1"]


def test_commits_that_find_no_room_are_refused_and_earlier_ones_are_kept(disk_broker: BrokerProcess) -> None:
    create(disk_broker, "events")
    consumer = Consumer({**client(disk_broker), "group.id": "first", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("events", 0, 7)], asynchronous=False)
    disk_broker.limit_file_size(log_file(disk_broker, "__consumer_offsets-0").stat().st_size + 1_000)
    assert commit_raw(disk_broker, "second", "events", "m" * 2_000) is ErrorCode.NOT_COORDINATOR
    line = disk_broker.wait_for_output("partition_went_offline")
    assert "topic=__consumer_offsets" in line
    disk_broker.wait_for_output("coordinator_partition_offline.*coordinator=group")
    assert commit_raw(disk_broker, "third", "events") is ErrorCode.NOT_COORDINATOR
    with pytest.raises(KafkaException):
        consumer.committed([TopicPartition("events", 0)], 3)
    consumer.close()
    disk_broker.limit_file_size(None)
    write(disk_broker, "events", b"x")
    assert disk_broker.terminate() == 0
    disk_broker.start()
    consumer = Consumer({**client(disk_broker), "group.id": "first"})
    (committed,) = consumer.committed([TopicPartition("events", 0)], 60)
    consumer.close()
    assert committed.offset == 7
    assert commit_raw(disk_broker, "second", "events") is ErrorCode.NONE


def test_a_transaction_whose_commit_finds_no_room_is_not_committed(disk_broker: BrokerProcess) -> None:
    create(disk_broker, "events")
    producer = Producer({**client(disk_broker), "transactional.id": "writer"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("events", value=b"committed")
    producer.commit_transaction(60)
    producer.begin_transaction()
    producer.produce("events", value=b"undecided")
    assert producer.flush(60) == 0
    # The last byte that the coordinator may write has been written.
    disk_broker.limit_file_size(log_file(disk_broker, "__transaction_state-0").stat().st_size)
    with pytest.raises(KafkaException):
        producer.commit_transaction(4)
    line = disk_broker.wait_for_output("partition_went_offline")
    assert "topic=__transaction_state" in line
    disk_broker.wait_for_output("coordinator_partition_offline.*coordinator=transaction")
    late = Producer({**client(disk_broker), "transactional.id": "late"})
    with pytest.raises(KafkaException):
        late.init_transactions(3)
    disk_broker.limit_file_size(None)
    assert disk_broker.terminate() == 0
    del producer, late
    disk_broker.start()
    successor = Producer({**client(disk_broker), "transactional.id": "writer"})
    successor.init_transactions(60)
    successor.begin_transaction()
    successor.produce("events", value=b"after")
    successor.commit_transaction(60)
    assert read(disk_broker, "events") == [b"committed", b"after"]
    assert read(disk_broker, "events", isolation_level="read_uncommitted") == [b"committed", b"undecided", b"after"]


def test_a_topic_that_finds_no_room_is_refused_and_can_be_created_when_there_is_some(
    disk_broker: BrokerProcess,
) -> None:
    create(disk_broker, "before")
    disk_broker.limit_file_size(0)
    with pytest.raises(KafkaException, match="disk") as raised:
        create(disk_broker, "events", partitions=3)
    assert raised.value.args[0].code() == ErrorCode.KAFKA_STORAGE_ERROR
    assert topic_names(disk_broker) == {"before"}
    disk_broker.limit_file_size(None)
    create(disk_broker, "events", partitions=3)
    write(disk_broker, "events", b"x")
    disk_broker.restart_after_kill()
    assert topic_names(disk_broker) == {"before", "events"}
    assert read(disk_broker, "events") == [b"x"]


@pytest.mark.parametrize("has_data", [False, True])
def test_a_start_on_a_full_disk_says_so(tmp_path: Path, has_data: bool) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=ONE_PARTITION_EACH)
    if has_data:
        broker.start()
        create(broker, "events")
        write(broker, "events", b"x")
        broker.kill()
    broker.file_size_limit_bytes = 0
    line = refused_start(broker)
    assert str(broker.data_directory) in line
    broker.file_size_limit_bytes = None
    broker.start()
    if has_data:
        assert read(broker, "events") == [b"x"]
    assert broker.terminate() == 0


# What cannot be opened


@pytest.mark.parametrize("place", ["data", "file/data"])
def test_a_data_directory_that_is_a_file_or_lies_below_one_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / place.split("/", maxsplit=1)[0]).write_text("not a directory")
    broker = BrokerProcess(tmp_path / "outputs" / "unused")
    (tmp_path / "outputs").mkdir()
    broker.data_directory = tmp_path / place
    line = refused_start(broker)
    assert f"data directory {tmp_path / place}" in line
    assert "a file stands where a directory belongs" in line


def test_a_data_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "unused")
    broker.data_directory = tmp_path / "new" / "parents" / "data"
    broker.start()
    assert broker.terminate() == 0


@pytest.mark.parametrize("replaced", ["metadata.sqlite", ".lock"])
def test_a_directory_in_the_place_of_a_file_stops_the_start_with_its_name(tmp_path: Path, replaced: str) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=ONE_PARTITION_EACH)
    broker.start()
    create(broker, "events", config={"index.interval.bytes": "0"})
    write(broker, "events", b"0", b"1", b"2")
    assert broker.terminate() == 0
    path = broker.data_directory / replaced
    kept = path.rename(tmp_path / "kept")
    path.mkdir()
    line = refused_start(broker)
    assert str(path) in line
    path.rmdir()
    kept.rename(path)
    broker.start()
    assert read(broker, "events") == [b"0", b"1", b"2"]
    broker.kill()


@pytest.mark.parametrize(
    "replaced", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"]
)
def test_a_checkpoint_that_cannot_be_read_stops_nothing_and_is_named_with_its_remedy(
    tmp_path: Path, replaced: str
) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=ONE_PARTITION_EACH)
    broker.start()
    create(broker, "events")
    write(broker, "events", b"0", b"1", b"2")
    assert broker.terminate() == 0
    path = broker.data_directory / replaced
    path.unlink(missing_ok=True)
    path.mkdir()
    broker.start()
    assert read(broker, "events") == [b"0", b"1", b"2"]
    [line] = [line for line in broker.output.splitlines() if "checkpoint_corrupt" in line]
    assert str(path) in line
    assert "move it away" in line
    broker.terminate()
    path.rmdir()
    broker.start()
    assert read(broker, "events") == [b"0", b"1", b"2"]
    assert broker.terminate() == 0


@pytest.mark.parametrize(
    "replaced",
    [
        "events-0/00000000000000000000.log",
        "events-0/00000000000000000000.index",
        "events-0/leader-epoch-checkpoint",
        "events-0/partition.metadata",
        "events-0",
    ],
)
def test_a_partition_that_cannot_be_opened_is_offline_while_others_are_served(tmp_path: Path, replaced: str) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=ONE_PARTITION_EACH)
    broker.start()
    create(broker, "events", config={"index.interval.bytes": "0"})
    create(broker, "others")
    write(broker, "events", b"0", b"1", b"2")
    write(broker, "others", b"fine")
    assert broker.terminate() == 0
    path = broker.data_directory / replaced
    kept = path.rename(tmp_path / "kept")
    if kept.is_dir():
        path.write_text("a file")
    else:
        path.mkdir()
    broker.start()
    line = broker.wait_for_output("partition_went_offline")
    assert str(path) in line
    assert "a file stands where a directory belongs" in line
    assert read(broker, "others") == [b"fine"]
    assert broker.terminate() == 0
    if kept.is_dir():
        path.unlink()
    else:
        path.rmdir()
    kept.rename(path)
    broker.start()
    assert read(broker, "events") == [b"0", b"1", b"2"]
    broker.kill()


# Damage in a log


def test_damage_that_a_crash_may_have_left_cuts_the_log_there_and_keeps_the_rest_aside(
    disk_broker: BrokerProcess,
) -> None:
    create(disk_broker, "events")
    write(disk_broker, "events", *(f"value {number}".encode() for number in range(10)))
    disk_broker.kill()
    path = log_file(disk_broker, "events-0")
    position = batch_positions(path)[6]
    tail = path.read_bytes()[position:]
    overwrite(path, position + 70, b"\xff")
    disk_broker.start()
    line = disk_broker.wait_for_output("log_cut_before_valid_batches")
    assert "offset=6" in line
    assert f"position={position}" in line
    aside = path.with_name(f"{path.name}.lost-{position}")
    assert str(aside) in line
    assert len(aside.read_bytes()) == len(tail)
    assert read(disk_broker, "events") == [f"value {number}".encode() for number in range(6)]
    write(disk_broker, "events", b"after")
    assert read(disk_broker, "events")[-1] == b"after"


def test_damage_to_durable_records_takes_the_partition_offline_until_it_is_repaired(
    disk_broker: BrokerProcess,
) -> None:
    create(disk_broker, "events")
    create(disk_broker, "other")
    write(disk_broker, "events", *(f"value {number}".encode() for number in range(10)))
    write(disk_broker, "other", b"x")
    assert disk_broker.terminate() == 0
    disk_broker.start()
    disk_broker.kill()
    path = log_file(disk_broker, "events-0")
    whole = path.read_bytes()
    position = batch_positions(path)[6]
    overwrite(path, position + 70, b"\xff")
    disk_broker.start()
    line = disk_broker.wait_for_output("log_damaged")
    assert f"path={path}" in line
    assert "offset=6" in line
    assert "recovery_point=10" in line
    assert fetch_raw(disk_broker, "events", 0)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce_raw(disk_broker, "events", b"x")[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert read(disk_broker, "other") == [b"x"]
    # Another stop and start do not make it look whole.
    assert disk_broker.terminate() == 0
    disk_broker.start()
    assert fetch_raw(disk_broker, "events", 0)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk_broker.terminate() == 0
    damaged = path.read_bytes()
    path.write_bytes(whole)
    disk_broker.start()
    assert read(disk_broker, "events") == [f"value {number}".encode() for number in range(10)]
    # Or the records are given up.
    disk_broker.kill()
    path.write_bytes(damaged)
    checkpoint = disk_broker.data_directory / "recovery-point-offset-checkpoint"
    version, _, *lines = checkpoint.read_text().splitlines()
    lines = [entry for entry in lines if not entry.startswith("events 0 ")]
    checkpoint.write_text("\n".join([version, str(len(lines)), *lines]) + "\n")
    disk_broker.start()
    assert read(disk_broker, "events") == [f"value {number}".encode() for number in range(6)]


def test_damaged_records_of_a_cleanly_stopped_log_reach_no_reader_that_checks(disk_broker: BrokerProcess) -> None:
    create(disk_broker, "events")
    write(disk_broker, "events", *(f"value {number}".encode() for number in range(10)))
    assert disk_broker.terminate() == 0
    path = log_file(disk_broker, "events-0")
    overwrite(path, batch_positions(path)[6] + 70, b"\xff")
    disk_broker.start()
    # As Apache Kafka does: the bytes go out as they are, the reader compares the checksum.
    assert fetch_raw(disk_broker, "events", 0) == (ErrorCode.NONE, list(range(10)))
    consumer = KafkaConsumer(bootstrap_servers=disk_broker.bootstrap, check_crcs=True)
    partition = PythonTopicPartition("events", 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    values: list[bytes] = []

    def read_on() -> None:
        for _ in range(20):
            for records in consumer.poll(timeout_ms=500).values():
                values.extend(record.value for record in records)

    with pytest.raises(CorruptRecordError):
        read_on()
    consumer.close(autocommit=False)
    assert values == [f"value {number}".encode() for number in range(len(values))]
    assert len(values) <= 6


@pytest.mark.parametrize(
    ("field_position", "content"),
    [
        pytest.param(8, struct.pack(">i", -12), id="length of nothing"),
        pytest.param(8, struct.pack(">i", 2**30), id="length beyond the file"),
        pytest.param(0, struct.pack(">q", 2**40), id="offset of never"),
        pytest.param(0, bytes(512), id="zeros"),
    ],
)
def test_an_impossible_batch_header_stops_readers_at_that_batch_only(
    disk_broker: BrokerProcess, field_position: int, content: bytes
) -> None:
    create(disk_broker, "events")
    create(disk_broker, "other")
    write(disk_broker, "other", b"x")
    for number in range(10):
        assert produce_raw(disk_broker, "events", b"%d" % number * 500)[0] is ErrorCode.NONE
    assert disk_broker.terminate() == 0
    path = log_file(disk_broker, "events-0")
    position = batch_positions(path)[6]
    overwrite(path, position + field_position, content)
    disk_broker.start()
    # Readers get what precedes the damage. Each read at the damage fails; none skips it.
    error, offsets = fetch_raw(disk_broker, "events", 0)
    assert offsets[:6] == list(range(6)) if error is ErrorCode.NONE else not offsets
    for _ in range(2):
        error, offsets = fetch_raw(disk_broker, "events", 6)
        # As in Apache Kafka; but near the end the clean stop itself is not believed, and the partition is offline.
        assert error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR)
        assert not offsets
    assert str(path) in disk_broker.wait_for_output("log_damaged")
    assert read(disk_broker, "other") == [b"x"]


def test_a_damaged_coordinator_log_is_refused_and_not_half_believed(disk_broker: BrokerProcess) -> None:
    create(disk_broker, "events")
    consumer = Consumer({**client(disk_broker), "group.id": "first"})
    consumer.commit(offsets=[TopicPartition("events", 0, 7)], asynchronous=False)
    consumer.close()
    for number in range(5):
        assert commit_raw(disk_broker, f"group-{number}", "events") is ErrorCode.NONE
    assert disk_broker.terminate() == 0
    path = log_file(disk_broker, "__consumer_offsets-0")
    overwrite(path, batch_positions(path)[2] + 80, b"\xff\xff")
    disk_broker.start()
    line = disk_broker.wait_for_output("coordinator_partition_offline")
    assert "damaged" in line
    assert commit_raw(disk_broker, "group-4", "events") is ErrorCode.NOT_COORDINATOR
    write(disk_broker, "events", b"x")


def test_a_partition_whose_directory_was_removed_does_not_come_back_empty(disk_broker: BrokerProcess) -> None:
    create(disk_broker, "events")
    write(disk_broker, "events", b"x")
    assert disk_broker.terminate() == 0
    kept = (disk_broker.data_directory / "events-0").rename(disk_broker.data_directory.parent / "kept")
    disk_broker.start()
    assert "recovery_point=1" in disk_broker.wait_for_output("partition_lost")
    assert fetch_raw(disk_broker, "events", 0)[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert produce_raw(disk_broker, "events", b"y")[0] is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk_broker.terminate() == 0
    shutil.rmtree(disk_broker.data_directory / "events-0")
    kept.rename(disk_broker.data_directory / "events-0")
    disk_broker.start()
    assert read(disk_broker, "events") == [b"x"]


# Damage beside the logs


def delete(path: Path) -> None:
    path.unlink()


def fill_with_garbage(path: Path) -> None:
    path.write_bytes(bytes(random.Random(0).randbytes(max(path.stat().st_size, 64) // 2 * 2 + 1)))


def cut_in_half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 1])


SIDE_FILES = ("*.snapshot", "*.index", "*.timeindex", "*.txnindex", "leader-epoch-checkpoint", "partition.metadata")


@pytest.mark.parametrize(
    ("damage", "after_crash"),
    [
        (fill_with_garbage, False),
        (cut_in_half, True),
        (delete, False),
        pytest.param(fill_with_garbage, True, marks=pytest.mark.long),
        pytest.param(cut_in_half, False, marks=pytest.mark.long),
        pytest.param(delete, True, marks=pytest.mark.long),
    ],
)
def test_every_file_beside_a_log_can_be_lost_and_readers_and_producers_notice_nothing(
    disk_broker: BrokerProcess, damage: Callable[[Path], None], after_crash: bool
) -> None:
    create(disk_broker, "events", config={"internal.segment.bytes": "1500", "index.interval.bytes": "100"})
    producer = Producer({**client(disk_broker), "transactional.id": "writer"})
    producer.init_transactions(60)
    for number in range(20):
        producer.begin_transaction()
        producer.produce("events", value=f"{number}".encode() * 50)
        producer.flush(60)
        if number % 2:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    until_stable(client(disk_broker), "events", 1)  # the offsets of what follows are known
    for sequence in range(7):
        error, last_offset = produce_raw(disk_broker, "events", b"idempotent", producer_id=900, base_sequence=sequence)
        assert error is ErrorCode.NONE
    committed = read(disk_broker, "events")
    everything = read(disk_broker, "events", isolation_level="read_uncommitted")
    assert len(everything) - len(committed) == 10
    directory = disk_broker.data_directory / "events-0"
    assert disk_broker.terminate() == 0
    if after_crash:
        disk_broker.start()
        disk_broker.kill()
    damaged = [path for pattern in SIDE_FILES for path in sorted(directory.glob(pattern))]
    damaged += [disk_broker.data_directory / "recovery-point-offset-checkpoint"] if after_crash else []
    assert len({path.suffix for path in damaged}) >= 5, "the log has files of every kind"
    for path in damaged:
        damage(path)
    seen = len(disk_broker.output)
    disk_broker.start()
    assert read(disk_broker, "events") == committed
    assert read(disk_broker, "events", isolation_level="read_uncommitted") == everything
    # A retry of the newest batch, and of the oldest that is remembered.
    for sequence in (6, 2):
        offset = last_offset - (6 - sequence)
        assert produce_raw(disk_broker, "events", b"idempotent", producer_id=900, base_sequence=sequence) == (
            ErrorCode.NONE,
            offset,
        )
    assert produce_raw(disk_broker, "events", b"next", producer_id=900, base_sequence=7) == (
        ErrorCode.NONE,
        last_offset + 1,
    )
    noticed = disk_broker.output[seen:]
    events = {"partition_metadata_rewritten"}
    if damage is not delete:
        events |= {"partition_metadata_corrupt", "leader_epochs_corrupt"}
        events |= {"checkpoint_corrupt"} if after_crash else {"producer_snapshot_corrupt"}
    if not after_crash:
        events |= {"index_rebuilt"}
    assert {event for event in events if event not in noticed} == set()
    assert disk_broker.terminate() == 0
    disk_broker.start()
    assert read(disk_broker, "events")[: len(committed)] == committed


# The metadata file


def cut_to_nothing(path: Path) -> None:
    path.write_bytes(b"")


def make_newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 1000")
    database.close()


def make_foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (value)")
    database.close()


def cut_to_one_page(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (delete, "missing or empty"),
        (cut_to_nothing, "missing or empty"),
        (cut_to_one_page, "damaged"),
        (cut_in_half, "damaged"),
        (fill_with_garbage, "damaged"),
        (make_newer, "format 1000"),
        (make_foreign, "not a metadata file of this broker"),
    ],
)
def test_a_metadata_file_that_cannot_be_right_stops_the_start_and_nothing_is_begun_anew(
    disk_broker: BrokerProcess, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    create(disk_broker, "events")
    write(disk_broker, "events", b"x")
    before = cluster_id(disk_broker)
    assert disk_broker.terminate() == 0
    path = disk_broker.data_directory / "metadata.sqlite"
    shutil.copy(path, tmp_path / "backup")
    path.with_name("metadata.sqlite.copy").unlink()
    damage(path)
    for _ in range(2):
        line = refused_start(disk_broker)
        assert str(path) in line
        assert words in line
    shutil.copy(tmp_path / "backup", path)
    disk_broker.start()
    assert cluster_id(disk_broker) == before
    assert read(disk_broker, "events") == [b"x"]


@pytest.mark.parametrize("damage", [delete, cut_to_nothing, cut_to_one_page, cut_in_half, fill_with_garbage])
def test_a_metadata_file_that_is_damaged_is_replaced_by_its_copy_with_a_line_in_the_log(
    disk_broker: BrokerProcess, damage: Callable[[Path], None]
) -> None:
    create(disk_broker, "events")
    write(disk_broker, "events", b"x")
    before = cluster_id(disk_broker)
    assert disk_broker.terminate() == 0
    damage(disk_broker.data_directory / "metadata.sqlite")
    disk_broker.start()
    assert "metadata_restored_from_copy" in disk_broker.output
    assert cluster_id(disk_broker) == before
    assert read(disk_broker, "events") == [b"x"]
    write(disk_broker, "events", b"y")
    assert disk_broker.terminate() == 0
    disk_broker.start()
    assert disk_broker.output.count("metadata_restored_from_copy") == 1
    assert read(disk_broker, "events") == [b"x", b"y"]


def test_metadata_whose_write_ahead_log_is_cut_after_a_kill_do_not_go_back(disk_broker: BrokerProcess) -> None:
    create(disk_broker, "events")
    write(disk_broker, "events", b"x")
    database = disk_broker.data_directory / "metadata.sqlite"
    copy = database.with_name("metadata.sqlite.copy")
    until(lambda: copy.exists() and b"events" in copy.read_bytes())
    disk_broker.kill()
    cut_to_nothing(database.with_name("metadata.sqlite-wal"))
    disk_broker.start()
    assert "metadata_restored_from_copy" in disk_broker.output
    assert read(disk_broker, "events") == [b"x"]


# Crashes while topics come and go


@pytest.mark.parametrize("crashes", [5, pytest.param(30, marks=pytest.mark.long)])
def test_metadata_and_logs_are_in_step_after_crashes_at_any_moment_of_creation_and_deletion(
    disk_broker: BrokerProcess, crashes: int
) -> None:
    moments = random.Random(1)
    create(disk_broker, "steady")
    written: list[bytes] = []
    names: set[str] = set()
    errors: set[ErrorCode] = set()
    for crash in range(crashes):
        certain: dict[str, bool] = {}

        def come_and_go(certain: dict[str, bool] = certain, there: frozenset[str] = frozenset(names)) -> None:
            """Creates and deletes until the broker is gone; `certain` is what has been answered of each name."""
            gone = contextlib.suppress(OSError, AssertionError)
            with gone, WireConnection(disk_broker.host, disk_broker.port) as connection:
                for number in itertools.count():
                    name = f"topic-{number % 5}"
                    if certain.pop(name, name in there):
                        deletion = DeleteTopicsRequest(topic_names=[name], timeout_ms=60_000)
                        answer = connection.call(deletion, DeleteTopicsResponse, 4, flexible_header=True)
                        errors.add(ErrorCode(answer.responses[0].error_code))
                        certain[name] = False
                    else:
                        asked = CreatableTopic(name=name, num_partitions=4, replication_factor=1)
                        creation = CreateTopicsRequest(topics=[asked], timeout_ms=60_000)
                        answer = connection.call(creation, CreateTopicsResponse, 5, flexible_header=True)
                        errors.add(ErrorCode(answer.topics[0].error_code))
                        certain[name] = True

        worker = threading.Thread(target=come_and_go)
        worker.start()
        time.sleep(moments.uniform(0.02, 0.2))
        disk_broker.kill()
        worker.join()
        disk_broker.start()
        names = topic_names(disk_broker)
        for name, exists in certain.items():
            assert (name in names) == exists, (crash, name, disk_broker.output)
        for name in names - {"steady"}:
            for partition in range(4):
                assert (disk_broker.data_directory / f"{name}-{partition}").is_dir()
            error, offset = produce_raw(disk_broker, name, b"x")
            assert error is ErrorCode.NONE
            assert fetch_raw(disk_broker, name, offset) == (ErrorCode.NONE, [offset])
        assert produce_raw(disk_broker, "steady", b"%d" % crash)[0] is ErrorCode.NONE
        written.append(b"%d" % crash)
        if crash % 3 == 0:
            # So that there are checkpoints, which speak of topics that are deleted next.
            assert disk_broker.terminate() == 0
            disk_broker.start()
    assert errors == {ErrorCode.NONE}
    assert read(disk_broker, "steady") == written
    for event in ("stray_partition_found", "partition_of_other_topic_found", "partition_lost", "log_damaged"):
        assert event not in disk_broker.output
    names = topic_names(disk_broker)
    directories = {
        path.name.rpartition("-")[0]
        for path in disk_broker.data_directory.iterdir()
        if re.fullmatch(r"topic-\d-\d", path.name)
    }
    assert directories == names - {"steady"}
