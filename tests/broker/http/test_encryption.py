"""The HTTP listener with TLS: served, renewed, and bounded against clients that do not shake hands."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from fencepost.broker.config import ConfigurationError, load_settings
from fencepost.broker.http import encryption
from fencepost.broker.node import Node
from fencepost.broker.process.serve_settings import needs_tls
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.broker.test_node import running
from tests.support.captured_events import capture_logs
from tests.support.certificates import Authority

LISTENER = "https://127.0.0.1:0"


@asynccontextmanager
async def encrypted(authority: Authority, directory: Path, **chosen: Any) -> AsyncIterator[tuple[Node, int]]:
    key_store = {"ssl_keystore_location": str(authority.server().both)}
    async with running(directory, fencepost_http_listener=LISTENER, **(key_store | chosen)) as node:
        assert node.http_address is not None
        yield node, node.http_address[1]


async def get(authority: Authority, port: int, path: str = "/readyz") -> httpx.Response:
    async with httpx.AsyncClient(verify=authority.context()) as client:
        return await client.get(f"https://127.0.0.1:{port}{path}")


async def test_metrics_and_health_are_encrypted(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    async with encrypted(authority, tmp_path / "data") as (_, port):
        assert (await get(authority, port)).json() == {"status": "ok"}
        text = (await get(authority, port, "/metrics")).text
        assert 'fencepost_tls_certificate_expiry_timestamp_seconds{listener="HTTP"}' in text
        stranger = Authority(tmp_path / "stranger", "stranger")
        with capture_logs() as events:
            with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                await get(stranger, port)
            with pytest.raises(httpx.RemoteProtocolError):
                async with httpx.AsyncClient() as client:
                    await client.get(f"http://127.0.0.1:{port}/readyz")
            await until(lambda: [event for event in events if event["event"] == "http_handshake_failed"])
        assert (await get(authority, port)).status_code == 200, "others are served"


async def test_a_renewed_certificate_counts_from_the_next_connection_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    async with encrypted(authority, tmp_path / "data") as (node, port):
        before = await shown_certificate(port)
        authority.server()
        assert node._tls is not None
        await node._tls.renew("a test")
        after = await shown_certificate(port)
        assert before != after


async def shown_certificate(port: int) -> bytes:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    certificate: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_silent_clients_hold_a_bounded_number_of_connections_for_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encryption, "MAXIMUM_HANDSHAKES", 3)
    monkeypatch.setattr(encryption, "HANDSHAKE_TIMEOUT_S", 0.3)
    authority = Authority(tmp_path / "authority")
    async with encrypted(authority, tmp_path / "data") as (_, port):
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        assert (await get(authority, port)).status_code == 200, "they keep nobody out"
        ends = await asyncio.wait_for(asyncio.gather(*(reader.read() for reader, _ in silent)), 10)
        assert ends == [b""] * 5, "all are closed by now"
        for _, writer in silent:
            writer.close()
        assert (await get(authority, port)).status_code == 200


async def test_the_stop_gives_up_what_is_in_its_handshake(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    async with encrypted(authority, tmp_path / "data") as (node, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        acceptor: Any = node._http._listener._acceptor  # type: ignore[union-attr]
        await until(lambda: acceptor._handshakes)
        await node.stop()
        assert await reader.read() == b""
        writer.close()


class Broken:
    """TLS that cannot be asked for its context."""

    def __init__(self, error: BaseException) -> None:
        self._raise = raising(error)

    @property
    def context(self) -> Any:
        return self._raise()


@plants(encryption.HTTP_HANDSHAKE)
@unforeseen
async def test_a_handshake_that_fails_unexpectedly_is_one_connection(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "authority")
    async with encrypted(authority, tmp_path / "data") as (node, port):
        acceptor: Any = node._http._listener._acceptor  # type: ignore[union-attr]
        with logged(encryption.HTTP_HANDSHAKE, "127.0.0.1"), monkeypatch.context() as planted:
            planted.setattr(acceptor, "_tls", Broken(error))
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            await until(lambda: not acceptor._handshakes)
            writer.close()
        assert (await get(authority, port)).status_code == 200


def load(*assignments: str) -> Any:
    return load_settings(assignments=assignments).settings


def test_openssl_is_loaded_for_it(tmp_path: Path) -> None:
    files = Authority(tmp_path / "authority").server()
    certificate = f"listener.name.http.ssl.keystore.location={files.both}"
    assert needs_tls(load("fencepost.http.listener=https://127.0.0.1:9644", certificate))
    assert not needs_tls(load("fencepost.http.listener=http://127.0.0.1:9644"))
    assert not needs_tls(load("fencepost.http.listener=127.0.0.1:9644"))


@pytest.mark.parametrize(
    ("assignments", "part"),
    [
        (("fencepost.http.listener=https://127.0.0.1:1",), "no certificate"),
        (("fencepost.http.listener=ftp://127.0.0.1:1",), "fencepost.http.listener: expected HOST:PORT"),
        (("listener.name.http.ssl.keystore.location=/x",), "there is no listener HTTP"),
        (
            ("fencepost.http.listener=127.0.0.1:1", "listener.name.http.ssl.keystore.location=/x"),
            "there is no listener HTTP",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(assignments: tuple[str, ...], part: str) -> None:
    with pytest.raises(ConfigurationError, match=part):
        load(*assignments)
