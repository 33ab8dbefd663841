"""Counts what one warm, durable request goes through: rooms, files, calls, returns, and syncs before its reply.

A walk is what a reader of the code has to follow. A room is a folder of `broker/`, with what is inside it, or
`protocol/`. Generated readers and writers of messages count as one file. A return is each step, by a call or by the end
of one, into a file that the walk has been in before. `python -m tests.costs.walks` prints the walks.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from fencepost.broker.config import Listener, Settings
from fencepost.broker.hosting.placement import PlacementTable
from fencepost.broker.storage.sync_threads import SyncThreads
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_membership import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from tests.costs.counting import GENERATED_PREFIX, ROOT, is_counted
from tests.costs.replays import (
    GROUP,
    GROUP_COORDINATOR,
    TOPIC,
    TRANSACTIONAL_ID,
    Client,
    Network,
    StillClock,
    batch,
    broker_with_a_client,
    find_coordinator,
    init_producer,
    produce_request,
    require_success,
)
from tests.support.cluster import COORDINATOR
from tests.support.engine_cluster import EngineCluster
from tests.support.simulated_engine import EngineSession, SimulatedEngine

WARM_UP_COUNT = 5
WALKS_COUNT = 3
"""The shortest counts: a timer may fall into one of them."""
SETTLING_S = 0.1
"""After the reply: the markers and the Complete record of a transaction are written meanwhile."""


@dataclass
class Walk:
    """rooms, files: that were entered. barriers_count: syncs, or flushes of a cluster, that the reply waited for."""

    rooms: set[str] = field(default_factory=set)
    files: set[str] = field(default_factory=set)
    calls_count: int = 0
    returns_count: int = 0
    barriers_count: int = 0

    def __str__(self) -> str:
        counts = f"{len(self.files)} files, {self.calls_count} calls, {self.returns_count} returns"
        rooms = f"{len(self.rooms)} rooms ({', '.join(sorted(self.rooms))})"
        return f"{rooms}, {counts}, {self.barriers_count} barriers"


@contextmanager
def walking(walk: Walk) -> Iterator[None]:
    """Note what is entered inside, in this thread."""
    active: list[str] = []
    latest = ""

    def step(path: str) -> None:
        nonlocal latest
        if path != latest:
            walk.returns_count += path in walk.files
            walk.files.add(path)
            latest = path

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event not in ("call", "return") or not is_counted(frame):
            return
        if event == "call":
            walk.calls_count += 1
            active.append(_file_of(frame))
            walk.rooms.add(_room_of(active[-1]))
        elif active:
            active.pop()
        if active:
            step(active[-1])

    profiler = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(profiler)


def _file_of(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    return GENERATED_PREFIX if path.startswith(GENERATED_PREFIX) else path


def _room_of(path: str) -> str:
    if path == GENERATED_PREFIX:
        return "protocol"
    package, *folders, _ = os.path.relpath(path, os.path.join(ROOT, "fencepost")).split(os.sep)
    return package if package == "protocol" or not folders else f"{package}/{folders[0]}"


class Walker:
    """Sends a request several times, and walks along with the last one."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def walk(self, request: Callable[[], Any], version: int, before: Callable[[], Awaitable[None]]) -> Walk:
        """before: what precedes each request, and is not part of the walk."""
        for _ in range(WARM_UP_COUNT):
            await before()
            await self._client.call_within(walking(Walk()), request(), version, idle_s=SETTLING_S)
        return min([await self._once(request(), version, before) for _ in range(WALKS_COUNT)], key=_calls_of)

    async def _once(self, request: Any, version: int, before: Callable[[], Awaitable[None]]) -> Walk:
        await before()
        walk = Walk()
        ended_count = 0

        def ended(_: object) -> None:
            nonlocal ended_count
            ended_count += 1

        def on_reply() -> None:
            walk.barriers_count = ended_count

        with watching_barriers(ended):
            reply = await self._client.call_within(
                walking(walk), request, version, on_reply=on_reply, idle_s=SETTLING_S
            )
        assert not re.search(r"error_code=[^0]", repr(reply)), reply
        return walk


def _calls_of(walk: Walk) -> int:
    return walk.calls_count


