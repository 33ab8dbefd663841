"""Files and directories in a log directory, as Kafka names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.offset_checkpoint import LOG_START_FILE
from fencepost.broker.storage.disk import Disk, StorageError

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_CONTENT = b'{"version":0,"brokerEpoch":-1}'
RECOVERY_POINT_FILE = "recovery-point-offset-checkpoint"
RESERVE_FILE = f"{LOG_START_FILE}.reserve"
CLEANER_FILE = "cleaner-offset-checkpoint"
EXPORT_DIRECTORY = ".cluster-export"
"""Exists in a directory while a cluster is being exported into it: no broker may found its metadata there."""
LONGEST_NAME_BYTES = 255
_PARTITION_NAME = re.compile(r"(.+)-(\d+)")
_DELETED_NAME = re.compile(r".+\.[0-9a-f]{32}-delete")


def partition_directories(names: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions among the names in a log directory."""
    found = []
    for name in names:
        match = _PARTITION_NAME.fullmatch(name)
        if match is not None and str(int(match[2])) == match[2] and not is_deleted_directory(name):
            found.append(TopicPartition(match[1], int(match[2])))
    return found


def is_deleted_directory(name: str) -> bool:
    """Whether this is the directory of a deleted log, whose files are still to be deleted."""
    return _DELETED_NAME.fullmatch(name) is not None


def deleted_directory(topic_partition: TopicPartition, topic_id: bytes) -> str:
    """Return the name that the directory of a deleted log gets."""
    ending = f".{topic_id.hex()}-delete"
    return str(topic_partition)[: LONGEST_NAME_BYTES - len(ending)] + ending


def require_no_partitions(disk: Disk, path: str, metadata_path: str, found: Sequence[object]) -> None:
    """Forbid to found metadata beside partitions that they would not know. found: names of partitions. Raises
    StorageError."""
    if disk.exists(f"{path}/{EXPORT_DIRECTORY}"):
        raise StorageError(
            f"the export of a cluster into {path} was interrupted: run `fencepost cluster export` again, with the same "
            "directory"
        )
    if found:
        raise StorageError(
            f"{metadata_path} is missing or empty, but {path} holds {len(found)} partitions, such as {found[0]}: it "
            "says which topics they belong to. Restore it from a backup; without one, start with another data "
            "directory and keep this one"
        )
