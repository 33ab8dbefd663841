"""Counts the rooms that one warm, durable request goes through, and the disk syncs that its reply waits for.

A walk is what a reader of the code has to follow. A room is a folder of `broker/`, with what is inside it, or
`protocol/`, generated readers and writers included. `python -m tests.costs.walks` prints the walks.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from fencepost.broker.storage.sync_threads import SyncThreads
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_membership import JoinGroupRequest, JoinGroupRequestProtocol
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
)
from tests.costs.counting import ROOT, is_counted
from tests.costs.replays import (
    GROUP,
    GROUP_COORDINATOR,
    TOPIC,
    TRANSACTIONAL_ID,
    Client,
    batch,
    broker_with_a_client,
    find_coordinator,
    init_producer,
    produce_request,
    require_success,
)

WARM_UP_COUNT = 5
SETTLING_S = 0.1
"""After the reply: the markers and the Complete record of a transaction are written meanwhile."""


@dataclass
class Walk:
    """rooms: that were entered. barriers_count: syncs that the reply waited for."""

    rooms: set[str] = field(default_factory=set)
    barriers_count: int = 0

    def __str__(self) -> str:
        return f"{len(self.rooms)} rooms, {self.barriers_count} barriers: {', '.join(sorted(self.rooms))}"


@contextmanager
def walking(walk: Walk) -> Iterator[None]:
    """Note the rooms that are entered inside, in this thread."""

    def profile(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and is_counted(frame):
            walk.rooms.add(_room_of(frame.f_code.co_filename))

    profiler = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(profiler)


def _room_of(path: str) -> str:
    if path.startswith("<"):
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
        await before()
        walk = Walk()
        sync, ended_count = SyncThreads.sync, 0

        def counted(*arguments: Any) -> asyncio.Future[None]:
            def ended(_: object) -> None:
                nonlocal ended_count
                ended_count += 1

            started = sync(*arguments)
            started.add_done_callback(ended)
            return started

        def on_reply() -> None:
            walk.barriers_count = ended_count

        SyncThreads.sync = counted  # type: ignore[method-assign,assignment]
        try:
            await self._client.call_within(walking(walk), request(), version, on_reply=on_reply, idle_s=SETTLING_S)
        finally:
            SyncThreads.sync = sync  # type: ignore[method-assign]
        return walk


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


def measure(name: str, directory: str) -> Walk:
    """Walk once, on a broker of its own."""

    async def run() -> Walk:
        async with broker_with_a_client(directory, flush_messages=1) as client:
            return await WALKS[name](client)

    return asyncio.run(run())


def main() -> None:
    for name in WALKS:
        with tempfile.TemporaryDirectory() as directory:
            sys.stdout.write(f"{name}: {measure(name, directory)}\n")


if __name__ == "__main__":
    main()
