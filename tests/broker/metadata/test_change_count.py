"""Of the metadata file and its copy the newer one is used, whichever opens; a state that went back is an error."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.metadata import sqlite
from fencepost.broker.metadata.change_count import COUNT_SUFFIX, count_of, read_recorded
from fencepost.broker.metadata.copy import COPY_SUFFIX, read_copy, write_copy
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import SharedSqliteMetadataStore, leave_to_one, prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.metadata.write_ahead_log import dropped_tail
from fencepost.broker.storage.disk import StorageError
from tests.broker.supervision.planting import until
from tests.support.captured_events import capture_logs

WAL = f"{FILE_NAME}-wal"
COPY = f"{FILE_NAME}{COPY_SUFFIX}"
COUNT = f"{FILE_NAME}{COUNT_SUFFIX}"
RESTORED, WENT_BACK, TORN = "metadata_restored_from_copy", "metadata_went_back", "metadata_tail_dropped"
ADVANCING: Mapping[str, Callable[[bytes], bytes]] = {"block": lambda value: value + b"000"}


async def change(store: SqliteMetadataStore, number: int) -> None:
    assert await store.create_topic(TopicMetadata(f"topic-{number}", number.to_bytes(16, "big"), 1))


async def killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, copied: int, after: int, is_shared: bool = False
) -> Path:
    """The directory that a kill leaves: `copied` topics that its copy has, and `after` that it has not."""
    alive, dead = tmp_path / "alive", tmp_path / "dead"
    alive.mkdir()
    path = str(alive / FILE_NAME)
    store: SqliteMetadataStore = SqliteMetadataStore(path)
    if is_shared:
        await prepare_shared(path)
        store = SharedSqliteMetadataStore(path)
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 0.001)
    await store.open()
    await store.compare_and_set("block", b"7", 0)
    for number in range(copied):
        await change(store, number)
    wanted = read_recorded(str(alive / COUNT))
    assert wanted is not None
    # A change that the copy has already may be followed by one more copy of it, which would be written below.
    await until(lambda: copied_change(alive / COPY) == wanted.change and not is_copying(store))
    monkeypatch.setattr(sqlite, "COPY_AFTER_S", 3_600.0)
    for number in range(copied, copied + after):
        await change(store, number)
    shutil.copytree(alive, dead)
    await store.crash()
    return dead


def is_copying(store: SqliteMetadataStore) -> bool:
    return store._copying is not None and not store._copying.done()


def copied_change(path: Path) -> int:
    image = read_copy(str(path))
    if image is None:
        return 0
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(image)
        return count_of(database)


async def started(directory: Path) -> tuple[list[str], list[dict[str, Any]], bytes | None]:
    """The topics' names, the log lines and the block of a start."""
    store = SqliteMetadataStore(str(directory / FILE_NAME), on_restoring=ADVANCING)
    with capture_logs() as lines:
        await store.open()
    names = sorted(topic.name for topic in await store.load_topics())
    block = (await store.read_versioned("block"))[0]
    await store.close()
    return names, [dict(line) for line in lines], block


def events(lines: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in lines if line["event"] in (RESTORED, WENT_BACK, TORN)]


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def names(count: int) -> list[str]:
    return [f"topic-{number}" for number in range(count)]


async def test_whichever_bit_of_the_write_ahead_log_is_damaged_the_newest_state_is_used_and_an_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=4, after=0)
    size_bytes = (dead / WAL).stat().st_size
    for position in [*range(0, 64, 9), *range(64, size_bytes, 2_003), size_bytes - 1]:
        damaged = tmp_path / "damaged"
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(dead, damaged)
        flip(damaged / WAL, position)
        found, lines, block = await started(damaged)
        assert found == names(4), position
        if events(lines):
            assert events(lines) == [RESTORED], position
            assert block == b"7000", "what was certainly used is not given out again"


@pytest.mark.parametrize("fraction", [0, 0.3, 0.6, 0.95])
@pytest.mark.parametrize("is_shared", [False, True])
async def test_a_write_ahead_log_that_was_cut_does_not_bring_back_what_was_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fraction: float, is_shared: bool
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=5, after=0, is_shared=is_shared)
    os.truncate(dead / WAL, int((dead / WAL).stat().st_size * fraction))
    with capture_logs() as lines:
        if is_shared:
            await prepare_shared(str(dead / FILE_NAME))
            store: SqliteMetadataStore = SharedSqliteMetadataStore(str(dead / FILE_NAME))
        else:
            store = SqliteMetadataStore(str(dead / FILE_NAME))
        await store.open()
    assert sorted(topic.name for topic in await store.load_topics()) == names(5)
    assert events([dict(line) for line in lines]) == [RESTORED]
    await store.close()


