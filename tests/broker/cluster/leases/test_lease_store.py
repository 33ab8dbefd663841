"""Leases in the shared store, and what two processes see of them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fencepost.broker.cluster.leases import lease_placement, lease_store
from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_store import LeaseStore, place_all
from fencepost.broker.cluster.leases.lease_table import Move, NodeEvent, NodeState
from fencepost.broker.hosting.placement import NO_PORT
from fencepost.broker.kernel.clock import Clock, SystemClock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import until

ORDERS = TopicMetadata("orders", b"o" * 16, 8)
NAMES = ORDERS.partitions()


class LateClock(SystemClock):
    """The machine's clock, set forward."""

    def __init__(self, later_ms: int) -> None:
        self._later_ms = later_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._later_ms


class Member:
    """One node's store and placement; notices: the partitions that the placement has notified of."""

    def __init__(self, path: str, node_id: int, clock: Clock | None = None) -> None:
        self.node_id = node_id
        self.store = LeaseStore(path, clock)
        self.placement = LeasePlacement(self.store, node_id, between_nodes="INTERNAL")
        self.notices: list[TopicPartition] = []
        self.placement.on_changed.append(self.notices.append)

    async def open(self) -> None:
        await self.store.open()
        self.placement.follow()
        endpoints = {
            "INTERNAL": ("10.0.0.1", 9000 + self.node_id),
            "CLIENTS": ("example.org", 9100 + self.node_id),
            "NODES": ("a/socket", NO_PORT),
        }
        assert await self.store.node_event(self.node_id, NodeEvent.STARTED, endpoints=endpoints)
        await self.placement.refresh()

    def led(self) -> list[TopicPartition]:
        return [name for name in NAMES if self.placement.is_local(name)]


@pytest.fixture
async def path(tmp_path: Path) -> str:
    path = str(tmp_path / FILE_NAME)
    await prepare_shared(path)
    return path


@pytest.fixture
async def two(path: str) -> AsyncIterator[tuple[Member, Member]]:
    async with AsyncExitStack() as cleanup:
        members = Member(path, 1), Member(path, 2)
        for member in members:
            await member.open()
            cleanup.push_async_callback(member.store.close)
        await until(lambda: members[0].placement.other_nodes())
        yield members


async def test_a_topic_is_placed_as_it_is_created_and_both_know_where(two: tuple[Member, Member]) -> None:
    one, other = two
    assert await one.store.create_topic(ORDERS)
    led = one.led()
    assert 0 < len(led) < 8, "known before create_topic returns"
    assert sorted(one.notices) == NAMES
    await until(lambda: other.notices)
    assert sorted(led + other.led()) == NAMES
    for name in NAMES:
        leaders = {member.placement.leader(name) for member in two}
        assert len(leaders) == 1
        assert one.placement.leader_epoch(name) == 0


async def test_a_node_has_an_address_for_the_clients_of_each_listener(two: tuple[Member, Member]) -> None:
    (node,) = two[0].placement.other_nodes()
    assert node[:3] == (2, "10.0.0.1", 9002)
    assert node.at("CLIENTS") == (2, "example.org", 9102, (), None)
    assert node.at("UNKNOWN")[:3] == (2, "10.0.0.1", 9002)
    assert two[0].placement.address(2) == node


async def test_a_socket_between_processes_has_an_address_without_a_port(two: tuple[Member, Member]) -> None:
    socket = {"INTERNAL": ("/data/node.2/.socket", NO_PORT)}
    assert await two[1].store.node_event(2, NodeEvent.STARTED, endpoints=socket)
    await two[0].placement.refresh()
    assert two[0].placement.address(2) == (2, "/data/node.2/.socket", NO_PORT, (), None)


async def test_a_topic_that_grows_keeps_what_is_placed_and_one_that_is_deleted_leaves_nothing(
    two: tuple[Member, Member],
) -> None:
    one, _ = two
    await one.store.create_topic(ORDERS)
    before = dict(one.placement.known.table.partitions)
    await one.store.set_partition_count("orders", 12, topic_id=ORDERS.topic_id, before=8)
    after = one.placement.known.table.partitions
    assert len(after) == 12
    assert {name: after[name] for name in NAMES} == before
    await one.store.set_partition_count("orders", 8, topic_id=ORDERS.topic_id, before=12)
    assert len(one.placement.known.table.partitions) == 8
    one.notices.clear()
    await one.store.delete_topic("orders", ORDERS.topic_id)
    assert sorted(one.notices) == NAMES
    assert one.placement.leader(NAMES[0]) is None
    async with asyncio.timeout(60):
        # Nothing announces it to this node.
        while await one.store.read(  # noqa: ASYNC110
            lambda database: database.execute("SELECT * FROM partitions").fetchall()
        ):
            await asyncio.sleep(0.01)  # until the other node has heard of it


AGAIN = dataclasses.replace(ORDERS, topic_id=b"a" * 16)


