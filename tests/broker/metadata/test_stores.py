"""All metadata stores keep what they are given; those on disk across restarts and accidents, too."""

from __future__ import annotations

import base64
import os
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fencepost.broker.cluster.postgres.connections import parse_address
from fencepost.broker.cluster.postgres.metadata_store import PostgresMetadataStore
from fencepost.broker.config import Settings
from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.group_configs import GroupConfigs
from fencepost.broker.kernel import supervision
from fencepost.broker.metadata import sqlite
from fencepost.broker.metadata.copy import read_copy, write_copy
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.in_memory import InMemoryMetadataStore
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore, prepare_shared
from fencepost.broker.metadata.sqlite import COPYING, FILE_NAME, SqliteMetadataStore
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs
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


async def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(b"this is not a database, though it is long enough to be taken for one" * 20)
    with pytest.raises(StorageError, match=r"metadata\.sqlite is damaged.*Restore the file from a backup"):
        await SqliteMetadataStore(str(path)).open()


async def test_damage_inside_the_file_is_found_on_opening(tmp_path: Path) -> None:
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    for index in range(200):
        await store.create_topic(TopicMetadata(f"topic-{index:03}", index.to_bytes(16, "big"), 1))
    await store.close()
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4096):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(content)
    (tmp_path / f"{FILE_NAME}.copy").unlink()
    with pytest.raises(StorageError, match="is damaged"):
        await SqliteMetadataStore(str(path)).open()


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (value)")
    database.commit()
    database.close()
    with pytest.raises(StorageError, match="not a metadata file of this broker"):
        await SqliteMetadataStore(str(path)).open()


async def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    store = SqliteMetadataStore(str(path))
    await store.open()
    await store.close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StorageError, match="format 99"):
        await SqliteMetadataStore(str(path)).open()


async def test_a_file_in_use_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / FILE_NAME)
    first = SqliteMetadataStore(path)
    await first.open()
    with pytest.raises(StorageError, match="in use by another broker"):
        await SqliteMetadataStore(path).open()
    await first.close()


@pytest.mark.parametrize("is_missing", [True, False])
async def test_no_store_is_founded_where_that_is_forbidden(tmp_path: Path, is_missing: bool) -> None:
    def forbid() -> None:
        raise StorageError("there was one")

    path = tmp_path / FILE_NAME
    if not is_missing:
        path.write_bytes(b"")
    with pytest.raises(StorageError, match="there was one"):
        await SqliteMetadataStore(str(path), before_founding=forbid).open()
    assert path.exists() != is_missing


async def test_a_topic_whose_configs_cannot_be_read_is_damage(tmp_path: Path) -> None:
    path = str(tmp_path / FILE_NAME)
    store = SqliteMetadataStore(path)
    await store.open()
    await store.create_topic(TopicMetadata("orders", bytes(range(16)), 1))
    await store.close()
    database = sqlite3.connect(path)
    database.execute("UPDATE topics SET configs = '{x'")
    database.commit()
    database.close()
    store = SqliteMetadataStore(path)
    await store.open()
    with pytest.raises(StorageError, match="is damaged"):
        await store.load_topics()
    await store.close()


async def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    with pytest.raises(StorageError, match="is not open"):
        await store.load_topics()


async def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be used"):
        await SqliteMetadataStore(str(tmp_path / "missing" / FILE_NAME)).open()


# The copy beside the file


async def filled(directory: Path) -> tuple[str, list[TopicMetadata]]:
    """A store with topics and a deletion that is not finished, closed; its cluster id and topics."""
    store = SqliteMetadataStore(str(directory / FILE_NAME))
    await store.open()
    topics = [TopicMetadata(f"topic-{index:03}", index.to_bytes(16, "big"), 1) for index in range(150)]
    for topic in topics:
        await store.create_topic(topic)
    await store.create_topic(ORDERS)
    await store.delete_topic("orders", ORDERS.topic_id)
    await store.compare_and_set("block", b"7", 0)
    cluster_id = await store.cluster_id()
    await store.close()
    return cluster_id, topics


