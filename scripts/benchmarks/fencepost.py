"""This broker, from this checkout, as the subject of a measurement."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from scripts.benchmarks.figures import BrokerEndedError

ROOT = Path(__file__).resolve().parents[2]
STOP_TIMEOUT_S = 120.0
LAST_LINES_COUNT = 10
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class FencepostSubject:
    """Fencepost with its defaults: what is acknowledged is on the disk."""

    name = "fencepost"

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> FencepostBroker:
        return FencepostBroker(data_directory, settings)


class FencepostBroker:
    """One process; started when this is made. Its log, as JSON lines, is beside the data directory."""

    def __init__(self, data_directory: Path, settings: Mapping[str, str]) -> None:
        self.address = ("127.0.0.1", free_port())
        self._log_path = data_directory.with_name(f"{data_directory.name}.broker.log")
        command = [
            *(sys.executable, "-m", "broker", "serve", "--log-format", "json"),
            *("--listener", "{}:{}".format(*self.address), "--data-dir", str(data_directory)),
        ]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        with self._log_path.open("wb") as log_file:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log_file, stderr=subprocess.STDOUT
            )

    @property
    def process_id(self) -> int:
        return self._process.pid

    def insist_on_running(self) -> None:
        if self._process.poll() is not None:
            last_lines = self._log_path.read_text(errors="replace").splitlines()[-LAST_LINES_COUNT:]
            raise BrokerEndedError("\n".join((f"the broker ended with {self._process.returncode}", *last_lines)))

    def resident_bytes(self) -> int:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_s(self) -> float:
        return cpu_s(self._process.pid)

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
        """What the process has logged under a name so far."""
        found = []
        for line in self._log_path.read_text(errors="replace").splitlines():
            if line.startswith("{"):
                event = json.loads(line)
                if event.get("event") == name:
                    found.append(event)
        return found


def cpu_s(process_id: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
