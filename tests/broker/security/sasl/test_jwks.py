"""The keys of an authorization server: read, read again, and kept while it is down."""

from __future__ import annotations

import asyncio
import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from fencepost.broker.security.sasl import jwks
from fencepost.broker.security.sasl.claims import Expected
from fencepost.broker.security.sasl.jwks import Jwks, JwksError, JwksSettings, TokenValidator, check_url, fetch
from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken
from tests.broker.security.sasl.test_jwt_validation import NOW_S, OTHER_RSA, RSA, jwk, signed
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs

URL = "https://issuer.example/keys"
FIRST = json.dumps({"keys": [jwk(RSA, "rsa")]}).encode()
SECOND = json.dumps({"keys": [jwk(OTHER_RSA, "other")]}).encode()


class Clock:
    def now_ms(self) -> int:
        return NOW_S * 1000


class Issuer:
    """An authorization server, as the broker reads it; an exception is raised."""

    def __init__(self, content: bytes | Exception = FIRST) -> None:
        self.content = content
        self.reads = 0

    def __call__(self, url: str) -> bytes:
        assert url == URL
        self.reads += 1
        if isinstance(self.content, Exception):
            raise self.content
        return self.content

    def jwks(self, refresh_ms: int = 3_600_000, backoff_ms: int = 10, backoff_max_ms: int = 10_000) -> Jwks:
        settings = JwksSettings(URL, refresh_ms, backoff_ms, backoff_max_ms)
        return Jwks(settings, loop=asyncio.get_running_loop(), fetch=self)


def ids(keys: Jwks) -> list[str | None]:
    return [key.key_id for key in keys.keys]


async def test_keys_are_read_once_and_validate_tokens() -> None:
    issuer = Issuer()
    keys = issuer.jwks()
    await keys.open()
    validator = TokenValidator(keys, Expected(), Clock())
    for _ in range(5):
        assert await validator.validate(signed()) == Bearer("alice", (NOW_S + 60) * 1000)
    assert issuer.reads == 1
    keys.close()


async def test_a_start_without_keys_fails() -> None:
    for content in (JwksError("down"), b"", b"{}", b"\xff", b'{"keys": []}'):
        keys = Issuer(content).jwks()
        with pytest.raises(JwksError):
            await keys.open()
        keys.close()


async def test_an_unknown_key_makes_them_be_read_again_once_in_a_back_off() -> None:
    issuer = Issuer()
    keys = issuer.jwks(backoff_max_ms=3_600_000)
    await keys.open()
    validator = TokenValidator(keys, Expected(), Clock())
    issuer.content = SECOND
    token = signed(key=OTHER_RSA, key_id="other")
    assert isinstance(await validator.validate(token), InvalidToken), "within the back-off"
    assert issuer.reads == 1
    keys._read_again_at_s = 0.0  # the back-off is over
    found = await asyncio.gather(*(validator.validate(token) for _ in range(100)))
    assert all(isinstance(one, Bearer) for one in found)
    assert issuer.reads == 2
    unknown = [validator.validate(signed(key_id=f"unknown-{number}")) for number in range(100)]
    assert all(isinstance(one, InvalidToken) for one in await asyncio.gather(*unknown))
    assert issuer.reads == 2
    keys.close()


async def test_tokens_without_a_key_or_with_another_algorithm_read_nothing() -> None:
    issuer = Issuer()
    keys = issuer.jwks(backoff_max_ms=1)
    await keys.open()
    validator = TokenValidator(keys, Expected(), Clock())
    await asyncio.sleep(0.01)
    assert isinstance(await validator.validate("e30.e30."), InvalidToken)
    assert isinstance(await validator.validate(signed(key=OTHER_RSA, key_id=None)), InvalidToken)
    assert issuer.reads == 1
    keys.close()


async def test_keys_are_read_at_the_interval() -> None:
    issuer = Issuer()
    keys = issuer.jwks(refresh_ms=10)
    await keys.open()
    issuer.content = SECOND
    await until(lambda: ids(keys) == ["other"])
    await until(lambda: issuer.reads > 4)
    keys.close()


async def test_keys_are_kept_while_the_issuer_is_down() -> None:
    issuer = Issuer()
    keys = issuer.jwks(refresh_ms=10, backoff_ms=1, backoff_max_ms=20)
    await keys.open()
    issuer.content = JwksError("down")
    with capture_logs() as lines:
        await until(lambda: issuer.reads > 5)
        assert ids(keys) == ["rsa"]
        issuer.content = SECOND
        await until(lambda: ids(keys) == ["other"])
    assert [line["event"] for line in lines] == ["keys_not_refreshed", "keys_refreshed"], "once each"
    keys.close()


async def test_nothing_is_read_after_the_end() -> None:
    issuer = Issuer()
    keys = issuer.jwks(refresh_ms=5)
    await keys.open()
    keys.close()
    reads = issuer.reads
    await asyncio.sleep(0.05)
    assert issuer.reads == reads


@plants(jwks.REFRESHING)
@unforeseen
async def test_a_refresh_that_fails_unexpectedly_is_tried_again(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer()
    keys = issuer.jwks(refresh_ms=5)
    await keys.open()
    issuer.content = SECOND
    monkeypatch.setattr(keys, "_read", raising(error, times=1, then=keys._read))
    with logged(jwks.REFRESHING):
        await until(lambda: ids(keys) == ["other"])
        keys.close()


# URLs


@pytest.mark.parametrize("url", ["https://issuer.example/keys", "file:///etc/keys.json", "file:/etc/keys.json"])
def test_keys_are_read_by_https_and_from_files(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    "url", ["http://issuer.example/keys", "ftp://h/x", "/etc/keys.json", "keys", "file://host/x", "https:///x", ""]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="expected https://… or file:///…"):
        check_url(url)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "my keys.json"
    path.write_bytes(FIRST)
    assert fetch(path.as_uri()) == FIRST


def test_a_file_that_is_missing_or_too_large_is_named(tmp_path: Path) -> None:
    with pytest.raises(JwksError, match=r"none\.json: No such file"):
        fetch((tmp_path / "none.json").as_uri())
    (tmp_path / "large").write_bytes(bytes(jwks.MAXIMUM_BYTES + 1))
    with pytest.raises(JwksError, match="has more than"):
        fetch((tmp_path / "large").as_uri())


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:  # as the library calls it
        if self.path == "/keys":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(FIRST)
        else:
            self.send_response(302 if self.path == "/moved" else 503)
            self.send_header("Location", "/keys")
            self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of an HTTPS server that this process trusts."""
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        serving.socket = context.wrap_socket(serving.socket, server_side=True)
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://localhost:{serving.server_port}"
        serving.shutdown()
        thread.join()


def test_keys_are_read_by_https(server: str) -> None:
    assert fetch(server + "/keys") == FIRST


def test_a_redirect_is_not_followed(server: str) -> None:
    with pytest.raises(JwksError, match="answers with the status 302"):
        fetch(server + "/moved")


def test_an_error_of_the_server_is_named(server: str) -> None:
    with pytest.raises(JwksError, match="answers with the status 503"):
        fetch(server + "/down")


def test_a_server_that_is_not_trusted_is_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(JwksError, match="certificate verify failed"):
        fetch(server + "/keys")


def test_a_server_that_is_down_is_named() -> None:
    with pytest.raises(JwksError, match=r"cannot read https://127\.0\.0\.1:1/keys: .*refused"):
        fetch("https://127.0.0.1:1/keys")
