"""Connections: framing, order of replies, and bounds. The test stands in for the transport."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from fencepost.broker.network.authentication import Authentication, ListenerAuthentication
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.network_memory import NetworkMemory
from fencepost.broker.network.receive_buffer import BufferPool
from fencepost.broker.network.socket_sender import SendfileSockets
from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.requests.long_polls import LongPoll, LongPolls, PendingReply, ReplyFrame
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.framing import EqualLengthFrames
from tests.simulation import loop as virtual_time
from tests.support.counted_file import CountedFile


@dataclass
class Limits:
    socket_request_max_bytes: int = 1_000_000
    fencepost_connection_max_in_flight: int = 4
    fencepost_connection_write_buffer_bytes: int = 1_000
    fencepost_connection_write_stall_ms: int = 60_000


class PlayedTransport(asyncio.Transport):
    """Takes what is written; `stuck_bytes` of it count as not sent."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Connection | None = None
        self.extra_info: dict[str, Any] = {}
        self.writes: list[bytes] = []
        self.accepts_input = True
        self.ended: str | None = None
        self.high_bytes = 0
        self.stuck_bytes = 0
        self.is_stuck = False
        self.has_ended = asyncio.Event()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 50_000), **self.extra_info}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        self.high_bytes = high

    def get_write_buffer_size(self) -> int:
        return self.stuck_bytes

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        assert self.ended is None
        written = b"".join(list_of_data)
        self.writes.append(written)
        if self.is_stuck:
            self.stuck_bytes += len(written)
            if self.stuck_bytes > self.high_bytes:
                assert self.protocol is not None
                self.protocol.pause_writing()

    def unstick(self) -> None:
        self.is_stuck, self.stuck_bytes = False, 0
        assert self.protocol is not None
        self.protocol.resume_writing()

    def pause_reading(self) -> None:
        assert self.accepts_input
        self.accepts_input = False

    def resume_reading(self) -> None:
        assert not self.accepts_input
        self.accepts_input = True

    def is_closing(self) -> bool:
        return self.ended is not None

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def abort(self) -> None:
        self.ended = "aborted"
        self.has_ended.set()


