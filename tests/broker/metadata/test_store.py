"""All metadata stores keep what they are given; those on disk across restarts and accidents, too."""

from __future__ import annotations

import base64
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.cluster.postgres.metadata_store import PostgresMetadataStore
from fencepost.broker.config import Settings
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.metadata import sqlite
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore, prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.storage.disk import StorageError
from tests.support.log_world import ManualClock

ORDERS = TopicMetadata("orders", b"o" * 16, 3, {"retention.ms": "1000"})
PAYMENTS = TopicMetadata("payments", b"p" * 16, 1)


@pytest.fixture(params=["sqlite", "sqlite, shared", "postgres", "in memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    path = str(tmp_path / FILE_NAME)
    made: MetadataStore
    match request.param:
        case "sqlite":
            made = SqliteMetadataStore(path)
        case "sqlite, shared":
            await prepare_shared(path)
            made = SharedSqliteMetadataStore(path)
        case "postgres":
            made = PostgresMetadataStore(parse_address(request.getfixturevalue("cluster_url")))
        case _:
            made = InMemoryMetadataStore()
    await made.open()
    yield made
    await made.close()


async def reopen(store: MetadataStore) -> None:
    await store.close()
    await store.open()


async def test_the_cluster_id_is_a_url_safe_uuid_and_stays(store: MetadataStore) -> None:
    cluster_id = await store.cluster_id()
    assert len(cluster_id) == 22
    assert len(base64.urlsafe_b64decode(cluster_id + "==")) == 16
    await reopen(store)
    assert await store.cluster_id() == cluster_id


async def test_topics_are_found_again(store: MetadataStore) -> None:
    assert await store.create_topic(ORDERS)
    assert await store.create_topic(PAYMENTS)
    await reopen(store)
    topics = sorted(await store.load_topics(), key=lambda topic: topic.name)
    assert topics == [ORDERS, PAYMENTS]


async def test_a_name_is_taken_once(store: MetadataStore) -> None:
    assert await store.create_topic(ORDERS)
    assert not await store.create_topic(TopicMetadata("orders", b"x" * 16, 1))
    assert await store.load_topics() == [ORDERS]


async def test_a_topic_grows_and_its_configs_are_replaced(store: MetadataStore) -> None:
    await store.create_topic(ORDERS)
    assert await store.set_partition_count("orders", 5, topic_id=ORDERS.topic_id, before=3)
    assert await store.set_topic_configs(
        "orders", {"cleanup.policy": "compact"}, topic_id=ORDERS.topic_id, before=ORDERS.configs
    )
    await reopen(store)
    assert await store.load_topics() == [TopicMetadata("orders", b"o" * 16, 5, {"cleanup.policy": "compact"})]


async def test_missing_entries_cannot_be_changed(store: MetadataStore) -> None:
    assert not await store.set_partition_count("orders", 5, topic_id=ORDERS.topic_id, before=3)
    assert not await store.set_topic_configs("orders", {}, topic_id=ORDERS.topic_id, before={})
    assert not await store.delete_topic("orders", ORDERS.topic_id)


async def test_a_topic_of_another_id_is_not_changed(store: MetadataStore) -> None:
    await store.create_topic(ORDERS)
    assert not await store.set_partition_count("orders", 5, topic_id=b"x" * 16, before=3)
    assert not await store.set_topic_configs("orders", {}, topic_id=b"x" * 16, before=ORDERS.configs)
    assert await store.load_topics() == [ORDERS]


async def test_a_topic_of_another_id_is_not_deleted(store: MetadataStore) -> None:
    await store.create_topic(ORDERS)
    assert not await store.delete_topic("orders", b"x" * 16)
    assert await store.load_topics() == [ORDERS]
    assert await store.load_deletions() == []


async def test_a_deletion_is_remembered_until_it_is_finished(store: MetadataStore) -> None:
    await store.create_topic(ORDERS)
    assert await store.delete_topic("orders", ORDERS.topic_id)
    await reopen(store)
    assert await store.load_topics() == []
    assert await store.load_deletions() == [ORDERS]
    assert await store.create_topic(TopicMetadata("orders", b"n" * 16, 1)), "the name is free at once"
    await store.finish_deletion(ORDERS.topic_id)
    await reopen(store)
    assert await store.load_deletions() == []


async def test_a_versioned_value_is_written_only_over_the_version_that_was_read(store: MetadataStore) -> None:
    assert await store.read_versioned("block") == (None, 0)
    assert await store.compare_and_set("block", b"first", 0)
    assert not await store.compare_and_set("block", b"other", 0)
    assert await store.read_versioned("block") == (b"first", 1)
    assert await store.compare_and_set("block", b"second", 1)
    assert not await store.compare_and_set("block", b"other", 1)
    await reopen(store)
    assert await store.read_versioned("block") == (b"second", 2)


# The copy beside the file


# A full disk


async def test_on_a_full_disk_topics_are_deleted_and_configs_changed_but_none_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 3_600.0)  # with the copy the reserve is taken again
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    for index in range(8):
        topic = TopicMetadata(f"topic-{index}", index.to_bytes(16, "big"), 1, {"note": "x" * 9_000})
        assert await store.create_topic(topic)
    reserve = tmp_path / f"{FILE_NAME}.reserve"
    assert reserve.stat().st_blocks * 512 >= 1_000_000

    def limit(page_count: int) -> None:
        store._database.execute(f"PRAGMA max_page_count = {page_count}").fetchone()  # type: ignore[union-attr]

    await store._run(lambda: limit(1))  # as many as there are now
    real_truncate = os.truncate

    def truncate(path: str, length: int) -> None:
        real_truncate(path, length)
        limit(1_000_000)

    monkeypatch.setattr(os, "truncate", truncate)
    with pytest.raises(StorageError, match="full"):
        await store.create_topic(TopicMetadata("more", b"m" * 16, 1, {"note": "x" * 90_000}))
    assert reserve.stat().st_size > 0
    assert await store.delete_topic("topic-0", (0).to_bytes(16, "big"))
    assert reserve.stat().st_size == 0
    await store._run(lambda: limit(1))
    await store.finish_deletion((0).to_bytes(16, "big"))
    await store.close()
    await store.open()
    assert reserve.stat().st_size > 0
    await store.close()


async def test_on_a_full_disk_configs_of_brokers_and_groups_and_quotas_are_changed_but_no_producer_id_is_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 3_600.0)  # with the copy the reserve is taken again
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    settings = Settings()
    broker_configs, group_configs = BrokerConfigs(store, settings), GroupConfigs(store, settings)
    quotas = ClientQuotas(store, settings, ManualClock())
    reserve = tmp_path / f"{FILE_NAME}.reserve"
    real_truncate = os.truncate

    def limit(page_count: int) -> None:
        store._database.execute(f"PRAGMA max_page_count = {page_count}").fetchone()  # type: ignore[union-attr]

    def truncate(path: str, length: int) -> None:
        real_truncate(path, length)
        limit(1_000_000)

    monkeypatch.setattr(os, "truncate", truncate)
    for document in (broker_configs._document, group_configs._document, quotas._document):
        await store._run(store._take_reserve)
        await store._run(lambda: limit(1))
        with pytest.raises(StorageError, match="full"):
            await store.compare_and_set("producer ids", b"x" * 90_000, 0)
        assert reserve.stat().st_size > 0
        monkeypatch.setattr(document, "_write", lambda _: "x" * 90_000)
        await document.change(lambda content: content)
        assert reserve.stat().st_size == 0
    await store.close()
