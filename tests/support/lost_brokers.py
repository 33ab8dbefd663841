"""Brokers of one cluster that are killed or frozen again and again, and how long clients wait each time.

All clients run through all rounds, so each has connections to the broker that is lost, and requests on their way to it.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import KafkaError, Message, Producer

from tests.support.clients_of_processes import PARTITIONS, Transactions, leaders
from tests.support.conditions import until
from tests.support.machines import Machines

PRODUCERS = 4
SWEEP_S = 0.25
ENDS_OF_EACH = 5
"""How many transactions of a producer end after a fault: with three partitions each, one at least needs the broker."""
RECOVERY_TIMEOUT_S = 90.0
WRITES_KEPT = 1_000


class Waits(NamedTuple):
    """How long clients with the same settings waited after one fault.

    acknowledged_s: until every partition had acknowledged a record that was sent after the fault.
    committed_s:    until every transactional producer was at the end of its longest pause.
    """

    acknowledged_s: float
    committed_s: float


class Writer:
    """A producer that writes one value to all partitions, four times a second, until it is stopped.

    acknowledged: the partitions that have acknowledged each value. errors: of records that were given up.
    """

    def __init__(self, bootstrap: str, settings: Mapping[str, object], prefix: str) -> None:
        self.acknowledged: dict[str, list[int]] = {}
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **settings}
        )
        self._prefix = prefix
        self._sent: list[tuple[float, list[float | None]]] = []  # of each value: when, and when it was acknowledged
        self._is_wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def write_now(self) -> None:
        """Send the next value at once."""
        self._is_wanted.set()

    def acknowledged_since(self, moment_s: float) -> float | None:
        """When all partitions had acknowledged a value that was sent after a moment; None: they have not yet."""
        since = [ends for sent_s, ends in self._sent[-WRITES_KEPT:] if sent_s > moment_s]
        firsts = [
            min((end_s for ends in since if (end_s := ends[partition]) is not None), default=None)
            for partition in range(PARTITIONS)
        ]
        known = [end_s for end_s in firsts if end_s is not None]
        return max(known) if len(known) == PARTITIONS else None

    def stop(self) -> None:
        self._stopping.set()
        self._is_wanted.set()
        self._thread.join()
        assert self._producer.flush(RECOVERY_TIMEOUT_S) == 0

    def _run(self) -> None:
        while not self._stopping.is_set():
            value = f"{self._prefix}{len(self._sent)}"
            ends: list[float | None] = [None] * PARTITIONS
            self.acknowledged[value] = []
            self._sent.append((time.monotonic(), ends))
            for partition in range(PARTITIONS):
                self._producer.produce(
                    "orders", value, partition=partition, on_delivery=partial(self._delivered, value, ends)
                )
            next_s = time.monotonic() + SWEEP_S
            while time.monotonic() < next_s and not self._is_wanted.is_set():
                self._producer.poll(0.01)
            self._is_wanted.clear()

    def _delivered(self, value: str, ends: list[float | None], error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        number = message.partition()
        assert number is not None
        ends[number] = time.monotonic()
        self.acknowledged[value].append(number)


class Clients:
    """A writer and transactional producers with the same settings, from the beginning of the block to its end."""

    def __init__(self, bootstrap: str, name: str, settings: Mapping[str, object]) -> None:
        self.name = name
        self._bootstrap = bootstrap
        self._settings = settings

    def __enter__(self) -> Self:
        self._writer = Writer(self._bootstrap, self._settings, f"{self.name}-written-")
        self._transactions = Transactions(
            self._bootstrap, PRODUCERS, self._settings, prefix=f"{self.name}-", ids=self.name
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._transactions.stop()
        self._writer.stop()

    def write_now(self) -> None:
        self._writer.write_now()

    def have_gone_on(self, moment_s: float) -> bool:
        """Whether every partition has acknowledged a record, and every producer ended transactions, since a moment."""
        are_ended = all(len(_since(moment_s, ends)) >= ENDS_OF_EACH for ends in self._transactions.ends.values())
        return are_ended and self._writer.acknowledged_since(moment_s) is not None

    def waits(self, moment_s: float) -> Waits:
        """How long they waited after a fault at a moment, once they have gone on."""
        acknowledged_s = self._writer.acknowledged_since(moment_s)
        assert acknowledged_s is not None
        paused_until_s = max(_end_of_longest_pause(moment_s, ends) for ends in self._transactions.ends.values())
        return Waits(acknowledged_s - moment_s, paused_until_s - moment_s)

    def check(self, found: Mapping[str, list[int]]) -> None:
        """Check what was read at the end: each acknowledged record once, and transactions whole or not at all."""
        assert self._writer.errors == []
        for value, partitions in self._writer.acknowledged.items():
            assert sorted(found[value]) == sorted(partitions) == list(range(PARTITIONS)), value
        self._transactions.check(dict(found))


def _since(moment_s: float, ends: Sequence[float]) -> list[float]:
    return [end_s for end_s in ends if end_s > moment_s]


def _end_of_longest_pause(moment_s: float, ends: Sequence[float]) -> float:
    """Among the first ends after a moment."""
    after = _since(moment_s, ends)[:ENDS_OF_EACH]
    before = ends[len(ends) - len(_since(moment_s, ends)) - 1] if len(after) < len(ends) else moment_s
    starts = [before, *after]
    return max(zip(after, starts, strict=False), key=lambda pause: pause[0] - pause[1])[0]


class Round(NamedTuple):
    """One fault: which node had it, when (time.monotonic()), and how long the clients waited, by their name."""

    node_id: int
    began_s: float
    waits: Mapping[str, Waits]


def kill_in_turn(machines: Machines, clients: Sequence[Clients], count: int) -> Iterator[Round]:
    """kill -9 of one broker after the other. Each starts again when the clients have gone on without it."""
    for node_id in _in_turn(machines, count):
        _wait_until_at_work(clients)
        machines[node_id].kill()
        lost = _wait_for(clients, node_id)
        machines[node_id].start()
        _wait_until_leading(machines, node_id)
        yield lost


def freeze_in_turn(
    machines: Machines, clients: Sequence[Clients], count: int, *, frozen_s: float = 0.0
) -> Iterator[Round]:
    """SIGSTOP of one broker after the other, until clients have gone on without it, and for `frozen_s` at least.

    Each has to notice that others have taken over.
    """
    for node_id in _in_turn(machines, count):
        _wait_until_at_work(clients)
        resigned = machines[node_id].output.count("node_resigned")
        machines[node_id].freeze()
        lost = _wait_for(clients, node_id)
        time.sleep(max(0.0, lost.began_s + frozen_s - time.monotonic()))  # the fault itself
        machines[node_id].wake()
        until(lambda: machines[node_id].output.count("node_resigned") > resigned)  # noqa: B023  # called at once
        _wait_until_leading(machines, node_id)
        yield lost


def _in_turn(machines: Machines, count: int) -> Iterator[int]:
    return itertools.islice(itertools.cycle(machines.machines), count)


def _wait_until_at_work(clients: Sequence[Clients]) -> None:
    """Wait until clients go on after the last round, too."""
    moment_s = time.monotonic()
    for one in clients:
        until(lambda: one.have_gone_on(moment_s), timeout_s=RECOVERY_TIMEOUT_S)  # noqa: B023  # called at once


def _wait_for(clients: Sequence[Clients], node_id: int) -> Round:
    """Wait until clients have gone on after a fault that has just begun."""
    began_s = time.monotonic()
    for one in clients:
        one.write_now()
    for one in clients:
        until(lambda: one.have_gone_on(began_s), timeout_s=RECOVERY_TIMEOUT_S)  # noqa: B023  # called at once
    return Round(node_id, began_s, {one.name: one.waits(began_s) for one in clients})


def _wait_until_leading(machines: Machines, node_id: int) -> None:
    others = ",".join(machine.bootstrap for number, machine in machines.machines.items() if number != node_id)
    until(lambda: node_id in leaders(others), timeout_s=RECOVERY_TIMEOUT_S)
