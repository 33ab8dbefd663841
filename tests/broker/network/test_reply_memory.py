"""Bound on waiting replies: the share of each connection, and which connection is closed above the limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from fencepost.broker.kernel import allocator_settings
from fencepost.broker.kernel.allocator_settings import KEPT_BYTES, MEMORY_TRIM, FreedMemory
from fencepost.broker.network.reply_memory import MIN_SHARE_BYTES, ReplyMemory
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until

MIB = 1024 * 1024


@dataclass(eq=False)
class Holder:
    refusals: list[str] = field(default_factory=list)

    def close_for(self, reason: str) -> None:
        self.refusals.append(reason)


async def test_above_the_limit_the_connection_that_waits_longest_is_closed() -> None:
    memory = ReplyMemory(asyncio.get_running_loop(), 10 * MIB)
    first, second, third = Holder(), Holder(), Holder()
    memory.set_waiting_bytes(first, 3 * MIB)
    memory.set_waiting_bytes(second, 4 * MIB)
    memory.set_waiting_bytes(first, 5 * MIB)
    assert memory.waiting_bytes == 9 * MIB
    memory.set_waiting_bytes(third, 2 * MIB)
    assert (len(first.refusals), len(second.refusals), len(third.refusals)) == (1, 0, 0)
    assert memory.waiting_bytes == 6 * MIB


async def test_a_connection_whose_replies_were_read_waits_anew() -> None:
    memory = ReplyMemory(asyncio.get_running_loop(), 10 * MIB)
    first, second, third = Holder(), Holder(), Holder()
    memory.set_waiting_bytes(first, 4 * MIB)
    memory.set_waiting_bytes(second, 4 * MIB)
    memory.clear_waiting_bytes(first)
    memory.set_waiting_bytes(first, 4 * MIB)
    memory.set_waiting_bytes(third, 4 * MIB)
    assert second.refusals
    assert not first.refusals


async def test_one_reply_may_be_larger_than_all_memory() -> None:
    memory = ReplyMemory(asyncio.get_running_loop(), MIB)
    only = Holder()
    memory.set_waiting_bytes(only, 2 * MIB)
    assert not only.refusals


async def test_the_share_of_each_connection_gets_smaller_with_their_number() -> None:
    memory = ReplyMemory(asyncio.get_running_loop(), 256 * MIB)
    shares = [memory.connection_opened(4 * MIB) for _ in range(10_000)]
    assert shares[:32] == [4 * MIB] * 32
    assert shares[999] == 128 * MIB // 1_000
    assert shares[-1] == MIN_SHARE_BYTES
    unbounded = ReplyMemory(asyncio.get_running_loop(), -1)
    assert {unbounded.connection_opened(4 * MIB) for _ in range(1_000)} == {4 * MIB}
    holder = Holder()
    unbounded.set_waiting_bytes(holder, 1 << 40)
    unbounded.connection_closed(holder)
    assert not holder.refusals
    unbounded.close()


async def test_much_memory_that_was_freed_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_settings, "TRIM_AFTER_S", 0.001)
    trimmed: list[int] = []
    monkeypatch.setattr(
        allocator_settings, "c_function", lambda name: trimmed.append if name == "malloc_trim" else None
    )
    freed = FreedMemory(asyncio.get_running_loop())
    freed.freed(3 * KEPT_BYTES, KEPT_BYTES)
    await asyncio.sleep(0.005)
    assert not trimmed, "most of it is in use"
    freed.freed(2 * KEPT_BYTES, 2 * KEPT_BYTES)
    await until(lambda: trimmed)
    assert trimmed == [KEPT_BYTES]
    freed.freed(KEPT_BYTES, KEPT_BYTES)
    await asyncio.sleep(0.005)
    assert len(trimmed) == 1, "it was not much"


@plants(MEMORY_TRIM)
@unforeseen
async def test_a_failure_to_give_memory_back_is_logged(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_settings, "TRIM_AFTER_S", 0.001)
    monkeypatch.setattr(allocator_settings, "c_function", lambda _: raising(error))
    freed = FreedMemory(asyncio.get_running_loop())
    with logged(MEMORY_TRIM) as lines:
        freed.freed(3 * KEPT_BYTES, 3 * KEPT_BYTES)
        await until(lambda: lines)
