"""Connections, long polls and bursts meet what nobody foresaw: one connection ends, and all others are served."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.handlers.fetch import _FetchPoll
from fencepost.broker.kernel import per_turn_limiter, supervision
from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter
from fencepost.broker.network import connection, outbox, server, socket_sender, tls_server
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.inbox import Inbox
from fencepost.broker.network.socket_sender import SendfileSockets, SocketSender, _SendfileTransfer
from fencepost.broker.network.tls_server import TlsServer
from fencepost.broker.node import Node
from fencepost.broker.quotas.connections import AdmissionDecision, ConnectionQuotas
from fencepost.broker.requests import long_polls
from fencepost.broker.requests.long_polls import LongPolls, wake_on_time_out
from fencepost.broker.security import tls
from fencepost.broker.storage.descriptors import Descriptors
from tests.broker.network.test_connection import Client, Limits, PlayedTransport, Waiting, settle
from tests.broker.requests.test_long_polls import Client as Poller
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.broker.test_node import running
from tests.support.certificates import Authority

CLIENT = "192.0.2.1"


def is_served(client: Client) -> None:
    before = len(client.transport.writes)
    client.send(b"requests")
    assert len(client.transport.writes) > before


def unblocked(connection: Connection) -> None:
    """The end of a request that must not be overtaken."""
    connection._blocking_count = 1
    connection._unblock(asyncio.Future())


@plants(connection.SERVING)
@unforeseen
@pytest.mark.parametrize(
    ("step", "event"),
    [
        ("_start_single", lambda client: client.send(b"requests")),
        ("_start_arrived", lambda client: client.send_bytes(b"\0\0\0\x08req")),
        ("_release", lambda client: client.connection._end_turn()),
        ("_flush", lambda client: client.connection.pause_writing()),
        ("_settle", lambda client: client.connection.resume_writing()),
        ("_settle", lambda client: client.connection._socket_writable()),
        ("_release", lambda client: client.connection._unmute()),
        ("_settle", lambda client: client.connection.drain()),
        ("_release", lambda client: client.connection.memory_granted(0)),
        ("_hold", lambda client: client.connection.block_until(asyncio.Future())),
        ("_release", lambda client: unblocked(client.connection)),
    ],
)
async def test_a_failure_in_a_connection_closes_it_and_no_other(
    error: BaseException, step: str, event: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, sound = Client(), Client()
    monkeypatch.setattr(broken.connection, step, raising(error, times=1, then=getattr(broken.connection, step)))
    with logged(connection.SERVING, CLIENT):
        event(broken)
        assert broken.transport.ended == "aborted"
    is_served(sound)


@plants(connection.SERVING)
@unforeseen
async def test_a_reply_that_cannot_be_sent_ends_its_connection(error: BaseException) -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"requests")
    client.connection._outbox.send = raising(error)  # type: ignore[method-assign]
    with logged(connection.SERVING, CLIENT):
        waiting.futures[0].set_result([b"reply"])
        await settle()
    assert client.transport.ended == "aborted"


@plants(connection.SERVING)
async def test_a_task_that_ends_in_something_unforeseen_ends_its_connection() -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"requests")
    with logged(connection.SERVING, CLIENT):
        waiting.futures[0].set_exception(KeyError("planted"))
        await settle()
    assert client.transport.ended == "closed"


@plants(connection.SERVING)
@unforeseen
async def test_memory_that_cannot_be_given_back_ends_its_connection(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = Waiting()
    client = Client(answer=waiting)
    client.send(b"requests")
    monkeypatch.setattr(Inbox, "release", raising(error))
    with logged(connection.SERVING):
        waiting.futures[0].set_result([b"reply"])
        await settle()
    assert client.transport.ended == "aborted"


@plants(connection.CLOSE)
@unforeseen
async def test_a_connection_is_removed_although_a_listener_of_its_close_fails(error: BaseException) -> None:
    client = Client()
    heard: list[str] = []
    client.connection.add_close_callback(raising(error))
    client.connection.add_close_callback(lambda: heard.append("gone"))
    with logged(connection.CLOSE, CLIENT):
        client.connection.connection_lost(None)
    assert heard == ["gone"]
    assert client.is_gone


@plants(long_polls.POLL)
@unforeseen
@pytest.mark.parametrize("step", ["poll", "end"])
async def test_a_waiting_request_that_fails_gets_an_error_and_the_others_are_polled(
    error: BaseException, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls = LongPolls()
    broken, sound = Poller(polls), Poller(polls)
    if step == "poll":
        monkeypatch.setattr(broken.pending, "_poll", raising(error))
    else:
        monkeypatch.setattr(broken.waiting, "end", raising(error))
    with logged(long_polls.POLL, times=0 if step == "poll" else 1):
        broken.waiting.happens()
        sound.waiting.happens()
        await asyncio.sleep(0.01)
    assert len(broken.replies) == len(sound.replies) == 1
    if step == "poll":
        assert isinstance(broken.replies[0][1], type(error))
    assert sound.replies == [([b"news"], None)]


@plants(long_polls.POLL)
@unforeseen
async def test_a_listener_that_fails_does_not_keep_others_from_being_notified(error: BaseException) -> None:
    polls = LongPolls()
    broken, sound = Poller(polls), Poller(polls)
    broken.pending.on_reply = raising(error)
    with logged(long_polls.POLL):
        broken.waiting.happens()
        sound.waiting.happens()
        await asyncio.sleep(0.01)
    assert sound.replies == [([b"news"], None)]


@plants(long_polls.POLL_TIME_OUT)
@unforeseen
async def test_a_fetch_whose_time_is_over_is_woken_in_the_end(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_polls, "TIME_OUT_RETRY_S", 0.001)
    woken: list[int] = []
    with logged(long_polls.POLL_TIME_OUT, times=2):
        wake_on_time_out(raising(error, times=2, then=lambda: woken.append(1)))
        await until(lambda: woken)
    waiting = _FetchPoll.__new__(_FetchPoll)
    waiting._end_wait(lambda: woken.append(2))
    assert woken == [1, 2]


@plants(per_turn_limiter.TURN)
@unforeseen
async def test_a_turn_that_fails_comes_again(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerTurnLimiter, "_admit_waiting", raising(error, times=1, then=PerTurnLimiter._admit_waiting))
    turns = PerTurnLimiter(1)

    async def enter_all() -> None:
        for _ in range(3):
            await turns.acquire()

    with logged(per_turn_limiter.TURN):
        async with asyncio.timeout(60):
            # Until a turn has begun, nobody else is let in.
            entering = asyncio.ensure_future(enter_all())
            await asyncio.sleep(0)
            turns._is_counting = False
            turns._count()
            await entering


async def is_accepted(node: Node) -> bool:
    reader, writer = await asyncio.open_connection(node.address.host, node.address.port)
    try:
        async with asyncio.timeout(0.2):
            return await reader.read(1) == b""
    except TimeoutError:
        return False
    finally:
        writer.close()


@plants(server.IDLE_CHECK)
@unforeseen
async def test_idle_connections_are_found_after_a_check_that_failed(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_IDLE_CHECK_INTERVAL_S", 0.01)
    async with running(tmp_path, connections_max_idle_ms=40) as node:
        _, writer = await asyncio.open_connection(node.address.host, node.address.port)
        await until(lambda: node.connection_count == 1)
        (one,) = node.servers.of_clients[0]._connections.values()
        with logged(server.IDLE_CHECK):
            monkeypatch.setattr(one, "abort", raising(error, times=1, then=one.abort))
            await until(lambda: node.connection_count == 0)
        writer.close()


@plants(server.DELAYED_CLOSE)
@unforeseen
async def test_a_late_close_that_fails_is_logged_and_others_are_served(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        with monkeypatch.context() as patch, logged(server.DELAYED_CLOSE):
            patch.setattr(ConnectionQuotas, "admit", lambda *_: AdmissionDecision(10, "too often"))
            patch.setattr(Connection, "abort", raising(error, times=1, then=Connection.abort))
            reader, writer = await asyncio.open_connection(node.address.host, node.address.port)
            await asyncio.sleep(0.05)
            writer.close()
        assert not await is_accepted(node)
        del reader


@plants(outbox.STALL_CHECK)
@unforeseen
async def test_a_connection_ends_if_it_cannot_be_seen_whether_its_client_reads(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Client(answer=lambda _: [bytes(2_000)], limits=Limits(fencepost_connection_write_stall_ms=1))
    client.transport.is_stuck = True
    with logged(outbox.STALL_CHECK):
        client.send(b"requests")
        monkeypatch.setattr(client.connection._outbox, "_unsent_bytes", raising(error))
        await asyncio.wait_for(client.transport.has_ended.wait(), 60)
    assert client.transport.ended == "aborted"
    assert client.refusals == [outbox.NOT_WATCHED]


@plants(socket_sender.WRITABLE)
@unforeseen
async def test_a_sendfile_transfer_that_fails_raises_nothing_into_the_loop(error: BaseException) -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    transport = PlayedTransport()
    transport.extra_info = {"socket": here}
    sender = SocketSender(transport, SendfileSockets(Descriptors(1_024), -1), raising(error, times=1))
    transfer = _SendfileTransfer(sender, [bytes(10_000_000)], here)
    with logged(socket_sender.WRITABLE):
        assert transfer.resume() is transfer
        there.recv(5_000_000)
        await asyncio.sleep(0.01)
        transfer.close()
    there.close()


@asynccontextmanager
async def encrypted(directory: Path) -> AsyncIterator[tuple[Node, ssl.SSLContext]]:
    """A node whose first listener has TLS, and a client's context for it."""
    authority = Authority(directory / "authority")
    settings = Settings(
        log_dirs=str(directory / "data"),
        listeners=("SSL://127.0.0.1:0",),
        ssl_keystore_location=str(authority.server().both),
        fencepost_shutdown_drain_ms=200,
    )
    one = Node(settings)
    await one.start()
    try:
        yield one, authority.context()
    finally:
        await one.stop()


