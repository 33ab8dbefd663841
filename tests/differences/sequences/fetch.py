"""Fetch: what is read from where, limits, waits, isolation, epochs, topic ids and sessions."""

from __future__ import annotations

import time

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from fencepost.protocol.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from fencepost.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.differences.exchange import ATTEMPTS, PAUSE_S, TRANSACTION, Exchange, batch

BY_ID = 13
NO_SUCH_ID = bytes(15) + b"\x63"
NO_SESSION, NEW_SESSION = -1, 0
UNKNOWN = "nothing"
WAIT_MS = 1_500
TIMED_VERSIONS = (4, 12, 18)  # where it is also seen whether the reply came at once


class Fetching:
    """Fetch requests of one version for topics by name or, from version 13 on, by id."""

    def __init__(self, exchange: Exchange, version: int) -> None:
        self.exchange = exchange
        self.version = version

    def topic(self, name: str, *partitions: FetchPartition) -> FetchTopic:
        if self.version < BY_ID:
            return FetchTopic(topic=name, partitions=list(partitions))
        return FetchTopic(topic_id=self._id(name), partitions=list(partitions))

    def forgotten(self, name: str, *partitions: int) -> ForgottenTopic:
        if self.version < BY_ID:
            return ForgottenTopic(topic=name, partitions=list(partitions))
        return ForgottenTopic(topic_id=self._id(name), partitions=list(partitions))

    def _id(self, name: str) -> bytes:
        return NO_SUCH_ID if name == UNKNOWN else self.exchange.topic_id(name)

    def ask(self, situation: str, *topics: FetchTopic, **fields: object) -> object:
        values: dict[str, object] = {"max_wait_ms": 0, "min_bytes": 1} | fields
        request = FetchRequest(topics=list(topics), **values)  # type: ignore[arg-type]
        if values["max_wait_ms"] != WAIT_MS:
            return self.exchange.ask(situation, request, self.version)
        if self.version not in TIMED_VERSIONS:
            return None
        started_s = time.monotonic()
        reply = self.exchange.ask(situation, request, self.version)
        waited_ms = (time.monotonic() - started_s) * 1000
        self.exchange.note(f"when: {situation}", self.version, "later" if waited_ms > WAIT_MS / 2 else "at once")
        return reply


def at(offset: int, *, partition: int = 0, maximum_bytes: int = 1_000_000, **fields: object) -> FetchPartition:
    return FetchPartition(partition, fetch_offset=offset, partition_max_bytes=maximum_bytes, **fields)  # type: ignore[arg-type]


def run(exchange: Exchange) -> None:
    filled = exchange.create_topic("filled", partitions=3)
    exchange.fill(filled, batch(), batch(3), batch(1), batch(4))
    exchange.fill(filled, batch(5), partition=1)
    other = exchange.create_topic("other")
    exchange.fill(other, batch(2))
    transactional = aborted_and_open(exchange)
    for version in exchange.versions(FetchRequest):
        fetching = Fetching(exchange, version)
        positions(fetching, filled, other)
        limits(fetching, filled, other)
        isolation(fetching, transactional)
        if version >= 7:
            sessions(fetching, filled, other)
    ends_of_epochs(exchange, filled)


