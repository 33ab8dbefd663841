"""Unix sockets on which the processes of one broker connect to each other: in their directories, which the operating
system keeps for their owner.

A user who can connect can read the records' files, so a connection needs no log-in: its requests are those of a node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, Final

from fencepost.broker.config import Endpoint, Listener
from fencepost.broker.config.listeners import SecurityProtocol
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.server import Acceptor, Server
from fencepost.broker.security.principal import NODE

LISTENER_NAME: Final = "node-socket"
"""Names of configured listeners have no small letters."""
FILE_NAME: Final = "node.socket"
OWNER_ONLY: Final = 0o600
LONGEST_PATH_BYTES: Final = 100
"""The kernel takes 107 at most, on other systems 103."""


class NodeSockets:
    """The socket of one node, and the connections to the sockets of the others.

    data_directory: the whole broker's; the addresses are relative to it. node_directory: this node's.
    """

    def __init__(self, data_directory: str, node_directory: str) -> None:
        self._data_directory = data_directory
        self.bound = BoundNodeSocket(node_directory, os.path.relpath(node_directory, data_directory))

    async def connect(
        self, new_protocol: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        """Connect to another node. host: the path of its socket, as it advertises it. Raises OSError."""
        directory, name = os.path.split(os.path.join(self._data_directory, host))
        with short_path(directory, name) as path:
            return await asyncio.get_running_loop().create_unix_connection(new_protocol, path)


class BoundNodeSocket:
    """The socket of a node, for `Server`. It is bound when the node accepts connections, and so has its directory."""

    def __init__(self, node_directory: str, relative: str) -> None:
        self.listener = Listener(LISTENER_NAME, os.path.join(relative, FILE_NAME), 0, None, SecurityProtocol.PLAINTEXT)
        self._directory = node_directory

    @property
    def address(self) -> Endpoint:
        return Endpoint(LISTENER_NAME, self.listener.host, 0)

    @property
    def advertised(self) -> Endpoint:
        return self.address

    async def accept(self, new_connection: Callable[[], asyncio.BufferedProtocol], *, backlog: int) -> Acceptor:
        """Raises OSError."""
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._remove()  # of the process before this one
            with short_path(self._directory, FILE_NAME) as path:
                bound.bind(path)
                os.chmod(path, OWNER_ONLY)  # nobody can connect before it listens
            bound.setblocking(False)
            # The loops' own protocols are buffered ones, too; their types say less.
            factory: Any = new_connection
            return await asyncio.get_running_loop().create_unix_server(factory, sock=bound, backlog=backlog)
        except BaseException:
            bound.close()
            raise

    def close(self) -> None:
        self._remove()

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._directory, FILE_NAME))


@contextlib.contextmanager
def short_path(directory: str, name: str) -> Iterator[str]:
    """A path to a file that the address of a Unix socket has room for, valid within the context. Raises OSError."""
    path = os.path.join(directory, name)
    if len(os.fsencode(path)) <= LONGEST_PATH_BYTES:
        yield path
        return
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


class NodeServer(Server):
    """The server of a node's socket. Its connections are not limited as those of clients are."""

    def _new_connection(self) -> Connection:
        connection = super()._new_connection()
        connection.principal = NODE
        return connection

    def _admit(self, connection: Connection) -> bool:
        return True

    def _left(self, connection: Connection) -> None:
        pass
