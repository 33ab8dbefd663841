"""`fencepost cluster try`: a cluster of several brokers on this machine, with its stores, until Ctrl-C.

A broker or a store that is killed stays down, so that one can watch the others; the parent reports its end.
`--restart-node` and `--restart-store` restart it. The parent starts it: the command leaves a request in the
directory, and waits for the answer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final, Protocol

from fencepost.soak.trial_services import (
    LOOK_S,
    Service,
    TrialError,
    dying_with_parent,
    trial_objects,
    trial_postgres,
)

ENVIRONMENT: Final = "environment"
"""The file of the trial's directory that names its stores."""
STORES: Final = {"postgres": "PostgreSQL", "objects": "the object store"}
"""The stores of a trial, by their names for `--restart-store`."""
LONGEST_BROKER_START_S: Final = 90.0
LONGEST_BROKER_STOP_S: Final = 30.0


class Requests:
    """Requests to start one process of the trial again, as two files of the directory: the request, and its answer."""

    def __init__(self, directory: Path, name: str) -> None:
        self._request = directory / f"{name}.restart"
        self._answer = directory / f"{name}.answer"

    def forget(self) -> None:
        self._request.unlink(missing_ok=True)
        self._answer.unlink(missing_ok=True)

    def grant(self, part: Part) -> None:
        """Restart a process, if that was requested, and write the result."""
        if not self._request.exists():
            return
        try:
            if part.is_running:
                raise TrialError(f"{part} runs already, as process {part.process_id}")
            part.start()
            part.wait_until_ready()
        except TrialError as error:
            print(f"fencepost: {error}", file=sys.stderr, flush=True)
            self._answer.write_text(str(error))
        else:
            self._answer.write_text("")
        self._request.unlink(missing_ok=True)

    def ask(self, what: str, within_s: float) -> None:
        """Ask the parent for a start, and wait until the process is ready. Raises TrialError."""
        self._answer.unlink(missing_ok=True)
        self._request.touch()
        deadline_s = time.monotonic() + within_s
        while self._request.exists():
            if time.monotonic() > deadline_s:
                self.forget()
                raise TrialError(f"{what} was not started in {within_s:.0f} s")
            time.sleep(LOOK_S)
        refusal = self._answer.read_text() if self._answer.exists() else "the trial has ended"
        self._answer.unlink(missing_ok=True)
        if refusal:
            raise TrialError(refusal)


class Part(Protocol):
    """A process of the trial, over all its starts. log: the file of its output."""

    log: Path

    @property
    def is_running(self) -> bool: ...

    @property
    def process_id(self) -> int: ...

    @property
    def exit_code(self) -> int | None:
        """Of its last life, if that is over; negative for a signal."""
        ...

    def start(self) -> None: ...

    def wait_until_ready(self) -> object:
        """Raises TrialError."""
        ...


class TrialStore:
    """PostgreSQL or the object store of the trial. name: of its files in the directory."""

    def __init__(self, directory: Path, name: str, service: Service) -> None:
        self.name = name
        self.log = service.log
        self.pid_file = directory / f"{name}.pid"
        self._service = service
        self._note()

    def __str__(self) -> str:
        return STORES[self.name]

    @property
    def is_running(self) -> bool:
        return self._service.process.poll() is None

    @property
    def process_id(self) -> int:
        return self._service.process.pid

    @property
    def exit_code(self) -> int | None:
        return self._service.process.poll()

    def start(self) -> None:
        self._service.spawn()
        self._note()

    def wait_until_ready(self) -> None:
        self._service.wait_until_ready()

    def _note(self) -> None:
        self.pid_file.write_text(f"{self.process_id}\n")


class TrialBroker:
    """One broker of the trial, over all its starts."""

    def __init__(self, directory: Path, node_id: int, port: int, arguments: Sequence[str]) -> None:
        self.name = f"node-{node_id}"
        self.address = f"127.0.0.1:{port}"
        self.node_id = node_id
        self.pid_file = directory / f"node-{node_id}.pid"
        self.log = directory / f"node-{node_id}.log"
        self._command = [
            *(sys.executable, "-m", "fencepost", "serve", "--listener", self.address, "--set", f"node.id={node_id}"),
            *("--data-dir", str(directory / f"node-{node_id}"), *arguments),
        ]
        self._process: subprocess.Popen[str] | None = None

    def __str__(self) -> str:
        return f"node {self.node_id}"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.poll()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                preexec_fn=dying_with_parent(signal.SIGKILL),  # this process has one thread
            )
        self.pid_file.write_text(f"{self._process.pid}\n")

    def wait_until_ready(self) -> str:
        """Return the line with which it says that it is ready. Raises TrialError."""
        assert self._process is not None
        output = self._process.stdout
        assert output is not None
        os.set_blocking(output.fileno(), False)
        deadline_s = time.monotonic() + LONGEST_BROKER_START_S
        while not (line := _line(output)):
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                last = self.log.read_text(errors="replace").strip().splitlines()[-3:]
                raise TrialError(f"{self} does not start; the end of {self.log}:\n" + "\n".join(last))
            time.sleep(LOOK_S)
        return line.strip()

    # The end

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)

    def wait(self, deadline_s: float) -> None:
        if self._process is not None:
            try:
                self._process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self.pid_file.unlink(missing_ok=True)


