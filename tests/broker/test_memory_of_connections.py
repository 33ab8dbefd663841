"""Connections that share memory: nobody waits for itself, for what is idle, or for a reply that has left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.receive_buffer import SMALL_CAPACITY_BYTES
from fencepost.broker.requests.long_polls import PendingReply, ReplyFrame
from tests.broker.network.test_connection import Client, Limits, Waiting, settle

MIB = 1024 * 1024
LARGEST_BYTES = 10 * MIB
FEED_BYTES = 64 * 1024


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def feed(client: Client, stream: bytes) -> bytes:
    """Send as a socket does, which is not read while reading is paused; what has not been read."""
    rest = memoryview(stream)
    while rest and client.transport.accepts_input:
        room = client.connection.get_buffer(65_536)
        byte_count = min(len(room), len(rest), FEED_BYTES)
        room[:byte_count] = rest[:byte_count]
        client.connection.buffer_updated(byte_count)
        rest = rest[byte_count:]
    return bytes(rest)


@pytest.fixture
async def memory() -> AsyncIterator[NetworkMemory]:
    made = NetworkMemory(request_limit_bytes=0, largest_request_bytes=LARGEST_BYTES)
    yield made
    made.close()


def large_client(memory: NetworkMemory, waiting: Waiting | None = None) -> Client:
    limits = Limits(
        socket_request_max_bytes=LARGEST_BYTES,
        fencepost_connection_max_in_flight=100,
        fencepost_connection_write_buffer_bytes=100 * MIB,
    )
    answer = waiting if waiting is not None else lambda _: [b"reply"]
    return Client(answer=answer, memory=memory, limits=limits)


@pytest.mark.parametrize("frame_bytes", [3 * MIB, 5 * MIB, 7 * MIB + 11])
async def test_pipelined_large_requests_each_wait_for_memory(memory: NetworkMemory, frame_bytes: int) -> None:
    waiting = Waiting()
    client = large_client(memory, waiting)
    rest = framed(bytes(frame_bytes)) * 6
    most_bytes = 0
    while len(client.started) < 6:
        before = len(rest)
        rest = feed(client, rest)
        most_bytes = max(most_bytes, memory.request_bytes)
        assert memory.request_bytes + memory.spare_bytes <= memory.request_limit_bytes
        if len(rest) == before or not client.transport.accepts_input:
            assert waiting.futures, "it waits for nothing"
            waiting.futures.pop(0).set_result([b"reply"])
            waiting.frames.pop(0)
            await settle()
    assert most_bytes
    for future in waiting.futures:
        future.set_result([b"reply"])
    await settle()
    assert client.connection.in_flight_count == 0
    client.connection.connection_lost(None)
    assert (memory.request_bytes, memory.spare_bytes, memory.waiting_count) == (0, 0, 0)


@pytest.mark.parametrize("first_bytes", [3 * MIB, 6 * MIB, LARGEST_BYTES - 100])
async def test_a_large_request_behind_one_that_is_served_does_not_wait_for_itself(
    memory: NetworkMemory, first_bytes: int
) -> None:
    waiting = Waiting()
    client = large_client(memory, waiting)
    assert feed(client, framed(bytes(first_bytes))) == b""
    rest = feed(client, framed(bytes(LARGEST_BYTES)))
    assert rest, "there is no memory for both"
    waiting.futures[0].set_result([b"reply"])
    waiting.frames.clear()
    await settle()
    assert client.transport.accepts_input
    assert feed(client, rest) == b""
    assert len(client.started) == 2
    waiting.futures[1].set_result([b"reply"])
    await settle()
    client.connection.connection_lost(None)
    assert memory.request_bytes == 0


async def test_large_requests_do_not_wait_for_connections_that_have_sent_a_few_bytes() -> None:
    memory = NetworkMemory(request_limit_bytes=64 * MIB, largest_request_bytes=LARGEST_BYTES)
    idle = [large_client(memory) for _ in range(20)]
    for client in idle:
        assert feed(client, framed(bytes(3 * MIB))) == b""
        client.send_bytes(framed(bytes(100))[:50])
    assert memory.request_bytes + memory.spare_bytes <= memory.request_limit_bytes // 8
    busy = large_client(memory)
    assert feed(busy, framed(bytes(LARGEST_BYTES))) == b""
    assert len(busy.started) == 1
    memory.close()


@pytest.mark.parametrize("missing_bytes", [1, 10, 5_000, 20_000])
async def test_a_frame_that_fits_into_a_small_buffer_takes_no_memory_of_others(
    memory: NetworkMemory, missing_bytes: int
) -> None:
    client = large_client(memory)
    frame = framed(bytes(SMALL_CAPACITY_BYTES - 4))
    assert feed(client, frame[:-missing_bytes]) == b""
    client.connection.get_buffer(65_536)
    assert memory.request_bytes + memory.spare_bytes == 0
    assert feed(client, frame[-missing_bytes:]) == b""
    assert len(client.started) == 1


async def test_an_announced_request_that_the_broker_holds_back_is_not_called_slow(memory: NetworkMemory) -> None:
    held = asyncio.get_running_loop().create_future()
    client = large_client(memory)
    frame = framed(bytes(5 * MIB))
    feed(client, frame[:MIB])
    client.connection.block_until(held)
    assert not client.transport.accepts_input
    assert client.connection.is_blocked_by_broker
    held.set_result(None)
    await settle()
    assert not client.connection.is_blocked_by_broker


async def test_replies_that_leave_in_the_same_step_block_no_connection() -> None:
    client = Client(
        limits=Limits(fencepost_connection_max_in_flight=100, fencepost_connection_write_buffer_bytes=1_000)
    )
    poll = client.wait_without_a_task()
    wait = client.answer

    def answer(frame: memoryview) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        name = bytes(frame)
        if name == b"wait----":
            return wait(frame)
        if name == b"wake----":
            poll.happens([b"woken"])
        return [bytes(600)]

    client.answer = answer
    rest = feed(client, b"".join(map(framed, [b"wait----", b"wake----", *[b"request-"] * 5])))
    await settle()
    assert rest == b""
    assert len(client.started) == 7
    assert client.transport.accepts_input
    assert client.received == b"woken" + 6 * bytes(600)


async def test_small_replies_above_the_bound_block_no_connection_if_taken_at_once() -> None:
    client = Client(answer=lambda _: [bytes(400), bytes(400)], limits=Limits(fencepost_connection_max_in_flight=100))
    rest = framed(b"request-") * 30
    for _ in range(30):
        rest = feed(client, rest)
        await settle()
    assert client.transport.accepts_input
    assert client.received == bytes(30 * 800)


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(6, 20))])
async def test_connections_that_come_and_go_are_served_and_nothing_stays_counted(
    memory: NetworkMemory, seed: int
) -> None:
    chance = random.Random(seed)
    sizes = (100, 60_000, SMALL_CAPACITY_BYTES - 4, SMALL_CAPACITY_BYTES, MIB, 3 * MIB, 5 * MIB, LARGEST_BYTES)
    waiting = Waiting()
    unsent: dict[int, tuple[Client, bytes]] = {}
    left: list[Client] = []
    for index in range(12):
        frames = [framed(bytes(chance.choice(sizes))) for _ in range(chance.randint(1, 5))]
        unsent[index] = (large_client(memory, waiting), b"".join(frames))
    for step in range(5_000):
        index = chance.choice(sorted(unsent))
        client, rest = unsent[index]
        if step < 300 and chance.random() < 0.02 and len(unsent) > 3:
            client.connection.connection_lost(None)
            left.append(client)
            del unsent[index]
        elif rest and chance.random() < 0.7:
            byte_count = chance.choice((3, 1_000, 200_000, len(rest)))
            unread = feed(client, rest[:byte_count])
            unsent[index] = (client, unread + rest[byte_count:])
        elif waiting.futures:
            place = chance.randrange(len(waiting.futures))
            waiting.frames.pop(place)
            waiting.futures.pop(place).set_result([b"reply"])
            await settle()
        assert memory.request_bytes + memory.spare_bytes <= memory.request_limit_bytes
        if not waiting.futures and not any(rest for _, rest in unsent.values()):
            break
    assert not any(rest for _, rest in unsent.values()), "a client waits for ever"
    for client, _ in unsent.values():
        assert client.connection.in_flight_count == 0
        client.connection.connection_lost(None)
    assert (memory.request_bytes, memory.spare_bytes, memory.waiting_count) == (0, 0, 0)


async def test_replies_that_come_behind_one_that_does_not_hold_the_client_back() -> None:
    waiting = Waiting()
    limits = Limits(fencepost_connection_max_in_flight=100, fencepost_connection_write_buffer_bytes=MIB)
    client = Client(answer=waiting, limits=limits)
    client.send(*[b"requests"] * 9)
    for future in waiting.futures[1:7]:
        future.set_result([bytes(MIB // 4)])
    await settle()
    is_held_back = not client.transport.accepts_input
    assert is_held_back, "more than a write buffer waits behind the first reply"
    waiting.futures[0].set_result([b"first"])
    await settle()
    assert client.transport.accepts_input


async def test_three_hundred_clients_that_do_not_read_share_the_memory_for_replies() -> None:
    memory = NetworkMemory(reply_limit_bytes=64 * MIB)
    limits = Limits(fencepost_connection_max_in_flight=100, fencepost_connection_write_buffer_bytes=4 * MIB)
    reply = [bytes(MIB // 2)]
    clients = [Client(answer=lambda _: reply, limits=limits, memory=memory) for _ in range(300)]
    for client in clients:
        client.transport.is_stuck = True
    for _ in range(20):
        for client in clients:
            if client.transport.ended is None:
                feed(client, framed(b"requests"))
            assert memory.reply_bytes <= 64 * MIB
    closed = [client for client in clients if client.transport.ended is not None]
    left = [client for client in clients if client.transport.ended is None]
    assert all("does not read its replies" in client.refusals[0] for client in closed)
    assert memory.reply_bytes > 32 * MIB, "no more are closed than have to be"
    for client in left:
        client.transport.unstick()
        before = len(client.received)
        feed(client, framed(b"requests"))
        assert len(client.received) > before
    assert memory.reply_bytes == 0
    memory.close()


async def test_three_hundred_requests_that_end_in_the_middle_share_the_memory_for_requests() -> None:
    memory = NetworkMemory(request_limit_bytes=64 * MIB, largest_request_bytes=LARGEST_BYTES)
    clients = [large_client(memory) for _ in range(300)]
    for client in clients:
        feed(client, framed(bytes(5 * MIB))[: 3 * MIB])
        assert memory.request_bytes + memory.spare_bytes <= memory.request_limit_bytes
    assert memory.waiting_count > 200
    complete = large_client(memory)
    rest = feed(complete, framed(bytes(LARGEST_BYTES)))
    assert rest, "it waits for those before it"
    while complete.transport.ended is None and not complete.started:
        memory._check()
        for client in clients:
            if client.transport.ended is not None and not client.is_gone:
                client.connection.connection_lost(None)
        rest = feed(complete, rest)
        assert memory.request_bytes + memory.spare_bytes <= memory.request_limit_bytes
    assert complete.started == [bytes(LARGEST_BYTES)]
    for client in (*clients, complete):
        if not client.is_gone:
            client.connection.connection_lost(None)
    assert (memory.request_bytes, memory.spare_bytes, memory.waiting_count) == (0, 0, 0)
    memory.close()
