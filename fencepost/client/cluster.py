"""A whole cluster as one user sees it: a connection per broker, and the way to a coordinator or a leader."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from fencepost.client.connection import Connection
from fencepost.client.errors import ClusterError, LogInNeededError, NoAnswerError, UnreachableError, check
from fencepost.client.session import ClientOptions
from fencepost.client.view import (
    ClusterView,
    CoordinatorKind,
    Node,
    coordinator_request,
    coordinators_of,
    metadata_request,
    view_of,
)
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.cluster import DescribeClusterRequest

DESCRIBE: Final = 8
"""Number of the operation, and of its bit among the permitted ones. Source: Kafka's AclOperation."""

LARGE_VIEW: Final = 2_000
"""Partitions in an answer from which on it is taken apart in a thread."""


class Cluster:
    """A client of a cluster, for one user. Connections are made when they are first needed."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], options: ClientOptions) -> None:
        self._bootstrap = bootstrap
        self._options = options
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}
        self._nodes: dict[int, Node] = {}
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def identity(self) -> Hashable:
        """Equal for clients of one cluster as one user, with the same credentials: they get the same answers."""
        return tuple(self._bootstrap), self._options.tls, self._options.credentials

    @property
    def user(self) -> str | None:
        """Who is logged in; None where nobody has to."""
        credentials = self._options.credentials
        return None if credentials is None else credentials.user

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self._bootstrap)

    def again(self) -> Cluster:
        """Another client of the cluster for the same user, with connections of its own."""
        return Cluster(self._bootstrap, self._options)

    def close(self) -> None:
        """Close the connections, for good."""
        self._is_closed = True
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def view(self, names: Iterable[str] | None = None) -> ClusterView:
        """The brokers and these topics, all of them for None. Raises ClusterError; LogInNeededError."""
        try:
            reply = await self.send(metadata_request(names))
        except UnreachableError:
            if self._options.credentials is None:
                mechanisms = await self._offered_mechanisms()
                if mechanisms:
                    raise LogInNeededError(mechanisms) from None
            raise
        is_small = sum(len(topic.partitions) for topic in reply.topics) < LARGE_VIEW
        view = view_of(reply) if is_small else await asyncio.to_thread(view_of, reply)
        self._nodes.update(view.nodes)
        return view

    async def send(self, request: Any, node_id: int | None = None, *, at_most: int | None = None) -> Any:
        """Send a request to a broker, to any for None, and return the reply. Raises ClusterError.

        at_most: the highest version to send it in; None for the highest that both sides have.
        """
        if node_id is None:
            return await (await self._any()).send(request, at_most)
        node = await self._node(node_id)
        connection = await self._connection(node.host, node.port)
        return await connection.send(request, at_most)

    async def send_to_controller(self, request: Any) -> Any:
        """Send a request to the controller, to any broker where none is known. Raises ClusterError."""
        view = await self.view(())
        return await self.send(request, view.controller if view.controller in view.nodes else None)

    async def send_within(self, request: Any, node_id: int, seconds: float) -> Any:
        """Send a request to a broker. Raises ClusterError; NoAnswerError if it takes longer."""
        try:
            async with asyncio.timeout(seconds):
                return await self.send(request, node_id)
        except TimeoutError:
            raise NoAnswerError(f"broker {node_id} gave no answer in {seconds:g} s") from None

    async def send_to_all(self, request: Any, seconds: float | None = None) -> dict[int, Any]:
        """Send a request to every broker; by node id the reply, or the ClusterError. seconds: for each; None for the
        time of a connection.
        """
        view = await self.view(())
        replies = await asyncio.gather(*(self._attempt(request, node_id, seconds) for node_id in view.nodes))
        return dict(zip(view.nodes, replies, strict=True))

    async def _attempt(self, request: Any, node_id: int, seconds: float | None) -> Any:
        try:
            if seconds is not None:
                return await self.send_within(request, node_id, seconds)
            return await self.send(request, node_id)
        except ClusterError as error:
            return error

    async def serves(self, key: ApiKey) -> bool:
        """Whether the cluster has an API at all."""
        return key in (await self._any()).apis

    async def may_describe_cluster(self) -> bool:
        """Whether this user has the right to describe the cluster. Raises ClusterError."""
        reply = await self.send(DescribeClusterRequest(include_cluster_authorized_operations=True))
        check(reply.error_code, reply.error_message)
        return bool(reply.cluster_authorized_operations >> DESCRIBE & 1)

    async def coordinator(self, kind: CoordinatorKind, key: str) -> int:
        """Node id of the coordinator of a group or a transactional id. Raises ClusterError."""
        found = coordinators_of(await (await self._any()).send(coordinator_request(kind, key)), [key])[key]
        self._nodes.setdefault(found.node_id, found)
        return found.node_id

    async def send_to_coordinator(self, kind: CoordinatorKind, key: str, request: Any) -> Any:
        """Send a request to the coordinator of a group or a transactional id. Raises ClusterError."""
        return await self.send(request, await self.coordinator(kind, key))

    async def _node(self, node_id: int) -> Node:
        if node_id not in self._nodes:
            await self.view(())
        if node_id not in self._nodes:
            raise UnreachableError(f"the cluster has no broker {node_id}" if node_id >= 0 else "there is no leader")
        return self._nodes[node_id]

    async def _any(self) -> Connection:
        opened = [connection for connection in self._connections.values() if not connection.is_closed]
        if opened:
            # Not one that many wait for: its broker may have stopped in the middle.
            return min(opened, key=lambda connection: connection.waiting)
        failure: ClusterError | None = None
        for host, port in self._bootstrap:
            try:
                return await self._connection(host, port)
            except UnreachableError as error:
                failure = error
        raise failure or UnreachableError("no broker is known")

    async def _connection(self, host: str, port: int) -> Connection:
        address = host, port
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if self._is_closed:
                raise UnreachableError("this client was closed")
            if connection is None or connection.is_closed:
                if connection is not None:
                    connection.close()
                connection = await Connection.open(host, port, self._options)
                if self.is_closed:  # meanwhile
                    connection.close()
                    raise UnreachableError("this client was closed")
                self._connections[address] = connection
            return connection

    async def _offered_mechanisms(self) -> tuple[str, ...]:
        for host, port in self._bootstrap:
            try:
                connection = await Connection.open(host, port, replace(self._options, credentials=None))
            except ClusterError:
                continue
            return await connection.offered_mechanisms()
        return ()
