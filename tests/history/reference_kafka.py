"""A tiny model of a correct Kafka and of clients that crash, time out and try again; it records their history.

Every client is a generator; each `yield` is a moment at which another one may go on. An operation's effect happens at
some moment between its invocation and its outcome.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fencepost.history.writer import ClientHistory, HistoryWriter, ReadRecord

INPUT, OUTPUT = "in", "out"
PARTITION_COUNT = 2
SlicedWork: TypeAlias = Iterator[None]
Place: TypeAlias = tuple[str, int]


@dataclass(eq=False)
class ModelTransaction:
    """is_committed: None while it is open."""

    is_committed: bool | None = None
    places: set[Place] = field(default_factory=set)
    offsets: dict[tuple[str, Place], int] = field(default_factory=dict)


@dataclass
class Entry:
    """One offset of a log; value: None for a marker."""

    value: str | None
    transaction: ModelTransaction | None


class ReferenceKafka:
    """Runs random clients for some steps and ends with the final reads; `lines` is the history."""

    def __init__(self, seed: int, step_count: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[bytes] = []
        self.writer = HistoryWriter(self.lines.append, now_ms=lambda: len(self.lines))
        self._values = 0
        self._open: dict[str, ModelTransaction] = {}
        self._committed: dict[tuple[str, Place], int] = {}
        self.logs: dict[Place, list[Entry]] = {
            (topic, number): [] for topic in (INPUT, OUTPUT) for number in range(PARTITION_COUNT)
        }
        clients = [
            self._transactional("one"),
            self._transactional("two"),
            self._plain("idempotent", is_idempotent=True),
            self._plain("sloppy", is_idempotent=False),
            self._application("app", names_inputs=True),
            self._application("quiet", names_inputs=False),
            self._reader("committed", is_committed=True),
            self._reader("uncommitted", is_committed=False),
            self._at_least_once("simple"),
        ]
        for _ in range(step_count):
            next(self.random.choice(clients))
        for transaction in list(self._open.values()):
            self._end(transaction, is_committed=False)
        self._read_finally()

    def _chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # The broker

    def _append(self, place: Place, value: str, transaction: ModelTransaction | None) -> int:
        if transaction is not None:
            if transaction.is_committed is not None:
                raise AssertionError("a transaction that ended takes no records")
            transaction.places.add(place)
        self.logs[place].append(Entry(value, transaction))
        return len(self.logs[place]) - 1

    def _end(self, transaction: ModelTransaction, *, is_committed: bool) -> None:
        if transaction.is_committed is not None:
            return
        transaction.is_committed = is_committed
        for place in sorted(transaction.places):
            self.logs[place].append(Entry(None, None))
        if is_committed:
            self._committed.update(transaction.offsets)

    def _last_stable_offset(self, place: Place) -> int:
        log = self.logs[place]
        is_open = (offset for offset, one in enumerate(log) if one.transaction and one.transaction.is_committed is None)
        return next(is_open, len(log))

    def _fetch(self, place: Place, position: int, *, is_committed: bool, limit: int) -> tuple[list[ReadRecord], int]:
        """Records, and the position after them."""
        log = self.logs[place]
        records: list[ReadRecord] = []
        end = self._last_stable_offset(place) if is_committed else len(log)
        while position < end and len(records) < limit:
            entry = log[position]
            is_aborted = entry.transaction is not None and entry.transaction.is_committed is False
            if entry.value is not None and not (is_committed and is_aborted):
                records.append((*place, position, entry.value))
            position += 1
        return records, position

    # The clients

    def _new_value(self, client: ClientHistory) -> str:
        self._values += 1
        return f"{client.name}-{self._values}"

    def _any_partition(self, topic: str) -> Place:
        return topic, self.random.randrange(PARTITION_COUNT)

    def _send(
        self,
        client: ClientHistory,
        topic: str,
        transaction: ModelTransaction | None,
        inputs: list[str],
        copies: int = 1,
    ) -> SlicedWork:
        place, value = self._any_partition(topic), self._new_value(client)
        call = client.send(topic, value, place[1], inputs)
        yield
        fate = self.random.choices(["ok", "unknown", "not there", "fail", "silent"], [16, 1, 1, 1, 1])[0]
        if fate in ("ok", "unknown", "silent"):
            offset = [self._append(place, value, transaction) for _ in range(copies)][-1]
            yield
            if fate == "ok":
                call.ok(offset=offset)
        if fate == "fail":
            call.fail("refused")
        elif fate in ("unknown", "not there"):
            call.unknown("timed out")

    def _begin(self, client: ClientHistory) -> ModelTransaction:
        client.begin()
        self._open[client.name] = ModelTransaction()
        return self._open[client.name]

    def _commit(self, client: ClientHistory, transaction: ModelTransaction) -> Iterator[bool | None]:
        """Yields None at each moment, and at last whether the client knows that it is committed."""
        call = client.commit()
        yield None
        fate = self.random.choices(["ok", "again", "unknown", "silent", "fail"], [12, 2, 2, 1, 1])[0]
        self._end(transaction, is_committed=fate in ("ok", "again") or (fate != "fail" and self._chance(0.5)))
        yield None
        if fate == "again":
            call.unknown("timed out")
            call = client.commit()
            yield None
        if fate in ("ok", "again"):
            call.ok()
        elif fate == "unknown":
            call.unknown("timed out")
        elif fate == "fail":
            call.fail("fenced")
        yield fate in ("ok", "again")

    def _finish(
        self, client: ClientHistory, transaction: ModelTransaction, knows: Callable[[bool], None]
    ) -> SlicedWork:
        """Commits, aborts or dies; tells whether the client may go on."""
        choice = self.random.choices(["commit", "abort", "die"], [7, 2, 1])[0]
        if choice == "commit":
            for known in self._commit(client, transaction):
                if known is not None:
                    knows(known)
                yield
        elif choice == "abort":
            call = client.abort()
            yield
            self._end(transaction, is_committed=False)
            call.ok()
            knows(True)
        else:
            knows(False)

    def _transactional(self, name: str) -> SlicedWork:
        while True:
            client = self._started(name)
            is_alive = [True]
            while is_alive[-1]:
                transaction = self._begin(client)
                yield
                for _ in range(self.random.randint(1, 4)):
                    yield from self._send(client, INPUT, transaction, [])
                yield from self._finish(client, transaction, is_alive.append)

    def _started(self, name: str, group_id: str | None = None) -> ClientHistory:
        if name in self._open:
            self._end(self._open[name], is_committed=False)
        return self.writer.client(name, transactional_id=name, group_id=group_id, isolation_level="read_committed")

    def _plain(self, name: str, *, is_idempotent: bool) -> SlicedWork:
        client = self.writer.client(name, idempotent=is_idempotent)
        while True:
            copies = 1 if is_idempotent or self._chance(0.7) else 2
            yield from self._send(client, INPUT if is_idempotent else OUTPUT, None, [], copies)

    def _application(self, group_id: str, *, names_inputs: bool) -> SlicedWork:
        while True:
            client = self._started(group_id, group_id)
            is_alive = [True]
            while is_alive[-1]:
                place = self._any_partition(INPUT)
                position = self._committed.get((group_id, place), 0)
                client.seek([(*place, position)])
                records, position = self._fetch(place, position, is_committed=True, limit=3)
                yield
                if not records:
                    continue
                client.polled(records)
                transaction = self._begin(client)
                values = [value for _, _, _, value in records if value is not None]
                for value in values[1:]:
                    yield from self._send(client, OUTPUT, transaction, [value] if names_inputs else [])
                call = client.send_offsets(group_id, [(*place, position)], values if names_inputs else ())
                yield
                transaction.offsets[group_id, place] = position
                call.ok()
                yield from self._finish(client, transaction, is_alive.append)

    def _reader(self, name: str, *, is_committed: bool) -> SlicedWork:
        while True:
            client = self.writer.client(name, isolation_level="read_committed" if is_committed else "read_uncommitted")
            positions = dict.fromkeys(self.logs, 0)
            while not self._chance(0.02):
                yield
                place = self.random.choice(list(self.logs))
                if self._chance(0.1):
                    positions[place] = self.random.randint(0, positions[place])
                    moved = client.assign if self._chance(0.5) else client.seek
                    moved([(*place, self.random.choice([None, positions[place]]))])
                records, positions[place] = self._fetch(place, positions[place], is_committed=is_committed, limit=5)
                client.polled(records)

    def _at_least_once(self, group_id: str) -> SlicedWork:
        while True:
            client = self.writer.client(group_id, isolation_level="read_committed")
            place = self._any_partition(OUTPUT)
            position = self._committed.get((group_id, place), 0)
            while not self._chance(0.1):
                yield
                records, position = self._fetch(place, position, is_committed=True, limit=3)
                client.polled(records)
                call = client.commit_offsets(group_id, [(*place, position)])
                yield
                self._committed[group_id, place] = position
                call.ok()
                asked = client.fetch_offsets(group_id)
                asked.ok([(*place, position)])

    def _read_finally(self) -> None:
        reader = self.writer.client("final", isolation_level="read_committed")
        for place, log in self.logs.items():
            call = reader.final_read([(*place, 0, len(log))])
            call.ok(self._fetch(place, 0, is_committed=True, limit=len(log))[0])
        for group_id in ("app", "quiet", "simple"):
            places = [(topic, number) for topic, number in self.logs]
            reader.final_offsets(group_id).ok([(*place, self._committed.get((group_id, place))) for place in places])