async def can_connect(one: Node, context: ssl.SSLContext) -> bool:
    try:
        _, writer = await asyncio.open_connection(one.address.host, one.address.port, ssl=context)
    except OSError:
        return False
    writer.transport.abort()
    return True


@plants(tls_server.HANDSHAKE, tls_server.ACCEPT)
@unforeseen
@pytest.mark.parametrize(
    ("place", "broken", "step"),
    [(tls_server.HANDSHAKE, TlsServer, "_shake_hands"), (tls_server.ACCEPT, tls_server._Handshake, "__init__")],
    ids=["handshake", "acceptance"],
)
async def test_a_handshake_that_fails_ends_its_connection_and_no_other(
    tmp_path: Path,
    error: BaseException,
    place: supervision.Place,
    broken: type,
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with encrypted(tmp_path) as (one, context):
        with monkeypatch.context() as patch, logged(place):
            patch.setattr(broken, step, raising(error))
            assert not await can_connect(one, context)
        await until(lambda: not one.connection_count)
        assert await can_connect(one, context)


@plants(tls.RENEWAL, tls.EXPIRY_CHECK)
@unforeseen
async def test_certificates_that_cannot_be_renewed_stay_in_force(
    tmp_path: Path, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with encrypted(tmp_path) as (one, context):
        with monkeypatch.context() as patch, logged(tls.RENEWAL) as lines:
            patch.setattr(tls, "server_tls", raising(error))
            one.reload_certificates()
            await until(lambda: lines)
        assert await can_connect(one, context)
        assert one._tls is not None
        with monkeypatch.context() as patch, logged(tls.EXPIRY_CHECK):
            patch.setattr(tls, "DAY_S", 0.001)
            patch.setattr(tls.ListenerTls, "days_left", property(raising(error, times=1, then=lambda _: 100)))
            tls.EXPIRY_CHECK.callback(one._tls._check_expiry)()
            assert one._tls._timer is not None
