"""Topics whose settings change while batches of all kinds are written to them, read back, looked up and cut off.

What was read is shown twice: by the headers of its batches, and by the checksum of what its records say.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from fencepost.protocol.compression import Codec, decompress
from fencepost.protocol.messages.alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fencepost.protocol.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import (
    HEADER_BYTES,
    Record,
    build_batch,
    iterate_batches,
    read_header,
)
from fencepost.protocol.varints import read_varint, read_varlong
from tests.differences.exchange import FIRST_TIMESTAMP_MS, SET, Exchange
from tests.differences.plain import A_DAY_MS
from tests.differences.random_sequences.converted_logs import ConvertedLog, checksum_of
from tests.differences.random_sequences.steps import SlicedWork
from tests.differences.sequences.produce import changed, damaged_batches

STEPS_COUNT: Final = 70
BASES: Final = ("a", "b")
CONVERTED: Final = "converted"
BY_ID: Final = 13  # Produce and Fetch alike
NO_SUCH_ID: Final = bytes(15) + b"\x63"
FIRST_VERSION_WITH_SESSIONS: Final = 7
NO_SESSION: Final = -1
WAIT_MS: Final = 20
NOT_SAID: Final = ("session_id", "forgotten_topics_data")
TOPIC: Final = 2
DELETE: Final = 1
LENGTH_BYTES: Final = range(8, 12)
CODEC_BYTES: Final = range(21, 23)
HOUR_MS: Final = 3_600_000
LATEST: Final = -1
LARGEST_TIMESTAMP: Final = -3
MARKS: Final = (LATEST, -2, LARGEST_TIMESTAMP, -4, -5, -6, -7)
TIMESTAMPS: Final = (1, FIRST_TIMESTAMP_MS - 40 * A_DAY_MS, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 9 * A_DAY_MS)
LEFT_OUT: Final = frozenset(
    {
        # Declared: differing is better.
        "a batch and half of one",
        "a batch and one byte",
        "an unknown codec",
        "a length of 2 GiB",
        "a max timestamp that is too small",
        "a value of a length of -4",
        "an offset twice, gzip",
    }
)
DAMAGED: Final = [(what, records) for what, records in damaged_batches() if what not in LEFT_OUT]
# Of such a one Kafka gives all records the time of the last when it compresses them anew, and leaves the times else.
DAMAGED_TO_BE_CONVERTED: Final = [one for one in DAMAGED if one[0] != "append time by the client"]
# What a broker compresses has other sizes on both, by which other batches fit into a fetch.
SETTINGS: Final[dict[str, tuple[str, ...]]] = {
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "uncompressed"),
    "max.message.bytes": ("100", "150", "400", "2000", "1048588"),
    "internal.segment.bytes": ("300", "1000", "5000", "50000"),
    "segment.bytes": ("1048576", "2000000"),
    "segment.ms": (str(HOUR_MS), str(10 * A_DAY_MS)),
    "index.interval.bytes": ("0", "100", "4096"),
    "cleanup.policy": ("delete", "compact", "compact,delete", "delete,compact"),
    "min.insync.replicas": ("1", "2"),
    "message.timestamp.before.max.ms": ("1000", "9223372036854775807"),
    "message.timestamp.after.max.ms": ("0", str(HOUR_MS), "9223372036854775807"),
}
NEVER_CLEANED: Final = {"retention_ms": "-1", "min_cleanable_dirty_ratio": "1"}


@dataclass
class Topic:
    base: str
    name: str
    topic_id: bytes
    ends: list[int]
    """By partition: the log end offset, as replies have shown it."""

    timed: set[int] = field(default_factory=set)
    """The partitions that have a record with a time."""

    cut: set[int] = field(default_factory=set)
    """Those whose first records were deleted: what is found there by time is declared to be another."""

    @property
    def partitions(self) -> range:
        return range(len(self.ends))


@dataclass
class Session:
    """The fetch session that is open. epoch: the next that it expects."""

    session_id: int
    epoch: int
    version: int


@dataclass
class Producer:
    name: str
    producer_id: int
    epoch: int = 0
    next_sequences: dict[tuple[str, int, int], int] = field(default_factory=dict)


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        self.created = 0
        self.topics = [self.new_topic(base) for base in BASES]
        self.converted = ConvertedLog(exchange, random, self.steps)
        self.producers: list[Producer] = []
        self.session: Session | None = None

    def run(self) -> None:
        actions = (
            (30, self.produce),
            (22, self.fetch),
            (14, self.fetch_in_session),
            (10, self.list_offsets),
            (8, self.alter),
            (4, self.initialize),
            (4, self.delete_records),
            (3, self.ends_of_epochs),
            (3, self.describe_producers),
            (2, self.describe_directories),
            (1, self.replace_topic),
            (10, self.write_to_be_converted),
            (6, self.converted.read),
            (3, self.converted.list_offsets),
            (3, self.converted.alter),
        )
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        self.converted.read()
        for topic in self.topics:
            wanted = [FetchPartition(index, fetch_offset=0, partition_max_bytes=1 << 22) for index in topic.partitions]
            self.read(f"all of {topic.base}", [(topic, wanted)], 12)
        self.end_session()

    def new_topic(self, base: str) -> Topic:
        """The same name each time, so that what is said about an earlier one can be taken for the new one."""
        settings = dict(NEVER_CLEANED)
        for name, values in SETTINGS.items():
            if self.steps.happens(0.2):
                settings[name.replace(".", "_")] = self.random.choice(values)
        count = self.random.randint(1, 3)
        self.exchange.note(self.steps.situation(f"{base} is made"), 0, [count, settings])
        name = self.exchange.create_topic(base, partitions=count, version=None, **settings)
        self.exchange.settle()
        self.created += 1
        return Topic(f"{base}{self.created}", name, self.exchange.topic_id(name), [0] * count)

    # What changes

    def alter(self) -> None:
        topic = self.random.choice(self.topics)
        name = self.random.choice(list(SETTINGS))
        operation = DELETE if self.steps.happens(0.3) else SET
        value = None if operation == DELETE else self.random.choice(SETTINGS[name])
        if self.steps.happens(0.05):
            value = "nonsense"
        change = IncrementalAlterableConfig(name, operation, value)
        request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsResource(TOPIC, topic.name, [change])])
        version = self.steps.version(IncrementalAlterConfigsRequest)
        self.steps.ask(f"{name} of {topic.base} becomes {value}", request, version)
        self.exchange.settle()

    def replace_topic(self) -> None:
        place = self.random.randrange(len(self.topics))
        topic = self.topics[place]
        states = [DeleteTopicState(name=topic.name)]
        self.steps.ask(f"{topic.base} is deleted", DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
        self.exchange.settle()
        if self.steps.happens(0.5):
            self.fetch_in_session()
        self.topics[place] = self.new_topic(BASES[place])

    def initialize(self) -> None:
        name = f"producer {len(self.producers)}"
        version = self.steps.version(InitProducerIdRequest)
        reply = self.steps.ask(f"{name} begins", InitProducerIdRequest(None, 60_000), version)
        self.producers.append(Producer(name, reply.producer_id))

    def delete_records(self) -> None:
        topic = self.random.choice(self.topics)
        index = self.random.choice(topic.partitions)
        end = topic.ends[index]
        offset = self.random.choice((-1, end + 1)) if self.steps.happens(0.2) else self.random.randint(0, end)
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(index, offset)])], 5_000)
        version = self.steps.version(DeleteRecordsRequest)
        topic.cut.add(index)
        self.steps.ask(f"records of {topic.base}-{index} are deleted before {offset}", request, version)

    # What is written

    def produce(self) -> None:
        version = self.steps.version(ProduceRequest, lowest=3)
        acks = self.random.choices((-1, 1, 2), (60, 35, 5))[0]
        topics, words = [], []
        written: list[tuple[Topic, int, int, bool, Producer | None, int]] = []
        chosen = self.some(self.topics) if self.steps.happens(0.3) else [self.random.choice(self.topics)]
        for topic in chosen:
            data = []
            for index in self.some(topic.partitions):
                records, said, count, is_timed, producer, following = self.batch(topic, index)
                data.append(PartitionProduceData(index, memoryview(records)))
                words.append(f"{said} to {topic.base}-{index}")
                written.append((topic, index, count, is_timed, producer, following))
            if self.steps.happens(0.03):
                index = len(topic.ends)
                data.append(PartitionProduceData(index, memoryview(self.plain_batch()[0])))
                words.append(f"something to {topic.base}-{index}")
            topics.append(self.data_of(topic, data, version))
        if self.steps.happens(0.03):
            data = [PartitionProduceData(0, memoryview(self.plain_batch()[0]))]
            topics.append(TopicProduceData(name="nothing", topic_id=NO_SUCH_ID, partition_data=data))
            words.append("something to nothing")
        request = ProduceRequest(None, acks, 5_000, topics)
        reply = self.steps.ask(f"write {'; '.join(words)}; acks {acks}", request, version)
        if reply is None:
            return
        errors = {
            (one.name or one.topic_id, answer.index): answer.error_code
            for one in reply.responses
            for answer in one.partition_responses
        }
        for topic, index, count, is_timed, producer, following in written:
            if errors.get((topic.topic_id if version >= BY_ID else topic.name, index)):
                continue
            topic.ends[index] += count
            if is_timed:
                topic.timed.add(index)
            if producer is not None:
                place = (topic.base, index, producer.epoch)
                producer.next_sequences[place] = max(following, producer.next_sequences.get(place, 0))

    @staticmethod
    def data_of(topic: Topic, data: list[PartitionProduceData], version: int) -> TopicProduceData:
        if version < BY_ID:
            return TopicProduceData(name=topic.name, partition_data=data)
        return TopicProduceData(topic_id=topic.topic_id, partition_data=data)

    def batch(self, topic: Topic, index: int) -> tuple[bytes, str, int, bool, Producer | None, int]:
        """Its bytes, its name, its record count, whether it has times; its producer, and the next sequence."""
        if self.steps.happens(0.08):
            what, records = self.random.choice(DAMAGED)
            return records, what, 3, True, None, 0
        producer = None
        options: dict[str, Any] = {}
        said = ""
        if self.producers and self.steps.happens(0.4):
            producer = self.random.choice(self.producers)
            if self.steps.happens(0.05):
                producer.epoch += 1
            epoch = producer.epoch - (self.steps.happens(0.05) and producer.epoch > 0)
            expected = producer.next_sequences.get((topic.base, index, epoch), 0)
            sequence = expected
            if self.steps.happens(0.15):
                sequence = max(0, expected + self.random.choice((-3, -2, -1, 1, 2)))
            options = {"producer_id": producer.producer_id, "producer_epoch": epoch, "base_sequence": sequence}
            said = f"{producer.name} in epoch {epoch} from {sequence}: "
        records, what, count, is_timed = self.plain_batch(index not in topic.timed, **options)
        said += what
        following = options.get("base_sequence", 0) + count
        if self.steps.happens(0.06):
            position = self.random.choice([place for place in range(len(records)) if place not in LENGTH_BYTES])
            value = self.random.randrange(256)
            mends_crc = position not in CODEC_BYTES and self.steps.happens(0.7)
            damaged = changed(position, bytes([value]), whole=records, mends_crc=mends_crc)
            if mends_crc and differs_as_declared(damaged):
                mends_crc = False
                damaged = changed(position, bytes([value]), whole=records, mends_crc=False)
            records = damaged
            said += f", byte {position} is {value}{', crc mended' if mends_crc else ''}"
        if producer is not None and options["producer_epoch"] != producer.epoch:
            producer = None
        return records, said, count, is_timed, producer, following

    def plain_batch(self, needs_time: bool = True, **options: Any) -> tuple[bytes, str, int, bool]:
        count = self.random.choices((1, 2, 3, 5, 20, 100), (30, 30, 15, 10, 10, 5))[0]
        size = self.random.choices((0, 1, 10, 100, 1_000, 30_000), (10, 20, 40, 20, 8, 2))[0]
        codec = self.random.choice(list(Codec)) if self.steps.happens(0.4) else Codec.NONE
        keys = self.random.choices(("all", "some", "no"), (70, 10, 20))[0]
        times = self.random.choices(("steady", "mixed", "now", "none", "future"), (60, 25, 5, 5, 5))[0]
        if times == "none" and needs_time:
            times = "steady"
        first_ms = self.random.choice(TIMESTAMPS)
        now_ms = int(time.time() * 1000)
        records = []
        for index in range(count):
            has_key = keys == "all" or (keys == "some" and self.steps.happens(0.8))
            key = self.random.randbytes(self.random.randint(0, 3)) if has_key else None
            value = None if self.steps.happens(0.1) else self.random.randbytes(1 + size // 4) * 4
            headers = (("header", b"x"),) if self.steps.happens(0.2) else ()
            timestamp_ms = {
                "steady": first_ms + index,
                "mixed": self.random.choice(TIMESTAMPS) + self.random.randrange(1_000),
                "now": now_ms,
                "none": -1,
                "future": FIRST_TIMESTAMP_MS + 10_000 * A_DAY_MS,
            }[times]
            records.append(Record(index, timestamp_ms, key, value and value[:size], headers))
        batch = bytes(build_batch(records, codec=codec, **options))
        when = f"{times} times from {first_ms}" if times == "steady" else f"{times} times"
        return batch, f"{count} {codec.name.lower()} with {keys} keys and {when}", count, times != "none"

    def write_to_be_converted(self) -> None:
        producer = self.random.choice(self.producers) if self.producers and self.steps.happens(0.4) else None
        options: dict[str, Any] = {}
        said = ""
        if producer is not None:
            place = (CONVERTED, 0, producer.epoch)
            sequence = producer.next_sequences.get(place, 0)
            if self.steps.happens(0.15):
                sequence = max(0, sequence + self.random.choice((-2, -1, 1)))
            options = {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.epoch,
                "base_sequence": sequence,
            }
            said = f"{producer.name} in epoch {producer.epoch} from {sequence}: "
        records, what, count, has_times = self.plain_batch(**options)
        if producer is None and self.steps.happens(0.15):
            what, records = self.random.choice(DAMAGED_TO_BE_CONVERTED)
            count = 3
        if self.converted.write(records, said + what, count, has_times=has_times) and producer is not None:
            following = options["base_sequence"] + count
            producer.next_sequences[place] = max(following, producer.next_sequences.get(place, 0))

    # What is read

    def fetch(self) -> None:
        wanted = [(topic, self.positions(topic)) for topic in self.some(self.topics)]
        version = self.steps.version(FetchRequest)
        self.read(self.described(wanted), wanted, version, **self.limits())

    def positions(self, topic: Topic) -> list[FetchPartition]:
        found = []
        for index in self.some(topic.partitions):
            end = topic.ends[index]
            offset = self.random.choice((0, end, self.random.randint(0, end), self.random.randint(0, end)))
            if self.steps.happens(0.06):
                offset = self.random.choice((-1, end + 1, end + 7))
            partition = FetchPartition(index, fetch_offset=offset, partition_max_bytes=self.size(0.5))
            if self.steps.happens(0.1):
                partition.current_leader_epoch = self.random.choice((0, 0, 0, 1))
            if self.steps.happens(0.1):
                partition.last_fetched_epoch = self.random.choice((0, 0, 0, 1))
            found.append(partition)
        self.random.shuffle(found)
        if self.steps.happens(0.03):
            found.append(FetchPartition(len(topic.ends), fetch_offset=0, partition_max_bytes=1_000))
        return found

    def size(self, small: float) -> int:
        if self.steps.happens(small):
            return self.random.choice((0, 1, 80, 200, 300, 700, 1_500, self.random.randrange(3_000)))
        return 1 << 20

    def limits(self) -> dict[str, Any]:
        values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": self.size(0.3)}
        if self.steps.happens(0.15):
            values |= {"max_wait_ms": WAIT_MS, "min_bytes": self.random.choice((1, 100, 1_000_000))}
        values["isolation_level"] = self.random.randint(0, 1)
        return values

    @staticmethod
    def described(wanted: list[tuple[Topic, list[FetchPartition]]]) -> str:
        return ", ".join(
            f"{topic.base}-{one.partition} from {one.fetch_offset} up to {one.partition_max_bytes} bytes"
            for topic, partitions in wanted
            for one in partitions
        )

    def read(
        self, description: str, wanted: list[tuple[Topic, list[FetchPartition]]], version: int, **fields: Any
    ) -> Any:
        topics = [self.wanted_of(topic, partitions, version) for topic, partitions in wanted]
        request = FetchRequest(topics=topics, **fields)
        others = ", ".join(f"{name} {value}" for name, value in fields.items() if name not in NOT_SAID)
        situation = self.steps.situation(f"fetch {description}, {others}")
        reply = self.exchange.ask(situation, request, version)
        if reply is not None:
            contents = [
                [one.partition_index, list(contents_of(one.records))]
                for topic in reply.responses
                for one in topic.partitions
            ]
            self.exchange.note(f"{situation}: its records", version, sorted(contents))
        return reply

    @staticmethod
    def wanted_of(topic: Topic, partitions: list[FetchPartition], version: int) -> FetchTopic:
        if version < BY_ID:
            return FetchTopic(topic=topic.name, partitions=partitions)
        return FetchTopic(topic_id=topic.topic_id, partitions=partitions)

    def fetch_in_session(self) -> None:
        """Go on with the session that is open, mostly as a client would; without one, begin one."""
        if self.session is None or self.steps.happens(0.1):
            self.end_session()
            version = self.steps.version(FetchRequest, lowest=FIRST_VERSION_WITH_SESSIONS)
            wanted = [(topic, self.positions(topic)) for topic in self.some(self.topics)]
            description = f"as a new session: {self.described(wanted)}"
            reply = self.read(description, wanted, version, session_epoch=0, **self.limits())
            if reply is not None and reply.session_id:
                self.session = Session(reply.session_id, 1, version)
            return
        session = self.session
        wanted = [(topic, self.positions(topic)) for topic in self.some(self.topics)] if self.steps.happens(0.6) else []
        forgotten, words = [], ""
        if self.steps.happens(0.25):
            for topic in self.some(self.topics):
                indexes = self.some(range(len(topic.ends) + self.steps.happens(0.1)))
                words += f", {topic.base}-{indexes} are forgotten"
                identity = {"topic": topic.name} if session.version < BY_ID else {"topic_id": topic.topic_id}
                forgotten.append(ForgottenTopic(partitions=indexes, **identity))
        epoch = session.epoch
        if self.steps.happens(0.1):
            epoch += self.random.choice((-1, 1, 5))
        description = f"in the session: {self.described(wanted)}{words}"
        reply = self.read(
            description,
            wanted,
            session.version,
            session_id=session.session_id,
            session_epoch=epoch,
            forgotten_topics_data=forgotten,
            **self.limits(),
        )
        if reply is None or reply.error_code:
            return
        if epoch:
            session.epoch = epoch + 1
        else:
            self.session = Session(reply.session_id, 1, session.version) if reply.session_id else None

    def end_session(self) -> None:
        """Brokers keep few of them."""
        if self.session is not None:
            request = FetchRequest(session_id=self.session.session_id, session_epoch=NO_SESSION)
            self.steps.ask("the end of the session", request, self.session.version)
            self.session = None

    # What can be looked up

    def list_offsets(self) -> None:
        topic = self.random.choice(self.topics)
        wanted, words = [], []
        for index in self.some(topic.partitions):
            timestamp = self.random.choice(MARKS)
            if self.steps.happens(0.5):
                timestamp = self.random.choice(TIMESTAMPS) + self.random.randint(-1, 1_001)
            if index in topic.cut:
                timestamp = self.random.choice(MARKS)
            if timestamp == LARGEST_TIMESTAMP and index not in topic.timed:
                timestamp = LATEST
            one = ListOffsetsPartition(index, timestamp=timestamp)
            if self.steps.happens(0.1):
                one.current_leader_epoch = self.random.choice((0, 0, 1))
            wanted.append(one)
            words.append(f"{index} at {timestamp}")
        request = ListOffsetsRequest(-1, self.random.randint(0, 1), [ListOffsetsTopic(topic.name, wanted)], 1_000)
        version = self.steps.version(ListOffsetsRequest)
        self.steps.ask(f"offsets of {topic.base}: {', '.join(words)}", request, version)

    def ends_of_epochs(self) -> None:
        topics, words = [], []
        for topic in self.some(self.topics):
            wanted = []
            for index in self.some(topic.partitions):
                epoch, current = self.random.choice((0, 0, 0, 1, -1)), self.random.choice((-1, -1, 0, 1))
                wanted.append(OffsetForLeaderPartition(index, current_leader_epoch=current, leader_epoch=epoch))
                words.append(f"{topic.base}-{index} epoch {epoch} at {current}")
            topics.append(OffsetForLeaderTopic(topic.name, wanted))
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)
        version = self.steps.version(OffsetForLeaderEpochRequest)
        self.steps.ask(f"ends of epochs: {', '.join(words)}", request, version)

    def describe_producers(self) -> None:
        topics = [TopicRequest(topic.name, list(topic.partitions)) for topic in self.topics]
        self.steps.ask("describe the producers", DescribeProducersRequest(topics), 0)

    def describe_directories(self) -> None:
        # Segments before the beginning of a log are deleted when the broker finds the time.
        whole = [topic for topic in self.topics if not topic.cut]
        if not whole:
            return
        topic = self.random.choice(whole)
        request = DescribeLogDirsRequest([DescribableLogDirTopic(topic.name, list(topic.partitions))])
        self.steps.ask(f"sizes of {topic.base}", request, self.steps.version(DescribeLogDirsRequest))

    def some(self, choices: Any) -> list[Any]:
        return sorted(
            self.random.sample(choices, self.random.randint(1, len(choices))),
            key=lambda choice: choice if isinstance(choice, int) else choice.base,
        )


def differs_as_declared(batch: bytes) -> bool:
    """Whether a batch is one of those that only Kafka takes, or reads closely."""
    header = read_header(batch)
    times_ms = []
    position = 0
    try:
        content = bytes(decompress(header.codec, batch[HEADER_BYTES:]))
        for index in range(header.records_count):
            length, body = read_varint(content, position)
            if length < 0:
                return True
            distance_ms, cursor = read_varlong(content, body + 1)
            times_ms.append(header.base_timestamp_ms + distance_ms)
            offset, cursor = read_varint(content, cursor)
            if offset != index:
                return True
            for _ in ("key", "value"):
                size, cursor = read_varint(content, cursor)
                if size < -1:
                    return True
                cursor += max(size, 0)
            count, cursor = read_varint(content, cursor)
            for _ in range(count):
                size, cursor = read_varint(content, cursor)
                size, cursor = read_varint(content, cursor + size)
                if size < -1:
                    return True
                cursor += max(size, 0)
            position = body + length
    except (DecodeError, IndexError):
        return False  # what cannot be read to the end is taken by nobody
    return bool(times_ms) and max(times_ms) != header.max_timestamp_ms


def contents_of(records: memoryview | None) -> Iterator[str]:
    """One text for each whole batch: what its records say, and when, but for times of the run itself."""
    for batch in iterate_batches(records or b""):
        try:
            yield f"{batch.header.base_offset}: {checksum_of(batch):08x}"
        except DecodeError:
            yield f"{batch.header.base_offset}: not to be read"


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
