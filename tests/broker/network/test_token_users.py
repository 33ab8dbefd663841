"""The keys of delegation tokens: those of the secret as text, as Kafka's clients send it."""

from __future__ import annotations

import base64

import pytest
import scramp

from fencepost.broker.hosting.scram_credentials import ScramMechanism
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.network.token_users import TokenUsers
from fencepost.broker.security.delegation_token_store import DelegationTokens
from fencepost.broker.security.delegation_tokens import Lifetimes
from tests.support.handler_context import NOW_MS, ManualClock


async def tokens(clock: ManualClock, key: str = "key") -> DelegationTokens:
    made = DelegationTokens(InMemoryMetadataStore("c"), key, Lifetimes(7_000, 1_000), clock)
    await made.create("id", "User:a:b", "User:admin", [], -1)
    return made


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
async def test_the_keys_are_those_of_the_secret_in_base_64(mechanism: ScramMechanism) -> None:
    made = await tokens(ManualClock())
    found = TokenUsers(mechanism, made).find("id")
    assert found is not None
    name = mechanism.name.replace("_", "-")
    salt, stored_key, server_key, iterations = scramp.ScramMechanism(name).make_auth_info(
        base64.b64encode(made.secret("id")).decode(), salt=found.keys.salt, iteration_count=4096
    )
    keys = found.keys
    assert (keys.salt, keys.stored_key, keys.server_key, keys.iterations) == (salt, stored_key, server_key, iterations)
    assert (found.owner, found.expires_at_ms) == ("a:b", NOW_MS + 1_000)


async def test_keys_are_made_once_and_of_no_token_that_is_unknown_expired_or_removed() -> None:
    clock = ManualClock()
    made = await tokens(clock)
    users = TokenUsers(ScramMechanism.SCRAM_SHA_256, made)
    first, again = users.find("id"), users.find("id")
    assert first is not None
    assert again is not None
    assert first.keys is again.keys
    assert users.find("other") is None
    clock.time_ms += 1_001
    assert users.find("id") is None
    clock.time_ms -= 1_001
    await made.expire(made.secret("id"), "User:a:b", -1)
    assert users.find("id") is None
