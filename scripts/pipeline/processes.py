"""The application and the Spark job of the demonstration, each as a process that is ended and started again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from scripts.pipeline.flights_summary import FOLLOWING

ROOT = Path(__file__).resolve().parents[2]
SPARK_END_TIMEOUT_S = 10.0


class DemonstrationError(RuntimeError):
    """A part of the demonstration did not do its work; the message says which, and where its log is."""


class Application:
    """The consume-transform-produce application as its own process; `flights` is the last progress that it
    reported. `on_step` is called with the name and the time of each of its steps, in a thread."""

    def __init__(
        self,
        bootstrap_servers: str,
        log_path: Path,
        *,
        flights_per_transaction: int,
        on_step: Callable[[str, float], None],
    ) -> None:
        self.flights = 0
        self._on_step = on_step
        self.log_path = log_path
        self._command = [
            *(sys.executable, "-m", "scripts.pipeline.flights_application"),
            *("--bootstrap", bootstrap_servers, "--flights-per-transaction", str(flights_per_transaction)),
        ]
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        assert self._process is not None
        return self._process.poll()

    def start(self) -> None:
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=subprocess.PIPE, stderr=log, text=True)
        self._reader = threading.Thread(target=self._follow, args=(self._process,), daemon=True)
        self._reader.start()

    def pause(self) -> None:
        """SIGSTOP: it stays where it is until `resume` or `kill`."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """kill -9, and every word that it said before is read."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._reader is not None:
            self._reader.join()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                step = json.loads(line)
                self.flights = step["flights"]
                self._on_step(step["step"], step["at_s"])


class SparkJob:
    """The Spark job as its own process, which follows the application until `finish`. `on_following` is called once it
    does, in a thread."""

    def __init__(self, bootstrap_servers: str, output: Path, *, on_following: Callable[[], None]) -> None:
        self.log_path = output / "spark.log"
        self._command = [
            *(sys.executable, str(ROOT / "scripts" / "pipeline" / "flights_summary.py")),
            *("--bootstrap", bootstrap_servers, "--checkpoint", str(output / "checkpoint"), "--follow", "--count"),
        ]
        self._on_following = on_following
        self._follows = threading.Event()
        self._counts: dict[str, Any] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> None:
        self._follows.clear()
        with self.log_path.open("a") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def wait_until_it_follows(self) -> None:
        """Raises DemonstrationError."""
        assert self._process is not None
        while not self._follows.wait(0.1):
            if self._process.poll() is not None:
                raise DemonstrationError(f"the Spark job did not start; see {self.log_path}")

    def kill(self) -> None:
        """kill -9 of the job, its virtual machine, and their Python workers."""
        if self._process is None or self._process.poll() is not None:
            return
        job = psutil.Process(self._process.pid)
        processes = [job, *job.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._wait()
        psutil.wait_procs(processes, timeout=SPARK_END_TIMEOUT_S)

    def finish(self) -> dict[str, Any]:
        """Have it read what is there, and end; returns what it has counted. Raises DemonstrationError."""
        if self._wait() != 0 or self._counts is None:
            raise DemonstrationError(f"the Spark job failed; see {self.log_path}")
        return self._counts

    def _wait(self) -> int:
        """End its input, and wait for its end; returns the exit code."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._reader is not None
        self._process.stdin.close()
        self._reader.join()
        return self._process.wait()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                said = json.loads(line) if line.startswith("{") else {}
                if said.get("step") == FOLLOWING:
                    self._on_following()
                    self._follows.set()
                self._counts = said.get("counts", self._counts)
