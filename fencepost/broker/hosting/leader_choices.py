"""The seam through which administrators see the nodes of a cluster, and choose the leader of a partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.kernel.topic_partition import TopicPartition


class NodeDescription(NamedTuple):
    """A node of the cluster, live or lost. state: a value of `NodeState`; since_ms: the wall time at which that began.

    listeners: the name, host and port of those that it advertised last.
    """

    node_id: int
    state: str
    since_ms: int
    listeners: tuple[tuple[str, str, int], ...]

    @property
    def is_alive(self) -> bool:
        return self.state != GONE

    @property
    def takes_partitions(self) -> bool:
        return self.state == ALIVE


ALIVE, GONE = "alive", "gone"
"""States of nodes that requests ask for."""


class LeaderChoice(NamedTuple):
    """The intended leader of a partition. chosen: the node that an administrator has chosen, None for none.
    next_leader: the node that it is being moved to, None if it need not move."""

    chosen: int | None = None
    next_leader: int | None = None


class LeaderChoices(Protocol):
    """A cluster's operations for administrators; a node that is alone has none of them."""

    def nodes(self) -> Sequence[NodeDescription]:
        """All nodes that have ever joined, in order of their ids."""
        ...

    def choice(self, topic_partition: TopicPartition) -> LeaderChoice:
        """The intended leader of a partition, as this node knows it."""
        ...

    async def choose(self, choices: Mapping[TopicPartition, int | None]) -> None:
        """Record the nodes that should lead partitions; None gives the choice back to the cluster.

        The leaders move them. A partition that does not exist any more is left out. Raises StorageError.
        """
        ...
