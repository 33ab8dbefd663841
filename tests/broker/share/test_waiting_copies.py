"""Copies that a crash has interrupted are continued though no member reads the partition any more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.share import waiting_copies
from fencepost.broker.share.dead_letter_logs import DeadLetterLogs
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.share.waiting_copies import WaitingCopies
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_state import (
    ReadShareGroupStateSummaryRequest,
    ReadShareStatePartition,
    ReadShareStateTopic,
)
from tests.broker.share.test_dead_letter_copies import (
    CONFIGS,
    copied,
    crash,
    create,
    ended,
    originals,
    prepared,
    reject,
    served,
)
from tests.broker.supervision.planting import until
from tests.support.fake_peers import FakePeers
from tests.support.share_broker import running_share_broker

KEY = SharePartitionKey("g", b"t" * 16, 0)


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_copies, "ROUND_S", 0.02)


async def test_after_a_restart_the_copies_are_continued_without_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        with monkeypatch.context() as patched:
            patched.setattr(waiting_copies, "ROUND_S", 60.0)
            has_crashed = crash(patched, DeadLetterLogs, "append", passed_count=0, is_after=False)
            await reject(broker, 0, 2)
            await ended(broker, has_crashed)
    async with running_share_broker(tmp_path) as broker:
        await until(lambda: len(originals(broker)) == 3)
        await copied(broker)
        assert originals(broker) == [0, 1, 2]
        assert broker.node.services.shares.coordinator.waiting() == []


async def test_nothing_runs_while_no_copy_waits(tmp_path: Path) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        waiting = broker.node.services.shares.waiting_copies
        await until(lambda: waiting._timer is None)
        await reject(broker, 0, 2)
        assert waiting._timer is not None
        assert broker.node.services.waiting_copies() == {"g": 1}
        await copied(broker)
        assert broker.node.services.waiting_copies() == {}
        await until(lambda: waiting._timer is None)


def on_a_node(coordinator: Any, peers: FakePeers, *, leader: int | None) -> WaitingCopies:
    """Of a node that keeps the state of KEY, whose partition another one leads."""
    topics: Any = SimpleNamespace(
        metadata=SimpleNamespace(get_by_id=lambda _: SimpleNamespace(name="orders")),
        placement=SimpleNamespace(
            is_local=lambda _: False,
            leader=lambda _: None if leader is None else SimpleNamespace(node_id=leader),
        ),
        log=lambda _: None,
    )
    served: Any = SimpleNamespace(loaded=lambda _: None)
    return WaitingCopies(topics, coordinator, served, peers)


async def test_the_leader_on_another_node_is_asked_as_long_as_copies_wait() -> None:
    peers = FakePeers()
    keys = [KEY]
    coordinator: Any = SimpleNamespace(on_waiting=None, waiting=lambda: keys, is_loading=False)
    waiting = on_a_node(coordinator, peers, leader=2)
    waiting.start()
    await until(lambda: len(peers.sent) >= 1)
    (first, *_) = peers.sent
    assert first.node_id == 2
    assert isinstance(first.message, ReadShareGroupStateSummaryRequest)
    assert (first.message.group_id, first.message.topics[0].topic_id) == ("g", KEY.topic_id)
    first.lose()
    await until(lambda: len(peers.sent) >= 2)
    keys.clear()
    await until(lambda: waiting._timer is None)
    await waiting.close()


async def test_without_a_leader_nobody_is_asked() -> None:
    peers = FakePeers()
    coordinator: Any = SimpleNamespace(on_waiting=None, waiting=lambda: [KEY], is_loading=False)
    waiting = on_a_node(coordinator, peers, leader=None)
    await waiting._ask(KEY)
    waiting.continue_copies(KEY)
    await asyncio.sleep(0)
    assert peers.sent == []
    await waiting.close()


async def test_a_node_that_leads_the_partition_continues_copies_when_it_is_asked_for_a_state_it_does_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_share_broker(tmp_path) as broker:
        await create(broker)
        await prepared(broker, CONFIGS)
        await broker.fetch("m", 0)
        shares = broker.node.services.shares
        shares.share_partitions.drop(served(broker).key)
        key = SharePartitionKey("g", broker.topic_id("orders"), 0)

        async def refused(*_: object) -> ErrorCode:
            return ErrorCode.NOT_COORDINATOR

        monkeypatch.setattr(shares.coordinator, "execute", refused)
        asked: list[SharePartitionKey] = []
        monkeypatch.setattr(shares.waiting_copies, "continue_copies", asked.append)
        topic = ReadShareStateTopic(key.topic_id, [ReadShareStatePartition(0)])
        await broker.call(ReadShareGroupStateSummaryRequest("g", [topic]))
        assert asked == [key]
        assert broker.node.services.topics.log(TopicPartition("orders", 0)) is not None
