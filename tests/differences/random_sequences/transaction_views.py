"""What is to be seen of transactions: batches, markers, stable offsets, pending offsets, states."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final

from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from tests.differences.exchange import FIRST_TIMESTAMP_MS, Exchange
from tests.differences.random_sequences.steps import SlicedWork

PARTITIONS_COUNT: Final = 2
BY_ID: Final = 13  # Produce and Fetch alike
FIRST_LIST_BY_DURATION: Final = 1
FIRST_LIST_BY_PATTERN: Final = 2
FIRST_OFFSETS_OF_GROUPS: Final = 8
FIRST_OFFSETS_BY_ID: Final = 10
FAR_MS: Final = 10_000_000  # longer than any transaction has been open
MARKS: Final = (-1, -1, -2, -3, -4, -5, -6)
TIMES: Final = (0, FIRST_TIMESTAMP_MS, FIRST_TIMESTAMP_MS + 1, 1_750_000_000_000)
STATES: Final = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort", "Dead", "Nothing")


@dataclass
class Topic:
    """A topic that is there, or is deleted; the same name then stands for the next one."""

    base: str
    name: str
    topic_id: bytes
    is_there: bool = True
    base_offsets: dict[int, list[int]] = field(default_factory=dict)

    cut: set[int] = field(default_factory=set)
    """The partitions whose first records were deleted: what is found there by time is declared to be another."""


@dataclass
class World:
    """What there is to be looked at."""

    topics: dict[str, Topic]
    ids: list[str]
    """The transactional ids."""

    groups: dict[str, str]
    """Names of groups by what to call them."""

    producer_ids: list[int] = field(default_factory=list)


class TransactionViews:
    """Looks at a world from all sides, at random."""

    def __init__(self, exchange: Exchange, random: Random, steps: SlicedWork, world: World) -> None:
        self.exchange = exchange
        self.random = random
        self.steps = steps
        self.world = world

    def topic(self) -> Topic:
        return self.random.choice(list(self.world.topics.values()))

    def some_partitions(self) -> list[int]:
        return sorted(self.random.sample(range(PARTITIONS_COUNT), self.random.randint(1, PARTITIONS_COUNT)))

    def fetch(self) -> None:
        topic = self.topic()
        partition, offset = self.random.randrange(PARTITIONS_COUNT), self.random.randint(0, 12)
        limit = self.random.choice((1 << 20, 1 << 20, 1, 200, 400))
        version = self.steps.version(FetchRequest)
        self.fetch_from(topic, partition, offset, self.random.randint(0, 1), version, limit)

    def fetch_from(
        self, topic: Topic, partition: int, offset: int, isolation_level: int, version: int, limit: int = 1 << 20
    ) -> None:
        wanted = FetchPartition(partition, fetch_offset=offset, partition_max_bytes=limit)
        if version >= BY_ID:
            asked = FetchTopic(topic_id=topic.topic_id, partitions=[wanted])
        else:
            asked = FetchTopic(topic.name, partitions=[wanted])
        request = FetchRequest(isolation_level=isolation_level, topics=[asked])
        what = "read_committed" if isolation_level else "read_uncommitted"
        self.steps.ask(f"fetch {topic.base}-{partition} from {offset} up to {limit} bytes, {what}", request, version)

    def list_offsets(self) -> None:
        topic = self.topic()
        version = self.steps.version(ListOffsetsRequest)
        isolation_level = self.random.randint(0, 1)
        timestamp = self.random.choice(MARKS)
        if self.steps.happens(0.3) and not topic.cut:
            timestamp = self.random.choice(TIMES)
        wanted = [ListOffsetsPartition(index, timestamp=timestamp) for index in range(PARTITIONS_COUNT)]
        request = ListOffsetsRequest(-1, isolation_level, [ListOffsetsTopic(topic.name, wanted)], 1_000)
        self.steps.ask(f"offsets of {topic.base} at {timestamp}, isolation {isolation_level}", request, version)

    def ends_of_epochs(self) -> None:
        topic = self.topic()
        wanted = [OffsetForLeaderPartition(index, leader_epoch=0) for index in range(PARTITIONS_COUNT)]
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic.name, wanted)])
        self.steps.ask(f"ends of epochs of {topic.base}", request, self.steps.version(OffsetForLeaderEpochRequest))

    def fetch_offsets(self) -> None:
        called, group = self.random.choice(list(self.world.groups.items()))
        version = self.steps.version(OffsetFetchRequest)
        partitions = list(range(PARTITIONS_COUNT))
        topics = list(self.world.topics.values())
        if version < FIRST_OFFSETS_OF_GROUPS:
            single = [OffsetFetchRequestTopic(topic.name, partition_indexes=partitions) for topic in topics]
            request = OffsetFetchRequest(group, topics=single)
        elif version < FIRST_OFFSETS_BY_ID:
            named = [OffsetFetchRequestTopics(topic.name, partition_indexes=partitions) for topic in topics]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=named)])
        else:
            known = [OffsetFetchRequestTopics(topic_id=one.topic_id, partition_indexes=partitions) for one in topics]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=known)])
        for require_stable in (False, True):
            request.require_stable = require_stable
            how = "stable" if require_stable else "as they are"
            self.steps.ask(f"offsets of the {called}, {how}", request, version)

    def describe(self) -> None:
        self.steps.ask("describe both ids", DescribeTransactionsRequest(self.world.ids), 0)

    def list_transactions(self) -> None:
        version = self.steps.version(ListTransactionsRequest)
        states = self.random.sample(STATES, self.random.choice((0, 0, 1, 2)))
        # The broker has others, too.
        producer_ids = self.world.producer_ids[-self.random.randint(1, 4) :]
        request = ListTransactionsRequest(states, producer_ids)
        words = f"{states or 'any state'}, {len(producer_ids)} producers"
        if version >= FIRST_LIST_BY_DURATION and self.steps.happens(0.2):
            # Those that never began a transaction are open for long, for Kafka, by declaration.
            request.state_filters, request.duration_filter = ["Ongoing", "CompleteCommit"], FAR_MS
            words += ", open for long"
        if version >= FIRST_LIST_BY_PATTERN and self.steps.happens(0.5):
            request.transactional_id_pattern = self.random.choice(("a-.*", ".*", "a", "[ab]-.*seed.*", "(", ""))
            words += f", like {request.transactional_id_pattern!r}"
        self.steps.ask(f"list those of {words}", request, version)

    def describe_producers(self) -> None:
        topics = [TopicRequest(topic.name, list(range(PARTITIONS_COUNT))) for topic in self.world.topics.values()]
        self.steps.ask("describe the producers", DescribeProducersRequest(topics), 0)
