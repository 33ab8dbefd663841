"""Members of a cluster, without their logs: they keep their leases, take over, move, resign and start again.

Their leases are so long that none ends because the machine is busy: a test ends the lease that it wants over.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_table import NodeState
from fencepost.broker.cluster.leases.local_lease import MARGIN_S
from fencepost.broker.cluster.postgres import member as member_module
from fencepost.broker.cluster.postgres.connections import UnavailableError, parse_address
from fencepost.broker.cluster.postgres.lease_store import NodeIdInUseError, PostgresLeaseStore, Renewal
from fencepost.broker.cluster.postgres.member import KEEPING, RENEWING, PostgresMember
from fencepost.broker.cluster.postgres.session import Session, Work
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel import supervision
from fencepost.broker.kernel.supervision import CURRENT, Supervisor
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs
from tests.support.postgres import PostgresServer

ORDERS = TopicMetadata("orders", b"o" * 16, 12)
NAMES = ORDERS.partitions()
LEASE_S = 50.0
RENEW_S = 0.1


class NoConnections:
    """Stands for the connections of an engine: these members have no logs."""

    def __init__(self) -> None:
        self.unconnected_s: float | None = None
        self.refusal: StorageError | None = None

    async def connect(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def unconnected_since_s(self) -> float | None:
        return self.unconnected_s

    async def close(self) -> None: ...


class ClosingTopics:
    """Stands for the logs: closes what is handed over."""

    def __init__(self, placement: LeasePlacement) -> None:
        self._placement = placement
        self.closed: list[TopicPartition] = []

    def serves(self, name: TopicPartition) -> bool:
        return self._placement.is_local(name)

    async def hand_over(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, LastLeaderState]:
        assert not any(self._placement.is_local(name) for name in names)
        self.closed += names
        return {name: LastLeaderState(was_closed=True) for name in names}


class Machine:
    """A broker of the cluster.

    changes: of partitions, as the placement has notified of them. ahead_s: how far its monotonic clock has run on.
    """

    def __init__(self, url: str, node_id: int, *, lease_s: float = LEASE_S) -> None:
        self.store = PostgresLeaseStore(parse_address(url), lease_s=lease_s)
        self.ahead_s = 0.0
        self.connections = NoConnections()
        self.member = PostgresMember(
            self.store,
            node_id,
            renew_interval_s=RENEW_S,
            connections=self.connections,
            monotonic_s=lambda: time.monotonic() + self.ahead_s,
        )
        self.node_id = node_id
        self.is_drained = False
        self.fences: list[int] = []
        self.member.on_started.append(lambda: self.fences.append(self.member.fence))
        self.changes: list[tuple[TopicPartition, bool]] = []
        self.member.placement.on_changed.append(
            lambda name: self.changes.append((name, self.member.placement.is_local(name)))
        )
        self.topics = ClosingTopics(self.member.placement)

    async def start(self) -> None:
        await self.store.open()
        endpoints = {"CLIENTS": ("10.0.0.1", 9000 + self.node_id)}
        await self.member.join(endpoints, between_nodes="CLIENTS", is_drained=lambda: self.is_drained)
        self.member.keep(cast("Topics", self.topics))

    async def stop(self) -> None:
        await self.member.rest()
        await self.member.leave()
        await self.store.close()

    async def kill(self) -> None:
        """End as kill -9 does: nothing is said any more."""
        await self.member.rest()
        await end_renewals(self)
        await self.store.close()

    async def end_leases(self, *node_ids: int) -> None:
        """As if PostgreSQL's clock had run on for nodes that renew nothing."""
        await self.store.session.run(
            lambda connection: connection.execute(
                "UPDATE nodes SET lease_until = clock_timestamp() - interval '1 s' WHERE node_id = ANY($1)", node_ids
            )
        )

    async def renews(self, times: int = 1) -> None:
        """Wait for renewals that begin from now on."""
        for _ in range(times):
            now_s = time.monotonic()
            await until(lambda: self.member.lease.left_s() > LEASE_S - MARGIN_S - (time.monotonic() - now_s))  # noqa: B023

    def led(self) -> list[TopicPartition]:
        return [name for name in NAMES if self.member.placement.is_local(name)]

    def state(self, node_id: int) -> NodeState:
        return self.member.placement.known.table.state(node_id)


