"""What a node leads that has resigned and starts again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_store import StoredLeases
from fencepost.broker.cluster.leases.lease_table import LeaseTable, NodeId, NodeState, PartitionLease
from fencepost.broker.kernel.topic_partition import TopicPartition

OWN, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Rows:
    """A store whose rows the test changes."""

    def __init__(self) -> None:
        self.on_placement_changed: list[Callable[[], Awaitable[None]]] = []
        self.epoch = 0

    async def load_leases(self) -> StoredLeases:
        partitions = {OWN: PartitionLease(b"o" * 16, 1, self.epoch), OTHER: PartitionLease(b"o" * 16, 2, self.epoch)}
        nodes = dict.fromkeys((1, 2), NodeState.ALIVE)
        return StoredLeases(LeaseTable(nodes, partitions), endpoints={1: {}, 2: {}}, since_ms={1: 0, 2: 0})

    async def choose(self, choices: Mapping[TopicPartition, NodeId | None]) -> None:
        raise NotImplementedError

    async def release(self, node_id: NodeId, topic_ids: Collection[bytes]) -> None:
        raise NotImplementedError


async def started() -> tuple[Rows, LeasePlacement, list[TopicPartition]]:
    """Node 1, and the partitions that it begins to lead from now on."""
    rows = Rows()
    placement = LeasePlacement(rows, 1)
    await placement.refresh()
    begun: list[TopicPartition] = []
    placement.on_changed.append(lambda name: begun.append(name) if placement.is_local(name) else None)
    return rows, placement, begun


async def test_a_node_that_starts_again_leads_what_it_led() -> None:
    rows, placement, begun = await started()
    placement.resign()
    rows.epoch += 1
    await placement.refresh(takes_up=True)
    assert begun == [OWN]


async def test_a_node_leads_again_though_it_read_its_new_epochs_before_it_had_started() -> None:
    """Others start at the same moment, and each change in the store makes all nodes read the rows."""
    rows, placement, begun = await started()
    placement.resign()
    rows.epoch += 1
    await placement.refresh()
    assert begun == []
    await placement.refresh(takes_up=True)
    assert begun == [OWN]


async def test_a_node_that_has_not_resigned_begins_nothing_twice() -> None:
    _, placement, begun = await started()
    await placement.refresh(takes_up=True)
    assert begun == []
