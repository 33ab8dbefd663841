"""What goes wrong in a world, and when: as its seed decides."""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from fencepost.broker.storage.disk import NoRoomError, StorageError
from tests.simulation.broker import SimulatedBroker
from tests.simulation.clients.actor import Actor
from tests.simulation.cluster_faults import REPEAT_PROBABILITY, ClusterFaults
from tests.simulation.disk import Operation, die
from tests.simulation.engine_faults import EngineFaults
from tests.simulation.process_faults import ProcessFaults
from tests.simulation.situations import OTHERS_TAKE_OVER, SOMETHING_UNFORESEEN_IS_RAISED
from tests.simulation.unforeseen import PENDING, Moment, Strike, Unforeseen, strike_disk

if TYPE_CHECKING:
    from tests.simulation.world import World

CRASH_WITHIN_OPERATIONS = 60
MONTH_MS = 30 * 86_400_000
LONGEST_FAULT_S = 60.0


class Fault(Enum):
    """The kinds of faults, with their share of all that happens."""

    CRASH = "kill -9 of a broker"
    CRASH_AT_OPERATION = "a broker dies at one of its next disk operations"
    RESTART = "clean restart of a broker"
    FULL_DISK = "nothing can be written for a while"
    BAD_SYNC = "syncs fail for a while"
    SLOW_DISK = "syncs take long for a while"
    PAUSE_BROKER = "SIGSTOP of a broker"
    CLOCK_JUMP = "a broker's clock jumps"
    CUT = "a client's connections break"
    SEPARATION = "a client is cut off for a while"
    KILL_CLIENT = "kill -9 of a client"
    ZOMBIE = "a client is stopped, replaced, and goes on"
    LATE_REQUESTS = "what a client has sent arrives once more, later"
    UNFORESEEN = "an exception that nobody foresaw is to be raised in a broker"
    MOVE = "a partition moves to another broker"
    DEPOSITION = "nobody leads a partition for a while"
    DARKNESS = "a broker does not hear who leads what for a while"
    OVERTAKEN_MARKERS = "markers are overtaken by a move of their partitions or of their coordinator"
    BROKERS_APART = "two brokers cannot reach each other for a while"
    BROKERS_FAR = "messages between two brokers take long for a while"
    BROKERS_LOSE = "messages between two brokers get lost for a while"
    BROKERS_REPEAT = "messages between two brokers arrive once more, later"
    MONTH = "a month passes on the clocks of all brokers"
    DRAIN = "a process hands over all that it leads, and comes back"
    HANG = "a process hangs until its parent kills it"
    METADATA_REFUSED = "a process cannot read or change the metadata for a while"
    DOCUMENT = "a document changes, of which all processes have to hear"
    PARENT = "the parent is killed, and all its processes with it"
    FREEZE = "a broker is stopped for longer than its lease, and goes on"
    CUT_OFF = "a broker does not reach the engine for a while"
    FAIL_OVER = "the engine's database fails over"
    SILENCE = "the engine's database answers nobody for a while"
    LOST_ANSWERS = "answers of the engine's database get lost for a while"
    SLOW_DATABASE = "the engine's database is slow for a while"
    TROUBLED_OBJECTS = "the object store is slow and fails for a while"
    REFUSED_OBJECTS = "the object store refuses everything for a while"
    ALL_BROKERS = "all brokers of an engine are killed at once"


OF_CLUSTERS = frozenset(
    {
        Fault.MOVE,
        Fault.DEPOSITION,
        Fault.DARKNESS,
        Fault.OVERTAKEN_MARKERS,
        Fault.BROKERS_APART,
        Fault.BROKERS_FAR,
        Fault.BROKERS_LOSE,
        Fault.BROKERS_REPEAT,
    }
)
"""They take more than one broker."""

OF_PROCESSES = (Fault.DRAIN, Fault.HANG, Fault.METADATA_REFUSED, Fault.DOCUMENT, Fault.PARENT)
"""They take a broker of several processes."""

NOT_OF_PROCESSES = frozenset({Fault.DEPOSITION, Fault.DARKNESS})
"""A process is never deposed without its doing, or its end."""

OF_ENGINES = (
    Fault.FREEZE,
    Fault.CUT_OFF,
    Fault.FAIL_OVER,
    Fault.SILENCE,
    Fault.LOST_ANSWERS,
    Fault.SLOW_DATABASE,
    Fault.TROUBLED_OBJECTS,
    Fault.REFUSED_OBJECTS,
    Fault.ALL_BROKERS,
)
"""They take an engine."""

