"""Transactions of both versions: the reply of each API to each producer, in each state, at every version.

Situations that only count for versions of the engine are in tests/recording/transaction_answers.py.
"""

from __future__ import annotations

import time

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from fencepost.protocol.messages.markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest, ListTransactionsRequest
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    InitProducerIdRequest,
)
from tests.differences.exchange import ATTEMPTS, GROUP, PAUSE_S, TRANSACTION, Exchange, batch
from tests.differences.sequences.produce import Producing

FAR = 90_000
NO_SUCH_ID = bytes(15) + b"\x63"
BUSY = (ErrorCode.CONCURRENT_TRANSACTIONS,)
LONGEST_TIMEOUT_MS = 900_000


class Transactional:
    """One transactional producer."""

    def __init__(self, exchange: Exchange, base: str, version: int) -> None:
        self.exchange = exchange
        self.transactional_id = exchange.name(base, version)
        exchange.find_coordinator(self.transactional_id, TRANSACTION)
        reply = exchange.call(InitProducerIdRequest(self.transactional_id, 60_000), 5)
        exchange.remember(reply.producer_id, f"the producer of {base}")
        self.producer_id: int = reply.producer_id
        self.epoch: int = reply.producer_epoch

    def adding(
        self, *topics: AddPartitionsToTxnTopic, shift: int = 0, epoch: int | None = None
    ) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id + shift,
            v3_and_below_producer_epoch=self.epoch if epoch is None else epoch,
            v3_and_below_topics=list(topics),
        )

    def ending(self, *, committed: bool, shift: int = 0, epoch: int | None = None) -> EndTxnRequest:
        given_epoch = self.epoch if epoch is None else epoch
        return EndTxnRequest(self.transactional_id, self.producer_id + shift, given_epoch, committed)

    def begin(self, topic: str) -> None:
        """A transaction of version 1 with one partition."""
        self.exchange.call(self.adding(AddPartitionsToTxnTopic(topic, [0])), 3, retry=BUSY)

    def end(self, *, committed: bool) -> None:
        """Returns when it has ended on all partitions, which Kafka does after it has answered."""
        self.exchange.call(self.ending(committed=committed), 3, retry=BUSY)
        state = "CompleteCommit" if committed else "CompleteAbort"
        for _ in range(ATTEMPTS):
            described = self.exchange.call(DescribeTransactionsRequest([self.transactional_id]), 0)
            if described.transaction_states[0].transaction_state == state:
                break
            time.sleep(PAUSE_S)


def run(exchange: Exchange) -> None:
    topic = exchange.create_topic("data", partitions=3)
    initialization(exchange, topic)
    additions(exchange, topic)
    endings(exchange, topic)
    data(exchange)
    deletions(exchange)
    offsets(exchange, topic)
    descriptions(exchange, topic)
    markers(exchange)


def initialization(exchange: Exchange, topic: str) -> None:
    for version in exchange.versions(InitProducerIdRequest):
        base = exchange.name("initialized", version)
        exchange.find_coordinator(base, TRANSACTION)

        def ask(situation: str, version: int = version, base: str = base, **fields: object) -> int:
            values: dict[str, object] = {"transactional_id": base, "transaction_timeout_ms": 60_000} | fields
            request = InitProducerIdRequest(**values)  # type: ignore[arg-type]
            reply = exchange.ask(f"initialize: {situation}", request, version, retry=BUSY)
            return int(reply.producer_id)

        producer_id = ask("a new id")
        ask("again")
        ask("a time-out of 0", transaction_timeout_ms=0)
        ask("a negative time-out", transaction_timeout_ms=-1)
        ask("the longest time-out", transaction_timeout_ms=LONGEST_TIMEOUT_MS)
        ask("a time-out that is too long", transaction_timeout_ms=LONGEST_TIMEOUT_MS + 1)
        ask("an empty id", transactional_id="")
        if version >= 3:
            ask("with an identity that is over", producer_id=producer_id, producer_epoch=0)
            ask("with the identity it has", producer_id=producer_id, producer_epoch=2)
            ask("with an epoch never given", producer_id=producer_id, producer_epoch=9)
            ask("with a producer id never given", producer_id=producer_id + FAR, producer_epoch=3)
            ask("with a producer id only", producer_id=producer_id)
            ask("with an epoch only", producer_epoch=3)
            fresh = exchange.name("initialized-fresh", version)
            ask("a new id with an identity", transactional_id=fresh, producer_id=producer_id + FAR, producer_epoch=3)
        left = Transactional(exchange, "left-open", version)
        left.begin(topic)
        ask("one left open", transactional_id=left.transactional_id)


