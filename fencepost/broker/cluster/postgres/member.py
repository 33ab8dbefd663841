"""A broker of several machines: it renews its lease, takes over from nodes whose leases are over, and hands over the
partitions that others should lead.

A node that has lost its lease, or cannot know that it has it, resigns: it leads nothing from that step on. Then it
starts again, as another incarnation with another fence, in the same process.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import Final, Protocol
from uuid import uuid4

from fencepost.broker.cluster.leases.drain import Drain
from fencepost.broker.cluster.leases.handover import hand_over_due
from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_store import Endpoints
from fencepost.broker.cluster.leases.lease_table import NodeId
from fencepost.broker.cluster.leases.local_lease import LocalLease
from fencepost.broker.cluster.postgres.connections import LeaseLostError
from fencepost.broker.cluster.postgres.lease_store import (
    IncompatibleVersionError,
    NodeIdInUseError,
    PostgresLeaseStore,
)
from fencepost.broker.cluster.tail.tail_store import PartitionKey
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks, stop_broker
from fencepost.broker.storage.disk import StorageError

log = get_logger(__name__)

RENEWING = Place("renewal of the node's lease", Policy.RETRY)
KEEPING = Place("take-overs and moves of partitions in the cluster", Policy.RETRY)

MOVES_INTERVAL_S: Final = 0.2
"""How often a node looks, in memory, for moves that are due."""
AFTER_END_S: Final = 0.02
"""How long after the end of another node's lease this one looks whether it has been renewed."""
RETRY_PAUSE_S: Final = 0.5
OWN_LEASE_RENEWALS: Final = 2
"""How many renewals a process with this node's addresses has to have left out until it counts as this node before it
was killed, whose lease is taken at once."""
STANDBYS_INTERVAL_S: Final = 10.0
"""How often a node looks at the standbys of PostgreSQL, with two small queries."""
START_PAUSE_S: Final = 0.2
"""Between attempts to start while another process has the node id: its lease may be running out."""


class Connections(Protocol):
    """The connections to PostgreSQL that leading takes, beside that of the lease."""

    def connect(self) -> Awaitable[None]:
        """Open all of them that are not open. Raises StorageError."""
        ...

    def unconnected_since_s(self) -> float | None:
        """Since when, by the loop's clock, one of them could not be opened; None if all are there."""
        ...

    def close(self) -> Awaitable[None]:
        """Close them, after all logs are closed."""
        ...


