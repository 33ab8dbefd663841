"""Idempotent producers: InitProducerId, sequences that fit, repeat, leave gaps and wrap, epochs, DescribeProducers."""

from __future__ import annotations

from fencepost.protocol.messages.producers import DescribeProducersRequest, TopicRequest
from fencepost.protocol.messages.transactions import InitProducerIdRequest
from tests.differences.exchange import Exchange, batch
from tests.differences.sequences.produce import Producing, changed

LAST_SEQUENCE = 2**31 - 1
FAR = 90_000  # so far from any producer id that it is nobody's


def run(exchange: Exchange) -> None:
    for version in exchange.versions(InitProducerIdRequest):
        identities(exchange, version)
    for version in (3, 5, 9, 10, 11, 12, 13):
        sequences(exchange, version)
        epochs(exchange, version)
    descriptions(exchange)


def identities(exchange: Exchange, version: int) -> None:
    """Without a transactional id."""

    def ask(situation: str, **fields: object) -> None:
        values: dict[str, object] = {"transactional_id": None, "transaction_timeout_ms": 2**31 - 1} | fields
        exchange.ask(f"producer id: {situation}", InitProducerIdRequest(**values), version)  # type: ignore[arg-type]

    ask("a new one")
    ask("a time-out of 0", transaction_timeout_ms=0)
    ask("a negative time-out", transaction_timeout_ms=-5)
    ask("an empty transactional id", transactional_id="")
    if version >= 3:
        ask("with an identity", producer_id=FAR, producer_epoch=3)
        ask("with a producer id only", producer_id=FAR)
        ask("with an epoch only", producer_epoch=3)
        ask("with a negative identity", producer_id=-7, producer_epoch=-7)


def new_producer(exchange: Exchange, name: str) -> int:
    reply = exchange.call(InitProducerIdRequest(None, 2**31 - 1), 1)
    exchange.remember(reply.producer_id, name)
    producer_id: int = reply.producer_id
    return producer_id


def sequences(exchange: Exchange, version: int) -> None:
    producing = Producing(exchange, version)
    name = exchange.create_topic("sequences", partitions=4, version=version)
    own = new_producer(exchange, "own")

    def ask(situation: str, sequence: int, count: int = 2, *, partition: int = 0, epoch: int = 0) -> None:
        records = batch(count, producer_id=own, epoch=epoch, sequence=sequence)
        producing.ask_one(f"sequence: {situation}", name, records, partition=partition)

    ask("0", 0)
    ask("0 again", 0)
    ask("2", 2)
    ask("a gap", 7)
    ask("0 once more", 0)
    ask("part of what there is", 1)
    ask("begins as one that is there, but is longer", 2, 4)
    for sequence in (4, 6, 8, 10):
        ask(f"{sequence}", sequence)
    ask("the oldest of five again", 2)
    ask("the newest again", 10)
    ask("older than five", 0)
    ask("a negative one", -4)
    ask("-1, which is none", -1)
    ask("another partition begins anywhere", 100, partition=1)
    ask("and goes on", 102, partition=1)
    ask("near the end of the numbers", LAST_SEQUENCE - 1, 3, partition=2)
    ask("past the end of the numbers", 1, 2, partition=2)
    ask("past the end of the numbers, a gap", 9, 2, partition=2)
    ask("the end of the numbers", LAST_SEQUENCE, 1, partition=3)
    ask("0 after the end of the numbers", 0, 1, partition=3)
    records = batch(3, producer_id=own, epoch=0, sequence=12)
    producing.ask_one("sequence: a wrong checksum", name, changed(70, b"\0\0", whole=records, mends_crc=False))
    producing.ask_one("sequence: the same, whole", name, records)
    two = batch(2, producer_id=own, epoch=0, sequence=15) + batch(2, producer_id=own, epoch=0, sequence=17)
    producing.ask_one("sequence: two batches", name, two)
    ask("after all that", 15)


def epochs(exchange: Exchange, version: int) -> None:
    producing = Producing(exchange, version)
    name = exchange.create_topic("epochs", partitions=2, version=version)
    own = new_producer(exchange, "own")

    def ask(situation: str, epoch: int, sequence: int, *, shift: int = 0, partition: int = 0) -> None:
        records = batch(2, producer_id=own + shift, epoch=epoch, sequence=sequence)
        producing.ask_one(f"epoch: {situation}", name, records, partition=partition)

    ask("the first", 0, 0)
    ask("the next, not from 0", 1, 2)
    ask("the next", 1, 0)
    ask("one that is over", 0, 2)
    ask("one that is over, its first batch again", 0, 0)
    ask("one that was left out", 5, 0)
    ask("a negative one", -2, 0)
    ask("a producer id never given", 0, 0, shift=FAR + version * 10)
    ask("a producer id never given, not from 0", 0, 9, shift=FAR + 1 + version * 10)
    ask("a late one at another partition", 0, 0, partition=1)


def descriptions(exchange: Exchange) -> None:
    name = exchange.create_topic("producers", partitions=3)
    own = new_producer(exchange, "own")
    producing = Producing(exchange, 12)
    for sequence in (0, 2):
        records = batch(2, producer_id=own, epoch=0, sequence=sequence)
        exchange.call(producing.request(producing.topic(name, (0, records))), 12)
    exchange.fill(name, batch(), partition=1)
    for version in exchange.versions(DescribeProducersRequest):

        def ask(situation: str, topic: str, *partitions: int, version: int = version) -> None:
            request = DescribeProducersRequest([TopicRequest(topic, list(partitions))])
            exchange.ask(f"producers: {situation}", request, version)

        ask("one", name, 0)
        ask("none", name, 1)
        ask("an unknown partition", name, 9)
        ask("a negative partition", name, -1)
        ask("an unknown topic", "nothing", 0)
        ask("an empty name", "", 0)
        ask("a bad name", "a b", 0)
        ask("no partitions", name)
        ask("a partition twice", name, 0, 0)
        exchange.ask("producers: no topics", DescribeProducersRequest(), version)
