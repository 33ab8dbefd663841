"""Directories of the nodes below one data directory, and the partitions' directories that move between them.

A partition's directory moves by rename(2), as a whole, into the directory of its new leader. Only that
node moves it. Its files are closed: see `leases`.
"""

from __future__ import annotations

import contextlib
import errno
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fencepost.broker.cluster.leases.lease_placement import LeasePlacement
from fencepost.broker.cluster.leases.lease_store import LeaseStore
from fencepost.broker.cluster.leases.lease_table import NodeId, PartitionLease
from fencepost.broker.hosting.arrivals import Arrival, Found
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import RECOVERY_POINT_FILE
from fencepost.broker.log.directory.last_leader_state import LastLeaderState
from fencepost.broker.log.files.checkpoints import ZERO_TOPIC_ID, CorruptCheckpointError, decode_offsets
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.log.files.partition_files import METADATA_FILE, PartitionFiles
from fencepost.broker.storage.disk import Disk, LogFile, StorageError

log = get_logger(__name__)

LEASE_FILE: Final = ".lease"
"""Locked by the node's process from its start to its end; the kernel unlocks it, however it ends."""
_NODE_DIRECTORY = re.compile(r"node\.(0|[1-9][0-9]*)")


def node_directory(data_directory: str, node_id: NodeId) -> str:
    """The directory of one node; no directory of a partition has such a name."""
    return f"{data_directory}/node.{node_id}"


def is_node_directory(path: str) -> bool:
    """Whether a path is that of a node's directory, by its name."""
    return _NODE_DIRECTORY.fullmatch(path.rpartition("/")[2]) is not None


def node_ids(disk: Disk, data_directory: str) -> list[NodeId]:
    """The nodes that have a directory. Raises StorageError."""
    found = (_NODE_DIRECTORY.fullmatch(name) for name in disk.list(data_directory))
    return sorted(int(match[1]) for match in found if match is not None)


@contextlib.contextmanager
def lease_lock(disk: Disk, data_directory: str, node_id: NodeId) -> Iterator[bool]:
    """Try to lock a node's lease; yield whether it is locked, until the block ends. Raises StorageError.

    A node without a directory has no process: its lease is free, and there is nothing to lock.
    """
    directory = node_directory(data_directory, node_id)
    if not disk.exists(directory):
        yield True
        return
    path = f"{directory}/{LEASE_FILE}"
    is_locked = disk.lock(path)
    try:
        yield is_locked
    finally:
        if is_locked:
            disk.unlock(path)


def checkpointed(
    disk: Disk, directory: str, leases: Mapping[TopicPartition, PartitionLease]
) -> dict[TopicPartition, LastLeaderState]:
    """The last state of a lost node's logs, by its checkpoints. An unreadable checkpoint is left out, and reported.

    leases: leases of all partitions. A checkpoint counts only if a directory of that topic exists: it may be older
            than the last move of the partition, or than its topic.
    """
    recovery_points, log_starts = (
        _read_checkpoint(disk, f"{directory}/{name}") for name in (RECOVERY_POINT_FILE, LOG_START_FILE)
    )
    return {
        name: LastLeaderState(recovery_points.get(name, 0), log_starts.get(name, 0))
        for name in recovery_points.keys() | log_starts.keys()
        if name in leases and _is_of(disk, f"{directory}/{name}", leases[name].topic_id)
    }


def _is_of(disk: Disk, directory: str, topic_id: bytes) -> bool:
    try:
        return PartitionFiles(disk, directory).read_topic_id() == topic_id
    except StorageError as error:
        log.error("partition_metadata_not_read", path=directory, reason=str(error))  # noqa: TRY400  # says all
        return False


def _read_checkpoint(disk: Disk, path: str) -> dict[TopicPartition, int]:
    try:
        content = disk.read_file(path)
        return {} if content is None else decode_offsets(content)
    except (StorageError, CorruptCheckpointError) as error:
        log.error("checkpoint_corrupt", path=path, reason=str(error))  # noqa: TRY400  # says all
        return {}


class NodeDirectories:
    """The directories as one node uses them, for `Arrivals`."""

    def __init__(self, data_directory: str, placement: LeasePlacement, store: LeaseStore, disk: Disk) -> None:
        self._data_directory = data_directory
        self._own = node_directory(data_directory, placement.node_id)
        self._placement = placement
        self._store = store
        self._disk = disk

    async def prepare(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, Arrival]:
        arrivals: dict[TopicPartition, Arrival] = {}
        sources: set[str] = set()
        for name in names:
            try:
                arrivals[name] = self._prepare(name, sources)
            except StorageError as error:
                arrivals[name] = Arrival(Found.MISSING, error=error)
        if sources:
            try:
                await self._disk.sync((), (self._own, *sorted(sources)))
            except StorageError as error:
                # After a loss of power they may be in their old directories, and are moved again.
                log.warning("moved_directories_not_synced", path=self._own, reason=str(error))
        return arrivals

    def _prepare(self, name: TopicPartition, sources: set[str]) -> Arrival:
        """Raises StorageError."""
        own = f"{self._own}/{name}"
        last_state = self._placement.last_state(name)
        if self._disk.exists(own):
            return Arrival(Found.HERE, last_state._replace(was_closed=False))
        for node_id in node_ids(self._disk, self._data_directory):
            source = node_directory(self._data_directory, node_id)
            if not self._disk.exists(f"{source}/{name}") or not self._is_of_topic(f"{source}/{name}", name):
                continue
            try:
                self._disk.rename(f"{source}/{name}", own)
            except StorageError as error:
                if error.errno == errno.ENOENT:
                    continue  # moved meanwhile, as another node leads it by now
                raise
            sources.add(source)
            log.info("partition_directory_brought", topic=name.topic, partition=name.partition, source=source)
            return Arrival(Found.HERE, last_state)
        return Arrival(Found.MISSING if self._placement.is_created(name) else Found.NOWHERE)

    def _is_of_topic(self, directory: str, name: TopicPartition) -> bool:
        """Whether a directory belongs to the topic that has this name now. Raises StorageError.

        One of an earlier topic may be left on a node that was not there when that was deleted.
        """
        lease = self._placement.known.table.partitions.get(name)
        topic_id = PartitionFiles(self._disk, directory).read_topic_id()
        return lease is None or topic_id in (lease.topic_id, ZERO_TOPIC_ID)

    async def created(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        directories = [f"{self._own}/{name}" for name in topic_ids]
        files: list[LogFile] = []
        try:
            # A directory without a topic id would count as one whose creation a loss of power cut short.
            files += [self._disk.open(f"{directory}/{METADATA_FILE}") for directory in directories]
            await self._disk.sync(files, (self._own, *directories))
            await self._store.mark_created(topic_ids)
            await self._placement.refresh()
        except StorageError as error:
            log.error(  # noqa: TRY400  # the reason says it all
                "created_directories_not_recorded",
                path=self._own,
                reason=f"{error}; if they were lost, they would be created again, empty",
            )
        finally:
            for file in files:
                file.close()

    def all_last_states(self) -> Mapping[TopicPartition, LastLeaderState]:
        return {
            name: self._placement.last_state(name)
            for name in self._placement.known.table.led_by(self._placement.node_id)
        }
