"""A broker as processes of this machine: what they use, how they are stopped and killed.

Each has its own session, as a service has. Linux shares processors between sessions first (autogroup, sched(7)):
one process of a broker among the hundreds of threads of its clients would be one of hundreds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from scripts.benchmarks.figures import BrokerEndedError, ResidentMemory

ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 120.0
LAST_LINES_COUNT = 10


class BrokerProcess:
    """One broker; started when this is made. What it writes is kept in a file beside its data directory."""

    def __init__(
        self,
        address: tuple[str, int],
        command: Sequence[str],
        log_path: Path,
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.address = address
        self._log_path = log_path
        with self._log_path.open("wb") as log_file:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=None if environment is None else {**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def require_running(self) -> None:
        if self._process.poll() is not None:
            last_lines = self._log_path.read_text(errors="replace").splitlines()[-LAST_LINES_COUNT:]
            raise BrokerEndedError("\n".join((f"the broker ended with {self._process.returncode}", *last_lines)))

    def resident_bytes(self) -> int:
        return resident_memory(self.process_id).total_bytes

    def resident_memory(self) -> ResidentMemory:
        return resident_memory(self.process_id)

    def cpu_s(self) -> float:
        return cpu_s(self.process_id)

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9; nothing where it has ended already."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def terminate(self) -> float:
        """SIGTERM; returns how many seconds the clean stop took. Raises subprocess.TimeoutExpired."""
        began_at_s = time.monotonic()
        self._process.terminate()
        self._process.wait(STOP_TIMEOUT_S)
        return time.monotonic() - began_at_s

    def events(self, name: str) -> list[dict[str, object]]:
        """What the process has logged under a name so far, where its log is made of JSON lines."""
        found = []
        for line in self._log_path.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                event = json.loads(line)
                if event.get("event") == name:
                    found.append(event)
        return found


def cpu_s(process_id: int) -> float:
    """User and system time of a process, its threads and the processes it has started, so far."""
    return sum(_own_cpu_s(process) for process in _family(process_id))


def resident_memory(process_id: int) -> ResidentMemory:
    """What a process and those it has started have in memory; pages of mapped files count, as `ps` counts them."""
    total_bytes = shared_bytes = 0
    for process in _family(process_id):
        memory = process.memory_info()
        total_bytes += memory.rss
        shared_bytes += memory.shared
    return ResidentMemory(total_bytes, total_bytes - shared_bytes)


def _own_cpu_s(process: psutil.Process) -> float:
    """Linux reports a process's times in hundredths of a second, in which a broker answers some hundred requests; the
    clock of its processor time (clock_getcpuclockid) counts nanoseconds."""
    if psutil.LINUX:
        return time.clock_gettime((~process.pid << 3) | 2)
    times = process.cpu_times()
    return float(times.user + times.system)


def _family(process_id: int) -> list[psutil.Process]:
    process = psutil.Process(process_id)
    return [process, *process.children(recursive=True)]
