"""The database of a soak's services: a PostgreSQL, a synchronous standby, PgBouncer, and a proxy that cuts connections.

The services reach it through the proxy alone, directly or over PgBouncer in transaction mode. No method waits but
`start` and `close`: those that take time yield the seconds until they go on, as faults do.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from fencepost.soak.cutting_proxy import HOST, CuttingProxy
from fencepost.soak.free_port import free_port
from fencepost.soak.postgres_pair import LOOK_S, READY_TIMEOUT_S, PostgresPair
from fencepost.soak.trial_services import USER, Service, TrialError, accepts

SETTINGS: Final = {
    "track_commit_timestamp": "on",  # by which the time in doubt is known after a crash
    "max_connections": "60",
}
WAL_SEGMENT_MB: Final = 1
"""Smaller than a table, so that a limit of file sizes can meet the table alone."""
SOCKET: Final = ".s.PGSQL.5432"
POOLER: Final = """[databases]
* = host={sockets}
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = 20
server_login_retry = 0.2
query_wait_timeout = 15
"""


def pooler_program() -> str | None:
    """The path of PgBouncer, if it is installed."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")


class ServiceDatabase(PostgresPair):
    """roles: users of the services, whom PgBouncer lets in. is_held: it has a fault."""

    def __init__(self, logs: Path, roles: Sequence[str] = (USER,)) -> None:
        """logs: a directory for the output of the servers."""
        super().__init__(
            logs,
            "service-database",
            settings=SETTINGS,
            initialized_with=("--wal-segsize", str(WAL_SEGMENT_MB)),
        )
        self.is_held = False
        self.pooler: Service | None = None
        self.proxy: CuttingProxy
        self.has_pooler = pooler_program() is not None
        self._roles = roles
        self._port, self._port_to_pooler, self._port_of_pooler = free_port(), free_port(), free_port()

    def url(self, role: str = USER) -> str:
        """The address through the proxy."""
        return _url(self._port, role)

    def pooled_url(self, role: str = USER) -> str:
        """The address through the proxy, and then through PgBouncer."""
        return _url(self._port_to_pooler, role)

    def start(self, *, has_standby: bool = True) -> None:
        """Start all. Raises TrialError."""
        super().start(has_standby=has_standby)
        if self.has_pooler:
            self._start_pooler()
        upstreams = {
            self._port: partial(asyncio.open_unix_connection, str(self.current / SOCKET)),
            self._port_to_pooler: partial(asyncio.open_connection, HOST, self._port_of_pooler),
        }
        self.proxy = self._cleanup.enter_context(CuttingProxy(upstreams))

    # PgBouncer

    def kill_pooler(self) -> None:
        assert self.pooler is not None
        self.pooler.process.kill()
        self.pooler.process.wait()

    def start_pooler_again(self) -> Iterator[float]:
        """Raises TrialError."""
        assert self.pooler is not None
        self.pooler.spawn()
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not self.pooler.is_ready():
            if time.monotonic() > deadline_s:
                raise TrialError(f"PgBouncer does not start again; see {self.pooler.log}")
            yield LOOK_S

    def _start_pooler(self) -> None:
        place = self.directory / "pooler"
        place.mkdir(mode=0o755)
        users, settings = place / "users", place / "pgbouncer.ini"
        users.write_text("".join(f'"{role}" ""\n' for role in dict.fromkeys((USER, *self._roles))))
        settings.write_text(POOLER.format(sockets=self.current, host=HOST, port=self._port_of_pooler, users=users))
        self.pooler = Service(
            "PgBouncer",
            [str(pooler_program()), str(settings)],
            self._logs / "pgbouncer.log",
            url=_url(self._port_of_pooler, USER),
            is_ready=lambda: accepts(self._port_of_pooler),
            stop_by=signal.SIGTERM,
            ends_with_parent=False,
            **self._how,
        )
        self.pooler.spawn()
        self._cleanup.callback(self.pooler.stop)
        self.pooler.wait_until_ready()


def _url(port: int, role: str) -> str:
    return f"postgresql://{role}@{HOST}:{port}/postgres?sslmode=disable&gssencmode=disable&connect_timeout=10"
