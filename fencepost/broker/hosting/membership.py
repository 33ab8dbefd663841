"""The seam through which a node takes part in a cluster: its lease, and the engine of its logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from fencepost.broker.hosting.arrivals import Arrivals
from fencepost.broker.hosting.leader_choices import LeaderChoices
from fencepost.broker.hosting.placement import Placement
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.durability.shared_log import SharedLog
from fencepost.broker.log.log_types import Isolation
from fencepost.broker.log.reads.reading import FetchedLog
from fencepost.broker.storage.disk import Disk

if TYPE_CHECKING:
    from fencepost.broker.cluster.machines.engine_figures import EngineFigures
    from fencepost.broker.hosting.topics import Topics


class Membership(Protocol):
    """One node's part in the cluster.

    placement: its view of the leaders. leader_choices: administrators' operations; None if there are none.
    """

    @property
    def placement(self) -> Placement: ...

    @property
    def leader_choices(self) -> LeaderChoices | None: ...

    async def join(
        self, endpoints: Mapping[str, tuple[str, int]], *, between_nodes: str, is_drained: Callable[[], bool]
    ) -> None:
        """Take the lease; from now on other nodes know the addresses of the listeners. Raises StorageError.

        between_nodes: the name of the listener on which nodes connect to each other.
        is_drained:    whether an administrator wants this node to hand over its partitions; polled.
        """
        ...

    def keep(self, topics: Topics) -> None:
        """Take over from lost nodes, and hand over partitions that others should lead, until `rest`."""
        ...

    async def hand_all_over(self, *, within_s: float) -> None:
        """Hand over all partitions that this node leads; returns when done or impossible, or after `within_s`."""
        ...

    async def rest(self) -> None:
        """Stop taking over and handing over: the node is about to stop."""
        ...

    async def leave(self) -> None:
        """Release the lease, after the logs are closed."""
        ...


class ReadReplicas(Protocol):
    """The sealed part of logs, which any node of a cluster can read."""

    def sealed_bound(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        """The offset up to which a replica of a partition that this node leads can be read; 0 of others."""
        ...

    def find(
        self, topic_partition: TopicPartition, topic_id: bytes, offset: int, isolation: Isolation
    ) -> FetchedLog | None:
        """The replica of a partition that another node leads, to be read at an offset; None if only the leader may have
        records there.

        One that has just been made has nothing yet; it calls its watchers.
        """
        ...


class Engine(Protocol):
    """Keeps the logs of a node for their next leaders, beyond the node's own life.

    shared_log:    commits their flushes.
    read_replicas: None if this node has no rack.
    """

    @property
    def read_replicas(self) -> ReadReplicas | None: ...

    @property
    def shared_log(self) -> SharedLog: ...

    def is_held(self) -> bool:
        """Whether this node's lease is certainly in force; called when an answer of a leader leaves."""
        ...

    async def begin(self) -> None:
        """Delete the leftovers of an earlier process, before the node joins. Raises StorageError."""
        ...

    def keep(self) -> None:
        """Begin work in the background, once the node serves."""
        ...

    async def rest(self) -> None:
        """End the work in the background, before logs are closed."""
        ...

    def figures(self) -> EngineFigures:
        """The figures of this node, as of now."""
        ...


@dataclass(frozen=True)
class NodeLogs:
    """The log directory of a node, which the caller opens and closes, and the parts that its logs depend on.

    arrivals: gets the directories of partitions to this node; None if it leads all of them.
    engine:   None if the files are the logs. Then the system ends a process before another one leads.
    """

    directory: LogDirectory
    arrivals: Arrivals | None = None
    engine: Engine | None = None


@dataclass(frozen=True)
class Cluster:
    """The cluster of a node. make_logs: for its absolute path on its disk."""

    membership: Membership
    make_logs: Callable[[str, Disk, Clock], NodeLogs]
