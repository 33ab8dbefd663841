"""Memory of all connections: grants to requests, requests that wait or lose their memory, replies that wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fencepost.broker.kernel import allocator_settings
from fencepost.broker.kernel.allocator_settings import KEPT_BYTES, MEMORY_TRIM, FreedMemory
from fencepost.broker.network import network_memory
from fencepost.broker.network.inbox import Inbox
from fencepost.broker.network.network_memory import MIN_SHARE_BYTES, ORDINARY_BYTES, PROGRESS_CHECK, NetworkMemory
from fencepost.broker.network.receive_buffer import SMALL_CAPACITY_BYTES, BufferPool
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until

MIB = 1024 * 1024


@dataclass(eq=False)
class User:
    memory: NetworkMemory
    client_host: str = "192.0.2.1"
    arrived_bytes: int = 0
    is_blocked_by_broker: bool = False
    granted: list[int] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    def memory_granted(self, byte_count: int) -> None:
        self.granted.append(byte_count)

    def close_for(self, reason: str) -> None:
        self.refusals.append(reason)
        self.memory.connection_closed(self)
        self.memory.release(sum(self.granted))

    def reserve(self, byte_count: int) -> bool:
        if self.memory.reserve(self, byte_count):
            self.granted.append(byte_count)
        return bool(self.granted)


@pytest.fixture
async def memory() -> AsyncIterator[NetworkMemory]:
    made = NetworkMemory(request_limit_bytes=64 * MIB, largest_request_bytes=40 * MIB)
    yield made
    made.close()


async def test_a_large_request_waits_until_there_is_memory_for_all_of_it(memory: NetworkMemory) -> None:
    first, second, third = User(memory), User(memory), User(memory)
    assert first.reserve(40 * MIB)
    assert not second.reserve(40 * MIB)
    assert not third.reserve(5 * MIB), "what would fit does not overtake"
    memory.arrived(first)
    memory.release(40 * MIB)
    assert second.granted == [40 * MIB]
    assert third.granted == [5 * MIB]
    assert memory.request_bytes == 45 * MIB


async def test_ordinary_requests_go_on_while_large_ones_wait(memory: NetworkMemory) -> None:
    assert User(memory).reserve(40 * MIB)
    assert not User(memory).reserve(40 * MIB)
    assert all(User(memory).reserve(ORDINARY_BYTES) for _ in range(8 * MIB // ORDINARY_BYTES))
    assert not User(memory).reserve(ORDINARY_BYTES)


async def test_ordinary_requests_have_all_memory_while_no_large_one_waits(memory: NetworkMemory) -> None:
    assert all(User(memory).reserve(ORDINARY_BYTES) for _ in range(56 * MIB // ORDINARY_BYTES)), "an eighth is spare"
    assert not User(memory).reserve(ORDINARY_BYTES)


async def test_a_waiting_connection_that_leaves_does_not_block_others(memory: NetworkMemory) -> None:
    holder, leaving, next_one = User(memory), User(memory), User(memory)
    assert holder.reserve(40 * MIB)
    assert not leaving.reserve(40 * MIB)
    assert not next_one.reserve(4 * MIB)
    memory.connection_closed(leaving)
    assert next_one.granted == [4 * MIB]


async def test_the_largest_request_always_fits() -> None:
    memory = NetworkMemory(request_limit_bytes=1, largest_request_bytes=100 * MIB)
    assert User(memory).reserve(100 * MIB)
    assert User(memory).reserve(ORDINARY_BYTES)
    memory.close()


async def test_without_a_bound_no_request_waits() -> None:
    memory = NetworkMemory(request_limit_bytes=-1, largest_request_bytes=MIB)
    assert all(User(memory).reserve(100 * MIB) for _ in range(1_000))
    memory.close()


async def test_a_request_that_does_not_arrive_loses_its_memory_to_waiting_ones(
    memory: NetworkMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_memory, "PROGRESS_CHECK_S", 0.01)
    idle, waiting = User(memory), User(memory)
    assert idle.reserve(40 * MIB)
    assert not waiting.reserve(40 * MIB)
    await until(lambda: waiting.granted)
    assert len(idle.refusals) == 1
    assert not waiting.refusals


async def test_a_request_that_arrives_or_is_blocked_by_the_broker_keeps_its_memory(memory: NetworkMemory) -> None:
    arriving, muted, waiting = User(memory), User(memory, is_blocked_by_broker=True), User(memory)
    assert arriving.reserve(24 * MIB)
    assert muted.reserve(24 * MIB)
    assert not waiting.reserve(24 * MIB)
    for _ in range(10):
        memory._check()
        arriving.arrived_bytes += MIB
    assert not arriving.refusals
    assert not muted.refusals
    arriving.arrived_bytes += MIB - 1
    memory._check()
    arriving.arrived_bytes += MIB - 1
    memory._check()
    assert arriving.refusals
    assert waiting.granted


async def test_no_connection_is_closed_while_no_request_waits(memory: NetworkMemory) -> None:
    idle = User(memory)
    assert idle.reserve(40 * MIB)
    for _ in range(3):
        memory._check()
    assert not idle.refusals


@plants(PROGRESS_CHECK)
@unforeseen
async def test_a_failed_check_is_made_again(
    error: BaseException, memory: NetworkMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_memory, "PROGRESS_CHECK_S", 0.01)
    idle, waiting = User(memory), User(memory)
    assert idle.reserve(40 * MIB)
    monkeypatch.setattr(User, "arrived_bytes", property(lambda _: fail_or_nothing()), raising=False)
    fail_or_nothing = raising(error, times=1, then=lambda: 0)
    with logged(PROGRESS_CHECK):
        assert not waiting.reserve(40 * MIB)
        await until(lambda: waiting.granted)


def send(inbox: Inbox, content: bytes) -> None:
    while content:
        room = inbox.writable_memory()
        byte_count = min(len(room), len(content))
        room[:byte_count] = content[:byte_count]
        inbox.received(byte_count)
        content = content[byte_count:]


async def test_a_reserved_frame_is_read_into_a_buffer_of_its_own_size(memory: NetworkMemory) -> None:
    pool = BufferPool(memory=memory)
    inbox = Inbox(pool, 100 * MIB)
    frame = bytes(range(256)) * (20 * MIB // 256)
    send(inbox, len(frame).to_bytes(4, "big") + frame[:100_000])
    assert inbox.take_frame() is None
    inbox.release_if_idle()
    user = User(memory)
    assert inbox.claim_memory(user)
    wanted_bytes = memory.request_bytes
    assert len(frame) < wanted_bytes <= len(frame) + 8_192
    assert inbox.claim_memory(user)
    assert memory.request_bytes == wanted_bytes, "it is claimed once"
    send(inbox, frame[100_000:])
    taken = inbox.take_frame()
    assert bytes(taken or b"") == frame
    assert memory.request_bytes == wanted_bytes
    assert inbox.claim_memory(user)
    inbox.release_if_idle()
    assert memory.request_bytes == 0
    inbox.close()


async def test_a_connection_that_leaves_gives_back_what_was_reserved(memory: NetworkMemory) -> None:
    inbox = Inbox(BufferPool(memory=memory), 100 * MIB)
    send(inbox, (20 * MIB).to_bytes(4, "big") + bytes(100))
    assert inbox.take_frame() is None
    inbox.release_if_idle()
    assert inbox.claim_memory(User(memory))
    assert memory.request_bytes > 20 * MIB
    inbox.close()
    assert memory.request_bytes == 0


async def test_small_frames_need_no_memory_of_all(memory: NetworkMemory) -> None:
    inbox = Inbox(BufferPool(memory=memory), 100 * MIB)
    send(inbox, (SMALL_CAPACITY_BYTES - 4).to_bytes(4, "big") + bytes(100))
    assert inbox.take_frame() is None
    inbox.release_if_idle()
    assert inbox.claim_memory(User(memory))
    assert memory.request_bytes == 0


async def test_room_that_is_only_faster_is_not_had_where_memory_is_scarce(memory: NetworkMemory) -> None:
    pool = BufferPool(memory=memory)
    busy = [Inbox(pool, 100 * MIB) for _ in range(100)]
    for inbox in busy:
        for _ in range(3):  # more than fits arrives together
            send(inbox, (64).to_bytes(4, "big") + bytes(64) + bytes(SMALL_CAPACITY_BYTES - 68))
            inbox.close()
        send(inbox, (64).to_bytes(4, "big") + bytes(10))
        inbox.release_if_idle()
    assert 0 < memory.spare_bytes <= memory.request_limit_bytes // 8
    for inbox in busy:
        inbox.close()
    assert (memory.request_bytes, memory.spare_bytes) == (0, 0)


# Replies


async def test_above_the_limit_the_connection_that_waits_longest_is_closed() -> None:
    memory = NetworkMemory(reply_limit_bytes=10 * MIB)
    first, second, third = User(memory), User(memory), User(memory)
    memory.set_unread_bytes(first, 3 * MIB)
    memory.set_unread_bytes(second, 4 * MIB)
    memory.set_unread_bytes(first, 5 * MIB)
    assert memory.reply_bytes == 9 * MIB
    memory.set_unread_bytes(third, 2 * MIB)
    assert (len(first.refusals), len(second.refusals), len(third.refusals)) == (1, 0, 0)
    assert memory.reply_bytes == 6 * MIB


async def test_a_connection_whose_replies_were_read_waits_anew() -> None:
    memory = NetworkMemory(reply_limit_bytes=10 * MIB)
    first, second, third = User(memory), User(memory), User(memory)
    memory.set_unread_bytes(first, 4 * MIB)
    memory.set_unread_bytes(second, 4 * MIB)
    memory.set_unread_bytes(first, 0)
    memory.set_unread_bytes(first, 4 * MIB)
    memory.set_unread_bytes(third, 4 * MIB)
    assert second.refusals
    assert not first.refusals


async def test_one_reply_may_be_larger_than_all_memory() -> None:
    memory = NetworkMemory(reply_limit_bytes=MIB)
    only = User(memory)
    memory.set_unread_bytes(only, 2 * MIB)
    assert not only.refusals


async def test_the_share_of_each_connection_gets_smaller_with_their_number() -> None:
    memory = NetworkMemory(reply_limit_bytes=256 * MIB)
    shares = [memory.connection_opened(4 * MIB) for _ in range(10_000)]
    assert shares[:32] == [4 * MIB] * 32
    assert shares[999] == 128 * MIB // 1_000
    assert shares[-1] == MIN_SHARE_BYTES
    unbounded = NetworkMemory()
    assert {unbounded.connection_opened(4 * MIB) for _ in range(1_000)} == {4 * MIB}
    holder = User(memory)
    unbounded.set_unread_bytes(holder, 1 << 40)
    unbounded.connection_closed(holder)
    assert not holder.refusals
    unbounded.close()


async def test_much_memory_that_was_freed_goes_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator_settings, "TRIM_AFTER_S", 0.001)
    trimmed: list[int] = []
    monkeypatch.setattr(
        allocator_settings, "c_function", lambda name: trimmed.append if name == "malloc_trim" else None
    )
    freed = FreedMemory()
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
    freed = FreedMemory()
    with logged(MEMORY_TRIM) as lines:
        freed.freed(3 * KEPT_BYTES, 3 * KEPT_BYTES)
        await until(lambda: lines)


async def test_the_oldest_stranger_of_the_address_with_most_makes_room_and_no_user_does(memory: NetworkMemory) -> None:
    strangers = [User(memory, client_host=host) for host in ("192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3")]
    for stranger in strangers:
        memory.connection_opened(0)
        memory.strangers.connected(stranger)
    memory.strangers.left(strangers[3])  # it has authenticated
    assert [memory.strangers.make_room() for _ in range(4)] == [True, True, True, False]
    assert [len(stranger.refusals) for stranger in strangers] == [1, 1, 1, 0]