def _line(output: IO[str]) -> str:
    try:
        return output.readline()
    except (BlockingIOError, TypeError):  # nothing to read yet
        return ""


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[bool]:
    """Try to lock the directory for one parent; yield whether it is locked."""
    descriptor = os.open(directory / "try.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def run_trial(directory: Path, *, nodes: int, port: int, assignments: Sequence[str]) -> None:
    """Run the cluster until Ctrl-C or SIGTERM. Raises TrialError."""
    with contextlib.ExitStack() as cleanup:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            is_locked = cleanup.enter_context(_locked(directory))
        except OSError as error:
            raise TrialError(f"{directory} cannot be used: {error.strerror}; name another directory") from error
        if not is_locked:
            raise TrialError(
                f"a trial runs in {directory} already; name another directory, or stop it. To start one of its brokers "
                "again: --restart-node NODE"
            )
        cleanup.enter_context(_terminating())
        postgres = cleanup.enter_context(trial_postgres(_made(directory / "postgres")))
        bucket = cleanup.enter_context(trial_objects(_made(directory / "objects"), port + nodes))
        url, objects = postgres.url, bucket.url
        arguments = ["--cluster", url, "--objects", objects, *(f"--set={assignment}" for assignment in assignments)]
        brokers = [TrialBroker(directory, index + 1, port + index, arguments) for index in range(nodes)]
        cleanup.callback(_stop_all, brokers)
        parts: list[TrialBroker | TrialStore] = [
            TrialStore(directory, "postgres", postgres),
            TrialStore(directory, "objects", bucket),
            *brokers,
        ]
        requests = {part: Requests(directory, part.name) for part in parts}
        for part in parts:
            requests[part].forget()
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.wait_until_ready()
        _note_stores(directory, url, objects)
        addresses = ", ".join(broker.address for broker in brokers)
        ids = ", ".join(str(broker.node_id) for broker in brokers)
        print(f"fencepost cluster is ready: {addresses} (nodes {ids}, data in {directory})", flush=True)
        ended: set[TrialBroker | TrialStore] = set()
        while True:
            for part in parts:
                requests[part].grant(part)
                if part.is_running:
                    ended.discard(part)
                elif part not in ended:
                    ended.add(part)
                    _report_end(directory, part)
            time.sleep(0.1)


def _report_end(directory: Path, part: TrialBroker | TrialStore) -> None:
    code = part.exit_code or 0
    how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    option = "--restart-node" if isinstance(part, TrialBroker) else "--restart-store"
    name = part.node_id if isinstance(part, TrialBroker) else part.name
    print(
        f"fencepost: {part} has ended {how}, see {part.log}. Start it again: "
        f"fencepost cluster try --directory {shlex.quote(str(directory))} {option} {name}",
        file=sys.stderr,
        flush=True,
    )


def _note_stores(directory: Path, url: str, objects: str) -> None:
    """Write the variables for a shell that runs commands of the stores, such as `fencepost cluster check`."""
    variables = {"FENCEPOST_CLUSTER_URL": url, "FENCEPOST_CLUSTER_OBJECTS": objects}
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
    (directory / ENVIRONMENT).write_text("".join(lines))


def restart_node(directory: Path, node_id: int) -> None:
    """Have the trial that runs in a directory start a broker again that was killed. Raises TrialError."""
    _require_trial(directory, "--restart-node")
    name = f"node-{node_id}"
    if not (directory / f"{name}.log").exists():
        raise TrialError(f"the trial in {directory} has no node {node_id}")
    _restart(directory, name, f"node {node_id}")


def restart_store(directory: Path, name: str) -> None:
    """Have the trial that runs in a directory start one of its stores again. Raises TrialError."""
    _require_trial(directory, "--restart-store")
    _restart(directory, name, STORES[name])


def _restart(directory: Path, name: str, what: str) -> None:
    Requests(directory, name).ask(what, LONGEST_BROKER_START_S)
    print(f"{what} is ready (process {(directory / f'{name}.pid').read_text().strip()})", flush=True)


def _require_trial(directory: Path, option: str) -> None:
    """Raises TrialError."""
    if not directory.is_dir():
        raise TrialError(f"there is no directory {directory}; start the trial first, without {option}")
    with _locked(directory) as is_locked:
        if is_locked:
            raise TrialError(f"no trial runs in {directory}; start it first, without {option}")


class _Ended(BaseException):  # as KeyboardInterrupt, which it stands beside
    """SIGTERM or Ctrl-C has come."""


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """End the block at SIGTERM or Ctrl-C, with all that it has started. A second signal changes nothing."""

    def end(_number: int, _frame: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise _Ended

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    except _Ended:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _made(directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    return directory


def _stop_all(brokers: Sequence[TrialBroker]) -> None:
    for broker in brokers:
        broker.stop()
    deadline_s = time.monotonic() + LONGEST_BROKER_STOP_S
    for broker in brokers:
        broker.wait(deadline_s)