class PostgresMember:
    """The membership of one broker, for `Membership`; also its tenure, for the log of its flushes.

    fence:      number under which this incarnation flushes; 0 before the first start.
    lease:      the node's right to answer as a leader.
    on_started: called after each start with its fence, before anything is led in this incarnation.
    renew_interval_s: between renewals; a fraction of the store's lease_s.
    connections: those that the engine of this member's logs uses. monotonic_s: a clock that nobody sets, in seconds.
    take_overs_count: lost nodes that this one took over from, since the start. resignations_count: those of this one.
    """

    def __init__(
        self,
        store: PostgresLeaseStore,
        node_id: NodeId,
        *,
        renew_interval_s: float,
        connections: Connections,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.node_id = node_id
        self.fence = 0
        self.placement = LeasePlacement(store, node_id)
        self.drain = Drain(self.placement, partial(store.node_event, node_id))
        self.lease = LocalLease(store.lease_s, monotonic_s=monotonic_s)
        self.on_started: list[Callable[[], None]] = []
        self._store = store
        self._connections = connections
        self._renew_interval_s = renew_interval_s
        self._endpoints: Endpoints = {}
        self._has_resigned = asyncio.Event()
        self._lost: Sequence[NodeId] = ()
        self._look = asyncio.Event()
        self._takes_over_from_s = 0.0
        self._look_at_s = 0.0
        self._standbys_at_s = 0.0
        self.take_overs_count = 0
        self.resignations_count = 0
        self._renewing: asyncio.Task[None] | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def asynchronous_standbys_count(self) -> int:
        """Standbys of PostgreSQL that no commit waits for."""
        return self._store.standbys.asynchronous_count

    @property
    def leader_choices(self) -> LeasePlacement:
        return self.placement

    # Tenure of this node

    def is_held(self) -> bool:
        """Whether the lease is certainly still in force: no other node leads a partition that this one leads."""
        return self.lease.is_held()

    def resign(self, reason: str) -> None:
        """Stop leading all partitions, in this step, and start again as another incarnation."""
        if self._has_resigned.is_set():
            return
        self._has_resigned.set()
        self.resignations_count += 1
        self.lease.lost()
        led = len(self.placement.known.table.led_by(self.node_id))
        log.error("node_resigned", node=self.node_id, partitions=led, reason=reason, remedy="it starts again by itself")
        self.placement.resign()

    def resign_from(self, keys: Collection[PartitionKey]) -> None:
        """Stop leading partitions, in this step, whose topics another node has deleted."""
        self.placement.resign_from(keys)
        log.warning(
            "partitions_resigned",
            node=self.node_id,
            partitions=len(keys),
            reason="their topics were deleted; what was sent to them since is refused",
        )

    # From the start to the stop

    async def join(self, endpoints: Endpoints, *, between_nodes: str, is_drained: Callable[[], bool]) -> None:
        self.drain.is_drained = is_drained
        self._endpoints = endpoints
        await self._connections.connect()
        self.placement.between_nodes = between_nodes
        await self._start(own_lease_after_s=OWN_LEASE_RENEWALS * self._renew_interval_s)
        self.placement.follow()
        # Beside all that follows: opening the node's logs may take longer than a lease.
        self._renewing = RENEWING.start_retrying(self._renew_regularly)
        await self.placement.refresh()

    async def _start(self, *, own_lease_after_s: float | None) -> None:
        """See `PostgresLeaseStore.start`. Waits while another process has the node id or an address, as long as its
        lease may last. Raises StorageError."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + 2 * self._store.lease_s
        while True:
            sent_at_s = self.lease.now_s()
            try:
                self.fence = await self._store.start(self.node_id, self._endpoints, own_lease_after_s=own_lease_after_s)
            except NodeIdInUseError:
                if loop.time() >= deadline_s:
                    raise
                await self._shorten_leases()
                await asyncio.sleep(START_PAUSE_S)
            else:
                break
        self.lease.renewed(sent_at_s)
        log.info("node_joined", node=self.node_id, fence=self.fence, incarnation=str(self._store.incarnation))
        for hook in list(self.on_started):
            hook()

    def keep(self, topics: Topics) -> None:
        self._keeping = KEEPING.start_retrying(lambda: self._keep(topics))

    async def hand_all_over(self, *, within_s: float) -> None:
        await self.drain.hand_all_over(within_s=within_s)

    async def rest(self) -> None:
        await end_tasks(self._keeping)
        self._keeping = None

    async def leave(self) -> None:
        self.placement.stop_following()
        await end_tasks(self._renewing)
        self._renewing = None
        try:
            if not self._has_resigned.is_set():
                await self._store.leave(self.node_id)
        except StorageError as error:
            # Another node takes over when the lease is over.
            log.error("clean_stop_not_recorded", node=self.node_id, reason=str(error))  # noqa: TRY400
        self.lease.lost()
        await self._connections.close()

    # The lease

    async def _renew_regularly(self) -> None:
        while True:
            if self._has_resigned.is_set():
                await self._start_again()
            sent_at_s = self.lease.now_s()
            self._look_at_s = sent_at_s + self._renew_interval_s
            try:
                await self._renew(sent_at_s)
            except LeaseLostError as error:
                self.resign(str(error))
                continue
            except StorageError as error:
                log.warning(
                    "lease_not_renewed", node=self.node_id, left_s=round(self.lease.left_s(), 1), reason=str(error)
                )
            pause_s = max(0.0, min(sent_at_s + self._renew_interval_s, self._look_at_s) - self.lease.now_s())
            try:
                async with asyncio.timeout(pause_s):
                    await self._has_resigned.wait()
            except TimeoutError:
                pass  # the usual case

    async def _renew(self, sent_at_s: float) -> None:
        """Raises StorageError."""
        renewal = await self._store.renew(self.node_id)
        if self._has_resigned.is_set():
            return  # meanwhile: the renewed lease belongs to an incarnation that is over
        # Checked after the answer: PostgreSQL may have been unavailable during the renewal.
        if not self.lease.is_held():
            self._leave_others_time()
        self.lease.renewed(sent_at_s)
        # The lease of a node that lives is renewed long before its end, so this is no more often than usual.
        self._look_at_s = self.lease.now_s() + (
            self._store.lease_s if renewal.soonest_end_s is None else renewal.soonest_end_s + AFTER_END_S
        )
        self._store.seen_counts(renewal.counts)
        if renewal.was_set_back:
            await self._shorten_leases()
        self._lost = renewal.lost if self.lease.now_s() >= self._takes_over_from_s else ()
        if self._lost:
            self._look.set()

    async def _shorten_leases(self) -> None:
        """Shorten the leases after PostgreSQL's clock was set back; a failure is retried at the next renewal."""
        try:
            shortened = await self._store.shorten_leases()
        except StorageError as error:
            log.warning("leases_not_shortened", node=self.node_id, reason=str(error))
            return
        if shortened:
            log.warning(
                "leases_shortened",
                nodes=shortened,
                reason="PostgreSQL's clock was set back: they would have ended later than any lease can",
                remedy="let that clock be slewed, not set",
            )

    async def _start_again(self) -> None:
        """Start as another incarnation. Retries while PostgreSQL does not answer."""
        while True:
            try:
                await self._store.begin_incarnation(uuid4())
                await self._connections.connect()
                await self._start(own_lease_after_s=None)
                await self.placement.refresh(takes_up=True)
            except (NodeIdInUseError, IncompatibleVersionError) as error:
                stop_broker(str(error), remedy="do what the reason says, then start this broker again")
                await asyncio.Event().wait()  # the broker stops
            except StorageError as error:
                log.error("node_not_started_again", node=self.node_id, reason=str(error))  # noqa: TRY400
                await asyncio.sleep(RETRY_PAUSE_S)
            else:
                self._leave_others_time()
                self._has_resigned.clear()
                return

    def _leave_others_time(self) -> None:
        """Take no partition over for one lease: after an outage of PostgreSQL the others have yet to renew theirs."""
        self._takes_over_from_s = self.lease.now_s() + self._store.lease_s

    # While the node serves

    async def _keep(self, topics: Topics) -> None:
        while True:
            try:
                async with asyncio.timeout(MOVES_INTERVAL_S):
                    await self._look.wait()
            except TimeoutError:
                pass  # the usual case
            self._look.clear()
            if self._has_resigned.is_set():
                continue
            try:
                await self._require_connections()
                lost, self._lost = self._lost, ()
                for node_id in lost:
                    await self._take_over(node_id)
                await self.drain.follow()
                await self._look_at_standbys()
                store_moves = partial(self._store.move, fence=self.fence)
                await hand_over_due(self.placement, topics, store_moves, within_s=MOVES_INTERVAL_S)
            except LeaseLostError as error:
                self.resign(str(error))
            except StorageError as error:
                log.error("leases_not_changed", reason=str(error))  # noqa: TRY400  # the reason says it all
                await asyncio.sleep(RETRY_PAUSE_S)

    async def _look_at_standbys(self) -> None:
        """Raises StorageError."""
        if self.lease.now_s() >= self._standbys_at_s:
            self._standbys_at_s = self.lease.now_s() + STANDBYS_INTERVAL_S
            await self._store.look_at_standbys()

    async def _require_connections(self) -> None:
        """Resign, if PostgreSQL renews the lease of this node, but has refused for longer than a lease the connections
        without which the node cannot serve its partitions."""
        since_s = self._connections.unconnected_since_s()
        is_long = since_s is not None and asyncio.get_running_loop().time() - since_s > self._store.lease_s
        if not is_long or not self.lease.is_held() or self.lease.now_s() < self._takes_over_from_s:
            return
        try:
            await self._connections.connect()
        except StorageError as error:
            if self.lease.is_held():
                self.resign(str(error))

    async def _take_over(self, node_id: NodeId) -> None:
        """Raises StorageError."""
        if await self._store.take_over(node_id):
            self.take_overs_count += 1
            log.warning("node_taken_over", node=node_id)
            await self.placement.refresh()
