"""A metadata store that processes share: what one changes the others see, and none undoes what another has done."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.kernel import supervision
from fencepost.broker.metadata import shared_sqlite, sqlite
from fencepost.broker.metadata.copy import read_copy
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import (
    POLLING,
    SKIPPED_EPOCHS,
    InTransaction,
    SharedSqliteMetadataStore,
    prepare_shared,
)
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from tests.broker.metadata.changing_process import add_to_document
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.captured_events import capture_logs

ORDERS = TopicMetadata("orders", b"o" * 16, 3, {"retention.ms": "1000"})


class OtherProcess:
    """A process with a connection of its own to the same file."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def do(self, name: str, *arguments: Any) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        return json.loads(await self.line())

    async def line(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.readline()


@asynccontextmanager
async def other_process(path: str) -> AsyncIterator[OtherProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.broker.metadata.changing_process",
        path,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    other = OtherProcess(process)
    try:
        assert json.loads(await other.line()) == "ready"
        yield other
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
async def path(tmp_path: Path) -> str:
    path = str(tmp_path / FILE_NAME)
    await prepare_shared(path)
    return path


@asynccontextmanager
async def opened(path: str) -> AsyncIterator[SharedSqliteMetadataStore]:
    store = SharedSqliteMetadataStore(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def test_a_process_hears_of_the_topics_and_documents_that_another_changes(path: str) -> None:
    async with opened(path) as store, other_process(path) as other:
        heard: list[str] = []
        store.on_topics_changed.append(lambda: heard.append("topics"))
        store.on_documents_changed.append(lambda: heard.append("documents"))
        assert await other.do("create_topic", "payments", 2)
        await until(lambda: heard)
        assert heard == ["topics"]
        assert [(topic.name, topic.partition_count) for topic in await store.load_topics()] == [("payments", 2)]
        assert not await store.create_topic(TopicMetadata("payments", b"p" * 16, 1)), "the name is taken"
        assert await other.do("add_to_document", "quotas", 7, 1)
        await until(lambda: len(heard) > 1)
        assert heard == ["topics", "documents"]
        assert await store.read_versioned("quotas") == (b"7", 1)


async def test_a_process_does_not_hear_of_its_own_changes(path: str) -> None:
    async with opened(path) as store:
        heard: list[str] = []
        for hooks in (store.on_topics_changed, store.on_documents_changed):
            hooks.append(lambda: heard.append("a change"))
        await store.create_topic(ORDERS)
        await store.compare_and_set("quotas", b"1", 0)
        assert await store._run(store._changed_kinds) == set()
        assert heard == []


async def test_processes_that_change_one_document_at_the_same_time_lose_nothing(path: str) -> None:
    async with opened(path) as store, other_process(path) as first, other_process(path) as second:

        async def add_here() -> None:
            for _ in range(40):
                await add_to_document(store, "count", 1)

        await asyncio.gather(
            add_here(), first.do("add_to_document", "count", 100, 40), second.do("add_to_document", "count", 10_000, 40)
        )
        assert await store.read_versioned("count") == (b"404040", 120)


async def test_a_process_killed_in_the_middle_of_a_change_leaves_none_of_it_and_no_lock(path: str) -> None:
    async with opened(path) as store, other_process(path) as other:
        assert await other.do("hold") == "held"
        creating = asyncio.create_task(store.create_topic(ORDERS))
        await asyncio.sleep(0.05)
        assert not creating.done(), "another process is changing the file"
        os.kill(other.process.pid, signal.SIGKILL)
        await other.process.wait()
        assert await asyncio.wait_for(creating, 60)
        assert await store.load_topics() == [ORDERS]


async def test_a_file_that_another_process_keeps_locked_is_named(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SharedSqliteMetadataStore, "lock_timeout_s", 0.05)
    async with opened(path) as store, other_process(path) as other:
        assert await other.do("hold") == "held"
        with pytest.raises(StorageError, match=r"metadata\.sqlite was locked by another process for 0 s"):
            await store.create_topic(ORDERS)


async def test_a_change_that_raises_is_undone_as_a_whole(path: str) -> None:
    async with opened(path) as store:

        def fail(database: sqlite3.Connection, name: str) -> None:
            assert database.execute("SELECT count(*) FROM topics WHERE name = ?", (name,)).fetchone() == (1,)
            raise RuntimeError("planted")

        changes: list[tuple[list[InTransaction], Callable[[], Awaitable[bool]]]] = [
            (store.in_creation, lambda: store.create_topic(ORDERS)),
            (
                store.in_growth,
                lambda: store.set_partition_count("orders", 9, topic_id=ORDERS.topic_id, before=ORDERS.partition_count),
            ),
            (store.in_deletion, lambda: store.delete_topic("orders", ORDERS.topic_id)),
        ]
        for hooks, change in changes:
            before = await store.load_topics()
            hooks.append(fail)
            with pytest.raises(RuntimeError, match="planted"):
                await change()
            assert await store.load_topics() == before
            assert await store.load_deletions() == []
            hooks.clear()
            assert await change()
        assert await store.load_deletions() == [TopicMetadata("orders", b"o" * 16, 9, ORDERS.configs)]


# One process or several


async def test_a_file_of_one_process_becomes_one_that_processes_share(tmp_path: Path) -> None:
    path = str(tmp_path / FILE_NAME)
    alone = SqliteMetadataStore(path)
    await alone.open()
    await alone.create_topic(ORDERS)
    cluster_id = await alone.cluster_id()
    await alone.close()
    with pytest.raises(StorageError, match="has format 1, this broker reads format 2"):
        await SharedSqliteMetadataStore(path).open()
    await prepare_shared(path)
    await prepare_shared(path)
    async with opened(path) as store, opened(path) as second:
        assert await store.cluster_id() == await second.cluster_id() == cluster_id
        assert await second.load_topics() == [ORDERS]


async def test_a_broker_of_one_process_refuses_a_file_of_several(path: str) -> None:
    with pytest.raises(StorageError, match="belongs to a broker of several processes"):
        await SqliteMetadataStore(path).open()


async def test_a_file_in_use_is_not_prepared(path: str) -> None:
    async with opened(path):
        with pytest.raises(StorageError, match="in use by another broker"):
            await prepare_shared(path)
    alone = shared_sqlite._Preparation(path)
    await alone.open()
    store = SharedSqliteMetadataStore(path)
    store.lock_timeout_s = 0.05
    with pytest.raises(StorageError, match="was locked by another process"):
        await store.open()
    await alone.close()


async def test_a_process_founds_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="start the whole broker"):
        await SharedSqliteMetadataStore(str(tmp_path / FILE_NAME)).open()


# The copy


async def test_a_lost_file_is_restored_only_where_it_is_prepared(path: str) -> None:
    async with opened(path) as store:
        await store.create_topic(ORDERS)
        await store.transaction(
            lambda database: database.execute(
                "INSERT INTO partitions (topic_id, partition, leader, leader_epoch) VALUES (?, 0, 1, 7)",
                (ORDERS.topic_id,),
            )
        )
    os.unlink(path)
    with pytest.raises(StorageError, match="start the whole broker"):
        await SharedSqliteMetadataStore(path).open()
    await prepare_shared(path)
    async with opened(path) as store:
        assert await store.load_topics() == [ORDERS]
        epochs = await store.read(lambda database: database.execute("SELECT leader_epoch FROM partitions").fetchall())
        assert epochs == [(7 + SKIPPED_EPOCHS,)], "the copy may be older than the last leaders"


async def test_the_copy_has_what_every_process_has_changed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 0.001)
    async with opened(path) as store, opened(path) as second:
        await asyncio.gather(store.create_topic(ORDERS), second.create_topic(TopicMetadata("payments", b"p" * 16, 1)))

        def has_both() -> bool:
            image = read_copy(f"{path}.copy") or b""
            return b"orders" in image and b"payments" in image

        await until(has_both)


# Polls


@plants(POLLING)
@unforeseen
async def test_a_poll_that_fails_is_followed_by_others(
    error: BaseException, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "FIRST_RETRY_PAUSE_S", 0.001)
    async with opened(path) as store, opened(path) as second:
        heard: list[str] = []
        store.on_topics_changed.append(lambda: heard.append("topics"))
        real = store._changed_kinds
        failing = raising(error, times=1, then=real)
        with logged(POLLING) as lines:
            store._changed_kinds = failing  # type: ignore[method-assign]
            await until(lambda: lines)
            await second.create_topic(ORDERS)
            await until(lambda: heard)


async def test_a_poll_that_the_disk_refuses_is_said_and_followed_by_others(path: str) -> None:
    async with opened(path) as store, opened(path) as second:
        heard: list[str] = []
        store.on_topics_changed.append(lambda: heard.append("topics"))
        real = store._changed_kinds
        failing = raising(StorageError("planted"), times=1, then=real)
        with capture_logs() as lines:
            store._changed_kinds = failing  # type: ignore[method-assign]
            await until(lambda: lines)
        assert [line["event"] for line in lines] == ["metadata_not_polled"]
        await second.create_topic(ORDERS)
        await until(lambda: heard)