async def end_renewals(machine: Machine) -> None:
    renewing = machine.member._renewing
    if renewing is not None:
        renewing.cancel()
        await asyncio.gather(renewing, return_exceptions=True)


async def end_renewals_at_rest(machine: Machine) -> None:
    """As `end_renewals`, with none under way that PostgreSQL might still carry out."""
    is_asked = asyncio.Event()
    renew = machine.store.renew

    async def hold(node_id: int) -> Renewal:
        is_asked.set()
        await asyncio.Event().wait()
        return await renew(node_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine.store, "renew", hold)
        await is_asked.wait()
        await end_renewals(machine)


@pytest.fixture
async def three(cluster_url: str) -> AsyncIterator[list[Machine]]:
    async with AsyncExitStack() as cleanup:
        machines = [Machine(cluster_url, node_id) for node_id in (1, 2, 3)]
        for machine in machines:
            await machine.start()
            cleanup.push_async_callback(machine.kill)
        await until(lambda: len(machines[0].member.placement.other_nodes()) == 2)
        await machines[0].store.create_topic(ORDERS)
        await until(lambda: all(len(led(machines)) == 12 for _ in machines))
        yield machines


def led(machines: Sequence[Machine]) -> list[TopicPartition]:
    return sorted(name for machine in machines for name in machine.led())


async def test_each_leads_a_share_and_all_know_who_leads_what(three: list[Machine]) -> None:
    assert led(three) == NAMES
    assert all(machine.led() for machine in three)
    for name in NAMES:
        assert len({machine.member.placement.leader(name) for machine in three}) == 1


