"""Who may ask the HTTP listener for what."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from fencepost.broker.http.access import Access, AccessDeniedError, Role, Token, TokenFileError, read_tokens
from fencepost.broker.http.exchange import BadRequestError, HttpRequest
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from tests.broker.test_node import settings_for
from tests.support.captured_events import capture_logs
from tests.support.http_node import OPERATOR, VIEWER, http_node, token_file

TOKENS = [
    Token("board", Role.VIEWER, hashlib.sha256(b"of a viewer").digest()),
    Token("anna", Role.OPERATOR, hashlib.sha256(b"of an operator").digest()),
]


def request(method: str = "GET", path: str = "/metrics", **headers: str) -> HttpRequest:
    given = {"host": "127.0.0.1:9644", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return HttpRequest.of_target(method, path, given)


def status_of(access: Access, asked: HttpRequest) -> int:
    try:
        access.check(asked)
    except (AccessDeniedError, BadRequestError) as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("listens_on", "named", "status"),
    [
        ("127.0.0.1", "127.0.0.1:9644", 200),
        ("127.0.0.1", "localhost:19644", 200),
        ("127.0.0.1", "LOCALHOST", 200),
        ("127.0.0.1", "[::1]:9644", 200),
        ("::1", "[::1]:9644", 200),
        ("localhost", "localhost", 200),
        ("127.0.0.1", "attacker.example:9644", 421),
        ("127.0.0.1", "192.0.2.1:9644", 421),
        ("127.0.0.1", "[::ffff:127.0.0.1]:9644", 200),
        ("0:0:0:0:0:0:0:1", "[::1]:9644", 200),
        ("127.0.0.1", "127.0.0.1.attacker.example", 421),
        ("127.0.0.1", "localhost.attacker.example", 421),
        ("127.0.0.1", "", 421),
        ("0.0.0.0", "192.0.2.1:9644", 401),
        ("0.0.0.0", "[2001:db8::1]", 401),
        ("0.0.0.0", "attacker.example", 421),
        ("0.0.0.0", "fencepost.kafka.svc", 401),
        ("broker.example", "broker.example:9644", 401),
        ("broker.example", "BROKER.example.", 401),
    ],
)
def test_a_request_has_to_name_the_listener(listens_on: str, named: str, status: int) -> None:
    access = Access(listens_on, TOKENS, ["fencepost.kafka.svc"])
    assert status_of(access, request(host=named)) == status


@pytest.mark.parametrize(
    ("listens_on", "method", "path", "token", "status"),
    [
        ("127.0.0.1", "GET", "/metrics", None, 200),
        ("127.0.0.1", "GET", "/v1/node", "of a viewer", 200),
        ("127.0.0.1", "GET", "/metrics", "unknown", 401),
        ("127.0.0.1", "POST", "/v1/log-levels", None, 401),
        ("127.0.0.1", "POST", "/v1/log-levels", "of a viewer", 403),
        ("127.0.0.1", "POST", "/v1/log-levels", "of an operator", 200),
        ("0.0.0.0", "GET", "/metrics", None, 401),
        ("0.0.0.0", "GET", "/v1/node", "of a viewer", 200),
        ("0.0.0.0", "GET", "/v1/node", "of an operator", 200),
        ("0.0.0.0", "GET", "/healthz", None, 200),
        ("0.0.0.0", "GET", "/livez", None, 200),
        ("0.0.0.0", "GET", "/readyz", None, 200),
        ("0.0.0.0", "GET", "/healthz/", None, 401),
        ("0.0.0.0", "GET", "/", None, 401),
        ("0.0.0.0", "POST", "/healthz", None, 200),
        ("0.0.0.0", "DELETE", "/v1/node", None, 401),
    ],
)
def test_a_token_has_a_role(listens_on: str, method: str, path: str, token: str | None, status: int) -> None:
    headers = {"content_type": "application/json"} if method == "POST" else {}
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    asked = request(method, path, **headers)
    assert status_of(Access(listens_on, TOKENS), asked) == status
    if status == 200 and token is not None:
        assert asked.caller == ("board" if token == "of a viewer" else "anna")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_type": "application/json"}, 200),
        ({"content_type": "Application/JSON; charset=utf-8"}, 200),
        ({}, 415),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": "application/json", "origin": "http://127.0.0.1:9644"}, 200),
        ({"content_type": "application/json", "origin": "https://attacker.example"}, 403),
        ({"content_type": "application/json", "origin": "http://127.0.0.1:8080"}, 403),
        ({"content_type": "application/json", "origin": "null"}, 403),
    ],
)
def test_a_post_of_a_foreign_page_is_refused(headers: dict[str, str], status: int) -> None:
    asked = request("POST", "/v1/log-levels", authorization="Bearer of an operator", **headers)
    assert status_of(Access("127.0.0.1", TOKENS), asked) == status


@pytest.mark.parametrize("authorization", ["Basic b2Y=", "Bearer", "Bearer ", "bearer\tof a viewer", "of a viewer"])
def test_other_credentials_than_a_token_are_refused(authorization: str) -> None:
    assert status_of(Access("127.0.0.1", TOKENS), request(authorization=authorization)) == 401


def test_a_file_of_tokens_is_read(tmp_path: Path) -> None:
    path = token_file(tmp_path)
    with capture_logs() as logged:
        tokens = read_tokens(str(path))
    assert [(token.name, token.role.name) for token in tokens] == [("board", "VIEWER"), ("anna", "OPERATOR")]
    assert tokens[0].digest == hashlib.sha256(VIEWER.encode()).digest()
    assert not logged
    path.chmod(0o644)
    with capture_logs() as logged:
        read_tokens(str(path))
    assert [event["event"] for event in logged] == ["token_file_is_readable_by_others"]


@pytest.mark.parametrize(
    "line", ["anna:operator", "anna:admin:" + "0" * 64, "anna:viewer:" + "0" * 63, ":viewer:" + "0" * 64, "secret"]
)
def test_a_line_that_is_no_token_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"# tokens\n{line}\n")
    with pytest.raises(TokenFileError, match=r"tokens:2: expected name:role:sha256") as caught:
        read_tokens(str(path))
    assert "secret" not in str(caught.value), "a token in clear text is not shown"


async def test_a_file_that_is_missing_stops_the_start(tmp_path: Path) -> None:
    settings = settings_for(
        tmp_path, fencepost_http_listener="127.0.0.1:0", fencepost_http_token_file=str(tmp_path / "none")
    )
    with pytest.raises(StartError, match=r"fencepost.http.token.file: .*none cannot be read"):
        await Node(settings).start()


async def test_a_listener_for_other_machines_needs_tokens(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"name a file of them in fencepost.http.token.file"):
        await Node(settings_for(tmp_path, fencepost_http_listener="0.0.0.0:0")).start()


async def test_refusals_do_not_fill_the_log(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        with capture_logs() as events:
            for _ in range(100):
                assert (await http.post("/v1/log-levels", token="")).status_code == 401
        refused = [event for event in events if event["event"] == "http_request_refused"]
        assert 1 <= len(refused) <= 40


async def test_a_listener_for_other_machines_says_that_it_is_not_encrypted_and_asks_for_tokens(tmp_path: Path) -> None:
    with capture_logs() as logged:
        async with http_node(tmp_path, fencepost_http_listener="0.0.0.0:0") as http:
            without = await http.get("/metrics")
            assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
            assert (await http.get("/metrics", token=VIEWER)).status_code == 200
            assert (await http.get("/metrics", token=OPERATOR)).status_code == 200
            assert (await http.get("/readyz")).status_code == 200
    events = [event["event"] for event in logged]
    assert "http_is_not_encrypted" in events
    assert "http_request_refused" in events
