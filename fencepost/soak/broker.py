"""The broker under test: one process or several with one data directory, killed, frozen, starved of disk and restarted.

No method waits: `spawn` starts the process and `is_ready` reports when it serves, so that the nemesis can act
meanwhile. Of a broker of several processes, all methods but those of single nodes concern the parent.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fencepost.soak.free_port import free_ports

READY = re.compile(rb"fencepost is ready|event=ready|: ready")
HOST = "127.0.0.1"


class BrokerDiedError(RuntimeError):
    """The broker ended by itself; the message has the end of its log."""


class Broker:
    """settings: Kafka settings, passed with --set. arguments: further ones of the command. process_count: processes
    that share the directory; the port of each follows that of the one before. `log_path` gets the output of all its
    processes."""

    def __init__(
        self,
        data_directory: Path,
        log_path: Path,
        settings: Mapping[str, str],
        *,
        process_count: int = 1,
        arguments: Sequence[str] = (),
    ) -> None:
        self.data_directory = data_directory
        self.log_path = log_path
        self.process_count = process_count
        self.port = free_ports(process_count)
        self.is_held = False  # it has a fault, and may be down
        self._arguments = arguments
        self.recoveries_s: list[float] = []  # from the start of the process to its ready line, after the first start
        self._settings = dict(settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._sink: subprocess.Popen[bytes] | None = None
        self._log_start = 0  # where the output of the current process begins in the log
        self.spawned_at_s = 0.0  # by time.monotonic()
        self._is_ready = False
        self._starts_count = 0

    @property
    def log_paths(self) -> list[Path]:
        """The files of its output."""
        return [self.log_path]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{self.port + index}" for index in range(self.process_count))

    @property
    def starts_count(self) -> int:
        """How often it was started, as a whole."""
        return self._starts_count

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Whether clients are served. Raises BrokerDiedError if the process has ended."""
        if not self._is_ready:
            if READY.search(self.written()):
                self._is_ready = True
                if self._starts_count > 1:
                    self.recoveries_s.append(time.monotonic() - self.spawned_at_s)
            else:
                self.raise_if_dead()
        return self._is_ready

    @property
    def has_served(self) -> bool:
        """Whether this start has been found ready."""
        return self._is_ready

    def raise_if_dead(self) -> None:
        """Raise BrokerDiedError if it was started and has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            last_words = self.written().decode(errors="replace").strip().splitlines()[-5:]
            raise BrokerDiedError(
                f"the broker ended by itself with exit code {self._process.returncode}; see {self.log_path}\n"
                + "\n".join(last_words)
            )

    def raise_if_ended(self) -> None:
        """Raise BrokerDiedError if it has ended by itself while it has no fault."""
        if not self.is_held:
            self.raise_if_dead()

    @property
    def process_id(self) -> int | None:
        """That of the process; None if it has none."""
        return None if self._process is None else self._process.pid

    def spawn(self) -> None:
        """Start the process; `is_ready` reports when it serves."""
        command = [
            *(sys.executable, "-m", "fencepost", "serve"),
            *("--listener", f"{HOST}:{self.port}", "--data-dir", str(self.data_directory)),
            *self._arguments,
        ]
        if self.process_count > 1:
            command += ["--processes", str(self.process_count)]
        for name, value in self._settings.items():
            command += ["--set", f"{name}={value}"]
        self._log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        # Through a pipe: a limit on file sizes must not apply to the log that reports it.
        with self.log_path.open("ab") as log:
            self._sink = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=log, start_new_session=True)
        assert self._sink.stdin is not None
        with self._sink.stdin as pipe:
            # In its own session: Ctrl-C ends the soak, which then ends the broker.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.spawned_at_s = time.monotonic()
        self._starts_count += 1
        self._is_ready = False

    def kill(self) -> None:
        """Send SIGKILL, also to a frozen process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._finish()

    def close(self) -> None:
        """End the process."""
        self.kill()

    def terminate(self) -> None:
        """Send SIGTERM; `has_ended` reports the end."""
        self.signal(signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        assert self._process is not None
        self._process.send_signal(number)

    def has_ended(self) -> bool:
        """Whether the process has ended after `terminate`."""
        assert self._process is not None
        if self._process.poll() is None:
            return False
        self._finish()
        return True

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def limit_file_size(self, limit_bytes: int | None) -> None:
        """Limit the size of the process's files, as if the disk were full; None: no limit."""
        assert self._process is not None
        self.raise_if_dead()
        _limit_file_size(self._process.pid, limit_bytes)

    # Single processes

    @property
    def node_ids(self) -> range:
        """The nodes, one per process."""
        return range(1, self.process_count + 1)

    def process_of(self, node_id: int) -> int | None:
        """The id of the process that was started last for a node; None before its first."""
        started = re.findall(rb"process_started +node=%d pid=(\d+)" % node_id, self.written())
        return int(started[-1]) if started else None

    def is_node_ready(self, node_id: int) -> bool:
        """Whether the process that was started last for a node serves clients."""
        told = re.findall(rb"(process_started|process_ready) +node=%d " % node_id, self.written())
        return bool(told) and told[-1] == b"process_ready"

    def signal_process(self, process_id: int, number: int) -> bool:
        """Send a signal to the process of a node; returns False if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process_id, number)
            return True
        return False

    def limit_file_size_of(self, process_id: int, limit_bytes: int | None) -> None:
        """Limit the size of the files of a node's process; nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            _limit_file_size(process_id, limit_bytes)

    def written(self) -> bytes:
        """The log output of the current process."""
        with self.log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def problems(self) -> list[str]:
        """Return problems of the files, at the end: none, as the log of the process names them."""
        return []

    def log_files(self) -> list[Path]:
        """The segments of all partitions."""
        pattern = "*-[0-9]*/*.log" if self.process_count == 1 else "node.*/*-[0-9]*/*.log"
        return list(self.data_directory.glob(pattern))

    def _finish(self) -> None:
        if self._sink is not None:
            self._sink.wait()
        self._process = self._sink = None


def _limit_file_size(process_id: int, limit_bytes: int | None) -> None:
    """Raises ProcessLookupError."""
    soft_limit = resource.RLIM_INFINITY if limit_bytes is None else limit_bytes
    _, hard_limit = resource.prlimit(process_id, resource.RLIMIT_FSIZE)
    resource.prlimit(process_id, resource.RLIMIT_FSIZE, (soft_limit, hard_limit))
