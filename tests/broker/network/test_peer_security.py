"""A node as a client of another node's protected listener."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Settings, parse_listeners
from fencepost.broker.config.password import Password
from fencepost.broker.hosting.peers import PeerUnreachable, TcpPeers
from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.network.peer_security import peer_security
from fencepost.broker.network.server import StartError
from fencepost.broker.node import Node
from fencepost.broker.security.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from fencepost.protocol.messages.cluster import DescribeClusterRequest
from tests.broker.network.test_sasl_listener import add_scram_user
from tests.broker.supervision.planting import until
from tests.support.certificates import Authority

NODE_ID, TIMEOUT_S = 2, 10.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def settings(directory: Path, authority: Authority, protocol: str, mechanism: str = "PLAIN", **chosen: Any) -> Settings:
    """Those of both nodes: each shows its certificate, and knows the other by it or by name and password."""
    module = PLAIN_MODULE if mechanism == "PLAIN" else SCRAM_MODULE
    defaults: dict[str, Any] = {
        "node_id": NODE_ID,
        "log_dirs": str(directory / "data"),
        "listeners": (f"{protocol}://127.0.0.1:0",),
        "fencepost_shutdown_drain_ms": 200,
        "connection_failed_authentication_delay_ms": 1,
    }
    if protocol.endswith("SSL"):
        files = authority.server("node")
        defaults |= {
            "ssl_keystore_location": str(files.both),
            "ssl_truststore_location": str(authority.path),
            "ssl_client_auth": "requested",
        }
    if protocol.startswith("SASL"):
        defaults |= {
            "sasl_enabled_mechanisms": (mechanism,),
            "sasl_mechanism_inter_broker_protocol": mechanism,
            "sasl_jaas_config": Password(
                f'{module} required username="broker" password="of the broker" user_broker="of the broker";'
            ),
        }
    return Settings(**(defaults | chosen))


@asynccontextmanager
async def nodes(there: Settings, here: Settings | None = None) -> AsyncIterator[tuple[Node, TcpPeers]]:
    """A node, and the channel of another one to it."""
    node = Node(there)
    await node.start()
    if there.sasl_mechanism_inter_broker_protocol.startswith("SCRAM"):
        await add_scram_user(node, "broker", "of the broker", "SCRAM-SHA-256")
    address = NodeAddress(NODE_ID, node.address.host, node.address.port)
    here = there if here is None else here
    connect, log_in = peer_security(here, parse_listeners(here)[0])
    peers = TcpPeers(1, lambda node_id: address, connect=connect, log_in=log_in)
    try:
        yield node, peers
    finally:
        await peers.close()
        await node.stop()


async def ask(peers: TcpPeers) -> str:
    response = await peers.request(NODE_ID, DescribeClusterRequest(), 0, TIMEOUT_S)
    return str(response.cluster_id)


def principals(node: Node) -> list[str]:
    return [connection.principal for connection in node.servers.of_clients[0]._connections.values()]


@pytest.mark.parametrize(
    ("protocol", "mechanism", "principal"),
    [
        ("SSL", "", "CN=node"),
        ("SASL_PLAINTEXT", "PLAIN", "User:broker"),
        ("SASL_SSL", "PLAIN", "User:broker"),
        ("SASL_SSL", "SCRAM-SHA-256", "User:broker"),
    ],
)
async def test_a_node_is_known_to_another_by_its_certificate_or_its_password(
    tmp_path: Path, authority: Authority, protocol: str, mechanism: str, principal: str
) -> None:
    async with nodes(settings(tmp_path, authority, protocol, mechanism)) as (node, peers):
        assert await asyncio.gather(*(ask(peers) for _ in range(3))) == [node.cluster_id] * 3
        (known,) = principals(node)
        assert principal in known


async def test_a_node_that_is_refused_says_why(tmp_path: Path, authority: Authority) -> None:
    there = settings(tmp_path, authority, "SASL_SSL")
    wrong = Password(f'{PLAIN_MODULE} required username="broker" password="wrong";')
    strangers = Authority(tmp_path / "strangers", "strangers")
    for chosen, part in (
        ({"sasl_jaas_config": wrong}, "it refuses the log-in as broker: Authentication failed"),
        ({"sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-512"}, "it does not offer SCRAM-SHA-512, but PLAIN"),
        ({"ssl_truststore_location": str(strangers.path)}, "cannot be connected to"),
    ):
        here = settings(tmp_path, authority, "SASL_SSL", **chosen)
        async with nodes(there, here) as (node, peers):
            with pytest.raises(PeerUnreachable, match=part):
                await ask(peers)
            await until(lambda: not node.connection_count)  # used in this turn


async def test_a_refused_log_in_is_repeated_after_a_pause_and_succeeds_when_the_password_is_right(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.hosting.peers.FIRST_PAUSE_S", 0.2)
    given = Password(f'{SCRAM_MODULE} required username="broker" password="another";')
    there = settings(tmp_path, authority, "SASL_PLAINTEXT", "SCRAM-SHA-256")
    here = settings(tmp_path, authority, "SASL_PLAINTEXT", "SCRAM-SHA-256", sasl_jaas_config=given)
    async with nodes(there, here) as (node, peers):
        for _ in range(20):
            with pytest.raises(PeerUnreachable, match="it refuses the log-in as broker"):
                await ask(peers)
        assert node.servers.of_clients[0].accepted_count == 1
        await add_scram_user(node, "broker", "another", "SCRAM-SHA-256")
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                try:
                    assert await ask(peers) == node.cluster_id
                    break
                except PeerUnreachable:
                    await asyncio.sleep(0.02)
        assert node.servers.of_clients[0].accepted_count == 2


async def test_a_session_that_ends_is_followed_by_another_before(tmp_path: Path, authority: Authority) -> None:
    async with nodes(settings(tmp_path, authority, "SASL_PLAINTEXT", connections_max_reauth_ms=1_000)) as (node, peers):
        server = node.servers.of_clients[0]
        first = (await ask(peers), set(server._connections))
        loop = asyncio.get_running_loop()
        end_s = loop.time() + 2.5
        while loop.time() < end_s:
            assert await ask(peers) == first[0]
            await asyncio.sleep(0.02)
        await until(lambda: len(server._connections) == 1)
        assert set(server._connections) != first[1]


def test_a_node_without_what_the_others_ask_for_does_not_start(tmp_path: Path, authority: Authority) -> None:
    for chosen, part in (
        ({"sasl_mechanism_inter_broker_protocol": ""}, "set sasl.mechanism.inter.broker.protocol"),
        ({"sasl_jaas_config": None}, "it has to hold username and password of this broker"),
        (
            {"sasl_jaas_config": Password(f'{PLAIN_MODULE} required user_a="secret words";')},
            "username and password are missing",
        ),
        ({"sasl_jaas_config": Password("secret words")}, "listener.name.sasl_ssl.plain.sasl.jaas.config: "),
        ({"ssl_truststore_location": str(tmp_path / "none")}, "none cannot be read"),
    ):
        here = settings(tmp_path, authority, "SASL_SSL", **chosen)
        with pytest.raises(StartError, match=part) as caught:
            peer_security(here, parse_listeners(here)[0])
        assert "secret words" not in str(caught.value)
