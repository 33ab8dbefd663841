"""One broker of a cluster of machines, put together: its store, its lease, and the engine that keeps its logs.

PostgreSQL has the leaders of partitions, the metadata and the tails of the logs; an object store has the rest. The
broker's own directory is scratch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from fencepost.broker.cluster.leases.lease_store import Endpoints
from fencepost.broker.cluster.machines.address_warnings import warn_of_addresses
from fencepost.broker.cluster.machines.engine_figures import EngineFigures
from fencepost.broker.cluster.objects.bucket_check import UnusableBucketError, check_bucket
from fencepost.broker.cluster.objects.flush_objects import FlushUploads
from fencepost.broker.cluster.objects.location import ObjectLocation, UnusableLocationError, read_location
from fencepost.broker.cluster.objects.s3 import S3Objects
from fencepost.broker.cluster.objects.store import ObjectStore, ObjectStoreError
from fencepost.broker.cluster.postgres.connections import (
    CONNECTIONS_COUNT,
    PostgresAddress,
    UnavailableError,
    parse_address,
)
from fencepost.broker.cluster.postgres.lease_store import PostgresLeaseStore
from fencepost.broker.cluster.postgres.member import PostgresMember
from fencepost.broker.cluster.postgres.poolers import require_own_sessions
from fencepost.broker.cluster.postgres.segment_rows import PostgresGarbage, PostgresRemoteLogMetadata
from fencepost.broker.cluster.postgres.tail import PostgresTail
from fencepost.broker.cluster.remote.object_sweep import ObjectSweep
from fencepost.broker.cluster.remote.read_replicas import ReadReplicas
from fencepost.broker.cluster.remote.remote_logs import RemoteLogs, Scratch
from fencepost.broker.cluster.remote.segment_rows import GarbageTable, RemoteLogMetadata
from fencepost.broker.cluster.remote.upload_plan import RowsCount, UploadLimits, no_rows_count
from fencepost.broker.cluster.tail.restore import TailRestore
from fencepost.broker.cluster.tail.scratch import ScratchDisk, empty_scratch
from fencepost.broker.cluster.tail.tail_log import TailLog
from fencepost.broker.cluster.tail.tail_store import TailStore
from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.config.password import Password
from fencepost.broker.hosting.membership import Cluster, NodeLogs
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.directory.directory_files import LOCK_FILE
from fencepost.broker.log.directory.log_directory import LogDirectory
from fencepost.broker.log.segment.block_layout import BLOCK_BYTES
from fencepost.broker.storage.disk import Disk, StorageError

log = get_logger(__name__)


class CountedObjects(ObjectStore, Protocol):
    """An object store that counts requests: by operation and outcome, see `S3Objects`."""

    requests: Counter[tuple[str, str]]


@dataclasses.dataclass(frozen=True)
class ClusterObjects:
    """The object store of a cluster, for two purposes."""

    cluster_id: str
    _: dataclasses.KW_ONLY
    of_flushes: CountedObjects
    in_background: CountedObjects


class LogRows(NamedTuple):
    """The rows of logs in the database, as one broker reaches them.

    connect: opens all connections that it needs. close: closes them, after all logs.
    rows_count: see `PostgresTail`.
    unconnected_since_s: time of the loop's clock since which one of them could not be opened; None if all are open.
    """

    tail: TailStore
    sealed: RemoteLogMetadata
    garbage: GarbageTable
    connect: Callable[[], Awaitable[None]]
    close: Callable[[], Awaitable[None]]
    unconnected_since_s: Callable[[], float | None] = lambda: None
    rows_count: RowsCount = no_rows_count


async def join_cluster(settings: Settings) -> tuple[Settings, dict[str, Any]]:
    """Check the needs of a cluster, found it if this broker is its first, and choose this broker's id if it has none.

    Returns the settings with that id, and the other arguments of `Node`. Raises StorageError, with one line for the
    user.
    """
    address, location = _locations(settings)
    warn_of_addresses(settings, address, location)
    await _check_objects(location)
    await require_own_sessions(address)
    lease_s = settings.fencepost_cluster_lease_ms / 1000
    founding = PostgresLeaseStore(address, lease_s=lease_s)
    founding.asynchronous_accepted = settings.fencepost_cluster_asynchronous_standby_accepted
    await founding.open()
    try:
        cluster_id = await founding.cluster_id()
        if "node.id" not in settings.origins:
            node_id = await founding.reserve_node_id(_known_endpoints(settings))
            settings = dataclasses.replace(settings, node_id=node_id)
    finally:
        await founding.close()
    # Flushes have requests of their own, so that seals do not hold them up.
    objects = ClusterObjects(cluster_id, of_flushes=S3Objects(location), in_background=S3Objects(location))
    store = PostgresLeaseStore(address, lease_s=lease_s, rack=settings.broker_rack)
    store.asynchronous_accepted = founding.asynchronous_accepted
    rows = _rows(store, cluster_id)
    member = PostgresMember(
        store,
        settings.node_id,
        renew_interval_s=settings.fencepost_cluster_lease_renewal_ms / 1000,
        connections=rows,
    )
    member.placement.settling_s = settings.fencepost_node_settling_ms / 1000
    cluster = Cluster(member, MachineLogs(settings, member, rows, objects).make)
    return settings, {"store": store, "cluster": cluster, "local_disk": ScratchDisk}


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


async def _check_objects(location: ObjectLocation) -> None:
    """Raises StorageError."""
    try:
        await check_bucket(S3Objects(location), location)
    except (ObjectStoreError, UnusableBucketError) as error:
        raise StorageError(str(error)) from None


def _known_endpoints(settings: Settings) -> Endpoints:
    """Return the addresses that the listeners advertise; none if the system chooses a port, which is known only
    when it is bound. The store gives a broker that starts again the node id that it had, by its addresses."""
    endpoints = {
        listener.name: (address.host, address.port)
        for listener in parse_listeners(settings)
        for address in [listener.advertised or listener]
    }
    return endpoints if all(port for _, port in endpoints.values()) else {}


def _rows(store: PostgresLeaseStore, cluster_id: str) -> LogRows:
    """Those in PostgreSQL, each kind over a connection of its own, named as the store's incarnation is."""
    tail = PostgresTail(store.address, lambda: store.session_name("commit"))
    sealed = PostgresRemoteLogMetadata(store.address, cluster_id, lambda: store.session_name("sealed"))
    garbage = PostgresGarbage(store.address, cluster_id, lambda: store.session_name("sweep"))

    async def connect() -> None:
        try:
            for part in (store.connect, tail.open, sealed.open, garbage.open):
                await part()
        except UnavailableError as error:
            raise StorageError(
                f"this broker needs {CONNECTIONS_COUNT} connections to PostgreSQL, and cannot open all of them: {error}"
            ) from error

    async def close() -> None:
        for rows in (tail, sealed, garbage):
            await rows.close()

    def unconnected_since_s() -> float | None:
        attempts = (*tail.attempts, sealed.attempts, garbage.attempts)
        return min((one.failing_since_s for one in attempts if one.failing_since_s is not None), default=None)

    return LogRows(tail, sealed, garbage, connect, close, unconnected_since_s, tail.rows_count)


