"""A resolver that asks over HTTP: what is an answer, and what every other behaviour of a server comes to."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.check_back.question import Answer, Question, ResolverUnreachable
from fencepost.check_back.resolvers.http import HttpResolver
from fencepost.check_back.settings import ResolverSettings
from fencepost.two_phase.tokens import Token
from tests.support.certificates import Authority

QUESTION = Question(Token(7, 0, "order-1"), 1_764_000_000_000, (("orders", 0),))
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Service:
    """A server that behaves as a test says, and remembers the heads of requests."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None] | None] = set()

    async def start(self, behaviour: Behaviour, tls: ssl.SSLContext | None = None) -> int:
        """Listen on a free port of this machine, and return it."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            self._serving.add(task)
            try:
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
                await behaviour(reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass  # the resolver has heard enough
            finally:
                writer.transport.abort()
                self._serving.remove(task)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def answer(self, status: int, body: bytes, *headers: str) -> int:
        return await self.start(answers(status, body, *headers))

    async def close(self) -> None:
        for server in self._servers:
            server.close()
            await server.wait_closed()
        while self._serving:  # noqa: ASYNC110  # each ends within a turn or two
            await asyncio.sleep(0)


def answers(status: int, body: bytes, *headers: str) -> Behaviour:
    head = "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""])
    return sends(head.encode() + body)


def sends(data: bytes) -> Behaviour:
    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return send


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    made = Service()
    yield made
    await made.close()


def resolver(port: int, *, scheme: str = "http", path: str = "/outcome/{token}", **options: str) -> HttpResolver:
    named = {name.replace("_", "."): value for name, value in options.items()}
    timeout_ms = int(named.pop("timeout.ms", "60000"))
    url = f"{scheme}://127.0.0.1:{port}{path}"
    return HttpResolver(ResolverSettings("orders", ("order-*",), "http", {"url": url, **named}, timeout_ms=timeout_ms))


async def reason(asked: HttpResolver) -> str:
    """Why there is no answer: one sentence with a remedy, which shows no path."""
    with pytest.raises(ResolverUnreachable) as raised:
        await asked.ask(QUESTION)
    said = raised.value.reason
    assert said.startswith("resolver orders: the service at 127.0.0.1:")
    assert "\n" not in said
    assert "/outcome" not in said
    return said.partition(" at ")[2].partition(" ")[2]


@pytest.mark.parametrize("answer", list(Answer))
async def test_the_three_answers(service: Service, answer: Answer) -> None:
    port = await service.answer(200, f'{{"outcome": "{answer.value}"}}\n'.encode())
    assert await resolver(port).ask(QUESTION) is answer
    assert service.requests[0].startswith("GET /outcome/7%3A0%3Aorder-1 HTTP/1.1\r\n")
    assert f"Host: 127.0.0.1:{port}\r\n" in service.requests[0]


async def test_an_answer_in_chunks_and_after_an_early_hint_counts(service: Service) -> None:
    body = b'7\r\n{"outco\r\n11\r\nme":  "commit"}  \r\n0\r\n\r\n'
    hint = b"HTTP/1.1 103 Early\r\nLink: </x>\r\n\r\n"
    port = await service.start(sends(hint + b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + body))
    assert await resolver(port).ask(QUESTION) is Answer.COMMIT


async def test_all_parts_of_the_question_can_stand_in_the_url_and_none_can_leave_its_place(service: Service) -> None:
    port = await service.answer(200, b'{"outcome": "unknown"}')
    asked = resolver(
        port, path="/{producer_id}/{producer_epoch}/{transactional_id}?token={token}&at={started_ms}&x={started_ms}"
    )
    hostile = Question(Token(7, 3, "../a?b#c&d=e {token} \r\nX: ü"), 12, ())
    await asked.ask(hostile)
    encoded = "..%2Fa%3Fb%23c%26d%3De%20%7Btoken%7D%20%0D%0AX%3A%20%C3%BC"
    assert service.requests[0].partition(" HTTP")[0] == f"GET /7/3/{encoded}?token=7%3A3%3A{encoded}&at=12&x=12"


@pytest.mark.parametrize("name", [".", ".."])
async def test_an_id_that_a_server_takes_for_another_path_is_not_asked_about(service: Service, name: str) -> None:
    port = await service.answer(200, b'{"outcome": "commit"}')
    assert await resolver(port).ask(Question(Token(7, 0, name), 0, ())) is Answer.UNKNOWN
    assert service.requests == []


@pytest.mark.parametrize("status", [400, 404, 410, 414])
async def test_a_status_about_this_token_is_unknown(service: Service, status: int) -> None:
    port = await service.answer(status, b'{"outcome": "abort"}')
    assert await resolver(port).ask(QUESTION) is Answer.UNKNOWN


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (201, 'answered 201; expected 200 with {"outcome": "commit"}, or "abort", or "unknown", look at its log'),
        (204, 'answered 204; expected 200 with {"outcome": "commit"}, or "abort", or "unknown", look at its log'),
        (301, "answered 301, a redirect, which is not followed; name the final url"),
        (307, "answered 307, a redirect, which is not followed; name the final url"),
        (401, "answered 401: it refuses this client; check bearer.file"),
        (403, "answered 403: it refuses this client; check bearer.file"),
        (500, 'answered 500; expected 200 with {"outcome": "commit"}, or "abort", or "unknown", look at its log'),
        (503, 'answered 503; expected 200 with {"outcome": "commit"}, or "abort", or "unknown", look at its log'),
    ],
)
async def test_another_status_is_no_answer(service: Service, status: int, said: str) -> None:
    body = b"" if status == 204 else b'{"outcome": "commit"}'
    elsewhere = await service.answer(200, b'{"outcome": "commit"}')
    port = await service.answer(status, body, f"Location: http://127.0.0.1:{elsewhere}/")
    assert await reason(resolver(port)) == said
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "a body that cannot be read: it is not JSON"),
        (b"commit", "a body that cannot be read: it is not JSON"),
        (b'{"outcome": "commit"', "a body that cannot be read: it is not JSON"),
        (b'\xef\xbb\xbf{"outcome": "commit"}', "a body that cannot be read: it is not JSON"),
        (b'{"outcome": "comm\xffit"}', "a body that cannot be read: it is not UTF-8"),
        (b'"commit"', "a body that cannot be read: it is not a JSON object"),
        (b'["commit"]', "a body that cannot be read: it is not a JSON object"),
        (b'{"outcome": "abort", "outcome": "commit"}', "a body that cannot be read: it has a key twice"),
        (b'{"outcome": NaN}', "a body that cannot be read: NaN is not JSON"),
        (b'{"outcome": -Infinity}', "a body that cannot be read: -Infinity is not JSON"),
        (b'{"outcome": 1' + b"0" * 4000 + b"}", "a body that cannot be read: it has a whole number"),
        (b"[" * 4000, "a body that cannot be read: it is"),
        (b'{"outcome": true}', "other JSON"),
        (b'{"outcome": null}', "other JSON"),
        (b'{"outcome": ["commit"]}', "other JSON"),
        (b'{"outcome": "COMMIT"}', "other JSON"),
        (b'{"outcome": "commit "}', "other JSON"),
        (b'{"result": "commit"}', "other JSON"),
        (b'{"outcome": "commit", "error": "cannot read the database"}', "other JSON"),
    ],
    ids=lambda value: repr(value)[:40],
)
async def test_a_body_of_another_form_is_no_answer(service: Service, body: bytes, said: str) -> None:
    port = await service.answer(200, body)
    assert (await reason(resolver(port))).startswith(f"answered 200 with {said}")


async def test_a_compressed_body_is_no_answer(service: Service) -> None:
    import gzip

    port = await service.answer(200, gzip.compress(b'{"outcome": "commit"}'), "Content-Encoding: gzip")
    assert "a body that cannot be read: it is not UTF-8" in await reason(resolver(port))
    assert "Accept-Encoding: identity" in service.requests[0]


async def forever(data: bytes, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(data)
        await writer.drain()


STREAMS = {
    "body": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\n    \r\n"),
    "one long body": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b" " * 4096),
    "chunks of hints": (b"", b"HTTP/1.1 103 X\r\n\r\n"),
}


@pytest.mark.parametrize("stream", STREAMS)
async def test_an_answer_without_end_is_left_early(service: Service, stream: str) -> None:
    head, repeated = STREAMS[stream]

    async def send(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await forever(repeated, writer)

    port = await service.start(send)
    assert (await reason(resolver(port))).startswith("sent more than 4096 bytes; expected")


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000, b"x" * 100_000, b"SSH-2.0-OpenSSH\r\n\r\n"]
)
async def test_what_is_not_http_is_no_answer(service: Service, head: bytes) -> None:
    port = await service.start(sends(head))
    said = await reason(resolver(port))
    assert said.startswith(("did not answer in whole and valid HTTP/1.1", "sent more than 4096 bytes"))


@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\nContent-", b'HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{"outcom']
)
async def test_a_connection_that_is_closed_before_the_end_is_no_answer(service: Service, sent: bytes) -> None:
    port = await service.start(sends(sent))
    assert (await reason(resolver(port))) == (
        "did not answer in whole and valid HTTP/1.1; look at its log, and at what is between"
    )


async def test_a_whole_answer_of_which_less_was_announced_is_no_answer(service: Service) -> None:
    # What is cut off must not turn one answer into another.
    port = await service.start(sends(b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"outcome": "commit"}'))
    assert "it is not JSON" in await reason(resolver(port))


async def test_a_server_that_hangs_is_left_when_the_time_is_over(service: Service) -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    port = await service.start(hang)
    said = await reason(resolver(port, timeout_ms="200"))
    assert said == "gave no whole answer within 0.2 s; look whether it hangs, or raise timeout.ms"


async def test_a_server_that_sends_a_byte_now_and_then_gets_no_more_time(service: Service) -> None:
    async def drip(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in b'HTTP/1.1 200 OK\r\nContent-Length: 21\r\n\r\n{"outcome": "commit"}':
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.05)

    port = await service.start(drip)
    assert "gave no whole answer within 0.3 s" in await reason(resolver(port, timeout_ms="300"))


async def test_a_port_where_nobody_listens_is_no_answer(unused_tcp_port: int) -> None:
    said = await reason(resolver(unused_tcp_port))
    assert said.startswith("cannot be connected to (")
    assert said.endswith("); start it, or correct url")


async def test_a_trusted_certificate_is_needed_and_a_host_that_it_names(service: Service, tmp_path: Path) -> None:
    ours, theirs = Authority(tmp_path, "ours"), Authority(tmp_path, "theirs")
    ports = {
        "right": await service.start(answers(200, b'{"outcome": "commit"}'), context(ours.server())),
        "unknown authority": await service.start(
            answers(200, b'{"outcome": "commit"}'), context(theirs.server("other"))
        ),
        "expired": await service.start(answers(200, b'{"outcome": "commit"}'), context(ours.expired_server())),
        "other name": await service.start(
            answers(200, b'{"outcome": "commit"}'), context(ours.server("named", names=("orders.internal",)))
        ),
    }
    trusting = {"scheme": "https", "ca_file": str(ours.path)}
    assert await resolver(ports.pop("right"), **trusting).ask(QUESTION) is Answer.COMMIT
    asked = len(service.requests)
    for port in ports.values():
        said = await reason(resolver(port, **trusting))
        assert said.startswith("shows a certificate that is not trusted (")
        assert said.endswith("); correct it, or set ca.file")
    assert len(service.requests) == asked, "a question was sent to a server that is not trusted"


async def test_a_server_without_tls_is_not_taken_for_one_with_it(service: Service) -> None:
    async def not_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await sends(b"HTTP/1.1 400 no\r\n\r\n")(_, writer)

    server = await asyncio.start_server(not_tls, "127.0.0.1", 0)
    async with server:
        said = await reason(resolver(server.sockets[0].getsockname()[1], scheme="https"))
    assert said.startswith("does not speak TLS as expected (")
    assert said.endswith("); check the port and the scheme of url")


def context(files: Any) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files.load_into(made)
    return made


async def test_a_token_is_read_from_its_file_for_each_question(service: Service, tmp_path: Path) -> None:
    port = await service.answer(200, b'{"outcome": "unknown"}')
    file = tmp_path / "bearer"
    file.write_text("first-token\n")
    asked = resolver(port, bearer_file=str(file))
    await asked.ask(QUESTION)
    file.write_text("second-token\n")
    await asked.ask(QUESTION)
    assert ["Authorization: Bearer first-token\r\n" in one for one in service.requests] == [True, False]
    assert ["Authorization: Bearer second-token\r\n" in one for one in service.requests] == [False, True]
    for wrong in ("", "two\nlines", "two words"):
        file.write_text(wrong)
        with pytest.raises(ResolverUnreachable) as raised:
            await asked.ask(QUESTION)
        assert raised.value.reason == f"resolver orders: {file} holds no token in one line; write it there"


async def test_no_proxy_of_the_environment_is_used(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    port = await service.answer(200, b'{"outcome": "abort"}')
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await resolver(port).ask(QUESTION) is Answer.ABORT


async def test_many_questions_at_a_time_get_each_its_own_answer(service: Service) -> None:
    async def by_epoch(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        epoch = int(service.requests[-1].split("%3A")[1])
        await answers(200, f'{{"outcome": "{list(Answer)[epoch % 3].value}"}}'.encode())(_, writer)

    port = await service.start(by_epoch)
    asked = resolver(port)
    found = await asyncio.gather(*(asked.ask(Question(Token(7, epoch, "order"), 0, ())) for epoch in range(60)))
    assert found == [list(Answer)[epoch % 3] for epoch in range(60)]
    await asked.close()


def test_a_file_without_certificates_is_refused_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("nothing")
    with pytest.raises(ValueError, match=r"resolver orders: ca.file: .*ca.pem is not a readable file of certificates"):
        resolver(1, scheme="https", ca_file=str(file))