@contextmanager
def watching_barriers(ended: Callable[[object], None]) -> Iterator[None]:
    """Call `ended` at the end of each sync of a broker, and of each flush of a modelled cluster."""
    with pytest.MonkeyPatch.context() as patch:
        sync, commit = SyncThreads.sync, EngineSession.commit

        def watched_sync(*arguments: Any) -> asyncio.Future[None]:
            started = sync(*arguments)
            started.add_done_callback(ended)
            return started

        async def watched_commit(*arguments: Any, **options: Any) -> bool:
            is_held = await commit(*arguments, **options)
            ended(None)
            return is_held

        patch.setattr(SyncThreads, "sync", watched_sync)
        patch.setattr(EngineSession, "commit", watched_commit)
        yield


async def nothing() -> None:
    """Nothing precedes the request."""


async def produce(client: Client) -> Walk:
    """A batch for one partition."""
    return await Walker(client).walk(lambda: produce_request({0: batch()}), 12, nothing)


async def fetch(client: Client) -> Walk:
    """A batch that is there."""
    require_success(await client.call(produce_request({0: batch()}), 12))
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[partition])])
    return await Walker(client).walk(lambda: request, 12, nothing)


async def end_txn(client: Client) -> Walk:
    """The end of a transaction of one partition, to its Complete record."""
    producer = producer_id, producer_epoch = await init_producer(client, TRANSACTIONAL_ID)
    sequences = iter(range(0, 2**31, 16))
    adding = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TRANSACTIONAL_ID,
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )

    async def open_transaction() -> None:
        await client.call(adding, 3)
        require_success(
            await client.call(produce_request({0: batch(producer, next(sequences), True)}, TRANSACTIONAL_ID), 11)
        )

    ending = EndTxnRequest(
        transactional_id=TRANSACTIONAL_ID, producer_id=producer_id, producer_epoch=producer_epoch, committed=True
    )
    return await Walker(client).walk(lambda: ending, 4, open_transaction)


async def join_group(client: Client) -> Walk:
    """The sole member of a classic group joins again."""
    await find_coordinator(client, GROUP_COORDINATOR, GROUP)
    joining = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"metadata")],
    )
    joining.member_id = (await client.call(joining, 9)).member_id
    return await Walker(client).walk(lambda: joining, 9, nothing)


WALKS = {"Produce": produce, "Fetch": fetch, "EndTxn to Complete": end_txn, "JoinGroup": join_group}


class OneNode(EngineCluster):
    """A cluster whose only node leads everything; its client has no socket."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, SimulatedEngine())
        self.table = PlacementTable(lambda _: COORDINATOR)


@asynccontextmanager
async def cluster_with_a_client(directory: str) -> AsyncIterator[Client]:
    """A node with one topic whose logs are kept by the modelled engine, and a connection to it."""
    networks: list[Network] = []

    def bind(listener: Listener, settings: Settings) -> Network:
        networks.append(Network(listener, settings))
        return networks[-1]

    cluster = OneNode(Path(directory))
    chosen = {"group_initial_rebalance_delay_ms": 0}
    node = await cluster.start(COORDINATOR, chosen=chosen, bind=bind, clock=StillClock())
    try:
        await node.services.topics.create(TOPIC, 1, {})
        await node.services.transactions.ensure_available()
        await node.ensure_loaded()
        assert networks[0].new_connection is not None
        client = Client(networks[0].new_connection)
        yield client
        client.close()
    finally:
        await cluster.client.close()
        await cluster.stop(COORDINATOR)


BROKERS: dict[str, Callable[[str], AbstractAsyncContextManager[Client]]] = {
    "one broker": partial(broker_with_a_client, flush_messages=1),
    "cluster": cluster_with_a_client,
}


def measure(name: str, directory: str, broker: str = "one broker") -> Walk:
    """Walk once, on a broker of its own."""

    async def run() -> Walk:
        async with BROKERS[broker](directory) as client:
            return await WALKS[name](client)

    return asyncio.run(run())


def main() -> None:
    for broker in BROKERS:
        for name in WALKS:
            with tempfile.TemporaryDirectory() as directory:
                sys.stdout.write(f"{broker}, {name}: {measure(name, directory, broker)}\n")


if __name__ == "__main__":
    main()
