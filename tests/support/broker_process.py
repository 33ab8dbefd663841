"""The broker as its own process, for tests: start it, end it gently or with kill -9, start it again on its data."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from fencepost.soak.free_port import free_port
from tests.support.conditions import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(r"ready: (?P<host>\S+):(?P<port>\d+)")
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0


class BrokerFailedError(RuntimeError):
    """The process ended, or said nothing, before it was ready; carries what it wrote."""


class BrokerProcess:
    """One data directory and the broker process that serves it, on the same port after every restart.

    settings: Kafka settings, passed with --set.
    config: a properties file, which names the listeners. Without one, the process listens on a free port.
    file_size_limit_bytes: no file of the process may grow beyond it, as on a full disk; None for no limit. Its output
        goes through a pipe, so that it is not hit by the limit.
    descriptor_limit: how many files and connections the process may have open; None for as many as this one.
    protocol: of its listener.
    arguments: further ones of the command.
    program: what Python runs with the arguments of `fencepost`.
    launcher: what the command begins with, to run it elsewhere; its process becomes the broker.
    `output` holds everything the process wrote, over all its starts.
    """

    def __init__(
        self,
        data_directory: Path,
        *,
        settings: Mapping[str, str] | None = None,
        protocol: str = "PLAINTEXT",
        config: Path | None = None,
        arguments: Sequence[str] = (),
        program: Sequence[str] = ("-m", "fencepost"),
    ) -> None:
        self.file_size_limit_bytes: int | None = None
        self.descriptor_limit: int | None = None
        self.data_directory = data_directory
        self.settings = dict(settings or {})
        self.protocol = protocol
        self.config = config
        self.arguments = arguments
        self.program = program
        self.launcher: Sequence[str] = ()
        self.host = "127.0.0.1"
        self.port = free_port()
        self._log_path = data_directory.parent / f"{data_directory.name}.broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._sink: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    @property
    def output(self) -> str:
        return self._log_path.read_text(errors="replace") if self._log_path.exists() else ""

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> BrokerProcess:
        """Start and wait for the ready line. Raises BrokerFailedError."""
        command = [
            *self.launcher,
            sys.executable,
            *(*self.program, "serve"),
            *(
                ("--config", str(self.config))
                if self.config
                else ("--listener", f"{self.protocol}://{self.host}:{self.port}")
            ),
            *("--data-dir", str(self.data_directory)),
            *self.arguments,
        ]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        seen = len(self.output)
        with self._log_path.open("ab") as log_file:
            self._sink = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log_file)
        assert self._sink.stdin is not None
        with self._sink.stdin as pipe:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=subprocess.STDOUT,
                preexec_fn=self._limit_itself,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            ready = READY.search(self.output, seen)
            if ready is not None:
                self.port = int(ready["port"])
                return self
            if self._process.poll() is not None:
                self._sink.wait()
                raise BrokerFailedError(f"the broker ended with {self._process.returncode}:\n{self.output[seen:]}")
            time.sleep(0.01)
        self.kill()
        raise BrokerFailedError(f"the broker was not ready after {START_TIMEOUT_S} s:\n{self.output[seen:]}")

    def kill(self) -> None:
        """kill -9, as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._all_is_written()

    def terminate(self) -> int:
        """SIGTERM and wait; returns the exit code. Raises subprocess.TimeoutExpired when it does not end."""
        assert self._process is not None, "the broker was not started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            exit_code = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._all_is_written()
        return exit_code

    def limit_file_size(self, limit_bytes: int | None) -> None:
        """Change the limit of the running process, and of those to come."""
        self.file_size_limit_bytes = limit_bytes
        self._apply_limit(self.process_id)

    def _limit_itself(self) -> None:
        if self.file_size_limit_bytes is not None:
            self._apply_limit()
        if self.descriptor_limit is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptor_limit, self.descriptor_limit))

    def _apply_limit(self, process_id: int = 0) -> None:
        limit_bytes = resource.RLIM_INFINITY if self.file_size_limit_bytes is None else self.file_size_limit_bytes
        _, hard_limit = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
        resource.prlimit(process_id, resource.RLIMIT_FSIZE, (limit_bytes, hard_limit))

    def wait_for_output(self, pattern: str, *, timeout_s: float = PATIENCE_S) -> str:
        """The first line of the output that a regular expression is found in. Raises AssertionError."""
        deadline = time.monotonic() + timeout_s
        while True:
            for line in self.output.splitlines():
                if re.search(pattern, line):
                    return line
            assert time.monotonic() < deadline, f"{pattern!r} was never written:\n{self.output}"
            time.sleep(0.02)

    def _all_is_written(self) -> None:
        if self._sink is not None:
            self._sink.wait()

    def restart_after_kill(self) -> None:
        self.kill()
        self.start()

    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.process_id}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_resident_bytes(self) -> int:
        """The most resident memory the process ever had, what it has given back included."""
        status = Path(f"/proc/{self.process_id}/status").read_text()
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
