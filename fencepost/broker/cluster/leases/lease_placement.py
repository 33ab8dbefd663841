"""Placement by leases: a node's view of the rows in the store, and the partitions that it is handing over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from fencepost.broker.cluster.leases.lease_store import Endpoints, StoredLeases
from fencepost.broker.cluster.leases.lease_table import (
    Move,
    NodeId,
    NodeState,
    PartitionLease,
    all_due_moves,
    next_moves,
    should_lead,
)
from fencepost.broker.hosting.leader_choices import LeaderChoice, NodeDescription
from fencepost.broker.hosting.placement import NO_PORT, NodeAddress
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState

REMEMBERED_S = 60.0
"""Time during which Metadata names a lost node: longer than the pauses between restarts of a crashing process."""
SETTLING_S = 15.0
"""Default time during which a node that has joined gets no further partitions: see `should_lead`."""
NO_EPOCH = 0
"""Of a partition that is not placed yet."""


class Leases(Protocol):
    """The store of the leases, as the placement needs it. on_placement_changed: awaited when rows may have changed."""

    on_placement_changed: list[Callable[[], Awaitable[None]]]

    async def load_leases(self) -> StoredLeases:
        """Read all rows as of one moment. Raises StorageError."""
        ...

    async def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        """Record the nodes that should lead partitions; None: the one by its share. Raises StorageError."""
        ...

    async def release(self, node_id: NodeId, topic_ids: Collection[bytes]) -> None:
        """Record that a node has no logs open of topics that are deleted. Raises StorageError."""
        ...


class LeasePlacement:
    """The leases as of the last `refresh`, for `Placement` and `LeaderChoices`.

    between_nodes: the name of the listener on which nodes connect to each other.
    settling_s:    time during which a node that has joined gets no further partitions.
    on_changed:    see `Placement`; called for partitions that are lost before those that are gained.
    """

    def __init__(self, store: Leases, node_id: NodeId, *, between_nodes: str = "") -> None:
        self.on_changed: list[Callable[[TopicPartition], None]] = []
        self.node_id = node_id
        self._store = store
        self.between_nodes = between_nodes
        self.settling_s = SETTLING_S
        self._known = StoredLeases()
        self._due: Sequence[Move] | None = None  # kept, as they are asked for often and seldom change
        self._due_without: Collection[NodeId] = ()
        self._came_s: dict[NodeId, float] = {}  # when this node saw others come that were not there before
        self._addresses: dict[NodeId, NodeAddress] = {}
        self._lost: dict[NodeId, tuple[NodeAddress, float]] = {}  # with when it went, by the event loop's clock
        self._handing_over: set[TopicPartition] = set()
        self._not_led: dict[TopicPartition, bytes] = {}  # with the ids of their topics, until their rows change
        self._deleted: Collection[bytes] = ()  # ids of topics that the last refresh has not found any more
        self._is_resigned = False
        self._refreshing = asyncio.Lock()
        self._follower = self.refresh

    def follow(self) -> None:
        """From now on, refresh when the store reports a change."""
        self._store.on_placement_changed.append(self._follower)

    def stop_following(self) -> None:
        self._store.on_placement_changed.remove(self._follower)

    # Placement

    def is_local(self, topic_partition: TopicPartition) -> bool:
        lease = self._lease(topic_partition)
        return (
            lease is not None
            and lease.leader == self.node_id
            and topic_partition not in self._handing_over
            and not self._is_resigned
            and not (self._not_led and self._not_led.get(topic_partition) == lease.topic_id)
        )

    def leader(self, topic_partition: TopicPartition) -> NodeAddress | None:
        lease = self._lease(topic_partition)
        if lease is None or lease.leader is None:
            return None
        if lease.leader == self.node_id and not self.is_local(topic_partition):
            return None
        return self._addresses.get(lease.leader)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        lease = self._lease(topic_partition)
        return NO_EPOCH if lease is None else lease.epoch

    def topic_id(self, topic_partition: TopicPartition) -> bytes | None:
        lease = self._lease(topic_partition)
        return None if lease is None else lease.topic_id

    def was_deleted(self, topic_id: bytes) -> bool:
        return topic_id in self._deleted

    def other_nodes(self) -> Sequence[NodeAddress]:
        return [self._addresses[node_id] for node_id in sorted(self._addresses) if node_id != self.node_id]

    def recently_lost(self) -> Sequence[NodeAddress]:
        if not self._lost:
            return ()
        now_s = asyncio.get_running_loop().time()
        self._lost = {each: lost for each, lost in self._lost.items() if now_s - lost[1] < REMEMBERED_S}
        return [address for address, _ in self._lost.values()]

    def address(self, node_id: int) -> NodeAddress | None:
        return self._addresses.get(node_id)

    # Other properties of the leases

    @property
    def known(self) -> StoredLeases:
        return self._known

    def is_created(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition's directory has certainly been created."""
        lease = self._lease(topic_partition)
        return lease is not None and lease.is_created

    def last_state(self, topic_partition: TopicPartition) -> LastLeaderState:
        """How the last leader left the log."""
        return self._known.last_state.get(topic_partition, LastLeaderState())

    def due_moves(self, is_movable: Callable[[TopicPartition], bool] | None = None) -> Sequence[Move]:
        """The next moves of partitions that this node leads and is not handing over already.

        is_movable: whether a partition may move now; any may, unless given. Others do not wait for one that may not.
        """
        unsettled = self._unsettled()
        if self._due is None or self._due_without != unsettled:
            self._due, self._due_without = all_due_moves(self._known.table, self.node_id, unsettled), unsettled
        due = [move for move in self._due if move.topic_partition not in self._handing_over]
        if is_movable is not None:
            due = [move for move in due if is_movable(move.topic_partition)]
        return next_moves(due)

    # LeaderChoices

    def nodes(self) -> Sequence[NodeDescription]:
        known = self._known
        return [
            NodeDescription(node_id, state.value, known.since_ms[node_id], _listeners(known.endpoints.get(node_id, {})))
            for node_id, state in sorted(known.table.nodes.items())
        ]

    def choice(self, topic_partition: TopicPartition) -> LeaderChoice:
        lease = self._lease(topic_partition)
        if lease is None:
            return LeaderChoice()
        leader = should_lead(self._known.table, topic_partition, lease, self._unsettled())
        return LeaderChoice(lease.wanted, None if leader == lease.leader else leader)

    async def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        await self._store.choose(choices)

    def _unsettled(self) -> frozenset[NodeId]:
        """Nodes that joined within the last `settling_s`: see `should_lead`."""
        if not self._came_s:
            return frozenset()
        now_s = asyncio.get_running_loop().time()
        self._came_s = {node_id: came_s for node_id, came_s in self._came_s.items() if now_s - came_s < self.settling_s}
        return frozenset(self._came_s)

    def _lease(self, topic_partition: TopicPartition) -> PartitionLease | None:
        return self._known.table.partitions.get(topic_partition)

    # Changing

    def begin_handing_over(self, names: Iterable[TopicPartition]) -> None:
        """Stop leading partitions, to move them. The caller stops serving them in the same step: `Topics.hand_over`."""
        self._handing_over.update(names)

    def end_handing_over(self, names: Iterable[TopicPartition]) -> None:
        """Lead again the partitions that have not moved. `refresh` has already notified of the others."""
        for name in names:
            self._handing_over.discard(name)
            if self.is_local(name):
                self._notify(name)

    def resign(self) -> None:
        """Lead no partition, despite the rows, until `refresh` with `takes_up`: the node has lost its lease."""
        led = [name for name in self._known.table.led_by(self.node_id) if self.is_local(name)]
        self._is_resigned = True
        for name in led:
            self._notify(name)

    def resign_from(self, keys: Collection[tuple[bytes, int]]) -> None:
        """Stop leading partitions, given by topic id and number, that another node has deleted: `refresh` is yet to
        find out."""
        for name, lease in self._known.table.partitions.items():
            if (lease.topic_id, name.partition) in keys and self.is_local(name):
                self._not_led[name] = lease.topic_id
                self._notify(name)

    async def refresh(self, *, takes_up: bool = False) -> None:
        """Read the leases, then notify of the changes in one step. Raises StorageError.

        takes_up: whether a node that has resigned leads again, having started again: each epoch has risen meanwhile.
        """
        async with self._refreshing:
            before, after = self._known, await self._store.load_leases()
            self._known = after
            # Not only the changes: another refresh may have read the new epochs while the node was resigned.
            taken_up = after.table.led_by(self.node_id) if takes_up and self._is_resigned else []
            if takes_up:
                self._is_resigned = False
            self._due = None
            addresses = {
                node_id: self._address(node_id, after)
                for node_id, state in after.table.nodes.items()
                if state is not NodeState.GONE
            }
            now_s = asyncio.get_running_loop().time()
            if before.table.nodes:
                self._came_s |= {node_id: now_s for node_id in addresses if node_id not in self._addresses}
            self._lost = {
                node_id: (
                    self._address(node_id, after),
                    # Of a node that was lost before this one started, too; and a clock that jumps keeps none for ever.
                    min(now_s - gone_for_s, self._lost[node_id][1] if node_id in self._lost else now_s),
                )
                for node_id in after.table.nodes
                # This node answers, even if others call it lost: a client refuses an answer that names a node twice.
                if node_id != self.node_id
                and (gone_for_s := after.gone_for_s(node_id)) is not None
                and gone_for_s < REMEMBERED_S
            }
            self._addresses = addresses
            names = [*before.table.partitions, *(after.table.partitions.keys() - before.table.partitions.keys())]
            changed = [name for name in names if _led(before, name) != _led(after, name)]
            self._deleted = {topic_id for name in changed if (topic_id := _deleted_id(before, after, name)) is not None}
            self._not_led = {name: topic_id for name, topic_id in self._not_led.items() if name not in changed}
            for name in sorted(dict.fromkeys([*changed, *taken_up]), key=self.is_local):
                self._notify(name)
            # Their logs are closed by now: the last one may have been in this step.
            if held := after.held.get(self.node_id):
                await self._store.release(self.node_id, held)

    def _notify(self, topic_partition: TopicPartition) -> None:
        for callback in list(self.on_changed):
            callback(topic_partition)

    def _address(self, node_id: NodeId, known: StoredLeases) -> NodeAddress:
        endpoints = known.endpoints[node_id]
        host, port = endpoints.get(self.between_nodes, ("", NO_PORT))
        return NodeAddress(node_id, host, port, _listeners(endpoints), known.racks.get(node_id))


def _listeners(endpoints: Endpoints) -> tuple[tuple[str, str, int], ...]:
    # A socket between processes has no port, and no client.
    return tuple((name, *address) for name, address in sorted(endpoints.items()) if address[1] != NO_PORT)


def _deleted_id(before: StoredLeases, after: StoredLeases, name: TopicPartition) -> bytes | None:
    """The id of the topic that a partition belonged to, if that is not there any more."""
    lease, first = before.table.partitions.get(name), after.table.partitions.get(TopicPartition(name.topic, 0))
    return None if lease is None or (first is not None and first.topic_id == lease.topic_id) else lease.topic_id


def _led(leases: StoredLeases, name: TopicPartition) -> tuple[bytes, NodeId | None, int] | None:
    lease = leases.table.partitions.get(name)
    return None if lease is None else (lease.topic_id, lease.leader, lease.epoch)
