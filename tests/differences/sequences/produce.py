"""Produce and Fetch: batches that are taken and refused, what is read back, sessions, waits and limits."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from crc32c import crc32c

from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.schema import encode
from tests.differences.exchange import FIRST_TIMESTAMP_MS, Exchange, batch, raw_frame

NO_SUCH_ID = bytes(15) + b"\x63"
BY_ID = 13
FAR_FUTURE_MS = 4_000_000_000_000


def changed(position: int, content: bytes, *, whole: bytes | None = None, mends_crc: bool = True) -> bytes:
    """A batch in which some bytes are others, with the checksum made to fit or not."""
    damaged = bytearray(whole or batch(3))
    damaged[position : position + len(content)] = content
    if mends_crc:
        damaged[17:21] = struct.pack(">I", crc32c(bytes(damaged[21:])))
    return bytes(damaged)


def damaged_batches() -> Iterator[tuple[str, bytes]]:
    """Batches that a partition refuses, or has to think about."""
    yield "no bytes", b""
    yield "10 zero bytes", bytes(10)
    yield "less than a header", batch()[:60]
    yield "cut", batch()[:-5]
    yield "two batches", batch() + batch()
    yield "a batch and half of one", batch() + batch()[:40]
    yield "a batch and one byte", batch() + b"\0"
    yield "a wrong checksum", changed(70, b"\0\0", mends_crc=False)
    yield "magic 0", changed(16, b"\0")
    yield "magic 1", changed(16, b"\1")
    yield "magic 3", changed(16, b"\3")
    yield "a base offset of 5", changed(0, struct.pack(">q", 5))
    yield "a negative base offset", changed(0, struct.pack(">q", -5))
    yield "a length of 0", changed(8, struct.pack(">i", 0))
    yield "a negative length", changed(8, struct.pack(">i", -1))
    yield "a length of 2 GiB", changed(8, struct.pack(">i", 2**31 - 1))
    yield "a leader epoch of 7", changed(12, struct.pack(">i", 7))
    yield "a count that is too large", changed(57, struct.pack(">i", 4))
    yield "a count that is too small", changed(57, struct.pack(">i", 2))
    yield "a count of 0", changed(57, struct.pack(">i", 0))
    yield "a negative count", changed(57, struct.pack(">i", -3))
    yield "a last offset delta that is too large", changed(23, struct.pack(">i", 9))
    yield "a last offset delta that is too small", changed(23, struct.pack(">i", 1))
    yield "a negative last offset delta", changed(23, struct.pack(">i", -1))
    yield "a control batch", changed(21, b"\x00\x20")
    yield "a transactional batch without producer", changed(21, b"\x00\x10")
    yield "unused attributes", changed(21, b"\x7f\x80")
    yield "append time by the client", changed(21, b"\x00\x08")
    yield "an unknown codec", changed(21, b"\x00\x07")
    yield "gzip that is none", changed(21, b"\x00\x01")
    yield "snappy that is none", changed(21, b"\x00\x02")
    yield "lz4 that is none", changed(21, b"\x00\x03")
    yield "zstd that is none", changed(21, b"\x00\x04")
    yield "a record with attributes", changed(62, b"\x05")
    yield "a record that is longer than the batch", changed(61, b"\xff\xff\xff\xff\x0f")
    yield "a record of length 0", changed(61, b"\0")
    yield "a max timestamp that is too small", changed(35, struct.pack(">q", FIRST_TIMESTAMP_MS - 5))
    yield "a producer id without epoch", changed(43, struct.pack(">q", 90_000))
    yield "an epoch without producer id", changed(51, struct.pack(">h", 0))
    yield "a sequence without producer id", changed(53, struct.pack(">i", 0))
    yield "offsets that are not consecutive", batch_of(0, 2, 3)
    yield "an offset twice, gzip", batch_of(0, 0, 2, codec=Codec.GZIP)
    yield "a value of a length of -4", changed(69, b"\x07", whole=batch(1, value=None))


def batch_of(*offsets: int, codec: Codec = Codec.NONE) -> bytes:
    from fencepost.protocol.record_batch import Record, build_batch

    records = [Record(index, FIRST_TIMESTAMP_MS, b"k", b"v") for index in offsets]
    return bytes(build_batch(records, codec=codec))


def accepted_batches() -> Iterator[tuple[str, bytes]]:
    yield "a batch", batch()
    yield "one record", batch(1)
    yield "no key", batch(key=None)
    yield "no value", batch(value=None)
    yield "neither key nor value", batch(key=None, value=None)
    yield "gzip", batch(20, codec=Codec.GZIP)
    yield "snappy", batch(20, codec=Codec.SNAPPY)
    yield "lz4", batch(20, codec=Codec.LZ4)
    yield "zstd", batch(20, codec=Codec.ZSTD)
    yield "a negative timestamp", batch(timestamp_ms=-7)
    yield "timestamps of -1", batch(1, timestamp_ms=-1)
    yield "a timestamp in the far future", batch(timestamp_ms=FAR_FUTURE_MS)


class Producing:
    """Produce requests of one version to topics by name or, from version 13 on, by id."""

    def __init__(self, exchange: Exchange, version: int) -> None:
        self.exchange = exchange
        self.version = version

    def topic(self, name: str, *partitions: tuple[int, bytes | None]) -> TopicProduceData:
        """The id of a name that was never created is one that does not exist."""
        data = [
            PartitionProduceData(index, None if records is None else memoryview(records))
            for index, records in partitions
        ]
        if self.version < BY_ID:
            return TopicProduceData(name=name, partition_data=data)
        topic_id = NO_SUCH_ID if name in ("nothing", "a b", "") else self.exchange.topic_id(name)
        return TopicProduceData(topic_id=topic_id, partition_data=data)

    def request(self, *topics: TopicProduceData, acks: int = -1, transactional_id: str | None = None) -> ProduceRequest:
        return ProduceRequest(transactional_id, acks, 5_000, list(topics))

    def ask(self, situation: str, *topics: TopicProduceData, acks: int = -1) -> None:
        self.exchange.ask(situation, self.request(*topics, acks=acks), self.version)

    def ask_one(self, situation: str, name: str, records: bytes | None, *, partition: int = 0) -> None:
        self.ask(situation, self.topic(name, (partition, records)))


def run(exchange: Exchange) -> None:
    for version in exchange.versions(ProduceRequest, lowest=3):
        producing = Producing(exchange, version)
        taken_and_refused(producing)
        requests(producing)
    topics_with_rules(exchange)
    retired_versions(exchange)


def taken_and_refused(producing: Producing) -> None:
    refused = list(damaged_batches())
    name = producing.exchange.create_topic("written", partitions=1 + len(refused), version=producing.version)
    for situation, records in accepted_batches():
        producing.ask_one(situation, name, records)
    for partition, (situation, damaged) in enumerate(refused, start=1):
        producing.ask_one(f"damaged: {situation}", name, damaged, partition=partition)


def requests(producing: Producing) -> None:
    exchange, version = producing.exchange, producing.version
    name = exchange.create_topic("asked", partitions=3, version=version)
    other = exchange.create_topic("asked-too", version=version)
    topic = producing.topic
    producing.ask("no topics")
    producing.ask("a topic without partitions", topic(name))
    producing.ask("several partitions", topic(name, (2, batch()), (0, batch())), topic(other, (0, batch(3))))
    producing.ask("an unknown topic", topic("nothing", (0, batch())))
    producing.ask("an unknown partition", topic(name, (9, batch())))
    producing.ask("a negative partition", topic(name, (-1, batch())))
    producing.ask("one good, one unknown, one damaged", topic(name, (0, batch()), (7, batch()), (1, b"")))
    producing.ask("two topics, one unknown", topic(name, (0, batch())), topic("nothing", (0, batch())))
    producing.ask("acks of 1", topic(name, (0, batch())), acks=1)
    producing.ask("acks of 2", topic(name, (0, batch())), acks=2)
    producing.ask("acks of -2", topic(name, (0, batch())), acks=-2)
    producing.ask(
        "acks of 2, one good, one unknown, one damaged", topic(name, (0, batch()), (7, batch()), (1, b"")), acks=2
    )
    producing.ask("acks of 2, an unknown topic", topic("nothing", (0, batch())), acks=2)
    if version < BY_ID:
        producing.ask("an empty topic name", topic("", (0, batch())))
        producing.ask("a bad topic name", topic("a b", (0, batch())))
    silent = producing.request(topic(name, (0, batch())), acks=0)
    exchange.ask_for_silence("acks of 0", silent, version)
    silent = producing.request(topic(name, (0, b"x")), acks=0)
    exchange.ask_for_silence("acks of 0, refused", silent, version)
    silent = producing.request(topic("nothing", (0, batch())), acks=0)
    exchange.ask_for_silence("acks of 0, an unknown topic", silent, version)
    producing.ask_one("a large batch", name, batch(1, value=bytes(1_000_000)))
    producing.ask_one("a batch that is too large", name, batch(1, value=bytes(1_100_000)))
    producing.ask(
        "one batch that is too large and one that is not",
        topic(name, (0, batch(1, value=bytes(1_100_000))), (1, batch())),
    )
    producing.ask("a topic twice", topic(name, (0, batch())), topic(name, (1, batch())))
    producing.ask("a partition twice", topic(name, (0, batch()), (0, batch())))


def topics_with_rules(exchange: Exchange) -> None:
    producing = Producing(exchange, 12)

    def ask(situation: str, name: str, records: bytes) -> None:
        producing.ask_one(situation, name, records)

    compacted = exchange.create_topic("compacted", cleanup_policy="compact")
    ask("compacted: keys", compacted, batch())
    ask("compacted: no keys", compacted, batch(3, key=None))
    ask("compacted: no keys, gzip", compacted, batch(3, key=None, codec=Codec.GZIP))
    ask("compacted: an empty key", compacted, batch(key=b""))
    ask("compacted: a null value", compacted, batch(value=None))
    appended = exchange.create_topic("append-time", message_timestamp_type="LogAppendTime")
    ask("append time", appended, batch())
    ask("append time: gzip", appended, batch(5, codec=Codec.GZIP))
    ask("append time: a time in the far future", appended, batch(timestamp_ms=FAR_FUTURE_MS))
    ask("append time: given by the client", appended, changed(21, b"\x00\x08"))
    small = exchange.create_topic("small-messages", max_message_bytes="200")
    ask("small messages: small", small, batch(1))
    ask("small messages: large", small, batch(1, value=bytes(300)))
    ask("small messages: large before compression", small, batch(1, value=bytes(3_000), codec=Codec.GZIP))
    records = exchange.create_topic("small-records", max_decompressed_message_bytes="100")
    ask("small records: small, gzip", records, batch(20, codec=Codec.GZIP))
    ask("small records: 100 bytes, gzip", records, batch(1, value=bytes(81), codec=Codec.GZIP))
    ask("small records: 101 bytes", records, batch(1, value=bytes(82)))
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        ask(f"small records: 101 bytes, {codec.name}", records, batch(3, value=bytes(82), codec=codec))
    recompressed = exchange.create_topic(
        "small-records-gzip", max_decompressed_message_bytes="100", compression_type="gzip"
    )
    ask("small records: 101 bytes, to be compressed", recompressed, batch(1, value=bytes(82)))
    ask("small records: 101 bytes, to be recompressed", recompressed, batch(1, value=bytes(82), codec=Codec.ZSTD))
    small_and_keyed = exchange.create_topic(
        "small-records-compacted", max_decompressed_message_bytes="100", cleanup_policy="compact"
    )
    keyless = batch(2, key=None, value=bytes(85), codec=Codec.GZIP)
    ask("small records: 101 bytes, and without a key", small_and_keyed, keyless)
    timely = exchange.create_topic(
        "timely", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000"
    )
    ask("timely: too old", timely, batch(3))
    ask("timely: too old, gzip", timely, batch(3, codec=Codec.GZIP))
    ask("timely: too new", timely, batch(3, timestamp_ms=FAR_FUTURE_MS))
    ask("timely: without time", timely, batch(1, timestamp_ms=-1))
    ask("timely: 200 that are too old", timely, batch(200))
    for wanted in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        name = exchange.create_topic(f"compressed-{wanted}", compression_type=wanted)
        ask(f"compression {wanted}: plain", name, batch(20))
        ask(f"compression {wanted}: gzip", name, batch(20, codec=Codec.GZIP))
        ask(f"compression {wanted}: refused", name, changed(57, struct.pack(">i", 4)))
    refused = exchange.create_topic("replicas", min_insync_replicas="2")
    ask("too few replicas", refused, batch())
    producing.ask("too few replicas, acks of 1", producing.topic(refused, (0, batch())), acks=1)


def retired_versions(exchange: Exchange) -> None:
    request = ProduceRequest(None, -1, 5_000, [])
    body = bytes(encode(request, 3))[2:]
    for version in (0, 1, 2):
        exchange.ask_bytes("a version that is shown but not served", raw_frame(0, version, body), version=version)
    exchange.call(ProduceRequest(None, -1, 5_000, []), 9, retry=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))
