"""The metadata store in a file: damage is named, and a file in use is left alone."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.storage.disk import StorageError
from tests.support.captured_events import capture_logs

ORDERS = TopicMetadata("orders", b"o" * 16, 3, {"retention.ms": "1000"})


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
