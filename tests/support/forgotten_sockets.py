"""Sockets that kafka-python forgets are closed without a warning, whichever test runs when they are collected.

kafka-python leaves a socket to the garbage collector if a client is closed while it connects. Python warns in whatever
code is running then, so that a filter of warnings by module, as those in pyproject.toml, does not see kafka-python.
"""

from __future__ import annotations

import socket
import sys
from typing import Any


class ForgettableSocket(socket.socket):
    """Closes itself when it is collected."""

    def __del__(self) -> None:
        self.close()


def _made(_: Any, family: int = -1, kind: int = -1, protocol: int = -1) -> ForgettableSocket:
    return ForgettableSocket(family, kind, protocol)


def let_kafka_python_forget() -> None:
    """Have kafka-python make such sockets, if it is imported."""
    module: Any = sys.modules.get("kafka.net.inet")
    if module is not None:
        module.KafkaNetSocket.socket = _made
