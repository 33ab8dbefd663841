"""The copy of the metadata store: made while it is open, and used when the file is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.broker.kernel import supervision
from fencepost.broker.metadata import sqlite
from fencepost.broker.metadata.copy import read_copy, write_copy
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import COPYING, FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs

ORDERS = TopicMetadata("orders", b"o" * 16, 3, {"retention.ms": "1000"})


PAYMENTS = TopicMetadata("payments", b"p" * 16, 1)


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
