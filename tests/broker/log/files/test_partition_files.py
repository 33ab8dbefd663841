"""Files that are right in themselves and lie in the wrong place: those of another partition are not believed."""

from __future__ import annotations

import os
import shlex
import shutil

import pytest

from fencepost.broker.inspection.findings import Severity
from fencepost.broker.inspection.problems import Kind
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import METADATA_FILE
from fencepost.broker.log.files.segment_checksums import CHECKSUMS_FILE
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.record_batch import Record, build_batch
from tests.support.captured_events import capture_logs
from tests.support.data_directory import problems_of, records_of, repair, verify
from tests.support.log_world import NOW_MS, ORDERS, TOPIC_ID, LogWorld, content_of, overwrite, replace

NEXT = TopicPartition("orders", 1)
"""Another partition of the same topic, whose id it has."""
OTHERS = TopicPartition("others", 0)
BATCHES = 12
VALUE_BYTES = 1_000
CONFIG = LogConfig(segment_bytes=4 * (VALUE_BYTES + 71))


def append(log: PartitionLog, value: bytes) -> None:
    log.append(memoryview(build_batch([Record(0, NOW_MS, None, value)])), now_ms=NOW_MS)


def value(of: TopicPartition, number: int) -> bytes:
    return f"{of} {number} ".encode().ljust(VALUE_BYTES, b".")


async def with_three_logs(world: LogWorld) -> None:
    """Three logs of as many batches of the same sizes, in three segments each, swept and with a recovery point."""
    world.create(CONFIG)
    for other in (NEXT, OTHERS):
        world.logs.create(other, TOPIC_ID, CONFIG)
    for log in world.logs.logs():
        for number in range(BATCHES):
            append(log, value(log.topic_partition, number))
        await log.flushed()
        assert len(log.segments) == 3
    world.clock.time_ms += 120_000
    world.logs.sweep(world.clock.now_ms())


def exchange(one: str, other: str) -> None:
    os.rename(one, f"{one}.aside")
    os.rename(other, one)
    os.rename(f"{one}.aside", other)


def has_its_own(log: PartitionLog) -> bool:
    expected = {number: value(log.topic_partition, number) for number in range(BATCHES)}
    return records_of(log) == expected


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("segment", [0, 4, 8], ids=["the first segment", "the middle one", "the last one"])
@pytest.mark.parametrize("other", [NEXT, OTHERS], ids=["of one topic", "of two topics"])
async def test_log_files_that_were_exchanged_take_both_partitions_offline(
    world: LogWorld, other: TopicPartition, segment: int, crash: bool
) -> None:
    await with_three_logs(world)
    if not crash:
        await world.stop()
    paths = [f"{world.path}/{name}/{segment:020d}.log" for name in (ORDERS, other)]
    exchange(*paths)
    with capture_logs() as logs:
        await world.restart(crash=True)
    for log in world.logs.logs():
        assert log.is_offline == (log.topic_partition in (ORDERS, other))
        assert log.is_offline or has_its_own(log)
    said = {entry["path"]: entry for entry in logs if entry["event"] == "log_damaged"}
    assert set(said) == set(paths)
    assert all("another partition" in entry["reason"] and "log repair" in entry["reason"] for entry in said.values())
    assert all(content_of(path) for path in paths)


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
async def test_directories_that_were_exchanged_take_both_partitions_offline(world: LogWorld, crash: bool) -> None:
    await with_three_logs(world)
    if not crash:
        await world.stop()
    exchange(f"{world.path}/{ORDERS}", f"{world.path}/{NEXT}")
    await world.restart(crash=True)
    for log in world.logs.logs():
        assert log.is_offline == (log.topic_partition in (ORDERS, NEXT))
        assert log.is_offline or has_its_own(log)


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
async def test_a_log_without_a_list_of_checksums_is_taken_as_it_is(world: LogWorld, crash: bool) -> None:
    await with_three_logs(world)
    if not crash:
        await world.stop()
    os.remove(f"{world.path}/{ORDERS}/{CHECKSUMS_FILE}")
    assert has_its_own(await world.restart(crash=True))


