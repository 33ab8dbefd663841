"""ListOffsets: timestamps and marks, isolation, epochs, unknown and negative places."""

from __future__ import annotations

import struct

from fencepost.protocol.compression import Codec
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from tests.differences.exchange import FIRST_TIMESTAMP_MS, TRANSACTION, Exchange, batch
from tests.differences.sequences.produce import changed
from tests.differences.sequences.transactions import Transactional

NINE_DAYS_MS = 777_600_000  # more than a segment holds
MARKS = {
    "latest": -1,
    "earliest": -2,
    "the largest timestamp": -3,
    "earliest local": -4,
    "latest tiered": -5,
    "earliest to be uploaded": -6,
    "a mark that does not exist": -7,
}
BEFORE_MARKERS_MS = 1_750_000_000_000
TIMES = {
    "0": 0,
    "before the first": FIRST_TIMESTAMP_MS - 1,
    "the first": FIRST_TIMESTAMP_MS,
    "inside the first batch": FIRST_TIMESTAMP_MS + 1,
    "inside a compressed batch": FIRST_TIMESTAMP_MS + 1_005,
    "between batches": FIRST_TIMESTAMP_MS + 500,
    "the last": FIRST_TIMESTAMP_MS + 1_019,
    "after the last": FIRST_TIMESTAMP_MS + 1_000_000,
    "the largest there is": 2**63 - 1,
}


def run(exchange: Exchange) -> None:
    filled = exchange.create_topic("timed", partitions=3)
    exchange.fill(filled, batch(3), batch(2, timestamp_ms=FIRST_TIMESTAMP_MS - 100))
    exchange.fill(filled, batch(20, timestamp_ms=FIRST_TIMESTAMP_MS + 1_000, codec=Codec.GZIP), batch(1))
    exchange.fill(filled, batch(1, timestamp_ms=-1), partition=2)
    appended = exchange.create_topic("append-time", message_timestamp_type="LogAppendTime")
    exchange.fill(appended, batch(3))
    opened = open_transaction(exchange)
    marked, cut = marked_partitions(exchange)
    beheaded = exchange.create_topic("beheaded")
    exchange.fill(beheaded, batch(3), batch(2, timestamp_ms=FIRST_TIMESTAMP_MS + 500))
    exchange.call(DeleteRecordsRequest([DeleteRecordsTopic(beheaded, [DeleteRecordsPartition(0, 3)])], 5_000), 2)
    deleted = exchange.create_topic("deleted")
    exchange.fill(deleted, batch(2), batch(1, timestamp_ms=FIRST_TIMESTAMP_MS + NINE_DAYS_MS))
    exchange.call(DeleteRecordsRequest([DeleteRecordsTopic(deleted, [DeleteRecordsPartition(0, 2)])], 5_000), 2)
    lying = exchange.create_topic("lying")
    exchange.fill(lying, changed(35, struct.pack(">q", FIRST_TIMESTAMP_MS - 5)))
    for version in exchange.versions(ListOffsetsRequest):

        def ask(
            situation: str, name: str, *, version: int = version, isolation: int = 0, replica: int = -1, **fields: int
        ) -> None:
            lookup = ListOffsetsPartition(**fields)
            request = ListOffsetsRequest(replica, isolation, [ListOffsetsTopic(name, [lookup])], 1_000)
            exchange.ask(situation, request, version)

        for situation, mark in (MARKS | TIMES).items():
            ask(situation, filled, timestamp=mark)
            ask(f"an empty partition, {situation}", filled, timestamp=mark, partition_index=1)
        for situation, mark in MARKS.items():
            ask(f"no timestamps, {situation}", filled, timestamp=mark, partition_index=2)
            for level in (0, 1, 5) if version >= 2 else ():
                ask(f"an open transaction, isolation {level}, {situation}", opened, timestamp=mark, isolation=level)
        if version >= 2:
            ask("a timestamp in an open transaction", opened, timestamp=FIRST_TIMESTAMP_MS + 3, isolation=1)
        for level in (0, 1) if version >= 2 else ():
            for time_ms in (0, FIRST_TIMESTAMP_MS + 1, BEFORE_MARKERS_MS, -3):
                ask(f"a marker, isolation {level}, time {time_ms}", marked, timestamp=time_ms, isolation=level)
                ask(f"only a marker, isolation {level}, time {time_ms}", cut, timestamp=time_ms, isolation=level)
        for time_ms in (0, FIRST_TIMESTAMP_MS + 1, FIRST_TIMESTAMP_MS + 100, -3):
            ask(f"without its first batch, time {time_ms}", beheaded, timestamp=time_ms)
        ask("append time, 1", appended, timestamp=1)
        ask("a time before which all was deleted", deleted, timestamp=FIRST_TIMESTAMP_MS)
        ask("the time of a record that its batch conceals", lying, timestamp=FIRST_TIMESTAMP_MS)
        ask("an unknown partition", filled, timestamp=-1, partition_index=9)
        ask("a negative partition", filled, timestamp=-1, partition_index=-1)
        ask("an unknown topic", "nothing", timestamp=-1)
        ask("an empty name", "", timestamp=-1)
        ask("a bad name", "a b", timestamp=-1)
        ask("as a follower", filled, timestamp=-1, replica=1)
        ask("as a debugging consumer", filled, timestamp=-1, replica=-2)
        if version >= 4:
            ask("the current epoch", filled, timestamp=-1, current_leader_epoch=0)
            ask("an epoch of the future", filled, timestamp=-1, current_leader_epoch=4)
            ask("a negative epoch", filled, timestamp=-1, current_leader_epoch=-3)
        exchange.ask("no topics", ListOffsetsRequest(-1, 0, []), version)
        latest = [ListOffsetsPartition(timestamp=-1), ListOffsetsPartition(partition_index=1, timestamp=-1)]
        exchange.ask("two partitions", ListOffsetsRequest(-1, 0, [ListOffsetsTopic(filled, latest)]), version)
        twice = ListOffsetsTopic(filled, [ListOffsetsPartition(timestamp=-1), ListOffsetsPartition(timestamp=-2)])
        exchange.ask("a partition twice", ListOffsetsRequest(-1, 0, [twice]), version)
        empty, first, second = (ListOffsetsTopic(filled, part) for part in ([], latest[:1], latest[1:]))
        exchange.ask("a topic without partitions", ListOffsetsRequest(-1, 0, [empty]), version)
        exchange.ask("a topic twice", ListOffsetsRequest(-1, 0, [first, second]), version)
        exchange.ask("a topic twice, with one partition", ListOffsetsRequest(-1, 0, [first, first]), version)


