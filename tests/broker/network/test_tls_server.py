"""Listeners with TLS, on asyncio's event loop and on uvloop: handshakes, their bounds, and the reasons of failures."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from fencepost.broker.config import Settings
from fencepost.broker.config.password import Password
from fencepost.broker.network import tls_server
from fencepost.broker.network.network_memory import NO_CONNECTION_LEFT
from fencepost.broker.network.sender import ENCRYPTED_BYTES, ENCRYPTED_PORTION_BYTES
from fencepost.broker.network.tls_server import TlsServer
from fencepost.broker.node import Node
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.protocol.framing import request_frame
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.metadata import MetadataRequest
from tests.broker.network.test_sasl_listener import JAAS, SocketClient
from tests.broker.supervision.planting import until
from tests.support.captured_events import capture_logs
from tests.support.certificates import Authority

_opened: list[asyncio.StreamWriter] = []
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=request.param) as runner:
            runner.run(test)

    return run


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@asynccontextmanager
async def broker(directory: Path, authority: Authority, **chosen: Any) -> AsyncIterator[Node]:
    defaults: dict[str, Any] = {
        "log_dirs": str(directory / "data"),
        "listeners": ("SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"),
        "ssl_keystore_location": str(authority.server().both),
        "ssl_truststore_location": str(authority.path),
        "fencepost_shutdown_drain_ms": 200,
        "connection_failed_authentication_delay_ms": 1,
    }
    node = Node(Settings(**(defaults | chosen)))
    await node.start()
    try:
        yield node
    finally:
        while _opened:
            writer = _opened.pop()
            writer.transport.abort()
        await asyncio.sleep(0.01)
        await node.stop()


def server_of(node: Node) -> TlsServer:
    server = node.servers.of_clients[0]
    assert isinstance(server, TlsServer)
    return server


async def connected(node: Node, context: ssl.SSLContext) -> SocketClient:
    """A client that is closed before the broker stops."""
    address = node.addresses[0]
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    _opened.append(writer)
    return SocketClient(reader, writer)


@contextmanager
def raw_clients(node: Node, count: int, first_bytes: bytes = b"", listener: int = 0) -> Iterator[list[socket.socket]]:
    """Sockets that send a few bytes, and no more."""
    address = node.addresses[listener]
    clients = [socket.create_connection((address.host, address.port)) for _ in range(count)]
    try:
        for client in clients:
            client.sendall(first_bytes)
            client.setblocking(False)
        yield clients
    finally:
        for client in clients:
            client.close()


async def is_closed(client: socket.socket) -> None:
    """Wait until the broker has closed a connection."""
    loop = asyncio.get_running_loop()
    try:
        while await asyncio.wait_for(loop.sock_recv(client, 1_000), 10):
            pass
    except ConnectionError:
        pass


def reasons(events: list[Any]) -> list[str]:
    return [event["reason"] for event in events if event["event"] == "connection_refused"]


def test_a_client_is_served_and_its_certificate_is_its_principal(
    tmp_path: Path, authority: Authority, run: Run
) -> None:
    async def test() -> None:
        async with broker(tmp_path, authority, ssl_client_auth="requested") as node:
            context = authority.context()
            without = await connected(node, context)
            authority.client("alice").load_into(context)
            alice = await connected(node, context)
            assert await without.is_served()
            assert await alice.is_served()
            principals = [connection.principal for connection in server_of(node)._connections.values()]
            assert principals == [ANONYMOUS, "User:CN=alice,OU=Clients,O=Fencepost"]
            assert node.connection_count == 2

    run(test())


def test_rules_make_the_principal_and_a_name_without_a_rule_is_not_served(
    tmp_path: Path, authority: Authority, run: Run
) -> None:
    async def test() -> None:
        rules = "RULE:^CN=([a-z]+),OU=Clients.*$/$1/U"
        async with broker(tmp_path, authority, ssl_client_auth="required", ssl_principal_mapping_rules=rules) as node:
            context = authority.context()
            authority.client("bob").load_into(context)
            bob = await connected(node, context)
            assert await bob.is_served()
            assert [connection.principal for connection in server_of(node)._connections.values()] == ["User:BOB"]
            other = authority.context()
            authority.client("eve", unit="Others").load_into(other)
            with capture_logs() as events:
                eve = await connected(node, other)
                assert not await eve.is_served()
            (reason,) = reasons(events)
            assert reason.startswith(
                "its certificate is of 'CN=eve,OU=Others,O=Fencepost', and no rule of ssl.principal"
            )
            await until(lambda: node.connection_count == 1)

    run(test())


def test_a_handshake_that_fails_is_named_to_the_client_and_in_the_log(
    tmp_path: Path, authority: Authority, run: Run
) -> None:
    async def failure(node: Node, context: ssl.SSLContext) -> str:
        def connect() -> str:
            address = node.addresses[0]
            try:
                with (
                    socket.create_connection((address.host, address.port)) as plain,
                    context.wrap_socket(plain, server_hostname=address.host) as client,
                ):
                    # In TLS 1.3 a client learns after its handshake that the server does not accept it.
                    client.recv(1)
            except ssl.SSLError as error:
                return str(error.reason)
            return "none"

        return await asyncio.to_thread(connect)  # asyncio's own clients send no alerts

    async def test() -> None:
        stranger = Authority(tmp_path / "stranger", "stranger")
        async with broker(tmp_path, authority, ssl_client_auth="required") as node:
            with capture_logs() as events:
                assert await failure(node, authority.context()) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
                unknown = authority.context()
                stranger.client("mallory").load_into(unknown)
                assert await failure(node, unknown) == "TLSV1_ALERT_UNKNOWN_CA"
                assert await failure(node, stranger.context()) == "CERTIFICATE_VERIFY_FAILED"
                await until(lambda: server_of(node).failed_handshakes_count == 3 and not node.connection_count)
            assert reasons(events) == [
                "the client has shown no certificate, and ssl.client.auth=required",
                "the client's certificate is not accepted: unable to get local issuer certificate",
                "the client does not trust the authority of this broker's certificate",
            ]

    run(test())


@pytest.mark.parametrize("first_bytes", [b"", b"\x16\x03\x01\x02\x00half of a hello"], ids=["silent", "half a hello"])
def test_a_client_that_does_not_finish_its_handshake_is_counted_and_closed(
    tmp_path: Path, authority: Authority, run: Run, first_bytes: bytes
) -> None:
    async def test() -> None:
        async with broker(tmp_path, authority, max_connections=20, fencepost_authentication_timeout_ms=700) as node:
            with capture_logs() as events, raw_clients(node, 30, first_bytes) as clients:
                await until(lambda: len(reasons(events)) == 10 and node.connection_count == 20)
                for client in clients:
                    await is_closed(client)
                await until(lambda: node.connection_count == 0)
            server = server_of(node)
            assert (server.handshake_count, server._turns, server._arriving) == (0, {}, {})
            assert reasons(events)[0] == NO_CONNECTION_LEFT
            assert reasons(events)[-1] == "the TLS handshake was not done within 0.7 s"
            # The places are free again.
            assert await (await connected(node, authority.context())).is_served()

    run(test())


def test_many_handshakes_of_one_address_wait_for_each_other(
    tmp_path: Path, authority: Authority, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "HANDSHAKES_OF_ADDRESS", 3)

    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            with raw_clients(node, 3) as silent:
                await until(lambda: server_of(node).handshake_count == 3)
                late = asyncio.create_task(connected(node, authority.context()))
                await until(lambda: server_of(node).handshake_count == 4)
                assert not late.done()
                silent[0].close()
                assert await (await late).is_served()

    run(test())


def test_half_handshakes_of_all_addresses_are_bounded_and_keep_nobody_out(
    tmp_path: Path, authority: Authority, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "MAXIMUM_HANDSHAKES", 3)
    monkeypatch.setattr(tls_server, "UNDISTURBED_S", 0.02)

    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            with capture_logs() as events, raw_clients(node, 5, b"\x16\x03\x01\x02\x00\x01") as half:
                await is_closed(half[0])
                await is_closed(half[1])
                assert await (await connected(node, authority.context())).is_served()
                await is_closed(half[2])
            assert reasons(events) == ["more than 3 TLS handshakes are under way"] * 3
            await until(lambda: not server_of(node).handshake_count)

    run(test())


async def slow_client(node: Node, context: ssl.SSLContext, number: int, may_go_on: asyncio.Event) -> bool:
    """Whether a client of an address of its own is served, which stops in the middle of its handshake for a time."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    encryption = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.socket() as client:
        client.setblocking(False)
        client.bind((f"127.0.0.{10 + number}", 0))
        address = node.addresses[0]
        await loop.sock_connect(client, (address.host, address.port))
        with suppress(ssl.SSLWantReadError):
            encryption.do_handshake()
        await loop.sock_sendall(client, outgoing.read())
        await may_go_on.wait()
        try:
            while True:
                try:
                    encryption.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await loop.sock_sendall(client, outgoing.read())
                    incoming.write(await asyncio.wait_for(received(client), 10))
            encryption.write(bytes(request_frame(1, "client", ApiVersionsRequest(), 3)))
            await loop.sock_sendall(client, outgoing.read())
            return bool(await asyncio.wait_for(received(client), 10))
        except ConnectionError:
            return False