@pytest.mark.parametrize("filling", [b"\0", b"\xff", b"random"])
async def test_whichever_page_is_damaged_the_copy_is_used_or_the_start_refused(tmp_path: Path, filling: bytes) -> None:
    cluster_id, topics = await filled(tmp_path)
    path = tmp_path / FILE_NAME
    content = path.read_bytes()
    copy = (tmp_path / f"{FILE_NAME}.copy").read_bytes()
    page_count = len(content) // 4096
    assert page_count > 5
    for page in range(page_count):
        damaged = bytearray(content)
        damaged[page * 4096 : (page + 1) * 4096] = (filling * 4096)[:4096]
        path.write_bytes(damaged)
        (tmp_path / f"{FILE_NAME}.copy").write_bytes(copy)
        store = SqliteMetadataStore(str(path))
        with capture_logs() as lines:
            await store.open()
        assert [line["event"] for line in lines].count("metadata_restored_from_copy") == 1, page
        assert await store.cluster_id() == cluster_id
        assert await store.load_topics() == topics
        await store.close()
        assert (tmp_path / f"{FILE_NAME}.damaged").read_bytes() == bytes(damaged)


@pytest.mark.parametrize("content", [None, b"", b"damaged" * 1_000])
async def test_a_file_that_is_lost_is_replaced_by_its_copy(tmp_path: Path, content: bytes | None) -> None:
    cluster_id, topics = await filled(tmp_path)
    path = tmp_path / FILE_NAME
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    store = SqliteMetadataStore(str(path), on_restoring={"block": lambda value: value + b"000"})
    await store.open()
    assert await store.cluster_id() == cluster_id
    assert await store.load_topics() == topics
    assert await store.load_deletions() == [], "nothing is deleted for an old copy's sake"
    assert await store.read_versioned("block") == (b"7000", 2)
    await store.close()
    again = SqliteMetadataStore(str(path), on_restoring={"block": lambda value: value + b"000"})
    await again.open()
    assert await again.read_versioned("block") == (b"7000", 2), "once"
    await again.close()


async def test_a_damaged_copy_is_not_used(tmp_path: Path) -> None:
    await filled(tmp_path)
    copy = tmp_path / f"{FILE_NAME}.copy"
    content = bytearray(copy.read_bytes())
    content[len(content) // 2] ^= 1
    copy.write_bytes(content)
    (tmp_path / FILE_NAME).write_bytes(b"damaged" * 1_000)
    with pytest.raises(StorageError, match="is damaged"):
        await SqliteMetadataStore(str(tmp_path / FILE_NAME)).open()


async def test_the_copy_follows_changes_while_the_store_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 0.001)
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    await store.create_topic(ORDERS)
    await until(lambda: b"orders" in (read_copy(str(tmp_path / f"{FILE_NAME}.copy")) or b""))
    await store.create_topic(PAYMENTS)
    await until(lambda: b"payments" in (read_copy(str(tmp_path / f"{FILE_NAME}.copy")) or b""))
    await store.close()


@plants(COPYING)
@unforeseen
async def test_a_copy_that_fails_is_made_again(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 0.001)
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    monkeypatch.setattr(sqlite, "write_copy", raising(error, times=1, then=write_copy))
    with logged(COPYING):
        await store.create_topic(ORDERS)
        await until(lambda: b"orders" in (read_copy(str(tmp_path / f"{FILE_NAME}.copy")) or b""))
    await store.close()


async def test_a_copy_that_cannot_be_written_is_said_and_stops_nothing(tmp_path: Path) -> None:
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    (tmp_path / f"{FILE_NAME}.copy.tmp").mkdir()
    await store.create_topic(ORDERS)
    with capture_logs() as lines:
        await store.close()
    assert [line["event"] for line in lines] == ["metadata_copy_not_written"]


def modes(directory: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in directory.iterdir()}


def open_to_all(directory: Path) -> None:
    for path in directory.iterdir():
        path.chmod(0o644)


async def test_only_the_owner_may_read_the_store(tmp_path: Path) -> None:
    store = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await store.open()
    await store.create_topic(ORDERS)
    assert modes(tmp_path) == {0o600}
    await store.close()
    assert modes(tmp_path) == {0o600}
    open_to_all(tmp_path)
    with capture_logs() as lines:
        await store.open()
    assert {line["path"] for line in lines} == {str(tmp_path / FILE_NAME), str(tmp_path / f"{FILE_NAME}.copy")}
    await store.close()
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600


# A full disk


async def test_on_a_full_disk_topics_are_deleted_and_configs_changed_but_none_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
