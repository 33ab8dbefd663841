"""Clients in their own processes: the same program drives every broker, and its work is not the broker's.

A program prepares, prints `ready`, waits for `go`, measures and prints its result as one line of JSON. So the broker's
processor time is taken around what is measured and nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from scripts.benchmarks.broker_process import ROOT
from scripts.benchmarks.figures import Broker

END_TIMEOUT_S = 30.0
LONGEST_S = 900.0
"""No program takes longer, unless it hangs; then it is killed."""


class ClientFailedError(Exception):
    """A client program ended without a result; carries the last that it wrote."""


class Measured(NamedTuple):
    """result: what the program printed.
    broker_cpu_s: user and system time of the broker's processes meanwhile."""

    result: dict[str, Any]
    broker_cpu_s: float


class ClientProcess:
    """One program; a context manager, so that none is left behind."""

    def __init__(self, command: Sequence[str], *, longest_s: float = LONGEST_S) -> None:
        self._name = " ".join(command[-2:])
        self._longest_s = longest_s
        self._gave_up = False
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self._unawaited_timer = threading.Timer(longest_s, self._give_up)
        self._unawaited_timer.daemon = True
        self._unawaited_timer.start()

    def wait_until_ready(self) -> None:
        """Raises ClientFailedError."""
        if self._line() != "ready":
            self._fail()

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Waits for it. Raises ClientFailedError."""
        line = self._line()
        if not line.startswith("{"):
            self._fail()
        result: dict[str, Any] = json.loads(line)
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._unawaited_timer.cancel()
        if error is not None:
            self._process.kill()
        try:
            self._process.communicate(timeout=END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _give_up(self) -> None:
        self._gave_up = True
        self._process.kill()

    def _fail(self) -> None:
        self._unawaited_timer.cancel()
        self._process.kill()
        self._process.communicate()
        self._errors.seek(0)
        errors = self._errors.read()
        self._errors.close()
        reason = f" was killed after {self._longest_s:g} s without a result" if self._gave_up else ""
        raise ClientFailedError(f"{self._name}{reason}:\n{errors[-2_000:]}")


def client(program: str, **parameters: Any) -> ClientProcess:
    """A program of `clients/programs.py`, waiting for `go`."""
    process = ClientProcess([sys.executable, "-m", "scripts.benchmarks.clients", program, json.dumps(parameters)])
    process.wait_until_ready()
    return process


def measured(broker: Broker, process: ClientProcess) -> Measured:
    """Let a client that is ready measure."""
    with process:
        before_s = broker.cpu_s()
        process.go()
        result = process.result()
        return Measured(result, broker.cpu_s() - before_s)


def measure_client(broker: Broker, program: str, **parameters: Any) -> Measured:
    """Start a program of `clients/programs.py` and let it measure."""
    return measured(broker, client(program, **parameters))


def bootstrap(broker: Broker) -> str:
    """The address as clients like it."""
    return "{}:{}".format(*broker.address)
