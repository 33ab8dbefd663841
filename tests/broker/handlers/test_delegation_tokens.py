"""Delegation tokens: created, renewed, ended and listed; off without a secret key; refused without authentication."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.requests.api import APIS, RequestContext
from fencepost.broker.security import delegation_token_store
from fencepost.broker.security.delegation_token_store import DelegationTokens
from fencepost.broker.security.delegation_tokens import MAXIMUM_NAMES_CHARACTERS, Lifetimes
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from tests.support.captured_events import capture_logs
from tests.support.handler_calls import LocalConnection
from tests.support.handler_context import NOW_MS, HandlerBroker, finished, open_broker

ANONYMOUS = ("User", "ANONYMOUS")
HOUR_MS = 3_600_000
LIFETIMES = Lifetimes(7 * HOUR_MS, HOUR_MS)


class Connection(LocalConnection):
    def __init__(self, name: str) -> None:
        self.principal = f"User:{name}"


class TokenBroker:
    """A broker with a secret key, without an authorizer."""

    def __init__(self, broker: HandlerBroker) -> None:
        self.broker = broker
        self.clock = broker.clock
        self.tokens = DelegationTokens(InMemoryMetadataStore("c"), "key", LIFETIMES, broker.clock)
        broker.services.delegation_tokens = self.tokens

    async def call(self, name: str, request: Any, version: int | None = None) -> Any:
        api = APIS[request.api_key]
        version = api.maximum_version if version is None else version
        context = RequestContext(self.broker.services, version, 1, "test", Connection(name))
        return self.broker.received(await finished(api.handler(context, request)), version)

    async def create(self, name: str = "alice", version: int = 3, **fields: Any) -> Any:
        return await self.call(name, CreateDelegationTokenRequest(**fields), version)

    async def described(self, name: str, *owners: str) -> list[Any]:
        wanted = [DescribeDelegationTokenOwner("User", owner) for owner in owners] if owners else None
        reply = await self.call(name, DescribeDelegationTokenRequest(wanted))
        assert reply.error_code == 0
        return list(reply.tokens)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


@pytest.fixture
async def token_broker(broker: HandlerBroker) -> TokenBroker:
    return TokenBroker(broker)


@pytest.mark.parametrize(
    ("asked_for", "owner"),
    [
        (("User", "alice"), ("User", "alice")),
        (("", ""), ANONYMOUS),
        ((None, None), ANONYMOUS),
        (("User", ""), ANONYMOUS),
    ],
)
async def test_the_owner_is_the_named_principal_or_else_the_requester(
    broker: HandlerBroker, asked_for: tuple[str | None, str | None], owner: tuple[str, str]
) -> None:
    kind, name = asked_for
    request = CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=name)
    refused = await broker.call(request, 3)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert (refused.principal_type, refused.principal_name) == owner
    assert (refused.token_requester_principal_type, refused.token_requester_principal_name) == ANONYMOUS


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_token_is_created_and_described_at_every_version(token_broker: TokenBroker, version: int) -> None:
    created = await token_broker.create("alice", version, renewers=[CreatableRenewers("User", "carol")])
    assert (created.error_code, created.principal_type, created.principal_name) == (0, "User", "alice")
    assert created.issue_timestamp_ms == NOW_MS
    assert created.expiry_timestamp_ms == NOW_MS + HOUR_MS
    assert created.max_timestamp_ms == NOW_MS + 7 * HOUR_MS
    assert len(created.hmac) == 64
    reply = await token_broker.call("carol", DescribeDelegationTokenRequest(None), version)
    (shown,) = reply.tokens
    assert (shown.token_id, shown.hmac) == (created.token_id, created.hmac)
    assert (shown.issue_timestamp, shown.expiry_timestamp, shown.max_timestamp) == (
        NOW_MS,
        NOW_MS + HOUR_MS,
        NOW_MS + 7 * HOUR_MS,
    )
    assert [renewer.principal_name for renewer in shown.renewers] == ["carol"]


@pytest.mark.parametrize("version", [1, 2])
async def test_a_token_is_renewed_and_ended(token_broker: TokenBroker, version: int) -> None:
    created = await token_broker.create(renewers=[CreatableRenewers("User", "carol")])
    token_broker.clock.time_ms += 1_000
    renewal = RenewDelegationTokenRequest(created.hmac, -1)
    for _ in range(2):
        renewed = await token_broker.call("carol", renewal, version)
        assert (renewed.error_code, renewed.expiry_timestamp_ms) == (0, NOW_MS + 1_000 + HOUR_MS)
    soon = await token_broker.call("alice", ExpireDelegationTokenRequest(created.hmac, 500), version)
    assert (soon.error_code, soon.expiry_timestamp_ms) == (0, NOW_MS + 1_500)
    now = await token_broker.call("alice", ExpireDelegationTokenRequest(created.hmac, -1), version)
    assert (now.error_code, now.expiry_timestamp_ms) == (0, NOW_MS + 1_000)
    gone = await token_broker.call("alice", renewal, version)
    assert gone.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


@pytest.mark.parametrize("request_", [RenewDelegationTokenRequest, ExpireDelegationTokenRequest])
async def test_neither_strangers_nor_late_owners_change_a_token(token_broker: TokenBroker, request_: Any) -> None:
    created = await token_broker.create()
    request = request_(created.hmac, 100)
    refused = await token_broker.call("mallory", request)
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    token_broker.clock.time_ms += HOUR_MS + 1
    late = await token_broker.call("alice", request)
    assert late.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


async def test_without_an_authorizer_others_list_tokens_with_their_secrets_and_create_them_for_anybody_but_change_none(
    token_broker: TokenBroker,
) -> None:
    """As Apache Kafka 4.4, which was asked the same."""
    made = await token_broker.create("alice")
    shown = await token_broker.described("bob")
    assert [(token.token_id, bytes(token.hmac)) for token in shown] == [(made.token_id, bytes(made.hmac))]
    assert [token.token_id for token in await token_broker.described("bob", "alice")] == [made.token_id]
    for_another = await token_broker.create("bob", owner_principal_type="User", owner_principal_name="alice")
    assert (for_another.error_code, for_another.principal_name) == (ErrorCode.NONE, "alice")
    for request in (RenewDelegationTokenRequest(made.hmac, -1), ExpireDelegationTokenRequest(made.hmac, -1)):
        refused = await token_broker.call("bob", request)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH


async def test_tokens_are_listed_by_owner_and_none_for_no_owner(token_broker: TokenBroker) -> None:
    for name in ("alice", "bob"):
        await token_broker.create(name)
    assert len(await token_broker.described("alice")) == 2, "without an authorizer, everybody may describe all"
    assert [token.principal_name for token in await token_broker.described("alice", "bob", "carol")] == ["bob"]
    reply = await token_broker.call("alice", DescribeDelegationTokenRequest([]))
    assert (reply.error_code, reply.tokens) == (0, [])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"renewers": [CreatableRenewers("Group", "g")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ({"renewers": [CreatableRenewers("", "")]}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        # A client with a token is a user: there are no others.
        ({"owner_principal_type": "Node", "owner_principal_name": "n"}, ErrorCode.INVALID_PRINCIPAL_TYPE),
        ({"renewers": [CreatableRenewers("User", "r" * MAXIMUM_NAMES_CHARACTERS)]}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_token_that_cannot_be_is_not_created(
    token_broker: TokenBroker, fields: dict[str, Any], error: ErrorCode
) -> None:
    refused = await token_broker.create(**fields)
    assert (refused.error_code, refused.token_id, refused.hmac) == (error, "", b"")
    assert token_broker.tokens.all == {}


async def test_too_many_tokens_and_a_full_disk_are_named(
    token_broker: TokenBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = await token_broker.create()
    monkeypatch.setattr(delegation_token_store, "MAXIMUM_TOKENS", 1)
    assert (await token_broker.create()).error_code == ErrorCode.POLICY_VIOLATION

    async def failing(*_: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(DelegationTokens, "_change", failing)
    for request in (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(created.hmac, -1),
        ExpireDelegationTokenRequest(created.hmac, -1),
    ):
        assert (await token_broker.call("alice", request)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_without_a_secret_key_there_are_no_tokens(token_broker: TokenBroker) -> None:
    token_broker.broker.services.delegation_tokens = None
    for request in (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(b"x", -1),
        ExpireDelegationTokenRequest(b"x", -1),
        DescribeDelegationTokenRequest(None),
    ):
        reply = await token_broker.call("alice", request)
        assert reply.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_the_audit_log_has_each_change_with_the_id_and_without_the_secret(token_broker: TokenBroker) -> None:
    with capture_logs() as lines:
        created = await token_broker.create()
        await token_broker.call("alice", RenewDelegationTokenRequest(created.hmac, 5))
        await token_broker.call("mallory", ExpireDelegationTokenRequest(created.hmac, -1))
        await token_broker.call("alice", ExpireDelegationTokenRequest(created.hmac, 5))
        await token_broker.call("alice", ExpireDelegationTokenRequest(created.hmac, -1))
    audited = [line for line in lines if line.get("resource_type") == "DELEGATION_TOKEN"]
    assert [line["operation"] for line in audited] == ["CREATE", "ALTER", "ALTER", "DELETE"]
    assert {line["resource_name"] for line in audited} == {created.token_id}
    assert repr(created.hmac) not in repr(lines)
