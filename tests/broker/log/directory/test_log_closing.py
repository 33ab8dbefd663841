"""Closing of logs: what the next leader has to recover is returned, and a disk that hangs does not hold up a move."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.log.directory import log_closing
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.durability.flusher import Flusher
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.storage.disk import StorageError
from tests.support.log_world import ORDERS, LogWorld


async def test_a_log_that_is_closed_to_move_is_left_synced_and_closed(world: LogWorld) -> None:
    log = world.create(LogConfig(flush_interval_messages=1_000))
    world.append(b"a")
    world.append(b"b")
    last_state = await log_closing.close_to_move({ORDERS: log}, world.logs.flusher)
    assert last_state == {ORDERS: LastLeaderState(recovery_point=2, log_start_offset=0, was_closed=True)}


async def test_a_log_that_went_offline_is_not_left_as_closed(world: LogWorld) -> None:
    log = world.create()
    world.append(b"a")
    await log.flushed()
    log.give_up(StorageError("broken"))
    last_state = await log_closing.close_to_move({ORDERS: log}, world.logs.flusher)
    assert not last_state[ORDERS].was_closed
    assert last_state[ORDERS].recovery_point == 1


async def test_a_disk_that_hangs_leaves_the_recovery_to_the_next_leader(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.create(LogConfig(flush_interval_messages=1_000))
    world.append(b"a")
    monkeypatch.setattr(log_closing, "LONGEST_SYNC_TO_MOVE_S", 0.01)

    async def hang(_: Flusher) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as hanging:
        hanging.setattr(Flusher, "drain", hang)
        hanging.setattr(Flusher, "request", lambda *_: None)
        last_state = await log_closing.close_to_move({ORDERS: log}, world.logs.flusher)
    assert last_state == {ORDERS: LastLeaderState(recovery_point=0, log_start_offset=0, was_closed=False)}
