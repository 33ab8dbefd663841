"""PgBouncer before a PostgreSQL of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.conninfo import conninfo_to_dict

from fencepost.soak.free_port import free_port
from fencepost.soak.service_database import pooler_program
from fencepost.soak.trial_services import accepts
from tests.support.conditions import until
from tests.support.missing_tools import missing
from tests.support.postgres import PostgresServer, short_directory

SETTINGS = """[databases]
* = host={host} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
default_pool_size = 20
"""


@contextmanager
def pgbouncer(server: PostgresServer, mode: str) -> Iterator[str]:
    """A URL of the same database through PgBouncer. mode: its pool_mode."""
    program = pooler_program()
    if program is None:
        missing("PgBouncer is not installed: .ci/run installs it")
    with short_directory() as directory:
        port = free_port()
        settings = directory / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(host=conninfo_to_dict(server.uri)["host"], port=port, mode=mode))
        user = server.owner() if os.geteuid() == 0 else None  # it refuses root, and has to reach the server's socket
        with subprocess.Popen(
            [program, "-q", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user
        ) as process:
            try:
                until(lambda: accepts(port))
                yield f"postgresql://postgres@127.0.0.1:{port}/postgres?sslmode=disable"
            finally:
                process.terminate()
