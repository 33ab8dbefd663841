"""The database of a soak's services: a PostgreSQL, a synchronous standby, PgBouncer, and a proxy that cuts connections.

The services reach it through the proxy alone, directly or over PgBouncer in transaction mode. No method waits but
`start` and `close`: those that take time yield the seconds until they go on, as faults do.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from fencepost.soak.cutting_proxy import HOST, CuttingProxy
from fencepost.soak.free_port import free_port
from fencepost.soak.operating import finished
from fencepost.soak.process_family import family, freeze_family, thaw
from fencepost.soak.trial_services import (
    USER,
    Service,
    TrialError,
    accepts,
    give,
    postgres_programs,
    trial_postgres,
    unprivileged,
)

SETTINGS: Final = {
    "track_commit_timestamp": "on",  # by which the time in doubt is known after a crash
    "wal_keep_size": "256MB",  # for a standby that was away
    "wal_retrieve_retry_interval": "200ms",
    "max_connections": "60",
    "shared_buffers": "32MB",
}
WAL_SEGMENT_MB: Final = 1
"""Smaller than a table, so that a limit of file sizes can meet the table alone."""
SOCKET: Final = ".s.PGSQL.5432"
STANDBY: Final = "standby"
READY_TIMEOUT_S: Final = 90.0
HUNG_S: Final = 30.0
RESPAWN_PAUSE_S: Final = 0.2
LOOK_S: Final = 0.05
ALL_SYNCHRONOUS: Final = (
    "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= '{}'::pg_lsn"
)
LIMIT_FILE_SIZE: Final = 'limit=$1; shift; for each; do prlimit --pid "$each" "--fsize=$limit:"; done'
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


class ServiceDatabase:
    """logs: a directory for the output of the servers. roles: users of the services, whom PgBouncer lets in.

    primary, standby: swap their places by `promote`. standby: None while there is none that commits wait for.
    is_held: it has a fault. can_be_full: whether its files can be limited, by util-linux.
    """

    def __init__(self, logs: Path, roles: Sequence[str] = (USER,)) -> None:
        self.is_held = False
        self.standby: Service | None = None
        self.primary: Service
        self.pooler: Service | None = None
        self.proxy: CuttingProxy
        self.has_pooler = pooler_program() is not None
        self.can_be_full = shutil.which("prlimit") is not None
        self._logs = logs
        self._roles = roles
        self._port, self._port_to_pooler, self._port_of_pooler = free_port(), free_port(), free_port()
        self._how = unprivileged()
        self._places: dict[Service, Path] = {}  # the directory of each server
        self._spare: Service
        self._frozen: list[int] = []
        self._cleanup = contextlib.ExitStack()

    def url(self, role: str = USER) -> str:
        """The address through the proxy."""
        return _url(self._port, role)

    def pooled_url(self, role: str = USER) -> str:
        """The address through the proxy, and then through PgBouncer."""
        return _url(self._port_to_pooler, role)

    @property
    def own_url(self) -> str:
        """The address on which nothing is cut."""
        return f"postgresql://{USER}@/postgres?host={self._current}"

    def file(self, relative: str) -> Path:
        """A file of the primary's data."""
        return self._places[self.primary] / "data" / relative

    def start(self, *, has_standby: bool = True) -> None:
        """Start all. Raises TrialError."""
        # Beside the soak's directory: PostgreSQL may run as a user who cannot enter that one.
        temporary = tempfile.TemporaryDirectory(prefix="fencepost-", ignore_cleanup_errors=True)
        self._directory = Path(self._cleanup.enter_context(temporary))
        self._directory.chmod(0o755)
        self._current = self._directory / "current"
        self.primary = self._server("first")
        self._point_to_primary()
        if has_standby:
            go(self._copy("second"))
            self._spare = self._server("second")
            go(self._follow())
        if self.has_pooler:
            self._start_pooler()
        upstreams = {
            self._port: partial(asyncio.open_unix_connection, str(self._current / SOCKET)),
            self._port_to_pooler: partial(asyncio.open_connection, HOST, self._port_of_pooler),
        }
        self.proxy = self._cleanup.enter_context(CuttingProxy(upstreams))

    def close(self) -> None:
        """End all, and remove their files."""
        for server in self._places:
            if server.process.poll() is None:
                _kill(server)  # its files go, too: there is nothing to write
        self._cleanup.close()

    # Faults of the primary

    def kill(self) -> None:
        """Send SIGKILL to all processes of the primary, which lose all that they have not written."""
        _kill(self.primary)

    def start_again(self) -> Iterator[float]:
        """Start the primary, until it takes writes. Raises TrialError."""
        yield from _until_ready(self.primary)

    def kill_one_process(self, chance: float) -> str:
        """Send SIGKILL to a process that serves a client, for which PostgreSQL ends all others, too. Return its id.

        chance: which one, from 0 to 1. Empty if there is none.
        """
        children = [one for one in family(self.primary.process.pid) if _serves_client(one)]
        if not children:
            return ""
        victim = children[int(chance * len(children)) % len(children)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        return str(victim)

    def limit_file_size(self, limit_bytes: int | None) -> Iterator[float]:
        """Let no file of the primary grow beyond a size, as if its disk were full; None: no limit."""
        for _ in range(2):  # a process that was just being made may have the limit of before
            members = map(str, family(self.primary.process.pid))
            limit = "unlimited" if limit_bytes is None else str(limit_bytes)
            # As their user: root may not do it in each container.
            yield from finished(["sh", "-c", LIMIT_FILE_SIZE, "sh", limit, *members], **self._how)

    # The standby

    def promote(self) -> Iterator[float]:
        """Lose the primary for good, and make the standby the primary. There is no standby then."""
        assert self.standby is not None
        _kill(self.primary)
        self._spare, self.primary, self.standby = self.primary, self.standby, None
        data = str(self._places[self.primary] / "data")
        if not (yield from finished([_program("pg_ctl"), "promote", "--wait", "--pgdata", data], **self._how)):
            raise TrialError("the standby cannot be promoted")
        self._point_to_primary()
        # Connections to the lost primary are gone; those to the standby, as it was, never were.

    def make_standby(self) -> Iterator[float]:
        """Make a standby in the place of the primary that was lost, and let commits wait for it."""
        yield from self._copy(self._places[self._spare].name)
        yield from _until_ready(self._spare)
        yield from self._follow()

    def freeze_standby(self) -> None:
        """SIGSTOP: commits wait."""
        assert self.standby is not None
        self._frozen = freeze_family(self.standby.process.pid)

    def thaw(self) -> None:
        thaw(self._frozen)
        self._frozen = []

    # Its other parts

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

    def execute(self, statement: str) -> Iterator[float]:
        """Run a statement with psql. Raises TrialError."""
        if not (yield from finished(self.psql(statement), cwd="/")):
            raise TrialError(f"PostgreSQL refuses: {statement}")

    def psql(self, statement: str) -> list[str]:
        """The command that runs a statement."""
        return [_program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", self.own_url, "-c", statement]

    def _server(self, name: str) -> Service:
        place = self._directory / name
        place.mkdir(exist_ok=True, mode=0o755)
        server = self._cleanup.enter_context(
            trial_postgres(
                place,
                log=self._logs / f"service-database-{name}.log",
                ends_with_parent=False,
                settings=SETTINGS,
                initialized_with=("--wal-segsize", str(WAL_SEGMENT_MB)),
            )
        )
        self._places[server] = place
        return server

    def _point_to_primary(self) -> None:
        """Let the proxy and PgBouncer connect to the primary from now on."""
        made = self._directory / "next"
        made.symlink_to(self._places[self.primary] / "sockets")
        made.rename(self._current)

    def _copy(self, name: str) -> Iterator[float]:
        """Copy the primary's data to another place. Raises TrialError."""
        data = self._directory / name / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True, mode=0o700)
        data.parent.chmod(0o755)
        give(data, self._how)
        source = f"host={self._places[self.primary] / 'sockets'} user={USER} application_name={STANDBY}"
        command = [_program("pg_basebackup"), "--pgdata", str(data), "--checkpoint=fast", "--write-recovery-conf"]
        command += ["--no-sync"]  # nothing is lost with it but the copy
        if not (yield from finished([*command, "--dbname", source], **self._how)):
            raise TrialError("pg_basebackup cannot copy the primary")

    def _follow(self) -> Iterator[float]:
        """Let commits wait for the spare server, which is a standby by now, once it has caught up."""
        yield from self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        yield from self.execute("SELECT pg_reload_conf()")
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        reached = ALL_SYNCHRONOUS.format("0/0")
        # The first look shows that all processes wait, the second one that the standby has the commits of before.
        for look in range(2):
            while not (yield from finished(self.psql(reached), cwd="/")):
                if time.monotonic() > deadline_s:
                    raise TrialError("the standby does not follow")
                yield LOOK_S
            if not look:
                reached = reached.replace("'0/0'::pg_lsn", "pg_current_wal_flush_lsn()")
        self.standby = self._spare

    def _start_pooler(self) -> None:
        place = self._directory / "pooler"
        place.mkdir(mode=0o755)
        users, settings = place / "users", place / "pgbouncer.ini"
        users.write_text("".join(f'"{role}" ""\n' for role in dict.fromkeys((USER, *self._roles))))
        settings.write_text(POOLER.format(sockets=self._current, host=HOST, port=self._port_of_pooler, users=users))
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


def _program(name: str) -> str:
    return str(postgres_programs() / name)


def go(steps: Iterator[float]) -> None:
    """Go all steps of something that yields its pauses."""
    for pause_s in steps:
        time.sleep(pause_s)


def _kill(server: Service) -> None:
    members = freeze_family(server.process.pid)
    for one in members:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    server.process.wait()


def _until_ready(server: Service) -> Iterator[float]:
    """Start a server until it serves: it refuses while processes of its last life are still there.

    PostgreSQL has hung once, as its checkpointer met the limit of file sizes at the end of a recovery. So a server that
    serves nobody for long is killed once, as an administrator would do.
    """
    began_s = time.monotonic()
    is_restarted = False
    if server.process.poll() is not None:
        server.spawn()
    while not server.is_ready():
        waited_s = time.monotonic() - began_s
        if waited_s > READY_TIMEOUT_S:
            raise TrialError(f"PostgreSQL does not start again; see {server.log}")
        if waited_s > HUNG_S and not is_restarted and server.process.poll() is None:
            is_restarted = True
            _kill(server)
        if server.process.poll() is not None:
            yield RESPAWN_PAUSE_S
            server.spawn()
        yield LOOK_S


def _serves_client(process_id: int) -> bool:
    """Whether a process of PostgreSQL serves one of its users, by its title."""
    with contextlib.suppress(OSError):
        title = Path(f"/proc/{process_id}/cmdline").read_bytes()
        return title.startswith(b"postgres: ") and b" postgres " in title[10:]
    return False
