"""The ports of brokers in a container, which its user publishes under the same numbers."""

from __future__ import annotations

import re
import threading
from typing import Final, Self

LOWEST: Final = 1024
HIGHEST: Final = 65_535
ADVERTISED: Final = "localhost"
"""The host for clients of a container's brokers, on which its ports are published."""


class NoFreePortError(Exception):
    """Each port has a broker."""


class Ports:
    """Ports from `first` to `last`, both included. Threads may share one."""

    def __init__(self, first: int, last: int) -> None:
        self._lock = threading.Lock()
        self._count = last - first + 1
        self._free = list(range(first, last + 1))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the ports of `FIRST-LAST`. Raises ValueError."""
        found = re.fullmatch(r"(\d{1,5})-(\d{1,5})", text, re.ASCII)
        first, last = (int(found[1]), int(found[2])) if found else (0, 0)
        if not LOWEST <= first <= last <= HIGHEST:
            raise ValueError(
                f"{text!r} is no range of ports: give FIRST-LAST from {LOWEST} to {HIGHEST}, such as 29092-29111"
            )
        return cls(first, last)

    def take(self) -> int:
        """Return a port that is free, the one that has been free for longest. Raises NoFreePortError."""
        with self._lock:
            if not self._free:
                raise NoFreePortError(
                    f"each of the {self._count} published ports has a broker: close those of tests that have ended, or "
                    "publish more and name them with --published-ports"
                )
            return self._free.pop(0)

    def give_back(self, port: int) -> None:
        """Make a port free after its broker was closed."""
        with self._lock:
            self._free.append(port)


def listener(port: int) -> str:
    """The listener of a broker in a container."""
    return f"PLAINTEXT://0.0.0.0:{port}"


def address(port: int) -> str:
    """`host:port` for clients of a broker in a container."""
    return f"{ADVERTISED}:{port}"