def additions(exchange: Exchange, topic: str) -> None:
    for version in exchange.versions(AddPartitionsToTxnRequest, highest=3):
        own = Transactional(exchange, "adding", version)

        def ask(situation: str, request: AddPartitionsToTxnRequest, version: int = version) -> None:
            exchange.ask(f"add: {situation}", request, version)

        def at(*partitions: int, name: str = topic) -> AddPartitionsToTxnTopic:
            return AddPartitionsToTxnTopic(name, list(partitions))

        ask("a partition", own.adding(at(0)))
        ask("the same again", own.adding(at(0)))
        ask("several", own.adding(at(1, 2)))
        ask("a partition twice", own.adding(at(1, 1)))
        ask("nothing", own.adding())
        ask("a topic without partitions", own.adding(at()))
        ask("an unknown topic", own.adding(at(0, name="nothing")))
        ask("an unknown partition", own.adding(at(9)))
        ask("an unknown and a known partition", own.adding(at(0, 9)))
        ask("a negative partition", own.adding(at(-1)))
        ask("an empty name", own.adding(at(0, name="")))
        ask("an epoch never given", own.adding(at(0), epoch=4))
        ask("a negative epoch", own.adding(at(0), epoch=-1))
        ask("a producer id never given", own.adding(at(0), shift=FAR))
        ask("a negative producer id", own.adding(at(0), shift=-own.producer_id - 1))
        stranger = own.adding(at(0))
        stranger.v3_and_below_transactional_id = exchange.name("nobody")
        ask("a transactional id never initialized", stranger)
        nameless = own.adding(at(0))
        nameless.v3_and_below_transactional_id = ""
        ask("an empty transactional id", nameless)
        own.end(committed=False)
    for version in exchange.versions(AddOffsetsToTxnRequest):
        own = Transactional(exchange, "adding-offsets", version)

        def ask_offsets(
            situation: str, group: str, version: int = version, own: Transactional = own, **fields: int
        ) -> None:
            request = AddOffsetsToTxnRequest(
                own.transactional_id,
                own.producer_id + fields.get("shift", 0),
                fields.get("epoch", own.epoch),
                group,
            )
            exchange.ask(f"add offsets: {situation}", request, version)

        ask_offsets("a group", exchange.name("group"))
        ask_offsets("the same again", exchange.name("group"))
        ask_offsets("an empty group id", "")
        ask_offsets("an epoch never given", exchange.name("group"), epoch=4)
        ask_offsets("a producer id never given", exchange.name("group"), shift=FAR)
        nobody = AddOffsetsToTxnRequest(exchange.name("nobody"), own.producer_id, 0, exchange.name("group"))
        exchange.ask("add offsets: a transactional id never initialized", nobody, version)
        nobody = AddOffsetsToTxnRequest("", own.producer_id, 0, exchange.name("group"))
        exchange.ask("add offsets: an empty transactional id", nobody, version)
        own.end(committed=False)


def endings(exchange: Exchange, topic: str) -> None:
    for version in exchange.versions(EndTxnRequest):
        is_version_1 = version < 5

        def ask(situation: str, request: EndTxnRequest, version: int = version) -> None:
            exchange.ask(f"end: {situation}", request, version, retry=BUSY)

        own = Transactional(exchange, "ending", version)
        if is_version_1:
            ask("a commit of nothing", own.ending(committed=True))
            ask("an abort of nothing", own.ending(committed=False))
        else:
            ask("a commit of nothing", own.ending(committed=True))
            ask("an abort of nothing", own.ending(committed=False))
            own = Transactional(exchange, "ending-again", version)
        own.begin(topic)
        ask("an epoch never given", own.ending(committed=True, epoch=7))
        ask("a negative epoch", own.ending(committed=True, epoch=-1))
        ask("a producer id never given", own.ending(committed=True, shift=FAR))
        ask("a commit", own.ending(committed=True))
        ask("the commit again", own.ending(committed=True))
        ask("an abort after the commit", own.ending(committed=False))
        own = Transactional(exchange, "ending-in-abort", version)
        own.begin(topic)
        ask("an abort", own.ending(committed=False))
        ask("the abort again", own.ending(committed=False))
        ask("a commit after the abort", own.ending(committed=True))
        stranger = own.ending(committed=True)
        stranger.transactional_id = exchange.name("nobody")
        ask("a transactional id never initialized", stranger)
        stranger.transactional_id = ""
        ask("an empty transactional id", stranger)


