"""A client on its own host: it sends one message of the protocol and gets the response, as bytes on both ways."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fencepost.broker.hosting.peers import PeerConnection, PeerUnreachable
from fencepost.broker.hosting.placement import NodeAddress

if TYPE_CHECKING:
    from tests.simulation.world import World

TIMEOUT_S = 30.0


class Disconnected(Exception):  # noqa: N818  # what happens to clients, not an error of theirs
    """No answer: the connection was refused or broke, or time is up. Whether the broker acted is not known."""


class SimulatedClient:
    """One client with at most one connection to each node and channel; one that broke is opened anew on the next use.

    What is sent on one channel leaves in the order in which it was sent.
    """

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._connect = world.network.connector(name)
        self._connections: dict[tuple[int, str], PeerConnection] = {}
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}

    async def connect(self, address: NodeAddress, channel: str = "") -> PeerConnection:
        """The open connection to a node. Raises Disconnected."""
        key = address.node_id, channel
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.is_open:
                return connection
            loop = asyncio.get_running_loop()
            try:
                _, protocol = await self._connect(lambda: PeerConnection(self.name, loop), address.host, address.port)
            except OSError as error:
                raise Disconnected(str(error)) from None
            assert isinstance(protocol, PeerConnection)
            self._connections[key] = protocol
            return protocol

    async def send(
        self, address: NodeAddress, message: Any, version: int, *, channel: str = "", timeout_s: float = TIMEOUT_S
    ) -> Any:
        """Send a request and return the response. Raises Disconnected; the connection is closed then."""
        connection = await self.connect(address, channel)
        exchange = self._world.trace.sent(self.name, address.node_id, message, version)
        try:
            async with asyncio.timeout(timeout_s):
                response = await connection.send(message, version)
        except (PeerUnreachable, TimeoutError) as error:
            connection.abort("given up")
            raise Disconnected(str(error) or "no answer in time") from None
        exchange.answered(response, asyncio.get_running_loop().time())
        return response

    def close(self) -> None:
        for connection in self._connections.values():
            connection.abort("closed")
        self._connections.clear()