NOT_OF_ENGINES = frozenset({Fault.DEPOSITION, Fault.DARKNESS, Fault.BAD_SYNC, Fault.SLOW_DISK})
"""Scratch is never synced, and a broker that was deposed may not answer."""

OF_VERSION_2 = frozenset({Fault.LATE_REQUESTS, Fault.BROKERS_REPEAT})
"""Transactions of version 1 do not stand them: a late EndTxn or marker is taken for that of the next transaction of the
same epoch. That is what KIP-890 is for.
"""


class Nemesis:
    """Lets faults happen, one after another, for some time.

    power_loss_probability: that a broker which died has lost its power.
    cluster:    what may go wrong between the brokers; None where there is only one.
    repeatable: the actors whose requests may arrive once more.
    """

    def __init__(
        self,
        world: World,
        brokers: Sequence[SimulatedBroker],
        actors: Sequence[Actor],
        faults: Sequence[Fault],
        *,
        pause_s: float,
        power_loss_probability: float,
        cluster: ClusterFaults | ProcessFaults | EngineFaults | None = None,
        repeatable: Sequence[Actor] = (),
    ) -> None:
        self._world = world
        self._brokers = brokers
        self._actors = actors
        self._faults = faults
        self._pause_s = pause_s
        self._power_loss_probability = power_loss_probability
        self._cluster = cluster
        self._repeatable = repeatable
        self._chance: random.Random = world.chance_of("nemesis")
        self._is_over = False
        self._tasks: list[asyncio.Task[None]] = []
        self._acts: dict[Fault, Callable[[], Coroutine[object, object, None]]] = {
            Fault.CRASH: self._crash,
            Fault.CRASH_AT_OPERATION: self._crash_at_operation,
            Fault.RESTART: self._restart,
            Fault.FULL_DISK: self._fill_disk,
            Fault.BAD_SYNC: self._fail_syncs,
            Fault.SLOW_DISK: self._slow_disk,
            Fault.PAUSE_BROKER: self._pause_broker,
            Fault.CLOCK_JUMP: self._jump_clock,
            Fault.CUT: self._cut,
            Fault.SEPARATION: self._separate,
            Fault.KILL_CLIENT: self._kill_client,
            Fault.ZOMBIE: self._make_zombie,
            Fault.LATE_REQUESTS: self._repeat_requests,
            Fault.UNFORESEEN: self._raise_something_unforeseen,
            Fault.MONTH: self._let_a_month_pass,
        }
        if cluster is not None:
            self._acts |= {
                Fault.MOVE: cluster.move,
                Fault.OVERTAKEN_MARKERS: cluster.overtake_markers,
                Fault.BROKERS_APART: cluster.separate,
                Fault.BROKERS_FAR: cluster.slow_down,
                Fault.BROKERS_LOSE: cluster.lose,
                Fault.BROKERS_REPEAT: cluster.repeat,
            }
        if isinstance(cluster, ClusterFaults):
            self._acts |= {Fault.DEPOSITION: cluster.depose, Fault.DARKNESS: cluster.keep_in_the_dark}
        elif isinstance(cluster, EngineFaults):
            self._acts |= {
                Fault.DRAIN: cluster.drain,
                Fault.DOCUMENT: cluster.change_document,
                Fault.FREEZE: cluster.freeze,
                Fault.CUT_OFF: cluster.cut_off,
                Fault.FAIL_OVER: cluster.fail_over,
                Fault.SILENCE: cluster.fall_silent,
                Fault.LOST_ANSWERS: cluster.lose_answers,
                Fault.SLOW_DATABASE: cluster.slow_down_engine,
                Fault.TROUBLED_OBJECTS: cluster.trouble_objects,
                Fault.REFUSED_OBJECTS: cluster.refuse_objects,
                Fault.ALL_BROKERS: cluster.end_all,
            }
        elif cluster is not None:
            self._acts |= {
                Fault.DRAIN: cluster.drain,
                Fault.HANG: cluster.hang,
                Fault.METADATA_REFUSED: cluster.refuse_metadata,
                Fault.DOCUMENT: cluster.change_document,
                Fault.PARENT: cluster.end_parent,
            }

    async def rage(self, duration_s: float) -> None:
        """Faults, for so long; then wait until all are over. Raises TimeoutError when a broker takes for ever."""
        loop = self._world.loop
        end_s = loop.time() + duration_s
        keepers = [loop.create_task(self._keep(broker)) for broker in self._brokers]
        while True:
            await asyncio.sleep(self._chance.expovariate(1 / self._pause_s))
            if loop.time() >= end_s:
                break
            fault = self._chance.choice(self._faults)
            self._world.reached[fault.value] += 1
            self._tasks.append(loop.create_task(self._acts[fault]()))
        self._is_over = True
        async with asyncio.timeout(LONGEST_FAULT_S):
            await asyncio.gather(*self._tasks)
        for keeper in keepers:
            keeper.cancel()
        await asyncio.gather(*keepers, return_exceptions=True)

    # Brokers

    async def _keep(self, broker: SimulatedBroker) -> None:
        """Start a broker again, whenever it has died."""
        while True:
            await broker.died.wait()
            await asyncio.sleep(self._chance.choice((0.0, 0.1, 1.0)))
            if not broker.process.is_dead:
                continue
            power_loss = self._chance.random() < self._power_loss_probability
            if isinstance(self._cluster, ProcessFaults | EngineFaults):
                if await self._cluster.before_start(broker, loses_power=power_loss):
                    self._happened(f"{broker.host} starts again")
                    await self._start(broker, power_loss=False)
                continue
            if self._cluster is not None and not power_loss and self._chance.random() < 0.5:
                self._world.reached[OTHERS_TAKE_OVER] += 1
                self._cluster.fail_over(broker)
                await asyncio.sleep(self._chance.choice((0.1, 1.0, 3.0)))
            self._happened(f"{broker.host} starts again, {'after a power loss' if power_loss else 'as it was'}")
            await self._start(broker, power_loss=power_loss)

    async def _start(self, broker: SimulatedBroker, *, power_loss: bool) -> None:
        try:
            await broker.start(power_loss=power_loss)
        except (StorageError, Unforeseen) as error:
            # As on a disk that is full: a supervisor tries again.
            self._happened(f"{broker.host} could not start: {error}")
            broker.crash()

    def _broker(self) -> SimulatedBroker:
        return self._chance.choice(self._brokers)

    async def _crash(self) -> None:
        broker = self._broker()
        if not broker.process.is_dead:
            self._happened(f"{broker.host} is killed")
            broker.crash()

    async def _crash_at_operation(self) -> None:
        broker, wait = self._broker(), self._chance.randint(1, CRASH_WITHIN_OPERATIONS)
        number = broker.disk.operation_count + wait
        is_before = self._chance.random() < 0.5

        def perhaps_die(operation: Operation) -> None:
            if operation.number >= number:
                broker.before = broker.after = None
                self._happened(f"{broker.host} dies {'before' if is_before else 'after'} {operation}")
                die()

        if is_before:
            broker.before = perhaps_die
        else:
            broker.after = perhaps_die

    async def _restart(self) -> None:
        broker = self._broker()
        if not broker.is_running:
            return
        self._happened(f"{broker.host} is stopped")
        try:
            await broker.stop(
                hands_over=isinstance(self._cluster, ProcessFaults | EngineFaults) and self._chance.random() < 0.5
            )
        except (StorageError, Unforeseen) as error:
            self._happened(f"{broker.host} could not stop cleanly: {error}")
            broker.crash()

    async def _fill_disk(self) -> None:
        def refuse(operation: Operation) -> None:
            if operation.kind in ("open", "append", "write_file", "make_directory"):
                raise NoRoomError(errno.ENOSPC, "No space left on device", operation.path, paths=(operation.path,))

        await self._break_disk(refuse, "the disk is full")

    async def _fail_syncs(self) -> None:
        def refuse(operation: Operation) -> None:
            if operation.kind == "sync":
                paths = tuple(operation.path.split(" "))
                raise StorageError(errno.EIO, "Input/output error", operation.path, paths=paths)

        await self._break_disk(refuse, "syncs fail")

    async def _break_disk(self, refuse: Callable[[Operation], None], reason: str) -> None:
        """For a while; then the broker is started again, as its operator would."""
        broker = self._broker()
        if broker.before is not None:
            return
        self._happened(f"{broker.host}: {reason}")
        broker.before = refuse
        await asyncio.sleep(self._chance.uniform(0.05, 2.0))
        if broker.before is refuse:
            broker.before = None
        self._happened(f"{broker.host}: no longer {reason}")
        await asyncio.sleep(self._chance.uniform(0.0, 2.0))
        broker.crash()

    async def _raise_something_unforeseen(self) -> None:
        """Somewhere in a broker, once. It goes on as it can, long enough to show whether it does; then its operator
        starts it again: partitions may be offline."""
        broker, moment = self._broker(), self._chance.choice(list(Moment))
        left_count, patience_s = self._chance.randint(1, 30), self._chance.uniform(1.0, 25.0)
        process = broker.process
        if broker.before is not None or broker.after is not None or process in PENDING:
            return

        def struck(where: str) -> None:
            self._world.reached[SOMETHING_UNFORESEEN_IS_RAISED] += 1
            self._happened(f"{broker.host}: something unforeseen {where}")

        strike = Strike(process, moment, left_count, struck)
        if moment in (Moment.BEFORE_OPERATION, Moment.AFTER_OPERATION):
            strike_disk(broker, strike)
        else:
            PENDING[process] = strike
        await asyncio.sleep(patience_s)
        PENDING.pop(process, None)
        if moment in (Moment.BEFORE_OPERATION, Moment.AFTER_OPERATION):
            broker.before = broker.after = None
        if strike.has_struck and not process.is_dead:
            self._happened(f"{broker.host} is started again, as something unforeseen was raised in it")
            process.kill()

    async def _slow_disk(self) -> None:
        broker = self._broker()
        self._happened(f"{broker.host}: syncs are slow")
        usual_s = broker.sync_latency_s
        broker.sync_latency_s = (0.02, self._chance.choice((0.1, 0.5, 3.0)))
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        broker.sync_latency_s = usual_s

    async def _pause_broker(self) -> None:
        broker = self._broker()
        process = broker.process
        self._happened(f"{broker.host} is paused")
        process.pause()
        await asyncio.sleep(self._chance.choice((0.2, 1.0, 6.0)))
        self._happened(f"{broker.host} goes on")
        process.resume()

    async def _jump_clock(self) -> None:
        broker = self._broker()
        jump_ms = self._chance.choice((-5_000, -300, 300, 5_000, 60_000))
        self._happened(f"{broker.host}: its clock jumps by {jump_ms} ms")
        broker.clock.skew_ms += jump_ms

    async def _let_a_month_pass(self) -> None:
        self._happened("a month passes")
        for broker in self._brokers:
            broker.clock.skew_ms += MONTH_MS

    # Clients

    async def _cut(self) -> None:
        life, broker = self._chance.choice(self._actors).newest, self._broker()
        self._happened(f"{life.name} loses its connections to {broker.host}")
        self._world.network.cut(life.name, broker.host)

    async def _separate(self) -> None:
        life, broker = self._chance.choice(self._actors).newest, self._broker()
        self._happened(f"{life.name} is cut off from {broker.host}")
        self._world.network.separate(life.name, broker.host)
        await asyncio.sleep(self._chance.uniform(0.1, 8.0))
        self._world.network.join(life.name, broker.host)
        self._happened(f"{life.name} reaches {broker.host} again")

    async def _kill_client(self) -> None:
        actor = self._chance.choice(self._actors)
        if not actor.newest.is_running:
            return
        self._happened(f"{actor.newest.name} is killed")
        actor.newest.process.kill()
        await asyncio.sleep(self._chance.choice((0.0, 1.0, 10.0)))
        if not self._is_over:
            self._happened(f"{actor.start().name} starts")

    async def _make_zombie(self) -> None:
        actor = self._chance.choice(self._actors)
        old = actor.newest
        if not old.is_running:
            return
        self._happened(f"{old.name} is paused")
        old.process.pause()
        if self._chance.random() < 0.7:
            await asyncio.sleep(self._chance.uniform(0.0, 3.0))
            if not self._is_over:
                self._happened(f"{actor.start().name} starts")
        await asyncio.sleep(self._chance.uniform(0.1, 10.0))
        self._happened(f"{old.name} goes on")
        old.process.resume()

    async def _repeat_requests(self) -> None:
        if not self._repeatable:
            return
        life, network = self._chance.choice(self._repeatable).newest, self._world.network
        routes = {(life.name, broker.host) for broker in self._brokers}
        self._happened(f"what {life.name} sends may arrive once more, later")
        network.repeat_probability = REPEAT_PROBABILITY
        network.repeating |= routes
        await asyncio.sleep(self._chance.uniform(0.5, 4.0))
        network.repeating -= routes

    def _happened(self, text: str) -> None:
        self._world.trace.happened(text)
