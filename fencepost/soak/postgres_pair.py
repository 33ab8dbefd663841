"""A PostgreSQL with a synchronous standby, by streaming replication, and their faults.

No method waits but `start` and `close`: those that take time yield the seconds until they go on, as faults do.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import quote

from fencepost.soak.operating import finished
from fencepost.soak.process_family import family, freeze_family, thaw
from fencepost.soak.trial_services import (
    USER,
    Service,
    TrialError,
    give,
    postgres_programs,
    trial_postgres,
    unprivileged,
)

SETTINGS: Final = {
    "wal_keep_size": "256MB",  # for a standby that was away
    "wal_retrieve_retry_interval": "200ms",
    "shared_buffers": "32MB",
}
STANDBY: Final = "standby"
READY_TIMEOUT_S: Final = 90.0
HUNG_S: Final = 30.0
RESPAWN_PAUSE_S: Final = 0.2
LOOK_S: Final = 0.05
ALL_SYNCHRONOUS: Final = (
    "SELECT 1 / count(*) FROM pg_stat_replication WHERE sync_state = 'sync' AND flush_lsn >= '{}'::pg_lsn"
)
LIMIT_FILE_SIZE: Final = 'limit=$1; shift; for each; do prlimit --pid "$each" "--fsize=$limit:"; done'


class PostgresPair:
    """logs: a directory for the output of the servers, in files whose names begin with `log_name`.

    kept: directory in which `close` leaves the data of the primary, for another start; None if they go.
    settings: PostgreSQL's, beside `SETTINGS`. initialized_with: arguments of initdb.
    primary, standby: swap their places by `promote`. standby: None while commits wait for none.
    can_be_full: whether files can be limited, by util-linux.
    """

    def __init__(
        self,
        logs: Path,
        log_name: str,
        *,
        kept: Path | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
        initialized_with: Sequence[str] = (),
    ) -> None:
        self.standby: Service | None = None
        self.primary: Service
        self.can_be_full = shutil.which("prlimit") is not None
        self.directory: Path
        """For files that the user of PostgreSQL may read, too; it is removed by `close`."""
        self._logs = logs
        self._log_name = log_name
        self._kept = kept
        self._settings = {**SETTINGS, **settings}
        self._initialized_with = initialized_with
        self._how = unprivileged()
        self._places: dict[Service, Path] = {}  # the directory of each server
        self._spare: Service
        self._frozen: list[int] = []
        self._cleanup = contextlib.ExitStack()

    @property
    def current(self) -> Path:
        """The directory of the primary's socket: a link that `promote` changes."""
        return self.directory / "current"

    @property
    def own_url(self) -> str:
        """The address of whichever server is the primary, on which nothing is cut."""
        return f"postgresql://{USER}@/postgres?host={self.current}"

    @property
    def url_of_both(self) -> str:
        """The address of both servers, for a client that finds the primary by itself."""
        hosts = ",".join(quote(str(self.directory / name / "sockets"), safe="") for name in ("first", "second"))
        return f"postgresql://{USER}@{hosts}/postgres"

    def file(self, relative: str) -> Path:
        """A file of the primary's data."""
        return self._places[self.primary] / "data" / relative

    def start(self, *, has_standby: bool = True) -> None:
        """Start both. Raises TrialError."""
        # Beside the soak's directory: PostgreSQL may run as a user who cannot enter that one.
        temporary = tempfile.TemporaryDirectory(prefix="fencepost-", ignore_cleanup_errors=True)
        self.directory = Path(self._cleanup.enter_context(temporary))
        self.directory.chmod(0o755)
        self._take_up()
        self.primary = self._server("first")
        self._point_to_primary()
        if has_standby:
            go(self._copy("second"))
            self._spare = self._server("second")
            go(self._follow())

    def close(self) -> None:
        """End both. Their files are removed, but for those that are kept."""
        self.thaw()
        for server in self._places:
            if server.process.poll() is None and (self._kept is None or server is not self.primary):
                _kill(server)  # its files go, too: there is nothing to write
        if self._kept is not None and self._places:
            self.primary.stop()
            shutil.move(self._places[self.primary] / "data", self._kept)
        self._cleanup.close()

    def _take_up(self) -> None:
        """Let the primary go on with the data that were kept, without the standby that they name."""
        if self._kept is None or not self._kept.exists():
            return
        data = self.directory / "first" / "data"
        data.parent.mkdir(mode=0o755)
        shutil.move(self._kept, data)
        with (data / "postgresql.auto.conf").open("a") as settings:
            settings.write("synchronous_standby_names = ''\n")
        for path in (data, *data.rglob("*")):
            give(path, self._how)

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

    def promote(self, *, is_old_lost: bool = True) -> Iterator[float]:
        """Make the standby the primary. There is no standby then.

        is_old_lost: the old primary is killed; else it lives on until `make_standby`, and acknowledges no commit.
        """
        assert self.standby is not None
        if is_old_lost:
            self.kill()
        self._spare, self.primary, self.standby = self.primary, self.standby, None
        data = str(self._places[self.primary] / "data")
        if not (yield from finished([_program("pg_ctl"), "promote", "--wait", "--pgdata", data], **self._how)):
            raise TrialError("the standby cannot be promoted")
        self._point_to_primary()
        # Connections to a lost primary are gone; those to the standby, as it was, never were.

    def make_standby(self) -> Iterator[float]:
        """Make a standby in the place of the old primary, which is killed, and let commits wait for it."""
        if self._spare.process.poll() is None:
            _kill(self._spare)
        yield from self._copy(self._places[self._spare].name)
        yield from _until_ready(self._spare)
        yield from self._follow()

    def freeze_standby(self) -> None:
        """SIGSTOP: commits wait."""
        assert self.standby is not None
        self._frozen = freeze_family(self.standby.process.pid)

    def freeze_primary(self) -> None:
        """SIGSTOP: connections stay, and nobody answers, also after it is the old one."""
        self._frozen = freeze_family(self.primary.process.pid)

    def thaw(self) -> None:
        thaw(self._frozen)
        self._frozen = []

    # Statements

    def execute(self, statement: str) -> Iterator[float]:
        """Run a statement with psql. Raises TrialError."""
        if not (yield from finished(self.psql(statement), cwd="/")):
            raise TrialError(f"PostgreSQL refuses: {statement}")

    def psql(self, statement: str, url: str = "") -> list[str]:
        """The command that runs a statement. url: of one of the servers; else at the primary."""
        return [*self.shell(url), "-c", statement]

    def shell(self, url: str = "") -> list[str]:
        """The command of `psql`, without a statement."""
        return [_program("psql"), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", url or self.own_url]

    def _server(self, name: str) -> Service:
        place = self.directory / name
        place.mkdir(exist_ok=True, mode=0o755)
        server = self._cleanup.enter_context(
            trial_postgres(
                place,
                log=self._logs / f"{self._log_name}-{name}.log",
                ends_with_parent=False,
                settings=self._settings,
                initialized_with=self._initialized_with,
            )
        )
        self._places[server] = place
        return server

    def _point_to_primary(self) -> None:
        """Let clients of `own_url` connect to the primary from now on."""
        made = self.directory / "next"
        made.symlink_to(self._places[self.primary] / "sockets")
        made.rename(self.current)

    def _copy(self, name: str) -> Iterator[float]:
        """Copy the primary's data to another place. Raises TrialError."""
        data = self.directory / name / "data"
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
