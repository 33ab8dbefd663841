"""Connections of HTTP clients: what arrives late, too large or broken, and how many there may be."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fencepost.broker.hosting.topics import Topics
from fencepost.broker.http import connection, listener
from fencepost.broker.http.exchange import HttpRequest, HttpResponse, text_response
from fencepost.broker.http.routes import find_route
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from tests.broker.supervision.planting import until
from tests.broker.test_node import running, settings_for
from tests.support.http_node import LISTENER, http_node, raw_http

GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
METRICS = GET.replace(b"healthz", b"metrics")


async def test_requests_of_one_connection_are_answered_in_their_order(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(GET + GET.replace(b"healthz", b"nothing") + GET)
        statuses = [(await client.response())[0] for _ in range(3)]
        assert statuses == [200, 404, 200]


async def test_a_request_may_arrive_byte_by_byte(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        for position in range(len(GET)):
            client.send(GET[position : position + 1])
            await asyncio.sleep(0)
        assert (await client.response())[0] == 200


async def test_a_response_to_head_has_no_body(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        response = await http.client.head("/metrics")
        assert (response.status_code, response.content) == (200, b"")
        assert (await http.get("/healthz")).status_code == 200, "the connection goes on"


async def test_a_client_of_http_1_0_gets_its_response_and_the_end(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        content = await client.reader.read()
        assert content.startswith(b"HTTP/1.1 200 ")
        assert content.endswith(b'{"status": "ok"}\n')


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"\x00\x00\x00\x10\x00\x12\x00\x00\r\n\r\n", 400),  # a client of Kafka
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),  # without a host
        (b"GET /" + b"x" * 20_000, 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 20_000, 431),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, 413),
    ],
)
async def test_what_cannot_be_read_is_answered_and_the_connection_closed(
    tmp_path: Path, sent: bytes, status: int
) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(sent)
        answered, headers, body = await client.response()
        assert answered in (status, 400)
        assert b'"error"' in body
        assert headers["connection"] == "close"
        assert await client.is_closed()
        assert (await http.get("/healthz")).status_code == 200, "others are served"


@pytest.mark.parametrize(
    "part", [b"", b"GET /healthz HT", GET.replace(b"GET", b"POST")[:-2] + b"Content-Length: 5\r\n\r\nab"]
)
async def test_a_request_that_does_not_arrive_in_time_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: bytes
) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.05)
    monkeypatch.setattr(connection, "BODY_TIMEOUT_S", 0.05)
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(part)
        if part:
            assert (await client.response())[0] == 408
        assert await client.is_closed()


async def test_an_idle_connection_is_closed_after_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "IDLE_TIMEOUT_S", 0.05)
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(GET)
        assert (await client.response())[0] == 200
        assert await client.is_closed()


async def test_a_client_that_waits_for_100_continue_is_asked_for_the_body(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        client.send(b"{}")
        assert (await client.response())[0] == 415


async def test_a_new_connection_takes_the_place_of_the_one_that_is_idle_for_longest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAXIMUM_CONNECTIONS", 2)
    async with http_node(tmp_path) as http, raw_http(http.node) as first, raw_http(http.node) as second:
        for client in (first, second):
            client.send(GET)
            assert (await client.response())[0] == 200
        async with raw_http(http.node) as third:
            third.send(GET)
            assert (await third.response())[0] == 200
            assert await first.is_closed()
            second.send(GET)
            assert (await second.response())[0] == 200


async def test_with_requests_in_work_on_all_connections_a_new_one_serves_probes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "MAXIMUM_CONNECTIONS", 1)
    released = asyncio.Event()
    asked: list[HttpRequest] = []

    async def slow(_: object, request: HttpRequest) -> HttpResponse:
        asked.append(request)
        await released.wait()
        return text_response("done")

    monkeypatch.setattr(listener, "find_route", lambda one: slow if one.path == ("metrics",) else find_route(one))
    async with http_node(tmp_path) as http, raw_http(http.node) as first:
        first.send(METRICS)
        await until(lambda: asked)
        for request, status in ((GET, 200), (METRICS, 503), (GET.replace(b"healthz", b"livez"), 200)):
            async with raw_http(http.node) as second:
                second.send(request)
                assert (await second.response())[0] == status
                assert await second.is_closed()
        released.set()
        assert (await first.response())[2] == b"done"


HALVES = [b"", b"G", GET[:-2], b"POST /v1/log-levels HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n{"]


@pytest.mark.parametrize("half", HALVES, ids=["nothing", "a byte", "a head", "a body"])
async def test_probes_and_scrapes_are_answered_however_many_requests_are_sent_by_half(
    tmp_path: Path, half: bytes
) -> None:
    async with http_node(tmp_path) as http, AsyncExitStack() as opened:
        kept = await opened.enter_async_context(raw_http(http.node))
        for _ in range(2 * listener.MAXIMUM_CONNECTIONS):
            (await opened.enter_async_context(raw_http(http.node))).send(half)
        for request in (GET, GET.replace(b"healthz", b"livez"), GET.replace(b"healthz", b"readyz"), METRICS):
            async with raw_http(http.node) as client:
                client.send(request)
                assert (await client.response())[0] == 200
        assert await kept.is_closed()


async def test_the_address_with_most_unfinished_requests_loses_its_oldest(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, AsyncExitStack() as opened:
        slow = await opened.enter_async_context(raw_http(http.node, host="127.0.0.2"))
        slow.send(GET[:-2])
        for _ in range(2 * listener.MAXIMUM_CONNECTIONS):
            (await opened.enter_async_context(raw_http(http.node))).send(b"G")
        slow.send(GET[-2:])
        assert (await slow.response())[0] == 200


async def test_a_client_that_does_not_read_holds_no_more_than_a_buffer_and_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READING_TIMEOUT_S", 0.2)
    made: list[int] = []

    async def endless(_: object, __: HttpRequest) -> HttpResponse:
        def pieces() -> Iterator[str]:
            for number in range(100_000):
                made.append(number)
                yield "x" * 10_000

        return HttpResponse(pieces=pieces())

    monkeypatch.setattr(listener, "find_route", lambda _: endless)
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        client.send(GET)
        connections = http.node._http._listener._connections  # type: ignore[union-attr]
        await until(lambda: made)
        await until(lambda: not connections)
        assert len(made) < 2_000, "what is not read is not made"


async def test_a_failure_of_a_route_is_answered_with_500_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: object, __: HttpRequest) -> HttpResponse:
        raise KeyError("a defect")

    monkeypatch.setattr(listener, "find_route", lambda _: broken)
    async with http_node(tmp_path) as http:
        response = await http.get("/healthz")
        assert (response.status_code, "log" in response.json()["error"]) == (500, True)


async def test_the_port_is_closed_with_the_node(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http, raw_http(http.node) as client:
        client.send(GET)
        await client.response()
        address = http.node.http_address
        assert address is not None
        await http.node.stop()
        assert await client.is_closed()
        with pytest.raises(OSError, match=r"[Cc]onnect"):
            await asyncio.open_connection(*address)


async def test_a_port_in_use_is_said_before_the_data_is_touched(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        node = Node(settings_for(tmp_path / "data", fencepost_http_listener=f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(StartError, match=r"HTTP://127.0.0.1:.*in use"):
            await node.start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("text", ["9644", "127.0.0.1", "127.0.0.1:http", "::1:9644", "127.0.0.1:99999"])
async def test_a_listener_that_is_no_address_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(StartError, match=r"fencepost.http.listener: expected HOST:PORT"):
        await Node(settings_for(tmp_path, fencepost_http_listener=text)).start()


async def test_without_the_setting_there_is_no_listener(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        assert node.http_address is None
        assert node.services.observer is None


async def test_probes_are_answered_while_the_broker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = asyncio.Event()
    open_topics = Topics.open

    async def slow_open(topics: Topics) -> None:
        await opened.wait()
        await open_topics(topics)

    monkeypatch.setattr(Topics, "open", slow_open)
    node = Node(settings_for(tmp_path / "data", fencepost_http_listener=LISTENER))
    starting = asyncio.create_task(node.start())
    try:
        await until(lambda: node._http is not None and node._http._listener._acceptor is not None)
        async with raw_http(node) as client:
            client.send(GET.replace(b"healthz", b"livez") + GET.replace(b"healthz", b"readyz"))
            client.send(GET.replace(b"healthz", b"metrics"))
            answers = [await client.response() for _ in range(3)]
        assert [status for status, _, _ in answers] == [200, 503, 503]
        assert b"starting" in answers[1][2]
    finally:
        opened.set()
        await starting
        await node.stop()
