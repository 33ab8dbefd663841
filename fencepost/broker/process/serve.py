"""`fencepost serve`: starts the node, and stops it at SIGTERM or Ctrl-C. SIGHUP has it read certificates again."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
from collections.abc import Coroutine
from typing import Any, NoReturn, Protocol

from fencepost.broker.config import Endpoint, LoadedSettings, Settings
from fencepost.broker.kernel.allocator_settings import keep_freed_memory
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.loggers import Loggers
from fencepost.broker.kernel.logging import configure_logging
from fencepost.broker.kernel.scheduler_slices import request_longest_slices
from fencepost.broker.kernel.service_manager import READY, STOPPING, notify
from fencepost.broker.kernel.supervision import Place, Policy, describe, log_loop_error
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from fencepost.broker.process.serve_settings import fail
from fencepost.broker.storage.descriptors import raise_limit
from fencepost.broker.storage.disk import StorageError, remedy

log = get_logger(__name__)

HEARTBEATS = Place("heartbeats to the parent process", Policy.RETRY)
HAND_OVER = Place("hand-over before the stop of one process", Policy.REPORT)
HEAP_FREEZE = Place("freezing of what the coordinators loaded", Policy.REPORT)

EXIT_NOT_STARTED = 1
EXIT_FAILED = 3


class OneOfSeveral(Protocol):
    """The connection to the parent of a broker that is one process of several."""

    def parts(self, settings: Settings) -> dict[str, Any]:
        """Make the arguments of `Node` beside its settings."""
        ...

    async def beat(self) -> None:
        """Send heartbeats of the event loop to the parent."""
        ...

    def ready(self, node: Node) -> None:
        """Notify the parent that clients are served."""
        ...


def serve(loaded: LoadedSettings, *, as_process: OneOfSeveral | None = None) -> None:
    """Run a broker until SIGTERM or Ctrl-C. On failure, it exits the process. as_process: the link to the parent."""
    raise_limit()
    settings = loaded.settings
    loggers = configure_logging(log_format=settings.fencepost_log_format, level=settings.fencepost_log_level)
    try:
        _run(_serve(loaded, loggers, as_process))
    except StartError as error:
        fail(str(error), EXIT_NOT_STARTED)
    except StorageError as error:
        fail(str(error) if error.errno is None else f"{error}; {remedy(error)}", EXIT_NOT_STARTED)
    except (EOFError, OSError):
        raise  # of the terminal: click handles it
    except Exception as error:
        log.critical("broker_stopped_unexpectedly", reason=describe(error), exc_info=True)
        fail(f"stopped by something unexpected: {describe(error)}", EXIT_FAILED)


def _run(work: Coroutine[Any, Any, None]) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work)


# Requests make no reference cycles and are freed at once. With Python's thresholds (700, 10, 10) the search for cycles
# took a fifth of the CPU time of a thousand groups that each commit offsets every second.
COLLECTION_THRESHOLDS = (50_000, 20, 50)


async def _serve(loaded: LoadedSettings, loggers: Loggers, as_process: OneOfSeveral | None) -> None:
    # Before the node starts threads, which inherit it.
    request_longest_slices()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_error)
    for warning in loaded.warnings:
        log.warning("settings_warning", reason=warning)
    stopping = asyncio.Event()
    beating = None if as_process is None else HEARTBEATS.start_retrying(as_process.beat)
    settings, parts = loaded.settings, {}
    if as_process is not None:
        parts = as_process.parts(settings)
    elif settings.fencepost_cluster_url is not None:
        # Imported here: most brokers are no part of a cluster of machines.
        from fencepost.broker.cluster.machines.machine import join_cluster

        settings, parts = await join_cluster(settings)
    node = Node(settings, loggers=loggers, **parts)
    _stop_at_signals(loop, node, stopping, is_one_of_several=bool(parts))
    loop.add_signal_handler(signal.SIGHUP, node.reload_certificates)
    node.on_failed = stopping.set
    await node.start()
    # The objects of startup live as long as the process: later collections need not scan them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    keep_freed_memory()
    if as_process is not None:
        as_process.ready(node)
    else:
        _print_ready(node, settings)
        notify(READY)
    loading = HEAP_FREEZE.start(_freeze_when_loaded(node))
    try:
        await stopping.wait()
        if node.failure is not None:
            _end_at_once(node.failure)
        log.info("stopping", connections=node.connection_count)
        if as_process is None:
            notify(STOPPING)
    finally:
        loading.cancel()
        await node.stop()
        if beating is not None:
            beating.cancel()
    log.info("stopped")


async def _freeze_when_loaded(node: Node) -> None:
    """Freeze the heap again once the coordinators have loaded."""
    await node.ensure_loaded()
    gc.freeze()


def _stop_at_signals(
    loop: asyncio.AbstractEventLoop, node: Node, stopping: asyncio.Event, *, is_one_of_several: bool
) -> None:
    """Have SIGTERM and SIGINT stop the node; a second one of the same kind ends the process at once.

    One of several: its parent sends SIGINT when all stop. SIGTERM is for this one alone, which hands over first.
    """
    told: set[int] = set()

    def signalled(number: int) -> None:
        if number in told or (told and not is_one_of_several):
            # Acknowledged records are on disk; the next start recovers.
            os._exit(128 + signal.SIGTERM)
        told.add(number)
        if is_one_of_several and number == signal.SIGTERM:
            HAND_OVER.start(_hand_over_and_stop(node, stopping))
        else:
            stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signalled, number)


async def _hand_over_and_stop(node: Node, stopping: asyncio.Event) -> None:
    try:
        await node.hand_all_over()
    finally:
        stopping.set()


def _end_at_once(reason: str) -> NoReturn:
    """Exit as in a crash: the state in memory may be wrong, so nothing of it is written to disk."""
    print(f"fencepost: stopped: {reason}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(EXIT_FAILED)


def _print_ready(node: Node, settings: Settings) -> None:
    """Print the one line on standard output; scripts wait for it."""
    address = node.address
    others = node.addresses[1:]
    if settings.fencepost_log_format == "json":
        event = {
            "event": "ready",
            "host": address.host,
            "port": address.port,
            "listeners": [str(endpoint) for endpoint in node.addresses],
            "advertised_listeners": [str(endpoint) for endpoint in node.advertised_addresses],
            "cluster_id": node.cluster_id,
            "node_id": settings.node_id,
            "data_directory": node.data_directory,
            "start_duration_s": round(node.start_duration_s, 3),
        }
        print(json.dumps(event), flush=True)
        return
    where = _host_and_port(address)
    if others:
        where += f" and {', '.join(_host_and_port(endpoint) for endpoint in others)}"
    if node.advertised_addresses != node.addresses:
        where += f", advertised as {', '.join(_host_and_port(endpoint) for endpoint in node.advertised_addresses)}"
    print(
        f"fencepost is ready: {where} (cluster {node.cluster_id}, node {settings.node_id}, "
        f"data in {node.data_directory}, {node.start_duration_s:.2f} s)",
        flush=True,
    )


def _host_and_port(endpoint: Endpoint) -> str:
    return str(endpoint).partition("://")[2]
