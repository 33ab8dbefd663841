"""Unix sockets between the processes of one broker."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.cluster.leases.lease_store import LeaseStore
from fencepost.broker.cluster.processes.process_member import ProcessMember
from fencepost.broker.config import Settings
from fencepost.broker.hosting.membership import Cluster
from fencepost.broker.hosting.peers import PeerUnreachable, TcpPeers
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.metadata.shared_sqlite import prepare_shared
from fencepost.broker.metadata.sqlite import FILE_NAME as METADATA_FILE
from fencepost.broker.network.node_sockets import FILE_NAME, LISTENER_NAME, LONGEST_PATH_BYTES, NodeSockets
from fencepost.broker.node import Node
from fencepost.broker.security.principal import NODE
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import DescribeClusterRequest
from fencepost.protocol.messages.share_state import (
    ReadShareGroupStateSummaryRequest,
    ReadShareStatePartition,
    ReadShareStateTopic,
)

NODE_ID, TIMEOUT_S = 2, 10.0


class Member(ProcessMember):
    """The membership of a process. joined: the endpoints that it has told."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.joined: dict[str, tuple[str, int]] = {}
        self.between_nodes = ""

    async def join(self, endpoints: Any, *, between_nodes: str, is_drained: Callable[[], bool]) -> None:
        self.joined, self.between_nodes = dict(endpoints), between_nodes
        await super().join(endpoints, between_nodes=between_nodes, is_drained=is_drained)


@asynccontextmanager
async def node_with_socket(data: Path, **chosen: Any) -> AsyncIterator[tuple[Node, Member, TcpPeers]]:
    """A node of a broker in `data`, and the channel of another process to it."""
    await prepare_shared(str(data / METADATA_FILE))
    directory = data / f"node.{NODE_ID}"
    settings = Settings(
        **{"node_id": NODE_ID, "log_dirs": str(directory), "listeners": ("PLAINTEXT://127.0.0.1:0",), **chosen}
    )
    store = LeaseStore(str(data / METADATA_FILE))
    membership = Member(str(data), NODE_ID, store)
    sockets = NodeSockets(str(data), str(directory))
    node = Node(settings, store=store, cluster=Cluster(membership, membership.make_logs), node_sockets=sockets)
    await node.start()
    others = NodeSockets(str(data), str(data / "node.1"))
    path, port = membership.joined[membership.between_nodes]
    peers = TcpPeers(1, lambda _: NodeAddress(NODE_ID, path, port), connect=others.connect)
    try:
        yield node, membership, peers
    finally:
        await peers.close()
        await node.stop()


async def ask(peers: TcpPeers) -> str:
    return str((await peers.request(NODE_ID, DescribeClusterRequest(), 0, TIMEOUT_S)).cluster_id)


async def test_another_process_reaches_a_node_through_a_file_of_its_owner(tmp_path: Path) -> None:
    async with node_with_socket(tmp_path) as (node, membership, peers):
        assert membership.between_nodes == LISTENER_NAME
        assert membership.joined[LISTENER_NAME][0] == f"node.{NODE_ID}/{FILE_NAME}"
        assert await asyncio.gather(*(ask(peers) for _ in range(3))) == [node.cluster_id] * 3
        address = membership.placement.address(NODE_ID)
        assert address is not None
        assert [name for name, _, _ in address.listeners] == ["PLAINTEXT"]
        path = tmp_path / f"node.{NODE_ID}" / FILE_NAME
        mode = path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert [endpoint.name for endpoint in node.addresses] == ["PLAINTEXT"]
    assert not path.exists()
    with pytest.raises(PeerUnreachable):
        await ask(peers)


async def test_a_directory_may_have_a_long_name(tmp_path: Path) -> None:
    data = tmp_path / ("d" * (LONGEST_PATH_BYTES + 20))
    data.mkdir()
    async with node_with_socket(data) as (node, _, peers):
        assert await ask(peers) == node.cluster_id


async def test_what_a_killed_process_has_left_is_no_hindrance(tmp_path: Path) -> None:
    directory = tmp_path / f"node.{NODE_ID}"
    directory.mkdir(mode=0o700)
    (directory / FILE_NAME).touch()
    async with node_with_socket(tmp_path) as (node, _, peers):
        assert await ask(peers) == node.cluster_id


async def test_another_process_has_the_rights_of_a_node_where_clients_have_none(tmp_path: Path) -> None:
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    request = ReadShareGroupStateSummaryRequest("g", [ReadShareStateTopic(b"t" * 16, [ReadShareStatePartition(0, 0)])])

    async def error_for(peers: TcpPeers) -> ErrorCode:
        response = await peers.request(NODE_ID, request, 0, TIMEOUT_S)
        return ErrorCode(response.results[0].partitions[0].error_code)

    async with node_with_socket(tmp_path, authorizer_class_name=authorizer) as (node, _, peers):
        client = TcpPeers(3, lambda _: NodeAddress(NODE_ID, node.address.host, node.address.port))
        assert await error_for(client) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await error_for(peers) is ErrorCode.NOT_COORDINATOR
        assert node.servers.of_nodes is not None
        assert {connection.principal for connection in node.servers.of_nodes.connections} == {NODE}
        await client.close()


async def test_the_socket_of_a_node_that_fails_is_closed(tmp_path: Path) -> None:
    async with node_with_socket(tmp_path) as (node, _, peers):
        assert await ask(peers) == node.cluster_id
        node._fail("for the test")
        with pytest.raises(PeerUnreachable):
            await ask(peers)
        assert not (tmp_path / f"node.{NODE_ID}" / FILE_NAME).exists()
