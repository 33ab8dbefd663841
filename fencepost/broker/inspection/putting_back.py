"""Puts directories and log files that were exchanged back in their places, as the lists of checksums name them.

A directory belongs to the partition that its list names; a log file, to the list that has noted its beginning. One that
fits no place, or more than one, keeps its name. Everything is renamed in two steps, so that an interrupted run is
finished by the next one: first out of the way, to the name of its place with `.moved` behind, then to its place.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fencepost.broker.inspection.overlay_disk import OverlayDisk
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import partition_directories
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID
from fencepost.broker.log.files.file_names import file_name
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.files.segment_checksums import DIRECTORY_NAME, START_SUFFIX, directory_record
from fencepost.broker.log.segment.segment_files import has_other_start, has_start
from fencepost.broker.storage.disk import Disk

MOVED_SUFFIX = ".moved"


class Move(NamedTuple):
    """Something in the wrong place. topic_id: that `partition.metadata` of the directory has to get; None for none."""

    source: str
    target: str
    topic_id: bytes | None = None


def misplaced_directories(data_directory: str, known: Mapping[TopicPartition, bytes | None]) -> list[Move]:
    """Find directories of partitions that lie under each other's names. known: the topic ids from the metadata.

    Raises StorageError.
    """
    with contextlib.closing(OverlayDisk()) as disk:
        found = partition_directories(disk.list(data_directory))
        names = {directory_record(str(name)): name for name in {*found, *known}}
        moves = []
        for name in found:
            files = PartitionFiles(disk, f"{data_directory}/{name}")
            record = files.checksums.get(DIRECTORY_NAME)
            owner = name if record is None else names.get(record, name)
            topic_id = files.read_topic_id()
            owners_id = known.get(owner)
            is_known = owners_id is None or topic_id in (owners_id, known.get(name), ZERO_TOPIC_ID)
            if owner != name and is_known:
                moves.append(Move(files.directory, f"{data_directory}/{owner}", owners_id))
        return _possible(moves, {f"{data_directory}/{name}" for name in found})


def misplaced_files(data_directory: str) -> list[Move]:
    """Find log files that lie in each other's directories, under the same name. Raises StorageError."""
    with contextlib.closing(OverlayDisk()) as disk:
        all_files = [
            PartitionFiles(disk, f"{data_directory}/{name}")
            for name in partition_directories(disk.list(data_directory))
        ]
        present = {files.path(file_name(offset, ".log")) for files in all_files for offset in _base_offsets(files)}
        moves = []
        for files in all_files:
            for offset in _base_offsets(files):
                path = files.path(file_name(offset, ".log"))
                with contextlib.closing(disk.open(path)) as file:
                    if has_other_start(file, files.checksums.get(file_name(offset, START_SUFFIX))):
                        moves += [
                            Move(path, other.path(file_name(offset, ".log")))
                            for other in all_files
                            if has_start(file, other.checksums.get(file_name(offset, START_SUFFIX)))
                        ]
        return _possible(moves, present)


def _base_offsets(files: PartitionFiles) -> list[int]:
    return files.numbered().get(".log", [])


def _possible(moves: list[Move], present: set[str]) -> list[Move]:
    """Leave out files with no place, or several, and those that would take the place of one that stays."""
    sources, targets = Counter(one.source for one in moves), Counter(one.target for one in moves)
    moves = [one for one in moves if sources[one.source] == targets[one.target] == 1]
    while True:
        leaving = {one.source for one in moves}
        kept = [one for one in moves if one.target not in present or one.target in leaving]
        if len(kept) == len(moves):
            return moves
        moves = kept


async def put_back(data_directory: str, disk: Disk, moves: list[Move]) -> None:
    """Rename. Raises StorageError; another run then does the rest."""
    for move in moves:
        disk.rename(move.source, move.target + MOVED_SUFFIX)
        await disk.sync([], [_parent(move.target)])
    await finish_moves(data_directory, disk)
    for move in moves:
        files = PartitionFiles(disk, move.target)
        if move.topic_id is not None and files.read_topic_id() != move.topic_id:
            file = files.write_topic_id(move.topic_id)
            await disk.sync([file], [files.directory])
            file.close()


async def finish_moves(data_directory: str, disk: Disk) -> None:
    """Move files of an interrupted run from their temporary names to their places, if free. Raises StorageError."""
    for path in list(_unfinished(data_directory, disk)):
        target = path.removesuffix(MOVED_SUFFIX)
        if not disk.exists(target):
            disk.rename(path, target)
            await disk.sync([], [_parent(target)])


def _unfinished(data_directory: str, disk: Disk) -> Iterator[str]:
    names = disk.list(data_directory)
    for name in names:
        if name.endswith(MOVED_SUFFIX) and partition_directories([name.removesuffix(MOVED_SUFFIX)]):
            yield f"{data_directory}/{name}"
    for partition in partition_directories(names):
        for name in disk.list(f"{data_directory}/{partition}"):
            if name.endswith(f".log{MOVED_SUFFIX}"):
                yield f"{data_directory}/{partition}/{name}"


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
