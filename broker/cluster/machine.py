"""One broker of a cluster of machines, put together: its store, its lease, and the engine that keeps its logs.

PostgreSQL has who leads what, the metadata and the ends of the logs; an object store has the rest. The broker's own
directory is scratch.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from fencepost.broker.cluster.lease_placement import LeasePlacement
from fencepost.broker.cluster.lease_store import Endpoints
from fencepost.broker.cluster.objects.bucket_check import UnusableBucketError, check_bucket
from fencepost.broker.cluster.objects.flush_objects import FlushUploads
from fencepost.broker.cluster.objects.location import ObjectLocation, UnusableLocationError, read_location
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.objects.store import ObjectStore, ObjectStoreError
from fencepost.broker.cluster.postgres.connections import PostgresAddress, parse_address
from fencepost.broker.cluster.postgres.lease_store import PostgresLeaseStore
from fencepost.broker.cluster.postgres.member import PostgresMember
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.restoring import Restoring
from fencepost.broker.cluster.scratch import ScratchDisk, empty_scratch
from fencepost.broker.cluster.tail_log import TailLog
from fencepost.broker.cluster.tail_store import SealedPart, SealedPartition
from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.config.password import Password
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_directory import LOCK_FILE
from fencepost.broker.log.shared_log import SharedLog
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)


async def join_cluster(settings: Settings) -> tuple[Settings, dict[str, Any]]:
    """Check what a cluster needs, found it if this broker is its first, and choose this broker's id if it has none.

    Returns the settings with that id, and what `Node` is given beside them. Raises StorageError, with one line for the
    user.
    """
    address, location = _locations(settings)
    objects = await _open_objects(location)
    lease_s = settings.fencepost_cluster_lease_ms / 1000
    founding = PostgresLeaseStore(address, lease_s=lease_s)
    await founding.open()
    try:
        cluster_id = await founding.cluster_id()
        if "node.id" not in settings.origins:
            node_id = await founding.reserve_node_id(_known_endpoints(settings))
            settings = dataclasses.replace(settings, node_id=node_id)
    finally:
        await founding.close()
    store = PostgresLeaseStore(address, lease_s=lease_s)
    member = PostgresMember(
        store,
        settings.node_id,
        renew_interval_s=settings.fencepost_cluster_lease_renewal_ms / 1000,
        make_engine=lambda member: MachineEngine(
            settings, member, store, FlushUploads(objects, cluster_id), cluster_id
        ),
    )
    return settings, {"store": store, "membership": member, "local_disk": ScratchDisk}


def _locations(settings: Settings) -> tuple[PostgresAddress, ObjectLocation]:
    """Raises StorageError."""
    try:
        address = parse_address(_revealed(settings.fencepost_cluster_url))
    except ValueError as error:
        raise StorageError(f"fencepost.cluster.url (--cluster): {error}") from None
    try:
        return address, read_location(_revealed(settings.fencepost_cluster_objects))
    except (ValueError, UnusableLocationError) as error:
        raise StorageError(f"fencepost.cluster.objects (--objects): {error}") from None


def _revealed(url: Password | None) -> str:
    return "" if url is None else url.reveal()


async def _open_objects(location: ObjectLocation) -> ObjectStore:
    """Raises StorageError."""
    try:
        objects = S3Objects(location)
        await check_bucket(objects, location)
    except (ObjectStoreError, UnusableBucketError) as error:
        raise StorageError(str(error)) from None
    return objects


def _known_endpoints(settings: Settings) -> Endpoints:
    """What the listeners advertise, as far as that is known before they are bound: by it, a broker that starts again
    gets the id that it had. None where a port is taken by chance."""
    endpoints = {
        listener.name: (address.host, address.port)
        for listener in parse_listeners(settings)
        for address in [listener.advertised or listener]
    }
    return endpoints if all(port for _, port in endpoints.values()) else {}


class MachineEngine:
    """What keeps the logs of one broker, for `PostgresMember`: flushes as rows and objects, and restored logs."""

    def __init__(
        self,
        settings: Settings,
        member: PostgresMember,
        store: PostgresLeaseStore,
        uploads: FlushUploads,
        cluster_id: str,
    ) -> None:
        self._cluster_id = cluster_id
        self._directory = os.path.abspath(settings.log_dirs)
        self._member = member
        self._uploads = uploads
        self._tail = PostgresTail(store.address, lambda: store.session_name("commit"))
        self.shared_log: SharedLog | None = TailLog(
            self._tail, member, objects=uploads, inline_max_bytes=settings.fencepost_cluster_inline_max_bytes
        )

    def arrivals(self, disk: Disk) -> Restoring:
        return Restoring(
            self._directory,
            disk,
            store=self._tail,
            sealed=TailsAlone(self._member.placement),
            tenure=self._member,
            topic_id_of=lambda name: _topic_id(self._member.placement, name),
            objects=self._uploads,
        )

    async def begin(self) -> None:
        """Empty the scratch directory: nothing in it is believed. Raises StorageError."""
        disk = ScratchDisk()
        lock = f"{self._directory}/{LOCK_FILE}"
        try:
            disk.make_directory(self._directory)
            if not disk.lock(lock):
                raise StorageError(
                    f"{self._directory} is in use by another broker: it holds a lock on {lock}. "
                    "Stop that one, or give this one a directory of its own"
                )
            empty_scratch(disk, self._directory, self._cluster_id)
            disk.unlock(lock)
        finally:
            disk.close()

    async def close(self) -> None:
        await self._tail.close()


class TailsAlone:
    """The sealed parts of logs of which nothing is sealed, for `SealedParts`."""

    def __init__(self, placement: LeasePlacement) -> None:
        self._placement = placement

    async def restore(self, wanted: Mapping[TopicPartition, SealedPartition]) -> Mapping[TopicPartition, SealedPart]:
        parts = {}
        for name in wanted:
            left_off = self._placement.left_off(name)
            if left_off.recovery_point:
                raise StorageError(f"{name} has sealed segments, which this version does not restore")
            parts[name] = SealedPart(0, left_off.log_start_offset)
        return parts


def _topic_id(placement: LeasePlacement, name: TopicPartition) -> bytes | None:
    lease = placement.known.table.partitions.get(name)
    return None if lease is None else lease.topic_id
