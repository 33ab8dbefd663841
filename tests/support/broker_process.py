"""The broker as its own process, for tests: start it, end it gently or with kill -9, start it again on its data."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parents[2]
READY = re.compile(r"ready: (?P<host>\S+):(?P<port>\d+)")
START_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 20.0


class BrokerFailedError(RuntimeError):
    """The process ended, or said nothing, before it was ready; carries what it wrote."""


class BrokerProcess:
    """One data directory and the broker process that serves it, on the same port after every restart.

    settings: Kafka settings, passed with --set.
    `output` holds everything the process wrote, over all its starts.
    """

    def __init__(self, data_directory: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.data_directory = data_directory
        self.settings = dict(settings or {})
        self.host = "127.0.0.1"
        self.port = 0
        self._log_path = data_directory.parent / f"{data_directory.name}.broker.log"
        self._process: subprocess.Popen[bytes] | None = None

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
            sys.executable,
            *("-m", "broker", "serve"),
            *("--listener", f"{self.host}:{self.port}"),
            *("--data-dir", str(self.data_directory)),
        ]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        seen = len(self.output)
        with self._log_path.open("ab") as log_file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log_file, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            ready = READY.search(self.output, seen)
            if ready is not None:
                self.port = int(ready["port"])
                return self
            if self._process.poll() is not None:
                raise BrokerFailedError(f"the broker ended with {self._process.returncode}:\n{self.output[seen:]}")
            time.sleep(0.01)
        self.kill()
        raise BrokerFailedError(f"the broker was not ready after {START_TIMEOUT_S} s:\n{self.output[seen:]}")

    def kill(self) -> None:
        """kill -9, as a crash would."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        """SIGTERM and wait; returns the exit code. Raises subprocess.TimeoutExpired when it does not end."""
        assert self._process is not None, "the broker was not started"
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def restart_after_kill(self) -> None:
        self.kill()
        self.start()

    def resident_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.process_id}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
