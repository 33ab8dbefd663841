"""Producers of a few transactional ids that fence each other, lag behind, repeat themselves, and come too late.

They write to two topics, one of which is deleted and made anew under them, beside others that write without
transactions, and commit offsets of a group that nobody is in and of one that has a member. What they leave behind is
looked at all the time: batches, markers, aborted lists, stable offsets, states (`TransactionViews`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S, TRANSACTION, Exchange, batch
from tests.differences.random_sequences.steps import SlicedWork
from tests.differences.random_sequences.transaction_views import BY_ID, PARTITIONS_COUNT, Topic, TransactionViews, World

STEPS_COUNT: Final = 90
KEPT, REPLACED = "data", "other"
MEMBER: Final = "member"
REBALANCE_TIMEOUT_MS: Final = 300_000
IDS: Final = ("a", "b")
TIMEOUT_MS: Final = 600_000  # far longer than a run
TIMEOUTS_MS: Final = (TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS, TIMEOUT_MS - 1, 0, -1, 900_000, 900_001)
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
KEPT_IDENTITIES_COUNT: Final = 4
FIRST_VERSION_WITH_IDENTITY: Final = 3  # of InitProducerId
FIRST_PRODUCE_OF_VERSION_2: Final = 12
FIRST_END_OF_VERSION_2: Final = 5
FIRST_OFFSETS_OF_VERSION_2: Final = 5
FIRST_OFFSETS_WITH_EPOCH: Final = 2  # of TxnOffsetCommit, as the next
FIRST_OFFSETS_WITH_MEMBER: Final = 3
FIRST_COMMIT_BY_ID: Final = 10
FIRST_MARKERS_WITH_VERSION: Final = 2
SETTINGS: Final = (
    ("internal_segment_bytes", "300"),
    ("message_timestamp_type", "LogAppendTime"),
    ("cleanup_policy", "compact"),
)
SETTLED: Final = frozenset({"Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "Dead", ""})


Place = tuple[int, int, bytes, int]
"""Producer id, epoch, topic id, partition: where sequences are counted."""


@dataclass(frozen=True)
class Identity:
    """The identity that a producer got; `name` is for descriptions."""

    base: str
    transactional_id: str
    producer_id: int
    epoch: int
    name: str
    is_new: bool = False
    """Whether the request for it had no earlier identity."""


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = SlicedWork(exchange, random)
        self.exchange = exchange
        self.random = random
        # A client keeps its version; now and then it returns with another one.
        self.is_version_2 = {base: self.steps.happens(0.5) for base in IDS}
        self.identities: list[Identity] = []
        self.next_sequences: dict[Place, int] = {}
        # Where batches of the open transaction began and how many records they had; and where those began whose
        # transaction may have ended.
        self.open_batches: dict[Place, dict[int, int]] = {}
        self.ended_sequences: dict[Place, set[int]] = {}
        topics = {base: self.new_topic(base) for base in (KEPT, REPLACED)}
        groups = {"group": exchange.name("group"), "group with a member": exchange.name("group-with-a-member")}
        self.world = World(topics, [exchange.name(base) for base in IDS], groups)
        self.views = TransactionViews(exchange, random, self.steps, self.world)
        for group in groups.values():
            exchange.find_coordinator(group, GROUP)
        for transactional_id in self.world.ids:
            exchange.find_coordinator(transactional_id, TRANSACTION)
        # In Kafka an unknown group exists as soon as a client has tried to commit for it.
        committed = OffsetCommitRequestTopic(topics[KEPT].name, partitions=[OffsetCommitRequestPartition(0, 1)])
        exchange.call(OffsetCommitRequest(groups["group"], topics=[committed]), 8)
        self.member_epoch = self.join(groups["group with a member"], topics[KEPT].name)

    def run(self) -> None:
        for base in IDS:
            self.initialize(base)
        actions = (
            (3, self.initialize_any),
            (4, self.add_partitions),
            (20, self.produce),
            (10, self.end),
            (2, self.mark),
            (1, self.delete_records),
            (4, self.add_offsets),
            (7, self.commit_offsets),
            (2, self.commit_offsets_at_once),
            (1, self.delete_offsets),
            (4, self.produce_without_transaction),
            (2, self.replace_topic),
            (6, self.views.fetch),
            (4, self.views.list_offsets),
            (1, self.views.ends_of_epochs),
            (4, self.views.fetch_offsets),
            (3, self.views.describe),
            (2, self.views.list_transactions),
            (3, self.views.describe_producers),
        )
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        for topic in self.world.topics.values():
            for isolation_level in (0, 1):
                for partition in range(PARTITIONS_COUNT):
                    self.views.fetch_from(topic, partition, 0, isolation_level, 12)
        self.views.fetch_offsets()

    # What there is

    def new_topic(self, base: str) -> Topic:
        settings = {"min_cleanable_dirty_ratio": "1"}  # nothing is compacted while the sequence runs
        settings |= {name: value for name, value in SETTINGS if self.steps.happens(0.2)}
        self.exchange.note(self.steps.situation(f"{base} is made"), 0, settings)
        name = self.exchange.create_topic(base, partitions=PARTITIONS_COUNT, version=None, **settings)
        self.exchange.settle()
        return Topic(base, name, self.exchange.topic_id(name))

    def replace_topic(self) -> None:
        """Delete the topic, or make it anew where it is deleted."""
        topic = self.world.topics[REPLACED]
        if topic.is_there:
            states = [DeleteTopicState(name=topic.name)]
            self.steps.ask(f"{REPLACED} is deleted", DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6)
            self.exchange.settle()
            topic.is_there = False
        if not topic.is_there and self.steps.happens(0.6):
            self.world.topics[REPLACED] = self.new_topic(REPLACED)

    def join(self, group: str, topic: str) -> int:
        """The epoch of the one member of a group of the consumer protocol."""
        joining = ConsumerGroupHeartbeatRequest(
            group, MEMBER, 0, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, subscribed_topic_names=[topic]
        )
        joining.topic_partitions = []
        epoch: int = self.exchange.call(joining, 1).member_epoch
        return epoch

    # Producers that send requests

    def identity(self, *, may_be_mixed: bool = True) -> Identity:
        """Mostly the latest of one of the ids, now and then one that may be over, or is mixed up with the other.

        may_be_mixed: not where Kafka lets it into the other's transaction (`producer-ids-of-others`).
        """
        base = self.random.choice(IDS)
        own = [identity for identity in self.identities if identity.base == base]
        if may_be_mixed and self.steps.happens(0.03):
            other = self.random.choice(self.identities)
            name = f"{base} with the producer of {other.name}"
            return Identity(base, self.exchange.name(base), other.producer_id, other.epoch, name)
        return own[-1] if self.steps.happens(0.85) else self.random.choice(own[-KEPT_IDENTITIES_COUNT:])

    def is_of_version_2(self, identity: Identity) -> bool:
        return self.is_version_2[identity.base] ^ self.steps.happens(0.04)

    def take_in(self, base: str, producer_id: int, epoch: int, *, is_new: bool = False) -> None:
        name = f"{base}#{len(self.identities)}"
        self.identities.append(Identity(base, self.exchange.name(base), producer_id, epoch, name, is_new))
        self.world.producer_ids.append(producer_id)

    # What they ask

    def initialize_any(self) -> None:
        self.initialize(self.random.choice(IDS))

    def initialize(self, base: str) -> None:
        own = [identity for identity in self.identities if identity.base == base]
        request = InitProducerIdRequest(self.exchange.name(base), TIMEOUT_MS)
        what = "anew"
        version = self.steps.version(InitProducerIdRequest)
        if own:
            request.transaction_timeout_ms = self.random.choice(TIMEOUTS_MS)
            what += f" with {request.transaction_timeout_ms} ms"
        if own and version >= FIRST_VERSION_WITH_IDENTITY and self.steps.happens(0.5):
            identity = own[-1] if self.steps.happens(0.7) else self.random.choice(own[-KEPT_IDENTITIES_COUNT:])
            request.producer_id, request.producer_epoch = identity.producer_id, identity.epoch
            what += f" as {identity.name}"
            if self.steps.happens(0.1):
                epoch = self.random.choice((-1, identity.epoch + 1, identity.epoch - 1))
                request.producer_epoch = max(epoch, -1)
                what += f" in epoch {request.producer_epoch}"
            elif self.steps.happens(0.05):
                request.producer_id = -1
                what += " without producer id"
        if request.producer_id >= 0 and self.is_zombie_of_open_transaction(base, request):
            # Kafka lets a producer that it fences abort its successor's transaction: docs/transactions.md.
            return
        reply = self.steps.ask(f"initialize {base} {what}", request, version, retry=BUSY)
        self.may_have_ended()
        if reply is not None and not reply.error_code:
            self.take_in(base, reply.producer_id, reply.producer_epoch, is_new=request.producer_id < 0)

    def is_zombie_of_open_transaction(self, base: str, request: InitProducerIdRequest) -> bool:
        described = self.exchange.call(DescribeTransactionsRequest([self.exchange.name(base)]), 0)
        state = described.transaction_states[0]
        is_current = (state.producer_id, state.producer_epoch) == (request.producer_id, request.producer_epoch)
        return state.transaction_state == "Ongoing" and not is_current

    def may_have_ended(self) -> None:
        """Whatever was open may be over: a batch that comes again is for Kafka still the one that it was."""
        for place, batches in self.open_batches.items():
            self.ended_sequences.setdefault(place, set()).update(batches)
        self.open_batches.clear()

    def add_partitions(self) -> None:
        partitions = self.views.some_partitions()
        if self.steps.happens(0.1):
            partitions.append(PARTITIONS_COUNT)
        self.add(self.identity(), self.some_topics(), partitions)

    def add(self, identity: Identity, topics: list[Topic], partitions: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic.name, partitions) for topic in topics],
        )
        version = self.steps.version(AddPartitionsToTxnRequest, highest=3)
        words = " and ".join(f"{topic.base}-{partitions}" for topic in topics)
        self.steps.ask(f"{identity.name} adds {words}", request, version, retry=BUSY)

    def some_topics(self) -> list[Topic]:
        topics = list(self.world.topics.values())
        return self.random.choices(([topics[0]], [topics[1]], topics), (55, 20, 25))[0]

    def produce(self) -> None:
        identity = self.identity(may_be_mixed=False)
        is_version_2 = self.is_of_version_2(identity)
        version = (
            self.steps.version(ProduceRequest, lowest=FIRST_PRODUCE_OF_VERSION_2)
            if is_version_2
            else self.steps.version(ProduceRequest, lowest=3, highest=FIRST_PRODUCE_OF_VERSION_2 - 1)
        )
        topics = self.some_topics()
        partitions = self.views.some_partitions()
        if not is_version_2 and self.steps.happens(0.5):
            self.add(identity, topics, partitions)
        data, words = [], []
        ends: dict[tuple[bytes, int], tuple[Topic, int]] = {}
        firsts: dict[tuple[bytes, int], int] = {}
        for topic in topics:
            batches = []
            for partition in partitions:
                records, said, first, end = self.batch_of(identity, topic, partition)
                firsts[topic.topic_id, partition] = first
                batches.append(PartitionProduceData(partition, memoryview(records)))
                words.append(f"{said} to {topic.base}-{partition}")
                ends[topic.topic_id, partition] = topic, end
            data.append(self.data_of(topic, batches, version))
        transactional_id: str | None = identity.transactional_id
        if self.steps.happens(0.03):
            transactional_id = None
            words.append("named nobody")
        request = ProduceRequest(transactional_id, self.random.choice((-1, -1, 1)), 5_000, data)
        reply = self.steps.ask(f"{identity.name} writes {', '.join(words)}", request, version, retry=BUSY)
        for topic, index, base_offset in self.appended(reply, topics):
            place = (identity.producer_id, identity.epoch, topic.topic_id, index)
            end = ends[topic.topic_id, index][1]
            self.next_sequences[place] = max(self.next_sequences.get(place, 0), end)
            first = firsts[topic.topic_id, index]
            self.open_batches.setdefault(place, {})[first] = end - first
            topic.base_offsets.setdefault(index, []).append(base_offset)

    def batch_of(self, identity: Identity, topic: Topic, partition: int) -> tuple[bytes, str, int, int]:
        """Its bytes, what to call it, its first sequence and the one behind it."""
        place = (identity.producer_id, identity.epoch, topic.topic_id, partition)
        expected = self.next_sequences.get(place, 0)
        sequence = expected
        if self.steps.happens(0.12):
            sequence = max(0, expected + self.random.choice((-3, -2, -1, 1, 2)))
        elif self.steps.happens(0.03):
            sequence = 0
        if sequence in self.ended_sequences.get(place, ()):
            sequence = expected  # Kafka takes it for the batch of an ended transaction: docs/transactions.md
        count = self.random.randint(1, 3)
        if place in self.open_batches and self.steps.happens(0.15):
            sequence, count = self.random.choice(list(self.open_batches[place].items()))
        codec = self.random.choice(list(Codec)) if self.steps.happens(0.2) else Codec.NONE
        records = batch(
            count,
            producer_id=identity.producer_id,
            epoch=identity.epoch,
            sequence=sequence,
            transactional=True,
            codec=codec,
        )
        return records, f"{count} from {sequence}{f' in {codec.name}' if codec else ''}", sequence, sequence + count

    @staticmethod
    def data_of(topic: Topic, batches: list[PartitionProduceData], version: int) -> TopicProduceData:
        if version < BY_ID:
            return TopicProduceData(name=topic.name, partition_data=batches)
        return TopicProduceData(topic_id=topic.topic_id, partition_data=batches)

    @staticmethod
    def appended(reply: Any, topics: list[Topic]) -> list[tuple[Topic, int, int]]:
        """Where it was, and at which offset."""
        return [
            (topic, answer.index, answer.base_offset)
            for answered in (() if reply is None else reply.responses)
            for topic in topics
            if topic.name == answered.name or topic.topic_id == answered.topic_id
            for answer in answered.partition_responses
            if not answer.error_code
        ]

    def produce_without_transaction(self) -> None:
        """Like a client without transactions."""
        version = self.steps.version(ProduceRequest, lowest=3)
        topic, partition = self.views.topic(), self.random.randrange(PARTITIONS_COUNT)
        count = self.random.randint(1, 3)
        data = self.data_of(topic, [PartitionProduceData(partition, memoryview(batch(count)))], version)
        request = ProduceRequest(None, -1, 5_000, [data])
        reply = self.steps.ask(f"somebody writes {count} to {topic.base}-{partition}", request, version)
        for _, index, base_offset in self.appended(reply, [topic]):
            topic.base_offsets.setdefault(index, []).append(base_offset)

    def end(self) -> None:
        identity = self.identity()
        is_version_2 = self.is_of_version_2(identity)
        if is_version_2 and self.is_replaced(identity):
            # Kafka takes a fenced producer for one that retries: docs/transactions.md.
            return
        committed = self.steps.happens(0.6)
        version = (
            self.steps.version(EndTxnRequest, lowest=FIRST_END_OF_VERSION_2)
            if is_version_2
            else self.steps.version(EndTxnRequest, highest=FIRST_END_OF_VERSION_2 - 1)
        )
        request = EndTxnRequest(identity.transactional_id, identity.producer_id, identity.epoch, committed)
        what = "commits" if committed else "aborts"
        reply = self.steps.ask(f"{identity.name} {what}", request, version, retry=BUSY)
        self.settle(identity.transactional_id)
        self.may_have_ended()
        if reply is not None and not reply.error_code and is_version_2:
            self.take_in(identity.base, reply.producer_id, reply.producer_epoch)

    def is_replaced(self, identity: Identity) -> bool:
        following = identity.producer_id, identity.epoch + 1
        return any(one.is_new and (one.producer_id, one.epoch) == following for one in self.identities)

    def settle(self, transactional_id: str) -> None:
        """Return when nothing is under way, which Kafka completes after it has answered."""
        for _ in range(ATTEMPTS):
            described = self.exchange.call(DescribeTransactionsRequest([transactional_id]), 0)
            if described.transaction_states[0].transaction_state in SETTLED:
                break
            time.sleep(PAUSE_S)

    def some_group(self) -> tuple[str, str]:
        """What to call it, and its name."""
        return self.random.choices(list(self.world.groups.items()), (60, 40))[0]

    def add_offsets(self) -> None:
        identity = self.identity()
        called, group = self.some_group()
        request = AddOffsetsToTxnRequest(identity.transactional_id, identity.producer_id, identity.epoch, group)
        version = self.steps.version(AddOffsetsToTxnRequest)
        self.steps.ask(f"{identity.name} adds the {called}", request, version, retry=BUSY)

    def commit_offsets(self) -> None:
        identity = self.identity(may_be_mixed=False)
        is_version_2 = self.is_of_version_2(identity)
        version = (
            self.steps.version(TxnOffsetCommitRequest, lowest=FIRST_OFFSETS_OF_VERSION_2)
            if is_version_2
            else self.steps.version(TxnOffsetCommitRequest, highest=FIRST_OFFSETS_OF_VERSION_2 - 1)
        )
        called, group = self.some_group()
        partitions = self.views.some_partitions()
        if self.steps.happens(0.05):
            partitions.append(PARTITIONS_COUNT)
        offset, topics = self.random.randint(0, 9), self.some_topics()
        committed = [TxnOffsetCommitRequestPartition(partition, offset) for partition in partitions]
        for one in committed:
            if version >= FIRST_OFFSETS_WITH_EPOCH:
                one.committed_leader_epoch = self.random.choice((-1, -1, 0, 3))
            one.committed_metadata = self.random.choice((None, "", "m"))
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic.name, topic.topic_id, committed) for topic in topics],
        )
        words = (
            f"{identity.name} commits offset {offset} of {' and '.join(topic.base for topic in topics)}-{partitions}"
        )
        words += f" for the {called}"
        if version >= FIRST_OFFSETS_WITH_MEMBER and self.steps.happens(0.6):
            shift = self.random.choice((0, 0, 0, 0, -1, 1))
            request.generation_id_or_member_epoch = self.member_epoch + shift
            request.member_id = self.random.choice((MEMBER, MEMBER, MEMBER, "somebody", ""))
            words += f" as {request.member_id!r} in epoch {shift:+}"
        self.steps.ask(words, request, version, retry=BUSY)

    def commit_offsets_at_once(self) -> None:
        """Without a transaction, maybe between those of one that is open."""
        version = self.steps.version(OffsetCommitRequest)
        called, group = self.some_group()
        partitions, offset, topics = self.views.some_partitions(), self.random.randint(0, 9), self.some_topics()
        wanted = []
        for topic in topics:
            committed = [OffsetCommitRequestPartition(partition, offset) for partition in partitions]
            if version < FIRST_COMMIT_BY_ID:
                wanted.append(OffsetCommitRequestTopic(topic.name, partitions=committed))
            else:
                wanted.append(OffsetCommitRequestTopic(topic_id=topic.topic_id, partitions=committed))
        request = OffsetCommitRequest(group, topics=wanted)
        if group == self.world.groups["group with a member"]:
            request.member_id, request.generation_id_or_member_epoch = MEMBER, self.member_epoch
        words = " and ".join(topic.base for topic in topics)
        self.steps.ask(f"somebody commits offset {offset} of {words}-{partitions} for the {called}", request, version)

    def delete_offsets(self) -> None:
        """Of the group that has a member: the other one would be gone, for Kafka not at once, without any."""
        partitions = self.views.some_partitions()
        wanted = [OffsetDeleteRequestPartition(partition) for partition in partitions]
        topics = self.some_topics()
        request = OffsetDeleteRequest(
            self.world.groups["group with a member"],
            [OffsetDeleteRequestTopic(topic.name, wanted) for topic in topics],
        )
        words = " and ".join(topic.base for topic in topics)
        version = self.steps.version(OffsetDeleteRequest)
        self.steps.ask(f"offsets of {words}-{partitions} are deleted", request, version)

    def mark(self) -> None:
        """Like an operator that ends a hanging transaction; mostly it has ended before."""
        identity = self.identity()
        committed = self.steps.happens(0.3)
        partitions, topic = self.views.some_partitions(), self.views.topic()
        marker = WritableTxnMarker(
            identity.producer_id,
            identity.epoch,
            transaction_result=committed,
            topics=[WritableTxnMarkerTopic(topic.name, partitions)],
            coordinator_epoch=self.random.choice((-1, 0, 0, 0)),
        )
        version = self.steps.version(WriteTxnMarkersRequest)
        what = "committed" if committed else "aborted"
        if version >= FIRST_MARKERS_WITH_VERSION:
            marker.transaction_version = self.random.choice((0, 1, 2))
            what += f" in version {marker.transaction_version}"
        request = WriteTxnMarkersRequest([marker])
        self.may_have_ended()
        self.steps.ask(
            f"{identity.name} is {what} on {topic.base}-{partitions} by coordinator {marker.coordinator_epoch}",
            request,
            version,
        )

    def delete_records(self) -> None:
        """Up to where a batch begins: within one that opens a transaction Kafka's stable offset stays below."""
        topic = self.views.topic()
        partition = self.random.randrange(PARTITIONS_COUNT)
        offset = self.random.choice([*topic.base_offsets.get(partition, []), 0, 1_000])
        wanted = DeleteRecordsTopic(topic.name, [DeleteRecordsPartition(partition, offset)])
        version = self.steps.version(DeleteRecordsRequest)
        topic.cut.add(partition)
        request = DeleteRecordsRequest([wanted], 5_000)
        self.steps.ask(f"delete {topic.base}-{partition} up to {offset}", request, version)


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
