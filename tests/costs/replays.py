"""Fixed requests through a whole broker in this process, from the bytes of a frame to the bytes of the reply.

The broker is the real one on a directory of the caller's, in the page cache: no other thread takes part. Clients are
transports without sockets, whose bytes arrive when the replay says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any, cast

from fencepost.broker.config import Endpoint, Listener, Settings
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.client_quotas import AlterClientQuotasRequest, AlterEntryData, EntityData, OpData
from fencepost.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import Record, build_batch
from fencepost.protocol.schema import ZERO_UUID, decode
from tests.costs.counting import Counts, counting

CLIENT_ID = "costs"
TOPIC = "measured"
TRANSACTIONAL_ID = "application"
GROUP = "consumers"
MEMBER_ID = "6a1ff5e0-7f0c-4b83-a9b8-3f2c3e3f4f00"
GROUP_COORDINATOR, TRANSACTION_COORDINATOR = 0, 1
PARTITIONS_COUNT = 3
WIDE_TOPIC = "wide"
WIDE_PARTITIONS_COUNT = 100
RECORDS_PER_BATCH = 16
RECORD_BYTES = 1_000
SMALL_RECORD_BYTES = 100
TOGETHER_COUNT = 16
NOW_MS = 1_800_000_000_000
PAGE_CACHE = 2**63 - 1
WARM_UP_COUNT = 20
COUNTED_COUNT = 10
BLOCKS_COUNT = 3
IDLE_TURNS_COUNT = 100
"""Turns of the loop after a reply, in which what was left for later is done."""
LONGEST_WAIT_S = 30

Replay = Callable[["Client"], Awaitable[Counts]]


class StillClock:
    def now_ms(self) -> int:
        return NOW_MS


class Network:
    """A listener whose connections are made by a call."""

    def __init__(self, listener: Listener, _settings: Settings) -> None:
        self.listener = listener
        self.address = self.advertised = Endpoint(listener.name, "127.0.0.1", 9092)
        self.new_connection: Callable[[], asyncio.BufferedProtocol] | None = None

    async def accept(self, new_connection: Callable[[], asyncio.BufferedProtocol], *, backlog: int) -> Network:
        self.new_connection = new_connection
        return self

    def close(self) -> None:
        """There is no socket."""

    async def wait_closed(self) -> None:
        """There is no socket."""


class Transport(asyncio.Transport):
    """What the broker writes is kept."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.written = bytearray()
        self._protocol = protocol
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 50_000) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Any) -> None:
        for data in list_of_data:
            self.written += data

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Everything is taken at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def pause_reading(self) -> None:
        """Nothing arrives unasked."""

    def resume_reading(self) -> None:
        """Nothing arrives unasked."""


