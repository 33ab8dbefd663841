"""Delegation tokens: every request is refused, and the reply names the owner of the requested token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delegation_tokens import CreateDelegationTokenRequest
from tests.support.handler_context import HandlerBroker, open_broker

ANONYMOUS = ("User", "ANONYMOUS")


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[HandlerBroker]:
    async with open_broker(tmp_path) as opened:
        yield opened


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
