"""Application of a repair plan, in an order in which a crash at any moment leaves a state that the next repair
continues.

Bytes given up are durable in their own file before a log file changes. One rename replaces a log file as a whole.
The broker's own recovery rebuilds, last, the files derived from the log.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from fencepost.broker.inspection.repair_plan import LOSING, Edit, Plan
from fencepost.broker.kernel.sliced_work import run_to_end
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import RECOVERY_POINT_FILE
from fencepost.broker.log.files.checkpoints import CorruptCheckpointError, decode_offsets, encode_offsets
from fencepost.broker.log.files.file_names import INDEX_SUFFIXES, file_name, lost_path
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import METADATA_FILE, RECOVERY_MARK_FILE, PartitionFiles
from fencepost.broker.log.files.segment_checksums import CHECKSUMS_FILE, DIRECTORY_NAME, START_SUFFIX
from fencepost.broker.log.files.small_file import read_small
from fencepost.broker.log.log_config import LogConfig
from fencepost.broker.log.recovery.loaded_log import LoadedLog
from fencepost.broker.log.recovery.recovery import LogRecovery
from fencepost.broker.log.segment.swap import finish_swaps
from fencepost.broker.storage.disk import Disk, LogFile, StorageError

COPY_BYTES = 1024 * 1024
UNFINISHED_SUFFIX = ".repair"


async def apply_plan(
    plan: Plan,
    data_directory: str,
    name: TopicPartition,
    disk: Disk,
    config: LogConfig,
    *,
    log_start_offset: int,
    topic_id: bytes | None,
    now_ms: int,
) -> list[str]:
    """Repair one partition; return the files that keep the bytes given up.

    Raises StorageError; another repair then does the rest.
    """
    directory = f"{data_directory}/{name}"
    disk.make_directory(directory)
    files = PartitionFiles(disk, directory)
    for leftover in [one for one in disk.list(directory) if one.endswith(UNFINISHED_SUFFIX)]:
        disk.delete(files.path(leftover))
    run_to_end(finish_swaps(files, files.numbered()))
    kept = [await _set_aside_whole(disk, directory, path) for path in plan.set_aside]
    for path, edits in sorted(plan.edits.items()):
        kept += await _rewrite(disk, directory, path, edits)
    if plan.restarts_at is not None:
        disk.open(files.path(file_name(plan.restarts_at, ".log"))).close()
    indexes = [path.removesuffix(".log") + suffix for path in plan.edits for suffix in INDEX_SUFFIXES]
    for path in (*plan.deletes, *indexes):
        # Before the list forgets the log file: without its checksum, a start would accept a stale index.
        disk.delete(path)
    if plan.reread_from is not None or plan.restarts_at is not None:
        disk.delete(files.path(RECOVERY_MARK_FILE))  # it names a place that the log may have lost
    _forget_checksums(disk, files, plan)
    if plan.writes_log_start:
        _note_offset(f"{data_directory}/{LOG_START_FILE}", name, log_start_offset, disk)
    if plan.writes_topic_id and topic_id is not None:
        disk.delete(files.path(METADATA_FILE))  # it may be a directory
        file = files.write_topic_id(topic_id)
        await disk.sync([file], [directory])
        file.close()
    if plan.reread_from is None and plan.restarts_at is None:
        return kept
    loaded = run_to_end(
        LogRecovery(
            files,
            config,
            is_clean=False,
            recovery_point=plan.restarts_at if plan.restarts_at is not None else plan.reread_from or 0,
            log_start_offset=log_start_offset,
            now_ms=now_ms,
        ).load()
    )
    await _finish(loaded, plan, data_directory, name, files)
    return kept


async def _finish(
    loaded: LoadedLog, plan: Plan, data_directory: str, name: TopicPartition, files: PartitionFiles
) -> None:
    """Sync the files that were read again, then write the checkpoint."""
    disk, directory = files.disk, files.directory
    try:
        if loaded.offline_reason is not None:
            raise StorageError(f"{name} is refused all the same: {loaded.offline_reason}")
        await disk.sync([*loaded.unsynced, *loaded.side_files], [directory])
        end_offset = loaded.segments.active.next_offset
        if plan.raises_epoch:
            loaded.epochs.assign(max(loaded.epochs.latest, 0) + 1, end_offset)
        epochs_file = files.write_epochs_anew(loaded.epochs)
        await disk.sync([epochs_file], [directory])
        epochs_file.close()
        _note_offset(f"{data_directory}/{RECOVERY_POINT_FILE}", name, end_offset, disk)
    finally:
        for file in loaded.side_files:
            file.close()
        for segment in loaded.segments:
            segment.close()


def _note_offset(path: str, name: TopicPartition, offset: int, disk: Disk) -> None:
    """Write a line of a checkpoint; an unreadable one is left: the next start then reads all logs again."""
    with contextlib.suppress(CorruptCheckpointError):
        content = read_small(disk, path)
        offsets = decode_offsets(content) if content is not None else {}
        if offsets.get(name) != offset:
            offsets[name] = offset
            disk.write_file(path, encode_offsets(offsets), durable=True)


def _forget_checksums(disk: Disk, files: PartitionFiles, plan: Plan) -> None:
    """Remove the checksums of changed and deleted files, which would contradict the new ones."""
    checksums = files.checksums
    if files.path(CHECKSUMS_FILE) in plan.deletes:
        checksums.drop()
        return
    names = set(disk.list(files.directory))
    changed = {path.rpartition("/")[2] for path in (*plan.edits, *plan.set_aside, *plan.deletes)}
    changed |= {problem.path.rpartition("/")[2] for problem in plan.repaired}
    changed |= {f"{one}{START_SUFFIX.removeprefix('.log')}" for one in changed if one.endswith(".log")}
    if CHECKSUMS_FILE in changed:
        changed.add(DIRECTORY_NAME)
    accepts_loss = any(problem.kind in LOSING for problem in plan.repaired)
    forgotten: dict[str, None] = {
        one: None for one in checksums.names() if one in changed or (accepts_loss and one not in names)
    }
    if forgotten:
        checksums.add(forgotten).close()


async def _set_aside_whole(disk: Disk, directory: str, path: str) -> str:
    target = lost_path(path, 0)
    if disk.exists(path):
        target = _free_name(disk, path, Edit(0, disk.size_bytes(path), b"", True))
        disk.rename(path, target)
        await disk.sync([], [directory])
    return target


async def _rewrite(disk: Disk, directory: str, path: str, edits: Sequence[Edit]) -> list[str]:
    """Replace a log file by one with the edits; return the files that keep the bytes cut out."""
    kept = [await _keep(disk, directory, path, edit) for edit in edits if edit.is_kept]
    unfinished = path + UNFINISHED_SUFFIX
    before = disk.open(path) if disk.exists(path) else None
    after = disk.open(unfinished)
    try:
        for piece in _pieces(before, edits):
            after.append(piece)
        if before is not None:
            after.set_last_write_ms(before.last_write_ms())  # the age of records without a timestamp is counted from it
        await disk.sync([after], [directory])
    except StorageError:
        with contextlib.suppress(StorageError):
            disk.delete(unfinished)  # on a full disk it would take space from everything else
        raise
    finally:
        after.close()
        if before is not None:
            before.close()
    disk.rename(unfinished, path)
    await disk.sync([], [directory])
    return kept


def _pieces(before: LogFile | None, edits: Sequence[Edit]) -> Iterator[bytes | memoryview]:
    position = 0
    for edit in edits:
        if before is not None:
            yield from _copied(before, position, edit.position)
        yield edit.replacement
        position = edit.end_position
    if before is not None:
        yield from _copied(before, position, before.size_bytes)


def _copied(file: LogFile, position: int, end_position: int) -> Iterator[memoryview]:
    while position < end_position:
        piece = file.read(position, min(COPY_BYTES, end_position - position))
        if not len(piece):
            raise StorageError(f"{file.path} has become shorter while it was read")
        yield piece
        position += len(piece)


async def _keep(disk: Disk, directory: str, path: str, edit: Edit) -> str:
    """Copy the bytes cut out of a log file into their own file, durably; an identical one is reused."""
    target = _free_name(disk, path, edit)
    if disk.exists(target):
        return target
    unfinished = target + UNFINISHED_SUFFIX
    source, copy = disk.open(path), disk.open(unfinished)
    try:
        for piece in _copied(source, edit.position, edit.end_position):
            copy.append(piece)
        await disk.sync([copy], [directory])
    finally:
        source.close()
        copy.close()
    disk.rename(unfinished, target)
    await disk.sync([], [directory])
    return target


def _free_name(disk: Disk, path: str, edit: Edit) -> str:
    """Return a name that is free, or whose file holds exactly these bytes."""
    first = target = lost_path(path, edit.position)
    number = 1
    while disk.exists(target) and not _is_same(disk, path, edit, target):
        number += 1
        target = f"{first}-{number}"
    return target


def _is_same(disk: Disk, path: str, edit: Edit, target: str) -> bool:
    if disk.size_bytes(target) != edit.end_position - edit.position:
        return False
    source, other = disk.open(path), disk.open(target)
    try:
        pieces = zip(
            _copied(source, edit.position, edit.end_position), _copied(other, 0, other.size_bytes), strict=True
        )
        return all(one == another for one, another in pieces)
    finally:
        source.close()
        other.close()