async def test_a_topic_gets_the_name_of_a_deleted_one_when_all_nodes_have_released_it(
    two: tuple[Member, Member],
) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    await other.placement.refresh()
    other.placement.stop_following()
    other.notices.clear()
    assert await one.store.delete_topic("orders", ORDERS.topic_id)
    creating = asyncio.ensure_future(one.store.create_topic(AGAIN))
    await asyncio.wait([creating], timeout=0.2)
    assert not creating.done(), "the other one may still append to the logs that it led"
    assert await one.store.create_topic(dataclasses.replace(AGAIN, name="payments", topic_id=b"p" * 16))
    await other.placement.refresh()
    assert set(other.notices) >= {name for name in NAMES if other.placement.topic_id(name) is None}
    assert await creating
    await other.placement.refresh()
    assert {other.placement.topic_id(name) for name in NAMES} == {AGAIN.topic_id}


@pytest.mark.parametrize("event", [NodeEvent.LOST, NodeEvent.STARTED, NodeEvent.STOPPED])
async def test_a_node_whose_process_has_ended_holds_no_name(two: tuple[Member, Member], event: NodeEvent) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    await other.placement.refresh()
    other.placement.stop_following()
    assert await one.store.delete_topic("orders", ORDERS.topic_id)
    assert await one.store.node_event(2, event)
    assert await one.store.create_topic(AGAIN)


async def test_a_name_that_is_held_for_too_long_is_refused(
    two: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_store, "LONGEST_HOLD_S", 0.05)
    one, other = two
    await one.store.create_topic(ORDERS)
    await other.placement.refresh()
    other.placement.stop_following()
    assert await one.store.delete_topic("orders", ORDERS.topic_id)
    with pytest.raises(StorageError, match="has not released the deleted topic 'orders'"):
        await one.store.create_topic(AGAIN)


