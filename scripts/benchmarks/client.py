"""A client that costs little: request objects of the protocol package over one blocking socket, many in flight."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from fencepost.protocol.schema import decode
from scripts.benchmarks.figures import Broker

CLIENT_ID = "fencepost-bench"
IN_FLIGHT_COUNT = 64
FETCH_WAIT_MS = 10_000
RETRY_PAUSE_S = 0.001
READ_COMMITTED, READ_UNCOMMITTED = 1, 0
LATEST_TIMESTAMP = -1
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a broker that has just been started may say for a while."""

VERSIONS = {
    "AddOffsetsToTxnRequest": 3,
    "AddPartitionsToTxnRequest": 3,
    "AlterClientQuotasRequest": 1,
    "ConsumerGroupHeartbeatRequest": 1,
    "CreatePartitionsRequest": 3,
    "CreateTopicsRequest": 5,
    "DeleteRecordsRequest": 2,
    "DeleteTopicsRequest": 5,
    "DescribeConfigsRequest": 4,
    "DescribeLogDirsRequest": 4,
    "DescribeProducersRequest": 0,
    "DescribeTopicPartitionsRequest": 0,
    "EndTxnRequest": 5,
    "FetchRequest": 12,
    "FindCoordinatorRequest": 4,
    "HeartbeatRequest": 4,
    "InitProducerIdRequest": 5,
    "JoinGroupRequest": 9,
    "ListGroupsRequest": 4,
    "ListOffsetsRequest": 7,
    "ListTransactionsRequest": 0,
    "MetadataRequest": 9,
    "OffsetCommitRequest": 9,
    "OffsetDeleteRequest": 0,
    "OffsetFetchRequest": 8,
    "ProduceRequest": 12,
    "SyncGroupRequest": 5,
    "TxnOffsetCommitRequest": 3,
    "WriteTxnMarkersRequest": 1,
}
"""The version in which each request is sent."""


class RefusedError(Exception):
    """A broker answered a request of a benchmark with an error."""


class Client:
    """One connection. Replies come in the order of the requests. Raises OSError when the broker goes away."""

    def __init__(self, address: tuple[str, int], *, timeout_s: float = 60.0) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = self._socket.makefile("rb", buffering=256 * 1024)
        self._expected: deque[tuple[type[Any], int, int]] = deque()
        self._correlation_ids = itertools.count()

    def send(self, request: Any, *, version: int | None = None) -> None:
        """Send a request; its reply is for a later `receive`. version: if not that of `VERSIONS`."""
        api_key = request.api_key
        version = VERSIONS[type(request).__name__] if version is None else version
        correlation_id = next(self._correlation_ids) & 0x7FFFFFFF
        self._socket.sendall(request_frame(correlation_id, CLIENT_ID, request, version))
        response_header_bytes = 5 if response_header_version(api_key, version) >= 1 else 4
        self._expected.append((RESPONSES[api_key], version, response_header_bytes))

    def receive(self) -> Any:
        """The next reply."""
        response_type, version, header_bytes = self._expected.popleft()
        (length,) = struct.unpack(">i", self._read(4))
        return decode(response_type, self._read(length), version, header_bytes)

    def call(self, request: Any, *, version: int | None = None) -> Any:
        self.send(request, version=version)
        return self.receive()

    def pipeline(self, requests: Iterable[Any], *, in_flight_count: int = IN_FLIGHT_COUNT) -> Iterator[Any]:
        """The replies to requests, with a bounded number in flight."""
        for request in requests:
            if len(self._expected) >= in_flight_count:
                yield self.receive()
            self.send(request)
        while self._expected:
            yield self.receive()

    def close(self) -> None:
        self._received.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, length_bytes: int) -> bytes:
        content: bytes = self._received.read(length_bytes)
        if len(content) < length_bytes:
            raise ConnectionResetError("the broker closed the connection")
        return content


def connect(broker: Broker, *, timeout_s: float = 60.0) -> Client:
    """Connect as soon as the broker listens. Raises TimeoutError, BrokerEndedError."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            return Client(broker.address, timeout_s=timeout_s)
        except ConnectionRefusedError:
            broker.require_running()
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nothing listened on {broker.address} for {timeout_s} s") from None
            time.sleep(RETRY_PAUSE_S)


def wait_until_answered(client: Client, request: Any, *, version: int | None = None, timeout_s: float = 60.0) -> Any:
    """Repeat a request for as long as the answer is that the broker is not ready. Raises RefusedError, TimeoutError."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        reply = client.call(request, version=version)
        error = error_of(reply)
        if error is ErrorCode.NONE:
            return reply
        if error not in RETRIABLE:
            raise RefusedError(f"{type(request).__name__}: {error.name}")
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{type(request).__name__}: {error.name} for {timeout_s} s")
        time.sleep(RETRY_PAUSE_S)