def positions(fetching: Fetching, filled: str, other: str) -> None:
    topic, ask = fetching.topic, fetching.ask
    ask("from the beginning", topic(filled, at(0)))
    ask("from the middle of a batch", topic(filled, at(3)))
    ask("from the end", topic(filled, at(10)))
    ask("from behind the end", topic(filled, at(11)))
    ask("from a negative offset", topic(filled, at(-1)))
    ask("an empty partition", topic(filled, at(0, partition=2)))
    ask("several partitions", topic(filled, at(9, partition=0), at(0, partition=1)), topic(other, at(0)))
    ask("an unknown partition", topic(filled, at(0, partition=7)))
    ask("a negative partition", topic(filled, at(0, partition=-1)))
    ask("an unknown topic", topic(UNKNOWN, at(0)))
    ask("an unknown and a known topic", topic(UNKNOWN, at(0)), topic(other, at(0)))
    ask("no topics", max_wait_ms=WAIT_MS)
    ask("a topic without partitions", topic(filled), max_wait_ms=WAIT_MS)
    ask("a partition twice", topic(filled, at(0), at(9)))
    if fetching.version >= 9:
        ask("the current epoch", topic(filled, at(9, current_leader_epoch=0)))
        ask("an epoch of the future", topic(filled, at(9, current_leader_epoch=5)))
    if fetching.version >= 12:
        ask("the last fetched epoch", topic(filled, at(9, current_leader_epoch=0, last_fetched_epoch=0)))
        ask("a last fetched epoch of the future", topic(filled, at(9, last_fetched_epoch=5)))
        ask("a last fetched epoch, behind the end", topic(filled, at(11, last_fetched_epoch=0)))
        ask("another cluster's id", topic(filled, at(9)), cluster_id="another")
    if fetching.version >= 18:
        ask("a high watermark", topic(filled, at(9, high_watermark=10)))
    ask("a rack", topic(filled, at(9)), rack_id="rack")
    if fetching.version < 15:
        ask("as a follower", topic(filled, at(9)), replica_id=1)
        ask("as an unknown follower", topic(filled, at(9)), replica_id=5)
        ask("as a debugging consumer", topic(filled, at(9)), replica_id=-2)
    else:
        ask("as a follower", topic(filled, at(9)), replica_state=ReplicaState(1, 1))
        ask("as an unknown follower", topic(filled, at(9)), replica_state=ReplicaState(5, 1))


def limits(fetching: Fetching, filled: str, other: str) -> None:
    topic, ask = fetching.topic, fetching.ask
    ask("0 bytes of a partition", topic(filled, at(0, maximum_bytes=0)))
    ask("1 byte of a partition", topic(filled, at(0, maximum_bytes=1)))
    ask("-1 bytes of a partition", topic(filled, at(0, maximum_bytes=-1)))
    ask("100 bytes of a partition", topic(filled, at(0, maximum_bytes=100)))
    ask("300 bytes of a partition", topic(filled, at(0, maximum_bytes=300)))
    ask("0 bytes in all", topic(filled, at(0)), max_bytes=0)
    ask("1 byte in all", topic(filled, at(0)), topic(other, at(0)), max_bytes=1)
    ask("200 bytes in all", topic(filled, at(0)), topic(other, at(0)), max_bytes=200)
    ask("-1 bytes in all", topic(filled, at(0)), max_bytes=-1)
    ask("1 byte in all, an empty partition first", topic(filled, at(0, partition=2), at(0)), max_bytes=1)
    ask("more than there is", topic(filled, at(0)), min_bytes=1_000_000, max_wait_ms=20)
    ask("at least 0 bytes", topic(filled, at(10)), min_bytes=0, max_wait_ms=WAIT_MS)
    ask("at least -1 bytes", topic(filled, at(10)), min_bytes=-1, max_wait_ms=WAIT_MS)
    ask("a negative wait", topic(filled, at(10)), min_bytes=1, max_wait_ms=-1)
    ask("an error ends the wait", topic(filled, at(10), at(0, partition=7)), max_wait_ms=WAIT_MS)
    ask("out of range ends the wait", topic(filled, at(11)), max_wait_ms=WAIT_MS)


def aborted_and_open(exchange: Exchange) -> str:
    """A partition with a committed, an aborted and an open transaction, and plain batches between."""
    name = exchange.create_topic("transactions")
    for transactional_id, outcome in (("committed", True), ("aborted", False), ("open", None)):
        own = exchange.name(transactional_id)
        exchange.find_coordinator(own, TRANSACTION)
        identity = exchange.call(InitProducerIdRequest(own, 600_000), 4)
        exchange.remember(identity.producer_id, f"the producer of the {transactional_id} one")
        exchange.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=own,
                v3_and_below_producer_id=identity.producer_id,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name, [0])],
            ),
            3,
            retry=(ErrorCode.CONCURRENT_TRANSACTIONS,),
        )
        records = batch(2, producer_id=identity.producer_id, epoch=0, sequence=0, transactional=True)
        data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, memoryview(records))])]
        exchange.call(ProduceRequest(own, -1, 5_000, data), 9)
        exchange.fill(name, batch(1))
        if outcome is not None:
            exchange.call(EndTxnRequest(own, identity.producer_id, 0, outcome), 3)
            _wait_for_end(exchange, name, 8 if not outcome else 4)
    return name


