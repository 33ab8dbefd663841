"""Client process of the soak: its start, its reports, its end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fencepost.soak.java_program import JVM_OPTIONS
from fencepost.soak.plan import SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, ExitCode, Plan, Slot

LAST_WORDS_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Surroundings:
    """Common parameters of all clients. java_class_path: None if no Java client runs. database_urls: of services."""

    plan: Plan
    bootstrap_servers: str
    history_path: Path
    logs_directory: Path
    java_class_path: str | None
    database_urls: Sequence[str] = ()


class ClientProcess:
    """A client process, started by the constructor. A thread reads its reports; the counters are the last ones.

    is_last: a service only starts a session, which finishes the transaction of the one before, and ends.
    """

    def __init__(self, surroundings: Surroundings, slot: Slot, life: int, *, is_last: bool = False) -> None:
        self.name = f"{slot.name}.{life}"
        self.log_path = surroundings.logs_directory / f"{slot.name}.log"
        self.sent = self.committed = self.aborted = self.unknown = self.read = self.steps = 0
        self.reason = ""  # why it ended, as it reported
        self.is_frozen = False
        self.moved_at_s = time.monotonic()  # when its last call returned
        with self.log_path.open("a") as log:
            log.write(f"---- {self.name} starts\n")
            log.flush()
            # In its own session: Ctrl-C ends the soak, which then ends its clients.
            self._process = subprocess.Popen(
                _command(surroundings, slot, self.name, life, is_last=is_last),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._follow, name=self.name, daemon=True)
        self._reader.start()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; one of plan.ExitCode if it ended by itself, negative if a signal ended it."""
        return self._process.poll()

    def terminate(self) -> None:
        """Send SIGTERM: it finishes its transaction and leaves its group."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._process.wait()
        self._reader.join(LAST_WORDS_TIMEOUT_S)

    def freeze(self) -> None:
        self.is_frozen = True
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self.is_frozen = False
        self.moved_at_s = time.monotonic()

    def dump_threads(self) -> None:
        """Make it log the stacks of its threads."""
        self._process.send_signal(signal.SIGQUIT if self._process.args[0] == "java" else signal.SIGUSR1)  # type: ignore[index]

    def _follow(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines, self.log_path.open("a") as log:
            for line in lines:
                try:
                    report = json.loads(line)
                except ValueError:
                    log.write(line)  # a JVM's thread dump
                    log.flush()
                    continue
                if report["steps"] != self.steps:
                    self.moved_at_s = time.monotonic()
                for name in ("sent", "committed", "aborted", "unknown", "read", "steps"):
                    setattr(self, name, report[name])
                if "ended" in report:
                    self.reason = report["reason"]
                    log.write(f"---- {self.name} ended: {report['ended']} {self.reason}\n")
                    log.flush()


def is_known(exit_code: int) -> bool:
    """Whether a client ended in an expected way."""
    return exit_code in (ExitCode.STOPPED, ExitCode.FENCED, ExitCode.SESSION_LOST)


def _command(surroundings: Surroundings, slot: Slot, name: str, life: int, *, is_last: bool) -> list[str]:
    plan = surroundings.plan
    if slot.kind == "java":
        assert surroundings.java_class_path is not None
        return [
            *("java", *JVM_OPTIONS, "-cp", surroundings.java_class_path, "SoakClient"),
            *(name, slot.kind, slot.role, slot.name, surroundings.bootstrap_servers, str(surroundings.history_path)),
            *(",".join(plan.kinds), str(plan.rate_of_each), str(plan.seed)),
            *(str(TRANSACTION_TIMEOUT_MS), str(SESSION_TIMEOUT_MS)),
        ]
    order = {
        "name": name,
        "kind": slot.kind,
        "role": slot.role,
        "transactional_id": slot.name,
        "bootstrap_servers": surroundings.bootstrap_servers,
        "history_path": str(surroundings.history_path),
        "kinds": list(plan.kinds),
        "rate": plan.rate_of_each if slot.role == "service" else plan.rate,
        "seed": plan.seed,
        "database_urls": list(surroundings.database_urls),
        "life": life,
        "is_last": is_last,
    }
    return [sys.executable, "-m", "fencepost.soak.client", json.dumps(order)]
