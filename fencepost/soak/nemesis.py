"""Faults of the soak, at random times. A seed repeats the times, but processes do not repeat a run exactly.

Each fault is a generator that acts, yields the seconds until it acts again, and goes on. So several faults run at the
same time: a client dies while the broker is down, another is frozen while the disk is full. At most one fault at a
time affects the broker as a whole, one each of its processes or machines, where it has several, and one each client.
"""

from __future__ import annotations

import heapq
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from fencepost.soak.broker import Broker
from fencepost.soak.broker_faults import BrokerFaults
from fencepost.soak.client_process import ClientProcess
from fencepost.soak.client_processes import Crew, Post
from fencepost.soak.machine_faults import MachineFaults
from fencepost.soak.machines import Machines
from fencepost.soak.plan import ExitCode
from fencepost.soak.process_faults import ProcessFaults

FaultSchedule: TypeAlias = Iterator[float]
Least: TypeAlias = dict[tuple[str, ...], int]
"""The fewest faults of each kind, by the prefixes of their names."""

LOOK_S = 0.02  # between two checks of a condition
STOP_TIMEOUT_S = 30.0
FENCING_TIMEOUT_S = 90.0  # a zombie may wait for a reply up to its client's time-outs
SUCCESSOR_TIMEOUT_S = 60.0
CLIENT_FROZEN_S = (0.2, 14.0)  # beyond the time-outs of sessions and of transactions
LEAST_OF_CLIENTS: Least = {("client_", "zombies"): 2}
LEAST_OF_BROKER: Least = {("broker_",): 3, **LEAST_OF_CLIENTS}
LEAST_OF_PROCESSES: Least = {("process_",): 3, **LEAST_OF_CLIENTS}
LEAST_OF_MACHINES: Least = {("machine_",): 2, ("database_", "objects_", "connection_"): 1, **LEAST_OF_CLIENTS}


