"""The parent of a broker of several processes: it starts one process per node, and starts those again that end or hang.

It has bound all sockets, so that ports stay its own while a process is started again. It serves nothing itself, and
when it ends, the kernel ends its processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NoReturn

from fencepost.broker.cluster.processes.shared_directory import prepare_data_directory
from fencepost.broker.config import LoadedSettings, Settings, parse_listeners
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.logging import configure_logging
from fencepost.broker.kernel.service_manager import READY, STOPPING, notify
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.log.directory.directory_files import LOCK_FILE
from fencepost.broker.network.server import SocketListener, StartError
from fencepost.broker.node import make_data_directory
from fencepost.broker.process.node_process import STOP_WITH_ALL, Specification
from fencepost.broker.process.node_settings import check_ports, names, settings_of_node
from fencepost.broker.process.serve_settings import fail
from fencepost.broker.storage.descriptors import raise_limit
from fencepost.broker.storage.disk import StorageError, remedy
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.broker.transaction.producer_ids import BLOCK_KEY, above_reserved_blocks

log = get_logger(__name__)

KEEPING_PROCESS = Place("supervision of a process", Policy.RETRY)
MESSAGE = Place("message of a process", Policy.REPORT)

LONGEST_IMPORT_S: Final = 60.0
"""Longest silence of a process before its first heartbeat: it imports, perhaps on a busy machine."""
LONGEST_STOP_S: Final = 60.0
SHORT_LIFE_S: Final = 5.0
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
"""Pause before a process is started again: the others take over meanwhile, and a start would slow that down."""
EXIT_NOT_STARTED: Final = 1


def serve_processes(loaded: LoadedSettings, options: Sequence[Any]) -> None:
    """Run as many processes as the settings say, until SIGTERM or Ctrl-C. On failure, it exits the process.

    options: those of `serve`, which each process loads for itself.
    """
    raise_limit()
    settings = loaded.settings
    configure_logging(log_format=settings.fencepost_log_format, level=settings.fencepost_log_level)
    for warning in loaded.warnings:
        log.warning("settings_warning", reason=warning)
    try:
        asyncio.run(_serve(settings, os.path.abspath(settings.log_dirs), list(options)))
    except StartError as error:
        fail(str(error), EXIT_NOT_STARTED)
    except StorageError as error:
        fail(str(error) if error.errno is None else f"{error}; {remedy(error)}", EXIT_NOT_STARTED)


async def _serve(settings: Settings, path: str, options: list[Any]) -> None:
    count = settings.fencepost_processes
    check_ports(settings, count)
    of_nodes = [settings_of_node(settings, path, index) for index in range(count)]
    with contextlib.ExitStack() as cleanup:
        sockets = [_bind_all(each, cleanup) for each in of_nodes]
        for directory in (path, *(each.log_dirs for each in of_nodes)):
            make_data_directory(directory)
        cleanup.enter_context(_locked(path))
        disk = LocalDisk()
        cleanup.callback(disk.close)
        await prepare_data_directory(
            path,
            [each.node_id for each in of_nodes],
            disk=disk,
            now_ms=SystemClock().now_ms(),
            on_restoring={BLOCK_KEY: above_reserved_blocks},
        )
        processes = Processes(
            [
                ProcessOfNode(each, options, path, index, of_listeners)
                for index, (each, of_listeners) in enumerate(zip(of_nodes, sockets, strict=True))
            ]
        )
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, processes.stop)
        loop.add_signal_handler(signal.SIGHUP, processes.send, signal.SIGHUP)
        running = asyncio.create_task(processes.run())
        if await processes.all_ready():
            _print_ready(processes, settings, path)
            notify(READY)
        await running
    if processes.failed_to_start:
        sys.exit(EXIT_NOT_STARTED)
    log.info("stopped")


def _bind_all(settings: Settings, cleanup: contextlib.ExitStack) -> dict[str, SocketListener]:
    """Raises StartError."""
    bound = {}
    for listener in parse_listeners(settings):
        socket_listener = bound[listener.name] = SocketListener(listener, settings)
        cleanup.callback(socket_listener.close)
    return bound


@contextlib.contextmanager
def _locked(path: str) -> Any:
    """Lock the data directory against other brokers, of one process or several. Raises StorageError."""
    lock = f"{path}/{LOCK_FILE}"
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StorageError(
            f"{path} is in use by another broker: it holds a lock on {lock}. Stop that one, or give this one a "
            "directory of its own"
        ) from None
    try:
        yield
    finally:
        os.close(descriptor)


def _print_ready(processes: Processes, settings: Settings, path: str) -> None:
    """Print the one line on standard output; scripts wait for it."""
    nodes = [process.description for process in processes.all]
    if settings.fencepost_log_format == "json":
        node_ids = [process.settings.node_id for process in processes.all]
        described = [{"node_id": node_id, **node} for node_id, node in zip(node_ids, nodes, strict=True)]
        line = json.dumps({"event": "ready", "nodes": described, "data_directory": path})
    else:
        where = _first_addresses(nodes, "listeners")
        advertised = _first_addresses(nodes, "advertised_listeners")
        if advertised != where:
            where += f", advertised as {advertised}"
        ids = names([process.settings for process in processes.all])
        line = f"fencepost is ready: {where} (cluster {nodes[0]['cluster_id']}, nodes {ids}, data in {path})"
    print(line, flush=True)


def _first_addresses(nodes: Sequence[dict[str, Any]], kind: str) -> str:
    return ", ".join(node[kind][0].partition("://")[2] for node in nodes)


class ProcessOfNode:
    """The process of one node, over all its starts. description: its message when it became ready; before that, empty.

    process_id: the running process's; None while none runs.
    """

    def __init__(
        self, settings: Settings, options: list[Any], path: str, index: int, sockets: dict[str, SocketListener]
    ) -> None:
        self.settings = settings
        self.description: dict[str, Any] = {}
        self.process_id: int | None = None
        self.is_ready = asyncio.Event()
        self._options = options
        self._path = path
        self._index = index
        self._sockets = sockets
        self._heard_s = 0.0
        self._has_beaten = False

    async def run_once(self) -> int:
        """Start the process and wait for its end; kill it if it hangs. Returns its exit code."""
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        specification = Specification(
            options=self._options,
            data_directory=self._path,
            position=self._index,
            sockets={name: each.socket.fileno() for name, each in self._sockets.items()},
            pipe=writing,
            parent=os.getpid(),
        )
        environment = {name: value for name, value in os.environ.items() if name != "NOTIFY_SOCKET"}
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "fencepost.broker.process.node_process", specification.encode()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(writing, *specification.sockets.values()),
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which stops it once
                env=environment,
            )
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        self.process_id = process.pid
        log.info("process_started", node=self.settings.node_id, pid=process.pid)
        self._heard_s, self._has_beaten = loop.time(), False
        received = bytearray()
        os.set_blocking(reading, False)
        loop.add_reader(reading, MESSAGE.callback(self._heard), reading, received)
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    return await asyncio.wait_for(process.wait(), 0.5)
                silence_s = loop.time() - self._heard_s
                longest_s = self.settings.fencepost_processes_silence_max_ms / 1000
                if silence_s > (longest_s if self._has_beaten else max(longest_s, LONGEST_IMPORT_S)):
                    log.error(
                        "process_hangs", node=self.settings.node_id, pid=process.pid, silent_s=round(silence_s, 1)
                    )
                    process.kill()
        finally:
            self.process_id = None
            loop.remove_reader(reading)
            os.close(reading)
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._refuse_connections()

    def _refuse_connections(self) -> None:
        """Stop listening, until the next process does: clients that are refused ask another node at once.

        Otherwise the sockets would continue to listen, as the parent has them, too; clients would be connected, and
        wait for the next process. A port that the system has chosen would be lost.
        """
        for bound in self._sockets.values():
            if bound.listener.port:
                with contextlib.suppress(OSError):
                    bound.socket.shutdown(socket.SHUT_RD)

    def _heard(self, reading: int, received: bytearray) -> None:
        try:
            content = os.read(reading, 65_536)
        except BlockingIOError:
            return
        if not content:  # it has ended, which `wait` returns
            asyncio.get_running_loop().remove_reader(reading)
            return
        self._heard_s, self._has_beaten = asyncio.get_running_loop().time(), True
        received += content
        *lines, rest = bytes(received).split(b"\n")
        received[:] = rest
        for line in filter(None, lines):
            self.description = json.loads(line)
            self.is_ready.set()
            log.info("process_ready", node=self.settings.node_id, pid=self.process_id)

    def send(self, number: int) -> None:
        """Send a signal to the process, if it runs. One that still imports has opened nothing, and does not handle
        signals yet: it is ended by any but SIGHUP, which it does not need."""
        if not self._has_beaten:
            number = 0 if number == signal.SIGHUP else signal.SIGKILL
        if self.process_id is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process_id, number)


class Processes:
    """All processes. failed_to_start: whether one ended before all were ready for the first time."""

    def __init__(self, processes: Sequence[ProcessOfNode]) -> None:
        self.all = processes
        self.failed_to_start = False
        self._stopping = asyncio.Event()

    async def all_ready(self) -> bool:
        """Wait until all are ready; False if they are stopped before."""
        ready = asyncio.ensure_future(asyncio.gather(*(process.is_ready.wait() for process in self.all)))
        stopped = asyncio.create_task(self._stopping.wait())
        await asyncio.wait((ready, stopped), return_when=asyncio.FIRST_COMPLETED)
        is_ready = ready.done()
        await end_tasks(ready, stopped)
        return is_ready

    def stop(self) -> None:
        """Stop all processes; a second time, at once."""
        if self._stopping.is_set():
            self.send(signal.SIGKILL)
            _end_at_once()
        log.info("stopping")
        notify(STOPPING)
        self._stopping.set()
        self.send(STOP_WITH_ALL)

    def send(self, number: int) -> None:
        """Send a signal to all processes."""
        for process in self.all:
            process.send(number)

    async def run(self) -> None:
        """Run all processes until they are stopped."""
        keeping = [KEEPING_PROCESS.start_retrying(partial(self._keep, process)) for process in self.all]
        await self._stopping.wait()
        _, late = await asyncio.wait(keeping, timeout=LONGEST_STOP_S)
        for task in late:
            log.error("process_killed", reason=f"it did not stop within {LONGEST_STOP_S:.0f} s")
            task.cancel()
        await asyncio.gather(*keeping, return_exceptions=True)

    async def _keep(self, process: ProcessOfNode) -> None:
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while not self._stopping.is_set():
            started_s = loop.time()
            exit_code = await process.run_once()
            if self._stopping.is_set():
                return
            if not all(each.is_ready.is_set() for each in self.all):
                self.failed_to_start = True
                self._stopping.set()
                self.send(STOP_WITH_ALL)
                return
            # A signal to its id has stopped it; it has handed over, and ended as requested.
            report = log.error if exit_code else log.info
            report("process_ended", node=process.settings.node_id, exit_code=exit_code, remedy="it is started again")
            if loop.time() - started_s >= SHORT_LIFE_S:
                pause_s = FIRST_PAUSE_S
                if len(self.all) == 1:
                    continue  # no other process takes over meanwhile
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


def _end_at_once() -> NoReturn:
    os._exit(128 + signal.SIGTERM)
