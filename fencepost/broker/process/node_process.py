"""One process of a broker of several: `python -m fencepost.broker.process.node_process SPECIFICATION`.

The parent (`broker.process.processes`) starts it with its listeners' sockets and a pipe. Over the pipe it sends its
addresses when it is ready, and heartbeats of its event loop. It ends with its parent, even if that is killed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fencepost.broker.kernel.lean_imports import import_dataclasses, import_libraries
from fencepost.broker.process.interrupts import raise_again

HEARTBEAT_INTERVAL_S: Final = 0.5
HEARTBEAT: Final = b"\n"
PR_SET_PDEATHSIG: Final = 1
IMPORT_COLLECTION_THRESHOLD: Final = 20_000
EXIT_ORPHANED: Final = 4
STOP_WITH_ALL: Final = signal.SIGINT
"""The parent's signal to stop: the others stop, too. SIGTERM is for a process alone, which hands over first."""


class Specification(NamedTuple):
    """The parent's command line for one node, as JSON.

    options: those of `serve`, see `serve_settings.load`. position: this node's among the others, from 0.
    sockets: descriptors of bound sockets, by the names of their listeners. pipe: the descriptor to write to.
    """

    options: list[Any]
    data_directory: str
    position: int
    sockets: Mapping[str, int]
    pipe: int
    parent: int

    def encode(self) -> str:
        return json.dumps(self._asdict())


def main() -> None:
    """Run the node until SIGTERM, or until the parent ends."""
    specification = Specification(**json.loads(sys.argv[1]))
    _end_with_parent(specification.parent)
    gc.set_threshold(IMPORT_COLLECTION_THRESHOLD, 1_000, 1_000)
    import_dataclasses()
    from fencepost.broker.process.serve_settings import load, needs_tls

    listeners, data_dir, properties_path, assignments, *others = specification.options
    loaded = load(tuple(listeners), data_dir, properties_path, tuple(assignments), *others)
    import_libraries(with_openssl=needs_tls(loaded.settings))
    from fencepost.broker.process.node_settings import settings_of_node
    from fencepost.broker.process.serve import serve

    settings = settings_of_node(loaded.settings, specification.data_directory, specification.position)
    raise_again()
    serve(loaded._replace(settings=settings), as_process=NodeProcess(specification))


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends. Other systems than Linux have only the pipe."""
    from fencepost.broker.kernel.c_library import c_function

    prctl = c_function("prctl")
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(EXIT_ORPHANED)


class NodeProcess:
    """The parts of a node that is one of several processes, for `serve`."""

    def __init__(self, specification: Specification) -> None:
        self._specification = specification

    def parts(self, settings: Any) -> dict[str, Any]:
        """The arguments of `Node` beside its settings: the shared store, its part in the cluster and its sockets."""
        from fencepost.broker.cluster.leases.lease_store import LeaseStore
        from fencepost.broker.cluster.processes.process_member import ProcessMember
        from fencepost.broker.config.listeners import names_inter_broker_listener
        from fencepost.broker.hosting.membership import Cluster
        from fencepost.broker.metadata.sqlite import FILE_NAME
        from fencepost.broker.network.node_sockets import NodeSockets
        from fencepost.broker.network.server import SocketListener

        specification = self._specification
        store = LeaseStore(f"{specification.data_directory}/{FILE_NAME}")
        member = ProcessMember(specification.data_directory, settings.node_id, store)
        member.placement.settling_s = settings.fencepost_node_settling_ms / 1000

        def bind(listener: Any, settings: Any) -> SocketListener:
            inherited = socket.socket(fileno=os.dup(specification.sockets[listener.name]))
            return SocketListener(listener, settings, bound=inherited)

        sockets = None
        if not names_inter_broker_listener(settings):
            sockets = NodeSockets(specification.data_directory, settings.log_dirs)
        cluster = Cluster(member, member.make_logs)
        return {"store": store, "cluster": cluster, "bind": bind, "node_sockets": sockets}

    async def beat(self) -> None:
        """Send heartbeats of the event loop to the parent; end with it."""
        while True:
            self._write(HEARTBEAT)
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)

    def ready(self, node: Any) -> None:
        """Send the addresses to the parent."""
        description = {
            "listeners": [str(endpoint) for endpoint in node.addresses],
            "advertised_listeners": [str(endpoint) for endpoint in node.advertised_addresses],
            "cluster_id": node.cluster_id,
        }
        self._write(json.dumps(description).encode() + HEARTBEAT)

    def _write(self, content: bytes) -> None:
        try:
            os.write(self._specification.pipe, content)
        except BlockingIOError:
            pass  # the parent does not read now, and has enough to read
        except OSError:
            os._exit(EXIT_ORPHANED)


if __name__ == "__main__":
    main()