async def test_leases_are_kept_and_a_settled_cluster_asks_for_nothing_else(
    three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []  # of each round trip, whether it renews a lease
    run_once = Session._run_once

    async def noted(session: Session, work: Work[object]) -> object:
        asked.append(session._application_name().endswith("lease"))
        return await run_once(session, work)

    monkeypatch.setattr(Session, "_run_once", noted)
    renewals_count = 15 * len(three)
    await until(lambda: len(asked) >= renewals_count and all(asked[-renewals_count:]))
    assert all(machine.member.is_held() for machine in three)
    assert led(three) == NAMES
    assert [len(machine.fences) for machine in three] == [1, 1, 1]


async def test_what_a_killed_node_led_is_led_by_others_when_its_lease_is_over(three: list[Machine]) -> None:
    one, two, last = three
    had = two.led()
    await two.kill()
    await one.renews(3)
    await last.renews(3)
    assert led([one, last]) == sorted(set(NAMES) - set(had)), "not before the lease is over"
    await one.end_leases(2)
    await until(lambda: led([one, last]) == NAMES)
    assert one.state(2) is NodeState.GONE
    assert all(one.member.placement.leader_epoch(name) for name in had)


async def test_a_lease_is_over_by_itself_when_it_has_not_been_renewed_for_as_long_as_it_lasts(cluster_url: str) -> None:
    one, two = (Machine(cluster_url, node_id, lease_s=1.0) for node_id in (1, 2))
    await one.start()
    await two.start()
    try:
        await until(lambda: one.state(2) is NodeState.ALIVE)
        await two.kill()
        await until(lambda: one.state(2) is NodeState.GONE)
        assert not two.member.is_held()
    finally:
        await one.kill()


async def test_a_node_that_stops_hands_its_lease_back_and_is_followed_at_once(three: list[Machine]) -> None:
    one, two, last = three
    began_s = time.monotonic()
    await two.stop()
    await until(lambda: led([one, last]) == NAMES)
    assert time.monotonic() - began_s < LEASE_S / 2, "nobody waited for the lease"


async def test_a_node_that_joins_gets_its_share_moved_to_it(three: list[Machine], cluster_url: str) -> None:
    before = {name: three[0].member.placement.leader(name) for name in NAMES}
    joined = Machine(cluster_url, 4)
    await joined.start()
    try:
        await until(lambda: joined.led() and led([*three, joined]) == NAMES)
        await until(lambda: not any(machine.member.placement.due_moves() for machine in three))
        for name in NAMES:
            leader = joined.member.placement.leader(name)
            assert leader in (before[name], joined.member.placement.address(4))
        closed = sorted(name for machine in three for name in machine.topics.closed)
        await until(lambda: sorted(joined.led()) == closed)
    finally:
        await joined.kill()


async def test_a_node_whose_lease_was_taken_resigns_and_starts_again_as_another_incarnation(
    three: list[Machine],
) -> None:
    _, two, _ = three
    had = two.led()
    incarnation = two.store.incarnation
    two.changes.clear()
    with capture_logs() as lines:
        await two.store.session.run(
            lambda connection: connection.execute("UPDATE nodes SET state = 'gone' WHERE node_id = 2")
        )
        await until(lambda: len(two.fences) == 2)
        await until(lambda: two.member.is_held() and led(three) == NAMES)
    assert "node_resigned" in [line["event"] for line in lines]
    assert two.store.incarnation != incarnation
    assert two.fences[1] > two.fences[0]
    until_it_leads = itertools.takewhile(lambda change: not change[1], two.changes)
    assert set(had) <= {name for name, _ in until_it_leads}, "given up before anything is led again"


async def test_a_node_resigns_when_its_log_says_so(three: list[Machine]) -> None:
    one, two, _ = three
    had = two.led()
    await end_renewals_at_rest(two)
    two.changes.clear()
    two.member.resign("a flush found another fence")
    assert two.led() == []
    assert two.changes == [(name, False) for name in had]
    assert all(two.member.placement.leader(name) is None for name in had)
    assert not two.member.is_held()
    two.member.resign("again")
    await one.end_leases(2)
    two.member._renewing = RENEWING.start_retrying(two.member._renew_regularly)
    await until(lambda: two.member.is_held() and led(three) == NAMES)
    assert len(two.fences) == 2
    await until(lambda: all(one.member.placement.leader_epoch(name) for name in had))


async def test_a_renewal_that_was_under_way_as_the_node_resigned_gives_it_no_lease(
    three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    two = three[1]
    await end_renewals_at_rest(two)
    renew = two.store.renew

    async def renew_and_resign(node_id: int) -> Renewal:
        answer = await renew(node_id)
        two.member.resign("a flush found another fence")
        return answer

    monkeypatch.setattr(two.store, "renew", renew_and_resign)
    await two.member._renew(two.member.lease.now_s())
    assert not two.member.is_held()


async def test_while_the_database_does_not_answer_the_lease_lapses_and_nothing_is_taken_over(
    three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    for machine in three:
        monkeypatch.setattr(machine.store, "renew", raising(UnavailableError("away")))
    for machine in three:
        machine.ahead_s += LEASE_S
    assert not any(machine.member.is_held() for machine in three)
    await three[0].end_leases(1, 2, 3)
    monkeypatch.undo()
    for machine in three:
        await machine.renews(3)
    assert led(three) == NAMES
    assert [len(machine.fences) for machine in three] == [1, 1, 1], "nobody took the others for lost"


async def test_an_answer_that_comes_after_the_lease_is_over_has_nobody_taken_for_lost(
    three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL was away while the renewal was under way: the others have yet to renew their leases, too."""
    one, *_ = three
    renew, taken_over = one.store.renew, []
    answers: list[Renewal] = []

    async def take_over(node_id: int) -> bool:
        taken_over.append(node_id)
        return False

    async def renew_late(node_id: int) -> Renewal:
        answer = await renew(node_id)
        if not answers:
            one.ahead_s += LEASE_S
        answers.append(answer)
        return answer._replace(lost=[2, 3])

    monkeypatch.setattr(one.store, "take_over", take_over)
    monkeypatch.setattr(one.store, "renew", renew_late)
    await until(lambda: len(answers) > 5)
    assert taken_over == []
    one.ahead_s += LEASE_S - 2 * MARGIN_S  # that time is over
    await until(lambda: taken_over)


async def test_a_restart_of_the_database_deposes_nobody(three: list[Machine], durable_postgres: PostgresServer) -> None:
    await asyncio.to_thread(durable_postgres.restart)
    for machine in three:
        await machine.renews()
    assert led(three) == NAMES


async def set_clock_back(machine: Machine) -> None:
    """As if PostgreSQL's clock had been set back by hours since the node renewed its lease."""
    await machine.store.session.run(
        lambda connection: connection.execute(
            "UPDATE nodes SET lease_until = lease_until + interval '2 hours' WHERE node_id = $1", machine.node_id
        )
    )


def shortened_in(lines: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The nodes of each line about leases that were shortened to what a lease can last."""
    return [line["nodes"] for line in lines if line["event"] == "leases_shortened"]


async def taken_over_after_the_clock_was_set_back(three: list[Machine]) -> list[Any]:
    """Kill the second node as PostgreSQL's clock is set back; return what was logged until the others lead all."""
    one, two, last = three
    await end_renewals_at_rest(two)
    with capture_logs() as lines:
        await set_clock_back(two)
        await two.kill()
        await until(lambda: shortened_in(lines))
        await one.end_leases(2)
        await until(lambda: led([one, last]) == NAMES)
    return lines


async def test_a_node_that_dies_as_the_clock_is_set_back_is_taken_over_from_after_a_lease(
    three: list[Machine],
) -> None:
    lines = await taken_over_after_the_clock_was_set_back(three)
    assert shortened_in(lines) == [[2]], "by one of the two"


async def test_a_node_alone_starts_again_though_the_clock_was_set_back(cluster_url: str) -> None:
    alone = Machine(cluster_url, 1)
    await alone.start()
    try:
        await end_renewals_at_rest(alone)
        with capture_logs() as lines:
            await set_clock_back(alone)
            alone.member.resign("its log says so")
            alone.member._renewing = RENEWING.start_retrying(alone.member._renew_regularly)
            await until(lambda: shortened_in(lines))
            await alone.end_leases(1)
            await until(lambda: len(alone.fences) == 2)
    finally:
        await alone.kill()


async def test_leases_that_cannot_be_shortened_now_are_at_the_next_renewal(
    three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, last = three
    for machine in (one, last):
        shorten = machine.store.shorten_leases
        monkeypatch.setattr(machine.store, "shorten_leases", raising(UnavailableError("away"), times=3, then=shorten))
    lines = await taken_over_after_the_clock_was_set_back(three)
    assert "lease_not_renewed" not in {line["event"] for line in lines}


async def test_two_nodes_that_are_lost_at_once_are_taken_over_by_the_third(three: list[Machine]) -> None:
    one, two, last = three
    await asyncio.gather(one.kill(), two.kill())
    await last.end_leases(1, 2)
    await until(lambda: last.led() == NAMES)


async def test_a_node_that_starts_again_at_once_need_not_wait_for_its_old_lease(
    three: list[Machine], cluster_url: str
) -> None:
    began_s = time.monotonic()
    await three[1].kill()
    again = Machine(cluster_url, 2)
    await again.start()
    try:
        await until(lambda: led([three[0], again, three[2]]) == NAMES)
        assert time.monotonic() - began_s < LEASE_S / 2, "nobody waited for the lease"
        assert again.fences == [three[1].fences[0] + 1]
    finally:
        await again.kill()


async def test_the_clocks_of_the_machines_do_not_matter(three: list[Machine], monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600.0)
    for machine in three:
        await machine.renews(5)
    assert [len(machine.fences) for machine in three] == [1, 1, 1]
    assert led(three) == NAMES


async def test_a_node_that_is_drained_hands_all_over_and_takes_it_back(three: list[Machine]) -> None:
    one, two, last = three
    two.is_drained = True
    await until(lambda: two.led() == [] and led([one, last]) == NAMES)
    assert sorted(two.topics.closed) == sorted(set(NAMES) & set(two.topics.closed))
    assert two.member.is_held()
    two.is_drained = False
    await until(lambda: two.led() and led(three) == NAMES)


async def test_a_node_hands_all_over_before_it_stops(three: list[Machine]) -> None:
    one, two, last = three
    await two.member.hand_all_over(within_s=10)
    assert two.led() == []
    await until(lambda: led([one, last]) == NAMES)


# What was not foreseen

Plant = Callable[..., Any]


@plants(RENEWING)
@unforeseen
async def test_renewals_go_on_after_a_failure(
    error: BaseException, three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    store = three[0].store
    with logged(RENEWING) as lines:
        monkeypatch.setattr(store, "seen_counts", raising(error, times=1))
        await until(lambda: lines)
        await three[0].renews(2)


@plants(KEEPING)
@unforeseen
async def test_take_overs_go_on_after_a_failure(
    error: BaseException, three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    one, two, last = three
    await last.member.rest()
    with logged(KEEPING):
        monkeypatch.setattr(one.store, "take_over", raising(error, times=1, then=one.store.take_over))
        await two.kill()
        await one.end_leases(2)
        await until(lambda: led([one, last]) == NAMES)


async def test_a_broker_whose_id_another_one_has_taken_stops_and_says_what_to_do(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "START_PAUSE_S", 0.01)
    stopped: list[str] = []
    token = CURRENT.set(Supervisor(stopped.append))
    machine = Machine(cluster_url, 1)
    await machine.start()
    CURRENT.reset(token)
    in_use = NodeIdInUseError("node.id 1 is in use by the broker at 10.0.0.2:9092")
    monkeypatch.setattr(machine.store, "start", raising(in_use))
    monkeypatch.setattr(machine.store, "lease_s", 0.05)
    with capture_logs() as lines:
        machine.member.resign("another node has taken over")
        await until(lambda: stopped)
    assert stopped == [str(in_use)]
    (line,) = [line for line in lines if line["event"] == "broker_stopped_unexpectedly"]
    assert line["remedy"] == "do what the reason says, then start this broker again"
    assert not any(line.get("exc_info") for line in lines), "it is no failure of the code"
    await machine.kill()


async def test_a_second_broker_with_the_same_address_does_not_depose_the_first(
    three: list[Machine], cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list(three[1].fences)
    second = Machine(cluster_url, 2)
    monkeypatch.setattr(second.store, "lease_s", 1.0)  # how long it tries
    with pytest.raises(NodeIdInUseError, match=r"another broker runs with the address 10\.0\.0\.1:9002"):
        await second.start()
    await second.store.close()
    await three[1].renews()
    assert three[1].fences == before
    assert three[1].led()


async def test_a_node_without_the_connections_that_leading_takes_resigns_and_waits_for_them(
    three: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = three[1]
    connections = node.connections
    monkeypatch.setattr(node.store, "lease_s", 0.2)
    monkeypatch.setattr(member_module, "RETRY_PAUSE_S", 0.01)
    node.member._takes_over_from_s = 0.0
    with capture_logs() as lines:
        connections.refusal = StorageError("this broker needs 6 connections")
        connections.unconnected_s = asyncio.get_running_loop().time() - 1
        await until(lambda: "node_not_started_again" in [line["event"] for line in lines])
    (resigned,) = [line for line in lines if line["event"] == "node_resigned"]
    assert resigned["reason"] == "this broker needs 6 connections"
    assert not node.led()
    await three[0].end_leases(2)
    await until(lambda: led([three[0], three[2]]) == NAMES)
    connections.refusal = connections.unconnected_s = None
    await until(lambda: len(node.fences) == 2)


async def test_a_node_that_has_all_connections_again_goes_on(three: list[Machine]) -> None:
    node = three[1]
    node.connections.unconnected_s = asyncio.get_running_loop().time() - 10 * LEASE_S
    await node.renews(2)
    assert len(node.fences) == 1
    assert node.led()