def error_of(reply: Any) -> ErrorCode:
    """The first error in a reply, at any depth."""
    code = getattr(reply, "error_code", 0)
    for name in ("topics", "responses", "coordinators", "entries", "results_by_topic_v3_and_below"):
        for topic in getattr(reply, name, ()) or ():
            code = code or getattr(topic, "error_code", 0)
            for partitions in ("partitions", "partition_responses", "results_by_partition"):
                for partition in getattr(topic, partitions, ()) or ():
                    code = code or getattr(partition, "error_code", 0) or getattr(partition, "partition_error_code", 0)
    return ErrorCode(code)


def require_success(reply: Any) -> Any:
    """The reply, if there is no error in it. Raises RefusedError."""
    error = error_of(reply)
    if error is not ErrorCode.NONE:
        raise RefusedError(f"{type(reply).__name__}: {error.name}")
    return reply


# Requests


def create_topic(client: Client, name: str, partition_count: int, configs: dict[str, str] | None = None) -> None:
    """Create a topic and wait until the leaders of its partitions answer."""
    settings = [CreatableTopicConfig(key, value) for key, value in (configs or {}).items()]
    topic = CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1, configs=settings)
    require_success(client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000)))
    metadata = wait_until_answered(client, MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    led: dict[int, list[int]] = {}
    for partition in metadata.topics[0].partitions:
        led.setdefault(partition.leader_id, []).append(partition.partition_index)
    addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
    # Apache Kafka names leaders before they have opened their logs.
    for leader_id, partitions in led.items():
        if len(addresses) == 1:
            wait_until_answered(client, offsets_request(name, partitions, READ_UNCOMMITTED))
        else:
            with Client(addresses[leader_id]) as leader:
                wait_until_answered(leader, offsets_request(name, partitions, READ_UNCOMMITTED))


def delete_topic(client: Client, name: str) -> None:
    """Raises RefusedError."""
    require_success(client.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)))


def produce_request(
    topic: str, batches: Iterable[tuple[int, bytes | bytearray]], transactional_id: str | None = None
) -> ProduceRequest:
    """Batches by partition."""
    partitions = [PartitionProduceData(index=partition, records=memoryview(batch)) for partition, batch in batches]
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=topic, partition_data=partitions)],
    )


def fetch_request(topic: str, offset: int, fetch_bytes: int) -> FetchRequest:
    """One fetch of partition 0, without a session; it waits for long where there is nothing."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=fetch_bytes)
    return FetchRequest(
        max_wait_ms=FETCH_WAIT_MS,
        min_bytes=1,
        max_bytes=fetch_bytes,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )


def init_producer_id_request(transactional_id: str | None, timeout_ms: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)


def end_transaction_request(
    transactional_id: str, producer: tuple[int, int], *, committed: bool = True
) -> EndTxnRequest:
    producer_id, producer_epoch = producer
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer_id, producer_epoch=producer_epoch, committed=committed
    )


def find_transaction_coordinator(client: Client, transactional_id: str) -> None:
    """Wait until there is a coordinator; the first time, its internal topic is made."""
    wait_until_answered(client, FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]))


def find_group_coordinator(client: Client, group_id: str) -> None:
    """The same for groups."""
    wait_until_answered(client, FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id]))


def init_producers(client: Client, transactional_ids: Iterable[str], timeout_ms: int) -> list[tuple[int, int]]:
    """The (producer id, epoch) of each transactional id, in order. Raises RefusedError."""
    transactional_ids = list(transactional_ids)
    find_transaction_coordinator(client, transactional_ids[0])
    wait_until_answered(client, init_producer_id_request(transactional_ids[0], timeout_ms))
    replies = init_each(client, transactional_ids, timeout_ms)
    return [(reply.producer_id, reply.producer_epoch) for reply in replies]


def init_each(client: Client, transactional_ids: Iterable[str | None], timeout_ms: int) -> list[Any]:
    """One reply for each. A broker that has given out its block of ids refuses while it gets the next: ask again."""
    requests = [init_producer_id_request(transactional_id, timeout_ms) for transactional_id in transactional_ids]
    replies = list(client.pipeline(requests))
    return [
        wait_until_answered(client, request) if reply.error_code else reply
        for request, reply in zip(requests, replies, strict=True)
    ]


def end_offsets(client: Client, topic: str, partition_count: int, isolation_level: int) -> list[int]:
    """Last stable offsets or high watermarks, by partition."""
    reply = require_success(client.call(offsets_request(topic, range(partition_count), isolation_level)))
    return [partition.offset for partition in sorted(reply.topics[0].partitions, key=lambda one: one.partition_index)]


def offsets_request(topic: str, partitions: Iterable[int], isolation_level: int) -> ListOffsetsRequest:
    """Where each partition ends."""
    asked = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST_TIMESTAMP) for partition in partitions]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
    )
