"""`ProcessBroker`: a broker in a process of its own, which can be killed, restarted and frozen.

The test's commands go to it through a pair of sockets; `child` has the other end.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Final, Self

from fencepost.in_process import FOR_TESTS, temporary_root
from fencepost.testing.arguments import text_of
from fencepost.testing.control import FaultState, Inside
from fencepost.testing.errors import MisuseError
from fencepost.testing.faults import FaultOrder
from fencepost.testing.methods import BrokerMethods
from fencepost.testing.requests import SeenRequest

START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
COMMAND_TIMEOUT_S: Final = 60.0
HOST: Final = "127.0.0.1"
FROZEN: Final = "the broker is frozen and answers nothing: call thaw() first"


class ProcessBroker(BrokerMethods):
    """A broker in a process of its own, from `start`, or `with`, to `close`; data are temporary and survive `kill`.

    Faults outlive a restart: a new process gets those that may still fire. The requests of earlier processes are kept
    as they were when they were last asked for. Threads may call its methods side by side: if one ends the process, a
    command that has no answer yet raises MisuseError in another.
    """

    def __init__(self, *, settings: Mapping[str, object] | None = None, listener: str | None = None) -> None:
        """listener: an address whose port is not 0; None for a free port of this machine alone."""
        super().__init__()
        self._listener = listener
        self._settings = {name: text_of(value) for name, value in (settings or {}).items()}
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        # Held while a command and its answer pass, and while a process starts. Not the lock of the calls over the
        # wire: those may wait for minutes, and `kill` and `close` must not wait for them.
        self._exchange = threading.RLock()
        self._connection: Connection | None = None
        self._port = 0
        self._orders: dict[int, FaultOrder] = {}
        self._states: dict[int, FaultState] = {}
        self._seen: list[SeenRequest] = []
        self._next_number = 1
        self._ahead_s = 0.0  # how far the clock was turned
        self._is_frozen = False

    @property
    def bootstrap_servers(self) -> str:
        if not self._port:
            raise RuntimeError(
                "the broker has not been started: use `with ProcessBroker() as broker:`, or call start()"
            )
        return f"{HOST}:{self._port}"

    @property
    def process_id(self) -> int:
        """Raises MisuseError if the process does not run."""
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._alive() is not None

    @property
    def data_directory(self) -> str:
        if self._temporary is None:
            raise RuntimeError("the broker has no data yet: call start()")
        return self._temporary.name

    def start(self) -> Self:
        """Start the process; when this returns, clients are served. Raises RuntimeError with the process's output."""
        with self._exchange:
            self._start()
        return self

    def _start(self) -> None:
        if self.is_running:
            raise RuntimeError("the broker runs already; `restart` stops it first")
        self._end_process()
        self.is_closed = False
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="fencepost-", dir=temporary_root())
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fencepost.testing.child", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        self._connection = Connection(ours.detach())
        listener = self._listener or f"PLAINTEXT://{HOST}:{self._port}"
        settings = {**FOR_TESTS, **self._settings, "listeners": listener}
        settings["log.dirs"] = self.data_directory
        self._connection.send((settings, list(self._orders.items()), dict(self._states), self._ahead_s))
        kind, value = self._receive(START_TIMEOUT_S)
        if kind != "started":
            self._end_process()
            raise RuntimeError(f"the broker did not start: {value or 'its process ended'}")
        self._port = value

    def kill(self) -> None:
        """kill -9. Does nothing if the process does not run."""
        self.close_helpers()
        process = self._alive()
        if process is not None:
            process.kill()  # without the lock: who has it may wait for this process's answer
            process.wait()
        with self._exchange:
            self._drain()

    crash = kill

    def stop(self) -> None:
        """Stop the broker: it answers requests in flight and closes its files. Does nothing if it does not run."""
        self.thaw()
        self.close_helpers()
        process = self._alive()
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        with self._exchange:
            self._drain()

    def restart(self) -> Self:
        """Stop the process if it runs, and start a new one with its data, port and faults."""
        self.stop()
        return self.start()

    def freeze(self) -> None:
        """Stop the process in its tracks, as SIGSTOP does: connections stay open and nothing is answered."""
        os.kill(self.process_id, signal.SIGSTOP)
        self._is_frozen = True

    def thaw(self) -> None:
        """Let a frozen process go on. Does nothing for one that is not frozen."""
        if self._is_frozen and self.is_running:
            os.kill(self.process_id, signal.SIGCONT)
        self._is_frozen = False

    def wait_for_exit(self, timeout: float = 10.0) -> int:
        """Wait until the process has ended, say by `crash_after`; return its code. Raises subprocess.TimeoutExpired."""
        if self._process is None:
            raise MisuseError("the broker has not been started: call start()")
        return self._process.wait(timeout)

    def close(self) -> None:
        """End the process, and remove its data."""
        self.is_closed = True
        self.kill()
        with self._exchange:
            self._end_process()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None

    def data_to_keep(self) -> str | None:
        self.stop()
        return None if self._temporary is None else self._temporary.name

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Commands

    def run_command(self, command: str, *arguments: Any) -> Any:
        with self._exchange:
            if self._is_frozen:
                raise MisuseError(FROZEN)
            if command == "place":
                number = self._next_number
                self._next_number += 1
                self._orders[number] = arguments[0]
                self._states[number] = FaultState(0, 0)
                if self.is_running:
                    self._ask("place_as", number, arguments[0])
                return number
            if self.is_running:
                if command == "turn":
                    self._ahead_s += arguments[0]
                try:
                    result = self._ask(command, *arguments)
                except (EOFError, OSError):
                    if command not in Inside.WITHOUT_BROKER:
                        raise MisuseError("the broker's process ended meanwhile: call restart()") from None
                else:
                    if command == "requests":
                        self._seen = result
                    elif command == "state":
                        self._states[arguments[0]] = result
                    elif command == "remove":
                        self._orders.pop(arguments[0], None)
                    return result
            self._drain()
            if command == "state":
                return self._states[arguments[0]]
            if command == "requests":
                return self._seen
            if command == "remove":
                self._orders.pop(arguments[0], None)
                return None
            if command == "release":
                return 0
            raise self._not_running()

    def silence(self) -> MisuseError | None:
        if self._is_frozen:
            return MisuseError(FROZEN)
        return self._not_running() if self._port and not self.is_running else None

    def _not_running(self) -> MisuseError:
        return MisuseError(f"the broker's process does not run: call {'restart' if self._port else 'start'}()")

    def _ask(self, command: str, *arguments: Any) -> Any:
        assert self._connection is not None
        self._connection.send((command, arguments))
        kind, value = self._receive(COMMAND_TIMEOUT_S)
        if kind == "raised":
            raise value
        if kind != "result":
            raise EOFError
        return value

    def _receive(self, timeout_s: float) -> tuple[str, Any]:
        """Return the process's next answer; `ended` if there is none. Records its reports of fired faults."""
        assert self._connection is not None
        while True:
            try:
                if not self._connection.poll(timeout_s):
                    return "ended", None
                kind, value = self._connection.recv()
            except (EOFError, OSError):
                return "ended", None
            if kind != "fired":
                return kind, value
            number, state, seen = value
            self._states[number] = state
            self._seen = seen

    def _drain(self) -> None:
        """Record a process's reports from before its end."""
        if self._connection is not None:
            while self._receive(0)[0] != "ended":
                pass

    def _end_process(self) -> None:
        if self._connection is not None:
            self._drain()
            self._connection.close()
            self._connection = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _alive(self) -> subprocess.Popen[bytes] | None:
        process = self._process  # read once: another thread may end it meanwhile
        return process if process is not None and process.poll() is None else None

    def _running(self) -> subprocess.Popen[bytes]:
        process = self._alive()
        if process is None:
            raise self._not_running()
        return process
