"""Whole brokers with SASL listeners: what they need at their start, and clients that authenticate over sockets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
import scramp

from fencepost.broker.config import Settings
from fencepost.broker.config.password import Password
from fencepost.broker.hosting.scram_credentials import ScramMechanism, credential_of
from fencepost.broker.network.authentication_counts import AuthenticationCounts
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from fencepost.broker.requests.api import APIS
from fencepost.broker.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from fencepost.broker.security.sasl.users_file import hash_password, write_users
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import response_header_version
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from fencepost.protocol.messages.metadata import MetadataRequest
from fencepost.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from fencepost.protocol.schema import decode
from tests.broker.security.sasl.test_claims import unsigned
from tests.broker.security.sasl.test_jwks import FIRST
from tests.broker.security.sasl.test_jwt_validation import RSA
from tests.support.captured_events import capture_logs
from tests.support.scram_with_token import TokenClient
from tests.support.secured_broker import STANDARD_AUTHORIZER

LISTENER = "SASL_PLAINTEXT"
JAAS = f'{PLAIN_MODULE} required user_alice="alice-secret" user_admin="admin-secret";'


def settings(directory: Path, *mechanisms: str, **chosen: Any) -> Settings:
    defaults: dict[str, Any] = {
        "log_dirs": str(directory),
        "listeners": (f"{LISTENER}://127.0.0.1:0",),
        "sasl_enabled_mechanisms": mechanisms,
        "connection_failed_authentication_delay_ms": 1,
        "fencepost_shutdown_drain_ms": 200,
    }
    return Settings(**(defaults | chosen))


@asynccontextmanager
async def broker(directory: Path, *mechanisms: str, **chosen: Any) -> AsyncIterator[Node]:
    node = Node(settings(directory, *mechanisms, **chosen))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


class SocketClient:
    """A client that sends requests one by one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, node: Node, listener: int = 0) -> SocketClient:
        address = node.addresses[listener]
        return cls(*await asyncio.open_connection(address.host, address.port))

    async def call(self, request: Any, version: int) -> Any:
        """The reply; None if the connection is closed."""
        self._writer.write(bytes(request_frame(1, "test", request, version)))
        try:
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            reply = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        position = 5 if response_header_version(request.api_key, version) else 4
        return decode(APIS[request.api_key].response, reply, version, position)

    async def handshake(self, mechanism: str) -> SaslHandshakeResponse:
        reply: SaslHandshakeResponse = await self.call(SaslHandshakeRequest(mechanism), 1)
        return reply

    async def token(self, token: bytes) -> SaslAuthenticateResponse:
        reply: SaslAuthenticateResponse = await self.call(SaslAuthenticateRequest(token), 2)
        return reply

    async def log_in(self, mechanism: str, *tokens: bytes) -> SaslAuthenticateResponse:
        await self.handshake(mechanism)
        reply = SaslAuthenticateResponse()
        for token in tokens:
            reply = await self.token(token)
        return reply

    async def plain(self, name: str, password: str) -> int:
        return (await self.log_in("PLAIN", f"\0{name}\0{password}".encode())).error_code

    async def scram(self, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> int:
        client = scramp.ScramClient([mechanism], name, password)
        first = await self.log_in(mechanism, client.get_client_first().encode())
        client.set_server_first(first.auth_bytes.decode())
        final = await self.token(client.get_client_final().encode())
        if not final.error_code:
            client.set_server_final(final.auth_bytes.decode())
        return final.error_code

    async def by_token(
        self, token_id: str, secret: bytes, mechanism: str = "SCRAM-SHA-512"
    ) -> SaslAuthenticateResponse:
        client = TokenClient(token_id, base64.b64encode(secret).decode(), mechanism)
        first = await self.log_in(mechanism, client.first())
        return first if first.error_code else await self.token(client.final(first.auth_bytes))

    async def is_served(self) -> bool:
        return await self.call(MetadataRequest([]), 9) is not None

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def add_scram_user(node: Node, name: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
    salt, digest = secrets.token_bytes(16), "sha" + mechanism.rpartition("-")[2]
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, 4096)
    number = ScramMechanism[mechanism.replace("-", "_")]
    await node.services.scram_credentials.change({(name, number): credential_of(number, 4096, salt, salted)})


async def test_users_of_the_settings_are_served_under_their_names(tmp_path: Path) -> None:
    async with broker(tmp_path, "PLAIN", sasl_jaas_config=Password(JAAS)) as node:
        client = await SocketClient.connect(node)
        assert (await client.call(ApiVersionsRequest("a", "1"), 3)).error_code == 0
        assert await client.plain("alice", "alice-secret") == ErrorCode.NONE
        assert await client.is_served()
        await client.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_users_of_scram_can_log_in_as_soon_as_they_are_added_until_they_are_removed(
    tmp_path: Path, mechanism: str
) -> None:
    async with broker(tmp_path, mechanism) as node:
        outcomes: list[int] = []
        for change in (None, "secret", "other", None):
            if change is not None:
                await add_scram_user(node, "alice", change, mechanism)
            elif outcomes:
                number = ScramMechanism[mechanism.replace("-", "_")]
                await node.services.scram_credentials.change({("alice", number): None})
            client = await SocketClient.connect(node)
            outcomes.append(await client.scram("alice", "secret", mechanism))
            await client.close()
        assert outcomes == [58, 0, 58, 58]


async def salt_of_nobody(node: Node) -> bytes:
    client = await SocketClient.connect(node)
    reply = await client.log_in("SCRAM-SHA-512", b"n,,n=nobody,r=abc")
    await client.close()
    return reply.auth_bytes.partition(b",")[2]


async def test_the_salt_of_an_unknown_user_outlives_the_broker(tmp_path: Path) -> None:
    found = []
    for _ in range(2):
        async with broker(tmp_path, "SCRAM-SHA-512") as node:
            found.append(await salt_of_nobody(node))
    async with broker(tmp_path / "other", "SCRAM-SHA-512") as node:
        found.append(await salt_of_nobody(node))
    assert found[0] == found[1] != found[2]


async def test_users_of_a_file_and_of_the_settings_are_served_together(tmp_path: Path) -> None:
    path = str(tmp_path / "users")
    write_users(path, {"bob": hash_password("bob-secret"), "alice": hash_password("of-the-file")})
    files = {"fencepost_plain_users_file": path, "sasl_jaas_config": Password(JAAS)}
    async with broker(tmp_path / "data", "PLAIN", **files) as node:
        found = []
        for name, password in (
            ("alice", "alice-secret"),
            ("bob", "bob-secret"),
            ("alice", "of-the-file"),
            ("bob", "wrong"),
            ("nobody", "bob-secret"),
        ):
            client = await SocketClient.connect(node)
            found.append(await client.plain(name, password))
            assert await client.is_served() is (found[-1] == 0)
            await client.close()
        assert found == [0, 0, 58, 58, 58]


def bearer(token: str) -> bytes:
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


async def test_tokens_are_accepted_until_they_expire(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    await asyncio.to_thread(path.write_bytes, FIRST)
    url = path.as_uri()
    async with broker(tmp_path / "data", "OAUTHBEARER", sasl_oauthbearer_jwks_endpoint_url=url) as node:
        now_s = node.services.clock.now_ms() / 1000
        claims = {"sub": "carol", "iat": now_s, "exp": now_s + 1.0}
        client = await SocketClient.connect(node)
        right = jwt.encode(claims, RSA, algorithm="RS256", headers={"kid": "rsa"})
        reply = await client.log_in("OAUTHBEARER", bearer(right))
        assert reply.error_code == 0
        assert 0 < reply.session_lifetime_ms <= 1_000
        assert await client.is_served()
        await asyncio.sleep(reply.session_lifetime_ms / 1000 + 0.05)
        assert not await client.is_served()
        await client.close()

        client = await SocketClient.connect(node)
        wrong = right[:-6] + "AAAAAA"
        assert (await client.log_in("OAUTHBEARER", bearer(wrong))).auth_bytes == b'{"status":"invalid_token"}'
        assert (await client.token(b"\x01")).error_code == 58
        await client.close()


async def test_unsigned_tokens_are_accepted_on_this_machine_where_a_setting_says_so(tmp_path: Path) -> None:
    async with broker(tmp_path, "OAUTHBEARER", fencepost_sasl_oauthbearer_unsecured=True) as node:
        claims = {"sub": "carol", "exp": node.services.clock.now_ms() / 1000 + 60}
        client = await SocketClient.connect(node)
        reply = await client.log_in("OAUTHBEARER", bearer(unsigned(claims)))
        assert reply.error_code == 0
        await client.close()


async def test_rights_follow_from_the_name_that_was_proved(tmp_path: Path) -> None:
    rights = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:admin"}
    async with broker(tmp_path, "PLAIN", sasl_jaas_config=Password(JAAS), **rights) as node:
        found = {}
        for name in ("alice", "admin"):
            client = await SocketClient.connect(node)
            await client.plain(name, f"{name}-secret")
            request = MetadataRequest(None, include_cluster_authorized_operations=True)
            found[name] = (await client.call(request, 9)).cluster_authorized_operations
            await client.close()
        assert found["alice"] == 0
        assert found["admin"] > 0


async def test_each_listener_has_its_own_mechanisms(tmp_path: Path) -> None:
    chosen = {
        "listeners": ("INSIDE://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"),
        "listener_security_protocol_map": ("INSIDE:SASL_PLAINTEXT",),
        "of_listeners": {
            "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.inside.plain.sasl.jaas.config": JAAS,
        },
    }
    async with broker(tmp_path, "SCRAM-SHA-256", **chosen) as node:
        offered = []
        for listener in range(2):
            client = await SocketClient.connect(node, listener)
            offered.append((await client.handshake("NONE")).mechanisms)
            await client.close()
        assert offered == [["PLAIN"], ["SCRAM-SHA-256"]]
        client = await SocketClient.connect(node, 2)
        assert (await client.handshake("PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.is_served()
        await client.close()


# Delegation tokens


TOKENS = {"delegation_token_secret_key": Password("the secret key")}


@asynccontextmanager
async def client_of(node: Node) -> AsyncIterator[SocketClient]:
    client = await SocketClient.connect(node)
    try:
        yield client
    finally:
        await client.close()


async def token_of_alice(node: Node, max_lifetime_ms: int = -1) -> CreateDelegationTokenResponse:
    """A token that alice created for herself."""
    await add_scram_user(node, "alice", "secret")
    async with client_of(node) as alice:
        assert await alice.scram("alice", "secret") == 0
        created: CreateDelegationTokenResponse = await alice.call(
            CreateDelegationTokenRequest(max_lifetime_ms=max_lifetime_ms), 3
        )
    assert created.error_code == 0
    assert (created.principal_name, created.token_requester_principal_name) == ("alice", "alice")
    return created


def principals(node: Node) -> set[str]:
    return {connection.principal for server in node.servers.of_clients for connection in server.connections}


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_client_with_a_token_is_its_owner_and_creates_no_token(tmp_path: Path, mechanism: str) -> None:
    async with broker(tmp_path, "SCRAM-SHA-256", "SCRAM-SHA-512", **TOKENS) as node:
        token = await token_of_alice(node)
        async with client_of(node) as client:
            reply = await client.by_token(token.token_id, token.hmac, mechanism)
            assert reply.error_code == 0
            assert 0 < reply.session_lifetime_ms <= token.expiry_timestamp_ms - token.issue_timestamp_ms
            assert await client.is_served()
            assert "User:alice" in principals(node)
            refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            for request in (
                CreateDelegationTokenRequest(),
                RenewDelegationTokenRequest(token.hmac, -1),
                ExpireDelegationTokenRequest(token.hmac, -1),
                DescribeDelegationTokenRequest(None),
            ):
                assert (await client.call(request, 2)).error_code == refused


async def test_the_session_of_a_client_ends_with_its_token(tmp_path: Path) -> None:
    async with broker(tmp_path, "SCRAM-SHA-512", **TOKENS) as node:
        token = await token_of_alice(node, 2_000)
        async with client_of(node) as client:
            reply = await client.by_token(token.token_id, token.hmac)
            assert 0 < reply.session_lifetime_ms <= 2_000
            await asyncio.sleep(reply.session_lifetime_ms / 1000 + 0.05)
            assert not await client.is_served()
        async with client_of(node) as client:
            assert (await client.by_token(token.token_id, token.hmac)).error_code == 58


async def test_a_token_outlives_the_broker_and_no_other_secret_key(tmp_path: Path) -> None:
    async with broker(tmp_path, "SCRAM-SHA-512", **TOKENS) as node:
        token = await token_of_alice(node)
    outcomes = []
    for chosen in (TOKENS, {"delegation_token_secret_key": Password("another")}, {}):
        async with broker(tmp_path, "SCRAM-SHA-512", **chosen) as node, client_of(node) as client:
            outcomes.append((await client.by_token(token.token_id, token.hmac)).error_code)
    assert outcomes == [0, 58, 58]


async def test_no_secret_of_a_token_is_logged(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with broker(tmp_path, "SCRAM-SHA-512", **TOKENS) as node:
            token = await token_of_alice(node)
            for tried in (token.hmac, b"wrong"):
                async with client_of(node) as client:
                    await client.by_token(token.token_id, tried)
            async with client_of(node) as client:
                await client.by_token("nobody's", token.hmac)
    failures = [(line["user"], line["reason"]) for line in lines if line["event"] == "authentication_failed"]
    assert failures == [
        ("alice", "wrong user or password"),
        (None, "a delegation token that is unknown or expired"),
    ]
    logged = json.dumps(lines, default=repr)
    assert token.token_id in logged, "the audit log has the id"
    for secret in (token.hmac.hex(), base64.b64encode(token.hmac).decode(), repr(token.hmac), "the secret key"):
        assert secret not in logged


# What a start refuses


@pytest.mark.parametrize(
    ("mechanisms", "chosen", "problem"),
    [
        ((), {}, "no mechanism: set sasl.enabled.mechanisms"),
        (("PLAIN",), {}, "enables PLAIN and has no users"),
        (
            ("PLAIN",),
            {"sasl_jaas_config": Password(f'{SCRAM_MODULE} required username="a" password="b";')},
            "enables PLAIN and has no users",
        ),
        (
            ("PLAIN",),
            {
                "of_listeners": {
                    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{SCRAM_MODULE} required user_a="b";'
                }
            },
            "not PLAIN's",
        ),
        (("PLAIN",), {"sasl_jaas_config": Password("secret")}, "sasl.jaas.config for PLAIN: it has to end with"),
        (("PLAIN",), {"sasl_jaas_config": Password("${file:/none/secret}")}, "the file /none/secret cannot be read"),
        (("PLAIN",), {"fencepost_plain_users_file": "/none/users"}, "cannot read /none/users: No such file"),
        (("OAUTHBEARER",), {}, "has no keys to verify tokens: set sasl.oauthbearer.jwks.endpoint.url"),
        (("OAUTHBEARER",), {"sasl_oauthbearer_jwks_endpoint_url": "http://a/b"}, "expected https"),
        (("OAUTHBEARER",), {"sasl_oauthbearer_jwks_endpoint_url": "file:///none.json"}, "No such file"),
        (
            ("OAUTHBEARER",),
            {"sasl_oauthbearer_jwks_endpoint_url": "file:///a", "fencepost_sasl_oauthbearer_unsecured": True},
            "exclude each other",
        ),
        (
            ("OAUTHBEARER",),
            {"listeners": ("SASL_PLAINTEXT://0.0.0.0:0",), "fencepost_sasl_oauthbearer_unsecured": True},
            "only allowed on a listener of this machine",
        ),
    ],
)
async def test_a_start_without_what_a_mechanism_needs_says_what_to_do(
    tmp_path: Path, mechanisms: tuple[str, ...], chosen: dict[str, Any], problem: str
) -> None:
    with pytest.raises(StartError) as raised:
        await Node(settings(tmp_path, *mechanisms, **chosen)).start()
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_passwords_in_clear_text_on_a_network_are_warned_of(tmp_path: Path) -> None:
    with capture_logs() as lines:
        chosen = {"listeners": ("SASL_PLAINTEXT://0.0.0.0:0",), "sasl_jaas_config": Password(JAAS)}
        async with broker(tmp_path, "PLAIN", **chosen):
            pass
    warned = [line for line in lines if line["event"] == "passwords_in_clear_text"]
    assert [line["listener"] for line in warned] == [LISTENER]
    assert "alice-secret" not in json.dumps(lines, default=repr)


async def test_authentications_are_counted_for_metrics(tmp_path: Path) -> None:
    async with broker(tmp_path, "PLAIN", sasl_jaas_config=Password(JAAS)) as node:
        for password in ("alice-secret", "wrong", "wrong"):
            client = await SocketClient.connect(node)
            await client.plain("alice", password)
            await client.close()
        assert node.servers.of_clients[0].authentication_counts == AuthenticationCounts(succeeded=1, failed=2)
