"""A port for a server that is started again on it."""

from __future__ import annotations

import secrets
import socket

HOST = "127.0.0.1"
FIRST_PORT, END_PORT = 20_000, 32_768
"""Below the ports that Linux gives to outgoing connections: one of them could take it while the server is down."""
ATTEMPTS_COUNT = 100


def free_port() -> int:
    """A TCP port on the loopback address that nobody uses now. Raises OSError when none is found."""
    for _ in range(ATTEMPTS_COUNT):
        # Not `random`: tests that run side by side seed it alike.
        port = FIRST_PORT + secrets.randbelow(END_PORT - FIRST_PORT)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        return port
    raise OSError(f"no free port between {FIRST_PORT} and {END_PORT}")
