"""A standby of a PostgreSQL server of the tests, by streaming replication: what a fail-over promotes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.conninfo import make_conninfo

from fencepost.soak.process_family import freeze_family, thaw
from tests.support.conditions import until
from tests.support.postgres import PostgresServer, programs_of_postgres


class Standby:
    """uri: of its database `postgres`, which takes no writes before `promote`."""

    def __init__(self, primary: PostgresServer, data: Path, name: str) -> None:
        self.name = name
        self._primary = primary
        self._data = data
        self.uri = make_conninfo(primary.uri, host=str(data))

    def start(self) -> None:
        """Copy the primary, and follow it until this is stopped or promoted."""
        source = make_conninfo(self._primary.uri, application_name=self.name)
        command = ["--pgdata", str(self._data), "--checkpoint=fast", "--write-recovery-conf", "--dbname", source]
        self._run("pg_basebackup", *command)
        for lock in self._data.glob(".s.PGSQL.*"):  # the copy has the primary's socket
            lock.unlink()
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            # The last one counts: what the primary learns later about its own standbys does not concern this one.
            settings.write("synchronous_standby_names = ''\n")
        self._run("pg_ctl", "start", "--wait", "--pgdata", str(self._data), "--options", f'-h "" -k {self._data}')

    def follows(self) -> bool:
        """Whether the primary streams to it."""
        found = self._primary.execute(
            f"SELECT count(*) FROM pg_stat_replication WHERE application_name = '{self.name}' AND state = 'streaming'"
        )
        return found == "1"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let it confirm nothing until the block ends."""
        frozen = freeze_family(int((self._data / "postmaster.pid").read_text().split()[0]))
        try:
            yield
        finally:
            thaw(frozen)

    def promote(self) -> None:
        """Make it a primary; returns once it takes writes."""
        self._run("pg_ctl", "promote", "--wait", "--pgdata", str(self._data))

    def stop(self) -> None:
        """End it as a failure does."""
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            self._run("pg_ctl", "stop", "--mode=immediate", "--pgdata", str(self._data))

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs as the owner of the primary's files: it refuses root."""
        owner = self._primary.owner()
        subprocess.run(
            [str(programs_of_postgres() / program), *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=120,
            cwd="/",
            user=owner if os.geteuid() == 0 else None,
        )


@contextmanager
def standby_of(primary: PostgresServer, name: str, *, is_synchronous: bool) -> Iterator[Standby]:
    """A standby that follows; it and the primary's setting end with the block."""
    directory = primary.directory_beside(name)
    standby = Standby(primary, directory, name)
    standby.start()
    try:
        until(standby.follows, timeout_s=60)
        if is_synchronous:
            _list(primary, name)
        yield standby
    finally:
        with contextlib.suppress(Exception):  # the test has ended the primary
            _list(primary, "")
        standby.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _list(primary: PostgresServer, names: str) -> None:
    primary.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    primary.execute("SELECT pg_reload_conf()")
    # The server's processes read their settings one after the other.
    until(lambda: primary.execute("SHOW synchronous_standby_names") == names, timeout_s=60)