class Client:
    """One connection to the broker."""

    def __init__(self, connect: Callable[[], asyncio.BufferedProtocol]) -> None:
        self._connect = connect
        self._connection = connect()
        self._transport = Transport(self._connection)
        self._connection.connection_made(self._transport)

    def another(self) -> Client:
        return Client(self._connect)

    async def call(self, request: Any, version: int, counts: Counts | None = None) -> Any:
        """The reply, decoded; what the broker does from the arrival of the frame until it is idle again is counted."""
        return await self.call_within(nullcontext() if counts is None else counting(counts), request, version)

    async def call_within(
        self,
        watching: AbstractContextManager[None],
        request: Any,
        version: int,
        *,
        on_reply: Callable[[], None] = lambda: None,
        idle_s: float = 0,
    ) -> Any:
        """As `call`. watching: entered when the frame arrives, left when the broker has been idle for `idle_s`."""
        frame = request_frame(1, CLIENT_ID, request, version)
        self._transport.written.clear()
        with watching:
            self._receive(frame)
            loop = asyncio.get_running_loop()
            deadline_s = loop.time() + LONGEST_WAIT_S
            for _ in iter(lambda: not self._transport.written and loop.time() < deadline_s, False):
                await asyncio.sleep(0)
            on_reply()
            await asyncio.sleep(idle_s)
            for _ in range(IDLE_TURNS_COUNT):
                await asyncio.sleep(0)
        reply = bytes(self._transport.written)
        assert len(reply) == 4 + int.from_bytes(reply[:4], "big"), "there is no reply"
        return reply_to(request, version, reply)

    async def call_together(self, requests: Sequence[Any], version: int, counts: Counts | None = None) -> list[Any]:
        """The replies to requests that arrive together, in as few readings as there is room for; all are counted."""
        frames = [request_frame(index, CLIENT_ID, request, version) for index, request in enumerate(requests)]
        self._transport.written.clear()
        with nullcontext() if counts is None else counting(counts):
            self._receive(b"".join(frames))
            for _ in range(IDLE_TURNS_COUNT):
                await asyncio.sleep(0)
        return [
            reply_to(request, version, reply)
            for request, reply in zip(requests, frames_of(bytes(self._transport.written)), strict=True)
        ]

    async def call_while_waiting(
        self, other: Client, waiting: Any, request: Any, version: int, counts: Counts | None = None
    ) -> tuple[Any, Any]:
        """The reply to a request that waits for what another client's does, and to that; both together are counted."""
        frames = [request_frame(1, CLIENT_ID, one, version) for one in (waiting, request)]
        self._transport.written.clear()
        other._transport.written.clear()
        with nullcontext() if counts is None else counting(counts):
            self._receive(frames[0])
            assert not self._transport.written, "it does not wait"
            other._receive(frames[1])
            for _ in range(IDLE_TURNS_COUNT):
                await asyncio.sleep(0)
        return (
            reply_to(waiting, version, bytes(self._transport.written)),
            reply_to(request, version, bytes(other._transport.written)),
        )

    def close(self) -> None:
        self._transport.close()

    def _receive(self, frame: bytes) -> None:
        position = 0
        while position < len(frame):
            room = cast("memoryview", self._connection.get_buffer(-1))
            arrived = frame[position : position + len(room)]
            room[: len(arrived)] = arrived
            self._connection.buffer_updated(len(arrived))
            position += len(arrived)


def frames_of(content: bytes) -> Iterator[bytes]:
    while content:
        end = 4 + int.from_bytes(content[:4], "big")
        yield content[:end]
        content = content[end:]


def reply_to(request: Any, version: int, frame: bytes) -> Any:
    header_bytes = 5 if response_header_version(request.api_key, version) >= 1 else 4
    return decode(RESPONSES[request.api_key], frame[4:], version, header_bytes)


@asynccontextmanager
async def broker_with_a_client(
    directory: str, *, flush_messages: int = PAGE_CACHE, **chosen: Any
) -> AsyncIterator[Client]:
    """A broker with one topic, and a connection to it. flush_messages: 1 for durable acknowledgements. chosen: other
    settings.
    """
    networks: list[Network] = []

    def bind(listener: Listener, settings: Settings) -> Network:
        networks.append(Network(listener, settings))
        return networks[-1]

    settings = Settings(
        log_dirs=os.path.join(directory, "data"),
        listeners=("PLAINTEXT://127.0.0.1:9092",),
        transaction_state_log_num_partitions=1,
        offsets_topic_num_partitions=1,
        log_flush_interval_messages=flush_messages,
        **chosen,
    )
    node = Node(settings, clock=StillClock(), store=InMemoryMetadataStore("costs"), bind=bind)
    await node.start()
    try:
        await node.ensure_loaded()
        assert networks[0].new_connection is not None
        client = Client(networks[0].new_connection)
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS_COUNT, replication_factor=1)
        created = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
        assert created.topics[0].error_code == 0
        yield client
        client.close()
    finally:
        await node.stop()


async def produce(client: Client) -> Counts:
    """A batch of a producer without an id."""
    request = produce_request({0: batch()})

    async def once(counts: Counts | None) -> None:
        require_success(await client.call(request, 12, counts))

    return await repeated(once)


async def produce_refused(client: Client) -> Counts:
    """A batch to a partition that is not there."""
    request = produce_request({PARTITIONS_COUNT: batch()})

    async def once(counts: Counts | None) -> None:
        reply = await client.call(request, 12, counts)
        (refused,) = reply.responses[0].partition_responses
        assert refused.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, refused

    return await repeated(once)


async def metadata(client: Client) -> Counts:
    """A topic, as a client asks every few minutes, and after each error."""
    return await described(client, MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))


