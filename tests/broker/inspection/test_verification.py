"""Every kind of damage is named with its place; repair puts it right, loses no more than it must, and can be killed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.inspection.findings import Severity
from fencepost.broker.inspection.problems import Kind
from fencepost.broker.inspection.repair import Repair
from fencepost.broker.log.files.checkpoints import encode_offsets, encode_partition_metadata
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.recovery import recovery_mark
from fencepost.broker.metadata.sqlite import SqliteMetadataStore
from fencepost.broker.storage.disk import LogFile, StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from tests.support.data_directory import (
    batches_of,
    copied,
    crashed,
    flip,
    log_paths,
    problems_of,
    repair,
    served,
    tree,
    verify,
)
from tests.support.log_world import ORDERS, LogWorld, ManualClock, content_of, overwrite, replace

SMALL_SEGMENTS = LogConfig(segment_bytes=900, index_interval_bytes=100)
RECORDS_COUNT = 24
VALUES = {offset: b"%d" % offset * 40 for offset in range(RECORDS_COUNT)}
DAMAGED_BATCH = 2  # of the second segment


async def written(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for sequence, offset in enumerate(range(0, RECORDS_COUNT, 2)):
        world.append(VALUES[offset], VALUES[offset + 1], producer_id=7, producer_epoch=0, base_sequence=2 * sequence)
    await log.flushed()


async def stopped(world: LogWorld, *, is_clean: bool) -> str:
    """A directory with all of VALUES in a log of several segments, up to its end known to be on the disk."""
    await written(world)
    if is_clean:
        await world.stop()
    else:
        await world.logs.checkpoints.write_recovery_points(durable=True)
        await crashed(world)
    return world.path


class Case(NamedTuple):
    """A way to damage the second segment of a log.

    damage: is given the log files, and position and header of the damaged batch.
    lost:   the offsets that are lost with it.
    """

    name: str
    damage: Callable[[Sequence[str], int, Any], None]
    kind: Kind
    lost: Callable[[Any, Sequence[tuple[int, Any]]], range]


def nothing(_header: Any, _batches: Sequence[tuple[int, Any]]) -> range:
    return range(0)


def one_batch(header: Any, _batches: Sequence[tuple[int, Any]]) -> range:
    return range(header.base_offset, header.last_offset + 1)


def the_rest(header: Any, batches: Sequence[tuple[int, Any]]) -> range:
    return range(header.base_offset, batches[-1][1].last_offset + 1)


def the_segment(_header: Any, batches: Sequence[tuple[int, Any]]) -> range:
    return range(batches[0][1].base_offset, batches[-1][1].last_offset + 1)


def flipped(at: int, bit: int) -> Callable[[Sequence[str], int, Any], None]:
    """Turns a bit over in the damaged batch."""
    return lambda paths, position, _: flip(paths[1], position + at, bit)


CASES = [
    *(Case(f"a bit in byte {at} of the base offset", flipped(at, 1), Kind.HEADER, nothing) for at in range(8)),
    *(Case(f"bit {bit} of the length", flipped(10, bit), Kind.HEADER, nothing) for bit in (1, 128)),
    Case("a bit in the upper length", flipped(8, 64), Kind.HEADER, nothing),
    Case("a bit in the epoch", flipped(15, 2), Kind.HEADER, nothing),
    Case("a bit in the upper epoch", flipped(12, 128), Kind.HEADER, nothing),
    Case("a bit in the format", flipped(16, 4), Kind.HEADER, nothing),
    Case("a bit in the checksum", flipped(18, 4), Kind.DAMAGE, one_batch),
    Case("a bit in the producer", flipped(45, 4), Kind.DAMAGE, one_batch),
    Case("a bit in a record", flipped(80, 4), Kind.DAMAGE, one_batch),
    Case("zeros", lambda paths, p, h: overwrite(paths[1], p, bytes(h.size_bytes)), Kind.DAMAGE, one_batch),
    Case("zeros inside", lambda paths, p, _: overwrite(paths[1], p + 70, bytes(20)), Kind.DAMAGE, one_batch),
    Case("cut at a batch", lambda paths, p, _: os.truncate(paths[1], p), Kind.MISSING, the_rest),
    Case("cut inside of a batch", lambda paths, p, _: os.truncate(paths[1], p + 100), Kind.DAMAGE, the_rest),
    Case("no file", lambda paths, _p, _h: os.unlink(paths[1]), Kind.MISSING, the_segment),
]


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "kill -9"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
async def test_damage_is_named_and_repaired_with_no_more_loss_than_there_must_be(
    world: LogWorld, case: Case, is_clean: bool
) -> None:
    path = await stopped(world, is_clean=is_clean)
    paths = log_paths(path)
    batches = batches_of(paths[1])
    position, header = batches[DAMAGED_BATCH]
    before = content_of(paths[1])
    case.damage(paths, position, header)
    lost = case.lost(header, batches)

    (found,) = [one for one in await problems_of(path) if one.kind not in (Kind.NOTE, Kind.STALE)]
    assert (found.kind, found.path) == (case.kind, paths[1])
    if case.lost is not the_segment:
        assert found.position == position
    if lost:
        assert (found.first_offset, found.end_offset) == (lost.start, lost.stop)
    report = await verify(path)
    assert not report.is_healthy
    damage = next(one for one in report.findings if one.severity is Severity.DAMAGE)
    assert all("repair" in choice.action or "restore" in choice.action for choice in damage.choices)

    (without_loss,) = await repair(path)
    assert without_loss.is_right == (not lost)
    if lost:
        (accepted,) = await repair(path, accept_loss=True)
        assert accepted.is_right
        assert accepted.plan.lost_offsets == len(lost)
        for kept in accepted.kept:
            assert content_of(kept)
            assert content_of(kept) == content_of_damaged(before, case, position, len(content_of(kept)), path)
    else:
        assert content_of(paths[1]) == before
    assert (await verify(path)).is_healthy
    partition_log, records = await served(path)
    assert records == {offset: value for offset, value in VALUES.items() if offset not in lost}
    assert partition_log.offline_reason is None
    assert (await verify(path)).is_healthy


def content_of_damaged(before: bytes, case: Case, position: int, length: int, path: str) -> bytes:
    """The bytes that stood at the damaged place, made anew from the undamaged file."""
    scratch = f"{path}/scratch"
    with open(scratch, "wb") as file:
        file.write(before)
    case.damage(["", scratch], position, batches_of(scratch)[DAMAGED_BATCH][1])
    found = content_of(scratch)[position : position + length]
    os.unlink(scratch)
    return found


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "kill -9"])
async def test_cutting_gives_up_all_that_follows_and_gives_no_offset_out_twice(world: LogWorld, is_clean: bool) -> None:
    path = await stopped(world, is_clean=is_clean)
    paths = log_paths(path)
    position, header = batches_of(paths[1])[DAMAGED_BATCH]
    flip(paths[1], position + 80)
    before = [content_of(one) for one in paths]
    (done,) = await repair(path, accept_loss=True, cut=True)
    assert done.is_right
    assert (await verify(path)).is_healthy
    assert [content_of(one) for one in sorted(done.kept)] == [before[1][position:], *before[2:]]
    partition_log, records = await served(path)
    assert records == {offset: value for offset, value in VALUES.items() if offset < header.base_offset}
    assert partition_log.leader_epoch == 1
    world = LogWorld(path)
    world.config = SMALL_SEGMENTS
    await world.start()
    assert world.append(b"next").base_offset == RECORDS_COUNT
    await world.stop()


async def test_the_end_of_a_log_that_is_lost_keeps_its_offsets_and_begins_a_new_epoch(world: LogWorld) -> None:
    path = await stopped(world, is_clean=True)
    last = log_paths(path)[-1]
    position, header = batches_of(last)[-1]
    os.truncate(last, position)
    assert (await served(copied(path, path + "-2")))[0].is_offline
    (done,) = await repair(path, accept_loss=True)
    assert done.plan.lost_offsets == 2
    partition_log, records = await served(path)
    assert list(records) == list(range(header.base_offset))
    assert (partition_log.log_end_offset, partition_log.leader_epoch) == (RECORDS_COUNT, 1)
    partition_log, _ = await served(path)  # an epoch that nothing was written in is not forgotten
    assert partition_log.leader_epoch == 1


async def test_a_directory_that_is_missing_begins_where_it_ended(world: LogWorld) -> None:
    path = await stopped(world, is_clean=True)
    directory = f"{path}/{ORDERS}"
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")
    os.rmdir(directory)
    (found,) = await problems_of(path)
    assert (found.kind, found.path, found.end_offset) == (Kind.MISSING, directory, RECORDS_COUNT)
    assert not (await repair(path))[0].is_right
    (done,) = await repair(path, accept_loss=True)
    assert done.is_right
    partition_log, records = await served(path)
    assert records == {}
    assert (partition_log.log_start_offset, partition_log.log_end_offset) == (RECORDS_COUNT, RECORDS_COUNT)


async def test_a_directory_of_another_topic_is_named_and_left_alone(world: LogWorld) -> None:
    path = await stopped(world, is_clean=True)
    other_id = bytes(range(1, 17))
    replace(f"{path}/{ORDERS}/partition.metadata", encode_partition_metadata(other_id))
    (found,) = await problems_of(path)
    assert found.path == f"{path}/{ORDERS}/partition.metadata"
    assert other_id.hex() in found.what
    before = tree(path)
    (done,) = await repair(path, accept_loss=True)
    assert not done.is_right
    assert tree(path) == before


async def test_a_log_that_is_longer_than_the_clean_stop_has_left_it_is_not_believed(world: LogWorld) -> None:
    """As where the directories of two partitions of a topic were swapped."""
    path = await stopped(world, is_clean=True)
    replace(f"{path}/recovery-point-offset-checkpoint", encode_offsets({ORDERS: RECORDS_COUNT - 6}))
    (found,) = await problems_of(path)
    assert (found.kind, found.path) == (Kind.NOT_RECORDED, log_paths(path)[-1])
    assert f"has left it at offset {RECORDS_COUNT - 6}" in found.what
    assert (await repair(path, accept_loss=True))[0].is_right
    assert (await served(path))[1] == VALUES


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "kill -9"])
async def test_the_first_segment_that_is_missing_is_missed(world: LogWorld, is_clean: bool) -> None:
    path = await stopped(world, is_clean=is_clean)
    first, second = log_paths(path)[:2]
    start = batches_of(second)[0][1].base_offset
    os.unlink(first)
    (found,) = await problems_of(path)
    assert (found.path, found.first_offset, found.end_offset) == (first, 0, start)
    assert not (await repair(path))[0].is_right
    (done,) = await repair(path, accept_loss=True)
    assert (done.is_right, done.plan.lost_offsets) == (True, start)
    assert (await verify(path)).is_healthy
    partition_log, records = await served(path)
    assert partition_log.log_start_offset == start
    assert records == {offset: value for offset, value in VALUES.items() if offset >= start}


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "kill -9"])
async def test_the_last_segment_that_is_missing_is_missed(world: LogWorld, is_clean: bool) -> None:
    path = await stopped(world, is_clean=is_clean)
    last = log_paths(path)[-1]
    start = batches_of(last)[0][1].base_offset
    os.unlink(last)
    (found,) = [one for one in await problems_of(path) if one.kind is not Kind.NOTE]
    assert (found.kind, found.path, found.first_offset, found.end_offset) == (Kind.MISSING, last, start, RECORDS_COUNT)
    assert (await repair(path, accept_loss=True))[0].is_right
    assert (await verify(path)).is_healthy
    partition_log, records = await served(path)
    assert partition_log.log_end_offset == RECORDS_COUNT
    assert records == {offset: value for offset, value in VALUES.items() if offset < start}


@pytest.mark.parametrize(
    "name", ["index", "timeindex", "snapshot", "leader-epoch-checkpoint", "segment-checksums", "partition.metadata"]
)
@pytest.mark.parametrize("how", ["flipped", "emptied", "removed"])
async def test_a_file_that_is_made_from_others_is_made_anew(world: LogWorld, name: str, how: str) -> None:
    path = await stopped(world, is_clean=True)
    directory = f"{path}/{ORDERS}"
    second = os.path.basename(log_paths(path)[1]).removesuffix(".log")
    is_numbered = name in ("index", "timeindex", "snapshot")
    damaged = f"{directory}/{second}.{name}" if is_numbered else f"{directory}/{name}"
    if how == "removed":
        os.unlink(damaged)
    elif how == "emptied":
        os.truncate(damaged, 0)
    else:
        flip(damaged, len(content_of(damaged)) // 2)
    report = await verify(path)
    severities = {one.severity for one in report.findings if one.path == damaged}
    # A missing list shows nothing, nor do epochs without batches.
    may_be_unnoticed = (how, name) in {
        ("removed", "segment-checksums"),
        ("removed", "leader-epoch-checkpoint"),
        ("removed", "snapshot"),
    } or (how, name) == ("emptied", "segment-checksums")
    assert severities == {Severity.REBUILT} or (may_be_unnoticed and not severities)
    assert all(one.severity is not Severity.DAMAGE for one in report.findings)
    assert all(one.is_right for one in await repair(path))
    assert (await verify(path)).is_healthy
    partition_log, records = await served(path)
    assert records == VALUES
    assert not partition_log.is_offline


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "kill -9"])
async def test_a_healthy_log_is_healthy_and_not_written_to(world: LogWorld, is_clean: bool) -> None:
    path = await stopped(world, is_clean=is_clean)
    before = tree(path)
    report = await verify(path)
    assert report.findings == []
    assert report.partitions[0].scan.records_count == RECORDS_COUNT
    assert await repair(path) == []
    assert tree(path) == before


async def test_a_log_with_transactions_and_deleted_records_is_healthy(world: LogWorld) -> None:
    log = world.create(SMALL_SEGMENTS)
    for round_number in range(6):
        for producer_id in (1, 2, 3):
            world.append(
                b"v" * 100,
                producer_id=producer_id,
                producer_epoch=round_number,
                base_sequence=0,
                is_transactional=True,
            )
        for producer_id in (1, 2):
            world.end_transaction(producer_id, round_number + 1, committed=producer_id == 1)
        world.end_transaction(3, round_number + 1, committed=round_number % 2 == 0)
    await log.flushed()
    await world.logs.delete_records({ORDERS: 9})
    await world.stop()
    assert any(name.endswith(".txnindex") for name in os.listdir(f"{world.path}/{ORDERS}"))
    assert (await verify(world.path)).findings == []
    name = next(name for name in sorted(os.listdir(f"{world.path}/{ORDERS}")) if name.endswith(".txnindex"))
    damaged = f"{world.path}/{ORDERS}/{name}"
    content = content_of(damaged)
    os.unlink(f"{world.path}/{ORDERS}/segment-checksums")
    os.truncate(damaged, len(content) - 34)
    report = await verify(world.path)
    assert [(one.severity, one.path) for one in report.findings] == [(Severity.REBUILT, damaged)]
    await repair(world.path)
    assert content_of(damaged) == content


async def test_a_torn_end_above_the_recovery_point_is_left_to_the_next_start(world: LogWorld) -> None:
    await written(world)
    await crashed(world)
    last = log_paths(world.path)[-1]
    size_bytes = len(content_of(last))
    replace(last, content_of(last) + b"z" * 100)
    (found,) = await problems_of(world.path)
    assert (found.kind, found.position, found.size_bytes) == (Kind.TAIL, size_bytes, 100)
    (finding,) = (await verify(world.path)).findings
    assert finding.severity is Severity.CUT
    assert "100 bytes are cut off" in finding.at_next_start
    (done,) = await repair(world.path, accept_loss=True)
    assert done.is_right
    assert len(content_of(last)) == size_bytes + 100
    assert (await served(world.path))[1] == VALUES


async def test_readable_records_that_the_next_start_would_cut_are_saved(world: LogWorld) -> None:
    """After a crash, above the recovery point, a start cuts at the first bad batch; Apache Kafka does, too."""
    await written(world)
    await crashed(world)
    second = log_paths(world.path)[1]
    position, header = batches_of(second)[DAMAGED_BATCH]
    flip(second, position + 80)
    (found,) = (await verify(world.path)).findings
    assert "are cut off, kept in" in found.at_next_start
    await repair(world.path, accept_loss=True)
    _, records = await served(world.path)
    assert records == {k: v for k, v in VALUES.items() if not header.base_offset <= k <= header.last_offset}


class _KilledError(Exception):
    pass


class _KilledDisk(LocalDisk):
    """A disk of a process that is killed before a change to it, counted from the first."""

    def __init__(self, changes_count: int) -> None:
        super().__init__()
        self.left_count = changes_count

    def _change(self) -> None:
        if self.left_count == 0:
            raise _KilledError
        self.left_count -= 1

    def open(self, path: str) -> LogFile:
        if not self.exists(path):
            self._change()
        return super().open(path)

    def write_file(self, path: str, content: bytes, *, durable: bool) -> None:
        self._change()
        super().write_file(path, content, durable=durable)

    def rename(self, source: str, target: str) -> None:
        self._change()
        super().rename(source, target)

    def delete(self, path: str) -> None:
        self._change()
        super().delete(path)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "kill -9"])
@pytest.mark.parametrize("cut", [False, True], ids=["gap", "cut"])
async def test_a_repair_that_was_killed_at_any_moment_is_finished_by_the_next(
    world: LogWorld, is_clean: bool, cut: bool
) -> None:
    path = await stopped(world, is_clean=is_clean)
    paths = log_paths(path)
    position, header = batches_of(paths[1])[DAMAGED_BATCH]
    flip(paths[1], position + 80)
    flip(paths[0], 7)
    os.truncate(paths[2], batches_of(paths[2])[1][0])
    lost_after = batches_of(paths[2])[-1][1].last_offset + 1
    next_base = int(os.path.basename(paths[3]).removesuffix(".log")) if len(paths) > 3 else RECORDS_COUNT
    lost = {*range(header.base_offset, header.last_offset + 1), *range(lost_after, next_base)}
    if cut:
        lost = set(range(header.base_offset, RECORDS_COUNT))
    expected = {offset: value for offset, value in VALUES.items() if offset not in lost}
    killed_count = 0
    while True:
        attempt = copied(path, f"{path}-attempt")
        disk = _KilledDisk(killed_count)
        try:
            await repair(attempt, accept_loss=True, cut=cut, disk=disk)
            break
        except _KilledError:
            killed_count += 1
        finally:
            disk.close()
        started = copied(attempt, f"{path}-started")
        _, records = await served(started)
        assert records.items() <= VALUES.items()  # whatever a start makes of it, nothing is served wrong
        assert all(one.is_right for one in await repair(attempt, accept_loss=True, cut=cut))
        assert (await verify(attempt)).is_healthy
        assert (await served(attempt))[1] == expected
    assert killed_count > 10
    assert (await served(attempt))[1] == expected


async def test_nothing_of_a_partition_is_changed_while_a_loss_is_not_accepted(world: LogWorld) -> None:
    """What is said of a missing file must not be forgotten, or it would not be missed any more."""
    path = await stopped(world, is_clean=True)
    paths = log_paths(path)
    os.unlink(paths[1])
    flip(paths[2].replace(".log", ".index"), 3)
    before = tree(path)
    (done,) = await repair(path)
    assert not done.is_right
    assert tree(path) == before


async def test_an_error_of_the_disk_leaves_the_partition_as_it_was(world: LogWorld) -> None:
    class FullDisk(LocalDisk):
        def open(self, path: str) -> LogFile:
            if path.endswith(".repair"):
                raise StorageError("No space left on device")
            return super().open(path)

    path = await stopped(world, is_clean=True)
    paths = log_paths(path)
    flip(paths[1], batches_of(paths[1])[DAMAGED_BATCH][0] + 80)
    before = {name: content for name, (content, _) in tree(path).items()}
    disk = FullDisk()
    (done,) = await repair(path, accept_loss=True, disk=disk)
    disk.close()
    assert "No space left" in str(done.failed)
    assert {name: content for name, (content, _) in tree(path).items()} == before


@pytest.mark.parametrize("content", [None, b"", b"this is not a database" * 300], ids=["missing", "empty", "foreign"])
async def test_metadata_that_the_next_start_restores_from_its_copy_are_no_refusal(
    world: LogWorld, content: bytes | None
) -> None:
    path = await stopped(world, is_clean=True)
    database = f"{path}/metadata.sqlite"
    assert content_of(f"{database}.copy")
    if content is None:
        os.unlink(database)
    else:
        replace(database, content)
    before = tree(path)
    report = await verify(path)
    (found,) = report.findings
    assert (found.path, found.severity) == (database, Severity.REBUILT)
    assert "its copy is of 20" in found.what
    assert "restored from its copy" in found.at_next_start
    assert [str(one.name) for one in report.partitions] == [str(ORDERS)]
    assert tree(path) == before


async def test_metadata_without_a_good_copy_are_a_refusal(world: LogWorld) -> None:
    path = await stopped(world, is_clean=True)
    for suffix in ("", ".copy"):
        os.unlink(f"{path}/metadata.sqlite{suffix}")
    (found,) = (await verify(path)).findings
    assert (found.severity, found.at_next_start) == (Severity.DAMAGE, "the start is refused: no partition is served")
    assert "is missing" in found.what


async def with_an_older_database(world: LogWorld) -> str:
    """A stopped directory whose metadata file is older than its copy and its count."""
    path = await stopped(world, is_clean=True)
    earlier = content_of(f"{path}/metadata.sqlite")
    store = SqliteMetadataStore(f"{path}/metadata.sqlite")
    await store.open()
    await store.compare_and_set("users", b"{}", 0)
    await store.close()
    replace(f"{path}/metadata.sqlite", earlier)
    return path


async def users_of(path: str) -> tuple[bytes | None, int]:
    store = SqliteMetadataStore(f"{path}/metadata.sqlite")
    await store.open()
    found = await store.read_versioned("users")
    await store.close()
    return found


async def test_metadata_older_than_their_copy_are_named_and_repair_puts_the_copy_in_place(world: LogWorld) -> None:
    path = await with_an_older_database(world)
    (found,) = (await verify(path)).findings
    assert (found.path, found.severity) == (f"{path}/metadata.sqlite", Severity.REBUILT)
    assert "it is older than its copy" in found.what
    report, repaired = await Repair(path, LocalDisk(), Settings(), ManualClock(), is_dry_run=True).run()
    assert report.of_metadata == [found]
    assert (await verify(path)).findings == [found], "a dry run changes nothing"
    report, repaired = await Repair(path, LocalDisk(), Settings(), ManualClock()).run()
    assert (report.of_metadata, report.findings, repaired) == ([found], [], [])
    assert (await verify(path)).is_healthy
    assert await users_of(path) == (b"{}", 1)


async def test_metadata_that_went_back_without_a_newer_copy_are_damage_that_repair_accepts_on_demand(
    world: LogWorld,
) -> None:
    path = await with_an_older_database(world)
    replace(f"{path}/metadata.sqlite.copy", b"not a copy")
    report = await verify(path)
    assert [(one.path, one.severity) for one in report.findings] == [
        (f"{path}/metadata.sqlite", Severity.DAMAGE),
        (f"{path}/metadata.sqlite.copy", Severity.REBUILT),
    ]
    assert "at least 1 later ones had been acknowledged" in report.findings[0].what
    report, _ = await Repair(path, LocalDisk(), Settings(), ManualClock()).run()
    assert not report.of_metadata, "a loss has to be accepted"
    report, _ = await Repair(path, LocalDisk(), Settings(), ManualClock(), accept_loss=True).run()
    assert len(report.of_metadata) == 2
    assert (await verify(path)).is_healthy
    assert await users_of(path) == (None, 0)


@pytest.mark.parametrize("suffix", [".copy", ".count"])
async def test_a_copy_or_a_count_of_the_metadata_that_cannot_be_read_is_named_and_written_anew(
    world: LogWorld, suffix: str
) -> None:
    path = await stopped(world, is_clean=True)
    replace(f"{path}/metadata.sqlite{suffix}", b"damaged")
    (found,) = (await verify(path)).findings
    assert (found.path, found.severity) == (f"{path}/metadata.sqlite{suffix}", Severity.REBUILT)
    await Repair(path, LocalDisk(), Settings(), ManualClock()).run()
    assert (await verify(path)).is_healthy


async def with_a_mark(world: LogWorld) -> str:
    """A crashed directory whose recovery mark is at offset 24, and whose checkpoint knows nothing."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(recovery_mark, "FEWEST_MARKED_RECORDS", 1)
        log = world.create()
        for offset in range(0, RECORDS_COUNT, 2):
            world.append(VALUES[offset], VALUES[offset + 1])
        await log.flushed()
        world.logs.sweep(world.clock.now_ms())
    return await crashed(world)