class Nemesis:
    """Begins and continues faults. The caller must call `act` regularly.

    interval_s: average time between the beginnings of two faults. longest_outage_s: maximum time for which a store of
    several machines is down. `counts`: the faults that took place. `findings`: failures of the broker: zombies that
    were not fenced, a broker that does not start or stop.
    """

    def __init__(
        self,
        broker: Broker | Machines,
        crew: Crew,
        chance: random.Random,
        *,
        interval_s: float,
        longest_outage_s: float = 0.0,
        say: Callable[[str], None],
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.fenced_zombies_count = 0
        self.last_at_s = 0.0  # when the last fault was over
        self._broker = broker
        self._crew = crew
        self._chance = chance
        self._interval_s = interval_s
        self._longest_outage_s = longest_outage_s
        self._say = say
        self._next_at_s = time.monotonic() + interval_s
        self._under_way: list[tuple[float, int, FaultSchedule]] = []
        self._numbers = itertools.count()
        self._zombies: list[ClientProcess] = []
        # The relative frequency of each.
        self._faults: dict[Callable[[], FaultSchedule], int] = {
            **self._faults_of_broker(),
            self._kill_client: 6,
            self._freeze_client: 5,
            self._replace_client: 4,
            self._make_zombie: 5,
        }
        if isinstance(broker, Machines):
            self._least = LEAST_OF_MACHINES
        else:
            self._least = LEAST_OF_BROKER if broker.process_count == 1 else LEAST_OF_PROCESSES
        self._first: list[Callable[[], FaultSchedule]] = []

    def add(self, faults: Mapping[Callable[[], FaultSchedule], int], least: Least) -> None:
        """Add faults of something else, with their relative frequency; each has its turn once before all others.

        least: the fewest faults of each kind, in place of those of the broker and the clients.
        """
        self._faults |= faults
        self._least = least
        self._first = list(faults)
        self._chance.shuffle(self._first)

    @property
    def is_busy(self) -> bool:
        return bool(self._under_way)

    @property
    def has_done_enough(self) -> bool:
        """Whether there were faults of all kinds, which says something even of a soak of seconds."""
        return all(
            sum(count for fault, count in self.counts.items() if fault.startswith(names)) >= wanted
            for names, wanted in self._least.items()
        )

    def act(self, *, may_begin: bool) -> None:
        """Continue the faults that are due. may_begin: whether new faults may begin. Raises BrokerDiedError."""
        self._broker.raise_if_ended()
        now_s = time.monotonic()
        if may_begin and now_s >= self._next_at_s:
            self._next_at_s = now_s + self._chance.expovariate(1 / self._interval_s)
            heapq.heappush(self._under_way, (now_s, next(self._numbers), self._begun()))
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, fault = heapq.heappop(self._under_way)
            pause_s = next(fault, None)
            if pause_s is None:
                self.last_at_s = time.monotonic()
            else:
                heapq.heappush(self._under_way, (time.monotonic() + pause_s, next(self._numbers), fault))

    def _begun(self) -> FaultSchedule:
        """Pick a fault: one that has not had its turn, if there is one."""
        if not self._first:
            (begin,) = self._chance.choices(list(self._faults), list(self._faults.values()))
            yield from begin()
            return
        begin = self._first.pop()
        count = self.counts.total()
        yield from begin()
        if self.counts.total() == count:  # something else was under way
            self._first.insert(0, begin)

    def stop(self) -> None:
        """End the processes that faults keep running."""
        self._under_way.clear()
        for zombie in list(self._zombies):
            self._crew.bury(zombie)
        self._zombies.clear()

    def _faults_of_broker(self) -> dict[Callable[[], FaultSchedule], int]:
        note, findings, partitions = self.note, self.findings, self._crew.plan.all_partitions()
        if isinstance(self._broker, Machines):
            of_machines = MachineFaults(
                self._broker,
                self._chance,
                partitions=partitions,
                longest_outage_s=self._longest_outage_s,
                note=note,
                findings=findings,
            )
            return of_machines.all()
        of_broker = BrokerFaults(self._broker, self._chance, note=note, findings=findings)
        if self._broker.process_count == 1:
            return of_broker.all()
        of_processes = ProcessFaults(self._broker, self._chance, partitions=partitions, note=note, findings=findings)
        return {**of_broker.of_several_processes(), **of_processes.all()}

    # Faults of the clients

    def _kill_client(self) -> FaultSchedule:
        post = self._pick()
        if post is None:
            return
        post.is_held = True
        self.note("client_kills", f"{post.slot.name}: kill -9")
        self._crew.kill(post)
        yield self._chance.uniform(0, 3)
        self._crew.start(post)
        post.is_held = False

    def _freeze_client(self) -> FaultSchedule:
        post = self._pick()
        if post is None or post.process is None:
            return
        post.is_held = True
        duration_s = self._chance.uniform(*CLIENT_FROZEN_S)
        self.note("client_freezes", f"{post.slot.name}: SIGSTOP for {duration_s:.1f} s")
        process = post.process
        process.freeze()
        yield duration_s
        process.thaw()
        post.is_held = False

    def _replace_client(self) -> FaultSchedule:
        """Stop a client cleanly, and start it again: members leave and join groups."""
        post = self._pick()
        if post is None or post.process is None:
            return
        post.is_held = True
        self.note("client_restarts", f"{post.slot.name}: SIGTERM")
        process = self._crew.detach(post)
        self._zombies.append(process)
        process.terminate()
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while process.exit_code is None and time.monotonic() < deadline_s:
            yield LOOK_S
        self._zombies.remove(process)
        self._crew.bury(process)
        yield self._chance.uniform(0, 2)
        self._crew.start(post)
        post.is_held = False

    def _make_zombie(self) -> FaultSchedule:
        """Freeze a client, let another use its transactional id, then wake the first one."""
        # A client without a producer id yet would be no zombie, but the newer of the two.
        post = self._pick(has_committed=True)
        if post is None or post.process is None:
            return
        post.is_held = True
        zombie = self._crew.detach(post)
        self._zombies.append(zombie)
        zombie.freeze()
        self.note("zombies", f"{zombie.name}: SIGSTOP, and a successor")
        self._crew.start(post)
        began_at_s = time.monotonic()
        while post.committed_at_s <= began_at_s and time.monotonic() < began_at_s + SUCCESSOR_TIMEOUT_S:
            yield LOOK_S
        committed_before = zombie.committed
        zombie.thaw()
        deadline_s = time.monotonic() + FENCING_TIMEOUT_S + self._longest_outage_s
        while zombie.exit_code is None and time.monotonic() < deadline_s:
            yield LOOK_S
        self._zombies.remove(zombie)
        self._crew.bury(zombie)
        post.is_held = False
        self._judge_zombie(zombie, committed_before, has_successor=post.committed_at_s > began_at_s)

    def _judge_zombie(self, zombie: ClientProcess, committed_before: int, *, has_successor: bool) -> None:
        if not has_successor:
            self.counts["zombies_without_successor"] += 1
        elif zombie.exit_code == ExitCode.FENCED:
            self.fenced_zombies_count += 1
            self._say(f"{zombie.name} was fenced")
        elif zombie.exit_code == ExitCode.SESSION_LOST:
            self.counts["zombies_that_lost_their_session"] += 1
        else:
            more = zombie.committed - committed_before
            self.findings.append(
                f"{zombie.name} came back from the dead and was not fenced: exit code {zombie.exit_code}, "
                f"{more} commits reported after its successor's first; see {zombie.log_path}"
            )

    def _pick(self, *, has_committed: bool = False) -> Post | None:
        """Pick a running client without a fault."""
        free = [
            post
            for post in self._crew.posts.values()
            if not post.is_held and post.process is not None and (post.process.committed or not has_committed)
        ]
        return self._chance.choice(free) if free else None

    def note(self, fault: str, text: str) -> None:
        """Count and log a fault."""
        self.counts[fault] += 1
        self._say(text)
