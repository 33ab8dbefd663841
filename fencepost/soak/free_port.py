"""Free ports for servers that are restarted on them."""

from __future__ import annotations

import atexit
import itertools
import os
import socket

HOST = "127.0.0.1"
FIRST_PORT, END_PORT = 20_000, 32_768
"""Below the ports of outgoing connections on Linux: one of them could take the port while the server is down."""
PORTS_PER_RANGE = 128
"""Each process has ranges of ports of its own, so that no other takes a port whose server is down. It holds the first
port of each, by which other processes see that the range is taken."""
MOST_RANGES = 16
"""Of one process, which takes the next one when all ports of the others had their turn. A client that a process has
left behind goes on to connect to the port of a server that is gone, and would create topics on the next one there."""

_turn = itertools.count()
_held: dict[int, list[socket.socket]] = {}
"""The sockets on the first ports of this process's ranges, by the process's id: a forked process takes others."""


def free_port() -> int:
    """Find a free TCP port on the loopback address. Raises OSError if there is none."""
    for _ in range(MOST_RANGES * PORTS_PER_RANGE):
        turn, place = divmod(next(_turn), PORTS_PER_RANGE - 1)
        port = _first_port(turn) + 1 + place
        if _is_free(port):
            return port
    raise OSError(f"no free port in the ranges of this process between {FIRST_PORT} and {END_PORT}")


@atexit.register
def _release() -> None:
    """Python would warn of sockets that are open at the end of the process."""
    for first in itertools.chain(*_held.values()):
        first.close()


def _first_port(turn: int) -> int:
    """The first port of the range whose turn it is."""
    held = _held.setdefault(os.getpid(), [])
    if not held or (len(held) <= turn and len(held) < MOST_RANGES):
        taken = _take_range()
        if taken is not None:
            held.append(taken)
        elif not held:
            raise OSError(f"no free range of {PORTS_PER_RANGE} ports between {FIRST_PORT} and {END_PORT}")
    return int(held[turn % len(held)].getsockname()[1])


def _take_range() -> socket.socket | None:
    range_count = (END_PORT - FIRST_PORT) // PORTS_PER_RANGE
    for number in range(range_count):
        first = socket.socket()
        try:
            first.bind((HOST, FIRST_PORT + (os.getpid() + number) % range_count * PORTS_PER_RANGE))
        except OSError:
            first.close()
            continue
        return first
    return None


def free_ports(count: int) -> int:
    """Find free ports that follow each other; return the first. Raises OSError if there are none."""
    for _ in range(PORTS_PER_RANGE):
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