async def received(client: socket.socket) -> bytes:
    if content := await asyncio.get_running_loop().sock_recv(client, 65_536):
        return content
    raise ConnectionResetError("the broker has closed the connection")


def test_more_handshakes_than_there_may_be_wait_if_no_address_has_many(
    tmp_path: Path, authority: Authority, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "MAXIMUM_HANDSHAKES", 3)
    monkeypatch.setattr(tls_server, "UNDISTURBED_S", 60.0)

    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            may_go_on = asyncio.Event()
            context = authority.context()
            clients = [asyncio.create_task(slow_client(node, context, number, may_go_on)) for number in range(8)]
            await until(lambda: server_of(node).handshake_count == 8)
            may_go_on.set()
            assert all(await asyncio.gather(*clients))

    run(test())


def test_a_handshake_that_takes_long_makes_room_for_those_that_wait(
    tmp_path: Path, authority: Authority, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "MAXIMUM_HANDSHAKES", 3)
    monkeypatch.setattr(tls_server, "UNDISTURBED_S", 0.05)

    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            never, at_once = asyncio.Event(), asyncio.Event()
            at_once.set()
            context = authority.context()
            strangers = [asyncio.create_task(slow_client(node, context, number, never)) for number in range(3)]
            await until(lambda: server_of(node).handshake_count == 3)
            assert await slow_client(node, context, 3, at_once)
            for stranger in strangers:
                stranger.cancel()

    run(test())


