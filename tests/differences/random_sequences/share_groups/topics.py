"""The topics that share groups read: what is written to them, in transactions and without, and deleted from them."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from fencepost.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from fencepost.protocol.messages.transaction_admin import DescribeTransactionsRequest
from fencepost.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from tests.differences.exchange import ATTEMPTS, PAUSE_S, TRANSACTION, batch
from tests.differences.random_sequences.steps import SlicedWork
from tests.differences.random_sequences.transactions import BUSY, SETTLED
from tests.differences.sequences.produce import Producing

PRODUCE_VERSION: Final = 12
MAX_PARTITIONS: Final = 3


class Place(NamedTuple):
    """A partition of a topic, by the name that descriptions have for the topic."""

    base: str
    partition: int

    def __str__(self) -> str:
        return f"{self.base}-{self.partition}"


class SharedTopics:
    """One or two topics, and the producer that writes to them. ends, batch_ends: of each log, and of its batches."""

    def __init__(self, steps: SlicedWork) -> None:
        self.steps = steps
        self.exchange = steps.exchange
        self.random = random = steps.random
        self.partition_counts = {base: random.randint(1, 2) for base in ("data", "more")[: random.randint(1, 2)]}
        for base, count in self.partition_counts.items():
            self.exchange.create_topic(base, partitions=count)
        self.ids = {base: self.exchange.topic_id(self.exchange.name(base)) for base in self.partition_counts}
        self.bases = {topic_id: base for base, topic_id in self.ids.items()}
        self.places = [Place(base, index) for base, count in self.partition_counts.items() for index in range(count)]
        self.ends = dict.fromkeys(self.places, 0)
        self.batch_ends: dict[Place, list[int]] = {place: [0] for place in self.places}
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Place, int] = {}
        self._is_in_transaction = False

    def can_grow(self, base: str) -> bool:
        return self.partition_counts[base] < MAX_PARTITIONS

    def grow(self, base: str) -> None:
        """Return when all that is in the broker knows of the further partition."""
        place = Place(base, self.partition_counts[base])
        self.partition_counts[base] += 1
        self.places.append(place)
        self.ends[place], self.batch_ends[place] = 0, [0]
        grown = CreatePartitionsTopic(self.exchange.name(base), self.partition_counts[base], None)
        self.steps.ask(f"{base} grows", CreatePartitionsRequest([grown], 5_000), 3)
        self.exchange.settle()

    @property
    def names(self) -> list[str]:
        return list(self.partition_counts)

    def initialize_producer(self) -> None:
        self.exchange.find_coordinator(self.exchange.name("producer"), TRANSACTION)
        request = InitProducerIdRequest(self.exchange.name("producer"), 600_000)
        reply = self.exchange.call(request, 4, retry=BUSY)
        self._producer = reply.producer_id, reply.producer_epoch

    def produce(self) -> None:
        place = self.random.choice(self.places)
        counts = [self.random.choice((1, 2, 3, 5, 8))] * self.random.choice((1, 1, 2))
        if self.steps.happens(0.08):
            counts = [self.random.choice((40, 70))]
        for count in counts:
            self._produce(place, count)

    def produce_once(self) -> None:
        self._produce(self.random.choice(self.places), self.random.randint(1, 5))

    def _produce(self, place: Place, count: int) -> None:
        producing = Producing(self.exchange, PRODUCE_VERSION)
        request = producing.request(producing.topic(self.exchange.name(place.base), (place.partition, batch(count))))
        self.steps.ask(f"{count} records for {place}", request, PRODUCE_VERSION)
        self._appended(place, count)

    def _appended(self, place: Place, count: int) -> None:
        self.ends[place] += count
        self.batch_ends[place].append(self.ends[place])

    def produce_in_transaction(self) -> None:
        assert self._producer is not None
        place, count = self.random.choice(self.places), self.random.randint(1, 4)
        producer_id, epoch = self._producer
        sequence = self._sequences.get(place, 0)
        records = batch(count, producer_id=producer_id, epoch=epoch, sequence=sequence, transactional=True)
        producing = Producing(self.exchange, PRODUCE_VERSION)
        topic = producing.topic(self.exchange.name(place.base), (place.partition, records))
        request = producing.request(topic, transactional_id=self.exchange.name("producer"))
        self.steps.ask(f"{count} records of a transaction for {place}", request, PRODUCE_VERSION, retry=BUSY)
        self._sequences[place] = sequence + count
        self._appended(place, count)
        self._is_in_transaction = True

    def end_transaction(self) -> None:
        if not self._is_in_transaction:
            self.produce_in_transaction()
        assert self._producer is not None
        producer_id, epoch = self._producer
        committed = self.steps.happens(0.5)
        name = self.exchange.name("producer")
        what = "commit" if committed else "abort"
        reply = self.steps.ask(what, EndTxnRequest(name, producer_id, epoch, committed), 5, retry=BUSY)
        for _ in range(ATTEMPTS):
            described = self.exchange.call(DescribeTransactionsRequest([name]), 0)
            if described.transaction_states[0].transaction_state in SETTLED - {"Ongoing"}:
                break
            time.sleep(PAUSE_S)
        self._producer = reply.producer_id, reply.producer_epoch
        for place in self._sequences:
            self._appended(place, 1)
        self._sequences.clear()
        self._is_in_transaction = False

    def delete_records(self) -> None:
        place = self.random.choice(self.places)
        # What begins within a batch is Kafka's to read from its beginning, or not.
        offset = self.random.choice((-1, *self.batch_ends[place][-4:]))
        topic = DeleteRecordsTopic(self.exchange.name(place.base), [DeleteRecordsPartition(place.partition, offset)])
        request = DeleteRecordsRequest([topic], 5_000)
        self.steps.ask(f"delete {place} up to {offset}", request, self.steps.version(DeleteRecordsRequest))
