"""Roles of Python clients, with any library: produce, consume-transform-produce, verify.

Each library has an adapter to `TransactionalProducer` and the consumers, which maps its exceptions to the four errors
below. SoakClient.java has the same roles in Java.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.history.writer import ClientHistory
from fencepost.soak.plan import (
    COMMIT_SHARE,
    DAWDLING_S,
    DAWDLING_SHARE,
    OUTPUT_PARTITIONS_COUNT,
    OUTPUTS_TOPIC,
    POLL_RECORDS_LIMIT,
    POLL_TIMEOUT_S,
    RECORDS_PER_TRANSACTION_LIMIT,
    RETRY_TIMEOUT_S,
    TRANSFORMER_COMMIT_SHARE,
    VERIFIER_REREAD_LIMIT,
    Partition,
    Plan,
    group_id,
)

Delivered = Callable[[int | None, str | None], None]  # the offset of a record, or its error


class RetryError(Exception):
    """The outcome is unknown; the call may be repeated."""


class MustAbortError(Exception):
    """This transaction can only be aborted."""


class FencedError(Exception):
    """Another producer has taken the transactional id."""


class SessionLostError(Exception):
    """The producer is unusable."""


class ReadRecord(NamedTuple):
    partition: Partition
    offset: int
    value: str


class TransactionalProducer(Protocol):
    """All but `send` block until the outcome is known, and raise one of the four errors."""

    def initialize(self) -> None: ...
    def begin(self) -> None: ...
    def send(self, partition: Partition, value: str, delivered: Delivered) -> None: ...
    def send_offsets(self, offsets: Mapping[Partition, int], consumer: GroupConsumer) -> None: ...
    def flush(self) -> None:
        """Wait for the sent records, for a few seconds at most."""
        ...

    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Assigned(Protocol):
    """Callback with the partitions that a rebalance assigned, and their positions if known."""

    def __call__(self, partitions: Sequence[tuple[Partition, int | None]], /) -> None: ...


class Reader(Protocol):
    def poll(self, timeout_s: float, records_limit: int) -> list[ReadRecord]: ...
    def close(self) -> None: ...


class GroupConsumer(Reader, Protocol):
    def rewind(self, positions: Mapping[Partition, int]) -> list[tuple[Partition, int]]:
        """Seek to these offsets in partitions that are still assigned; returns those partitions."""
        ...


class Verifier(Reader, Protocol):
    def ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The last stable offsets."""
        ...

    def assign(self, positions: Mapping[Partition, int]) -> None: ...


class Library(Protocol):
    """A client library: makes the producers and consumers of the roles."""

    def producer(self, transactional_id: str) -> TransactionalProducer: ...
    def group_consumer(self, topic: str, group: str, assigned: Assigned) -> GroupConsumer: ...
    def verifier(self) -> Verifier: ...


class Counters:
    """Counters that the process reports regularly; one thread writes, another reads."""

    def __init__(self) -> None:
        self.sent = self.committed = self.aborted = self.unknown = self.read = 0
        self.steps = 0  # completed calls: if the number stays the same, the client hangs


class Pace:
    """Limits the rate to `rate` turns per second, without catching up on missed ones."""

    def __init__(self, rate: float, chance: random.Random) -> None:
        self._interval_s = 1 / rate
        self._chance = chance
        self._next_s = time.monotonic()

    def wait(self, stop: threading.Event) -> None:
        now_s = time.monotonic()
        self._next_s = max(self._next_s, now_s - self._interval_s) + self._interval_s * self._chance.uniform(0.5, 1.5)
        stop.wait(max(0.0, self._next_s - now_s))


class Transactions:
    """A transactional producer whose every operation is recorded.

    name: the process's name; its values begin with it, which makes them unique.
    """

    def __init__(
        self, producer: TransactionalProducer, history: ClientHistory, counters: Counters, chance: random.Random
    ) -> None:
        self._producer = producer
        self._history = history
        self._counters = counters
        self._chance = chance
        self._numbers = itertools.count()

    def begin(self) -> None:
        self._producer.begin()
        self._history.begin()

    def send(self, partition: Partition, inputs: Sequence[str] = ()) -> None:
        value = f"{self._history.name}:{next(self._numbers)}"
        call = self._history.send(partition.topic, value, partition.number, inputs)

        def delivered(offset: int | None, error: str | None) -> None:
            if error is None:
                call.ok(offset=offset)
            else:
                # A failed delivery may still be in the log, where the abort covers it.
                call.unknown(error)

        try:
            self._producer.send(partition, value, delivered)
        except (MustAbortError, FencedError, SessionLostError) as error:
            call.unknown(repr(error))
            raise
        self._counters.sent += 1

    def send_offsets(
        self, group: str, offsets: Mapping[Partition, int], consumer: GroupConsumer, inputs: Sequence[str]
    ) -> None:
        call = self._history.send_offsets(
            group, [(*partition, offset) for partition, offset in offsets.items()], inputs
        )
        try:
            self._repeat(lambda: self._producer.send_offsets(offsets, consumer))
        except (MustAbortError, FencedError, SessionLostError) as error:
            call.unknown(repr(error))
            raise
        call.ok()

    def commit(self) -> None:
        call = self._history.commit()
        try:
            self._repeat(self._producer.commit)
        except MustAbortError as error:
            call.unknown(repr(error))
            raise
        except (FencedError, SessionLostError) as error:
            self._counters.unknown += 1
            call.unknown(repr(error))
            raise
        call.ok()
        self._counters.committed += 1

    def abort(self) -> None:
        call = self._history.abort()
        try:
            self._repeat(self._producer.abort)
        except (FencedError, SessionLostError) as error:
            self._counters.unknown += 1
            call.unknown(repr(error))
            raise
        except MustAbortError as error:
            self._counters.unknown += 1
            call.unknown(repr(error))
            raise SessionLostError(f"cannot even abort: {error}") from error
        call.ok()
        self._counters.aborted += 1

    def flush(self) -> None:
        """Flush before a deliberate abort: otherwise libraries drop unsent records, which never reach the log."""
        self._producer.flush()

    def dawdle(self, stop: threading.Event) -> None:
        """Leave the transaction open for a random time, in some cases."""
        if self._chance.random() < DAWDLING_SHARE:
            stop.wait(self._chance.uniform(0, DAWDLING_S))

    def _repeat(self, call: Callable[[], None]) -> None:
        deadline_s = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            try:
                call()
            except RetryError as error:
                if time.monotonic() > deadline_s:
                    raise SessionLostError(f"given up: {error}") from error
                self._counters.steps += 1
                time.sleep(0.05)
            else:
                self._counters.steps += 1
                return


