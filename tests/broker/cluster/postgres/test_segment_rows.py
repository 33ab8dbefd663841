"""Rows of sealed segments in a real PostgreSQL: who may change them, and that they always cover the log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from uuid import UUID, uuid4

import pytest

from fencepost.broker.cluster.objects.names import flush_name
from fencepost.broker.cluster.objects.object_ids import ObjectIds, Uploader
from fencepost.broker.cluster.postgres.connections import Connection, PostgresAddress, connect, parse_address
from fencepost.broker.cluster.postgres.schema import prepare
from fencepost.broker.cluster.postgres.segment_rows import PostgresGarbage, PostgresRemoteLogMetadata
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.remote.segment_objects import SegmentObjects
from fencepost.broker.cluster.remote.segment_rows import Leadership, LogStart, RemoteLogRows
from fencepost.broker.cluster.tail.scratch import ScratchDisk
from fencepost.broker.cluster.tail.tail_store import FlushId, NotLedError, PartitionKey, TailRow
from fencepost.broker.log.segment.remote_segment import RemoteSegmentMetadata
from fencepost.broker.storage.disk import StorageError
from tests.support.modelled_objects import ModelledObjects

KEY = PartitionKey(bytes(range(16)), 3)
OTHER = PartitionKey(bytes(range(16)), 4)
LEADER = Leadership(1, 1, 5)
CLUSTER = "a-cluster"
LEADER_UPLOADS = Uploader(LEADER.node_id, LEADER.fence)
EPOCHS = b"0\n1\n5 0\n"


class Rows:
    """The tables of a cluster, in which node 1 leads the partitions, and short ways to fill them."""

    def __init__(self, database: Connection, address: PostgresAddress) -> None:
        self.database = database
        self.sealed = PostgresRemoteLogMetadata(address, CLUSTER, lambda: "test sealed")
        self.garbage = PostgresGarbage(address, CLUSTER, lambda: "test garbage")
        self.tail = PostgresTail(address, lambda: "test tail")
        self.sequence = 0

    async def flush(self, *spans: tuple[int, int], key: PartitionKey = KEY, object_id: UUID | None = None) -> None:
        """Flush rows of these offsets, 10 bytes each."""
        self.sequence += 1
        rows = [
            TailRow(key, 0, base * 10, 10, base, end, 5, None if object_id else b"0123456789", object_id)
            for base, end in spans
        ]
        assert await self.tail.commit(
            FlushId(1, 1, self.sequence), rows, object_sizes={object_id: 10 * len(rows)} if object_id else {}
        )

    async def tail_spans(self, key: PartitionKey = KEY) -> list[tuple[int, int]]:
        return [(row.base_offset, row.end_offset) async for row in self.tail.read([key])]

    async def replace(
        self, sealed: RemoteSegmentMetadata, leadership: Leadership = LEADER, key: PartitionKey = KEY
    ) -> RemoteSegmentMetadata | None:
        return await self.sealed.replace(key, leadership, sealed, names=names(sealed, key), epochs=EPOCHS)

    async def of(self, key: PartitionKey = KEY) -> RemoteLogRows:
        return (await self.sealed.read([key]))[key]

    async def garbage_names(self) -> set[str]:
        return {row["name"] for row in await self.database.fetch("SELECT name FROM garbage")}


@pytest.fixture
async def rows(cluster_url: str) -> AsyncIterator[Rows]:
    address = parse_address(cluster_url)
    database = await connect(address, application_name="test")
    await prepare(database, address)
    await database.execute("INSERT INTO fences VALUES (1, 1), (2, 1)")
    await database.execute(
        "INSERT INTO nodes SELECT node_id, gen_random_uuid(), 'alive', '[]', NULL, now(), now() FROM fences"
    )
    for key in (KEY, OTHER):
        await database.execute(
            "INSERT INTO partitions (topic_id, partition, leader, leader_epoch) VALUES ($1, $2, 1, 5)",
            UUID(bytes=key.topic_id),
            key.partition,
        )
    made = Rows(database, address)
    yield made
    await made.sealed.close()
    await made.garbage.close()
    await made.tail.close()
    await database.close()


def segment(base: int, end: int, *, has_aborted: bool = False) -> RemoteSegmentMetadata:
    return RemoteSegmentMetadata(base, end, 1000, 1_700_000_000_000, has_aborted, 5, uuid4())


def names(sealed: RemoteSegmentMetadata, key: PartitionKey = KEY) -> Sequence[str]:
    return SegmentObjects(ModelledObjects(), CLUSTER, ScratchDisk()).names(key, sealed)


async def test_a_partition_begins_with_nothing_sealed_and_deleted_ones_are_left_out(rows: Rows) -> None:
    unknown = PartitionKey(bytes(16), 0)
    assert await rows.sealed.read([KEY, unknown]) == {KEY: RemoteLogRows(0, 0, b"", ())}


async def test_a_sealed_segment_takes_the_place_of_its_rows_and_of_no_others(rows: Rows) -> None:
    await rows.flush((0, 4), (4, 7), (7, 9))
    await rows.flush((0, 5), key=OTHER)
    sealed = segment(0, 7, has_aborted=True)
    assert await rows.replace(sealed)
    assert await rows.of() == RemoteLogRows(7, 0, EPOCHS, (sealed,))
    assert await rows.tail_spans() == [(7, 9)]
    assert await rows.tail_spans(OTHER) == [(0, 5)]
    assert await rows.garbage_names() == set()


async def test_a_repeated_call_changes_nothing(rows: Rows) -> None:
    await rows.flush((0, 4), (4, 7))
    sealed = segment(0, 4)
    assert await rows.replace(sealed)
    assert await rows.replace(sealed)
    assert await rows.of() == RemoteLogRows(4, 0, EPOCHS, (sealed,))


@pytest.mark.parametrize(
    "leadership",
    [LEADER._replace(fence=2), LEADER._replace(node_id=2), LEADER._replace(leader_epoch=4), Leadership(9, 1, 5)],
)
async def test_a_node_that_does_not_lead_so_any_more_changes_nothing(rows: Rows, leadership: Leadership) -> None:
    await rows.flush((0, 4))
    assert not await rows.replace(segment(0, 4), leadership)
    assert await rows.sealed.raise_log_starts({KEY: LogStart(leadership, 2, 2)}) == set()
    assert await rows.of() == RemoteLogRows(0, 0, b"", ())
    assert await rows.tail_spans() == [(0, 4)]


@pytest.mark.parametrize("sealed", [segment(0, 8), segment(0, 5), segment(1, 7), segment(0, 3)])
async def test_a_segment_that_is_not_exactly_what_the_rows_hold_is_refused(
    rows: Rows, sealed: RemoteSegmentMetadata
) -> None:
    await rows.flush((0, 4), (4, 7))
    with pytest.raises(StorageError, match="end or break at offset"):
        await rows.replace(sealed)
    assert await rows.tail_spans() == [(0, 4), (4, 7)]
    assert (await rows.of()).sealed_end == 0


async def test_a_compacted_segment_takes_the_place_of_several_whose_objects_become_garbage(rows: Rows) -> None:
    await rows.flush((0, 4), (4, 7), (7, 9), (9, 12))
    old = [segment(0, 4), segment(4, 7, has_aborted=True)]
    for one in old:
        assert await rows.replace(one)
    cleaned = segment(0, 9)
    assert await rows.replace(cleaned), "its last part was not sealed yet"
    assert await rows.of() == RemoteLogRows(9, 0, EPOCHS, (cleaned,))
    assert await rows.tail_spans() == [(9, 12)]
    assert await rows.garbage_names() == {name for one in old for name in names(one)}
    assert await rows.replace(again := segment(0, 9))
    assert await rows.of() == RemoteLogRows(9, 0, EPOCHS, (again,))


async def test_objects_that_are_garbage_are_not_used(rows: Rows) -> None:
    await rows.flush((0, 4))
    sealed = segment(0, 4)
    assert await rows.garbage.discard(names(sealed)) == 4
    with pytest.raises(StorageError, match="taken for garbage"):
        await rows.replace(sealed)
    assert await rows.tail_spans() == [(0, 4)]


async def test_what_lies_below_the_start_becomes_garbage_but_for_the_last_segment(rows: Rows) -> None:
    await rows.flush((0, 4), (4, 7), (7, 9), (9, 10))
    first, second, third = segment(0, 4), segment(4, 7), segment(7, 9)
    for one in (first, second, third):
        assert await rows.replace(one)
    assert await rows.sealed.raise_log_starts({KEY: LogStart(LEADER, 5, 4)}) == {KEY}
    assert await rows.of() == RemoteLogRows(9, 5, EPOCHS, (second, third))
    assert await rows.sealed.raise_log_starts({KEY: LogStart(LEADER, 10, 9)}) == {KEY}
    assert await rows.of() == RemoteLogRows(9, 10, EPOCHS, (third,)), "it has the state of the producers"
    assert await rows.garbage_names() == {*names(first), *names(second)}


async def test_a_start_never_falls_and_one_of_several_may_be_refused(rows: Rows) -> None:
    await rows.flush((0, 9))
    await rows.flush((0, 9), key=OTHER)
    later = LogStart(LEADER, 7, 0)
    assert await rows.sealed.raise_log_starts({KEY: later, OTHER: LogStart(LEADER._replace(leader_epoch=6), 7, 0)}) == {
        KEY
    }
    assert await rows.sealed.raise_log_starts({KEY: LogStart(LEADER, 3, 0)}) == {KEY}
    assert (await rows.of()).log_start_offset == 7
    assert (await rows.of(OTHER)).log_start_offset == 0


# Garbage


async def test_a_flush_is_garbage_once_all_of_its_rows_are_sealed(rows: Rows) -> None:
    object_id = uuid4()
    await rows.flush((0, 4), object_id=object_id)
    await rows.flush((4, 7))
    assert await rows.garbage.find() == 0
    assert await rows.replace(segment(0, 4))
    assert await rows.garbage.find() == 1
    assert await rows.garbage_names() == {flush_name(CLUSTER, object_id)}
    assert await rows.garbage.find() == 0


async def test_all_that_a_deleted_topic_had_is_garbage(rows: Rows) -> None:
    object_id = uuid4()
    await rows.flush((0, 4), (4, 7))
    sealed = segment(0, 4, has_aborted=True)
    assert await rows.replace(sealed)
    topic_id = UUID(bytes=KEY.topic_id)
    await rows.database.execute("DELETE FROM partitions")
    await rows.database.execute("INSERT INTO deletions VALUES ($1, 'orders', 5, '{}')", topic_id)
    with pytest.raises(NotLedError):
        await rows.flush((7, 8), object_id=object_id)  # of a leader that has not heard of it
    await rows.garbage.find()
    await rows.garbage.find()
    assert await rows.garbage_names() == {*names(sealed), flush_name(CLUSTER, object_id)}
    assert await rows.tail_spans() == []
    assert await rows.database.fetchval("SELECT count(*) FROM deletions") == 1
    await rows.garbage.find()
    await rows.garbage.find()
    assert await rows.database.fetchval("SELECT count(*) FROM deletions") == 0


async def test_garbage_is_due_after_its_grace_and_forgotten_when_it_is_removed(rows: Rows) -> None:
    await rows.garbage.discard(names(segment(0, 4)))
    assert await rows.garbage.due(60, 10) == []
    due = await rows.garbage.due(0, 3)
    assert len(due) == 3
    await rows.garbage.removed(due)
    assert len(await rows.garbage.due(0, 10)) == 1


async def test_only_objects_without_a_row_are_given_up(rows: Rows) -> None:
    object_id = uuid4()
    await rows.flush((0, 4), object_id=object_id)
    await rows.flush((4, 7))
    sealed, lost = segment(0, 4), segment(4, 7)
    assert await rows.replace(sealed)
    listed = [*names(sealed), *names(lost), flush_name(CLUSTER, object_id), flush_name(CLUSTER, uuid4()), "check/x"]
    assert await rows.garbage.discard(listed) == len(names(lost)) + 1
    assert await rows.garbage.discard(listed) == 0
    assert not set(names(sealed)) & await rows.garbage_names()


def flush_of(node_id: int, fence: int) -> str:
    return flush_name(CLUSTER, ObjectIds().new(Uploader(node_id, fence)))


async def test_objects_are_orphans_once_the_fence_of_who_uploaded_them_is_raised(rows: Rows) -> None:
    await rows.database.execute("UPDATE fences SET fence = 5 WHERE node_id = 1")
    earlier, present, unknown = flush_of(1, 4), flush_of(1, 5), flush_of(77, 1)
    assert await rows.garbage.add_orphans([earlier, present, unknown]) == 2
    assert await rows.garbage_names() == {earlier, unknown}
    await rows.database.execute("UPDATE fences SET fence = 6 WHERE node_id = 1")
    assert await rows.garbage.add_orphans([present]) == 1


async def test_objects_with_random_names_are_orphans_once_no_broker_that_gives_such_names_runs(rows: Rows) -> None:
    """Brokers that work on tables of format 3 give them."""
    random_name = flush_name(CLUSTER, uuid4())
    await rows.database.execute("UPDATE fences SET fence = 5, named_from = CASE node_id WHEN 1 THEN 4 ELSE 5 END")
    assert await rows.garbage.add_orphans([random_name]) == 0, "an earlier version has started on node id 1 since"
    await rows.database.execute("UPDATE nodes SET state = 'gone' WHERE node_id = 1")
    assert await rows.garbage.add_orphans([random_name]) == 1
    other = flush_name(CLUSTER, uuid4())
    await rows.database.execute("UPDATE nodes SET state = 'alive' WHERE node_id = 1")
    await rows.database.execute("UPDATE fences SET fence = 6, named_from = 6 WHERE node_id = 1")
    assert await rows.garbage.add_orphans([other]) == 1


async def test_a_flush_that_is_committed_while_its_node_is_fenced_keeps_its_object(rows: Rows) -> None:
    """The take-over waits for the flush, and the sweep that sees the raised fence sees its rows."""
    object_id = ObjectIds().new(LEADER_UPLOADS)
    await rows.flush((0, 4), object_id=object_id)
    await rows.database.execute("UPDATE fences SET fence = fence + 1")
    assert await rows.garbage.add_orphans([flush_name(CLUSTER, object_id)]) == 0
