"""Two real nodes in one event loop, on loopback sockets: node 1 coordinates transactions, node 2 leads everything else
until a test moves it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fencepost.broker.config import Settings
from fencepost.broker.hosting.peers import PeerUnreachable, TcpPeers
from fencepost.broker.hosting.placement import NodeAddress, PlacementTable, PlacementView
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.node import Node
from fencepost.broker.transaction.metadata import Producer
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.markers import WriteTxnMarkersRequest
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from fencepost.protocol.record_batch import iterate_batches, read_records
from tests.broker.supervision.planting import until
from tests.support.handler_context import batch

COORDINATOR = 1
DATA = 2
NODE_IDS = (COORDINATOR, DATA)
TOPIC = "data"
GROUP = "group"
TIMEOUT_S = 10.0


class WatchedPeers(TcpPeers):
    """The real connections, with what goes over them noted, and a place where a test can interfere."""

    def __init__(self, node_id: int, address_of: Callable[[int], NodeAddress | None]) -> None:
        super().__init__(node_id, address_of)
        self.sent: list[Any] = []
        self.interfere: Callable[[Any, Callable[[], Awaitable[Any]]], Awaitable[Any]] | None = None

    async def request(self, node_id: int, message: Any, version: int, timeout_s: float) -> Any:
        self.sent.append(message)
        if self.interfere is None:
            return await super().request(node_id, message, version, timeout_s)
        request = super().request
        return await self.interfere(message, lambda: request(node_id, message, version, timeout_s))

    def sent_of(self, message_type: type[Any]) -> list[Any]:
        return [message for message in self.sent if isinstance(message, message_type)]

    def hold_markers(self) -> asyncio.Event:
        """Keep WriteTxnMarkers back until the event is set."""
        gate = asyncio.Event()

        async def interfere(message: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
            if isinstance(message, WriteTxnMarkersRequest):
                await gate.wait()
            return await proceed()

        self.interfere = interfere
        return gate

    def cut(self) -> None:
        """Break the connections to all other nodes."""
        for link in self._links.values():
            link.give_up("cut by the test")

    def lose_once(self, message_type: type[Any], what: str) -> None:
        """Break the connection the next time that such a request is made: before its "request" or its "response"
        arrives."""

        async def interfere(message: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
            if not isinstance(message, message_type):
                return await proceed()
            self.interfere = None
            if what == "response":
                await proceed()
            self.cut()
            raise PeerUnreachable(f"the {what} was lost")

        self.interfere = interfere

    def lose_every(self, count: int) -> None:
        """Break the connection once in `count` requests: in turn before the request and before the reply arrives."""
        made = 0

        async def interfere(_: Any, proceed: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal made
            made += 1
            if made % count:
                return await proceed()
            if made // count % 2:
                await proceed()
            self.cut()
            raise PeerUnreachable("lost")

        self.interfere = interfere


class Cluster:
    """The two nodes, what they share, and a client of them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.table = PlacementTable(
            lambda name: COORDINATOR if name.topic == TRANSACTION_STATE_TOPIC else DATA,
        )
        self.store = InMemoryMetadataStore()
        self.nodes: dict[int, Node] = {}
        self.views: dict[int, PlacementView] = {}
        self.peers: dict[int, WatchedPeers] = {}
        self.client = TcpPeers(99, self.table.alive.get)

    async def start(self, node_id: int) -> Node:
        view = self.views[node_id] = self.table.view(node_id)
        peers = self.peers[node_id] = WatchedPeers(node_id, view.address)
        settings: dict[str, Any] = {
            "node_id": node_id,
            "log_dirs": str(self.directory / str(node_id)),
            "listeners": ("PLAINTEXT://127.0.0.1:0",),
            "transaction_state_log_num_partitions": 2,
            "offsets_topic_num_partitions": 2,
            "fencepost_shutdown_drain_ms": 500,
        }
        node = Node(Settings(**settings), store=self.store.for_another_node(), placement=view, peers=peers)
        await node.start()
        self.nodes[node_id] = node
        self.table.register(NodeAddress(node_id, node.address.host, node.address.port))
        return node

    async def stop(self, node_id: int) -> None:
        self.table.unregister(node_id)
        await self.nodes.pop(node_id).stop()
        self.table.forget(self.views.pop(node_id))

    def node(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def copy_directory(self, name: TopicPartition, source: int, target: int) -> None:
        destination = self.directory / str(target) / str(name)
        shutil.rmtree(destination, ignore_errors=True)
        shutil.copytree(self.directory / str(source) / str(name), destination)

    async def move(self, name: TopicPartition, source: int, target: int) -> None:
        """Take a partition to the other node with its directory, and wait until it is led there."""
        self.table.place(name, None)
        self.copy_directory(name, source, target)
        self.table.place(name, target)
        await until(lambda: self.nodes[target].services.topics.log(name) is not None)

    # Requests

    async def send(self, node_id: int, message: Any, version: int) -> Any:
        return await self.client.request(node_id, message, version, TIMEOUT_S)

    async def create_topics(self) -> None:
        for name in (TOPIC, "other"):
            await self.nodes[DATA].services.topics.create(name, 2, {})
        await self.nodes[COORDINATOR].services.transactions.ensure_available()
        await self.nodes[DATA].services.topics.ensure_internal("__consumer_offsets")
        await until(lambda: all(len(node.services.topics.metadata) == 4 for node in self.nodes.values()))
        await self.nodes[DATA].services.groups.ensure_loaded()

    async def init(self, transactional_id: str, node_id: int = COORDINATOR) -> Producer:
        while True:
            response = await self.send(
                node_id, InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), 4
            )
            if response.error_code != 51:
                assert response.error_code == 0, response
                return Producer(response.producer_id, response.producer_epoch)

    async def add_partitions(self, transactional_id: str, producer: Producer, *names: TopicPartition) -> int:
        response = await self.send(
            COORDINATOR,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=transactional_id,
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnTopic(name=name.topic, partitions=[name.partition]) for name in names
                ],
            ),
            3,
        )
        (error,) = {
            partition.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }
        return int(error)

    async def produce(
        self,
        transactional_id: str | None,
        producer: Producer,
        name: TopicPartition,
        *values: bytes,
        version: int,
        base_sequence: int = 0,
        node_id: int = DATA,
    ) -> int:
        """Produce in a transaction, or without a transactional id outside of one; return the error code."""
        records = batch(
            *values,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=base_sequence,
            is_transactional=transactional_id is not None,
            timestamp_ms=SystemClock().now_ms(),
        )
        response = await self.send(
            node_id,
            ProduceRequest(
                transactional_id=transactional_id,
                acks=-1,
                timeout_ms=5000,
                topic_data=[
                    TopicProduceData(
                        name=name.topic,
                        partition_data=[PartitionProduceData(index=name.partition, records=records)],
                    )
                ],
            ),
            version,
        )
        return int(response.responses[0].partition_responses[0].error_code)

    async def end(
        self, transactional_id: str, producer: Producer, *, committed: bool, version: int, node_id: int = COORDINATOR
    ) -> Any:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        while True:
            response = await self.send(node_id, request, version)
            if response.error_code != 51:
                return response

    async def add_offsets(self, transactional_id: str, producer: Producer) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=GROUP,
        )
        return int((await self.send(COORDINATOR, request, 3)).error_code)

    async def commit_offset(
        self, transactional_id: str, producer: Producer, offset: int, *, version: int, node_id: int = DATA
    ) -> int:
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=GROUP,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=TOPIC,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
        )
        response = await self.send(node_id, request, version)
        return int(response.topics[0].partitions[0].error_code)

    async def committed_offset(self, node_id: int = DATA) -> tuple[int, int]:
        """Error and offset, of a reader with `require_stable`."""
        request = OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=GROUP, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
                )
            ],
            require_stable=True,
        )
        (group,) = (await self.send(node_id, request, 9)).groups
        if group.error_code:
            return group.error_code, -1
        found = group.topics[0].partitions[0]
        return found.error_code, found.committed_offset

    async def fetch(self, name: TopicPartition, *, node_id: int = DATA) -> tuple[int, list[bytes]]:
        """Error, and the values that a read_committed consumer gets."""
        request = FetchRequest(
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic=name.topic,
                    partitions=[FetchPartition(partition=name.partition, partition_max_bytes=1_000_000)],
                )
            ],
        )
        answer = (await self.send(node_id, request, 12)).responses[0].partitions[0]
        if answer.error_code:
            return answer.error_code, []
        aborted = {(found.producer_id, found.first_offset) for found in answer.aborted_transactions or ()}
        return 0, list(_committed_values(answer.records or b"", aborted))

    async def values(self, name: TopicPartition, count: int, *, node_id: int = DATA) -> list[bytes]:
        """The committed values of a partition, once there are `count`."""
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                error, values = await self.fetch(name, node_id=node_id)
                if error == 0 and len(values) >= count:
                    return values
                await asyncio.sleep(0.002)

    def state(self, transactional_id: str, node_id: int = COORDINATOR) -> str:
        """What the coordinator there says of a transaction: the name of its state, or of an error."""
        found = self.nodes[node_id].services.transactions.find(transactional_id)
        return found.name if not hasattr(found, "state") else found.state.name


def _committed_values(records: bytes, aborted: set[tuple[int, int]]) -> Iterable[bytes]:
    active: set[int] = set()
    for found in iterate_batches(records):
        header = found.header
        active |= {producer_id for producer_id, first_offset in aborted if first_offset == header.base_offset}
        if header.is_control:
            active.discard(header.producer_id)
        elif header.producer_id not in active:
            for record in read_records(found):
                assert record.value is not None
                yield bytes(record.value)


@asynccontextmanager
async def running_cluster(directory: Path) -> AsyncIterator[Cluster]:
    """Both nodes, with the topics `data` and `other` of two partitions each and both internal topics."""
    cluster = Cluster(directory)
    try:
        for node_id in NODE_IDS:
            await cluster.start(node_id)
        await cluster.create_topics()
        yield cluster
    finally:
        await cluster.client.close()
        for node_id in list(cluster.nodes):
            await cluster.stop(node_id)