def data(exchange: Exchange) -> None:
    for version in (3, 8, 9, 10, 11, 12, 13):
        producing = Producing(exchange, version)
        name = exchange.create_topic("written", partitions=3, version=version)
        own = Transactional(exchange, "writing", version)

        def ask(
            situation: str,
            sequence: int,
            *,
            partition: int = 0,
            epoch: int | None = None,
            shift: int = 0,
            transactional: bool = True,
            transactional_id: str | None = own.transactional_id,
            own: Transactional = own,
            producing: Producing = producing,
            name: str = name,
        ) -> None:
            records = batch(
                2,
                producer_id=own.producer_id + shift,
                epoch=own.epoch if epoch is None else epoch,
                sequence=sequence,
                transactional=transactional,
            )
            topic = producing.topic(name, (partition, records))
            request = producing.request(topic, transactional_id=transactional_id)
            exchange.ask(f"write: {situation}", request, producing.version, retry=BUSY)

        if version < 12:
            ask("before it was added", 0)
            own.begin(name)
        ask("the first", 0)
        ask("the first again", 0)
        ask("the next", 2)
        ask("a gap", 9)
        ask("without a transactional id", 4, transactional_id=None)
        ask("with another transactional id", 4, transactional_id=exchange.name("nobody"))
        ask("an epoch never given", 4, epoch=5)
        ask("a producer id never given", 0, shift=FAR)
        ask("outside of the transaction", 4, transactional=False, transactional_id=None)
        ask("another partition", 0, partition=1)
        if version < 12:
            own.end(committed=True)
            ask("after the end", 4)


def deletions(exchange: Exchange) -> None:
    """The records that open a transaction are deleted while it is open."""
    name = exchange.create_topic("cut")
    own, other = Transactional(exchange, "cutting", 0), Transactional(exchange, "cutting-too", 0)
    for producer in (own, other):
        producer.begin(name)
        records = batch(3, producer_id=producer.producer_id, epoch=producer.epoch, sequence=0, transactional=True)
        producing = Producing(exchange, 9)
        request = producing.request(producing.topic(name, (0, records)), transactional_id=producer.transactional_id)
        exchange.call(request, producing.version)

    def ask(situation: str) -> None:
        for isolation_level in (0, 1):
            wanted = FetchPartition(0, fetch_offset=3, partition_max_bytes=1 << 20)
            request = FetchRequest(isolation_level=isolation_level, topics=[FetchTopic(name, partitions=[wanted])])
            exchange.ask(f"cut: {situation}, isolation {isolation_level}", request, 12)

    def delete(offset: int) -> None:
        topic = DeleteRecordsTopic(name, [DeleteRecordsPartition(0, offset)])
        exchange.call(DeleteRecordsRequest([topic], 5_000), 2)

    ask("nothing")
    delete(1)
    ask("its first record")
    other.end(committed=True)
    ask("its first record, and another one has ended")
    delete(3)
    ask("its records")
    own.end(committed=False)
    ask("its records, and it has ended")


def offsets(exchange: Exchange, topic: str) -> None:
    topic_id = exchange.topic_id(topic)
    for version in exchange.versions(TxnOffsetCommitRequest):
        own = Transactional(exchange, "committing", version)
        group = exchange.name("group", version)
        exchange.find_coordinator(group, GROUP)

        def ask(
            situation: str,
            *,
            group: str = group,
            name: str = topic,
            partition: int = 0,
            offset: int = 5,
            metadata: str | None = "m",
            shift: int = 0,
            version: int = version,
            own: Transactional = own,
            **fields: object,
        ) -> None:
            committed = TxnOffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)
            asked = TxnOffsetCommitRequestTopic(name, topic_id if name == topic else NO_SUCH_ID, [committed])
            values: dict[str, object] = {
                "transactional_id": own.transactional_id,
                "group_id": group,
                "producer_id": own.producer_id + shift,
                "producer_epoch": own.epoch,
                "topics": [asked],
            }
            request = TxnOffsetCommitRequest(**(values | fields))  # type: ignore[arg-type]
            exchange.ask(f"offsets: {situation}", request, version, retry=BUSY)

        ask("before the group was added")
        if version < 5:
            request = AddOffsetsToTxnRequest(own.transactional_id, own.producer_id, own.epoch, group)
            exchange.call(request, 3, retry=BUSY)
        ask("an offset")
        ask("an offset again")
        ask("a negative offset", offset=-1)
        ask("no metadata", metadata=None)
        ask("empty metadata", metadata="")
        ask("metadata of the largest size", metadata="m" * 4096)
        ask("metadata that is too large", metadata="m" * 4097)
        ask("an unknown topic", name="nothing")
        ask("an unknown partition", partition=9)
        ask("a negative partition", partition=-1)
        ask("no topics", topics=[])
        ask("an epoch never given", producer_epoch=7)
        ask("a producer id never given", shift=FAR)
        ask("an empty group id", group_id="")
        ask("a transactional id never initialized", transactional_id=exchange.name("nobody"))
        if version >= 3:
            ask("an unknown member", member_id="somebody", generation_id_or_member_epoch=1)
            ask("a generation without member", generation_id_or_member_epoch=4)
            ask(
                "an unknown static member",
                group_instance_id="instance",
                member_id="somebody",
                generation_id_or_member_epoch=1,
            )


