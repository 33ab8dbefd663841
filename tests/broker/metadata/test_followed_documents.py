"""What one node changes in a document is in force on the others at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.hosting.broker_configs import ALL_BROKERS, BrokerConfigs
from fencepost.broker.hosting.features import TRANSACTION_VERSION, Features, FeatureUpdate, UpgradeType
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.hosting.scram_credentials import ScramCredentials, ScramMechanism, credential_of
from fencepost.broker.kernel import supervision
from fencepost.broker.metadata import followed_documents
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.followed_documents import FOLLOWING, FollowedDocuments
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.quotas.entities import entity_of
from fencepost.broker.security.acl_store import Acls
from fencepost.broker.security.acls import AclOperation, AclPattern, AclPermission, AclResource, AclRule
from fencepost.broker.security.authorizer import Authorizer
from fencepost.broker.security.delegation_token_store import DelegationTokens
from fencepost.broker.security.delegation_tokens import Lifetimes
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs
from tests.support.cluster import COORDINATOR, DATA, NODE_IDS, running_cluster
from tests.support.log_world import ManualClock

RULE = AclRule(
    AclResource.TOPIC,
    AclPattern.LITERAL,
    "orders",
    "User:alice",
    "*",
    AclOperation.READ,
    AclPermission.ALLOW,
)


class Holders:
    """Every holder of a document, as one node has them, and the following of changes."""

    def __init__(self, store: InMemoryMetadataStore, node_id: int) -> None:
        self.store = store
        self.settings = Settings(node_id=node_id)
        self.configs = BrokerConfigs(store, self.settings)
        self.features = Features(store, self.settings)
        self.quotas = ClientQuotas(store, self.settings, ManualClock())
        self.users = ScramCredentials(store)
        self.groups = GroupConfigs(store, self.settings)
        self.acls = Acls(store, Authorizer())
        self.tokens = DelegationTokens(store, "key", Lifetimes(7_000, 1_000), ManualClock())
        self.documents = [
            holder.open
            for holder in (self.configs, self.features, self.quotas, self.users, self.groups, self.acls, self.tokens)
        ]
        self.following = FollowedDocuments(store, self.documents)

    async def open(self) -> None:
        for open_document in self.documents:
            await open_document()
        self.following.start()
        await self.are_current()

    async def are_current(self) -> None:
        assert self.following._following is not None
        await self.following._following


async def two_nodes() -> tuple[Holders, Holders]:
    store = InMemoryMetadataStore()
    here, there = Holders(store, 1), Holders(store.for_another_node(), 2)
    await here.open()
    await there.open()
    return here, there


async def test_a_right_is_in_force_on_every_node_when_one_grants_or_revokes_it() -> None:
    here, there = await two_nodes()

    def is_allowed() -> bool:
        return there.acls.authorizer.allows("User:alice", "h", AclOperation.READ, AclResource.TOPIC, "orders")

    await here.acls.add([RULE])
    await until(is_allowed)
    await here.acls.remove([lambda _: True])
    await until(lambda: not is_allowed())


async def test_a_quota_is_in_force_on_every_node() -> None:
    here, there = await two_nodes()
    entity = entity_of([("client-id", "loud")])
    await here.quotas.change(entity, {"producer_byte_rate": 10.0})
    await until(lambda: there.quotas.is_active)
    meter = there.quotas.meter("User:x", "loud", produced_bytes=100_000, mute=lambda _: None)
    assert meter is not None
    assert meter.finish() > 0
    await here.quotas.change(entity, {"producer_byte_rate": None})
    await until(lambda: not there.quotas.is_active)


async def test_a_user_is_known_on_every_node_and_unknown_when_removed() -> None:
    here, there = await two_nodes()
    credential = credential_of(ScramMechanism.SCRAM_SHA_256, 4096, b"salt", b"x" * 32)
    await here.users.change({("alice", ScramMechanism.SCRAM_SHA_256): credential})
    await until(lambda: there.users.all)
    assert there.users.all == {"alice": {ScramMechanism.SCRAM_SHA_256: credential}}
    await here.users.change({("alice", ScramMechanism.SCRAM_SHA_256): None})
    await until(lambda: not there.users.all)


async def test_a_delegation_token_is_known_on_every_node_and_unknown_when_it_ends() -> None:
    here, there = await two_nodes()
    await here.tokens.create("id", "User:alice", "User:alice", [], -1)
    await until(lambda: there.tokens.valid("id"))
    assert there.tokens.id_of(here.tokens.secret("id")) == "id"
    await there.tokens.expire(there.tokens.secret("id"), "User:alice", -1)
    await until(lambda: not here.tokens.valid("id"))


async def test_configs_of_all_brokers_are_in_force_on_every_node_and_those_of_one_only_there() -> None:
    here, there = await two_nodes()
    changes: list[str] = []
    there.configs.on_changed.append(lambda: changes.append("changed"))
    there.configs.on_repeated.append(lambda: changes.append("repeated"))
    for _ in range(2):
        await here.configs.alter(ALL_BROKERS, lambda _: {"log.retention.ms": "5000"}, validate_only=False)
        await there.are_current()
    assert there.settings.log_retention_ms == 5000
    assert changes == ["changed", "repeated"], "files that the configs name may have changed"
    await here.configs.alter("2", lambda _: {"log.retention.ms": "7000"}, validate_only=False)
    await until(lambda: there.settings.log_retention_ms == 7000)
    assert here.settings.log_retention_ms == 5000


async def test_what_a_node_finds_while_it_changes_something_else_is_in_force_there_too() -> None:
    here, there = await two_nodes()
    await there.following.close()
    await here.configs.alter(ALL_BROKERS, lambda _: {"log.retention.ms": "5000"}, validate_only=False)
    await there.configs.alter("2", lambda _: {"log.segment.bytes": "1048576"}, validate_only=False)
    assert (there.settings.log_retention_ms, there.settings.log_segment_bytes) == (5000, 1_048_576)


async def test_a_level_of_a_feature_is_in_force_on_every_node() -> None:
    here, there = await two_nodes()
    levels: list[int] = []
    there.features.on_changed.append(lambda: levels.append(there.features.level(TRANSACTION_VERSION)))
    await here.features.update([FeatureUpdate(TRANSACTION_VERSION, 1, UpgradeType.SAFE_DOWNGRADE)])
    await until(lambda: levels)
    assert levels == [1]


async def test_configs_of_a_group_are_in_force_on_every_node() -> None:
    here, there = await two_nodes()
    name = "consumer.session.timeout.ms"
    await here.groups.alter("group", lambda _: {name: "50000"}, validate_only=False)
    await until(lambda: there.groups.value("group", name) == 50_000)


async def test_a_document_never_goes_back_to_an_older_content() -> None:
    """While a change is being written, the same node reads what another has written after it."""
    store = InMemoryMetadataStore()
    here = VersionedDocument[int](store, "n", read=lambda content: content or 0, write=lambda content: content)
    there = VersionedDocument[int](store, "n", read=lambda content: content or 0, write=lambda content: content)
    real = store.compare_and_set

    async def slow(key: str, value: bytes, expected_version: int, *, may_use_reserve: bool = False) -> bool:
        written = await real(key, value, expected_version)
        store.compare_and_set = real  # type: ignore[method-assign]
        await there.change(lambda _: 2)
        await here.load()
        return written

    store.compare_and_set = slow  # type: ignore[method-assign]
    await here.change(lambda _: 1)
    assert here.content == 2


async def test_a_change_that_cannot_be_read_is_tried_until_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_documents, "FIRST_RETRY_PAUSE_S", 0.001)
    here, there = await two_nodes()
    real = there.store.read_versioned
    failing = raising(StorageError("planted"), times=3, then=real)
    there.store.read_versioned = failing  # type: ignore[method-assign]
    with capture_logs() as lines:
        await here.acls.add([RULE])
        await until(lambda: there.acls.matching(lambda _: True))
    assert [line["event"] for line in lines] == ["changed_documents_not_read"] * 3


@plants(FOLLOWING)
@unforeseen
async def test_following_goes_on_after_an_unforeseen_failure(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    store = InMemoryMetadataStore()
    read: list[str] = []

    async def reopen() -> None:
        fail()
        read.append("read")

    fail: Callable[[], None] = raising(error, times=1)
    following = FollowedDocuments(store.for_another_node(), [reopen])
    with logged(FOLLOWING):
        following.start()
        await until(lambda: read)
    await store.compare_and_set("x", b"1", 0)
    await until(lambda: len(read) > 1)
    await following.close()
    await store.compare_and_set("x", b"2", 1)
    await asyncio.sleep(0)
    assert len(read) == 2


async def test_nodes_of_a_cluster_follow_each_other(tmp_path: Path) -> None:
    async with running_cluster(tmp_path) as cluster:
        here, there = (cluster.node(node_id).services for node_id in NODE_IDS)
        await here.client_quotas.change(entity_of([("client-id", "loud")]), {"producer_byte_rate": 10.0})
        await until(lambda: there.client_quotas.is_active)
        await there.features.update([FeatureUpdate(TRANSACTION_VERSION, 1, UpgradeType.SAFE_DOWNGRADE)])
        await until(lambda: here.features.level(TRANSACTION_VERSION) == 1)
        assert {COORDINATOR, DATA} == set(NODE_IDS)
