"""Invariants 32 to 38: what holds between the processes of one broker, which share a disk and the metadata. Some of
them hold between brokers on an engine, too.

They read the rows of nodes and partitions after each transaction, each operation on the disk in its order, and which
files a process has open. They know nothing of what a process believes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from fencepost.broker.cluster.leases.lease_store import StoredLeases
from fencepost.broker.cluster.leases.lease_table import NodeState, PartitionLease
from fencepost.broker.hosting.broker_configs import BROKER_CONFIGS_KEY
from fencepost.broker.hosting.features import FEATURES_KEY
from fencepost.broker.kernel.topic_partition import TopicPartition
from tests.simulation.broker import SimulatedBroker
from tests.simulation.disk import Operation
from tests.simulation.invariants.evidence import Evidence
from tests.simulation.invariants.history import PartitionHistory
from tests.simulation.invariants.invariant import Invariant, Violation
from tests.simulation.invariants.stored_log import StoredBatch, read_segment

if TYPE_CHECKING:
    from tests.simulation.engine_cluster import EngineCluster
    from tests.simulation.process_cluster import ProcessCluster

LONGEST_WITHOUT_LEADER_S: Final = 15.0
"""After the last thing that happened to a process. The slowest sync takes 3 seconds, and opening takes several."""
LONGEST_UNHEARD_S: Final = 1.0
"""After a document has changed, of a process that is undisturbed."""
LONGEST_REPEAT_S: Final = 7.0
"""After the metadata have been refused: a read that has failed is repeated after a pause of up to 5 seconds."""
LATEST_MOVE_S: Final = 5.0
"""After a change of the nodes, or of the choice: a move that was decided before is stored by then. The slowest sync
takes 3 seconds."""
FOLLOWED: Final = frozenset({FEATURES_KEY, BROKER_CONFIGS_KEY})
_PARTITION: Final = re.compile(r"/data/node\.\d+/(?P<topic>[^/]+)-(?P<partition>\d+)")
_SEGMENT: Final = re.compile(r".*/(?P<base_offset>\d{20})\.log")
_LEADER_EPOCH: Final = slice(12, 16)


class OfMembers(Invariant):
    """The brokers, where they are processes of one, or where an engine keeps their logs; otherwise there is nothing to
    hold.
    """

    @property
    def cluster(self) -> ProcessCluster | EngineCluster | None:
        world = self.evidence.world
        return world.engine if world.processes is None else world.processes

    @property
    def brokers(self) -> Mapping[int, SimulatedBroker]:
        return {} if self.cluster is None else self.evidence.world.brokers

    def refused(self) -> frozenset[str]:
        """What keeps brokers from the rows now; empty when nothing does."""
        world = self.evidence.world
        if world.processes is not None:
            return frozenset(world.processes.database.refused)
        return frozenset() if world.engine is None else world.engine.engine.troubles.all()


class OfProcesses(Invariant):
    """The brokers, where they are processes of one; otherwise there is nothing to hold."""

    @property
    def brokers(self) -> Mapping[int, SimulatedBroker]:
        world = self.evidence.world
        return {} if world.processes is None else world.brokers

    def directories(self, name: TopicPartition) -> list[str]:
        """Where the directory of a partition may be."""
        return [f"{broker.data_directory}/{name}" for broker in self.brokers.values()]

    def opened_by(self, name: TopicPartition) -> list[int]:
        """The nodes whose processes live and have files of a partition open, wherever they opened them."""
        return [
            node_id
            for node_id, broker in self.brokers.items()
            if any(broker.disk.has_open_files(directory) for directory in self.directories(name))
        ]


class ClosedWhereItIsNotLed(OfProcesses):
    """32. A partition's files are open in one process at most, and in none but the next leader's when its leader
    changes.
    """

    number = 32

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        for name, lease in after.table.partitions.items():
            was = before.table.partitions.get(name)
            if was is None or was.topic_id != lease.topic_id or was.leader == lease.leader:
                continue
            for node_id in self.opened_by(name):
                if node_id != lease.leader:
                    yield self.violation(
                        f"{name} goes from node {was.leader} to {lease.leader}, and is open in node {node_id}",
                        was,
                        lease,
                    )

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        opened_by = self.opened_by(history.topic_partition) if self.brokers else []
        if len(opened_by) > 1:
            yield self.violation(f"{history} is open in nodes {opened_by}", batch)


class OneWriterPerEpoch(OfMembers):
    """33. The leader epoch of a partition rises with each change of its leader and each start of its process, so that
    each process writes in epochs of its own; it never falls.
    """

    number = 33

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._writers: dict[PartitionHistory, dict[int, str]] = {}

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        for name, lease in after.table.partitions.items():
            was = before.table.partitions.get(name)
            if was is None or was.topic_id != lease.topic_id:
                continue
            if lease.epoch < was.epoch or (lease.leader != was.leader and lease.epoch == was.epoch):
                yield self.violation(f"the epoch of {name} does not rise", was, lease)

    def appended(self, history: PartitionHistory, batch: StoredBatch) -> Iterable[Violation]:
        broker = self.brokers.get(history.node_id)
        if broker is None:
            return
        epoch = int.from_bytes(batch.raw[_LEADER_EPOCH], "big")
        writers = self._writers.setdefault(history, {})
        writer = writers.setdefault(epoch, broker.process.name)
        if writer != broker.process.name:
            yield self.violation(
                f"{history} is written in epoch {epoch} by {writer} and by {broker.process.name}", batch
            )


class NeverBegunAnew(OfProcesses):
    """34. A partition whose directory is recorded as created has it: nobody creates it anew, or deletes it."""

    number = 34

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._created: set[TopicPartition] = set()

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        self._created = {name for name, lease in after.table.partitions.items() if lease.is_created}
        return ()

    def changed(self, broker: SimulatedBroker, operation: Operation) -> Iterable[Violation]:
        if operation.kind not in ("make_directory", "delete"):
            return
        found = _PARTITION.fullmatch(operation.path)
        if found is None or TopicPartition(found["topic"], int(found["partition"])) not in self._created:
            return
        if operation.kind == "make_directory" or not self._is_of_another_topic(broker, operation):
            yield self.violation(f"{operation.path} has been created before, and {broker.host}: {operation.kind}")

    def _is_of_another_topic(self, broker: SimulatedBroker, operation: Operation) -> bool:
        """Whether what was deleted is a left-over: the partition's own directory is elsewhere."""
        found = _PARTITION.fullmatch(operation.path)
        assert found is not None
        name = TopicPartition(found["topic"], int(found["partition"]))
        return any(broker.disk.exists_now(directory) for directory in self.directories(name))


