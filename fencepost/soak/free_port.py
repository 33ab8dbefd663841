"""Free ports for servers that are restarted on them."""

from __future__ import annotations

import itertools
import os
import socket

HOST = "127.0.0.1"
FIRST_PORT, END_PORT = 20_000, 32_768
"""Below the ports of outgoing connections on Linux: one of them could take the port while the server is down."""
PORTS_PER_PROCESS = 128
"""Each process searches its own range of ports, in turn, so that no other takes a port whose server is down."""

_turn = itertools.count()


def free_port() -> int:
    """Find a free TCP port on the loopback address. Raises OSError if there is none."""
    process_count = (END_PORT - FIRST_PORT) // PORTS_PER_PROCESS
    first_port = FIRST_PORT + os.getpid() % process_count * PORTS_PER_PROCESS
    for _ in range(PORTS_PER_PROCESS):
        port = first_port + next(_turn) % PORTS_PER_PROCESS
        if _is_free(port):
            return port
    raise OSError(f"no free port between {first_port} and {first_port + PORTS_PER_PROCESS}")


def free_ports(count: int) -> int:
    """Find free ports that follow each other; return the first. Raises OSError if there are none."""
    for _ in range(PORTS_PER_PROCESS):
        first_port = free_port()
        if all(_is_free(port) for port in range(first_port + 1, first_port + count)):
            for _ in range(count - 1):
                next(_turn)
            return first_port
    raise OSError(f"no {count} free ports that follow each other")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True