async def test_a_log_that_ends_before_its_recovery_mark_is_damage_and_its_offsets_are_not_given_out_again(
    world: LogWorld,
) -> None:
    path = await with_a_mark(world)
    (log_path,) = log_paths(path)
    position, header = batches_of(log_path)[5]
    os.truncate(log_path, position + 30)
    (found,) = (await verify(path)).findings
    assert (found.severity, found.first_offset, found.end_offset) == (Severity.DAMAGE, 10, 24)
    (refused,) = await repair(path)
    assert [reason for _, reason in refused.plan.left] == ["it takes --accept-loss"]
    (done,) = await repair(path, accept_loss=True)
    assert (done.is_right, done.plan.lost_offsets) == (True, 14)
    log, records = await served(path)
    assert records == {offset: VALUES[offset] for offset in range(header.base_offset)}
    assert log.log_end_offset == 24
    assert (await verify(path)).is_healthy


async def test_an_older_log_under_a_newer_recovery_mark_is_damage(world: LogWorld) -> None:
    path = await with_a_mark(world)
    (log_path,) = log_paths(path)
    os.truncate(log_path, batches_of(log_path)[7][0])
    (found,) = (await verify(path)).findings
    assert (found.severity, found.first_offset, found.end_offset) == (Severity.DAMAGE, 14, 24)
    (done,) = await repair(path, accept_loss=True)
    assert done.is_right
    log, records = await served(path)
    assert (sorted(records), log.log_end_offset) == (list(range(14)), 24)


