"""Leases in PostgreSQL: who may start, who is taken over from, and that a fence lets no late flush through."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID, uuid4

import pytest

from fencepost.broker.cluster.leases.lease_table import Move, NodeEvent, NodeState
from fencepost.broker.cluster.postgres import lease_store
from fencepost.broker.cluster.postgres.connections import LeaseLostError, UnavailableError, connect, parse_address
from fencepost.broker.cluster.postgres.lease_store import (
    IncompatibleVersionError,
    NodeIdInUseError,
    PostgresLeaseStore,
)
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.kernel.version import build_version
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.metadata.image import TopicMetadata
from tests.support.captured_events import capture_logs

ORDERS = TopicMetadata("orders", b"o" * 16, 8)
NAMES = ORDERS.partitions()
LEASE_S = 30.0
CLOSED = LastLeaderState(was_closed=True)

FLUSH = """
WITH fenced AS (SELECT FROM fences WHERE node_id = $1 AND fence = $2 FOR SHARE)
INSERT INTO tail (topic_id, partition, segment_base, position, length, base_offset, end_offset, leader_epoch, node_id,
    fence, sequence, content)
SELECT $3, 0, 0, 0, 1, $4::bigint, $4 + 1, 0, $1::int, $2::bigint, $4, 'x' FROM fenced
"""
"""A flush as its commit is: guarded by a lock on the row of the fence."""


def at(port: int) -> dict[str, tuple[str, int]]:
    return {"CLIENTS": ("10.0.0.1", port)}


class Node:
    """A node without a broker: its store, and its fence once it has started."""

    def __init__(self, url: str, node_id: int) -> None:
        self.node_id = node_id
        self.store = PostgresLeaseStore(parse_address(url), lease_s=LEASE_S)
        self.fence = 0

    async def start(self, *, own_lease_after_s: float | None = 0.0) -> None:
        self.fence = await self.store.start(self.node_id, at(9000 + self.node_id), own_lease_after_s=own_lease_after_s)

    async def execute(self, statement: str, *parameters: object) -> Any:
        return await self.store.session.run(lambda connection: connection.fetch(statement, *parameters))

    async def let_lease_end(self) -> None:
        """As if PostgreSQL's clock had run on."""
        await self.execute(
            "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 s' WHERE node_id = $1", self.node_id
        )

    async def leaders(self) -> dict[TopicPartition, tuple[int | None, int]]:
        table = (await self.store.load_leases()).table
        return {name: (lease.leader, lease.epoch) for name, lease in table.partitions.items()}

    async def state(self, node_id: int) -> NodeState:
        return (await self.store.load_leases()).table.state(node_id)


Make = Callable[[int], Any]


@pytest.fixture
async def make(cluster_url: str) -> AsyncIterator[Make]:
    async with AsyncExitStack() as cleanup:

        async def make_node(node_id: int) -> Node:
            node = Node(cluster_url, node_id)
            await node.store.open()
            cleanup.push_async_callback(node.store.close)
            return node

        yield make_node


@pytest.fixture
async def three(make: Make) -> list[Node]:
    nodes = [await make(node_id) for node_id in (1, 2, 3)]
    for node in nodes:
        await node.start()
    assert await nodes[0].store.create_topic(ORDERS)
    return nodes


async def test_partitions_are_placed_over_the_nodes_as_the_topic_is_created(three: list[Node]) -> None:
    leaders = await three[0].leaders()
    assert sorted(leaders) == NAMES
    assert {leader for leader, _ in leaders.values()} == {1, 2, 3}
    assert {epoch for _, epoch in leaders.values()} == {0}


async def test_a_restart_raises_the_fence_and_the_epochs_of_what_the_node_leads(three: list[Node], make: Make) -> None:
    before = await three[0].leaders()
    again = await make(2)
    await again.start()
    assert again.fence == three[1].fence + 1
    after = await again.leaders()
    for name, (leader, epoch) in after.items():
        assert leader == before[name][0]
        assert epoch == before[name][1] + (leader == 2)


