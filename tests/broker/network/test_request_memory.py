"""Memory for the requests of all connections: grants, waiting requests, and requests that lose their memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fencepost.broker.network import request_memory
from fencepost.broker.network.receive_buffer import SMALL_CAPACITY_BYTES, BufferPool, Receiver
from fencepost.broker.network.request_memory import ORDINARY_BYTES, PROGRESS_CHECK, RequestMemory
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until

MIB = 1024 * 1024


@dataclass(eq=False)
class User:
    memory: RequestMemory
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
async def memory() -> AsyncIterator[RequestMemory]:
    made = RequestMemory(asyncio.get_running_loop(), 64 * MIB, 40 * MIB)
    yield made
    made.close()


async def test_a_large_request_waits_until_there_is_memory_for_all_of_it(memory: RequestMemory) -> None:
    first, second, third = User(memory), User(memory), User(memory)
    assert first.reserve(40 * MIB)
    assert not second.reserve(40 * MIB)
    assert not third.reserve(5 * MIB), "what would fit does not overtake"
    memory.arrived(first)
    memory.release(40 * MIB)
    assert second.granted == [40 * MIB]
    assert third.granted == [5 * MIB]
    assert memory.used_bytes == 45 * MIB


async def test_ordinary_requests_go_on_while_large_ones_wait(memory: RequestMemory) -> None:
    assert User(memory).reserve(40 * MIB)
    assert not User(memory).reserve(40 * MIB)
    assert all(User(memory).reserve(ORDINARY_BYTES) for _ in range(8 * MIB // ORDINARY_BYTES))
    assert not User(memory).reserve(ORDINARY_BYTES)


async def test_ordinary_requests_have_all_memory_while_no_large_one_waits(memory: RequestMemory) -> None:
    assert all(User(memory).reserve(ORDINARY_BYTES) for _ in range(56 * MIB // ORDINARY_BYTES)), "an eighth is spare"
    assert not User(memory).reserve(ORDINARY_BYTES)


async def test_a_waiting_connection_that_leaves_does_not_block_others(memory: RequestMemory) -> None:
    holder, leaving, next_one = User(memory), User(memory), User(memory)
    assert holder.reserve(40 * MIB)
    assert not leaving.reserve(40 * MIB)
    assert not next_one.reserve(4 * MIB)
    memory.connection_closed(leaving)
    assert next_one.granted == [4 * MIB]


async def test_the_largest_request_always_fits() -> None:
    memory = RequestMemory(asyncio.get_running_loop(), 1, 100 * MIB)
    assert User(memory).reserve(100 * MIB)
    assert User(memory).reserve(ORDINARY_BYTES)
    memory.close()


async def test_without_a_bound_no_request_waits() -> None:
    memory = RequestMemory(asyncio.get_running_loop(), -1, MIB)
    assert all(User(memory).reserve(100 * MIB) for _ in range(1_000))
    memory.close()


async def test_a_request_that_does_not_arrive_loses_its_memory_to_waiting_ones(
    memory: RequestMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_memory, "PROGRESS_CHECK_S", 0.01)
    idle, waiting = User(memory), User(memory)
    assert idle.reserve(40 * MIB)
    assert not waiting.reserve(40 * MIB)
    await until(lambda: waiting.granted)
    assert len(idle.refusals) == 1
    assert not waiting.refusals


async def test_a_request_that_arrives_or_is_blocked_by_the_broker_keeps_its_memory(memory: RequestMemory) -> None:
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


async def test_no_connection_is_closed_while_no_request_waits(memory: RequestMemory) -> None:
    idle = User(memory)
    assert idle.reserve(40 * MIB)
    for _ in range(3):
        memory._check()
    assert not idle.refusals


@plants(PROGRESS_CHECK)
@unforeseen
async def test_a_failed_check_is_made_again(
    error: BaseException, memory: RequestMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_memory, "PROGRESS_CHECK_S", 0.01)
    idle, waiting = User(memory), User(memory)
    assert idle.reserve(40 * MIB)
    monkeypatch.setattr(User, "arrived_bytes", property(lambda _: fail_or_nothing()), raising=False)
    fail_or_nothing = raising(error, times=1, then=lambda: 0)
    with logged(PROGRESS_CHECK):
        assert not waiting.reserve(40 * MIB)
        await until(lambda: waiting.granted)


def send(receiver: Receiver, content: bytes) -> None:
    while content:
        room = receiver.writable_memory()
        byte_count = min(len(room), len(content))
        room[:byte_count] = content[:byte_count]
        receiver.received(byte_count)
        content = content[byte_count:]


async def test_a_reserved_frame_is_read_into_a_buffer_of_its_own_size(memory: RequestMemory) -> None:
    pool = BufferPool(memory=memory)
    receiver = Receiver(pool)
    frame = bytes(range(256)) * (20 * MIB // 256)
    send(receiver, len(frame).to_bytes(4, "big") + frame[:100_000])
    assert receiver.take_frame(8, 100 * MIB) is None
    receiver.release_if_idle()
    wanted_bytes = receiver.unreserved_bytes()
    assert len(frame) < wanted_bytes <= len(frame) + 8_192
    assert memory.reserve(User(memory), wanted_bytes)
    receiver.reserve(wanted_bytes)
    assert receiver.unreserved_bytes() == 0
    send(receiver, frame[100_000:])
    taken = receiver.take_frame(8, 100 * MIB)
    assert bytes(taken or b"") == frame
    assert memory.used_bytes == wanted_bytes
    receiver.release_if_idle()
    assert memory.used_bytes == 0
    receiver.close()


async def test_a_connection_that_leaves_gives_back_what_was_reserved(memory: RequestMemory) -> None:
    receiver = Receiver(BufferPool(memory=memory))
    send(receiver, (20 * MIB).to_bytes(4, "big") + bytes(100))
    assert receiver.take_frame(8, 100 * MIB) is None
    receiver.release_if_idle()
    assert memory.reserve(User(memory), receiver.unreserved_bytes())
    receiver.reserve(receiver.unreserved_bytes())
    receiver.close()
    assert memory.used_bytes == 0


async def test_small_frames_need_no_memory_of_all(memory: RequestMemory) -> None:
    receiver = Receiver(BufferPool(memory=memory))
    send(receiver, (SMALL_CAPACITY_BYTES - 4).to_bytes(4, "big") + bytes(100))
    assert receiver.take_frame(8, 100 * MIB) is None
    receiver.release_if_idle()
    assert receiver.unreserved_bytes() == 0
    assert memory.used_bytes == 0


async def test_room_that_is_only_faster_is_not_had_where_memory_is_scarce(memory: RequestMemory) -> None:
    pool = BufferPool(memory=memory)
    busy = [Receiver(pool) for _ in range(100)]
    for receiver in busy:
        for _ in range(3):  # more than fits arrives together
            send(receiver, (64).to_bytes(4, "big") + bytes(64) + bytes(SMALL_CAPACITY_BYTES - 68))
            receiver.close()
        send(receiver, (64).to_bytes(4, "big") + bytes(10))
        receiver.release_if_idle()
    assert 0 < memory.spare_bytes <= memory.limit_bytes // 8
    for receiver in busy:
        receiver.close()
    assert (memory.used_bytes, memory.spare_bytes) == (0, 0)