async def test_a_log_file_that_is_gone_under_its_recovery_mark_is_damage(world: LogWorld) -> None:
    path = await with_a_mark(world)
    os.remove(log_paths(path)[0])
    (found,) = [one for one in (await verify(path)).findings if one.severity is Severity.DAMAGE]
    assert (found.first_offset, found.end_offset) == (0, 24)
    (done,) = await repair(path, accept_loss=True)
    assert done.is_right
    log, records = await served(path)
    assert (records, log.log_end_offset) == ({}, 24)


def put_a_directory(path: str) -> None:
    """Put a directory in the place of a file, which then cannot be read."""
    Path(path).unlink(missing_ok=True)
    os.mkdir(path)


@pytest.mark.parametrize(
    "name",
    [
        *("recovery-mark", "leader-epoch-checkpoint", "partition.metadata"),
        *(f"{0:020d}.index", f"{0:020d}.timeindex", f"{24:020d}.snapshot"),
    ],
)
async def test_a_small_file_that_cannot_be_read_is_named_and_repair_rebuilds_it(world: LogWorld, name: str) -> None:
    await written(world)
    world.orders.roll(world.clock.now_ms())
    world.orders.files.write_epochs_anew(world.orders.epochs).close()
    await world.stop()
    target = f"{world.path}/orders-0/{name}"
    put_a_directory(target)
    found = [one for one in (await verify(world.path)).findings if one.path == target]
    assert [one.severity for one in found] == [Severity.REBUILT]
    assert "Is a directory" in found[0].what
    (done,) = await repair(world.path)
    assert done.is_right
    assert (await verify(world.path)).is_healthy
    _, records = await served(world.path)
    assert records == VALUES


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "cleaner-offset-checkpoint"]
)
async def test_a_checkpoint_that_cannot_be_read_is_named_and_the_start_is_none_the_worse(
    world: LogWorld, name: str
) -> None:
    path = await stopped(world, is_clean=True)
    put_a_directory(f"{path}/{name}")
    (found,) = (await verify(path)).findings
    assert (found.path, found.severity) == (f"{path}/{name}", Severity.REBUILT)
    assert "move it away" in found.what
    world = LogWorld(path)
    await world.start()
    assert (world.orders.is_offline, world.orders.log_end_offset) == (False, RECORDS_COUNT)
    world.disk.close()


async def test_a_log_start_that_went_back_is_named_and_repair_writes_it_anew(world: LogWorld) -> None:
    await written(world)
    await world.logs.delete_records({ORDERS: 5})
    await world.stop()
    path, name = world.path, f"{world.path}/log-start-offset-checkpoint"
    before = content_of(name)
    os.remove(name)
    (found,) = (await verify(path)).findings
    assert (found.path, found.severity) == (name, Severity.REBUILT)
    assert "moved the start to 5" in found.what
    (done,) = await repair(path)
    assert done.is_right
    assert content_of(name) == before
    assert (await verify(path)).is_healthy
