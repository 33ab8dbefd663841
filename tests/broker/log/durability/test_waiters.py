"""Waiters of a log: those of an offset, and watchers of any progress."""

from __future__ import annotations

import asyncio
import gc

import pytest

from fencepost.broker.log.durability.waiters import ALREADY_DURABLE, DurabilityWaiters, Watchers
from fencepost.broker.storage.disk import StorageError
from tests.support.captured_events import capture_logs


async def test_all_that_wait_for_an_offset_or_a_lower_one_are_resolved() -> None:
    waiters = DurabilityWaiters()
    low, same, high = (asyncio.ensure_future(waiters.wait_for(offset)) for offset in (5, 10, 11))
    waiters.resolve_up_to(10)
    assert [future.done() for future in (low, same, high)] == [True, True, False]
    waiters.resolve_up_to(11)
    await high


async def test_each_waiter_is_cancelled_alone() -> None:
    waiters = DurabilityWaiters()
    cancelled, other = (asyncio.ensure_future(waiters.wait_for(5)) for _ in range(2))
    cancelled.cancel()
    waiters.resolve_up_to(5)
    await other
    assert cancelled.cancelled()


async def test_a_failure_reaches_all_and_nobody_has_to_ask_for_it() -> None:
    waiters = DurabilityWaiters()
    first, second = (asyncio.ensure_future(waiters.wait_for(offset)) for offset in (5, 6))
    waiters.fail("the disk is gone")
    with pytest.raises(StorageError, match="the disk is gone"):
        await first
    assert first.exception() is not second.exception()
    del first, second
    gc.collect()  # a future whose exception nobody has seen would be a warning, which is an error here
    waiters.resolve_up_to(6)


async def test_what_is_durable_already_needs_no_wait() -> None:
    await ALREADY_DURABLE
    await ALREADY_DURABLE


def test_watchers_are_called_once_each_until_they_are_removed() -> None:
    watchers, calls = Watchers(), []

    def watch() -> None:
        calls.append("watched")

    assert not watchers.has_any
    watchers.add(watch)
    watchers.add(watch)
    watchers.notify()
    assert (calls, watchers.has_any) == (["watched"], True)
    watchers.remove(watch)
    watchers.remove(watch)
    watchers.notify()
    assert (calls, watchers.has_any) == (["watched"], False)


def test_a_watcher_that_raises_keeps_the_others_from_nothing() -> None:
    watchers, calls = Watchers(), []

    def fail() -> None:
        raise ValueError("planted")

    watchers.add(fail)
    watchers.add(lambda: calls.append("watched"))
    with capture_logs() as lines:
        watchers.notify()
    assert calls == ["watched"]
    assert [(line["event"], line["work"]) for line in lines] == [("background_work_failed", "watcher of a log")]