def marked_partitions(exchange: Exchange) -> tuple[str, str]:
    """Two topics with a record, and after it a marker, far younger; in the second one the record is deleted."""
    names = exchange.create_topic("marked"), exchange.create_topic("cut")
    for name in names:
        producer = Transactional(exchange, f"marks-{name}", 0)
        producer.begin(name)
        records = batch(2, producer_id=producer.producer_id, epoch=producer.epoch, sequence=0, transactional=True)
        data = TopicProduceData(name=name, partition_data=[PartitionProduceData(0, memoryview(records))])
        exchange.call(ProduceRequest(producer.transactional_id, -1, 5_000, [data]), 9)
        producer.end(committed=True)
    deleted = DeleteRecordsTopic(names[1], [DeleteRecordsPartition(0, 2)])
    exchange.call(DeleteRecordsRequest([deleted], 5_000), 2)
    return names


def open_transaction(exchange: Exchange) -> str:
    """A partition with two batches, the second in a transaction that stays open."""
    name = exchange.create_topic("open")
    exchange.fill(name, batch(2))
    own = exchange.name("left-open")
    exchange.find_coordinator(own, TRANSACTION)
    identity = exchange.call(InitProducerIdRequest(own, 600_000), 4)
    records = batch(
        2,
        producer_id=identity.producer_id,
        epoch=0,
        sequence=0,
        transactional=True,
        timestamp_ms=FIRST_TIMESTAMP_MS + 3,
    )
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, memoryview(records))])]
    exchange.call(ProduceRequest(own, -1, 5_000, data), 12)
    return name