class LedAgain(OfMembers):
    """35. A partition has a leader while any node is alive. Soon after anything happened to a process, each partition
    is served by one that lives, unless its leader hangs.
    """

    number = 35

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._state: object = None
        self._since_s = 0.0

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        if after.table.nodes_in(NodeState.ALIVE):
            for name, lease in after.table.partitions.items():
                if lease.leader is None:
                    yield self.violation(f"{name} has no leader, and nodes are alive", after.table.nodes)

    def observe(self) -> Iterable[Violation]:
        cluster = self.cluster
        if cluster is None:
            return
        refused = self.refused()
        state = (
            [
                (broker.process, broker.is_running, broker.process.is_paused, broker.before, broker.sync_latency_s)
                for broker in self.brokers.values()
            ],
            refused,
        )
        if state != self._state:
            self._state, self._since_s = state, self.evidence.now_s
        disturbed = [broker for broker in self.brokers.values() if broker.before is not None]
        if disturbed or refused or not any(broker.is_running for broker in self.brokers.values()):
            return
        if self.evidence.now_s - self._since_s > LONGEST_WITHOUT_LEADER_S:
            hanging = {node_id for node_id, broker in self.brokers.items() if broker.process.is_paused}
            for name in cluster.unserved():
                if cluster.leader_id(name) not in hanging:
                    yield self.violation(f"{name} is served by no broker", cluster.leader_id(name))
            self._since_s = self.evidence.now_s


class DocumentsAreHeardOf(OfMembers):
    """36. Each process has read a document again soon after another one has changed it."""

    number = 36

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._states: dict[int, object] = {}
        self._since_s: dict[int, float] = {}

    def observe(self) -> Iterable[Violation]:
        cluster = self.cluster
        if cluster is None:
            return
        refused = self.refused()
        documents = {key: version for key, version in cluster.documents().items() if key in FOLLOWED}
        for node_id, broker in self.brokers.items():
            is_refused = bool(refused if self.evidence.world.engine is not None else broker.host in refused)
            is_disturbed = not broker.is_running or broker.process.is_paused or is_refused or broker.before is not None
            state = broker.process, is_disturbed, documents
            if state != self._states.get(node_id):
                self._states[node_id] = state
                self._since_s[node_id] = max(self._since_s.get(node_id, 0.0), self.evidence.now_s)
            if is_disturbed:
                self._since_s[node_id] = self.evidence.now_s + LONGEST_REPEAT_S
            if not is_disturbed and self.evidence.now_s - self._since_s[node_id] > self._longest_unheard_s():
                read = cluster.documents_read_by(node_id)
                for key, version in documents.items():
                    if read.get(key) != version:
                        yield self.violation(
                            f"{broker.host} has read {key!r} in version {read.get(key)}, not {version}"
                        )
                self._since_s[node_id] = self.evidence.now_s

    def _longest_unheard_s(self) -> float:
        """Without news a broker on an engine hears of a change by the renewal of its lease."""
        engine = self.evidence.world.engine
        return LONGEST_UNHEARD_S + (0.0 if engine is None else 2 * engine.settings.lease_renewal_ms / 1000)