async def test_nobody_takes_over_while_a_lease_lasts_and_one_node_does_when_it_is_over(three: list[Node]) -> None:
    one, two, three_ = three
    assert not await one.store.take_over(2)
    await two.let_lease_end()
    renewal = await one.store.renew(1)
    assert renewal.lost == [2]
    assert renewal.soonest_end_s is not None
    assert LEASE_S - 10 < renewal.soonest_end_s < LEASE_S, "of node 3"
    done = await asyncio.gather(one.store.take_over(2), three_.store.take_over(2))
    assert sorted(done) == [False, True]
    assert await one.state(2) is NodeState.GONE
    assert {leader for leader, _ in (await one.leaders()).values()} == {1, 3}
    assert (await one.store.renew(1)).lost == ()


async def test_after_the_clock_was_set_back_a_lease_ends_one_lease_later_by_the_new_time(three: list[Node]) -> None:
    one, two, _ = three
    assert not (await one.store.renew(1)).was_set_back
    await two.execute("UPDATE nodes SET lease_until = lease_until + interval '2 hours' WHERE node_id = 2")
    assert (await one.store.renew(1)).was_set_back
    assert await one.store.shorten_leases() == [2]
    ((left_s,),) = await one.execute(
        "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM nodes WHERE node_id = 2"
    )
    assert LEASE_S - 10 < left_s <= LEASE_S
    assert not await one.store.take_over(2), "it may live, and answer as a leader until then"
    assert not (await one.store.renew(1)).was_set_back
    assert (await two.store.renew(2)).lost == ()


async def test_a_lease_that_is_being_renewed_is_not_waited_for_to_be_shortened(three: list[Node]) -> None:
    one, two, _ = three
    await two.execute("UPDATE nodes SET lease_until = lease_until + interval '2 hours' WHERE node_id = 2")
    renewing = await connect(two.store.address, application_name="test")
    try:
        async with renewing.transaction():
            await renewing.execute("SELECT FROM nodes WHERE node_id = 2 FOR UPDATE")
            assert await one.store.shorten_leases() == []
        assert await one.store.shorten_leases() == [2]
    finally:
        await renewing.close()


async def test_a_node_that_was_taken_over_from_learns_it_from_its_next_renewal(three: list[Node]) -> None:
    one, two, _ = three
    await two.let_lease_end()
    await one.store.take_over(2)
    with pytest.raises(LeaseLostError):
        await two.store.renew(2)


async def test_a_lease_that_is_over_is_renewed_where_nobody_took_over(three: list[Node]) -> None:
    one, two, _ = three
    await two.let_lease_end()
    await two.store.renew(2)
    assert not await one.store.take_over(2)


async def test_nodes_that_were_lost_together_are_given_nothing_of_each_other(three: list[Node]) -> None:
    one, two, three_ = three
    await two.let_lease_end()
    await three_.let_lease_end()
    await one.store.take_over(2)
    leaders = {leader for leader, epoch in (await one.leaders()).values() if epoch == 1}
    assert leaders == {1}
    await one.store.take_over(3)
    assert {leader for leader, _ in (await one.leaders()).values()} == {1}


async def test_a_node_whose_own_lease_is_over_leaves_partitions_with_the_lost_until_it_has_renewed_it(
    three: list[Node],
) -> None:
    one, two, _ = three
    for node in three:
        await node.let_lease_end()
    before = await one.leaders()
    assert not await one.store.take_over(2)
    assert await one.leaders() == before
    assert two.node_id in (await one.store.renew(1)).lost, "it is tried again"
    assert await one.store.take_over(2)
    assert {leader for leader, _ in (await one.leaders()).values()} == {1, 3}


