"""Tables that were restored to an earlier moment: nothing that follows from them is taken for what was after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest

from fencepost.broker.cluster.leases.lease_table import NodeState
from fencepost.broker.cluster.postgres.connections import LeaseLostError, connect, parse_address
from fencepost.broker.cluster.postgres.restored import SKIPPED_EPOCHS, SKIPPED_FENCES, RestoredCluster, after_restore
from fencepost.broker.log.append.skipped_offsets import LONGEST_SPAN, SKIPPED_OFFSETS, SKIPPED_PER_SECOND
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.transaction import producer_ids
from fencepost.broker.transaction.producer_ids import BLOCK_KEY, LOWEST_KEY, SKIPPED_IDS, ProducerIds
from fencepost.protocol.record_batch import check_crc, iterate_batches
from tests.broker.cluster.postgres.test_lease_store import FLUSH, NAMES, ORDERS, Node
from tests.support.log_world import NOW_MS


@pytest.fixture
async def nodes(cluster_url: str) -> AsyncIterator[list[Node]]:
    """Two nodes that lead partitions, and have given out producer ids."""
    nodes = [Node(cluster_url, number) for number in (1, 2)]
    for node in nodes:
        await node.store.open()
        await node.start()
    assert await nodes[0].store.create_topic(ORDERS)
    ids = ProducerIds(nodes[0].store)
    await ids.start()
    await ids.close()
    yield nodes
    for node in nodes:
        await node.store.close()


async def restore(url: str, skipped_offsets: int | None = None) -> RestoredCluster:
    address = parse_address(url)
    connection = await connect(address, application_name="test")
    try:
        return await after_restore(
            connection, address, producer_ids.after_restore, skipped_offsets=skipped_offsets, now_ms=NOW_MS
        )
    finally:
        await connection.close()


async def stop_all(nodes: list[Node]) -> None:
    for node in nodes:
        await node.let_lease_end()


async def test_epochs_fences_and_producer_ids_go_on_far_above_those_of_the_lost_history(
    nodes: list[Node], cluster_url: str
) -> None:
    before = await nodes[0].leaders()
    block, _ = await nodes[0].store.read_versioned(BLOCK_KEY)
    assert block is not None
    await stop_all(nodes)
    found = await restore(cluster_url)
    assert found == (await nodes[0].store.cluster_id(), 1, len(NAMES), 2, SKIPPED_OFFSETS)
    after = await nodes[0].leaders()
    assert {name: epoch - before[name][1] for name, (_, epoch) in after.items()} == dict.fromkeys(NAMES, SKIPPED_EPOCHS)
    moved, version = await nodes[0].store.read_versioned(BLOCK_KEY)
    assert moved is not None
    assert version == 2
    lowest, _ = await nodes[0].store.read_versioned(LOWEST_KEY)
    assert lowest is not None
    assert int(lowest) > SKIPPED_IDS
    again = Node(cluster_url, 1)
    await again.store.open()
    await again.start()
    assert again.fence == nodes[0].fence + SKIPPED_FENCES + 1
    await again.store.close()


async def test_a_broker_that_ran_across_the_restore_neither_renews_its_lease_nor_flushes(
    nodes: list[Node], cluster_url: str
) -> None:
    await stop_all(nodes)
    await restore(cluster_url)
    assert [await nodes[0].state(number) for number in (1, 2)] == [NodeState.GONE, NodeState.GONE]
    with pytest.raises(LeaseLostError):
        await nodes[0].store.renew(1)
    for _ in range(3):  # as many starts as the lost history had
        again = Node(cluster_url, 1)
        await again.store.open()
        await again.start()
        await again.store.close()
    await nodes[0].execute(FLUSH, 1, nodes[0].fence, ORDERS.topic_id.hex(), 0)
    assert not await nodes[0].execute("SELECT FROM tail WHERE node_id >= 0")


async def test_what_gone_nodes_led_is_led_by_the_first_that_starts(nodes: list[Node], cluster_url: str) -> None:
    await stop_all(nodes)
    await restore(cluster_url)
    again = Node(cluster_url, 1)
    await again.store.open()
    await again.start()
    lost = (await again.store.renew(1)).lost
    for node_id in lost:
        assert await again.store.take_over(node_id)
    assert {leader for leader, _ in (await again.leaders()).values()} == {1}
    await again.store.close()


async def test_it_is_refused_while_a_broker_runs_and_changes_nothing(nodes: list[Node], cluster_url: str) -> None:
    before = await nodes[0].leaders()
    await nodes[0].let_lease_end()

    async def renew() -> None:
        while True:
            await nodes[1].store.renew(2)
            await asyncio.sleep(0.1)

    renewing = asyncio.create_task(renew())
    try:
        with pytest.raises(StorageError, match=r"brokers work on the tables .*: nodes 2\. Stop all brokers"):
            await restore(cluster_url)
    finally:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)
    assert await nodes[0].leaders() == before


async def test_leases_of_the_restored_moment_that_nobody_renews_are_waited_for(
    nodes: list[Node], cluster_url: str
) -> None:
    await nodes[0].execute("UPDATE nodes SET lease_until = clock_timestamp() + interval '1 second'")
    await restore(cluster_url)
    assert [await nodes[0].state(number) for number in (1, 2)] == [NodeState.GONE, NodeState.GONE]


async def test_it_may_be_run_again(nodes: list[Node], cluster_url: str) -> None:
    await stop_all(nodes)
    await restore(cluster_url)
    lowest = await lowest_of(nodes[0])
    await restore(cluster_url)
    assert await lowest_of(nodes[0]) > lowest
    assert {epoch for _, epoch in (await nodes[0].leaders()).values()} == {2 * SKIPPED_EPOCHS}


ENDS = """
SELECT partition, segment_base, position, length, base_offset, end_offset, leader_epoch, content FROM tail
WHERE node_id < 0 ORDER BY partition, base_offset
"""


async def test_each_log_leaves_out_offsets_from_its_end_on_in_the_new_leader_epoch(
    nodes: list[Node], cluster_url: str
) -> None:
    before = await nodes[0].leaders()
    leader, _ = before[NAMES[0]]
    flushing = nodes[0] if leader == 1 else nodes[1]
    await flushing.execute(FLUSH, leader, flushing.fence, ORDERS.topic_id.hex(), 0)
    (end,) = [row["end_offset"] for row in await nodes[0].execute("SELECT end_offset FROM tail")]
    await nodes[0].execute("UPDATE partitions SET sealed_end = 70, log_start_offset = 70 WHERE partition = 1")
    await stop_all(nodes)
    assert (await restore(cluster_url, 500)).skipped_offsets == 500
    after = await nodes[0].leaders()
    rows = await nodes[0].execute(ENDS)
    assert [row["base_offset"] for row in rows] == [end, 70, *[0] * (len(NAMES) - 2)]
    for row, name in zip(rows, NAMES, strict=True):
        (batch,) = iterate_batches(row["content"])
        assert (row["segment_base"], row["position"], row["length"]) == (row["base_offset"], 0, len(row["content"]))
        assert row["end_offset"] == row["base_offset"] + 500 == batch.header.last_offset + 1
        assert row["leader_epoch"] == batch.header.partition_leader_epoch == after[name][1]
        assert batch.header.records_count == 0
        assert check_crc(row["content"])


async def test_offsets_are_left_out_by_the_time_since_the_restored_moment(nodes: list[Node], cluster_url: str) -> None:
    await nodes[0].execute("UPDATE nodes SET lease_until = clock_timestamp() - interval '10 hours'")
    found = await restore(cluster_url)
    assert found.skipped_offsets == pytest.approx(10 * 3600 * SKIPPED_PER_SECOND, rel=0.1)
    rows = [row for row in await nodes[0].execute(ENDS) if row["partition"] == 0]
    assert [row["segment_base"] for row in rows] == [number * LONGEST_SPAN for number in range(4)]
    assert rows[-1]["end_offset"] == found.skipped_offsets


async def test_tables_from_which_nothing_was_lost_keep_their_next_offsets(nodes: list[Node], cluster_url: str) -> None:
    await stop_all(nodes)
    assert (await restore(cluster_url, 0)).skipped_offsets == 0
    assert not await nodes[0].execute(ENDS)


async def lowest_of(node: Node) -> int:
    value, _ = await node.store.read_versioned(LOWEST_KEY)
    assert value is not None
    return int(value)


async def test_an_empty_database_is_not_taken_for_a_restored_cluster(cluster_url: str) -> None:
    with pytest.raises(StorageError, match=r"there are no tables of a cluster .*; restore them first"):
        await restore(cluster_url)


async def test_what_cannot_be_advanced_leaves_all_as_it_was(nodes: list[Node], cluster_url: str) -> None:
    def broken(_: Mapping[str, bytes]) -> Mapping[str, bytes]:
        raise StorageError("the block cannot be read")

    await stop_all(nodes)
    before = await nodes[0].leaders()
    address = parse_address(cluster_url)
    connection = await connect(address, application_name="test")
    with pytest.raises(StorageError, match="cannot be read"):
        await after_restore(connection, address, broken, now_ms=NOW_MS)
    await connection.close()
    assert await nodes[0].leaders() == before