async def metadata_of_all_topics(client: Client) -> Counts:
    """As an administrator asks, or a consumer of a pattern."""
    return await described(client, MetadataRequest(topics=None))


async def described(client: Client, request: MetadataRequest) -> Counts:
    async def once(counts: Counts | None) -> None:
        reply = await client.call(request, 12, counts)
        assert [len(topic.partitions) for topic in reply.topics] == [PARTITIONS_COUNT]

    return await repeated(once)


async def produce_together(client: Client) -> Counts:
    """Batches of a producer that does not wait for replies."""
    require_success(await client.call(produce_request({0: batch()}), 12))
    requests = [produce_request({0: batch()})] * TOGETHER_COUNT

    async def once(counts: Counts | None) -> None:
        for reply in await client.call_together(requests, 12, counts):
            require_success(reply)

    return await repeated(once)


async def produce_with_a_quota_of_another(client: Client) -> Counts:
    """As `produce`, while another client has quotas."""
    await set_quotas(client, "another")
    return await produce(client)


async def produce_with_a_quota(client: Client) -> Counts:
    """As `produce`, with a quota that is not reached."""
    await set_quotas(client, CLIENT_ID)
    return await produce(client)


async def produce_together_with_a_quota(client: Client) -> Counts:
    """As `produce_together`, with a quota that is not reached."""
    await set_quotas(client, CLIENT_ID)
    return await produce_together(client)


async def produce_idempotent(client: Client) -> Counts:
    """A batch of a producer whose sequence numbers are checked."""
    producer = await init_producer(client, None)
    sequences = iter(range(0, 2**31, RECORDS_PER_BATCH))

    async def once(counts: Counts | None) -> None:
        request = produce_request({0: batch(producer, next(sequences))})
        require_success(await client.call(request, 12, counts))

    return await repeated(once)


async def fetch(client: Client) -> Counts:
    """A batch that is there, read by a consumer that keeps no session."""
    require_success(await client.call(produce_request({0: batch()}), 12))
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])

    async def once(counts: Counts | None) -> None:
        reply = await client.call(request, 12, counts)
        assert reply.responses[0].partitions[0].error_code == 0
        assert len(reply.responses[0].partitions[0].records) > RECORDS_PER_BATCH * RECORD_BYTES

    return await repeated(once)


async def fetch_with_a_quota(client: Client) -> Counts:
    """As `fetch`, with a quota that is not reached."""
    await set_quotas(client, CLIENT_ID)
    return await fetch(client)


async def fetch_that_waits(client: Client) -> Counts:
    """A consumer that waits at the end of the log, and the produce of a batch that ends its wait."""
    offset = 0
    producer = client.another()

    async def once(counts: Counts | None) -> None:
        nonlocal offset
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=2**20)
        waiting = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])
        producing = produce_request({0: batch()})
        fetched, produced = await client.call_while_waiting(producer, waiting, producing, 12, counts)
        require_success(produced)
        assert len(fetched.responses[0].partitions[0].records) > RECORDS_PER_BATCH * RECORD_BYTES
        offset += RECORDS_PER_BATCH

    counted = await repeated(once)
    producer.close()
    return counted


async def fetch_without_news(client: Client) -> Counts:
    """A session of many partitions whose consumer has read all there is."""
    topic = CreatableTopic(name=WIDE_TOPIC, num_partitions=WIDE_PARTITIONS_COUNT, replication_factor=1)
    created = await client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert created.topics[0].error_code == 0
    partitions = [FetchPartition(partition=index, partition_max_bytes=2**20) for index in range(WIDE_PARTITIONS_COUNT)]
    opening = FetchRequest(session_epoch=0, min_bytes=1, topics=[FetchTopic(topic=WIDE_TOPIC, partitions=partitions)])
    session_id = (await client.call(opening, 12)).session_id
    epochs = iter(range(1, 2**31))

    async def once(counts: Counts | None) -> None:
        request = FetchRequest(session_id=session_id, session_epoch=next(epochs), min_bytes=1)
        reply = await client.call(request, 12, counts)
        assert (reply.error_code, reply.session_id, reply.responses) == (0, session_id, [])

    return await repeated(once)