async def test_what_the_copy_does_not_have_yet_is_missed_by_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=3, after=4)
    os.truncate(dead / WAL, (dead / WAL).stat().st_size - 1)
    found, lines, block = await started(dead)
    assert found == names(6)
    assert events(lines) == [WENT_BACK]
    [line] = [line for line in lines if line["event"] == WENT_BACK]
    assert line["lost_changes"] == 1
    assert block == b"7000", "what was certainly used is not given out again"
    assert (dead / f"{FILE_NAME}.damaged-wal").exists(), "the evidence stays"
    assert events((await started(dead))[1]) == [], "one error, once"


async def test_a_copy_that_is_newer_and_not_the_newest_says_how_many_changes_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=3, after=2)
    os.truncate(dead / WAL, 0)
    found, lines, _ = await started(dead)
    assert found == names(3)
    [line] = [line for line in lines if line["event"] == RESTORED]
    assert line["lost_changes"] == 2


async def test_frames_behind_the_last_valid_one_tell_without_a_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=2, after=5)
    (dead / COUNT).unlink()
    flip(dead / WAL, (dead / WAL).stat().st_size - 5 * 4096)
    found, lines, _ = await started(dead)
    assert names(2) < found < names(7)
    assert events(lines) == [WENT_BACK]


async def test_a_last_change_that_is_not_whole_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=2, after=2)
    (dead / COUNT).unlink()
    flip(dead / WAL, (dead / WAL).stat().st_size - 100)
    found, lines, _ = await started(dead)
    assert found == names(3)
    assert events(lines) == [TORN]


@pytest.mark.parametrize("is_torn", [False, True])
async def test_what_a_start_has_dropped_is_not_found_again_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_torn: bool
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=8)
    size_bytes = (dead / WAL).stat().st_size
    flip(dead / WAL, size_bytes - 1 if is_torn else size_bytes // 2)
    (dead / COUNT).unlink()
    store = SqliteMetadataStore(str(dead / FILE_NAME), on_restoring=ADVANCING)
    with capture_logs() as lines:
        await store.open()
    assert events([dict(line) for line in lines]) == [TORN if is_torn else WENT_BACK]
    block = (await store.read_versioned("block"))[0]
    await change(store, 99)
    shutil.copytree(dead, tmp_path / "killed again")
    await store.crash()
    found, again, block_again = await started(tmp_path / "killed again")
    assert "topic-99" in found
    assert events(again) == []
    assert block_again == block


async def test_a_kill_without_damage_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=2, after=3)
    found, lines, block = await started(dead)
    assert found == names(5)
    assert lines == []
    assert block == b"7"


async def test_a_row_that_differs_from_the_copy_of_the_same_change_is_taken_from_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=2, after=0)
    await started(dead)  # its write-ahead log is now in the file
    content = (dead / FILE_NAME).read_bytes()
    assert b"block7" in content, "the row's name, and its value behind it"
    (dead / FILE_NAME).write_bytes(content.replace(b"block7", b"block6"))
    with closing(sqlite3.connect(dead / FILE_NAME)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    _, lines, block = await started(dead)
    assert events(lines) == [RESTORED]
    assert block == b"7000"


async def test_a_copy_of_another_cluster_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=1)
    (tmp_path / "other").mkdir()
    other = SqliteMetadataStore(str(tmp_path / "other" / FILE_NAME))
    await other.open()
    for number in range(20):
        await change(other, number)
    await other.close()
    shutil.copy(tmp_path / "other" / COPY, dead / COPY)
    shutil.copy(tmp_path / "other" / COUNT, dead / COUNT)
    found, lines, _ = await started(dead)
    assert found == names(2)
    assert [line["event"] for line in lines] == ["metadata_copy_ignored"]


async def test_an_older_copy_beside_a_newer_file_is_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=3)
    assert copied_change(dead / COPY) < copied_change_of_file(dead)
    found, lines, _ = await started(dead)
    assert found == names(4)
    assert lines == []


def copied_change_of_file(directory: Path) -> int:
    recorded = read_recorded(str(directory / COUNT))
    assert recorded is not None
    return recorded.change


def forget_counting(path: Path) -> None:
    """Make a file one of a version that did not count."""
    with closing(sqlite3.connect(path)) as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DROP TABLE change_count")
        database.commit()


