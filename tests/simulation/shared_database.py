"""The metadata file that the processes of one broker share: SQLite's own tables and triggers, in memory, with a lock
that a process holds for a while, and loses when it dies.

Real is all that is decided in transactions (`LeaseStore`). Simulated is what SQLite and the machine add:
- A transaction that changes something waits for the lock of the one before, as long as that lasts: also of a process
  that is stopped in the middle. After SHARED_LOCK_TIMEOUT_S it is refused.
- A process that dies in a transaction has changed nothing, or all of it; then it never hears of it.
- A commit is durable: `synchronous = FULL`.
- For a while the file may refuse all that a process asks of it (`refused`), or only the end of its next transaction,
  which may have been stored all the same (`unsure`).
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from fencepost.broker.cluster.leases.lease_store import LeaseStore, StoredLeases, read_leases
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.metadata.shared_sqlite import (
    POLLING,
    SHARED_LOCK_TIMEOUT_S,
    _upgrade,
)
from fencepost.broker.metadata.sqlite import _SCHEMA, _read_topics, transaction
from fencepost.broker.storage.disk import StorageError
from tests.simulation.disk import SimulatedDisk
from tests.simulation.loop import Process, current_process

LATENCY_S: Final = (0.0001, 0.002)
LOCK_LOOK_S: Final = (0.001, 0.05)
CLUSTER_ID: Final = "simulated-cluster"

T = TypeVar("T")
_numbers = itertools.count()


class _ClosedByDeath(sqlite3.Connection):
    """A connection that nobody has to close, as if its process died: else Python warns, from 3.13 on."""

    def __del__(self) -> None:
        self.close()


class SharedDatabase:
    """The file. on_committed: called after each transaction that may have changed something, in the same step.

    refused: the names of hosts for which every operation fails now. unsure: of those whose next transaction fails, each
             with whether it is stored before.
    """

    def __init__(self, chance: random.Random) -> None:
        self.on_committed: list[Callable[[], None]] = []
        self.refused: set[str] = set()
        self.unsure: dict[str, bool] = {}
        self.chance = chance
        self._name = f"file:simulated-{next(_numbers)}?mode=memory&cache=shared"
        self._holder: Process | None = None
        self.connection = self.connect()
        self.connection.executescript(f"{_SCHEMA}INSERT INTO cluster VALUES (1, '{CLUSTER_ID}');")
        _upgrade(self.connection)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self._name, uri=True, isolation_level=None, check_same_thread=False, factory=_ClosedByDeath
        )

    # What tests look at

    def leases(self) -> StoredLeases:
        return read_leases(self.connection)

    def topics(self) -> list[TopicMetadata]:
        return _read_topics(self.connection, "topics")

    def documents(self) -> dict[str, int]:
        """The versions of all documents, by their keys."""
        return dict(self.connection.execute("SELECT key, version FROM versioned_values").fetchall())

    # The lock

    async def lock(self, process: Process | None) -> None:
        """Raises StorageError."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SHARED_LOCK_TIMEOUT_S
        while self._holder is not None and not self._holder.is_dead:
            if loop.time() > deadline_s:
                raise StorageError("the metadata were locked by another process for too long")
            await asyncio.sleep(self.chance.uniform(*LOCK_LOOK_S))
        self._holder = process

    def unlock(self) -> None:
        self._holder = None

    def committed(self) -> None:
        for observe in list(self.on_committed):
            observe()

    async def prepare(
        self,
        path: str,
        *,
        before_founding: Callable[[], None],
        on_restoring: Mapping[str, Callable[[bytes], bytes]],
        work: Callable[[sqlite3.Connection], None],
    ) -> None:
        """As `prepare_shared`, of a file that is there and undamaged."""
        self._holder = None
        with transaction(self.connection):
            work(self.connection)
        self.committed()


class SimulatedLeaseStore(LeaseStore):
    """One process's connection.

    disk: of that process; changes count among its operations, and kill it as they do.
    read_versions: of documents, as this process has last read or written them.
    """

    def __init__(self, database: SharedDatabase, host: str, disk: SimulatedDisk, clock: Clock) -> None:
        super().__init__("metadata.sqlite", clock)
        self.disk = disk
        self.read_versions: dict[str, int] = {}
        self._shared = database
        self._host = host
        self._process = current_process()
        self._is_changing = False
        self._thread = asyncio.Lock()

    async def open(self) -> None:
        self._database = self._shared.connect()
        await self._run(self._changed_kinds)
        self._polling = POLLING.start_retrying(self._poll)

    async def close(self) -> None:
        await self._stop_polling()
        self._close()

    async def _query(
        self, work: Callable[[sqlite3.Connection], T], *, changes: bool = False, may_use_reserve: bool = False
    ) -> T:
        self._is_changing = changes  # until `_submit`, in this same step
        return await super()._query(work)

    def _submit(self, work: Callable[[], T]) -> asyncio.Future[T]:
        is_changing, self._is_changing = self._is_changing, False
        return asyncio.get_running_loop().create_task(self._on_thread(work, is_changing))

    async def _on_thread(self, work: Callable[[], T], is_changing: bool) -> T:  # of one caller
        """One after another, as on one thread."""
        chance = self._shared.chance
        async with self._thread:
            await asyncio.sleep(chance.uniform(*LATENCY_S))
            self._require_service()
            if not is_changing:
                return work()
            await self._shared.lock(self._process)
            try:
                await asyncio.sleep(chance.uniform(*LATENCY_S))
                self._require_service()
                operation = self.disk.begin("metadata", "a transaction", 0)
                fails_after = self._shared.unsure.pop(self._host, None)
                if fails_after is False:
                    raise StorageError("the metadata could not be changed")
                changed = work()
                self._shared.committed()
                self.disk.end(operation)
                if fails_after:
                    raise StorageError("the metadata may have been changed, or not")
            finally:
                self._shared.unlock()
            return changed

    async def read_versioned(self, key: str) -> tuple[bytes | None, int]:
        value, version = await super().read_versioned(key)
        self.read_versions[key] = version
        return value, version

    async def compare_and_set(self, key: str, value: bytes, expected_version: int, **options: bool) -> bool:
        is_set = await super().compare_and_set(key, value, expected_version, **options)
        if is_set:
            self.read_versions[key] = expected_version + 1
        return is_set

    def _require_service(self) -> None:
        """Raises StorageError."""
        if self._host in self._shared.refused:
            raise StorageError("the metadata cannot be read or written now")

    # For those who look at a broker's store

    def topic(self, name: str) -> TopicMetadata | None:
        return next((topic for topic in self._shared.topics() if topic.name == name), None)


async def as_operator(database: SharedDatabase, change: Callable[[sqlite3.Connection], object]) -> None:
    """Carry out what an administrator has asked a broker for, in a transaction of its own."""
    await database.lock(None)
    with transaction(database.connection):
        change(database.connection)
    database.unlock()
    database.committed()