async def add_partitions_to_txn(client: Client) -> Counts:
    """Three partitions into a new transaction of version 1."""
    return await transactions(client, "add_partitions_to_txn")


async def produce_in_transaction(client: Client) -> Counts:
    """A batch to each of the three."""
    return await transactions(client, "produce")


async def produce_in_transaction_one_by_one(client: Client) -> Counts:
    """A batch to each of the three, in a request each, as librdkafka sends them."""
    return await transactions(client, "produce", partitions_per_request=1)


async def produce_single_records_in_transaction(client: Client) -> Counts:
    """One small record to each of the three, in a request each: what a transaction costs beside its records."""
    return await transactions(
        client, "produce", partitions_per_request=1, records_count=1, record_bytes=SMALL_RECORD_BYTES
    )


async def end_txn(client: Client) -> Counts:
    """The commit, with its markers in three partitions and all that completes it."""
    return await transactions(client, "end_txn")


async def transactions(
    client: Client,
    counted: str,
    *,
    partitions_per_request: int = PARTITIONS_COUNT,
    records_count: int = RECORDS_PER_BATCH,
    record_bytes: int = RECORD_BYTES,
) -> Counts:
    producer_id, producer_epoch = producer = await init_producer(client, TRANSACTIONAL_ID)
    sequences = iter(range(0, 2**31, records_count))
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(PARTITIONS_COUNT)))],
    )
    ending = EndTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=producer_epoch, committed=True
    )

    async def once(counts: Counts | None) -> None:
        def if_counted(name: str) -> Counts | None:
            return counts if name == counted else None

        reply = await client.call(adding, 3, if_counted("add_partitions_to_txn"))
        (topic,) = reply.results_by_topic_v3_and_below
        assert {partition.partition_error_code for partition in topic.results_by_partition} == {0}
        sequence = next(sequences)
        for first in range(0, PARTITIONS_COUNT, partitions_per_request):
            partitions = range(first, first + partitions_per_request)
            one = batch(producer, sequence, True, records_count=records_count, record_bytes=record_bytes)
            batches = dict.fromkeys(partitions, one)
            require_success(await client.call(produce_request(batches, TRANSACTIONAL_ID), 11, if_counted("produce")))
        assert (await client.call(ending, 4, if_counted("end_txn"))).error_code == 0

    return await repeated(once)


async def produce_in_transaction_of_version_2(client: Client) -> Counts:
    """A small batch to each of the three, which join the transaction by it."""
    return await transactions_of_version_2(client, "produce")


async def end_txn_of_version_2(client: Client) -> Counts:
    """The commit, which raises the epoch, with its markers in three partitions and all that completes it."""
    return await transactions_of_version_2(client, "end_txn")


async def transactions_of_version_2(client: Client, counted: str) -> Counts:
    """As Kafka's Java client makes them: each has the epoch that the end of the last one answered, and its own
    sequences.
    """
    producer = await init_producer(client, TRANSACTIONAL_ID)
    topic_id = await topic_id_of(client, TOPIC)

    async def once(counts: Counts | None) -> None:
        def if_counted(name: str) -> Counts | None:
            return counts if name == counted else None

        nonlocal producer
        one_record = batch(producer, 0, True, records_count=1, record_bytes=SMALL_RECORD_BYTES)
        request = produce_request(dict.fromkeys(range(PARTITIONS_COUNT), one_record), TRANSACTIONAL_ID, topic_id)
        require_success(await client.call(request, 13, if_counted("produce")))
        ending = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID, producer_id=producer[0], producer_epoch=producer[1], committed=True
        )
        ended = await client.call(ending, 5, if_counted("end_txn"))
        assert (ended.error_code, ended.producer_epoch) == (0, producer[1] + 1)
        producer = ended.producer_id, ended.producer_epoch

    return await repeated(once)


async def offset_commit(client: Client) -> Counts:
    """The offset of one partition, by a member of a group of the consumer protocol."""
    await find_coordinator(client, GROUP_COORDINATOR, GROUP)
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=MEMBER_ID,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    joined = await client.call(joining, 1)
    assert joined.error_code == 0
    offsets = iter(range(2**31))

    async def once(counts: Counts | None) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=next(offsets))
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=joined.member_epoch,
            member_id=MEMBER_ID,
            topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        reply = await client.call(request, 9, counts)
        assert reply.topics[0].partitions[0].error_code == 0

    return await repeated(once)


