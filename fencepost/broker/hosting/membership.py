"""The seam through which a node takes part in a cluster: from before it opens its logs until they are closed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from fencepost.broker.hosting.arrivals import Arrivals
from fencepost.broker.hosting.leader_choices import LeaderChoices
from fencepost.broker.hosting.placement import Placement
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.durability.shared_log import SharedLog
from fencepost.broker.storage.disk import Disk

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics


class Membership(Protocol):
    """One node's part in the cluster.

    placement: its view of the leaders. leader_choices: what administrators may do; None where that is nothing.
    """

    @property
    def placement(self) -> Placement: ...

    @property
    def leader_choices(self) -> LeaderChoices | None: ...

    def make_logs(self, path: str, disk: Disk, clock: Clock) -> LogDirectory:
        """Make the log directory of this node, which the caller opens and closes. path: absolute."""
        ...

    def arrivals(self, disk: Disk) -> Arrivals:
        """Make what brings directories of partitions to this node."""
        ...

    @property
    def shared_log(self) -> SharedLog | None:
        """What commits the flushes of this node's logs; None where their files are their own."""
        ...

    @property
    def is_held(self) -> Callable[[], bool] | None:
        """Whether this node's lease is certainly in force, asked whenever an answer leaves; None where the system ends
        a process before another one leads. Given with a shared log."""
        ...

    async def join(
        self, endpoints: Mapping[str, tuple[str, int]], *, between_nodes: str, is_drained: Callable[[], bool]
    ) -> None:
        """Take the lease; from now on other nodes know the addresses of the listeners. Raises StorageError.

        between_nodes: the name of the listener on which nodes connect to each other.
        is_drained:    whether an administrator wants this node to hand over all that it leads; asked again and again.
        """
        ...

    def keep(self, topics: Topics) -> None:
        """Take over from nodes that are lost, and hand over what others should lead, until `rest`."""
        ...

    async def hand_all_over(self, *, within_s: float) -> None:
        """Hand over all that this node leads, before it stops; returns when that is done, cannot be, or time is up."""
        ...

    async def rest(self) -> None:
        """Take nothing over any more, and hand nothing over: the node is about to stop."""
        ...

    async def leave(self) -> None:
        """Give the lease back, after the logs are closed."""
        ...