async def test_a_directory_of_a_version_that_did_not_count_opens_and_is_counted_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=1)
    await started(dead)
    forget_counting(dead / FILE_NAME)
    for name in (COPY, COUNT):
        (dead / name).unlink()
    found, lines, _ = await started(dead)
    assert (found, lines) == (names(2), [])
    with closing(sqlite3.connect(dead / FILE_NAME)) as database:
        before = count_of(database)
        database.execute("DELETE FROM topics")  # as an earlier version does, after a downgrade
        database.commit()
        assert count_of(database) == before + 2
    found, lines, _ = await started(dead)
    assert (found, lines) == ([], [])


async def test_a_file_from_before_the_counting_is_older_than_a_copy_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=2, after=0)
    (dead / WAL).unlink()
    alone = SqliteMetadataStore(str(tmp_path / FILE_NAME))
    await alone.open()
    await alone.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database:
        copied = sqlite3.connect(":memory:")
        copied.deserialize(read_copy(str(dead / COPY)) or b"")
        database.execute(
            "UPDATE cluster SET cluster_id = ?", copied.execute("SELECT cluster_id FROM cluster").fetchone()
        )
        copied.close()
        database.commit()
    forget_counting(tmp_path / FILE_NAME)
    shutil.copy(tmp_path / FILE_NAME, dead / FILE_NAME)
    found, lines, _ = await started(dead)
    assert found == names(2)
    assert events(lines) == [RESTORED]


async def test_a_newer_copy_of_a_newer_format_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=2, after=0)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        database.deserialize(read_copy(str(dead / COPY)) or b"")
        database.execute("UPDATE change_count SET count = count + 5")
        database.execute("PRAGMA user_version = 9")
        write_copy(str(dead / COPY), database.serialize())
    with pytest.raises(StorageError, match=r"metadata\.sqlite\.copy has format 9.*start the version"):
        await SqliteMetadataStore(str(dead / FILE_NAME)).open()


@pytest.mark.parametrize("size_bytes", [None, 0, 4096])
async def test_a_file_that_is_gone_with_its_copy_is_no_new_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int | None
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=0)
    for name in (FILE_NAME, WAL, COPY):
        (dead / name).unlink()
    if size_bytes is not None:
        shutil.copy(tmp_path / "alive" / FILE_NAME, dead / FILE_NAME)
        with closing(sqlite3.connect(dead / FILE_NAME, isolation_level=None)) as database:
            database.execute("PRAGMA journal_mode = DELETE")
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                database.execute(f"DROP TABLE {name}")
        if not size_bytes:
            os.truncate(dead / FILE_NAME, 0)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"missing or empty.*\.count knows of .* changes"):
            await SqliteMetadataStore(str(dead / FILE_NAME)).open()
    (dead / COUNT).unlink()
    assert (await started(dead))[0] == []


@pytest.mark.parametrize("content", [b"", b"fencepost metadata count 2\nx 7 00000000\n", b"\xff" * 300, None])
async def test_a_count_that_cannot_be_read_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=2)
    (dead / COUNT).unlink()
    if content is None:
        (dead / COUNT).mkdir()
    else:
        (dead / COUNT).write_bytes(content)
    found, lines, _ = await started(dead)
    assert found == names(3)
    if content is None:
        assert [line["event"] for line in lines] == ["metadata_count_not_written"]
    else:
        assert lines == []
        assert read_recorded(str(dead / COUNT)) is not None


async def test_a_shared_file_that_is_left_to_one_can_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=1, after=0, is_shared=True)
    with closing(sqlite3.connect(dead / FILE_NAME, isolation_level=None)) as database:
        leave_to_one(database)
        before = count_of(database)
        database.execute("DELETE FROM topics")
        assert count_of(database) == before + 1


async def test_a_write_ahead_log_that_begins_anew_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = await killed(tmp_path, monkeypatch, copied=3, after=0)
    whole = (dead / WAL).read_bytes()
    assert dropped_tail(whole) == (0, False)
    database = sqlite3.connect(dead / FILE_NAME, isolation_level=None)
    try:
        database.execute("PRAGMA wal_checkpoint(RESTART)")
        database.execute("DELETE FROM topics WHERE name = 'topic-0'")
        anew = (dead / WAL).read_bytes()
    finally:
        database.close()
    assert len(anew) == len(whole), "frames of the earlier time stand behind those of this one"
    assert dropped_tail(anew) == (0, False)
    later = anew[:32] + whole[32:]
    earlier = whole[:32] + anew[32:]
    assert dropped_tail(later) == (0, False), "only a header has been written yet"
    assert dropped_tail(earlier) != (0, False), "the header is older than what follows"
