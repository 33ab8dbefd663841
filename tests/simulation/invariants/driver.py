"""Short worlds by script: one broker, and producers and readers that carry out one request after another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import Record, build_batch
from tests.simulation.broker import SimulatedBroker
from tests.simulation.client import Disconnected, SimulatedClient
from tests.simulation.invariants.invariant import Invariants, Violation
from tests.simulation.loop import START_MS, run
from tests.simulation.principals import principals_by_host
from tests.simulation.world import World

SETTLING_S = 5.0
PAUSE_S = 0.02
ATTEMPTS = 200
GROUP = "group"
TOPIC = "out"
OUT_0, OUT_1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
TWO_PHASE = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


class Stage:
    """A world with one broker that runs, and all invariants watching."""

    def __init__(
        self, world: World, settings: Mapping[str, str] | None = None, topic_configs: Mapping[str, str] | None = None
    ) -> None:
        self.world = world
        self.invariants = Invariants(world)
        self.broker: SimulatedBroker = world.add_broker(settings=settings)
        self.client = self.new_client("stage")
        self._topic_configs = dict(topic_configs or {})

    def new_client(self, name: str) -> SimulatedClient:
        return self.world.client(name)

    async def open(self) -> None:
        await self.broker.start()
        self.invariants.observe()
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=2,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=name, value=value) for name, value in self._topic_configs.items()],
        )
        await self.client.send(self.broker.address, CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        await retried(
            lambda: self.client.send(self.broker.address, FindCoordinatorRequest(key=GROUP), 3),
            lambda response: response.error_code,
        )

    def producer(self, transactional_id: str | None = "till", *, version: int = 2, name: str = "producer") -> Producer:
        return Producer(self, transactional_id, version, name)

    async def restart(self, *, power_loss: bool = False) -> None:
        self.invariants.observe()
        await self.broker.restart(power_loss=power_loss)
        self.invariants.observe()

    async def settle(self, duration_s: float = SETTLING_S) -> None:
        self.invariants.observe()
        await self.world.wait(duration_s)
        self.invariants.settled()

    async def fetch(self, topic_partition: TopicPartition, *, offset: int = 0, isolation_level: int = 1) -> Any:
        partition = FetchPartition(
            partition=topic_partition.partition, fetch_offset=offset, partition_max_bytes=1_000_000
        )
        request = FetchRequest(
            max_bytes=1_000_000,
            isolation_level=isolation_level,
            topics=[FetchTopic(topic=topic_partition.topic, partitions=[partition])],
        )
        return await self.client.send(self.broker.address, request, 11)

    async def commit_offset(self, topic_partition: TopicPartition, offset: int) -> Any:
        partition = OffsetCommitRequestPartition(partition_index=topic_partition.partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=topic_partition.topic, partitions=[partition])]
        )
        return await retried(
            lambda: self.client.send(self.broker.address, request, 8),
            lambda response: response.topics[0].partitions[0].error_code,
        )

    async def fetch_offset(self, topic_partition: TopicPartition, *, require_stable: bool = True) -> Any:
        topic = OffsetFetchRequestTopics(name=topic_partition.topic, partition_indexes=[topic_partition.partition])
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=[topic])], require_stable=require_stable
        )
        response = await retried(
            lambda: self.client.send(self.broker.address, request, 9), lambda response: response.groups[0].error_code
        )
        return response.groups[0].topics[0].partitions[0]


class Producer:
    """A transactional producer, or with no id an idempotent one. version: 1 registers its partitions, 2 does not."""

    def __init__(self, stage: Stage, transactional_id: str | None, version: int, name: str) -> None:
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = -1
        self.producer_epoch = -1
        self.client = stage.new_client(name)
        self._stage = stage
        self._sequences: dict[TopicPartition, int] = {}

    async def initialize(
        self, *, timeout_ms: int = 60_000, expecting: bool = False, two_phase: bool = False, keeping: bool = False
    ) -> Any:
        """InitProducerId, until it is answered.

        expecting: with the identity so far (KIP-360). two_phase, keeping: KIP-939; the broker needs TWO_PHASE.
        """
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=self.producer_id if expecting else -1,
            producer_epoch=self.producer_epoch if expecting else -1,
            enable2_pc=two_phase,
            keep_prepared_txn=keeping,
        )
        version = 6 if two_phase or keeping else 4
        response = await retried(lambda: self.request(request, version), lambda response: response.error_code)
        if response.error_code == ErrorCode.NONE:
            self.take_identity(response)
        return response

    def take_identity(self, response: Any) -> None:
        if (response.producer_id, response.producer_epoch) != (self.producer_id, self.producer_epoch):
            self._sequences.clear()
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch

    async def add(self, *topic_partitions: TopicPartition) -> Any:
        topics = [AddPartitionsToTxnTopic(name=name.topic, partitions=[name.partition]) for name in topic_partitions]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=topics,
        )
        return await retried(
            lambda: self.request(request, 3),
            lambda response: response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        )

    def batch(self, values: Sequence[bytes], base_sequence: int, *, key: bytes | None = None) -> bytes:
        now_ms = START_MS + round(self._stage.world.loop.time() * 1000)
        return bytes(
            build_batch(
                [Record(slot, now_ms, key, value, ()) for slot, value in enumerate(values)],
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=base_sequence,
                is_transactional=self.transactional_id is not None,
            )
        )

    def produce_request(self, topic_partition: TopicPartition, batch: bytes) -> ProduceRequest:
        partition = PartitionProduceData(index=topic_partition.partition, records=batch)
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic_partition.topic, partition_data=[partition])],
        )

    async def send(self, topic_partition: TopicPartition, *values: bytes, key: bytes | None = None) -> Any:
        """Send a batch that is in sequence; returns the answer for the partition."""
        base_sequence = self._sequences.get(topic_partition, 0)
        batch = self.batch(values, base_sequence, key=key)
        answer = await self.send_batch(topic_partition, batch)
        if answer.error_code == ErrorCode.NONE:
            self._sequences[topic_partition] = base_sequence + len(values)
        return answer

    async def send_batch(self, topic_partition: TopicPartition, batch: bytes) -> Any:
        request = self.produce_request(topic_partition, batch)
        version = 12 if self.version == 2 else 9
        response = await retried(lambda: self.request(request, version), lambda response: _answer(response).error_code)
        return _answer(response)

    async def send_offset(self, topic_partition: TopicPartition, offset: int) -> Any:
        """Commit an offset of the group in the transaction."""
        if self.version == 1:
            add = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id or "",
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=GROUP,
            )
            await retried(lambda: self.request(add, 3), lambda response: response.error_code)
        partition = TxnOffsetCommitRequestPartition(partition_index=topic_partition.partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id or "",
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic_partition.topic, partitions=[partition])],
        )
        response = await retried(
            lambda: self.request(request, 5 if self.version == 2 else 3),
            lambda response: response.topics[0].partitions[0].error_code,
        )
        return response.topics[0].partitions[0]

    async def end(self, *, committed: bool = True) -> Any:
        request = EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=committed,
        )
        response = await retried(
            lambda: self.request(request, 5 if self.version == 2 else 3), lambda response: response.error_code
        )
        if response.error_code == ErrorCode.NONE and self.version == 2:
            self.take_identity(response)
        return response

    async def transact(self, *topic_partitions: TopicPartition, committed: bool = True, value: bytes = b"value") -> Any:
        """One whole transaction with a record in each partition."""
        if self.version == 1:
            await self.add(*topic_partitions)
        for topic_partition in topic_partitions:
            await self.send(topic_partition, value)
        return await self.end(committed=committed)

    async def request(self, message: Any, version: int) -> Any:
        return await self.client.send(self._stage.broker.address, message, version)


def _answer(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


async def retried(ask: Callable[[], Awaitable[Any]], error_of: Callable[[Any], int]) -> Any:
    """Ask until the answer is no passing error. A connection that breaks is tried again too."""
    response = None
    for _ in range(ATTEMPTS):
        try:
            response = await ask()
        except Disconnected:
            response = None
        if response is not None and error_of(response) not in RETRIED:
            return response
        await asyncio.sleep(PAUSE_S)
    if response is None:
        raise Disconnected("no answer, however often it was asked")
    return response


Scene = Callable[[Stage], Awaitable[None]]


def play(
    scene: Scene,
    *,
    seed: int = 1,
    settings: Mapping[str, str] | None = None,
    topic_configs: Mapping[str, str] | None = None,
) -> list[Violation]:
    """Run a scene in its own world and let it settle; returns what the invariants say of it."""

    async def main() -> list[Violation]:
        stage = Stage(World(seed), settings, topic_configs)
        await stage.open()
        await scene(stage)
        await stage.settle()
        return stage.invariants.violations

    with principals_by_host():
        return run(main())