class Client:
    """One client process's work. `run` returns when `stop` is set, or raises FencedError or SessionLostError."""

    def __init__(
        self,
        library: Library,
        history: ClientHistory,
        plan: Plan,
        chance: random.Random,
        counters: Counters,
        stop: threading.Event,
    ) -> None:
        self._library = library
        self._history = history
        self._plan = plan
        self._chance = chance
        self._counters = counters
        self._stop = stop

    def run(self, kind: str, role: str, transactional_id: str) -> None:
        """Run a client until it is stopped. role: one of plan.Slot's; verifiers do not use the transactional id."""
        if role == "verifier":
            self._verify()
            return
        producer = self._library.producer(transactional_id)
        transactions = Transactions(producer, self._history, self._counters, self._chance)
        self._initialize(producer)
        if role == "producer":
            self._produce(transactions)
        else:
            self._transform(transactions, kind)
        producer.close()

    def _initialize(self, producer: TransactionalProducer) -> None:
        deadline_s = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            try:
                producer.initialize()
            except RetryError as error:
                if time.monotonic() > deadline_s or self._stop.is_set():
                    raise SessionLostError(f"never got a producer id: {error}") from error
                self._counters.steps += 1
            except MustAbortError as error:
                raise SessionLostError(f"no producer id: {error}") from error
            else:
                return

    def _produce(self, transactions: Transactions) -> None:
        pace = Pace(self._plan.rate_of_each, self._chance)
        partitions = self._plan.inputs()
        while not self._stop.is_set():
            pace.wait(self._stop)
            try:
                transactions.begin()
                for _ in range(self._chance.randint(1, RECORDS_PER_TRANSACTION_LIMIT)):
                    transactions.send(self._chance.choice(partitions))
                    transactions.dawdle(self._stop)
                if self._chance.random() < COMMIT_SHARE:
                    transactions.commit()
                    continue
                transactions.flush()
            except MustAbortError:
                pass
            transactions.abort()

    def _transform(self, transactions: Transactions, kind: str) -> None:
        pace = Pace(self._plan.rate_of_each, self._chance)
        group = group_id(kind)
        topic = f"inputs-{kind}"

        def assigned(partitions: Sequence[tuple[Partition, int | None]]) -> None:
            self._history.assign([(*partition, offset) for partition, offset in partitions])

        consumer = self._library.group_consumer(topic, group, assigned)
        while not self._stop.is_set():
            records = self._poll(consumer, POLL_TIMEOUT_S)
            if not records:
                continue
            pace.wait(self._stop)
            first: dict[Partition, int] = {}
            following: dict[Partition, int] = {}
            for record in records:
                first.setdefault(record.partition, record.offset)
                following[record.partition] = record.offset + 1
            try:
                transactions.begin()
                for record in records:
                    output = Partition(OUTPUTS_TOPIC, self._chance.randrange(OUTPUT_PARTITIONS_COUNT))
                    transactions.send(output, [record.value])
                transactions.dawdle(self._stop)
                transactions.send_offsets(group, following, consumer, [])
                if self._chance.random() < TRANSFORMER_COMMIT_SHARE:
                    transactions.commit()
                    continue
                transactions.flush()
            except MustAbortError:
                pass
            transactions.abort()
            again = consumer.rewind(first)
            if again:
                self._history.seek([(*partition, offset) for partition, offset in again])
        consumer.close()

    def _verify(self) -> None:
        verifier = self._library.verifier()
        partitions = self._plan.partitions()
        chosen = self._chance.sample(partitions, max(1, len(partitions) // 2))
        deadline_s = time.monotonic() + RETRY_TIMEOUT_S
        while True:
            try:
                ends = verifier.ends(chosen)
                break
            except RetryError as error:
                if time.monotonic() > deadline_s or self._stop.is_set():
                    raise SessionLostError(f"never learnt where partitions end: {error}") from error
                self._counters.steps += 1
        positions = {
            partition: max(0, end - self._chance.randint(0, VERIFIER_REREAD_LIMIT)) for partition, end in ends.items()
        }
        self._history.assign([(*partition, offset) for partition, offset in positions.items()])
        verifier.assign(positions)
        while not self._stop.is_set():
            self._poll(verifier, POLL_TIMEOUT_S)
        verifier.close()

    def _poll(self, reader: Reader, timeout_s: float) -> list[ReadRecord]:
        records = reader.poll(timeout_s, POLL_RECORDS_LIMIT)
        self._counters.steps += 1
        if records:
            self._counters.read += len(records)
            self._history.polled((*record.partition, record.offset, record.value) for record in records)
        return records
