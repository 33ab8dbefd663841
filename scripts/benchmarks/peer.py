"""Any other broker that is running already, as the subject of a measurement."""

from __future__ import annotations

import math
import socket
from collections.abc import Mapping
from pathlib import Path

import psutil

from scripts.benchmarks.broker_process import cpu_s, resident_memory
from scripts.benchmarks.figures import BrokerEndedError, ResidentMemory


class PeerSubject:
    """A broker at an address. Figures that start and kill brokers pass over it."""

    can_be_launched = False
    is_to_be_warmed = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.name = "{}:{}".format(*address)
        self._address = address

    def launch(self, data_directory: Path, settings: Mapping[str, str]) -> PeerBroker:
        """It runs already, with what it has: settings are for those that are started."""
        return PeerBroker(self._address)


class PeerBroker:
    """Is never stopped. Its processor time is known where its process is on this machine, else not a number."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._process_id = _listener(address)

    def require_running(self) -> None:
        raise BrokerEndedError("nothing listens at {}:{}".format(*self.address))

    def resident_bytes(self) -> int:
        return self.resident_memory().total_bytes

    def resident_memory(self) -> ResidentMemory:
        return ResidentMemory(0, 0) if self._process_id is None else resident_memory(self._process_id)

    def cpu_s(self) -> float:
        return math.nan if self._process_id is None else cpu_s(self._process_id)

    def pause(self) -> None:
        raise NotImplementedError("a peer is left alone")

    def resume(self) -> None:
        raise NotImplementedError("a peer is left alone")

    def kill(self) -> None:
        """Nothing: it goes on running."""

    def terminate(self) -> float:
        return 0.0

    def events(self, name: str) -> list[dict[str, object]]:
        return []


def _listener(address: tuple[str, int]) -> int | None:
    """The process on this machine that listens there, if there is one and it may be seen."""
    host, port = address
    if not socket.gethostbyname(host).startswith("127."):
        return None
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return int(connection.pid)
    return None