async def test_damage_to_the_first_batch_is_not_taken_for_another_file(world: LogWorld) -> None:
    await with_three_logs(world)
    await world.stop()
    path = f"{world.path}/{ORDERS}/{0:020d}.log"
    overwrite(path, 100, b"!")
    log = await world.restart(crash=True)
    assert not log.is_offline, "the batch is served as it is, and clients check it"


async def test_a_log_that_was_cut_to_its_start_may_begin_otherwise(world: LogWorld) -> None:
    world.create()
    append(world.orders, b"never acknowledged")
    path = world.orders.segments.active.files.path(".log")
    os.truncate(path, 30)
    log = await world.restart(crash=True)
    append(log, b"first")
    await log.flushed()
    world.logs.sweep(world.clock.now_ms())
    log = await world.restart()
    assert not log.is_offline
    assert records_of(log) == {0: b"first"}


@pytest.mark.parametrize("how", ["removed", "emptied"])
async def test_an_active_segment_that_is_gone_is_noticed_above_the_recovery_point(world: LogWorld, how: str) -> None:
    world.create()
    append(world.orders, b"acknowledged")
    await world.orders.flushed()
    world.logs.sweep(world.clock.now_ms())
    path = world.orders.segments.active.files.path(".log")
    if how == "removed":
        os.remove(path)
    else:
        os.truncate(path, 0)
    with capture_logs() as logs:
        log = await world.restart(crash=True)
    assert log.is_offline
    assert [entry["path"] for entry in logs if entry["event"] == "log_damaged"] == [path]


async def repaired(world: LogWorld, *, accept_loss: bool = False) -> None:
    await repair(world.path, accept_loss=accept_loss)
    assert await foreign(world) == [], "verify has nothing left to say of what repair has put right"


async def foreign(world: LogWorld) -> list[str]:
    return [problem.path for problem in await problems_of(world.path) if problem.kind is Kind.FOREIGN]


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("segment", [0, 4, 8], ids=["the first segment", "the middle one", "the last one"])
@pytest.mark.parametrize("other", [NEXT, OTHERS], ids=["of one topic", "of two topics"])
async def test_repair_puts_log_files_that_were_exchanged_back(
    world: LogWorld, other: TopicPartition, segment: int, crash: bool
) -> None:
    await with_three_logs(world)
    await ended(world, crash=crash)
    paths = [f"{world.path}/{name}/{segment:020d}.log" for name in (ORDERS, other)]
    exchange(*paths)
    assert sorted(await foreign(world)) == sorted(paths)
    await repaired(world)
    await world.restart(crash=True)
    assert all(has_its_own(log) for log in world.logs.logs())


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize("accept_loss", [False, True])
async def test_repair_puts_directories_that_were_exchanged_back(
    world: LogWorld, crash: bool, accept_loss: bool
) -> None:
    await with_three_logs(world)
    await ended(world, crash=crash)
    directories = [f"{world.path}/{name}" for name in (ORDERS, NEXT, OTHERS)]
    exchange(*directories[:2])
    exchange(*directories[1:])
    assert sorted(await foreign(world)) == [f"{each}/{CHECKSUMS_FILE}" for each in directories]
    await repaired(world, accept_loss=accept_loss)
    await world.restart(crash=True)
    assert all(has_its_own(log) for log in world.logs.logs())


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
async def test_repair_sets_aside_a_log_file_that_belongs_nowhere_and_serves_nothing_of_it(
    world: LogWorld, crash: bool
) -> None:
    await with_three_logs(world)
    await ended(world, crash=crash)
    path = f"{world.path}/{ORDERS}/{8:020d}.log"
    stranger = content_of(f"{world.path}/{OTHERS}/{8:020d}.log")
    replace(path, stranger)
    await repair(world.path)
    assert await foreign(world) == [path], "a loss has to be accepted"
    await repaired(world, accept_loss=True)
    assert content_of(f"{path}.lost-0") == stranger
    log = await world.restart(crash=True)
    assert records_of(log) == {number: value(ORDERS, number) for number in range(8)}
    assert log.log_end_offset == BATCHES, "no offset is given out twice"
    others = world.logs.get(OTHERS)
    assert others is not None
    assert has_its_own(others)