def _wait_for_end(exchange: Exchange, name: str, end: int) -> None:
    """Until the marker is there, which Kafka writes after it has answered."""
    latest = ListOffsetsTopic(name, [ListOffsetsPartition(timestamp=-1)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=1, topics=[latest])
    for _ in range(ATTEMPTS):
        if exchange.call(request, 7).topics[0].partitions[0].offset >= end:
            break
        time.sleep(PAUSE_S)


def isolation(fetching: Fetching, name: str) -> None:
    topic, ask = fetching.topic, fetching.ask
    for situation, level in (("uncommitted", 0), ("committed", 1)):
        ask(f"{situation}, from the beginning", topic(name, at(0)), isolation_level=level)
        ask(f"{situation}, from the aborted one on", topic(name, at(4)), isolation_level=level)
        ask(f"{situation}, only a committed one", topic(name, at(0, maximum_bytes=1)), isolation_level=level)
        ask(f"{situation}, from the abort marker on", topic(name, at(7)), isolation_level=level)
        ask(f"{situation}, from the last stable offset on", topic(name, at(8)), isolation_level=level)
        ask(f"{situation}, from the end", topic(name, at(11)), isolation_level=level)
        ask(f"{situation}, behind the end", topic(name, at(12)), isolation_level=level)
    ask("an isolation level that does not exist", topic(name, at(0)), isolation_level=7)


def sessions(fetching: Fetching, filled: str, other: str) -> None:
    topic, ask, forgotten = fetching.topic, fetching.ask, fetching.forgotten
    opened = ask("session: begun", topic(filled, at(9), at(5, partition=1)), session_epoch=NEW_SESSION)
    session_id = getattr(opened, "session_id", 0)
    ask("session: the same session begun again", topic(filled, at(9)), session_id=12_345, session_epoch=NEW_SESSION)
    ask("session: without news", session_id=session_id, session_epoch=1)
    ask("session: with another topic", topic(other, at(0)), session_id=session_id, session_epoch=2)
    ask("session: the same again", topic(other, at(0)), session_id=session_id, session_epoch=3)
    ask("session: a position moves", topic(other, at(2)), session_id=session_id, session_epoch=4)
    ask("session: an unknown partition", topic(other, at(0, partition=4)), session_id=session_id, session_epoch=5)
    ask("session: an unknown topic", topic(UNKNOWN, at(0)), session_id=session_id, session_epoch=6)
    forget = [forgotten(other, 0, 4), forgotten(UNKNOWN, 0)]
    ask("session: partitions are forgotten", forgotten_topics_data=forget, session_id=session_id, session_epoch=7)
    ask("session: an epoch of the future", session_id=session_id, session_epoch=10)
    ask("session: an old epoch", session_id=session_id, session_epoch=2)
    ask("session: one that does not exist", session_id=2_000_000_000, session_epoch=1)
    ask("session: id 0 with an epoch", session_id=0, session_epoch=1)
    ask("session: the end of one", topic(filled, at(9)), session_id=session_id, session_epoch=NO_SESSION)
    ask("session: after its end", session_id=session_id, session_epoch=8)
    ask("session: the end of one that does not exist", session_id=2_000_000_000, session_epoch=NO_SESSION)


def ends_of_epochs(exchange: Exchange, filled: str) -> None:
    for version in exchange.versions(OffsetForLeaderEpochRequest):

        def ask(situation: str, name: str, *, version: int = version, **fields: int) -> None:
            lookup = OffsetForLeaderPartition(**({"leader_epoch": 0} | fields))
            request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(name, [lookup])])
            exchange.ask(f"end of epoch: {situation}", request, version)

        ask("the current one", filled)
        ask("one of the future", filled, leader_epoch=7)
        ask("a negative one", filled, leader_epoch=-1)
        ask("an empty partition", filled, partition=2)
        ask("an unknown partition", filled, partition=8)
        ask("a negative partition", filled, partition=-1)
        ask("an unknown topic", UNKNOWN)
        ask("the leader's epoch is known", filled, current_leader_epoch=0)
        ask("the leader's epoch is of the future", filled, current_leader_epoch=3)
        ask("an empty name", "")
        exchange.ask("end of epoch: no topics", OffsetForLeaderEpochRequest(), version)