def test_what_is_no_tls_is_named(tmp_path: Path, authority: Authority, run: Run) -> None:
    kafka = bytes(request_frame(1, "client", ApiVersionsRequest(), 3))

    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            with capture_logs() as events:
                for first_bytes in (b"GET / HTTP/1.1\r\n", kafka, b"\x01\x02"):
                    with raw_clients(node, 1, first_bytes) as (client,):
                        await is_closed(client)
                for first_bytes in (b"\x16\x03\x01\x02\x00\x01", b"POST /topics HTTP/1.1\r\n"):
                    with raw_clients(node, 1, first_bytes, listener=1) as (client,):
                        await is_closed(client)
            assert reasons(events) == [
                "the client speaks HTTP without TLS, and this listener speaks TLS only",
                "the client speaks Kafka without TLS, and this listener speaks TLS only; see its security.protocol",
                "what the client sends is no TLS (it begins with 01 02)",
                "the client speaks TLS, and this listener does not",
                "the client speaks HTTP, and this listener does not",
            ]

    run(test())


def test_a_look_whether_the_port_is_open_is_no_failure(tmp_path: Path, authority: Authority, run: Run) -> None:
    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            with capture_logs() as events:
                with raw_clients(node, 3):
                    await until(lambda: node.connection_count == 3)
                await until(lambda: node.connection_count == 0)
            assert events == []

    run(test())


def test_a_stop_does_not_wait_for_handshakes(tmp_path: Path, authority: Authority, run: Run) -> None:
    async def test() -> None:
        async with broker(tmp_path, authority) as node, asyncio.timeout(20):
            with raw_clients(node, 5) as clients:
                await until(lambda: node.connection_count == 5)
                await node.stop()
                for client in clients:
                    await is_closed(client)

    run(test())


def test_sasl_goes_through_tls_and_the_certificate_names_nobody(tmp_path: Path, authority: Authority, run: Run) -> None:
    async def test() -> None:
        async with broker(
            tmp_path,
            authority,
            listeners=("SASL_SSL://127.0.0.1:0",),
            sasl_enabled_mechanisms=("PLAIN",),
            sasl_jaas_config=Password(JAAS),
            ssl_client_auth="required",
        ) as node:
            context = authority.context()
            authority.client("somebody").load_into(context)
            client = await connected(node, context)
            assert await client.plain("alice", "alice-secret") == 0
            assert await client.is_served()
            assert [connection.principal for connection in server_of(node)._connections.values()] == ["User:alice"]
            other = await connected(node, context)
            assert await other.call(MetadataRequest([]), 9) is None
            wrong = await connected(node, context)
            assert await wrong.plain("alice", "wrong") != 0

    run(test())


def test_the_time_of_a_handshake_counts_for_the_authentication(tmp_path: Path, authority: Authority, run: Run) -> None:
    async def test() -> None:
        async with broker(
            tmp_path,
            authority,
            listeners=("SASL_SSL://127.0.0.1:0",),
            sasl_enabled_mechanisms=("PLAIN",),
            sasl_jaas_config=Password(JAAS),
            fencepost_authentication_timeout_ms=60_000,
        ) as node:
            address = node.addresses[0]
            client = socket.create_connection((address.host, address.port))
            await until(lambda: server_of(node).handshake_count)
            await asyncio.sleep(0.2)  # of the minute that it has
            client.setblocking(False)
            _, writer = await asyncio.open_connection(sock=client, ssl=authority.context(), server_hostname="127.0.0.1")
            _opened.append(writer)
            await until(lambda: server_of(node)._connections)
            (connection,) = server_of(node)._connections.values()
            deadline = connection.authentication._deadline  # type: ignore[union-attr]
            assert deadline.when() - connection.accepted_s == pytest.approx(60, abs=0.1)

    run(test())


def test_a_client_that_does_not_read_has_little_of_its_replies_encrypted(
    tmp_path: Path, authority: Authority, run: Run
) -> None:
    async def test() -> None:
        async with broker(tmp_path, authority) as node:
            client = await connected(node, authority.context())
            assert await client.is_served()
            (connection,) = server_of(node)._connections.values()
            sender = connection._outbox._sender
            reply = [b"head", bytes(20_000_000)]
            rest = sender.send(reply)
            assert rest is not None
            assert sender.buffered_bytes() < ENCRYPTED_BYTES + 2 * ENCRYPTED_PORTION_BYTES

    run(test())
