"""A process of a broker of several: it holds its node's lease, takes over from lost nodes, and hands over the
partitions that others should lead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from fencepost.broker.cluster.leases.drain import Drain
from fencepost.broker.cluster.leases.handover import hand_over_due
from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_store import Endpoints, LeaseStore
from fencepost.broker.cluster.leases.lease_table import NodeEvent, NodeId, NodeState
from fencepost.broker.cluster.processes.node_directories import (
    LEASE_FILE,
    NodeDirectories,
    checkpointed,
    lease_lock,
    node_directory,
)
from fencepost.broker.hosting.membership import NodeLogs
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.storage.disk import Disk, StorageError
from fencepost.broker.storage.local_disk import LocalDisk

log = get_logger(__name__)

KEEPING = Place("take-overs and moves of partitions", Policy.RETRY)

INTERVAL_S = 0.05
"""How often a node looks for leases that are free, with a few system calls each, and for moves that are due."""
GRACE_S = 5.0
"""How long others wait for a node that has not been there yet: processes that start together take nothing over."""
LONGEST_WAIT_FOR_LEASE_S = 10.0
WAIT_FOR_LEASE_S = 0.02
RETRY_PAUSE_S = 0.5


class ProcessMember:
    """The membership of one process, for `Membership`.

    data_directory: path for the whole broker. disk: the machine's file system, unless given.
    """

    def __init__(self, data_directory: str, node_id: NodeId, store: LeaseStore, *, disk: Disk | None = None) -> None:
        self.placement = LeasePlacement(store, node_id)
        self._data_directory = data_directory
        self._node_id = node_id
        self._store = store
        self._disk = LocalDisk() if disk is None else disk
        self.drain = Drain(self.placement, partial(store.node_event, node_id))
        self._lease = contextlib.ExitStack()
        self._absent_since_s: dict[NodeId, float] = {}
        self._keeping: asyncio.Task[None] | None = None

    def make_logs(self, path: str, disk: Disk, clock: Clock) -> NodeLogs:
        """See `Cluster`."""
        directory = LogDirectory(path, disk=disk, clock=clock, files_move=True)
        return NodeLogs(directory, NodeDirectories(self._data_directory, self.placement, self._store, disk))

    @property
    def leader_choices(self) -> LeasePlacement:
        return self.placement

    async def join(self, endpoints: Endpoints, *, between_nodes: str, is_drained: Callable[[], bool]) -> None:
        self.drain.is_drained = is_drained
        await self._take_lease()
        self.placement.between_nodes = between_nodes
        self.placement.follow()
        await self._store.node_event(self._node_id, NodeEvent.STARTED, endpoints=endpoints)
        if is_drained():
            await self._store.node_event(self._node_id, NodeEvent.DRAINED)
        await self.placement.refresh()

    async def _take_lease(self) -> None:
        """Raises StorageError. Another node may have the lock for moments, while it takes over from this one."""
        directory = node_directory(self._data_directory, self._node_id)
        self._disk.make_directory(directory)
        deadline_s = asyncio.get_running_loop().time() + LONGEST_WAIT_FOR_LEASE_S
        while True:
            lock = contextlib.ExitStack()
            if lock.enter_context(lease_lock(self._disk, self._data_directory, self._node_id)):
                self._lease = lock
                return
            lock.close()
            if asyncio.get_running_loop().time() > deadline_s:
                raise StorageError(
                    f"{directory} is in use by another process, which holds a lock on {directory}/{LEASE_FILE}. "
                    "Stop that one; a broker of several processes restarts its own"
                )
            await asyncio.sleep(WAIT_FOR_LEASE_S)

    def keep(self, topics: Topics) -> None:
        self._keeping = KEEPING.start_retrying(lambda: self._keep(topics))

    async def hand_all_over(self, *, within_s: float) -> None:
        await self.drain.hand_all_over(within_s=within_s)

    async def rest(self) -> None:
        await end_tasks(self._keeping)
        self._keeping = None

    async def leave(self) -> None:
        self.placement.stop_following()
        try:
            await self._store.node_event(self._node_id, NodeEvent.STOPPED)
        except StorageError as error:
            # The next start, or another node, finds the lease free.
            log.error("clean_stop_not_recorded", node=self._node_id, reason=str(error))  # noqa: TRY400
        self._lease.close()

    # While the node serves

    async def _keep(self, topics: Topics) -> None:
        while True:
            await asyncio.sleep(INTERVAL_S)
            try:
                for node_id in self._absent():
                    await self._take_over(node_id)
                await self.drain.follow()
                await hand_over_due(self.placement, topics, self._store.move, within_s=INTERVAL_S)
            except StorageError as error:
                log.error("leases_not_changed", reason=str(error))  # noqa: TRY400  # the reason says it all
                await asyncio.sleep(RETRY_PAUSE_S)

    def _absent(self) -> list[NodeId]:
        """Nodes whose leases are free, after their grace, and that have something to be taken over."""
        now_s = asyncio.get_running_loop().time()
        table = self.placement.known.table
        found = []
        for node_id, state in table.nodes.items():
            if node_id == self._node_id:
                continue
            if not self._is_lease_free(node_id):
                self._absent_since_s[node_id] = -GRACE_S  # it was there: its grace is over when it ends
            elif state is not NodeState.GONE or table.led_by(node_id):
                since_s = self._absent_since_s.setdefault(node_id, now_s)
                if now_s - since_s >= GRACE_S:
                    found.append(node_id)
        return found

    def _is_lease_free(self, node_id: NodeId) -> bool:
        try:
            with lease_lock(self._disk, self._data_directory, node_id) as is_locked:
                return is_locked
        except StorageError as error:
            log.error("lease_not_looked_at", node=node_id, reason=str(error))  # noqa: TRY400  # says all
            return False

    async def _take_over(self, node_id: NodeId) -> None:
        """Take over from a node whose process has ended; its lock keeps it from starting meanwhile.

        Raises StorageError.
        """
        directory = node_directory(self._data_directory, node_id)
        with lease_lock(self._disk, self._data_directory, node_id) as is_locked:
            if not is_locked:
                return
            await self.placement.refresh()
            table = self.placement.known.table
            if table.state(node_id) is NodeState.GONE and not table.led_by(node_id):
                return  # another node was faster
            # Also when this task is cancelled, the lock is held until the store has made or refused the change:
            # the lost node could start meanwhile, and lose its partitions again.
            last_state = checkpointed(self._disk, directory, table.partitions)
            await self._store.node_event(node_id, NodeEvent.LOST, last_state=last_state)
        log.warning("node_taken_over", node=node_id)
        await self.placement.refresh()
