"""Random interleavings of whatever can happen to connections: none ever hangs.

Every request that arrived is answered, in order, or its connection is closed. Replies are ready at once, or later, or
impossible; some are in files. Clients read little by little, through a transport alone or with a socket beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import pytest

from fencepost.broker.network.connection import Connection
from fencepost.broker.network.connection_state import CLOSED, RUNNING
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.receive_buffer import BufferPool
from fencepost.broker.network.socket_sender import SendfileSockets
from fencepost.broker.produce.produce_runs import RunResult
from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.requests.long_polls import LongPoll, LongPolls, PendingReply, ReplyChunks, ReplyFrame
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.framing import EqualLengthFrames
from tests.broker.network.test_connection import Limits
from tests.support.counted_file import CountedFile

SEEDS_COUNT, FEW_SEEDS_COUNT = 120, 30
"""Of the tests that take long, and of the others."""
STEPS_COUNT = 250
REQUESTS_COUNT = 60
LONGEST_MUTE_S = 0.002
PATIENCE_S = 20.0


class Poll(LongPoll[Any]):
    """A request that waits for an event."""

    def __init__(self, reply: ReplyChunks) -> None:
        self._reply = reply
        self._has_happened = False
        self._wake: Callable[[], None] = lambda: None

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def poll(self) -> ReplyFrame:
        return self._reply if self._has_happened else None

    def end(self) -> None:
        """Nothing is watched."""

    def happens(self) -> None:
        self._has_happened = True
        self._wake()


class Transport(asyncio.Transport):
    """A transport over a pair of sockets; the other one is the client's. `arriving` is what the client has sent."""

    def __init__(self, connection: Connection, *, has_socket: bool) -> None:
        super().__init__()
        self.connection = connection
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        self.has_socket = has_socket
        self.arriving = b""
        self.received = bytearray()
        self.ended: str | None = None
        self.is_lost = False
        self._is_reading = True
        self._is_full = False
        self._unsent = bytearray()
        self._high_bytes = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        found = {"peername": ("127.0.0.1", 50_000), "sockname": ("127.0.0.1", 9_092), "socket": self.ours}
        return default if name == "socket" and not self.has_socket else found.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high or 0

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def writelines(self, list_of_data: Any) -> None:
        assert self.ended is None
        self._unsent += b"".join(list_of_data)
        if len(self._unsent) > self._high_bytes:
            self._send()
        else:
            asyncio.get_running_loop().call_soon(self._send)  # as uvloop does
        if len(self._unsent) > self._high_bytes and not self._is_full:
            self._is_full = True
            self.connection.pause_writing()

    def pause_reading(self) -> None:
        assert self._is_reading
        self._is_reading = False

    def resume_reading(self) -> None:
        assert not self._is_reading
        self._is_reading = True

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self.ended = self.ended or "closed"
        self._send()

    def abort(self) -> None:
        self.ended = "aborted"
        self._unsent.clear()
        self._send()

    def _send(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self.ours.send(self._unsent)]
        if self.ended is not None and not self._unsent and not self.is_lost:
            self.is_lost = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def client_reads(self, byte_count: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self.received += self.theirs.recv(byte_count)
        self._send()
        if self._is_full and not self.is_lost and len(self._unsent) <= self._high_bytes // 4:
            self._is_full = False
            self.connection.resume_writing()

    def deliver(self, byte_count: int) -> None:
        """Deliver what has arrived, as a loop does: not while reading is paused."""
        while byte_count > 0 and self.arriving and self._is_reading and self.ended is None:
            room = self.connection.get_buffer(-1)
            part, byte_count = self.arriving[: min(byte_count, len(room))], byte_count - len(room)
            self.arriving = self.arriving[len(part) :]
            room[: len(part)] = part
            self.connection.buffer_updated(len(part))


@dataclass
class Client:
    """A connection, its requests, and the broker's side of them: `random` decides what comes of each."""

    chance: random.Random
    memory: NetworkMemory
    long_polls: LongPolls
    has_socket: bool
    expected: list[bytes] = field(default_factory=list)  # the replies to the requests that were started
    started_count: int = 0
    waiting: list[tuple[asyncio.Future[ReplyFrame], ReplyFrame]] = field(default_factory=list)
    polls: list[Poll] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    is_gone: bool = False
    refuses: bool = False
    has_quotas: bool = False

    def __post_init__(self) -> None:
        chance = self.chance
        self.refuses, self.has_quotas = chance.random() < 0.15, chance.random() < 0.3
        self.limits = Limits(
            socket_request_max_bytes=1_000_000,
            fencepost_connection_max_in_flight=chance.choice((1, 2, 5, 20, 100)),
            fencepost_connection_write_buffer_bytes=chance.choice((100, 2_000, 20_000, 1 << 20)),
        )
        self.connection = Connection(
            1,
            dispatcher=self,
            owner=self,
            limits=self.limits,
            pool=BufferPool(memory=self.memory),
            sendfile_sockets=SendfileSockets(Descriptors(1_024), 0),
            loop=asyncio.get_running_loop(),
        )
        self.transport = Transport(self.connection, has_socket=self.has_socket)
        self.connection.connection_made(self.transport)
        lengths = [8, 8, 8, 8, 60, 5_000] + [900_000] * (chance.random() < 0.3)
        frames: list[bytes] = []
        while len(frames) < REQUESTS_COUNT:
            frames += [bytes(chance.choice(lengths))] * chance.choice((1, 1, 3, 12))
        self.requests_count = len(frames)
        self.transport.arriving = b"".join(len(one).to_bytes(4, "big") + one for one in frames)

    # Dispatcher

    def dispatch(
        self, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        self.started_count += 1
        return self._outcome(self.started_count)

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        if self.chance.random() < 0.5:
            return None
        starts = range(0, len(frames.buffer), frames.frame_bytes)
        count = sum(1 for _ in takewhile(lambda at: frames.buffer[at : at + 4] == frames.buffer[:4], starts))
        self.started_count += count
        outcome = self._outcome(self.started_count, is_run=True)
        assert not isinstance(outcome, PendingReply)
        return RunResult(count, outcome)

    def _outcome(self, number: int, *, is_run: bool = False) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        chance = self.chance
        if self.refuses and chance.random() < 0.02:
            raise CloseConnection("refused")
        if self.has_quotas and chance.random() < 0.05:
            self.connection.mute(chance.random() * LONGEST_MUTE_S)
        for poll in self.polls[:2]:
            if chance.random() < 0.2:  # requests wake those that wait, on their own connection, too
                self.polls.remove(poll)
                poll.happens()
        reply = self._reply(number)
        self.expected.append(b"" if reply is None else content_of(reply))
        kind = chance.random()
        if kind < 0.5:
            return reply
        if kind < 0.65 and not is_run and reply is not None:
            poll = Poll(reply)
            pending = PendingReply(self.long_polls, poll, poll.poll)
            pending.begin()
            self.polls.append(poll)
            return pending
        future: asyncio.Future[ReplyFrame] = asyncio.get_running_loop().create_future()
        self.waiting.append((future, reply))
        if kind < 0.75:
            self.connection.block_until(future)
        if kind < 0.9:
            self.connection.keep_frame_until(future)
        return future

    def _reply(self, number: int) -> ReplyChunks | None:
        chance = self.chance
        name = b"<%06d>" % number
        match chance.randrange(8):
            case 0:
                return None
            case 1:
                return [name * chance.choice((1, 30, 500))]
            case 2:
                return [name, name * chance.choice((1, 3_000))]
            case 3:
                file = CountedFile(name * 3_000)
                return [name, FileSlice(file, 0, file.size_bytes), name]
        return [name]

    # Owner

    def connection_opened(self, connection: Connection) -> bool:
        return True

    def connection_closed(self, connection: Connection) -> None:
        self.is_gone = True

    def connection_refused(self, connection: Connection, reason: str) -> None:
        self.refusals.append(reason)

    # What happens

    def step(self) -> None:
        """Something happens to this connection."""
        chance, transport = self.chance, self.transport
        match chance.randrange(7):
            case 0 | 1:
                one_frame_bytes = 4 + int.from_bytes(transport.arriving[:4], "big")
                transport.deliver(chance.choice((1, 13, one_frame_bytes, 100, 2_000, 400_000)))
            case 2 | 3:
                transport.client_reads(chance.choice((1, 500, 5_000, 100_000)))
            case 4 if self.waiting:
                future, reply = self.waiting.pop(chance.randrange(len(self.waiting)))
                future.set_result(reply)
            case 5 if self.polls:
                self.polls.pop(chance.randrange(len(self.polls))).happens()
            case 6 if chance.random() < 0.004:
                chance.choice((self.connection.drain, self.connection.abort, transport.close))()

    def go_on(self) -> None:
        """The client sends and reads, and the broker finishes what it has begun."""
        self.transport.deliver(1 << 20)
        self.transport.client_reads(1 << 20)
        for future, reply in self.waiting:
            future.set_result(reply)
        for poll in self.polls:
            poll.happens()
        self.waiting.clear()
        self.polls.clear()

    @property
    def is_done(self) -> bool:
        if self.is_gone:
            return True
        is_idle = self.connection._state is RUNNING and not self.connection.in_flight_count
        return is_idle and self.started_count == self.requests_count and not self._missing_bytes

    @property
    def _missing_bytes(self) -> int:
        return sum(map(len, self.expected)) - len(self.transport.received)

    def check(self) -> None:
        """Replies come whole and in order; reading goes on in one state only."""
        assert self.connection.in_flight_count <= self.limits.fencepost_connection_max_in_flight
        expected = b"".join(self.expected)
        assert expected.startswith(self.transport.received)
        if self.transport.ended is None:
            assert self.transport.is_reading() is (self.connection._state is RUNNING)
        else:
            assert self.connection._state is CLOSED or self.transport.ended == "closed"


def content_of(reply: ReplyChunks) -> bytes:
    return b"".join(b"".join(one.pieces()) if isinstance(one, FileSlice) else bytes(one) for one in reply)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.storage.file_slice.PIECE_BYTES", 7_000)
    monkeypatch.setattr("fencepost.broker.network.socket_sender.MIN_FILE_BYTES", 10_000)


@pytest.mark.parametrize("has_socket", [True, False], ids=["socket", "transport alone"])
@pytest.mark.parametrize(
    "seed",
    [
        *range(FEW_SEEDS_COUNT),
        *(pytest.param(seed, marks=pytest.mark.long) for seed in range(FEW_SEEDS_COUNT, SEEDS_COUNT)),
    ],
)
async def test_every_request_is_answered_in_order_or_its_connection_is_closed(seed: int, has_socket: bool) -> None:
    chance = random.Random(seed)
    memory = NetworkMemory(
        request_limit_bytes=0, largest_request_bytes=1_000_000, reply_limit_bytes=chance.choice((-1, 50_000, 1 << 20))
    )
    long_polls = LongPolls()
    clients = [Client(chance, memory, long_polls, has_socket) for _ in range(chance.choice((1, 2, 6)))]
    for _ in range(STEPS_COUNT):
        client = chance.choice(clients)
        client.step()
        if chance.random() < 0.3:
            await asyncio.sleep(0)
        client.check()
    async with asyncio.timeout(PATIENCE_S):
        while not all(client.is_done for client in clients):
            for client in clients:
                client.go_on()
                client.check()
            await asyncio.sleep(0)
    assert memory.reply_bytes == 0
    for client in clients:
        client.check()
        if not client.is_gone:
            client.connection.abort()
    await asyncio.sleep(0)
    assert (memory.request_bytes, memory.spare_bytes, memory.reply_bytes, memory.waiting_count) == (0, 0, 0, 0)
    memory.close()
    for client in clients:
        client.transport.ours.close()
        client.transport.theirs.close()
