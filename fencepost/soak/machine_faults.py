"""Faults of a cluster of machines: of single brokers, of all, and of the stores that they share.

A broker has at most one fault at a time, and so has each store; one broker at least has none, unless all are killed.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence

from fencepost.soak.broker import Broker, BrokerDiedError
from fencepost.soak.busy_objects import Trouble
from fencepost.soak.machines import Machines
from fencepost.soak.operating import Operator, finished
from fencepost.soak.plan import Partition
from fencepost.soak.trial_services import Service

STAYS_DOWN_S = (0.0, 8.0)
"""Others take over after 2 to 3 s."""
FROZEN_SHORTLY_S = (0.1, 1.5)
FROZEN_BEYOND_LEASE_S = (4.0, 12.0)
LONG_SHARE = 0.2
"""Of outages, and of brokers that are frozen: these last for as long as any may."""
OUTAGE_S = (0.3, 8.0)
TROUBLES = ((0.7, 0.0), (0.0, 0.3), (0.4, 0.2))
"""Shares of requests to the object store that are refused, and that get no answer."""
TROUBLE_S = (2.0, 20.0)
"""A request that gets no answer is given up after 10 s."""
STORE_DOWN_S = (0.0, 3.0)
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
"""Half of it to hand over."""
NOTICES_S = 3.0
"""How long after it is woken a broker knows that it was taken over from."""
LEFT_TIMEOUT_S = 120.0
RESPAWN_PAUSE_S = 1.0
LOOK_S = 0.05


class MachineFaults:
    """Each method is one fault, which yields the seconds until its next step.

    partitions:       those that may move. note: counts and logs a fault. findings: gets failures of the brokers.
    longest_outage_s: maximum time for which a store is down, or a broker is frozen.
    """

    def __init__(
        self,
        machines: Machines,
        chance: random.Random,
        *,
        partitions: Sequence[Partition],
        longest_outage_s: float,
        note: Callable[[str, str], None],
        findings: list[str],
    ) -> None:
        self._machines = machines
        self._chance = chance
        self._longest_outage_s = longest_outage_s
        self._note = note
        self._findings = findings
        self._operator = Operator(machines, chance, partitions=partitions, note=note, findings=findings)
        self._is_all_wanted = False

    def all(self) -> dict[Callable[[], Iterator[float]], int]:
        """The faults, with their relative frequency."""
        return {
            self.kill: 8,
            self.freeze_shortly: 4,
            self.freeze_beyond_lease: 5,
            self.stop: 3,
            self.interrupt: 1,
            self.kill_all: 1,
            self._operator.move: 5,
            self.drain: 2,
            self.restart_database: 2,
            self.crash_database: 2,
            self.freeze_database: 2,
            self.cut_connections: 3,
            self.stop_objects: 2,
            self.freeze_objects: 1,
            self.trouble_objects: 3,
        }

    # Brokers

    def kill(self) -> Iterator[float]:
        """Kill -9; it is started again before or after others have taken over."""
        for node_id, machine in self._pick():
            self._note("machine_kills", f"node {node_id}: kill -9")
            machine.kill()
            yield self._chance.uniform(*STAYS_DOWN_S)
            yield from self._start(node_id)

    def freeze_shortly(self) -> Iterator[float]:
        """SIGSTOP, and SIGCONT before its lease is over."""
        for node_id, machine in self._pick():
            duration_s = self._chance.uniform(*FROZEN_SHORTLY_S)
            self._note("machine_freezes", f"node {node_id}: SIGSTOP for {duration_s:.1f} s")
            machine.freeze()
            yield duration_s
            machine.thaw()
            yield from self._until_leading(node_id, machine)

    def freeze_beyond_lease(self) -> Iterator[float]:
        """SIGSTOP, and SIGCONT when others have taken over: it must find out, and begin anew."""
        for node_id, machine in self._pick():
            is_long = self._chance.random() < LONG_SHARE
            duration_s = self._longest_frozen_s if is_long else self._chance.uniform(*FROZEN_BEYOND_LEASE_S)
            self._note("machine_zombies", f"node {node_id}: SIGSTOP for {duration_s:.1f} s, beyond its lease")
            machine.freeze()
            yield duration_s
            machine.thaw()
            yield from self._until_leading(node_id, machine)

    @property
    def _longest_frozen_s(self) -> float:
        return min(30.0, max(self._longest_outage_s, FROZEN_BEYOND_LEASE_S[0]))

    def stop(self) -> Iterator[float]:
        """SIGTERM: it hands over its partitions, and ends."""
        for node_id, machine in self._pick():
            self._note("machine_restarts", f"node {node_id}: SIGTERM")
            yield from self._end(node_id, machine, signal.SIGTERM)

    def interrupt(self) -> Iterator[float]:
        """SIGINT: it gives its lease back, and ends."""
        for node_id, machine in self._pick():
            self._note("machine_interrupts", f"node {node_id}: SIGINT")
            yield from self._end(node_id, machine, signal.SIGINT)

    def kill_all(self) -> Iterator[float]:
        """Kill -9 of all brokers within moments, once none of them has another fault."""
        if self._is_all_wanted:
            return
        self._is_all_wanted = True
        try:
            deadline_s = time.monotonic() + LEFT_TIMEOUT_S
            while self._machines.held:
                if time.monotonic() > deadline_s:
                    return
                yield LOOK_S
            self._machines.held.update(self._machines.node_ids)
            self._note("cluster_kills", "all brokers: kill -9")
            self._machines.kill()
            yield self._chance.uniform(*STAYS_DOWN_S)
            for node_id in self._machines.node_ids:
                self._machines[node_id].spawn()
            for node_id in self._machines.node_ids:
                yield from self._until_ready(node_id)
            self._machines.held.clear()
        finally:
            self._is_all_wanted = False

    def drain(self) -> Iterator[float]:
        """A node hands over all that it leads, for a while."""
        for node_id, _ in self._pick():
            yield from self._operator.drain(node_id)

    def _pick(self) -> Iterator[tuple[int, Broker]]:
        """One node that serves and has no fault, for as long as the caller has it; or none."""
        held = self._machines.held
        free = [node_id for node_id in self._machines.node_ids if node_id not in held]
        if self._is_all_wanted or len(free) < 2:
            return
        node_id = self._chance.choice(free)
        held.add(node_id)
        # Not given back after an exception: it may be down.
        yield node_id, self._machines[node_id]
        held.discard(node_id)

    def _start(self, node_id: int) -> Iterator[float]:
        self._machines[node_id].spawn()
        yield from self._until_ready(node_id)

    def _until_ready(self, node_id: int) -> Iterator[float]:
        """Wait until a node serves. It is started again if it could not start while a store was away.

        Raises BrokerDiedError.
        """
        machine = self._machines[node_id]
        waits_from_s = time.monotonic()
        while True:
            try:
                if machine.is_ready:
                    return
            except BrokerDiedError:
                if not self._machines.had_outage_since(machine.spawned_at_s):
                    raise
                machine.kill()
                yield RESPAWN_PAUSE_S
                machine.spawn()
            if self._machines.had_outage_since(waits_from_s):
                waits_from_s = time.monotonic()
            elif time.monotonic() - waits_from_s > READY_TIMEOUT_S:
                raise BrokerDiedError(f"node {node_id} was not ready {READY_TIMEOUT_S:.0f} s after its start")
            yield LOOK_S

    def _until_leading(self, node_id: int, machine: Broker) -> Iterator[float]:
        """Wait until a node that was frozen may lead: others have not taken over, or it has begun anew."""
        yield NOTICES_S
        waits_from_s = time.monotonic()
        while not _is_member(machine):
            machine.raise_if_dead()
            if self._machines.had_outage_since(waits_from_s):
                waits_from_s = time.monotonic()
            elif time.monotonic() - waits_from_s > READY_TIMEOUT_S:
                self._findings.append(f"node {node_id} did not begin anew {READY_TIMEOUT_S:.0f} s after it was woken")
                return
            yield LOOK_S

    def _end(self, node_id: int, machine: Broker, number: signal.Signals) -> Iterator[float]:
        began_s = time.monotonic()
        machine.signal(number)
        while not machine.has_ended():
            if time.monotonic() - began_s > STOP_TIMEOUT_S:
                if not self._machines.had_outage_since(began_s):
                    self._findings.append(f"node {node_id} did not end {STOP_TIMEOUT_S:.0f} s after {number.name}")
                machine.kill()
                break
            yield LOOK_S
        yield self._chance.uniform(*STORE_DOWN_S)
        yield from self._start(node_id)

    # Stores

    def restart_database(self) -> Iterator[float]:
        """PostgreSQL stops as an operator stops it, and starts again."""
        yield from self._restart(self._machines.database, signal.SIGINT, "database_restarts", "PostgreSQL: restart")

    def crash_database(self) -> Iterator[float]:
        """PostgreSQL stops at once, and recovers from its write-ahead log."""
        yield from self._restart(self._machines.database, signal.SIGQUIT, "database_crashes", "PostgreSQL: crash")

    def stop_objects(self) -> Iterator[float]:
        """The object store refuses connections, and starts again."""
        yield from self._restart(self._machines.objects, signal.SIGKILL, "objects_restarts", "object store: kill -9")

    def freeze_database(self) -> Iterator[float]:
        """PostgreSQL does not answer."""
        yield from self._freeze(self._machines.database, "database_freezes", "PostgreSQL")

    def freeze_objects(self) -> Iterator[float]:
        """The object store does not answer."""
        yield from self._freeze(self._machines.objects, "objects_freezes", "object store")

    def trouble_objects(self) -> Iterator[float]:
        """The object store answers SlowDown to many requests, or carries some out and does not say so."""
        if self._machines.is_away(self._machines.objects):
            return
        trouble = Trouble(*self._chance.choice(TROUBLES))
        duration_s = self._chance.uniform(*TROUBLE_S)
        self._note(
            "objects_troubles",
            f"object store: SlowDown for {trouble.refused:.0%} of requests, no answer for {trouble.unanswered:.0%}, "
            f"for {duration_s:.1f} s",
        )
        self._machines.trouble_objects(trouble)
        yield duration_s
        self._machines.end_trouble_of_objects()

    def cut_connections(self) -> Iterator[float]:
        """Half of the connections to PostgreSQL break, wherever they are with their statements."""
        database = self._machines.database
        if not self._machines.is_away(database):
            self._note("connection_cuts", "PostgreSQL: half of the connections are cut")
            self._machines.outage_begins(database)  # for a node that is just starting it is one
            yield from finished(self._machines.cut_connections(0.5))
            self._machines.outage_ends(database)

    def _freeze(self, service: Service, fault: str, name: str) -> Iterator[float]:
        if self._machines.is_away(service):
            return
        is_long = self._chance.random() < LONG_SHARE
        duration_s = self._longest_outage_s if is_long else self._chance.uniform(*OUTAGE_S)
        self._note(fault, f"{name}: SIGSTOP for {duration_s:.1f} s")
        self._machines.freeze(service)
        yield duration_s
        self._machines.thaw(service)

    def _restart(self, service: Service, number: signal.Signals, fault: str, text: str) -> Iterator[float]:
        if self._machines.is_away(service):
            return
        self._note(fault, text)
        self._machines.outage_begins(service)
        service.process.send_signal(number)
        while service.process.poll() is None:
            yield LOOK_S
        yield self._chance.uniform(*STORE_DOWN_S)
        service.spawn()
        while not service.is_ready():
            if service.process.poll() is not None:
                raise BrokerDiedError(f"{text}: it does not start again; see {service.log}")
            yield LOOK_S
        self._machines.outage_ends(service)


def _is_member(machine: Broker) -> bool:
    """Whether a broker has started as a member once more than it has resigned."""
    written = machine.written()
    return written.count(b"node_joined") == written.count(b"node_resigned") + 1
