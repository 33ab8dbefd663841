"""Requests of the APIs that are cached, for `tests.support.equal_brokers`."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.support.equal_brokers import EqualBrokers
from tests.support.handler_context import batch

TIMES = 3
"""Each request is sent so often: decoded, cached without the form of its reply, cached with it."""
TRANSACTIONAL_ID = "application"


def produce(
    brokers: EqualBrokers,
    version: int,
    *batches: bytes | None,
    topic: str = "orders",
    topic_id: bytes | None = None,
    first: int = 0,
    acks: int = -1,
    transactional_id: str | None = None,
) -> ProduceRequest:
    """One batch for each partition from `first` on."""
    partitions = [PartitionProduceData(index=first + index, records=one) for index, one in enumerate(batches)]
    named: dict[str, Any] = {"name": topic}
    if version >= 13:
        named = {"topic_id": brokers.topic_id(topic) if topic_id is None else topic_id}
    topics = [TopicProduceData(partition_data=partitions, **named)]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1_000, topic_data=topics)


def in_transaction(producer: tuple[int, int], sequence: int) -> bytes:
    return batch(
        b"in a transaction",
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )


def fetch(
    brokers: EqualBrokers,
    version: int,
    *partitions: int,
    topic: str = "orders",
    topic_id: bytes | None = None,
    offset: int = 0,
    leader_epoch: int = -1,
    **fields: Any,
) -> FetchRequest:
    requested = [
        FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1_000_000, current_leader_epoch=leader_epoch)
        for partition in partitions
    ]
    topics = []
    if version >= 13 and partitions:
        topics = [FetchTopic(topic_id=brokers.topic_id(topic) if topic_id is None else topic_id, partitions=requested)]
    elif partitions:
        topics = [FetchTopic(topic=topic, partitions=requested)]
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "topics": topics, **fields})


def commit(
    brokers: EqualBrokers,
    version: int,
    offset: int,
    *partitions: int,
    topic: str = "orders",
    topic_id: bytes | None = None,
    **fields: Any,
) -> OffsetCommitRequest:
    committed = [OffsetCommitRequestPartition(partition, committed_offset=offset) for partition in partitions]
    if version >= 10:
        found = brokers.topic_id(topic) if topic_id is None else topic_id
        topics = [OffsetCommitRequestTopic(topic_id=found, partitions=committed)]
    else:
        topics = [OffsetCommitRequestTopic(name=topic, partitions=committed)]
    return OffsetCommitRequest(**{"group_id": "g", "topics": topics, **fields})


def add(producer: tuple[int, int], version: int, *partitions: int, topic: str = "orders") -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=TRANSACTIONAL_ID, producer_id=producer[0], producer_epoch=producer[1], topics=topics
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def end(
    producer: tuple[int, int], *, committed: bool = True, transactional_id: str = TRANSACTIONAL_ID
) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=committed
    )


async def new_producer(brokers: EqualBrokers, transactional_id: str | None = TRANSACTIONAL_ID) -> tuple[int, int]:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    await brokers.settle()  # one side may still be completing a transaction, and refuse
    response = await brokers.send(request, 4)
    assert response.error_code == ErrorCode.NONE
    return response.producer_id, response.producer_epoch


def errors(response: Any) -> set[int]:
    """All error codes of a response."""
    found = set()
    for name in response.__slots__:
        value = getattr(response, name)
        if name.endswith("error_code"):
            found.add(int(value))
        elif isinstance(value, list):
            found |= {error for one in value if hasattr(one, "__slots__") for error in errors(one)}
    return found - {0} or {0}


async def expect(brokers: EqualBrokers, request: Any, version: int, *expected: int) -> None:
    """Send a request several times; `expected` are the error codes, of each time or of all times.

    From the second time on, it is found in the cache.
    """
    known_count = brokers.known_count
    for number in range(TIMES):
        response = await brokers.send(request, version)
        error = expected[number] if len(expected) > 1 else expected[0]
        assert errors(response) == {error}, (request, response)
    assert brokers.known_count >= known_count + TIMES - 1


async def one_of_each(brokers: EqualBrokers) -> list[tuple[Any, int, str, Any]]:
    """Requests with their version, the name of their API, and what the gate takes note of."""
    producer = await new_producer(brokers)
    sent = batch(b"judged")
    return [
        (produce(brokers, 12, sent), 12, "Produce", sent),
        (produce(brokers, 7, sent, sent), 7, "Produce", sent),
        (produce(brokers, 12, sent, acks=0), 12, "Produce", sent),
        (fetch(brokers, 12, 0, offset=1), 12, "Fetch", 1),
        (commit(brokers, 9, 77, 0), 9, "OffsetCommit", 77),
        (add(producer, 3, 0), 3, "AddPartitionsToTxn", producer[0]),
        (end(producer), 4, "EndTxn", producer[1]),
    ]
