"""Rate of connections that each listener accepts, per second."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.network.server import Server


class CreationRates:
    """Rates of the last whole minute; `turn` is called each minute."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._counts = [server.accepted_count for server in servers]
        self._rates = [0.0] * len(servers)

    def turn(self) -> None:
        counts = [server.accepted_count for server in self._servers]
        self._rates = [(now - before) / 60 for now, before in zip(counts, self._counts, strict=True)]
        self._counts = counts

    def per_s(self, index: int) -> float:
        """The rate of a listener."""
        return self._rates[index]