def _open_scratch() -> contextlib.AbstractContextManager[Disk]:
    return contextlib.closing(ScratchDisk())


@dataclasses.dataclass(frozen=True)
class MachineLogs:
    """The parts from which the logs of one broker are made.

    open_scratch: the disk with the scratch directory. monotonic_s: a clock that nobody sets, in seconds.
    """

    settings: Settings
    member: PostgresMember
    rows: LogRows
    objects: ClusterObjects
    _: dataclasses.KW_ONLY
    open_scratch: Callable[[], contextlib.AbstractContextManager[Disk]] = _open_scratch
    monotonic_s: Callable[[], float] = time.monotonic

    def make(self, path: str, disk: Disk, clock: Clock) -> NodeLogs:
        """See `Cluster`."""
        member, rows = self.member, self.rows
        engine = MachineEngine(self, path, disk, clock)
        sealed = engine.sealed
        directory = LogDirectory(
            path, disk=disk, clock=clock, files_move=True, shared_log=engine.shared_log, remote_store=sealed
        )
        sealed.attach(directory, rows.rows_count)
        restoring = TailRestore(
            path,
            disk,
            store=rows.tail,
            sealed=sealed,
            tenure=member,
            topic_id_of=member.placement.topic_id,
            objects=engine.uploads,
        )
        return NodeLogs(directory, restoring, engine)