async def repeated(once: Callable[[Counts | None], Awaitable[None]]) -> Counts:
    """What `once` costs when it is not the first time: of a few blocks the cheapest, in which no timer came up."""
    for _ in range(WARM_UP_COUNT):
        await once(None)
    blocks = [Counts() for _ in range(BLOCKS_COUNT)]
    for counts in blocks:
        for _ in range(COUNTED_COUNT):
            await once(counts)
    cheapest = min(blocks, key=lambda counts: counts.instructions)
    return Counts(*(round(number / COUNTED_COUNT) for number in vars(cheapest).values()))


async def init_producer(client: Client, transactional_id: str | None) -> tuple[int, int]:
    if transactional_id is not None:
        await find_coordinator(client, TRANSACTION_COORDINATOR, transactional_id)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    while True:
        reply = await client.call(request, 4)
        if reply.error_code == 0:
            return reply.producer_id, reply.producer_epoch


async def find_coordinator(client: Client, key_type: int, key: str) -> None:
    """Wait until the coordinator is loaded: the first request creates its topic."""
    while True:
        found = await client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 4)
        if found.coordinators[0].error_code == 0:
            return


async def set_quotas(client: Client, client_id: str) -> None:
    """Set quotas on bytes that are never reached."""
    altered = AlterEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key=key, value=1e15) for key in ("producer_byte_rate", "consumer_byte_rate")],
    )
    reply = await client.call(AlterClientQuotasRequest(entries=[altered]), 1)
    assert reply.entries[0].error_code == 0


async def topic_id_of(client: Client, name: str) -> bytes:
    found = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)
    topic_id: bytes = found.topics[0].topic_id
    return topic_id


def batch(
    producer: tuple[int, int] = (-1, -1),
    base_sequence: int = -1,
    is_transactional: bool = False,
    *,
    records_count: int = RECORDS_PER_BATCH,
    record_bytes: int = RECORD_BYTES,
) -> bytes:
    records = [Record(offset, NOW_MS, None, b"x" * record_bytes) for offset in range(records_count)]
    return bytes(
        build_batch(
            records,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


def produce_request(
    batches: dict[int, bytes], transactional_id: str | None = None, topic_id: bytes = ZERO_UUID
) -> ProduceRequest:
    """For a version that knows topics by name, or, with an id, by that."""
    partitions = [PartitionProduceData(index=index, records=memoryview(one)) for index, one in batches.items()]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=TOPIC, topic_id=topic_id, partition_data=partitions)],
    )


def require_success(reply: Any) -> None:
    for topic in reply.responses:
        for partition in topic.partition_responses:
            assert partition.error_code == 0, partition


REPLAYS: dict[str, Replay] = {
    "produce": produce,
    "produce, refused": produce_refused,
    "produce, 16 that arrive together": produce_together,
    "produce, idempotent": produce_idempotent,
    "produce, with a quota of another client": produce_with_a_quota_of_another,
    "produce, with a quota": produce_with_a_quota,
    "produce, 16 that arrive together, with a quota": produce_together_with_a_quota,
    "fetch": fetch,
    "fetch, with a quota": fetch_with_a_quota,
    "fetch that waits for a produce": fetch_that_waits,
    "fetch without news in a session of 100 partitions": fetch_without_news,
    "add_partitions_to_txn": add_partitions_to_txn,
    "produce to 3 partitions in a transaction": produce_in_transaction,
    "produce to 3 partitions in a transaction, one by one": produce_in_transaction_one_by_one,
    "produce of one record to 3 partitions in a transaction, one by one": produce_single_records_in_transaction,
    "end_txn of 3 partitions": end_txn,
    "produce to 3 partitions in a transaction of version 2": produce_in_transaction_of_version_2,
    "end_txn of version 2, 3 partitions": end_txn_of_version_2,
    "offset_commit": offset_commit,
    "metadata of a topic": metadata,
    "metadata of all topics": metadata_of_all_topics,
}