async def test_a_flush_under_way_is_waited_for_and_a_later_one_refused(three: list[Node]) -> None:
    one, two, _ = three
    topic_id = UUID(bytes=ORDERS.topic_id)
    flushing = await connect(two.store.address, application_name=two.store.session_name("commit"))
    transaction = flushing.transaction()
    await transaction.start()
    assert await flushing.execute(FLUSH, 2, two.fence, topic_id, 1) == "INSERT 0 1"
    await two.let_lease_end()
    taking_over = asyncio.create_task(one.store.take_over(2))
    await asyncio.sleep(0.1)
    assert not taking_over.done()
    await transaction.commit()
    assert await taking_over
    assert [row["sequence"] for row in await one.execute("SELECT sequence FROM tail")] == [1]
    assert await flushing.execute(FLUSH, 2, two.fence, topic_id, 2) == "INSERT 0 0"
    await flushing.close()


async def test_a_session_that_keeps_the_fence_without_going_on_is_ended(
    three: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_store, "FENCE_LOCK_TIMEOUT", "100ms")
    one, two, _ = three
    flushing = await connect(two.store.address, application_name=two.store.session_name("commit"))
    await flushing.execute("BEGIN")
    await flushing.execute(FLUSH, 2, two.fence, UUID(bytes=ORDERS.topic_id), 1)
    await two.let_lease_end()
    assert await one.store.take_over(2)
    assert await one.execute("SELECT FROM tail") == [], "what was not committed is undone"
    flushing.terminate()
    assert await two.store.load_topics() == [ORDERS], "its other sessions connect again"


async def test_no_flush_commits_after_a_take_over_has_read_the_tail(three: list[Node]) -> None:
    """Four writers flush all the time, as their fence allows; 40 take-overs or restarts happen beside them."""
    one, two, _ = three
    numbers = iter(range(1, 1_000_000))
    fences: list[int] = [two.fence]
    is_over = False

    async def write() -> int:
        connection = await connect(two.store.address, application_name=two.store.session_name("commit"))
        committed = 0
        while not is_over:
            status = await connection.execute(FLUSH, 2, fences[-1], uuid4(), next(numbers))
            committed += status.endswith(" 1")
        await connection.close()
        return committed

    writers = [asyncio.create_task(write()) for _ in range(4)]
    late = 0
    for turn in range(40):
        await asyncio.sleep(0.005)
        count = "SELECT count(*) FROM tail WHERE fence = $1"
        if turn % 2:
            await two.let_lease_end()
            assert await one.store.take_over(2)
        else:
            fence = await two.store.start(2, at(9002), own_lease_after_s=0.0)
        seen = (await one.execute(count, fences[-1]))[0][0]
        await asyncio.sleep(0.01)
        late += (await one.execute(count, fences[-1]))[0][0] - seen
        fences.append(fence + (turn % 2))
    is_over = True
    committed = sum(await asyncio.gather(*writers))
    assert late == 0
    assert committed > 100


