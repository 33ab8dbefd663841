"""Rules in the metadata store: kept, shared and bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.security import acl_store
from fencepost.broker.security.acl_store import ACLS_KEY, Acls, TooManyRulesError
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.storage.disk import StorageError
from tests.support.secured_broker import ALICE, rule

READ, TOPIC = AclOperation.READ, AclResource.TOPIC


async def test_a_change_that_cannot_be_stored_is_not_in_force() -> None:
    store = InMemoryMetadataStore("c")
    acls = Acls(store, Authorizer())
    await acls.open()
    await acls.add([rule(READ, TOPIC, "orders")])

    async def failing(*_: Any, **__: Any) -> bool:
        raise StorageError("the disk is full")

    store.compare_and_set = failing  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        await acls.remove([lambda _: True])
    with pytest.raises(StorageError):
        await acls.add([rule(READ, TOPIC, "payments")])
    rights = acls.authorizer.rights(ALICE, "h")
    assert rights.may(READ, TOPIC, "orders")
    assert not rights.may(READ, TOPIC, "payments")


async def test_two_brokers_with_one_store_keep_each_other_s_rules() -> None:
    store = InMemoryMetadataStore("c")
    one, other = Acls(store, Authorizer()), Acls(store, Authorizer())
    await one.add([rule(READ, TOPIC, "orders")])
    await other.add([rule(READ, TOPIC, "payments")])
    await one.remove([lambda found: found.name == "none"])
    assert {found.name for found in one.matching(lambda _: True)} == {"orders", "payments"}
    assert one.authorizer.rights(ALICE, "h").may(READ, TOPIC, "payments")


async def test_rules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_store, "MAXIMUM_RULES", 3)
    acls = Acls(InMemoryMetadataStore("c"), Authorizer())
    await acls.add([rule(READ, TOPIC, name) for name in "abc"])
    with pytest.raises(TooManyRulesError, match="at most 3"):
        await acls.add([rule(READ, TOPIC, "d")])
    assert await acls.add([rule(READ, TOPIC, "a")]) == []


async def test_stored_rules_that_cannot_be_read_stop_the_start() -> None:
    store = InMemoryMetadataStore("c")
    assert await store.compare_and_set(ACLS_KEY, b'[["TOPIC", "LITERAL", "x"]]', 0)
    with pytest.raises(StorageError, match="acls"):
        await Acls(store, Authorizer()).open()


async def test_a_stored_rule_concerns_its_host_however_the_address_is_written() -> None:
    store = InMemoryMetadataStore()
    stored = ["TOPIC", "LITERAL", "orders", ALICE, "0:0:0:0:0:0:0:1", "READ", "ALLOW"]
    assert await store.compare_and_set(ACLS_KEY, json.dumps([stored]).encode(), 0)
    authorizer = Authorizer()
    await Acls(store, authorizer).open()
    assert authorizer.rights(ALICE, "::1").may(READ, TOPIC, "orders")
