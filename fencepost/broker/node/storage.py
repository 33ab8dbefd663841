"""The data directory of a node, its metadata store and its log directory."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from fencepost.broker.hosting.broker_configs import BrokerConfigs
from fencepost.broker.hosting.membership import Cluster, NodeLogs
from fencepost.broker.hosting.placement import Placement
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.random_ids import RandomIds
from fencepost.broker.log.directory.directory_files import partition_directories, require_no_partitions
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.metadata.sqlite import FILE_NAME, SqliteMetadataStore
from fencepost.broker.network.server import StartError
from fencepost.broker.node.foundation import Foundation
from fencepost.broker.storage.disk import Disk, remedy
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.producer_ids import BLOCK_KEY, above_reserved_blocks

log = get_logger(__name__)

OWNER_ONLY: Final = 0o700
OF_OTHERS: Final = 0o077


def close_disk_last(base: Foundation, disk: LocalDisk) -> None:
    """Close the node's own disk after all parts. The caller that passed a disk in closes that one."""
    base.cleanup.push_async_callback(_close_on_thread, disk)


def make_logs(base: Foundation, cluster: Cluster | None) -> NodeLogs:
    """Make the log directory, which is closed once topics are hosted: see `host_topics`."""
    if cluster is None:
        return NodeLogs(LogDirectory(base.data_directory, disk=base.disk, clock=base.clock))
    return cluster.make_logs(base.data_directory, base.disk, base.clock)


async def open_store(base: Foundation) -> str:
    """Open the metadata store; returns the cluster's id. Raises StorageError."""
    base.cleanup.push_async_callback(base.store.close)
    await base.store.open()
    return await base.store.cluster_id()


async def host_topics(base: Foundation, logs: NodeLogs, broker_configs: BrokerConfigs, placement: Placement) -> Topics:
    """Host the topics of the store, and begin to open their logs. Raises StorageError."""
    topics = Topics(
        base.store,
        logs.directory,
        base.settings,
        placement=placement,
        arrivals=logs.arrivals,
        new_topic_id=RandomIds(base.randomness).uuid,
    )
    base.cleanup.push_async_callback(logs.directory.close)
    base.cleanup.push_async_callback(topics.close)
    await topics.open()
    _watch_settings(base, broker_configs, topics, logs.directory)
    return topics


def _watch_settings(base: Foundation, broker_configs: BrokerConfigs, topics: Topics, logs: LogDirectory) -> None:
    """Notify the parts that keep values of settings when these change."""
    settings = base.settings

    def changed() -> None:
        logs.cleaner_backoff_ms = settings.log_cleaner_backoff_ms if settings.log_cleaner_enable else None
        topics.settings_changed()

    changed()
    broker_configs.on_changed.append(changed)


def sqlite_store(data_directory: str, disk: Disk) -> SqliteMetadataStore:
    """The metadata store in a data directory. It is not founded beside partitions that it would not know."""
    path = os.path.join(data_directory, FILE_NAME)

    def before_founding() -> None:
        require_no_partitions(disk, data_directory, path, partition_directories(disk.list(data_directory)))

    return SqliteMetadataStore(path, before_founding=before_founding, on_restoring={BLOCK_KEY: above_reserved_blocks})


async def _close_on_thread(disk: LocalDisk) -> None:
    """Close a disk on a thread, so that the event loop does not wait for its last syncs."""
    with ThreadPoolExecutor(1, thread_name_prefix="disk-close") as executor:
        await asyncio.get_running_loop().run_in_executor(executor, disk.close)


def _close_to_others(path: str) -> None:
    """Remove the permissions of other users from a data directory. Raises OSError."""
    mode = os.stat(path).st_mode
    found = os.listdir(path) if mode & OF_OTHERS and os.access(path, os.R_OK) else None
    if found is None or (found and FILE_NAME not in found):
        return  # a directory with other files may be shared on purpose
    try:
        os.chmod(path, OWNER_ONLY)
    except PermissionError:
        log.warning(
            "data_directory_is_open_to_others", path=path, mode=f"{mode & 0o7777:o}", remedy=f"chmod 700 {path}"
        )
    else:
        log.info("data_directory_closed_to_others", path=path, mode_before=f"{mode & 0o7777:o}")


def make_data_directory(path: str) -> None:
    """Create the data directory with its parents, for its owner alone, and check that it is writable.

    One that exists is closed to others if it is empty or a broker has used it before. Raises StartError.
    """
    try:
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        try:
            os.mkdir(path, OWNER_ONLY)
        except FileExistsError:
            os.makedirs(path, exist_ok=True)  # raises if the path is no directory
            _close_to_others(path)
    except OSError as error:
        raise StartError(f"cannot create the data directory {path}: {error.strerror}; {remedy(error)}") from None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise StartError(f"cannot write to the data directory {path}: check its owner and permissions")
