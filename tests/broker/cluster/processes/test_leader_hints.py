"""Refusals of partitions that are led elsewhere name the leader and its address, in versions that have room for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pytest

from fencepost.broker.cluster.leases.lease_table import Move, NodeEvent, Placed
from fencepost.broker.hosting import moves_under_way as moves_module
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.leaders import LeaderIdAndEpoch, NodeEndpoint
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.cluster.processes.members import NAMES, Members, ask, orders_on_two
from tests.broker.supervision.planting import until
from tests.support.handler_context import batch

PRODUCE_VERSIONS, FIRST_PRODUCE_WITH_LEADERS = range(3, 14), 10
FETCH_VERSIONS, FIRST_FETCH_WITH_LEADERS = range(4, 19), 16
UNKNOWN = LeaderIdAndEpoch(-1, -1)


async def moved(members: Members) -> TopicPartition:
    """A partition that has moved from node 1 to node 2, so that its epoch is 1."""
    await orders_on_two(members)
    name = next(name for name in NAMES if members.leader_id(name) == 1)
    await members.members[1].placement.choose({name: 2})
    await until(lambda: members.leader_id(name) == 2)
    for member in members.members.values():
        await until(lambda: member.placement.leader_epoch(name) == 1)  # noqa: B023  # awaited at once
    return name


def topic_id(members: Members) -> bytes:
    topic = members.nodes[1].services.topics.metadata.get("orders")
    assert topic is not None
    return topic.topic_id


def endpoint(members: Members, node_id: int, listener: int = 0) -> NodeEndpoint:
    address = members.nodes[node_id].addresses[listener]
    return NodeEndpoint(node_id, address.host, address.port)


def produce(members: Members, *partitions: int, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(index=partition, records=memoryview(batch(b"x"))) for partition in partitions]
    return ProduceRequest(
        acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData("orders", topic_id(members), partition_data=data)]
    )


def fetch(members: Members, partition: int, *, epoch: int = -1, session: tuple[int, int] = (0, -1)) -> FetchRequest:
    wanted = FetchPartition(partition=partition, current_leader_epoch=epoch, partition_max_bytes=1_000)
    return FetchRequest(
        max_wait_ms=0,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic("orders", topic_id(members), partitions=[wanted])],
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
async def test_a_refused_produce_names_the_leader(members: Members, version: int) -> None:
    name = await moved(members)
    here = next(name for name in NAMES if members.leader_id(name) == 1)
    answer: ProduceResponse = await members.ask(1, produce(members, here.partition, name.partition), version)
    taken, refused = answer.responses[0].partition_responses
    assert (taken.error_code, taken.base_offset, taken.current_leader) == (ErrorCode.NONE, 1, UNKNOWN)
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    has_room = version >= FIRST_PRODUCE_WITH_LEADERS
    assert refused.current_leader == (LeaderIdAndEpoch(2, 1) if has_room else UNKNOWN)
    assert answer.node_endpoints == ([endpoint(members, 2)] if has_room else [])


@dataclass
class SlowMove:
    """A move of a partition from node 1 to node 2 whose rows are not stored before `release`. waiting: for its end."""

    name: TopicPartition
    release: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)


@pytest.fixture
async def slow_move(members: Members, monkeypatch: pytest.MonkeyPatch) -> SlowMove:
    """Begins when a partition of node 1 is not served any more."""
    await orders_on_two(members)
    move = SlowMove(next(name for name in NAMES if members.leader_id(name) == 1))
    store, moves_under_way = members.members[1]._store, members.nodes[1].services.topics.moves_under_way
    store_moves, ended = store.move, moves_under_way.ended

    async def store_slowly(moves: Mapping[Move, LastLeaderState]) -> list[Placed]:
        await move.release.wait()
        return await store_moves(moves)

    async def seen_to_wait(names: Iterable[TopicPartition], *, within_s: float) -> None:
        move.waiting.set()
        await ended(names, within_s=within_s)

    monkeypatch.setattr(moves_module, "LONGEST_WAIT_S", 30.0)
    monkeypatch.setattr(store, "move", store_slowly)
    monkeypatch.setattr(moves_under_way, "ended", seen_to_wait)
    await members.members[1].placement.choose({move.name: 2})
    await until(lambda: move.name in moves_under_way)
    return move


async def test_a_produce_to_a_partition_that_moves_is_refused_when_its_next_leader_is_known(
    members: Members, slow_move: SlowMove
) -> None:
    here = next(name for name in NAMES if members.leader_id(name) == 1)
    request = produce(members, slow_move.name.partition, here.partition)
    answering = asyncio.create_task(members.ask(1, request, 13))
    await slow_move.waiting.wait()
    log = members.log(here)
    assert log is not None
    assert log.log_end_offset == 2, "what does not move is appended meanwhile"
    slow_move.release.set()
    refused, taken = (await answering).responses[0].partition_responses
    assert (refused.error_code, refused.current_leader) == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        LeaderIdAndEpoch(2, 1),
    )
    assert (taken.error_code, taken.base_offset) == (ErrorCode.NONE, 1)


async def test_a_produce_waits_for_a_move_no_longer_than_its_client(members: Members, slow_move: SlowMove) -> None:
    request = produce(members, slow_move.name.partition)
    request.timeout_ms = 1
    answer: ProduceResponse = await members.ask(1, request, 13)
    (refused,) = answer.responses[0].partition_responses
    assert (refused.error_code, refused.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, UNKNOWN)
    slow_move.release.set()


async def test_a_produce_that_waits_for_a_move_is_refused_if_the_partition_stays(
    members: Members, slow_move: SlowMove
) -> None:
    answering = asyncio.create_task(members.ask(1, produce(members, slow_move.name.partition), 13))
    await slow_move.waiting.wait()
    await members.members[2]._store.node_event(2, NodeEvent.STOPPED)  # its target is gone: the move is out of date
    slow_move.release.set()
    (refused,) = (await answering).responses[0].partition_responses
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    await until(lambda: members.leader_id(slow_move.name) == 1)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
async def test_a_refused_fetch_names_the_leader(members: Members, version: int) -> None:
    name = await moved(members)
    answer: FetchResponse = await members.ask(1, fetch(members, name.partition), version)
    (refused,) = answer.responses[0].partitions
    assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    has_room = version >= FIRST_FETCH_WITH_LEADERS
    assert refused.current_leader == (LeaderIdAndEpoch(2, 1) if has_room else UNKNOWN)
    assert answer.node_endpoints == ([endpoint(members, 2)] if has_room else [])


@pytest.mark.parametrize("version", [version for version in FETCH_VERSIONS if version >= 9])  # those with an epoch
async def test_a_fetch_in_an_earlier_epoch_is_given_the_present_one(members: Members, version: int) -> None:
    name = await moved(members)
    answer: FetchResponse = await members.ask(2, fetch(members, name.partition, epoch=0), version)
    (refused,) = answer.responses[0].partitions
    assert refused.error_code == ErrorCode.FENCED_LEADER_EPOCH
    has_room = version >= FIRST_FETCH_WITH_LEADERS
    assert refused.current_leader == (LeaderIdAndEpoch(2, 1) if has_room else UNKNOWN)
    assert answer.node_endpoints == ([endpoint(members, 2)] if has_room else [])


async def test_a_fetch_session_is_given_the_leader_when_its_partition_moves(members: Members) -> None:
    await orders_on_two(members)
    name = next(name for name in NAMES if members.leader_id(name) == 1)
    begun: FetchResponse = await members.ask(1, fetch(members, name.partition, session=(0, 0)), 18)
    await members.members[1].placement.choose({name: 2})
    await until(lambda: members.leader_id(name) == 2)
    await until(lambda: members.members[1].placement.leader_epoch(name) == 1)
    going_on = FetchRequest(max_wait_ms=0, session_id=begun.session_id, session_epoch=1)
    answer: FetchResponse = await members.ask(1, going_on, 18)
    assert answer.responses[0].partitions[0].current_leader == LeaderIdAndEpoch(2, 1)
    assert answer.node_endpoints == [endpoint(members, 2)]


async def test_the_address_is_that_of_the_listener_that_is_asked(members: Members) -> None:
    name = await moved(members)
    address = members.nodes[1].addresses[1]
    for request, version in ((produce(members, name.partition), 13), (fetch(members, name.partition), 18)):
        answer = await ask(address.host, address.port, request, version)
        assert answer.node_endpoints == [endpoint(members, 2, listener=1)]


async def test_no_leader_is_named_where_none_is_known(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    await orders_on_two(members)
    name = next(name for name in NAMES if members.leader_id(name) == 2)
    placement = members.members[1].placement
    found = placement.leader
    # As if it had just been found to be gone, whatever the node finds out meanwhile.
    monkeypatch.setattr(placement, "leader", lambda one: None if one == name else found(one))
    produced: ProduceResponse = await members.ask(1, produce(members, name.partition), 13)
    fetched: FetchResponse = await members.ask(1, fetch(members, name.partition), 18)
    assert produced.responses[0].partition_responses[0].current_leader == UNKNOWN
    assert fetched.responses[0].partitions[0].current_leader == UNKNOWN
    assert produced.node_endpoints == fetched.node_endpoints == []


async def test_no_leader_is_named_for_other_errors(members: Members) -> None:
    await orders_on_two(members)
    produced: ProduceResponse = await members.ask(1, produce(members, 99), 13)
    fetched: FetchResponse = await members.ask(1, fetch(members, 99), 18)
    assert produced.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produced.responses[0].partition_responses[0].current_leader == UNKNOWN
    assert fetched.responses[0].partitions[0].current_leader == UNKNOWN
    assert produced.node_endpoints == fetched.node_endpoints == []