def descriptions(exchange: Exchange, topic: str) -> None:
    opened, ended = Transactional(exchange, "described-open", 0), Transactional(exchange, "described-ended", 0)
    opened.begin(topic)
    ended.begin(topic)
    ended.end(committed=True)
    fresh = Transactional(exchange, "described-new", 0)
    for version in exchange.versions(DescribeTransactionsRequest):
        for situation, names in {
            "an open one": [opened.transactional_id],
            "a new one": [fresh.transactional_id],
            "an unknown one": [exchange.name("nobody")],
            "an empty one": [""],
            "none": [],
            "one twice": [fresh.transactional_id, fresh.transactional_id],
        }.items():
            exchange.ask(f"describe: {situation}", DescribeTransactionsRequest(names), version)
        exchange.ask_until(
            "describe: one that has ended",
            DescribeTransactionsRequest([ended.transactional_id]),
            version,
            lambda reply: reply.transaction_states[0].transaction_state == "CompleteCommit",
        )
    for version in exchange.versions(ListTransactionsRequest):

        def ask(situation: str, version: int = version, **fields: object) -> None:
            values: dict[str, object] = {"producer_id_filters": [opened.producer_id, fresh.producer_id]} | fields
            request = ListTransactionsRequest(**values)  # type: ignore[arg-type]
            exchange.ask(f"list: {situation}", request, version)

        ask("two producers")
        ask("an unknown producer", producer_id_filters=[opened.producer_id + FAR])
        ask("a negative producer", producer_id_filters=[-1])
        ask("those that are open", state_filters=["Ongoing"])
        ask("a state in other letters", state_filters=["ongoing"])
        ask("an unknown state", state_filters=["Nothing"])
        ask("an unknown state and a known one", state_filters=["Nothing", "Empty"])
        if version >= 1:
            ask("open for an hour", duration_filter=3_600_000)
            ask("open for 0 ms", duration_filter=0)
            ask("a duration of -2", duration_filter=-2)
        if version >= 2:
            ask("a pattern", transactional_id_pattern="described-o.*")
            ask("a pattern of a part of the name", transactional_id_pattern="described")
            ask("a pattern that is none", transactional_id_pattern="(")
            ask("an empty pattern", transactional_id_pattern="")


def markers(exchange: Exchange) -> None:
    name = exchange.create_topic("marked", partitions=2)
    for version in exchange.versions(WriteTxnMarkersRequest):
        own = Transactional(exchange, "marked", version)

        def marker(*topics: tuple[str, list[int]], own: Transactional = own, **fields: object) -> WritableTxnMarker:
            values: dict[str, object] = {
                "producer_id": own.producer_id,
                "transaction_result": True,
                "topics": [WritableTxnMarkerTopic(topic, partitions) for topic, partitions in topics],
            }
            return WritableTxnMarker(**(values | fields))  # type: ignore[arg-type]

        def ask(situation: str, *given: WritableTxnMarker, version: int = version) -> None:
            exchange.ask(f"markers: {situation}", WriteTxnMarkersRequest(list(given)), version)

        ask("none")
        ask("no topics", marker())
        ask("a partition", marker((name, [0])))
        ask("two partitions", marker((name, [0, 1])))
        ask("an unknown partition", marker((name, [9])))
        ask("a negative partition", marker((name, [-1])))
        ask("an unknown topic", marker(("nothing", [0])))
        ask("a known and an unknown topic", marker((name, [0]), ("nothing", [0])))
        ask("an old coordinator", marker((name, [0]), coordinator_epoch=-1))
        ask("a later epoch", marker((name, [0]), producer_epoch=3))
        ask("an earlier epoch", marker((name, [0])))
        ask("a negative epoch", marker((name, [0]), producer_epoch=-1))
        ask("a negative producer", marker((name, [1]), producer_id=-1))
        ask("a negative producer, an unknown partition", marker((name, [1, 9]), producer_id=-1))
        fresh = marker((name, [1]), producer_id=own.producer_id + FAR + version)
        exchange.remember(fresh.producer_id, "a fresh producer")
        fresh.producer_epoch = -1
        ask("a negative epoch of a fresh producer", fresh)
        fresh.producer_epoch = 0
        if version >= 2:
            for transaction_version in (-1, 1, 2, 3):
                fresh.transaction_version = transaction_version
                fresh.producer_epoch += 1
                ask(f"version {transaction_version} of transactions", fresh)