async def test_repair_sets_aside_the_copy_of_a_directory_and_serves_nothing_of_it(world: LogWorld) -> None:
    await with_three_logs(world)
    await world.stop()
    directory = f"{world.path}/{ORDERS}"
    shutil.rmtree(directory)
    shutil.copytree(f"{world.path}/{NEXT}", directory)
    await repaired(world, accept_loss=True)
    assert content_of(f"{directory}/{4:020d}.log.lost-0") == content_of(f"{world.path}/{NEXT}/{4:020d}.log")
    log = await world.restart(crash=True)
    assert (records_of(log), log.log_start_offset, log.log_end_offset) == ({}, BATCHES, BATCHES)
    following = world.logs.get(NEXT)
    assert following is not None
    assert has_its_own(following)


@pytest.mark.parametrize("at", range(6))
async def test_an_interrupted_exchange_is_finished_by_the_next_repair(
    world: LogWorld, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    await with_three_logs(world)
    await world.stop()
    exchange(f"{world.path}/{ORDERS}", f"{world.path}/{NEXT}")
    exchange(*[f"{world.path}/{name}/{8:020d}.log" for name in (ORDERS, OTHERS)])
    rename, count = LocalDisk.rename, 0

    def until_killed(disk: LocalDisk, source: str, target: str) -> None:
        nonlocal count
        count += 1
        if count > at:
            raise StorageError("the end")
        rename(disk, source, target)

    with monkeypatch.context() as patched:
        patched.setattr(LocalDisk, "rename", until_killed)
        with pytest.raises(StorageError, match="the end"):
            await repair(world.path)
    await repaired(world)
    await world.restart(crash=True)
    assert all(has_its_own(log) for log in world.logs.logs())
    assert len(list(world.logs.logs())) == 3


@pytest.mark.parametrize("what", ["directories", "log files"])
async def test_the_choice_that_loses_nothing_names_the_command_that_puts_back(world: LogWorld, what: str) -> None:
    """A repair of named partitions puts nothing back."""
    await with_three_logs(world)
    await world.stop()
    name = "" if what == "directories" else f"/{8:020d}.log"
    exchange(*[f"{world.path}/{one}{name}" for one in (ORDERS, NEXT)])
    all_findings = (await verify(world.path)).findings
    findings = [one for one in all_findings if one.partition and one.severity is Severity.DAMAGE]
    assert len(findings) == 2
    for finding in findings:
        assert finding.choices[0].action == shlex.join(["fencepost", "log", "repair", "--data-dir", world.path])
    await repaired(world)


async def ended(world: LogWorld, *, crash: bool) -> None:
    if crash:
        await world.checkpointed()
        world.disk.unlock(f"{world.path}/.lock")
    else:
        await world.stop()


@pytest.mark.parametrize("crash", [False, True], ids=["after a clean stop", "after a crash"])
@pytest.mark.parametrize(
    "staying", [(), (METADATA_FILE,), (METADATA_FILE, CHECKSUMS_FILE)], ids=["none", "topic ids", "topic ids and lists"]
)
async def test_repair_puts_logs_back_of_which_some_files_were_exchanged(
    world: LogWorld, staying: tuple[str, ...], crash: bool
) -> None:
    await with_three_logs(world)
    for name in (ORDERS, OTHERS):  # so that each log is known by its own contents
        log = world.logs.get(name)
        assert log is not None
        log.files.write_epochs_anew(log.epochs).close()
    await ended(world, crash=crash)
    directories = [f"{world.path}/{name}" for name in (ORDERS, OTHERS)]
    names = {name for each in directories for name in world.disk.list(each)} - set(staying)
    for file in sorted(names):
        exchange_if_there(*[f"{each}/{file}" for each in directories])
    assert await foreign(world)
    await repaired(world, accept_loss=True)
    await world.restart(crash=True)
    assert all(has_its_own(log) for log in world.logs.logs())


def exchange_if_there(one: str, other: str) -> None:
    for source, target in ((one, f"{one}.aside"), (other, one), (f"{one}.aside", other)):
        if os.path.exists(source):
            os.rename(source, target)
