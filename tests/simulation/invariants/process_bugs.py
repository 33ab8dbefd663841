"""Bugs to plant in what processes of one broker decide about leases, directories and moves. Checkers must find them."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from fencepost.broker.cluster.leases import handover, lease_store
from fencepost.broker.cluster.leases import lease_table as leases
from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_table import (
    LeaseTable,
    Move,
    NodeChange,
    NodeEvent,
    NodeId,
    PartitionLease,
    Placed,
)
from fencepost.broker.cluster.processes import process_member
from fencepost.broker.cluster.processes.node_directories import NodeDirectories
from fencepost.broker.cluster.processes.process_member import ProcessMember
from fencepost.broker.hosting.arrivals import Arrival, Found
from fencepost.broker.hosting.confirmations import Confirmations
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.metadata.followed_documents import FollowedDocuments

# Leases


def a_node_counts_as_lost_while_its_lock_is_held() -> AbstractContextManager[Any]:
    @contextmanager
    def lease_lock(*_: object) -> Iterator[bool]:
        yield True

    return patch.object(process_member, "lease_lock", lease_lock)


def _decided(change: Any) -> AbstractContextManager[Any]:
    original = leases.decide_event

    def decide_event(table: LeaseTable, node_id: NodeId, event: NodeEvent) -> NodeChange | None:
        decided = original(table, node_id, event)
        return None if decided is None else decided._replace(placed=tuple(change(table, event, decided)))

    return patch.object(lease_store, "decide_event", decide_event)


def a_start_raises_no_epoch() -> AbstractContextManager[Any]:
    def change(_: LeaseTable, event: NodeEvent, decided: NodeChange) -> Iterator[Placed]:
        for placed in decided.placed:
            if event is not NodeEvent.STARTED or placed.leader != decided.node_id:
                yield placed

    return _decided(change)


def a_take_over_raises_no_epoch() -> AbstractContextManager[Any]:
    def change(_: LeaseTable, event: NodeEvent, decided: NodeChange) -> Iterator[Placed]:
        for placed in decided.placed:
            yield placed._replace(epoch=placed.epoch - 1) if event is NodeEvent.LOST else placed

    return _decided(change)


def a_take_over_forgets_a_partition() -> AbstractContextManager[Any]:
    """It stays with the node that is lost, which leads nothing any more when it starts again."""

    def change(table: LeaseTable, event: NodeEvent, decided: NodeChange) -> Iterator[Placed]:
        for number, placed in enumerate(decided.placed):
            yield placed._replace(leader=None) if event is NodeEvent.LOST and number == 0 else placed

    return _decided(change)


def two_nodes_take_over_from_one() -> AbstractContextManager[Any]:
    """Each decides from the rows that it has read before, and stores what it has decided."""
    original = ProcessMember._take_over

    async def take_over(self: ProcessMember, node_id: NodeId) -> None:
        known = self.placement.known.table

        def decide_event(table: LeaseTable, node_id: NodeId, event: NodeEvent) -> NodeChange | None:
            decided = decide(table, node_id, event)
            if event is not NodeEvent.LOST or decided is None:
                return decided
            stale = [Placed(name, self._node_id, known.partitions[name].epoch + 1) for name in known.led_by(node_id)]
            return decided._replace(placed=tuple(one for one in stale if one.topic_partition in table.partitions))

        decide = leases.decide_event
        with patch.object(lease_store, "decide_event", decide_event), patch.object(LeasePlacement, "refresh", _nothing):
            await original(self, node_id)
        await self.placement.refresh()

    return patch.object(ProcessMember, "_take_over", take_over)


async def _nothing(*_: object) -> None:
    pass


# Moves


def a_move_is_stored_before_the_log_is_closed() -> AbstractContextManager[Any]:
    async def hand_over(placement: LeasePlacement, topics: Any, moves: Sequence[Move], store_moves: Any) -> None:
        names = [move.topic_partition for move in moves]
        placement.begin_handing_over(names)
        try:
            await store_moves(dict.fromkeys(moves, LastLeaderState()))
            await topics.hand_over(names)
        finally:
            await handover.know_leaders(placement)
            placement.end_handing_over(names)

    return patch.object(handover, "hand_over", hand_over)


def a_node_leads_again_without_a_look_whether_its_move_is_stored() -> AbstractContextManager[Any]:
    return patch.object(handover, "know_leaders", _nothing)


def partitions_are_dealt_out_by_chance() -> AbstractContextManager[Any]:
    """By a hash of each partition alone: some nodes get more than others."""

    def preferred(
        name: TopicPartition, lease: PartitionLease, candidates: Sequence[NodeId], _count: int
    ) -> NodeId | None:
        if lease.wanted in candidates:
            return lease.wanted
        seed = zlib.crc32(lease.topic_id + bytes([name.partition]))
        return candidates[seed % len(candidates)] if candidates else None

    return patch.object(leases, "preferred", preferred)


def partitions_are_dealt_out_anew_each_time() -> AbstractContextManager[Any]:
    """As many for each node, but others at each take-over."""
    original, turns = leases.preferred, itertools.count()

    def preferred(
        name: TopicPartition, lease: PartitionLease, candidates: Sequence[NodeId], count: int
    ) -> NodeId | None:
        turned = PartitionLease(lease.topic_id[:-1] + bytes([next(turns) % 256]), lease.leader, wanted=lease.wanted)
        return original(name, turned, candidates, count)

    return patch.object(leases, "preferred", preferred)


# Directories, and how logs were left


def a_directory_that_is_not_here_is_created() -> AbstractContextManager[Any]:
    original = NodeDirectories._prepare

    def prepare(self: NodeDirectories, name: TopicPartition, sources: set[str]) -> Arrival:
        if self._disk.exists(f"{self._own}/{name}"):
            return original(self, name, sources)
        return Arrival(Found.NOWHERE)

    return patch.object(NodeDirectories, "_prepare", prepare)


def a_directory_is_recorded_before_it_says_whose_it_is() -> AbstractContextManager[Any]:
    async def created(self: NodeDirectories, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        await self._disk.sync((), (self._own, *(f"{self._own}/{name}" for name in topic_ids)))
        await self._store.mark_created(topic_ids)

    return patch.object(NodeDirectories, "created", created)


def a_lost_log_counts_as_closed() -> AbstractContextManager[Any]:
    """As its leader before the one that is lost has left it."""
    original = lease_store._write_last_states

    def write(database: Any, table: LeaseTable, last_state: Mapping[TopicPartition, LastLeaderState]) -> None:
        original(database, table, {name: one for name, one in last_state.items() if one.was_closed})

    return patch.object(lease_store, "_write_last_states", write)


def the_end_of_a_moved_log_counts_as_durable() -> AbstractContextManager[Any]:
    original = LogDirectory.close_to_move

    async def close_to_move(
        self: LogDirectory, names: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LastLeaderState]:
        ends = {name: log.log_end_offset for name in names if (log := self.get(name)) is not None}
        with patch.object(self._flusher, "request", lambda _: None):
            last_state = await original(self, names)
        return {name: one._replace(recovery_point=ends[name], was_closed=True) for name, one in last_state.items()}

    return patch.object(LogDirectory, "close_to_move", close_to_move)


# Documents


def nobody_hears_of_changed_documents() -> AbstractContextManager[Any]:
    return patch.object(FollowedDocuments, "_changed", lambda self: None)


@contextmanager
def a_name_is_free_while_a_process_has_logs_of_the_deleted_topic_open() -> Iterator[None]:
    """Nor does the deletion wait for the other processes: where it does, its client creates the topic later."""

    async def everywhere(_: Confirmations) -> None:
        pass

    with (
        patch.object(lease_store, "_require_released", lambda database, name: None),
        patch.object(Confirmations, "everywhere", everywhere),
    ):
        yield