async def test_a_move_is_stored_once_under_the_fence_of_the_node_that_leads(
    three: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, _ = three
    name = next(name for name, (leader, _) in (await one.leaders()).items() if leader == 1)
    topic_id = (await one.store.load_leases()).table.partitions[name].topic_id
    move = Move(name, 1, 0, 2, topic_id)
    run_once = type(one.store.session)._run_once
    attempts: list[object] = []

    async def once(work: Any) -> Any:
        attempts.append(work)
        result = await run_once(one.store.session, work)
        if len(attempts) == 1:
            raise UnavailableError("the answer was lost")
        return result

    monkeypatch.setattr(one.store.session, "_run_once", once)
    (placed,) = await one.store.move({move: CLOSED}, fence=one.fence)
    assert (placed.leader, placed.epoch) == (2, 1)
    assert (await two.leaders())[name] == (2, 1)
    assert await one.store.move({move: CLOSED}, fence=one.fence) == [], "out of date"
    assert await two.store.move({Move(name, 2, 1, 1, topic_id): LastLeaderState()}, fence=two.fence) == [], (
        "a flush may be on its way"
    )
    with pytest.raises(LeaseLostError):
        await one.store.move({Move(name, 2, 1, 1, topic_id): CLOSED}, fence=two.fence - 1)


async def test_a_node_that_leaves_is_followed_at_once(three: list[Node]) -> None:
    one, two, _ = three
    await two.store.leave(2)
    assert {leader for leader, _ in (await one.leaders()).values()} == {1, 3}
    with pytest.raises(LeaseLostError):
        await two.store.renew(2)
    await two.store.leave(2)  # once is enough


async def test_what_a_node_leaves_while_all_other_leases_are_over_is_taken_over_by_the_first_that_renews(
    three: list[Node],
) -> None:
    one, two, last = three
    for node in (one, two):
        await node.let_lease_end()
    await last.store.leave(3)
    assert None not in {leader for leader, _ in (await one.leaders()).values()}
    assert 3 in (await one.store.renew(1)).lost
    await two.store.renew(2)
    assert await one.store.take_over(3)
    assert {leader for leader, _ in (await one.leaders()).values()} == {1, 2}


async def test_what_the_last_node_leaves_has_no_leader_until_a_node_starts(make: Make) -> None:
    one = await make(1)
    await one.start()
    await one.store.create_topic(ORDERS)
    await one.store.leave(1)
    assert {leader for leader, _ in (await one.leaders()).values()} == {None}
    two = await make(2)
    await two.start()
    assert {leader for leader, _ in (await two.leaders()).values()} == {2}


async def test_a_node_that_drains_is_given_nothing_and_comes_back(three: list[Node]) -> None:
    one, _, _ = three
    assert await one.store.node_event(2, NodeEvent.DRAINED)
    await one.store.create_topic(TopicMetadata("more", b"m" * 16, 8))
    assert {leader for (topic, _), (leader, _) in (await one.leaders()).items() if topic == "more"} == {1, 3}
    assert await one.store.node_event(2, NodeEvent.RESUMED)
    assert await one.state(2) is NodeState.ALIVE
    assert not await one.store.node_event(9, NodeEvent.DRAINED)


# Ids


async def test_a_second_broker_with_a_node_id_is_refused_unless_its_address_is_the_same(
    three: list[Node], make: Make
) -> None:
    other = await make(2)
    with pytest.raises(NodeIdInUseError, match=r"node\.id 2 is in use by the broker at 10\.0\.0\.1:9002"):
        await other.store.start(2, at(9999), own_lease_after_s=0.0)
    with pytest.raises(NodeIdInUseError):
        await other.start(own_lease_after_s=None)
    await three[1].let_lease_end()
    await other.store.start(2, at(9999), own_lease_after_s=0.0)
    with pytest.raises(LeaseLostError):
        await three[1].store.renew(2)


async def test_a_second_broker_at_the_address_of_one_that_runs_is_refused_and_the_first_goes_on(
    three: list[Node], make: Make
) -> None:
    same_id, other_id = await make(2), await make(7)
    in_use = r"another broker runs with the address 10\.0\.0\.1:9002 \(node\.id 2\): .* in advertised\.listeners"
    for other in (same_id, other_id):
        with pytest.raises(NodeIdInUseError, match=in_use):
            await other.store.start(other.node_id, at(9002), own_lease_after_s=LEASE_S / 2)
    more = {**at(9007), "OTHERS": ("::FFFF:10.0.0.1", 9002)}
    with pytest.raises(NodeIdInUseError, match=in_use):
        await other_id.store.start(7, more, own_lease_after_s=LEASE_S / 2)
    await three[1].store.renew(2)
    await three[1].let_lease_end()
    await other_id.store.start(7, at(9002), own_lease_after_s=LEASE_S / 2)


async def test_a_node_that_has_renewed_nothing_for_long_is_the_one_that_starts_again(
    three: list[Node], make: Make
) -> None:
    await three[1].execute(
        "UPDATE nodes SET lease_until = clock_timestamp() + $1 * interval '1 s' WHERE node_id = 2", LEASE_S / 2
    )
    again = await make(2)
    with pytest.raises(NodeIdInUseError):
        await again.start(own_lease_after_s=LEASE_S * 0.9)
    await again.start(own_lease_after_s=LEASE_S / 2)
    assert again.fence == three[1].fence + 1


async def test_a_broker_of_another_version_is_named_in_the_log_and_one_that_cannot_work_here_is_refused(
    three: list[Node], make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fourth = await make(4)
    monkeypatch.setattr(lease_store, "build_version", lambda: "9.9")
    with capture_logs() as lines:
        await fourth.start(own_lease_after_s=LEASE_S / 2)
    (line,) = [line for line in lines if line["event"] == "versions_differ"]
    assert (line["log_level"], line["version"], line["others"]) == (
        "warning",
        "9.9",
        dict.fromkeys("123", build_version()),
    )
    fifth = await make(5)
    neighbour = await make(6)
    monkeypatch.setattr(lease_store, "COMPATIBILITY", 2)
    await neighbour.start(own_lease_after_s=LEASE_S / 2)
    await neighbour.store.leave(6)
    monkeypatch.setattr(lease_store, "COMPATIBILITY", 3)
    refusal = r"this broker has version 9\.9, and node 1 at 10\.0\.0\.1:9001 has version .*stop all brokers"
    with pytest.raises(IncompatibleVersionError, match=refusal):
        await fifth.start(own_lease_after_s=LEASE_S / 2)
    assert await fourth.state(5) is NodeState.GONE
    for node in (*three, fourth):
        await node.let_lease_end()
    await fifth.start()


async def test_the_rack_of_a_node_is_that_of_its_last_start(three: list[Node]) -> None:
    assert (await three[0].store.load_leases()).racks == {}
    for rack in ("a", "b", None):
        three[1].store = PostgresLeaseStore(three[1].store.address, lease_s=LEASE_S, rack=rack)
        try:
            await three[1].start()
            assert (await three[0].store.load_leases()).racks == ({} if rack is None else {2: rack})
        finally:
            await three[1].store.close()


async def test_brokers_without_a_node_id_get_the_lowest_that_are_free(make: Make) -> None:
    nodes = [await make(0) for _ in range(3)]
    ids = await asyncio.gather(*(node.store.reserve_node_id(at(9100 + n)) for n, node in enumerate(nodes)))
    assert sorted(ids) == [1, 2, 3]
    for node, node_id in zip(nodes, ids, strict=True):
        node.node_id = node_id
        await node.start()
    assert await nodes[0].store.reserve_node_id(at(9100)) == ids[0], "asked again"
    later = await make(0)
    assert await later.store.reserve_node_id(at(9000 + ids[1])) == ids[1], "the address that it had before"
    await nodes[2].store.leave(ids[2])
    await nodes[2].let_lease_end()
    assert await later.store.reserve_node_id(at(9200)) == ids[2], "given back"


async def test_the_clocks_of_the_brokers_do_not_matter(three: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    for jump_s in (3600.0, -3600.0):
        monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real() + jump_s)
        assert (await three[0].store.renew(1)).lost == ()
        assert not await three[0].store.take_over(2)


async def test_an_administrator_chooses_who_leads(three: list[Node]) -> None:
    one, _, _ = three
    await one.store.choose({NAMES[0]: 2, NAMES[1]: None, TopicPartition("unknown", 0): 1})
    table = (await one.store.load_leases()).table
    assert [table.partitions[name].wanted for name in NAMES[:2]] == [2, None]
    since_ms = (await one.store.load_leases()).since_ms
    assert all(abs(time.time() * 1000 - since_ms[node_id]) < 60_000 for node_id in (1, 2, 3))