class NothingMovesWithoutCause(OfMembers):
    """37. A partition goes to a node that is alive, to the one that an operator chose if it can, and else to one that
    follows from the topic and the nodes that are alive, and from nothing else; of a topic's partitions none of these
    gets two more than another.

    A planned move may have been decided before the last change of the nodes, or of the choice.
    """

    number = 37

    def __init__(self, evidence: Evidence) -> None:
        super().__init__(evidence)
        self._chosen: dict[tuple[bytes, int, frozenset[int]], dict[int, int]] = {}
        self._unsettled_until_s = 0.0

    def observe(self) -> Iterable[Violation]:
        if any(broker.process.is_paused for broker in self.brokers.values()):
            self._expect_late_moves()
        return ()

    def _lapsed(self) -> frozenset[int]:
        """The nodes on an engine whose leases are over: they are given nothing of what was lost."""
        engine = self.evidence.world.engine
        if engine is None:
            return frozenset()
        nodes = engine.engine.rows.nodes
        return frozenset(node_id for node_id, row in nodes.items() if row.lease_until_s < self.evidence.now_s)

    def _expect_late_moves(self) -> None:
        self._unsettled_until_s = self.evidence.now_s + LATEST_MOVE_S

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        is_planned = before.table.nodes == after.table.nodes
        alive = frozenset(after.table.nodes_in(NodeState.ALIVE))
        if not is_planned:
            alive -= self._lapsed()
        for name, lease in after.table.partitions.items():
            was = before.table.partitions.get(name)
            if not is_planned or (was is not None and was.wanted != lease.wanted):
                self._expect_late_moves()
            is_new = was is None or was.topic_id != lease.topic_id
            if was is not None and not is_new and was.leader == lease.leader:
                continue
            if lease.leader is None or not alive:
                continue
            if lease.leader not in alive:
                yield self.violation(
                    f"{name} goes to node {lease.leader}, which is not alive", *after.table.nodes.items()
                )
            elif is_planned and not is_new and self.evidence.now_s < self._unsettled_until_s:
                continue  # it may have been decided before the last change of the nodes, or of the choice
            elif lease.wanted in alive:
                if lease.leader != lease.wanted:
                    yield self.violation(f"{name} goes to node {lease.leader}, and node {lease.wanted} was chosen")
            else:
                count = after.table.partition_count(name.topic)
                yield from self._check_choice(name, lease, count, alive)

    def _check_choice(
        self, name: TopicPartition, lease: PartitionLease, count: int, alive: frozenset[int]
    ) -> Iterator[Violation]:
        """Whether it fits what was chosen for the topic before, when the same nodes were alive."""
        assert lease.leader is not None
        chosen = self._chosen.setdefault((lease.topic_id, count, alive), {})
        before = chosen.setdefault(name.partition, lease.leader)
        if before != lease.leader:
            yield self.violation(f"{name} goes to node {lease.leader} of {sorted(alive)}, and went to {before}")
        most = -(-count // len(alive))
        if (share := list(chosen.values()).count(lease.leader)) > most:
            yield self.violation(f"{share} of {count} partitions of {name.topic} go to one node of {sorted(alive)}")


class LastLeaderStateIsTrue(OfProcesses):
    """38. What is recorded about a log for its next leader is so: all below its recovery point is durable, it does not
    begin after its end, and one that counts as closed has nothing left to be synced.
    """

    number = 38

    def leased(self, before: StoredLeases, after: StoredLeases) -> Iterable[Violation]:
        for name, last_state in after.last_state.items() if self.brokers else ():
            lease, was = after.table.partitions[name], before.table.partitions.get(name)
            if last_state == before.last_state.get(name) and was is not None and lease.leader == was.leader:
                continue
            found = self._directory(name)
            if found is None:
                if last_state.recovery_point or last_state.log_start_offset:
                    yield self.violation(f"{name} has no directory, but it is recorded: {last_state}")
                continue
            broker, directory = found
            durable_end, end = self._ends(broker, directory)
            if last_state.recovery_point > durable_end:
                yield self.violation(f"{name} is durable up to {durable_end}, and it is recorded: {last_state}")
            if last_state.log_start_offset > end:
                yield self.violation(f"{name} ends at {end}, and it is recorded: {last_state}")
            if last_state.was_closed and durable_end < end:
                yield self.violation(f"{name} ends at {end}, is durable up to {durable_end}, and counts as closed")

    def _directory(self, name: TopicPartition) -> tuple[SimulatedBroker, str] | None:
        for broker, directory in zip(self.brokers.values(), self.directories(name), strict=True):
            if broker.disk.exists_now(directory):
                return broker, directory
        return None

    def _ends(self, broker: SimulatedBroker, directory: str) -> tuple[int, int]:
        """Up to where a log is durable, and where it ends."""
        ends = []
        for read in (broker.disk.durable_content, broker.disk.content):
            end = 0
            for path in broker.disk.paths(directory):
                found = _SEGMENT.fullmatch(path)
                if found is None:
                    continue
                batches, _ = read_segment(read(path), 0)
                end = max(end, int(found["base_offset"]), *(batch.last_offset + 1 for batch in batches))
                if read(path) != broker.disk.content(path):
                    break
            ends.append(end)
        return ends[0], ends[1]
