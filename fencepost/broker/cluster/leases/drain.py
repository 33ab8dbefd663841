"""A node that hands over all that it leads: because an administrator has drained it, or because it is about to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_table import NodeEvent, NodeState
from fencepost.broker.kernel.events import get_logger

log = get_logger(__name__)

LOOK_S: Final = 0.02
"""How often a node that stops checks whether it still leads a partition."""


class Drain:
    """The drain of a node, and its end: the node requests the state *leaving* or *alive* for itself.

    is_drained: whether an administrator has drained the node; set when it joins.
    store_event: stores DRAINED or RESUMED of this node; returns False if it is refused. Raises StorageError.
    """

    def __init__(self, placement: LeasePlacement, store_event: Callable[[NodeEvent], Awaitable[bool]]) -> None:
        self.is_drained: Callable[[], bool] = bool
        self._placement = placement
        self._store_event = store_event
        self._is_stopping = False

    async def follow(self) -> None:
        """Request the state that is wanted now: *leaving* or *alive*. Raises StorageError."""
        node_id = self._placement.node_id
        is_draining = self._is_stopping or self.is_drained()
        wanted, event = (NodeState.LEAVING, NodeEvent.DRAINED) if is_draining else (NodeState.ALIVE, NodeEvent.RESUMED)
        state = self._placement.known.table.state(node_id)
        if state in (wanted, NodeState.GONE):
            return
        if await self._store_event(event):
            log.info("node_drains" if is_draining else "node_resumes", node=node_id)
            await self._placement.refresh()

    async def hand_all_over(self, *, within_s: float) -> None:
        """Leave, for the node stops; see `Membership`. The task that moves partitions regularly does the work."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + within_s
        self._is_stopping = True
        while loop.time() < deadline_s:
            if not self._has_something_for_others():
                break
            await asyncio.sleep(LOOK_S)
        left = len(self._placement.known.table.led_by(self._placement.node_id))
        log.info("handed_over_to_stop", partitions_left=left)

    def _has_something_for_others(self) -> bool:
        table, node_id = self._placement.known.table, self._placement.node_id
        others = [each for each in table.nodes_in(NodeState.ALIVE) if each != node_id]
        return bool(others and table.led_by(node_id))
