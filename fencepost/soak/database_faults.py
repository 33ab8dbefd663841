"""Faults of the database of a soak's services: killed, promoted, without room, locked, and cut off around a COMMIT."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from fencepost.soak.cutting_proxy import Place
from fencepost.soak.operating import finished
from fencepost.soak.postgres_pair import LOOK_S
from fencepost.soak.service_database import WAL_SEGMENT_MB, ServiceDatabase

STAYS_DOWN_S = (0.0, 2.0)
WITHOUT_STANDBY_S = (0.0, 2.0)
DISK_FULL_S = (0.5, 3.0)
LOCKED_S = (0.8, 3.0)
STANDBY_FROZEN_S = (0.3, 4.0)
CUT_TIMEOUT_S = 10.0
MOST_CUTS = 3
PAGE_BYTES = 8192


class DatabaseFaults:
    """Each method is one fault, which yields the seconds until its next step. The servers have one at a time.

    growing: the file of a table that services insert into, by its path in the data. locks: a statement that locks the
    rows of a transfer. note: counts and logs a fault.
    """

    def __init__(
        self,
        database: ServiceDatabase,
        chance: random.Random,
        *,
        growing: Callable[[], str],
        locks: str,
        note: Callable[[str, str], None],
    ) -> None:
        self._database = database
        self._chance = chance
        self._growing = growing
        self._locks = locks
        self._note = note

    def all(self) -> dict[Callable[[], Iterator[float]], int]:
        """The faults, with their relative frequency."""
        return {
            self.kill: 4,
            self.kill_one_process: 3,
            self.promote: 3,
            self.freeze_standby: 2,
            self.lock: 5,
            self.cut_before_commit: 4,
            self.cut_after_commit: 4,
            self.cut_within_answer: 4,
            **({self.fill_disk_of_table: 3, self.fill_disk_of_wal: 1} if self._database.can_be_full else {}),
            **({self.kill_pooler: 2} if self._database.has_pooler else {}),
        }

    def kill(self) -> Iterator[float]:
        """Kill -9 of all processes of PostgreSQL, which recovers from its write-ahead log."""
        for _ in self._alone():
            self._note("postgres_kills", "service's PostgreSQL: kill -9")
            self._database.kill()
            yield self._chance.uniform(*STAYS_DOWN_S)
            yield from self._database.start_again()

    def kill_one_process(self) -> Iterator[float]:
        """Kill -9 of a process that serves a client: PostgreSQL ends all others, and recovers."""
        for _ in self._alone():
            victim = self._database.kill_one_process(self._chance.random())
            if victim:
                self._note("postgres_process_kills", f"service's PostgreSQL, process {victim}: kill -9")
                yield from self._database.start_again()

    def promote(self) -> Iterator[float]:
        """The primary is lost for good, its synchronous standby is promoted, and gets a standby of its own."""
        for _ in self._alone():
            if self._database.standby is not None:
                self._note("postgres_promotions", "service's PostgreSQL: lost, and its standby is promoted")
                yield from self._database.promote()
                yield self._chance.uniform(*WITHOUT_STANDBY_S)
                yield from self._database.make_standby()

    def freeze_standby(self) -> Iterator[float]:
        """The standby does not answer, so no commit is acknowledged."""
        for _ in self._alone():
            if self._database.standby is not None:
                duration_s = self._chance.uniform(*STANDBY_FROZEN_S)
                self._note("standby_freezes", f"service's standby: SIGSTOP for {duration_s:.1f} s")
                self._database.freeze_standby()
                yield duration_s
                self._database.thaw()

    def fill_disk_of_table(self) -> Iterator[float]:
        """No room for another page of the table that grows."""
        for _ in self._alone():
            limit_bytes = self._size_of_table()
            if limit_bytes > WAL_SEGMENT_MB * 1024 * 1024:
                self._note("postgres_tables_full", f"service's PostgreSQL: no file beyond {limit_bytes:,} bytes")
                yield from self._database.limit_file_size(limit_bytes)
                yield self._chance.uniform(*DISK_FULL_S)
                yield from self._database.limit_file_size(None)

    def fill_disk_of_wal(self) -> Iterator[float]:
        """No room for the write-ahead log, in the middle of a record: PostgreSQL panics."""
        for _ in self._alone():
            limit_bytes = self._chance.randrange(1, WAL_SEGMENT_MB * 1024 * 1024 // PAGE_BYTES) * PAGE_BYTES
            self._note("postgres_wal_full", f"service's PostgreSQL: no file beyond {limit_bytes:,} bytes, WAL included")
            yield from self._database.limit_file_size(limit_bytes)
            yield self._chance.uniform(*DISK_FULL_S)
            yield from self._database.limit_file_size(None)
            yield from self._database.start_again()

    def lock(self) -> Iterator[float]:
        """Another user holds locks, for longer than the services wait."""
        duration_s = self._chance.uniform(*LOCKED_S)
        self._note("locks", f"service's PostgreSQL: locks are held for {duration_s:.1f} s")
        # It may end before: the database has other faults.
        yield from finished(self._database.psql(f"BEGIN; {self._locks}; SELECT pg_sleep({duration_s:.3f}); COMMIT"))

    def cut_before_commit(self) -> Iterator[float]:
        yield from self._cut(Place.BEFORE)

    def cut_after_commit(self) -> Iterator[float]:
        yield from self._cut(Place.AFTER)

    def cut_within_answer(self) -> Iterator[float]:
        yield from self._cut(Place.HALF)

    def kill_pooler(self) -> Iterator[float]:
        """Kill -9 of PgBouncer."""
        pooler = self._database.pooler
        if pooler is None or pooler.process.poll() is not None:
            return
        self._note("pooler_kills", "PgBouncer: kill -9")
        self._database.kill_pooler()
        yield self._chance.uniform(*STAYS_DOWN_S)
        yield from self._database.start_pooler_again()

    def _cut(self, place: Place) -> Iterator[float]:
        """Cut the next connections that commit. Each that is cut counts as a fault."""
        wanted = self._chance.randint(1, MOST_CUTS)
        proxy = self._database.proxy
        for _ in range(wanted):
            proxy.cut_next(place)
        deadline_s = time.monotonic() + CUT_TIMEOUT_S
        cut = proxy.cuts_count
        while wanted and time.monotonic() < deadline_s:
            yield LOOK_S
            while cut < proxy.cuts_count and wanted:
                cut += 1
                wanted -= 1
                self._note(f"commit_cuts_{place.value}", f"a connection was cut at COMMIT: {place.value}")

    def _size_of_table(self) -> int:
        size: int = self._database.file(self._growing()).stat().st_size
        return size

    def _alone(self) -> Iterator[None]:
        """Once, while the servers have no other fault; or never."""
        if not self._database.is_held:
            self._database.is_held = True
            # Not given back after an exception: it may be down.
            yield
            self._database.is_held = False
