"""Delegation tokens in the metadata store: kept, shared, bounded, and without their secrets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.security import delegation_token_store
from fencepost.broker.security.delegation_token_store import TOKENS_KEY, DelegationTokens
from fencepost.broker.security.delegation_tokens import Lifetimes, Token
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from tests.support.captured_events import capture_logs
from tests.support.handler_context import NOW_MS, ManualClock

ALICE, BOB, CAROL = "User:alice", "User:bob", "User:carol"
LIFETIMES = Lifetimes(7_000, 1_000)
NOT_FOUND = ErrorCode.DELEGATION_TOKEN_NOT_FOUND


def opened(store: InMemoryMetadataStore, clock: Any = None, key: str = "key") -> DelegationTokens:
    return DelegationTokens(store, key, LIFETIMES, clock or ManualClock())


async def create(tokens: DelegationTokens, token_id: str = "id") -> Token:
    token = await tokens.create(token_id, ALICE, BOB, [CAROL], -1)
    assert isinstance(token, Token)
    return token


async def test_a_restart_finds_the_tokens_with_the_same_secrets() -> None:
    store = InMemoryMetadataStore("c")
    before = opened(store)
    token = await create(before)
    after = opened(store)
    assert after.all == {}
    await after.open()
    assert after.all == {"id": token}
    assert after.secret("id") == before.secret("id")
    assert after.id_of(before.secret("id")) == "id"


async def test_no_secret_is_stored_or_logged() -> None:
    store = InMemoryMetadataStore("c")
    tokens = opened(store, key="the secret key")
    with capture_logs() as lines:
        await create(tokens)
        await tokens.renew(tokens.secret("id"), ALICE, -1)
    stored, _ = await store.read_versioned(TOKENS_KEY)
    assert stored is not None
    kept = stored.decode() + json.dumps(lines, default=repr)
    assert "the secret key" not in kept
    assert tokens.secret("id").hex() not in kept
    assert json.loads(stored)[0][:4] == ["id", ALICE, BOB, [CAROL]]


async def test_with_another_secret_key_no_secret_of_before_is_known() -> None:
    store = InMemoryMetadataStore("c")
    before = opened(store)
    await create(before)
    after = opened(store, key="another")
    await after.open()
    assert await after.renew(before.secret("id"), ALICE, -1) is NOT_FOUND
    assert after.valid("id") is not None
    assert isinstance(await after.renew(after.secret("id"), ALICE, -1), Token)


async def test_two_nodes_renew_one_token_and_the_later_renewal_counts() -> None:
    store, clock = InMemoryMetadataStore("c"), ManualClock()
    here, there = opened(store, clock), opened(store, clock)
    await create(here)
    secret = here.secret("id")
    first = await there.renew(secret, ALICE, 100)  # that node has not heard of the token yet
    assert isinstance(first, Token)
    assert first.expires_ms == NOW_MS + 100
    clock.time_ms += 50
    second = await here.renew(secret, CAROL, 200)
    assert isinstance(second, Token)
    assert second.expires_ms == NOW_MS + 250
    await there.open()
    assert there.all == here.all == {"id": second}


async def test_the_same_renewal_twice_writes_once() -> None:
    store = InMemoryMetadataStore("c")
    tokens = opened(store)
    await create(tokens)
    _, version = await store.read_versioned(TOKENS_KEY)
    for _ in range(2):
        assert isinstance(await tokens.renew(tokens.secret("id"), ALICE, -1), Token)
    assert (await store.read_versioned(TOKENS_KEY))[1] == version


async def test_a_token_that_another_node_removed_is_not_found() -> None:
    store = InMemoryMetadataStore("c")
    here, there = opened(store), opened(store)
    await create(here)
    await there.open()
    secret = here.secret("id")
    assert await there.expire(secret, ALICE, -1) is None
    assert here.valid("id") is not None
    assert await here.renew(secret, ALICE, -1) is NOT_FOUND
    assert here.valid("id") is None
    assert here.id_of(secret) is None
    assert await here.expire(secret, ALICE, -1) is NOT_FOUND


@pytest.mark.parametrize("secret", [b"", b"id", b"x" * 64])
async def test_what_is_no_secret_of_a_token_is_not_found(secret: bytes) -> None:
    tokens = opened(InMemoryMetadataStore("c"))
    await create(tokens)
    assert await tokens.renew(secret, ALICE, -1) is NOT_FOUND


async def test_an_expired_token_is_not_valid_and_removed_by_whichever_node_comes_first() -> None:
    store, clock = InMemoryMetadataStore("c"), ManualClock()
    here, there = opened(store, clock), opened(store, clock)
    await create(here)
    assert here.valid("id") is not None
    clock.time_ms += 1_001
    assert here.valid("id") is None
    with capture_logs() as lines:
        await there.remove_expired()
        await here.remove_expired()
    assert here.all == there.all == {}
    assert [line["event"] for line in lines] == ["delegation_tokens_expired"]


async def test_of_two_nodes_whose_clocks_differ_each_tells_by_its_own_whether_a_token_is_expired() -> None:
    store, behind, ahead = InMemoryMetadataStore("c"), ManualClock(), ManualClock()
    ahead.time_ms += 600
    here, there = opened(store, behind), opened(store, ahead)
    await create(here)
    await there.open()
    assert there.valid("id") is not None
    behind.time_ms += 500
    ahead.time_ms += 500
    assert here.valid("id") is not None
    assert there.valid("id") is None
    assert isinstance(await here.renew(here.secret("id"), ALICE, -1), Token)
    await there.open()
    assert there.valid("id") is not None, "a renewal counts at both"


async def test_a_token_that_one_node_removes_is_over_at_a_node_whose_clock_is_behind() -> None:
    store, behind, ahead = InMemoryMetadataStore("c"), ManualClock(), ManualClock()
    ahead.time_ms += 3_600_000
    here, there = opened(store, behind), opened(store, ahead)
    await create(here, "ended")
    await there.open()
    assert await there.expire(there.secret("ended"), ALICE, -1) is None, "who may end it may end an expired one"
    await create(here, "expired")
    await there.remove_expired()
    await here.open()
    assert here.all == {}
    assert here.valid("ended") is None


async def test_a_clock_that_jumps_removes_no_token_before_the_next_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    ahead_ms = 0
    now_ms = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + ahead_ms)
    tokens = opened(InMemoryMetadataStore("c"), clock)
    await create(tokens)
    ahead_ms = 3_600_000
    await tokens.remove_expired()
    assert list(tokens.all) == ["id"]
    assert tokens.valid("id") is None
    await tokens.remove_expired()
    assert tokens.all == {}


async def test_a_change_that_cannot_be_stored_is_not_in_force() -> None:
    store = InMemoryMetadataStore("c")
    tokens = opened(store)
    token = await create(tokens)

    async def failing(*_: Any, **__: Any) -> bool:
        raise StorageError("the disk is full")

    store.compare_and_set = failing  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        await tokens.create("other", ALICE, ALICE, [], -1)
    with pytest.raises(StorageError):
        await tokens.expire(tokens.secret("id"), ALICE, -1)
    assert tokens.all == {"id": token}


async def test_tokens_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delegation_token_store, "MAXIMUM_TOKENS", 2)
    clock = ManualClock()
    tokens = opened(InMemoryMetadataStore("c"), clock)
    await create(tokens, "a")
    await create(tokens, "b")
    assert await tokens.create("c", ALICE, ALICE, [], -1) is ErrorCode.POLICY_VIOLATION
    await tokens.expire(tokens.secret("a"), ALICE, -1)
    await create(tokens, "c")
    assert list(tokens.all) == ["b", "c"]
    clock.time_ms += 1_001
    await create(tokens, "d")
    assert list(tokens.all) == ["d"], "expired ones count no more"


@pytest.mark.parametrize(
    "stored",
    [
        b"{}1",
        b"[1]",
        b'[["id"]]',
        b'[["id","o","r",[],1,2,-3]]',
        b'[["id","o","r",[],1,2,3,4]]',
        b'[[1,"o","r",[],1,2,3]]',
    ],
)
async def test_stored_tokens_that_cannot_be_read_stop_the_start(stored: bytes) -> None:
    store = InMemoryMetadataStore("c")
    await store.compare_and_set(TOKENS_KEY, stored, 0)
    with pytest.raises(StorageError, match="delegation-tokens"):
        await opened(store).open()