def _scratch(settings: Settings) -> Scratch:
    all_bytes = settings.fencepost_cluster_scratch_max_bytes
    return Scratch(all_bytes) if settings.broker_rack is None else Scratch(all_bytes // 2, all_bytes // 2)


class MachineEngine:
    """The engine that stores the logs of one broker: flushes as rows and objects, and sealed segments.

    directory: path of the logs. sealed: attached to the logs before any other call.
    """

    def __init__(self, made_from: MachineLogs, directory: str, disk: Disk, clock: Clock) -> None:
        settings, member, rows, objects = made_from.settings, made_from.member, made_from.rows, made_from.objects
        self._directory = directory
        self._member = member
        self._objects = objects
        self._open_scratch = made_from.open_scratch
        self.sealed = RemoteLogs(
            objects.in_background,
            rows.sealed,
            cluster_id=objects.cluster_id,
            disk=disk,
            clock=clock,
            tenure=member,
            leader_epoch_of=self._leader_epoch_of,
            limits=UploadLimits(tail_budget_bytes=settings.fencepost_cluster_tail_max_bytes, block_bytes=BLOCK_BYTES),
            scratch=_scratch(settings),
            monotonic_s=made_from.monotonic_s,
        )
        self._sweep = ObjectSweep(
            objects.in_background,
            rows.garbage,
            objects.cluster_id,
            self.sealed.abandoned,
            grace_s=settings.fencepost_cluster_garbage_ms / 1000,
        )
        self.uploads = FlushUploads(objects.of_flushes, objects.cluster_id, self.sealed.abandoned)
        self.shared_log = TailLog(
            rows.tail, member, objects=self.uploads, inline_max_bytes=settings.fencepost_cluster_inline_max_bytes
        )

    def _leader_epoch_of(self, name: TopicPartition) -> int | None:
        placement = self._member.placement
        return placement.leader_epoch(name) if placement.is_local(name) else None

    @property
    def read_replicas(self) -> ReadReplicas | None:
        return self.sealed.replicas

    def is_held(self) -> bool:
        return self._member.is_held()

    async def begin(self) -> None:
        """Empty the scratch directory: nothing in it is believed. Raises StorageError."""
        lock = f"{self._directory}/{LOCK_FILE}"
        with self._open_scratch() as disk:
            disk.make_directory(self._directory)
            if not disk.lock(lock):
                raise StorageError(
                    f"{self._directory} is in use by another broker: it holds a lock on {lock}. "
                    "Stop that one, or give this one a directory of its own"
                )
            empty_scratch(disk, self._directory, self._objects.cluster_id)
            disk.unlock(lock)

    def figures(self) -> EngineFigures:
        """The figures of this broker, as of now."""
        flushes, member, sealed = self.shared_log, self._member, self.sealed
        uploads, replicas = sealed.uploads, sealed.replicas
        fetches = [sealed.fetches] if replicas is None else [sealed.fetches, replicas.fetches]
        return EngineFigures(
            flushes={"rows": flushes.flushes_count - flushes.large_count, "objects": flushes.large_count},
            flushed_bytes={"rows": flushes.flushed_bytes - flushes.large_bytes, "objects": flushes.large_bytes},
            flushed_rows=flushes.rows_count,
            unflushed_bytes=flushes.unflushed_bytes,
            is_waiting=flushes.is_waiting,
            lease_left_s=member.lease.left_s(),
            tail_bytes=uploads.tail_bytes,
            tail_budget_bytes=uploads.limits.tail_budget_bytes,
            sealed_segments=uploads.sealed_count,
            sealed_bytes=uploads.sealed_bytes,
            fetched_segments=sum(one.fetched_count for one in fetches),
            fetched_bytes=sum(one.fetched_bytes for one in fetches),
            fetched_blocks=sum(one.parts.blocks_count for one in fetches),
            block_reads=sum(one.parts.reads_count for one in fetches),
            block_read_bytes=sum(one.parts.read_bytes for one in fetches),
            read_replicas=0 if replicas is None else len(replicas),
            replica_read_bytes=0 if replicas is None else replicas.read_bytes,
            merged_segments=sealed.merges.merged_count,
            removed_leftovers=sealed.leftovers.removed_count,
            removed_objects=self._sweep.removed_count,
            refused_removals=self._sweep.refused_count,
            object_requests=self._objects.of_flushes.requests + self._objects.in_background.requests,
            take_overs=member.take_overs_count,
            resignations=member.resignations_count,
            asynchronous_standbys=member.asynchronous_standbys_count,
        )

    def keep(self) -> None:
        self.sealed.start()
        self._sweep.start()

    async def rest(self) -> None:
        await self._sweep.close()
        await self.sealed.close()
