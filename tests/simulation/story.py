"""A world from its beginning to its end: applications at work while a nemesis rages, rest, and then the question
whether everything is as it was promised.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

from fencepost.broker.cluster.leases import lease_placement
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory import log_opening
from fencepost.broker.log.recovery import recovery_mark
from fencepost.broker.log.segment import segment_batches, segment_reads
from fencepost.broker.storage import file_slice
from fencepost.history.checker import check_history
from fencepost.history.writer import ClientHistory, HistoryWriter
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from fencepost.protocol.messages.transaction_admin import ListTransactionsRequest
from fencepost.protocol.writer import COPIED_RECORDS_BYTES
from tests.simulation.aging import age
from tests.simulation.broker import SimulatedBroker
from tests.simulation.broker_cluster import BrokerCluster
from tests.simulation.client import Disconnected
from tests.simulation.clients.actor import Actor, Stage
from tests.simulation.clients.cluster import LATEST, Cluster
from tests.simulation.clients.consumer import READ_COMMITTED
from tests.simulation.clients.final_reading import read_all
from tests.simulation.clients.group import GroupMember
from tests.simulation.clients.recreator import AGAIN, look_back
from tests.simulation.clients.tenant import ACLS_VERSION, allow_everything, officer
from tests.simulation.cluster_faults import ClusterFaults
from tests.simulation.crossing import Crossings
from tests.simulation.engine_cluster import EngineCluster, small_engines
from tests.simulation.engine_faults import EngineFaults
from tests.simulation.events import broker_events
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.invariant import Invariants
from tests.simulation.lookout import Lookout
from tests.simulation.loop import Stuck, run
from tests.simulation.nemesis import Nemesis
from tests.simulation.principals import OFFICER, TENANT, principals_by_host
from tests.simulation.process_cluster import ProcessCluster
from tests.simulation.process_faults import ProcessFaults
from tests.simulation.script import Script, write_script
from tests.simulation.unforeseen import may_happen
from tests.simulation.world import World

PIECE_BYTES: Final = 500
LONGEST_FAREWELL_S: Final = 150.0
LONGEST_SETTLING_S: Final = 60.0
LONGEST_START_S: Final = 30.0
FINAL_READ_ATTEMPTS: Final = 5
MEASURED: Final = frozenset({"duration_ms"})
"""Fields of log events that the machine's own clock decides."""
OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class Violation(Exception):  # noqa: N818  # says what was found
    """Something is not as it was promised."""


@dataclass
class Outcome:
    """What became of one seed's world.

    reason:  why it failed, in one line and, if need be, more; empty when all is well.
    reached: the situations that came up, and how often.
    digest:  of everything that happened; the same for the same seed and code.
    """

    seed: int
    reason: str = ""
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    request_count: int = 0
    crash_count: int = 0
    history_counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    lines: list[str] = field(default_factory=list)
    history: list[bytes] = field(default_factory=list)

    @property
    def headline(self) -> str:
        return self.reason.splitlines()[0] if self.reason else "all is well"


def run_seed(seed: int, *, keeps_trace: bool = False) -> Outcome:
    """Live through one world. keeps_trace: have the outcome hold its digest and every line of its trace."""
    outcome = Outcome(seed)
    teller = _Teller(outcome, keeps_trace=keeps_trace)
    began_s = time.process_time()
    # No time passes while a log is opened: else many would be at a stretch, and few clients come in between.
    with (
        broker_events(teller.note_event),
        may_happen(),
        principals_by_host(),
        small_engines(random.Random(f"{seed} engine ids")),
        mock.patch.object(log_opening, "SLICE_S", 0.0),
        # Worlds are short: nodes that have come get their share at once.
        mock.patch.object(lease_placement, "SETTLING_S", 0.5),
        # Worlds are small: what is much in them is sent as large replies are.
        mock.patch.object(segment_batches, "SMALL_READ_BYTES", COPIED_RECORDS_BYTES),
        mock.patch.object(segment_reads, "SMALL_READ_BYTES", COPIED_RECORDS_BYTES),
        mock.patch.object(file_slice, "PIECE_BYTES", PIECE_BYTES),
    ):
        try:
            run(teller.run(seed))
        except (Violation, AssertionError, Stuck) as error:
            outcome.reason = str(error) or type(error).__name__
        except Exception as error:  # noqa: BLE001  # whatever a world raises is a finding
            outcome.reason = f"{type(error).__name__}: {error}"
    teller.finish()
    outcome.cpu_s = time.process_time() - began_s
    return outcome


