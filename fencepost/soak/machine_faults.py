"""Faults of a cluster of machines: of single brokers, of all, and of the stores that they share.

A broker has at most one fault at a time, and so has each store, of which PostgreSQL and its standby are one. One broker
at least has none, unless all are killed.
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
UNTIL_PROMOTED_S = (0.0, 4.0)
BESIDE_S = (0.0, 16.0)
"""An old primary lives on, is frozen or dead, and the new one has no standby."""
POSTGRES, OBJECTS = "PostgreSQL", "object store"
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
        self._stores_with_faults: set[str] = set()

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
            self.freeze_standby: 1,
            self.promote_after_death: 2,
            self.promote_while_frozen: 2,
            self.promote_beside_primary: 2,
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
        for _ in self._alone(POSTGRES):
            self._note("database_restarts", "PostgreSQL: restart")
            yield from self._restart(self._machines.databases.primary, signal.SIGINT)

    def crash_database(self) -> Iterator[float]:
        """PostgreSQL stops at once, and recovers from its write-ahead log."""
        for _ in self._alone(POSTGRES):
            self._note("database_crashes", "PostgreSQL: crash")
            yield from self._restart(self._machines.databases.primary, signal.SIGQUIT)

    def stop_objects(self) -> Iterator[float]:
        """The object store refuses connections, and starts again."""
        for _ in self._alone(OBJECTS):
            self._note("objects_restarts", "object store: kill -9")
            yield from self._restart(self._machines.objects, signal.SIGKILL)

    def freeze_database(self) -> Iterator[float]:
        """PostgreSQL does not answer."""
        for _ in self._alone(POSTGRES):
            yield from self._freeze(self._machines.databases.primary, "database_freezes", "PostgreSQL")

    def freeze_standby(self) -> Iterator[float]:
        """The synchronous standby confirms nothing: no commit is acknowledged."""
        for _ in self._alone(POSTGRES):
            standby = self._machines.databases.standby
            assert standby is not None
            yield from self._freeze(standby, "standby_freezes", "PostgreSQL's standby")

    def freeze_objects(self) -> Iterator[float]:
        """The object store does not answer."""
        for _ in self._alone(OBJECTS):
            yield from self._freeze(self._machines.objects, "objects_freezes", "object store")

    def promote_after_death(self) -> Iterator[float]:
        """The primary is killed, and the standby promoted."""
        databases = self._machines.databases
        yield from self._promoted("database_promotions", "PostgreSQL: kill -9", databases.kill)

    def promote_while_frozen(self) -> Iterator[float]:
        """The primary is frozen, the standby promoted, and the old primary wakes up."""
        databases = self._machines.databases
        yield from self._promoted("database_zombies", "PostgreSQL: SIGSTOP", databases.freeze_primary)

    def promote_beside_primary(self) -> Iterator[float]:
        """The standby is promoted by mistake: both take connections."""
        yield from self._promoted("database_twins", "PostgreSQL: it lives on", lambda: None)

    def trouble_objects(self) -> Iterator[float]:
        """The object store answers SlowDown to many requests, or carries some out and does not say so."""
        for _ in self._alone(OBJECTS):
            trouble = Trouble(*self._chance.choice(TROUBLES))
            duration_s = self._chance.uniform(*TROUBLE_S)
            self._note(
                "objects_troubles",
                f"object store: SlowDown for {trouble.refused:.0%} of requests, no answer for "
                f"{trouble.unanswered:.0%}, for {duration_s:.1f} s",
            )
            self._machines.trouble_objects(trouble)
            yield duration_s
            self._machines.end_trouble_of_objects()

    def cut_connections(self) -> Iterator[float]:
        """Half of the connections to PostgreSQL break, wherever they are with their statements."""
        for _ in self._alone(POSTGRES):
            database = self._machines.databases.primary
            self._note("connection_cuts", "PostgreSQL: half of the connections are cut")
            self._machines.outage_begins(database)  # for a node that is just starting it is one
            yield from finished(self._machines.cut_connections(0.5))
            self._machines.outage_ends(database)

    def _alone(self, store: str) -> Iterator[None]:
        """Once, while a store has no other fault; or never."""
        if store not in self._stores_with_faults:
            self._stores_with_faults.add(store)
            # Not given back after an exception: it may be down.
            yield
            self._stores_with_faults.discard(store)

    def _promoted(self, fault: str, text: str, befall: Callable[[], None]) -> Iterator[float]:
        """Something befalls the primary, and the standby is promoted. Later the old primary becomes its standby."""
        for _ in self._alone(POSTGRES):
            databases, old = self._machines.databases, self._machines.databases.primary
            pause_s, beside_s = self._chance.uniform(*UNTIL_PROMOTED_S), self._chance.uniform(*BESIDE_S)
            self._note(fault, f"{text}; its standby is promoted, and has none for {beside_s:.1f} s")
            self._machines.outage_begins(old)
            befall()
            yield pause_s
            yield from databases.promote(is_old_lost=False)
            self._machines.outage_ends(old)
            yield beside_s / 2
            databases.thaw()
            yield beside_s / 2
            yield from databases.make_standby()

    def _freeze(self, service: Service, fault: str, name: str) -> Iterator[float]:
        is_long = self._chance.random() < LONG_SHARE
        duration_s = self._longest_outage_s if is_long else self._chance.uniform(*OUTAGE_S)
        self._note(fault, f"{name}: SIGSTOP for {duration_s:.1f} s")
        self._machines.freeze(service)
        yield duration_s
        self._machines.thaw(service)

    def _restart(self, service: Service, number: signal.Signals) -> Iterator[float]:
        self._machines.outage_begins(service)
        service.process.send_signal(number)
        while service.process.poll() is None:
            yield LOOK_S
        yield self._chance.uniform(*STORE_DOWN_S)
        service.spawn()
        while not service.is_ready():
            if service.process.poll() is not None:
                raise BrokerDiedError(f"{service.name} does not start again after {number.name}; see {service.log}")
            yield LOOK_S
        self._machines.outage_ends(service)


def _is_member(machine: Broker) -> bool:
    """Whether a broker has started as a member once more than it has resigned."""
    written = machine.written()
    return written.count(b"node_joined") == written.count(b"node_resigned") + 1