class Poll(LongPoll[Any]):
    """What waits for a test."""

    def __init__(self) -> None:
        self._reply: ReplyFrame = None
        self._wake: Callable[[], None] = lambda: None
        self.has_ended = False

    def begin(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def poll(self) -> ReplyFrame:
        return self._reply

    def end(self) -> None:
        self.has_ended = True

    def happens(self, reply: list[bytes]) -> None:
        self._reply = reply
        self._wake()


Answer = Callable[[memoryview], "ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply"]


@dataclass
class Client:
    """A connection with the two sides of it that a test plays: the client's bytes and the dispatcher's answers."""

    answer: Answer = lambda frame: [bytes(frame)]
    limits: Limits = field(default_factory=Limits)
    has_room: bool = True
    started: list[bytes] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    is_gone: bool = False
    long_polls: LongPolls = field(default_factory=LongPolls)
    memory: NetworkMemory = field(default_factory=NetworkMemory)
    transport: PlayedTransport = field(default_factory=PlayedTransport)
    sasl: ListenerAuthentication | None = None

    def __post_init__(self) -> None:
        self.connection = Connection(
            1,
            dispatcher=self,
            owner=self,
            limits=self.limits,
            pool=BufferPool(memory=self.memory),
            sendfile_sockets=SendfileSockets(Descriptors(1_024), -1),
            loop=asyncio.get_running_loop(),
            authentication=None if self.sasl is None else Authentication(self.sasl, self),
        )
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)

    def dispatch(
        self, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        self.started.append(bytes(frame))
        outcome = self.answer(frame)
        if isinstance(outcome, asyncio.Future):
            connection.keep_frame_until(outcome)
        return outcome

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> None:
        """No run: each request is dispatched by itself."""

    def wait_without_a_task(self) -> Poll:
        """Requests from now on wait for the returned poll."""
        poll = Poll()

        def answer(frame: memoryview) -> PendingReply:
            pending = PendingReply(self.connection._long_polls, poll, poll.poll)
            pending.begin()
            return pending

        self.answer = answer
        return poll

    def connection_opened(self, connection: Connection) -> bool:
        return self.has_room

    def connection_closed(self, connection: Connection) -> None:
        self.is_gone = True

    def connection_refused(self, connection: Connection, reason: str) -> None:
        self.refusals.append(reason)

    def send(self, *contents: bytes) -> None:
        self.send_bytes(b"".join(len(content).to_bytes(4, "big") + content for content in contents))

    def send_bytes(self, stream: bytes) -> None:
        while stream:
            room = self.connection.get_buffer(65_536)
            byte_count = min(len(room), len(stream))
            room[:byte_count] = stream[:byte_count]
            stream = stream[byte_count:]
            self.connection.buffer_updated(byte_count)

    @property
    def received(self) -> bytes:
        return b"".join(self.transport.writes)


class Waiting:
    """A dispatcher whose answers come when the test says so."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[ReplyFrame]] = []
        self.frames: list[memoryview] = []

    def __call__(self, frame: memoryview) -> asyncio.Future[ReplyFrame]:
        future: asyncio.Future[ReplyFrame] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        self.frames.append(frame)
        return future


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_in_pieces_is_started_when_it_is_whole() -> None:
    client = Client()
    stream = b"\x00\x00\x00\x0arequest-01"
    for position in range(len(stream)):
        assert client.started == []
        client.send_bytes(stream[position : position + 1])
    assert client.started == [b"request-01"]
    assert client.received == b"request-01"


async def test_replies_that_are_ready_together_leave_in_one_write() -> None:
    client = Client()
    client.send(b"request-1", b"request-2", b"request-3")
    assert client.transport.writes == [b"request-1request-2request-3"]


async def test_replies_leave_in_the_order_of_the_requests() -> None:
    waiting = Waiting()
    client = Client(answer=lambda frame: waiting(frame) if b"wait" in bytes(frame) else [bytes(frame)])
    client.send(b"wait-one", b"at-once!", b"wait-two")
    waiting.futures[1].set_result([b"two"])
    await settle()
    assert client.received == b""
    waiting.futures[0].set_result([b"one"])
    await settle()
    assert client.received == b"oneat-once!two"


@pytest.mark.parametrize("seed", range(30))
async def test_replies_that_are_there_at_once_and_others_leave_in_the_order_of_the_requests(seed: int) -> None:
    chance = random.Random(seed)
    waiting = Waiting()

    def answer(frame: memoryview) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        name = bytes(frame)
        if name.startswith(b"wait"):
            return waiting(frame)
        if name.startswith(b"none"):
            return None
        return [name * 12] if name.startswith(b"long") else [name[:4], name[4:]]

    limits = Limits(fencepost_connection_max_in_flight=8, fencepost_connection_write_buffer_bytes=60)
    client = Client(answer=answer, limits=limits)
    kinds = chance.choices([b"wait", b"none", b"long", b"tiny"], [1, 1, 1, 5], k=40)
    names = [b"%s%04d" % (kind, index) for index, kind in enumerate(kinds)]
    while names:
        count = chance.randint(1, 12)
        client.send(*names[:count])
        del names[:count]
        await settle()
    names = []
    while waiting.futures:
        index = chance.randrange(len(waiting.futures))
        waiting.futures.pop(index).set_result([bytes(waiting.frames.pop(index))])
        await settle()
    expected = [b"%s%04d" % (kind, index) for index, kind in enumerate(kinds) if kind != b"none"]
    assert client.received == b"".join(name * 12 if name.startswith(b"long") else name for name in expected)
    assert client.connection.in_flight_count == 0


async def test_a_request_without_reply_does_not_block_the_next() -> None:
    client = Client(answer=lambda frame: None if frame[0] == 0 else [bytes(frame)])
    client.send(b"\x00" * 8, b"answered")
    assert client.received == b"answered"


async def test_a_waiting_request_keeps_its_frame_while_others_come_and_go() -> None:
    waiting = Waiting()
    client = Client(answer=lambda frame: waiting(frame) if frame[0] == 1 else [b""])
    client.send(b"\x01" + b"held" * 20)
    for index in range(300):
        client.send(bytes([2 + index % 200]) * 4_000)
    assert waiting.frames[0] == b"\x01" + b"held" * 20
    waiting.futures[0].set_result([b""])
    await settle()
    assert client.connection.in_flight_count == 0


async def test_at_the_bound_of_requests_in_flight_reading_stops_until_replies_leave() -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(*(f"request{index}".encode() for index in range(6)))
    assert len(client.started) == 4
    assert not client.transport.accepts_input
    waiting.futures[0].set_result([b"reply"])
    await settle()
    assert len(client.started) == 5
    assert not client.transport.accepts_input
    for future in waiting.futures[1:]:
        future.set_result([b"reply"])
    await settle()
    assert len(client.started) == 6
    assert client.transport.accepts_input


async def test_a_long_pipeline_of_quick_requests_is_answered_to_its_end() -> None:
    client = Client()
    client.send(*(f"request{index:03}".encode() for index in range(100)))
    assert len(client.started) == client.limits.fencepost_connection_max_in_flight, "others get their turn first"
    for _ in range(100):
        await asyncio.sleep(0)
    assert client.received == b"".join(f"request{index:03}".encode() for index in range(100))
    assert client.transport.accepts_input


async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    client = Client(answer=lambda frame: [bytes(2_000)])
    client.transport.is_stuck = True
    client.send(b"request1", b"request2", b"request3")
    assert client.started == [b"request1"]
    assert not client.transport.accepts_input
    client.transport.unstick()
    await settle()
    assert client.started == [b"request1", b"request2", b"request3"]
    assert client.transport.accepts_input


async def test_replies_that_come_while_the_client_does_not_read_wait() -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.transport.is_stuck = True
    client.send(b"request1", b"request2")
    waiting.futures[0].set_result([bytes(2_000)])
    await settle()
    waiting.futures[1].set_result([b"second"])
    await settle()
    assert client.transport.writes == [bytes(2_000)]
    client.transport.unstick()
    assert client.transport.writes == [bytes(2_000), b"second"]


async def test_a_client_that_never_reads_is_cut_off() -> None:
    client = Client(answer=lambda frame: [bytes(2_000)], limits=Limits(fencepost_connection_write_stall_ms=1))
    client.transport.is_stuck = True
    client.send(b"request1")
    await asyncio.wait_for(client.transport.has_ended.wait(), 5)
    assert client.transport.ended == "aborted"
    assert client.refusals == ["the client does not read its replies"]


async def test_a_client_that_reads_slowly_is_not_cut_off() -> None:
    client = Client(answer=lambda frame: [bytes(2_000)], limits=Limits(fencepost_connection_write_stall_ms=1))
    client.transport.is_stuck = True
    client.send(b"request1")
    for _ in range(10):
        unsent_bytes = client.transport.stuck_bytes
        client.transport.stuck_bytes -= 1
        client.connection._outbox._check_stall(unsent_bytes)
    assert client.transport.ended is None
    client.transport.unstick()


def test_a_client_that_reads_one_reply_after_another_is_not_cut_off() -> None:
    async def story() -> None:
        waiting = Waiting()
        client = Client(answer=waiting, limits=Limits(fencepost_connection_write_stall_ms=10_000))
        client.transport.is_stuck = True
        client.send(b"request1", b"request2")
        for future, byte_count in zip(waiting.futures, (1_500, 3_000), strict=True):
            future.set_result([bytes(byte_count)])
        await asyncio.sleep(9)
        client.transport.stuck_bytes = 0
        client.connection.resume_writing()
        await asyncio.sleep(9)
        assert client.transport.stuck_bytes == 3_000, "more than when the wait began"
        assert client.transport.ended is None
        await asyncio.sleep(2)
        assert client.transport.ended == "aborted"

    virtual_time.run(story())


PIECE = 1_001  # each is more than the write buffer of these tests


# Replies that go straight to the socket


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def on_socket(ours: socket.socket, **extra_info: Any) -> PlayedTransport:
    transport = PlayedTransport()
    transport.extra_info = {"socket": ours, **extra_info}
    return transport


async def test_a_single_reply_is_in_the_socket_at_once(sockets: tuple[socket.socket, socket.socket]) -> None:
    client = Client(transport=on_socket(sockets[0]))
    client.send(b"request1")
    assert sockets[1].recv(100) == b"request1"
    assert client.transport.writes == []


async def test_a_reply_does_not_overtake_what_waits_to_be_sent(sockets: tuple[socket.socket, socket.socket]) -> None:
    client = Client(transport=on_socket(sockets[0]))
    client.transport.stuck_bytes = 1
    client.send(b"request1")
    assert client.transport.writes == [b"request1"]
    with pytest.raises(BlockingIOError):
        sockets[1].recv(100)


async def test_what_is_encrypted_is_left_to_the_transport(sockets: tuple[socket.socket, socket.socket]) -> None:
    client = Client(transport=on_socket(sockets[0], sslcontext=object()))
    client.send(b"request1")
    assert client.transport.writes == [b"request1"]
    with pytest.raises(BlockingIOError):
        sockets[1].recv(100)


async def test_the_transport_sends_what_a_full_socket_does_not_take(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    reply = bytes(range(256)) * 10_000
    client = Client(answer=lambda frame: [reply], transport=on_socket(sockets[0]))
    client.send(b"request1")
    (rest,) = client.transport.writes
    assert 0 < len(rest) < len(reply)
    client.send(b"request2")
    assert client.transport.writes == [rest, reply]
    received = bytearray()
    with contextlib.suppress(BlockingIOError):
        while True:
            received += sockets[1].recv(1_000_000)
    assert bytes(received) + rest == reply


@pytest.fixture
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.broker.storage.file_slice.PIECE_BYTES", PIECE)


def reply_from(file: CountedFile) -> list[Any]:
    """The whole of a file, with a chunk before it and one behind."""
    return [b"head", FileSlice(file, 0, file.size_bytes), b"tail"]


@pytest.mark.usefixtures("in_pieces")
async def test_a_reply_from_a_file_leaves_at_once_where_the_client_takes_it() -> None:
    file = CountedFile(bytes(range(250)) * 10)
    client = Client(answer=lambda frame: reply_from(file))
    client.send(b"request1", b"request2")
    assert client.received == (b"head" + file.content + b"tail") * 2
    assert client.connection.in_flight_count == 0


@pytest.mark.usefixtures("in_pieces")
async def test_of_a_reply_from_a_file_no_more_is_read_than_the_client_takes() -> None:
    file = CountedFile(bytes(range(250)) * 10)
    client = Client(answer=lambda frame: reply_from(file) if frame[-1] == ord("1") else [bytes(frame)])
    client.transport.is_stuck = True
    client.send(b"request1", b"request2")
    for pieces_count in (1, 2):
        assert client.received == b"head" + file.content[: pieces_count * PIECE]
        assert len(file.reads) == pieces_count
        client.transport.stuck_bytes = 0
        client.connection.resume_writing()
    client.transport.unstick()
    await settle()
    assert client.received == b"head" + file.content + b"tail" + b"request2"


@pytest.mark.usefixtures("in_pieces")
async def test_replies_behind_one_from_a_file_wait_for_its_end() -> None:
    waiting, file = Waiting(), CountedFile(bytes(range(250)) * 20)
    client = Client(answer=waiting)
    client.transport.is_stuck = True
    client.send(b"request1", b"request2")
    waiting.futures[1].set_result([b"second"])
    waiting.futures[0].set_result(reply_from(file))
    await settle()
    assert client.received == b"head" + file.content[:PIECE]
    client.transport.unstick()
    assert client.received == b"head" + file.content + b"tail" + b"second"


@pytest.mark.usefixtures("in_pieces")
async def test_a_connection_that_is_drained_sends_a_reply_that_has_begun_to_its_end() -> None:
    file = CountedFile(bytes(range(250)) * 20)
    client = Client(answer=lambda frame: reply_from(file))
    client.transport.is_stuck = True
    client.send(b"request1")
    client.connection.drain()
    assert client.transport.ended is None
    assert not client.transport.accepts_input
    client.transport.unstick()
    assert client.received == b"head" + file.content + b"tail"
    assert client.transport.ended == "closed"


@pytest.mark.usefixtures("in_pieces")
async def test_a_connection_with_a_refused_request_sends_what_is_ready_to_the_end() -> None:
    file = CountedFile(bytes(range(250)) * 20)
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"request1", b"request2", b"request3")
    client.transport.is_stuck = True
    waiting.futures[1].set_result([b"second"])
    waiting.futures[0].set_result(reply_from(file))
    waiting.futures[2].set_exception(CloseConnection("no reply could carry this"))
    await settle()
    assert client.refusals == ["no reply could carry this"]
    assert client.transport.ended is None
    client.transport.unstick()
    assert client.received == b"head" + file.content + b"tail" + b"second"
    assert client.transport.ended == "closed"


@pytest.mark.usefixtures("in_pieces")
async def test_a_connection_is_cut_off_where_the_rest_of_a_reply_cannot_be_read() -> None:
    file = CountedFile(bytes(range(250)) * 20, fails_from=2_500)
    client = Client(answer=lambda frame: reply_from(file))
    client.send(b"request1", b"request2")
    assert client.received == b"head" + file.content[: 2 * PIECE]
    assert client.transport.ended == "aborted"
    assert len(client.refusals) == 1
    assert "Input/output error" in client.refusals[0]


@pytest.mark.usefixtures("in_pieces")
async def test_nothing_is_sent_behind_a_reply_that_is_cut_off() -> None:
    file = CountedFile(bytes(500), fails_from=300)
    client = Client(answer=lambda frame: reply_from(file) if frame[-1] == ord("1") else [bytes(frame) * 50])
    client.send(b"request1", b"request2", b"request3")
    assert len(client.started) == 3
    assert client.received == b""
    assert client.transport.ended == "aborted"


@pytest.mark.usefixtures("in_pieces")
async def test_a_client_that_leaves_in_the_middle_of_a_reply_ends_it() -> None:
    file = CountedFile(bytes(range(250)) * 20)
    client = Client(answer=lambda frame: reply_from(file))
    client.transport.is_stuck = True
    client.send(b"request1")
    client.connection.connection_lost(None)
    client.connection.resume_writing()
    assert client.is_gone
    assert len(file.reads) == 1


@pytest.mark.parametrize("length", [-1, -(2**31), 0, 7, 1_000_001, 2**31 - 1])
async def test_an_impossible_frame_length_closes_the_connection(length: int) -> None:
    client = Client()
    client.send_bytes(length.to_bytes(4, "big", signed=True))
    assert client.transport.ended == "closed"
    assert len(client.refusals) == 1
    assert str(length) in client.refusals[0]
    assert client.started == []


async def test_what_requests_cause_leaves_before_their_own_replies() -> None:
    writes: list[str] = []
    waiter = Client()
    writer = Client(long_polls=waiter.long_polls)
    poll = waiter.wait_without_a_task()
    for name, client in (("waiter", waiter), ("writer", writer)):
        client.transport.writelines = lambda data, name=name: writes.append(name)  # type: ignore[method-assign,misc]
    waiter.send(b"wait_for_")

    def write(frame: memoryview) -> ReplyFrame:
        poll.happens([b"what was written"])
        return [b"acknowledged"]

    writer.answer = write
    writer.send(b"written!", b"written!")
    assert writes == ["waiter", "writer"]


async def test_a_reply_that_comes_without_a_task_waits_for_those_before_it() -> None:
    client = Client()
    before: asyncio.Future[ReplyFrame] = asyncio.get_running_loop().create_future()
    poll = client.wait_without_a_task()
    polled = client.answer
    client.answer = lambda frame: before
    client.send(b"first...")
    client.answer = polled
    client.send(b"second..")
    poll.happens([b"second"])
    await asyncio.sleep(0)
    assert client.transport.writes == []
    before.set_result([b"first "])
    await asyncio.sleep(0)
    assert client.received == b"first second"


@pytest.mark.usefixtures("in_pieces")
async def test_a_reply_that_comes_in_the_step_in_which_another_has_filled_the_socket_waits() -> None:
    file = CountedFile(bytes(range(250)) * 20)
    client = Client()
    first = client.wait_without_a_task()
    client.send(b"first---")
    second = client.wait_without_a_task()
    client.send(b"second--")
    client.transport.is_stuck = True

    def wake(frame: memoryview) -> ReplyFrame:
        first.happens(reply_from(file))
        second.happens([b"second"])
        return [b"third"]

    client.answer = wake
    client.send(b"third---")
    assert client.received == b"head" + file.content[:PIECE]
    client.transport.unstick()
    assert client.received == b"head" + file.content + b"tail" + b"second" + b"third"


async def test_a_long_poll_ends_with_its_client() -> None:
    client = Client()
    poll = client.wait_without_a_task()
    client.send(b"wait_for_")
    client.connection.connection_lost(None)
    assert poll.has_ended
    poll.happens([b"too late"])
    await asyncio.sleep(0)
    assert not client.received


async def test_what_cannot_be_answered_closes_the_connection_after_earlier_replies() -> None:
    def answer(frame: memoryview) -> ReplyFrame:
        if bytes(frame) == b"nonsense":
            raise CloseConnection("undecodable")
        return [bytes(frame)]

    client = Client(answer=answer)
    client.send(b"sensible", b"nonsense", b"too late")
    assert client.received == b"sensible"
    assert client.transport.ended == "closed"
    assert client.refusals == ["undecodable"]
    assert client.started == [b"sensible", b"nonsense"]


async def test_a_waiting_request_that_cannot_be_answered_closes_the_connection() -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"request1")
    waiting.futures[0].set_exception(CloseConnection("no reply could carry this"))
    await settle()
    assert client.transport.ended == "closed"
    assert client.refusals == ["no reply could carry this"]


async def test_a_reply_for_a_client_that_is_gone_is_dropped() -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"request1", b"request2")
    client.connection.connection_lost(None)
    waiting.futures[0].set_result([b"reply"])
    waiting.futures[1].set_exception(ValueError("late"))
    await settle()
    assert client.transport.writes == []
    assert client.is_gone


async def test_close_callbacks_are_called_when_the_client_is_gone() -> None:
    client = Client()
    heard: list[str] = []

    def kept() -> None:
        heard.append("kept")

    def removed() -> None:
        heard.append("removed")

    client.connection.add_close_callback(kept)
    client.connection.add_close_callback(removed)
    client.connection.remove_close_callback(removed)
    client.connection.connection_lost(None)
    assert heard == ["kept"]


async def test_a_connection_that_is_gone_is_freed_without_the_garbage_collector(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    client = Client(transport=on_socket(sockets[0]))
    client.send(b"request1", b"request2")
    connection = weakref.ref(client.connection)
    gc.collect()
    gc.disable()
    try:
        client.connection.connection_lost(None)
        client.transport.protocol = None  # as a transport does
        del client.connection
        assert connection() is None
    finally:
        gc.enable()


async def test_a_client_that_leaves_gives_its_memory_back_at_once() -> None:
    client = Client()
    client.send(bytes(300_000))  # from now on it is read into its own large buffer
    client.connection.get_buffer(65_536)
    assert client.connection._inbox.buffer is not None
    assert not client.connection.eof_received()
    assert client.connection._inbox.buffer is None


async def test_a_draining_connection_answers_what_it_has_started_and_closes() -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"request1")
    client.connection.drain()
    assert not client.transport.accepts_input
    assert client.transport.ended is None
    waiting.futures[0].set_result([b"reply"])
    await settle()
    assert client.received == b"reply"
    assert client.transport.ended == "closed"


async def test_an_idle_connection_that_is_drained_closes_at_once() -> None:
    client = Client()
    client.connection.drain()
    assert client.transport.ended == "closed"


async def test_a_connection_that_the_server_refuses_is_aborted_at_once() -> None:
    assert Client(has_room=False).transport.ended == "aborted"


def test_a_muted_client_is_answered_but_not_read_from_for_a_time() -> None:
    async def story() -> None:
        client = Client()
        client.send(b"request1")
        client.connection.mute(20)
        client.connection.mute(10)  # the longer one counts
        assert not client.transport.accepts_input
        client.send(b"request2", b"request3")
        assert client.started == [b"request1"]
        await asyncio.sleep(19)
        assert client.started == [b"request1"]
        await asyncio.sleep(2)
        assert client.started == [b"request1", b"request2", b"request3"]
        assert client.transport.accepts_input

    virtual_time.run(story())


def test_what_a_client_sent_before_it_was_muted_in_the_same_piece_waits() -> None:
    async def story() -> None:
        client = Client()

        def answer(frame: memoryview) -> list[bytes]:
            if bytes(frame) == b"request1":
                client.connection.mute(10)
            return [bytes(frame)]

        client.answer = answer
        client.send(b"request1", b"request2")
        assert client.started == [b"request1"]
        assert client.received == b"request1"
        await asyncio.sleep(11)
        assert client.received == b"request1request2"

    virtual_time.run(story())


async def test_a_muted_client_may_leave() -> None:
    client = Client()
    client.send(b"request1")
    client.connection.mute(60)
    client.connection.connection_lost(None)
    assert client.is_gone
    client.connection.mute(60)


async def test_what_follows_a_request_that_must_not_be_overtaken_is_started_when_that_is_answered() -> None:
    client = Client()
    held = asyncio.get_running_loop().create_future()

    def answer(frame: memoryview) -> asyncio.Future[ReplyFrame] | ReplyFrame:
        if bytes(frame) == b"first---":
            client.connection.block_until(held)
            return held
        return [bytes(frame)]

    client.answer = answer
    client.send(b"first---", b"second--")
    client.send(b"third---")
    await asyncio.sleep(0)
    assert client.started == [b"first---"]
    assert not client.transport.accepts_input
    held.set_result([b"1st"])
    await asyncio.sleep(0)
    assert client.started == [b"first---", b"second--", b"third---"]
    assert client.received == b"1stsecond--third---"
    assert client.transport.accepts_input


async def test_a_connection_is_blocked_until_the_last_request_that_blocks_it_is_answered() -> None:
    client = Client()
    first, second = (asyncio.get_running_loop().create_future() for _ in range(2))
    client.connection.block_until(first)
    client.connection.block_until(second)
    client.send(b"request1")
    first.set_result(None)
    await settle()
    assert client.started == []
    second.set_result(None)
    await settle()
    assert client.started == [b"request1"]


async def test_a_connection_that_is_lost_while_a_request_blocks_it_is_gone() -> None:
    client = Client()
    held = asyncio.get_running_loop().create_future()

    def answer(frame: memoryview) -> asyncio.Future[ReplyFrame]:
        client.connection.block_until(held)
        return held

    client.answer = answer
    client.send(b"first---", b"second--")
    client.connection.connection_lost(None)
    held.set_result(None)
    await asyncio.sleep(0)
    assert client.started == [b"first---"]
    assert client.is_gone


# Memory that all connections share


async def test_half_a_large_request_is_not_read_on_until_another_has_left() -> None:
    large = Limits(socket_request_max_bytes=3_000_000, fencepost_connection_write_buffer_bytes=10_000_000)
    memory = NetworkMemory(request_limit_bytes=0, largest_request_bytes=3_000_000)
    hog, other, small = (Client(memory=memory, limits=large) for _ in range(3))
    frame = (3_000_000).to_bytes(4, "big") + bytes(3_000_000)
    hog.send_bytes(frame[:1_000_000])
    other.send_bytes(frame[:1_000])
    assert [client.transport.accepts_input for client in (hog, other)] == [True, False]
    small.send(b"12345678")
    small.send(bytes(500_000))
    assert len(small.started) == 2, "ordinary requests go on"
    hog.connection.connection_lost(None)
    assert [client.transport.accepts_input for client in (other,)] == [True]
    other.send_bytes(frame[1_000:])
    assert other.started == [bytes(3_000_000)]
    for client in (other, small):
        client.connection.connection_lost(None)
    assert memory.request_bytes == 0
    assert memory.waiting_count == 0
    memory.close()


async def test_a_client_that_waits_for_memory_and_leaves_is_forgotten() -> None:
    memory = NetworkMemory(request_limit_bytes=0, largest_request_bytes=3_000_000)
    large = Limits(socket_request_max_bytes=3_000_000)
    hog, other = (Client(memory=memory, limits=large) for _ in range(2))
    for client in (hog, other):
        client.send_bytes((3_000_000).to_bytes(4, "big") + bytes(100))
    other.connection.connection_lost(None)
    assert memory.waiting_count == 0
    hog.connection.close_for("too slow")
    assert hog.transport.ended == "aborted"
    assert hog.refusals == ["too slow"]
    hog.connection.connection_lost(None)
    assert memory.request_bytes == 0
    memory.close()


async def test_unread_replies_are_counted_and_the_connection_that_waits_longest_is_closed() -> None:
    memory = NetworkMemory(reply_limit_bytes=5_000)
    clients = [Client(answer=lambda _: [bytes(2_000)], memory=memory) for _ in range(3)]
    for client in clients:
        client.transport.is_stuck = True
        client.send(b"12345678")
    assert [client.transport.ended for client in clients] == ["aborted", None, None]
    assert "does not read its replies" in clients[0].refusals[0]
    assert memory.reply_bytes == 4_000
    clients[1].transport.unstick()
    clients[2].connection.connection_lost(None)
    assert memory.reply_bytes == 0
    memory.close()


async def test_files_count_only_where_they_are_copied() -> None:
    memory = NetworkMemory(reply_limit_bytes=1_000_000)
    piece = CountedFile(bytes(5_000))
    client = Client(answer=lambda _: [FileSlice(piece, 0, 5_000)], memory=memory)
    client.transport.is_stuck = True
    client.send(b"12345678")
    assert memory.reply_bytes == 5_000
    client.connection.connection_lost(None)
    memory.close()


async def test_replies_behind_one_that_waits_block_their_connection() -> None:
    memory = NetworkMemory(reply_limit_bytes=1_000_000)
    client = Client(memory=memory, limits=Limits(fencepost_connection_max_in_flight=100))
    poll = client.wait_without_a_task()
    client.send(b"poll1234")
    client.answer = lambda _: [bytes(600)]
    for _ in range(5):
        client.send(b"12345678")
    assert len(client.started) == 3
    assert memory.reply_bytes == 1_200
    poll.happens([b"first"])
    client.long_polls.answer_first_woken()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(client.started) == 6
    assert memory.reply_bytes == 0
    assert client.received == b"first" + 5 * bytes(600)
    memory.close()


async def test_an_ipv4_client_of_an_ipv6_listener_comes_from_its_ipv4_address() -> None:
    transport = PlayedTransport()
    transport.extra_info = {"peername": ("::ffff:192.0.2.7", 50_000, 0, 0)}
    assert Client(transport=transport).connection.client_host == "192.0.2.7"