async def test_what_a_lost_node_led_is_led_by_the_other_from_where_it_was_left(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    await other.placement.refresh()
    lost = one.led()
    last_state = {lost[0]: LastLeaderState(70, 20), other.led()[0]: LastLeaderState(5, 5)}
    assert await other.store.node_event(1, NodeEvent.LOST, last_state=last_state)
    await other.placement.refresh()
    assert other.led() == NAMES
    assert {other.placement.leader_epoch(name) for name in lost} == {1}
    assert other.placement.last_state(lost[0]) == (70, 20, False)
    assert other.placement.other_nodes() == []
    await until(lambda: not one.led())
    assert await other.store.node_event(1, NodeEvent.DRAINED) is False
    assert (await other.store.load_leases()).table.nodes[1] is NodeState.GONE


async def test_metadata_names_a_lost_node_for_some_time(
    two: tuple[Member, Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    address = other.placement.address(1)
    assert other.placement.recently_lost() == ()
    await other.store.node_event(1, NodeEvent.LOST)
    await other.placement.refresh()
    assert (other.placement.address(1), list(other.placement.recently_lost())) == (None, [address])
    await one.store.node_event(1, NodeEvent.STARTED)
    await other.placement.refresh()
    assert other.placement.recently_lost() == ()
    await other.store.node_event(1, NodeEvent.LOST)
    await other.placement.refresh()
    monkeypatch.setattr(lease_placement, "REMEMBERED_S", 0.0)
    assert list(other.placement.recently_lost()) == []


async def test_metadata_of_a_node_that_others_took_for_lost_names_it_once(two: tuple[Member, Member]) -> None:
    """Java's clients refuse an answer with the same node twice."""
    one, other = two
    await other.store.node_event(1, NodeEvent.LOST)
    await one.placement.refresh()
    assert one.placement.recently_lost() == ()
    assert [node.node_id for node in one.placement.other_nodes()] == [2]


@pytest.mark.parametrize(("gone_for_ms", "named"), [(-5_000, [1]), (0, [1]), (59_000, [1]), (61_000, [])])
async def test_metadata_of_a_node_that_starts_names_those_that_were_lost_shortly_before(
    two: tuple[Member, Member], path: str, gone_for_ms: int, named: list[int]
) -> None:
    await two[1].store.node_event(1, NodeEvent.LOST)
    third = Member(path, 3, LateClock(gone_for_ms))
    await third.open()
    try:
        assert [node.node_id for node in third.placement.recently_lost()] == named
        assert [node.at("CLIENTS").port for node in third.placement.recently_lost()] == [9101] * len(named)
        await two[0].store.node_event(1, NodeEvent.STARTED)
        await third.placement.refresh()
        assert third.placement.recently_lost() == ()
    finally:
        await third.store.close()


async def test_a_node_that_comes_back_gets_its_partitions_after_it_has_settled(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    led, chosen = one.led(), NAMES[0]
    other.placement.settling_s = 60.0
    await other.store.node_event(1, NodeEvent.LOST)
    await other.placement.refresh()
    await one.store.node_event(1, NodeEvent.STARTED)
    await other.placement.refresh()
    assert other.placement.due_moves() == []
    assert [other.placement.choice(name).next_leader for name in led] == [None] * len(led)
    await other.placement.choose({chosen: 1})
    assert [move.topic_partition for move in other.placement.due_moves()] == [chosen]
    assert other.placement.choice(chosen) == (1, 1)
    other.placement.settling_s = 0.0
    assert {move.topic_partition for move in other.placement.due_moves()} == {*led, chosen}


async def test_a_partition_is_moved_by_its_leader_which_does_not_lead_it_meanwhile(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    name = one.led()[0]
    await other.store.choose({name: 2, TopicPartition("unknown", 0): 2})
    await until(lambda: one.placement.due_moves())
    (move,) = one.placement.due_moves()
    assert move == Move(name, 1, 0, 2, ORDERS.topic_id)
    one.placement.begin_handing_over([name])
    assert not one.placement.is_local(name)
    assert one.placement.leader(name) is None
    assert one.placement.due_moves() == [], "it is on its way"
    (placed,) = await one.store.move({move: LastLeaderState(10, 3, was_closed=True)})
    assert placed == (name, 2, 1)
    await one.placement.refresh()
    one.placement.end_handing_over([name])
    assert one.placement.leader(name) == one.placement.address(2)
    await until(lambda: other.placement.is_local(name))
    assert other.placement.last_state(name) == (10, 3, True)
    assert await one.store.node_event(2, NodeEvent.LOST)
    await one.placement.refresh()
    assert one.placement.last_state(name) == (10, 3, False), "the lost node may have opened it"
    assert await one.store.move({move: LastLeaderState(11, 4)}) == [], "out of date by now"


async def test_a_move_that_is_refused_leaves_the_partition_where_it_was(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    name = one.led()[0]
    await one.store.choose({name: 2})
    await one.placement.refresh()
    moves = one.placement.due_moves()
    one.placement.begin_handing_over([name])
    await other.store.node_event(2, NodeEvent.DRAINED)
    assert await one.store.move({move: LastLeaderState(0, 0) for move in moves}) == []
    one.notices.clear()
    await one.placement.refresh()
    one.placement.end_handing_over([name])
    assert one.placement.is_local(name)
    assert one.notices == [name], "it is opened again"


async def test_a_move_of_a_topic_that_was_created_again_is_refused(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    name = one.led()[0]
    await one.store.choose({name: 2})
    await one.placement.refresh()
    (move,) = one.placement.due_moves()
    again = dataclasses.replace(ORDERS, topic_id=b"again" * 3 + b"!")
    assert await other.store.delete_topic(ORDERS.name, ORDERS.topic_id)
    assert await other.store.create_topic(again)
    await other.store.choose({name: 1})
    assert await one.store.move({move: LastLeaderState(10, 3, was_closed=True)}) == []
    await other.placement.refresh()
    assert other.placement.last_state(name) == LastLeaderState()


async def test_partitions_are_lost_before_others_are_gained(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    lost, gained = one.led()[0], next(name for name in NAMES if name not in one.led())
    order: list[tuple[TopicPartition, bool]] = []
    one.placement.stop_following()
    one.placement.on_changed.append(lambda name: order.append((name, one.placement.is_local(name))))
    await other.store.move(
        {
            Move(name, *way, ORDERS.topic_id): LastLeaderState(0, 0)
            for name, way in ((gained, (2, 0, 1)), (lost, (1, 0, 2)))
        }
    )
    await one.placement.refresh()
    assert order == [(lost, False), (gained, True)]


async def test_a_directory_that_was_created_is_remembered(two: tuple[Member, Member]) -> None:
    one, other = two
    await one.store.create_topic(ORDERS)
    assert not one.placement.is_created(NAMES[0])
    await one.store.mark_created(
        {NAMES[0]: ORDERS.topic_id, NAMES[1]: b"e" * 16, TopicPartition("unknown", 0): b"u" * 16}
    )
    await until(lambda: other.placement.is_created(NAMES[0]))
    assert not other.placement.is_created(NAMES[1]), "it is of an earlier topic with this name"


async def test_nodes_that_change_the_leases_at_the_same_time_undo_nothing(two: tuple[Member, Member]) -> None:
    one, other = two
    topics = [TopicMetadata(f"topic-{index}", bytes([index]) * 16, 3) for index in range(20)]
    await asyncio.gather(
        *((one if index % 2 else other).store.create_topic(topic) for index, topic in enumerate(topics)),
        *(other.store.node_event(3, NodeEvent.STARTED) for _ in range(5)),
        *(one.store.node_event(3, NodeEvent.LOST) for _ in range(5)),
    )
    leases = (await one.store.load_leases()).table
    assert len(leases.partitions) == 60
    leaders = {lease.leader for lease in leases.partitions.values()}
    assert leaders <= {1, 2, 3}
    assert leases.nodes[3] is NodeState.ALIVE or 3 not in leaders


async def test_topics_of_one_process_are_placed_when_it_becomes_several(tmp_path: Path) -> None:
    path = str(tmp_path / FILE_NAME)
    alone = SqliteMetadataStore(path)
    await alone.open()
    await alone.create_topic(ORDERS)
    await alone.close()
    await prepare_shared(path, work=place_all)
    member = Member(path, 1)
    await member.open()
    assert member.led() == NAMES
    await member.store.close()