class _Teller:
    """Tells one story."""

    def __init__(self, outcome: Outcome, *, keeps_trace: bool) -> None:
        self._outcome = outcome
        self._keeps_trace = keeps_trace
        self._world: World | None = None
        self._lookout: Lookout | None = None
        self._is_over = False
        self._brokers: list[SimulatedBroker] = []
        self._cluster: BrokerCluster | ProcessCluster | EngineCluster | None = None

    def note_event(self, event: str, fields: dict[str, Any]) -> None:
        """Something that a broker has logged."""
        if self._is_over:
            return
        if self._lookout is not None:
            self._lookout.logged(event, fields)
        if self._keeps_trace and self._world is not None:
            details = " ".join(f"{name}={value}" for name, value in sorted(fields.items()) if name not in MEASURED)
            self._world.trace.happened(f"  log: {event} {details}")

    async def run(self, seed: int) -> None:
        """Raises Violation, and whatever else shows that something is wrong."""
        # Few records are written between two crashes: each sweep that can write a recovery mark does so.
        frequently = mock.patch.multiple(recovery_mark, MARK_INTERVAL_MS=0, FEWEST_MARKED_RECORDS=1)
        try:
            with frequently:
                await self._run(seed)
        finally:
            self._is_over = True

    async def _run(self, seed: int) -> None:
        world = self._world = World(seed)
        script = write_script(world.chance_of("script"))
        if script.engine is not None:
            self._add_brokers(script)
        invariants = Invariants(world)
        crossings = Crossings(world)
        self._lookout = Lookout(world, invariants.evidence, crossings)
        watch = world.loop.create_task(invariants.watch())
        if script.engine is None:
            self._add_brokers(script)
        if isinstance(self._cluster, ProcessCluster):
            await self._cluster.prepared()
        for broker in self._brokers:
            await broker.start()
        addresses = [broker.address for broker in self._brokers]
        stage = Stage(world, HistoryWriter(self._outcome.history.append, world.clock.now_ms), addresses)
        witness = Cluster(world, "witness", stage.bootstrap)
        await _create_topics(witness, script, stage.history)
        if script.is_secured:
            await _set_rules(witness, script)
            world.secured.add(TENANT)
        await age(self._brokers, self._holder, witness, script.epochs, world.clock.now_ms())

        actors = [Actor(stage, name, play) for name, play in script.roles.items()]
        for actor in actors:
            actor.start()
        changing = [Actor(stage, OFFICER, officer())] if script.is_secured else []
        for actor in changing:
            actor.start()
        nemesis = Nemesis(
            world,
            self._brokers,
            actors,
            script.faults,
            pause_s=script.fault_pause_s,
            power_loss_probability=script.power_loss_probability,
            cluster=self._cluster_faults(script, crossings, invariants.evidence),
            repeatable=[actor for actor in actors if actor.name in script.repeatable],
        )
        await nemesis.rage(script.duration_s)
        world.trace.happened("the nemesis rests")
        await self._heal()
        stage.is_over = True
        await self._farewell([*actors, *changing])
        recovering = [actor for actor in actors if actor.name in script.two_phase]
        if AGAIN in script.roles:
            recovering.append(Actor(stage, f"{AGAIN}-at-last", look_back()))
        for actor in recovering:
            actor.start()
        await self._farewell(recovering)
        await self._settle(witness, script, invariants)
        await self._seal()
        await self._final_read(witness, script, stage)
        watch.cancel()
        invariants.settled()
        for broker in self._brokers:
            if not await broker.stop():
                raise Violation(f"{broker.host} died while it stopped")
        invariants.require_no_violation()
        self._check_history()

    def _add_brokers(self, script: Script) -> None:
        assert self._world is not None
        if script.node_count == 1:
            self._brokers.append(self._world.add_broker(settings=script.settings))
            return
        node_count = script.node_count
        cluster: BrokerCluster | ProcessCluster | EngineCluster
        if script.is_of_processes:
            cluster = ProcessCluster(self._world)
        elif script.engine is not None:
            cluster = EngineCluster(self._world, script.engine, script.speeds)
        else:
            cluster = BrokerCluster(self._world, lambda name: zlib.crc32(str(name).encode()) % node_count + 1)
        self._cluster = cluster
        self._brokers += [cluster.add_broker(node_id, script.settings) for node_id in range(1, node_count + 1)]

    def _cluster_faults(
        self, script: Script, crossings: Crossings, evidence: Evidence
    ) -> ClusterFaults | ProcessFaults | EngineFaults | None:
        world, cluster = self._world, self._cluster
        if world is None or cluster is None:
            return None

        def busy() -> list[TopicPartition]:
            return [history.topic_partition for history in evidence.histories.values() if history.open]

        chance = world.chance_of("cluster")
        fixed_topics = [topic.name for topic in script.topics if not topic.is_recorded]
        happened = world.trace.happened
        if isinstance(cluster, ProcessCluster):
            return ProcessFaults(
                world, cluster, crossings, chance, fixed_topics=fixed_topics, busy=busy, happened=happened
            )
        if isinstance(cluster, EngineCluster):
            return EngineFaults(
                world, cluster, crossings, chance, fixed_topics=fixed_topics, busy=busy, happened=happened
            )
        return ClusterFaults(
            world,
            cluster,
            crossings,
            chance,
            fixed_topics=fixed_topics,
            busy=busy,
            isolates=script.has_version_1 or bool(script.group_ids),
            happened=happened,
        )

    def _holder(self, topic_partition: TopicPartition) -> SimulatedBroker:
        return self._brokers[0 if self._cluster is None else self._cluster.holder_id(topic_partition) - 1]

    async def _heal(self) -> None:
        """All brokers up, with every disk in order, and every partition with a leader."""
        if isinstance(self._cluster, ProcessCluster):
            self._cluster.heal()
            await self._cluster.prepared()
        if isinstance(self._cluster, EngineCluster):
            self._cluster.engine.heal()
        for broker in self._brokers:
            broker.before = broker.after = None
            await broker.restart()
        if isinstance(self._cluster, BrokerCluster):
            self._cluster.heal()

    async def _farewell(self, actors: Sequence[Actor]) -> None:
        """Wait until all applications have come to their end. Raises Violation, and what an application raised."""
        tasks = [life.task for actor in actors for life in actor.lives if life.task and not life.process.is_dead]
        if not tasks:
            return  # all were killed just before the end
        done, pending = await asyncio.wait(tasks, timeout=LONGEST_FAREWELL_S)
        for task in sorted(done, key=lambda task: task.get_name()):
            error = task.exception()
            if error is not None:
                raise error
        if pending:
            names = ", ".join(sorted(task.get_name() for task in pending))
            raise Violation(f"liveness: {names} did not come to an end within {LONGEST_FAREWELL_S:.0f} s")

    async def _settle(self, witness: Cluster, script: Script, invariants: Invariants) -> None:
        """Wait until no transaction is open. Raises Violation, and InvariantViolated if that says more."""
        assert self._world is not None
        deadline_s = self._world.loop.time() + LONGEST_SETTLING_S
        while True:
            unsettled = await self._unsettled(witness, script)
            if not unsettled:
                return
            if self._world.loop.time() > deadline_s:
                invariants.require_no_violation()
                raise Violation(f"liveness: {LONGEST_SETTLING_S:.0f} s after the last fault, {unsettled}")
            await asyncio.sleep(1.0)

    async def _seal(self) -> None:
        """Wait until an engine has no more in tails than it may; an invariant says so if that takes too long."""
        assert self._world is not None
        deadline_s = self._world.loop.time() + LONGEST_SETTLING_S
        while isinstance(self._cluster, EngineCluster) and self._world.loop.time() < deadline_s:
            if max(self._cluster.tail_bytes().values()) <= self._cluster.settings.tail_max_bytes:
                return
            await asyncio.sleep(1.0)

    async def _unsettled(self, witness: Cluster, script: Script) -> str:
        """What is not at rest; empty when all is."""
        try:
            for broker in self._brokers:
                request = ListTransactionsRequest(state_filters=list(OPEN_STATES))
                response = await witness.send(broker.address, request, 0)
                if response.error_code:
                    return f"ListTransactions is answered {ErrorCode(response.error_code).name}"
                if response.transaction_states:
                    return f"open: {response.transaction_states}"
            for topic_partition in script.recorded_partitions():
                end_offset = await witness.offset(topic_partition, LATEST)
                stable_offset = await witness.offset(topic_partition, LATEST, isolation_level=READ_COMMITTED)
                if stable_offset != end_offset:
                    return f"{topic_partition} is stable up to {stable_offset}, but ends at {end_offset}"
        except Disconnected as error:
            return f"the witness gets: {error}"
        if isinstance(self._cluster, ProcessCluster | EngineCluster):
            unserved = self._cluster.unserved()
            if unserved:
                return f"no broker serves {', '.join(map(str, unserved))}"
        return ""

    async def _final_read(self, witness: Cluster, script: Script, stage: Stage) -> None:
        """Record for the checker what is there in the end. Raises Violation."""
        history = stage.history.client("witness", isolation_level="read_committed")
        for topic_partition in script.recorded_partitions():
            for _ in range(FINAL_READ_ATTEMPTS):
                if await read_all(witness, history, topic_partition):
                    break
                await asyncio.sleep(1.0)
            else:
                raise Violation(f"liveness: {topic_partition} cannot be read in {FINAL_READ_ATTEMPTS} attempts")
        for group_id in script.group_ids:
            await self._read_offsets(witness, history, group_id, script)

    async def _read_offsets(self, witness: Cluster, history: ClientHistory, group_id: str, script: Script) -> None:
        member = GroupMember(witness, history, group_id, [])
        member.partitions = script.recorded_partitions()
        try:
            await member.final_offsets()
        except Disconnected as error:
            raise Violation(f"liveness: the offsets of group {group_id} cannot be read: {error}") from None

    def _check_history(self) -> None:
        """Raises Violation."""
        report = check_history(self._outcome.history)
        self._outcome.history_counts.update(report.counts)
        if not report.is_valid:
            first = report.findings[0]
            raise Violation(f"{first.anomaly.value}: {first.summary}\n{report.text()}")

    def finish(self) -> None:
        """Add up the figures of the whole."""
        world, outcome = self._world, self._outcome
        if world is None:
            return
        outcome.virtual_s = world.loop.time()
        outcome.crash_count = sum(broker.crash_count for broker in self._brokers)
        outcome.request_count = len(world.trace.exchanges)
        if self._lookout is not None:
            self._lookout.look_back()
        outcome.reached = world.reached
        if self._keeps_trace:
            outcome.lines = [str(entry) for entry in world.trace.entries]
            digest = hashlib.sha256()
            for line in outcome.lines:
                digest.update(line.encode())
            for entry in outcome.history:
                digest.update(entry)
            outcome.digest = digest.hexdigest()


async def _set_rules(witness: Cluster, script: Script) -> None:
    """All roles but the tenant may do everything. Raises Violation."""
    request = allow_everything([name for name in (*script.roles, f"{AGAIN}-at-last") if name != TENANT])
    response = await witness.send(witness.any_node(), request, ACLS_VERSION)
    if any(result.error_code for result in response.results):
        raise Violation(f"rules could not be created: {response.results}")


async def _create_topics(witness: Cluster, script: Script, history: HistoryWriter) -> None:
    """Raises Violation when that does not work."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=1,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
            )
            for topic in script.topics
        ],
        timeout_ms=5_000,
    )
    response = await witness.send(witness.any_node(), request, 5)
    errors = {result.name: ErrorCode(result.error_code).name for result in response.topics if result.error_code}
    if errors:
        raise Violation(f"topics could not be created: {errors}")
    for topic in script.topics:
        if topic.is_recorded:
            history.topic(topic.name, compacted=topic.is_compacted)
