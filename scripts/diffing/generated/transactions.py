"""Producers of a few transactional ids that fence each other, lag behind, repeat themselves, and come too late.

What they leave behind is looked at all the time: batches, markers, aborted lists, stable offsets, states.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from random import Random
from typing import Final

from protocol.errors import ErrorCode
from protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from protocol.messages.produce import ProduceRequest
from protocol.messages.producers import DescribeProducersRequest, TopicRequest
from protocol.messages.transaction_admin import DescribeTransactionsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from scripts.diffing.exchange import ATTEMPTS, GROUP, PAUSE_S, TRANSACTION, Exchange, batch
from scripts.diffing.generated.steps import Steps
from scripts.diffing.sequences.produce import Producing

STEPS_COUNT: Final = 80
PARTITIONS_COUNT: Final = 2
IDS: Final = ("a", "b")
TIMEOUT_MS: Final = 600_000  # far longer than a run
BUSY: Final = (ErrorCode.CONCURRENT_TRANSACTIONS,)
KEPT_IDENTITIES_COUNT: Final = 4
FIRST_VERSION_WITH_IDENTITY: Final = 3  # of InitProducerId
FIRST_PRODUCE_OF_VERSION_2: Final = 12
FIRST_END_OF_VERSION_2: Final = 5
FIRST_OFFSETS_OF_VERSION_2: Final = 5
SETTLED: Final = frozenset({"Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "Dead", ""})


@dataclass(frozen=True)
class Identity:
    """What a producer was told that it is; `name` says so in descriptions."""

    base: str
    transactional_id: str
    producer_id: int
    epoch: int
    name: str


@dataclass
class World:
    """What the producers have been told so far."""

    topic: str
    group: str
    identities: list[Identity] = field(default_factory=list)
    next_sequences: dict[tuple[int, int, int], int] = field(default_factory=dict)
    base_offsets: dict[int, list[int]] = field(default_factory=dict)


class _Run:
    def __init__(self, exchange: Exchange, random: Random) -> None:
        self.steps = Steps(exchange, random)
        self.exchange = exchange
        self.random = random
        self.world = World(exchange.create_topic("data", partitions=PARTITIONS_COUNT), exchange.name("group"))
        # A client has made its mind up; only now and then somebody comes back with another version of itself.
        self.is_version_2 = {base: self.steps.happens(0.5) for base in IDS}
        exchange.find_coordinator(self.world.group, GROUP)
        for base in IDS:
            exchange.find_coordinator(exchange.name(base), TRANSACTION)

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
            (6, self.commit_offsets),
            (5, self.fetch),
            (4, self.list_offsets),
            (3, self.fetch_offsets),
            (3, self.describe),
            (3, self.describe_producers),
        )
        for _ in range(STEPS_COUNT):
            self.steps.take(actions)
        for isolation_level in (0, 1):
            for partition in range(PARTITIONS_COUNT):
                self.fetch_from(partition, 0, isolation_level, 12)
        self.fetch_offsets()

    # Who asks

    def identity(self) -> Identity:
        """Mostly the latest of one of the ids, now and then one that may be over."""
        base = self.random.choice(IDS)
        own = [identity for identity in self.world.identities if identity.base == base]
        return own[-1] if self.steps.happens(0.85) else self.random.choice(own[-KEPT_IDENTITIES_COUNT:])

    def is_of_version_2(self, identity: Identity) -> bool:
        return self.is_version_2[identity.base] ^ self.steps.happens(0.04)

    def take_in(self, base: str, producer_id: int, epoch: int) -> None:
        identity = Identity(base, self.exchange.name(base), producer_id, epoch, f"{base}#{len(self.world.identities)}")
        self.world.identities.append(identity)

    # What they ask

    def initialize_any(self) -> None:
        self.initialize(self.random.choice(IDS))

    def initialize(self, base: str) -> None:
        request = InitProducerIdRequest(self.exchange.name(base), TIMEOUT_MS)
        what = "anew"
        version = self.steps.version(InitProducerIdRequest)
        own = [identity for identity in self.world.identities if identity.base == base]
        if own and version >= FIRST_VERSION_WITH_IDENTITY and self.steps.happens(0.5):
            identity = own[-1] if self.steps.happens(0.7) else self.random.choice(own[-KEPT_IDENTITIES_COUNT:])
            request.producer_id, request.producer_epoch = identity.producer_id, identity.epoch
            what = f"as {identity.name}"
        reply = self.steps.ask(f"initialize {base} {what}", request, version, retry=BUSY)
        if reply is not None and not reply.error_code:
            self.take_in(base, reply.producer_id, reply.producer_epoch)

    def add_partitions(self) -> None:
        partitions = self.some_partitions()
        if self.steps.happens(0.1):
            partitions.append(PARTITIONS_COUNT)
        self.add(self.identity(), partitions)

    def add(self, identity: Identity, partitions: list[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=identity.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(self.world.topic, partitions)],
        )
        version = self.steps.version(AddPartitionsToTxnRequest, highest=3)
        self.steps.ask(f"{identity.name} adds {partitions}", request, version, retry=BUSY)

    def produce(self) -> None:
        identity = self.identity()
        is_version_2 = self.is_of_version_2(identity)
        version = (
            self.steps.version(ProduceRequest, lowest=FIRST_PRODUCE_OF_VERSION_2)
            if is_version_2
            else self.steps.version(ProduceRequest, lowest=3, highest=FIRST_PRODUCE_OF_VERSION_2 - 1)
        )
        is_transactional = not self.steps.happens(0.06)
        partitions = self.some_partitions()
        if not is_version_2 and self.steps.happens(0.5):
            self.add(identity, partitions)
        producing = Producing(self.exchange, version)
        batches, words = [], []
        ends = {}
        for partition in partitions:
            place = (identity.producer_id, identity.epoch, partition)
            expected = self.world.next_sequences.get(place, 0)
            sequence = expected
            if self.steps.happens(0.12):
                sequence = max(0, expected + self.random.choice((-3, -2, -1, 1, 2)))
            elif self.steps.happens(0.03):
                sequence = 0
            count = self.random.randint(1, 3)
            ends[partition] = sequence + count
            records = batch(
                count,
                producer_id=identity.producer_id,
                epoch=identity.epoch,
                sequence=sequence,
                transactional=is_transactional,
            )
            batches.append((partition, records))
            words.append(f"{count} from {sequence} to {partition}")
        request = producing.request(
            producing.topic(self.world.topic, *batches),
            transactional_id=identity.transactional_id if is_transactional else None,
        )
        what = "writes" if is_transactional else "writes, outside of a transaction,"
        reply = self.steps.ask(f"{identity.name} {what} {', '.join(words)}", request, version, retry=BUSY)
        if reply is None:
            return
        for answer in reply.responses[0].partition_responses:
            if not answer.error_code:
                place = (identity.producer_id, identity.epoch, answer.index)
                following = self.world.next_sequences.get(place, 0)
                self.world.next_sequences[place] = max(following, ends[answer.index])
                self.world.base_offsets.setdefault(answer.index, []).append(answer.base_offset)

    def end(self) -> None:
        identity = self.identity()
        is_version_2 = self.is_of_version_2(identity)
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
        if reply is not None and not reply.error_code and is_version_2:
            self.take_in(identity.base, reply.producer_id, reply.producer_epoch)

    def settle(self, transactional_id: str) -> None:
        """Return when nothing is under way, which Kafka completes after it has answered."""
        for _ in range(ATTEMPTS):
            described = self.exchange.call(DescribeTransactionsRequest([transactional_id]), 0)
            if described.transaction_states[0].transaction_state in SETTLED:
                break
            time.sleep(PAUSE_S)

    def add_offsets(self) -> None:
        identity = self.identity()
        request = AddOffsetsToTxnRequest(
            identity.transactional_id, identity.producer_id, identity.epoch, self.world.group
        )
        version = self.steps.version(AddOffsetsToTxnRequest)
        self.steps.ask(f"{identity.name} adds the group", request, version, retry=BUSY)

    def commit_offsets(self) -> None:
        identity = self.identity()
        is_version_2 = self.is_of_version_2(identity)
        version = (
            self.steps.version(TxnOffsetCommitRequest, lowest=FIRST_OFFSETS_OF_VERSION_2)
            if is_version_2
            else self.steps.version(TxnOffsetCommitRequest, highest=FIRST_OFFSETS_OF_VERSION_2 - 1)
        )
        partitions = self.some_partitions()
        offset = self.random.randint(0, 9)
        committed = [TxnOffsetCommitRequestPartition(partition, offset) for partition in partitions]
        request = TxnOffsetCommitRequest(
            transactional_id=identity.transactional_id,
            group_id=self.world.group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=[TxnOffsetCommitRequestTopic(self.world.topic, committed)],
        )
        self.steps.ask(f"{identity.name} commits offset {offset} of {partitions}", request, version, retry=BUSY)

    def mark(self) -> None:
        """As an operator does who ends a transaction that hangs; so rarely right that it is mostly too late."""
        identity = self.identity()
        committed = self.steps.happens(0.3)
        partitions = self.some_partitions()
        marker = WritableTxnMarker(
            identity.producer_id,
            identity.epoch,
            transaction_result=committed,
            topics=[WritableTxnMarkerTopic(self.world.topic, partitions)],
            coordinator_epoch=self.random.choice((-1, 0, 0, 0)),
        )
        what = "committed" if committed else "aborted"
        request = WriteTxnMarkersRequest([marker])
        self.steps.ask(
            f"{identity.name} is {what} on {partitions} by coordinator {marker.coordinator_epoch}",
            request,
            self.steps.version(WriteTxnMarkersRequest),
        )

    def delete_records(self) -> None:
        """Up to where a batch begins: within one that opens a transaction Kafka's stable offset stays below."""
        partition = self.random.randrange(PARTITIONS_COUNT)
        offset = self.random.choice([*self.world.base_offsets.get(partition, []), 0, 1_000])
        topic = DeleteRecordsTopic(self.world.topic, [DeleteRecordsPartition(partition, offset)])
        version = self.steps.version(DeleteRecordsRequest)
        self.steps.ask(f"delete {partition} up to {offset}", DeleteRecordsRequest([topic], 5_000), version)

    # What is to be seen of it

    def fetch(self) -> None:
        partition, offset = self.random.randrange(PARTITIONS_COUNT), self.random.randint(0, 6)
        version = self.steps.version(FetchRequest, highest=12)
        self.fetch_from(partition, offset, self.random.randint(0, 1), version)

    def fetch_from(self, partition: int, offset: int, isolation_level: int, version: int) -> None:
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(self.world.topic, partitions=[wanted])
        request = FetchRequest(isolation_level=isolation_level, topics=[topic])
        what = "read_committed" if isolation_level else "read_uncommitted"
        self.steps.ask(f"fetch {partition} from {offset}, {what}", request, version)

    def list_offsets(self) -> None:
        version = self.steps.version(ListOffsetsRequest, lowest=2, highest=8)
        isolation_level = self.random.randint(0, 1)
        timestamp = self.random.choice((-1, -2))
        wanted = [ListOffsetsPartition(index, timestamp=timestamp) for index in range(PARTITIONS_COUNT)]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(self.world.topic, wanted)]
        )
        self.steps.ask(f"offsets at {timestamp}, isolation {isolation_level}", request, version)

    def fetch_offsets(self) -> None:
        version = self.steps.version(OffsetFetchRequest, lowest=8, highest=9)
        wanted = [OffsetFetchRequestTopics(self.world.topic, partition_indexes=list(range(PARTITIONS_COUNT)))]
        for require_stable in (False, True):
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(self.world.group, topics=wanted)], require_stable=require_stable
            )
            self.steps.ask(f"offsets of the group, {'stable' if require_stable else 'as they are'}", request, version)

    def describe(self) -> None:
        names = [self.exchange.name(base) for base in IDS]
        self.steps.ask("describe both ids", DescribeTransactionsRequest(names), 0)

    def describe_producers(self) -> None:
        request = DescribeProducersRequest([TopicRequest(self.world.topic, list(range(PARTITIONS_COUNT)))])
        self.steps.ask("describe the producers", request, 0)

    def some_partitions(self) -> list[int]:
        return sorted(self.random.sample(range(PARTITIONS_COUNT), self.random.randint(1, PARTITIONS_COUNT)))


def run(exchange: Exchange, random: Random) -> None:
    _Run(exchange, random).run()
