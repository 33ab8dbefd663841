"""Free ports for servers that are restarted on them."""

from __future__ import annotations

import itertools
import os
import socket

HOST = "127.0.0.1"
FIRST_PORT, END_PORT = 20_000, 32_768
"""Below the ports of outgoing connections on Linux: one of them could take the port while the server is down."""
PORTS_PER_PROCESS = 128
"""Each process has a range of ports of its own, so that no other takes a port whose server is down. It holds the first
one, by which other processes see that the range is taken."""

_turn = itertools.count()
_held: dict[int, socket.socket] = {}
"""The socket on the first port of this process's range, by the process's id: a forked process takes another."""


def free_port() -> int:
    """Find a free TCP port on the loopback address. Raises OSError if there is none."""
    first_port = _first_port()
    for _ in range(PORTS_PER_PROCESS - 1):
        port = first_port + 1 + next(_turn) % (PORTS_PER_PROCESS - 1)
        if _is_free(port):
            return port
    raise OSError(f"no free port between {first_port} and {first_port + PORTS_PER_PROCESS}")


def _first_port() -> int:
    process_id = os.getpid()
    if process_id not in _held:
        range_count = (END_PORT - FIRST_PORT) // PORTS_PER_PROCESS
        for number in range(range_count):
            held = socket.socket()
            try:
                held.bind((HOST, FIRST_PORT + (process_id + number) % range_count * PORTS_PER_PROCESS))
            except OSError:
                held.close()
                continue
            _held[process_id] = held
            break
        else:
            raise OSError(f"no free range of {PORTS_PER_PROCESS} ports between {FIRST_PORT} and {END_PORT}")
    return int(_held[process_id].getsockname()[1])


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
