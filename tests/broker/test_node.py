"""A whole node in the test's own process: start, serve on sockets, stop, start again; and the bounds of its server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Settings
from fencepost.broker.network.server import StartError, _encoded
from fencepost.broker.node import Node
from fencepost.broker.quotas.entities import QuotaKey, entity_of
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.local_disk import LocalDisk
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.headers import encode_request_header, request_header_version, response_header_version
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fencepost.protocol.messages.group_membership import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fencepost.protocol.schema import decode, encode
from tests.broker.supervision.planting import until
from tests.support.captured_events import capture_logs
from tests.support.held_resources import held
from tests.support.secured_broker import STANDARD_AUTHORIZER


def settings_for(directory: Path, **chosen: Any) -> Settings:
    defaults: dict[str, Any] = {
        "log_dirs": str(directory),
        "listeners": ("PLAINTEXT://127.0.0.1:0",),
        "transaction_state_log_num_partitions": 2,
        "offsets_topic_num_partitions": 2,
        "fencepost_shutdown_drain_ms": 500,
    }
    return Settings(**(defaults | chosen))


@asynccontextmanager
async def running(directory: Path, **chosen: Any) -> AsyncIterator[Node]:
    node = Node(settings_for(directory, **chosen))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


class Client:
    """One connection that sends request objects."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, request: Any, version: int, *, correlation_id: int = 1) -> None:
        header = encode_request_header(
            request.api_key, version, correlation_id, "test", request_header_version(request.api_key, version)
        )
        body = header + encode(request, version)
        self.writer.write(struct.pack(">i", len(body)) + body)

    async def receive(self) -> bytes:
        (length,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(length)

    async def call(self, request: Any, response_type: type[Any], version: int) -> Any:
        self.send(request, version)
        header_bytes = 4 + response_header_version(request.api_key, version)
        return decode(response_type, await self.receive(), version, header_bytes)

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read(1) == b""
        except ConnectionResetError:
            return True


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(node.address.host, node.address.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_a_node_answers_api_versions_and_metadata(tmp_path: Path) -> None:
    async with running(tmp_path, node_id=7) as node, connected(node) as client:
        versions = await client.call(ApiVersionsRequest("test", "1.0"), ApiVersionsResponse, 4)
        assert versions.error_code == ErrorCode.NONE
        ranges = {key.api_key: (key.min_version, key.max_version) for key in versions.api_keys}
        assert ranges[0][0] == 0, "librdkafka switches compression off when Produce does not begin at 0"
        assert ranges[24] == (0, 3), "higher versions are for brokers only"
        assert {f.name: f.max_version_level for f in versions.finalized_features} == {
            "group.version": 1,
            "metadata.version": 33,
            "share.version": 2,
            "streams.version": 1,
            "transaction.version": 2,
        }
        metadata = await client.call(MetadataRequest(topics=[]), MetadataResponse, 12)
        assert [(broker.node_id, broker.host, broker.port) for broker in metadata.brokers] == [
            (7, "127.0.0.1", node.address.port)
        ]
        assert metadata.cluster_id == node.cluster_id
        assert metadata.controller_id == 7


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        (0, []),
        (2, []),
        (3, ["metadata.version"]),
        (4, ["group.version", "metadata.version", "share.version", "streams.version", "transaction.version"]),
    ],
)
async def test_features_that_start_at_0_are_shown_from_api_versions_4_on(
    tmp_path: Path, version: int, supported: list[str]
) -> None:
    async with running(tmp_path) as node, connected(node) as client:
        response = await client.call(ApiVersionsRequest("test", "1.0"), ApiVersionsResponse, version)
        assert [feature.name for feature in response.supported_features] == supported
        assert response.finalized_features_epoch >= (0 if version >= 3 else -1)


@pytest.mark.parametrize("name", ["", "-x", "with blank", "x-"])
async def test_an_unusable_client_name_is_refused(tmp_path: Path, name: str) -> None:
    async with running(tmp_path) as node, connected(node) as client:
        response = await client.call(ApiVersionsRequest(name, "1.0"), ApiVersionsResponse, 3)
        assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_level_0_of_a_feature_is_not_shown(tmp_path: Path) -> None:
    async with running(tmp_path, fencepost_transaction_version=0) as node, connected(node) as client:
        response = await client.call(ApiVersionsRequest("test", "1.0"), ApiVersionsResponse, 4)
        shown = [feature.name for feature in response.finalized_features]
        assert shown == ["group.version", "metadata.version", "share.version", "streams.version"]


@pytest.mark.parametrize(
    ("version", "key_type"),
    [(version, key_type) for version in range(7) for key_type in (0, 1) if version or not key_type],  # 0: groups only
)
async def test_this_node_coordinates_every_group_and_transactional_id(
    tmp_path: Path, version: int, key_type: int
) -> None:
    async with running(tmp_path) as node, connected(node) as client:
        request = FindCoordinatorRequest(
            key="k", key_type=key_type, coordinator_keys=["k", "l"] if version >= 4 else []
        )
        response = await client.call(request, FindCoordinatorResponse, version)
        found = response.coordinators if version >= 4 else [response]
        assert len(found) == (2 if version >= 4 else 1)
        for coordinator in found:
            assert coordinator.error_code == ErrorCode.NONE
            assert (coordinator.node_id, coordinator.host, coordinator.port) == (1, "127.0.0.1", node.address.port)


@pytest.mark.parametrize(("key", "key_type"), [("k", 2), ("g:t:0", 2), ("k", 3), ("k", -1)])
async def test_there_is_no_coordinator_for_other_keys(tmp_path: Path, key: str, key_type: int) -> None:
    async with running(tmp_path) as node, connected(node) as client:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        response = await client.call(request, FindCoordinatorResponse, 6)
        (answer,) = response.coordinators
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert (answer.key, answer.node_id, answer.host, answer.port) == (key, -1, "", -1)
        assert not node.services.topics.metadata.all(), "no topic is made for what it could not coordinate"


async def test_this_node_coordinates_every_share_partition(tmp_path: Path) -> None:
    async with running(tmp_path) as node, connected(node) as client:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=["g:AAAAAAAAAAAAAAAAAAAAAA:0"])
        response = await client.call(request, FindCoordinatorResponse, 6)
        assert [(found.error_code, found.node_id) for found in response.coordinators] == [(ErrorCode.NONE, 1)]
        assert node.services.topics.metadata.get("__share_group_state") is not None


async def test_durable_state_survives_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        cluster_id = node.cluster_id
        await node.services.topics.create("orders", 3, {})
    async with running(tmp_path) as node:
        assert node.cluster_id == cluster_id
        topic = node.services.topics.metadata.get("orders")
        assert topic is not None
        assert topic.partition_count == 3


async def test_clients_are_sent_to_the_address_of_the_listener_they_came_in_by(tmp_path: Path) -> None:
    async with running(
        tmp_path,
        listeners=("INSIDE://127.0.0.1:0", "OUTSIDE://127.0.0.1:0"),
        advertised_listeners=("OUTSIDE://broker.example:19092",),
        listener_security_protocol_map=("INSIDE:PLAINTEXT", "OUTSIDE:PLAINTEXT"),
    ) as node:
        seen = []
        for server in node.servers.of_clients:
            address = server.bound.address
            reader, writer = await asyncio.open_connection(address.host, address.port)
            metadata = await Client(reader, writer).call(MetadataRequest(topics=[]), MetadataResponse, 9)
            seen.append((metadata.brokers[0].host, metadata.brokers[0].port))
            writer.close()
            await writer.wait_closed()
        assert seen == [("127.0.0.1", node.address.port), ("broker.example", 19092)]


async def test_a_port_in_use_is_said_in_one_line_before_the_data_is_touched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        node = Node(settings_for(tmp_path / "data", listeners=(f"PLAINTEXT://127.0.0.1:{port}",)))
        with pytest.raises(StartError, match=rf"127\.0\.0\.1:{port}: the port is in use"):
            await node.start()
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("listener", "part"),
    [
        ("PLAINTEXT://192.0.2.1:0", "not an address of this machine"),
        ("PLAINTEXT://no.such.host.invalid:0", "cannot be resolved"),
    ],
)
async def test_a_host_that_cannot_be_listened_on_is_said_in_one_line(tmp_path: Path, listener: str, part: str) -> None:
    with pytest.raises(StartError, match=part):
        await Node(settings_for(tmp_path, listeners=(listener,))).start()


async def test_a_data_directory_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StartError, match="cannot create the data directory"):
        await Node(settings_for(tmp_path / "file" / "data")).start()


async def test_a_data_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with running(tmp_path / "deep" / "data"):
        assert stat.S_IMODE((tmp_path / "deep" / "data").stat().st_mode) == 0o700


async def test_a_data_directory_that_others_may_read_is_closed_to_them_with_a_line_in_the_log(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    for mode in (0o755, 0o750):
        data.chmod(mode)
        with capture_logs() as events:
            async with running(data):
                assert stat.S_IMODE(data.stat().st_mode) == 0o700
        (event,) = (one for one in events if one["event"] == "data_directory_closed_to_others")
        assert (event["path"], event["mode_before"]) == (str(data), f"{mode:o}")


async def test_a_directory_with_files_of_others_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("")
    os.chmod(tmp_path, 0o755)
    async with running(tmp_path):
        assert stat.S_IMODE(os.stat(tmp_path).st_mode) == 0o755


@pytest.mark.parametrize(
    ("settings", "is_open"),
    [
        ({"listeners": ("PLAINTEXT://0.0.0.0:0",)}, True),
        ({"listeners": ("PLAINTEXT://127.0.0.1:0",)}, False),
        ({"listeners": ("PLAINTEXT://0.0.0.0:0",), "authorizer_class_name": STANDARD_AUTHORIZER}, False),
    ],
)
async def test_a_start_warns_of_a_listener_that_is_open_to_everybody(
    tmp_path: Path, settings: dict[str, Any], is_open: bool
) -> None:
    with capture_logs() as events:
        async with running(tmp_path, advertised_listeners=("PLAINTEXT://127.0.0.1:9092",), **settings):
            pass
    found = [one for one in events if one["event"] == "listeners_are_open_to_everybody"]
    assert [one["listeners"] for one in found] == ([["PLAINTEXT"]] if is_open else [])


async def test_a_second_broker_on_the_same_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        with pytest.raises(StorageError, match="in use by another broker"):
            await Node(settings_for(tmp_path)).start()
        async with connected(first) as client:
            assert (await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)).cluster_id == first.cluster_id


async def test_a_failed_start_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"damaged" * 1000)
    with pytest.raises(StorageError, match="is damaged"):
        await Node(settings_for(tmp_path)).start()
    (tmp_path / "metadata.sqlite").unlink()
    async with running(tmp_path):
        pass


async def test_starts_and_stops_leave_no_thread_descriptor_task_or_timer(tmp_path: Path) -> None:
    async def start_use_and_stop(number: int) -> None:
        async with running(tmp_path / "data") as node, connected(node) as client:
            await client.call(FindCoordinatorRequest(key="readers"), FindCoordinatorResponse, 2)
            await node.services.topics.create(f"orders-{number}", 2, {})
            with pytest.raises(StorageError, match="in use by another broker"):
                await Node(settings_for(tmp_path / "data")).start()
            taken = settings_for(tmp_path / "other", listeners=(f"PLAINTEXT://127.0.0.1:{node.address.port}",))
            with pytest.raises(StartError, match="the port is in use"):
                await Node(taken).start()

    await start_use_and_stop(0)  # what is imported or opened once for the process
    before, tasks = held(), asyncio.all_tasks()
    for number in range(1, 20):
        await start_use_and_stop(number)
    await asyncio.sleep(0)
    assert held().more_than(before) == []
    assert asyncio.all_tasks() == tasks


async def test_a_disk_that_was_given_is_left_open(tmp_path: Path) -> None:
    disk = LocalDisk()
    assert disk.lock(str(tmp_path / "lock"))
    node = Node(settings_for(tmp_path / "data"), disk=disk)
    (tmp_path / "data").mkdir()
    await node.start()
    await node.stop()
    assert not LocalDisk().lock(str(tmp_path / "lock"))
    disk.close()


async def test_stopping_twice_is_harmless(tmp_path: Path) -> None:
    node = Node(settings_for(tmp_path))
    await node.start()
    await node.stop()
    await node.stop()


async def test_a_stopping_node_answers_requests_in_flight(tmp_path: Path) -> None:
    node = Node(settings_for(tmp_path))
    await node.start()
    await node.services.topics.create("orders", 1, {})
    async with connected(node) as client:
        fetch = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
        )
        client.send(fetch, 4)
        (connection,) = node.servers.of_clients[0]._connections.values()
        await until(lambda: connection.in_flight_count == 1)
        await node.stop()
        assert len(await client.receive()) > 8
        assert await client.is_closed()


async def test_a_stopping_node_does_not_let_members_wait_for_a_rebalance(tmp_path: Path) -> None:
    node = Node(settings_for(tmp_path, fencepost_shutdown_drain_ms=60_000))
    await node.start()
    join = JoinGroupRequest(
        group_id="readers",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range")],
    )
    async with connected(node) as first, connected(node) as second:
        await first.call(FindCoordinatorRequest(key="readers"), FindCoordinatorResponse, 2)
        assert (await first.call(join, JoinGroupResponse, 3)).error_code == ErrorCode.NONE
        second.send(join, 3)  # waits until the first member has joined again
        await until(lambda: sum(c.in_flight_count for c in node.servers.of_clients[0]._connections.values()) == 1)
        async with asyncio.timeout(20):
            await node.stop()
        assert decode(JoinGroupResponse, await second.receive(), 3, 4).error_code == ErrorCode.NOT_COORDINATOR


async def test_a_stopping_node_does_not_wait_for_ever(tmp_path: Path) -> None:
    node = Node(settings_for(tmp_path, fencepost_shutdown_drain_ms=20))
    await node.start()
    await node.services.topics.create("orders", 1, {})
    async with connected(node) as client:
        fetch = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
        )
        client.send(fetch, 4)
        (connection,) = node.servers.of_clients[0]._connections.values()
        await until(lambda: connection.in_flight_count == 1)
        async with asyncio.timeout(20):
            await node.stop()
        assert await client.is_closed()


async def test_a_stopped_node_accepts_no_connections(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        address = node.address
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(address.host, address.port)


async def test_further_connections_than_allowed_are_closed(tmp_path: Path) -> None:
    async with running(tmp_path, max_connections=2) as node, connected(node) as one, connected(node) as two:
        for client in (one, two):
            await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        async with connected(node) as three:
            assert await three.is_closed()
        assert node.connection_count == 2
    async with running(tmp_path, max_connections_per_ip=1) as node, connected(node) as one:
        await one.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        async with connected(node) as two:
            assert await two.is_closed()


async def test_an_address_that_connects_too_often_is_closed_after_a_pause(tmp_path: Path) -> None:
    async with running(tmp_path, quota_window_num=2, quota_window_size_seconds=1) as node:
        address = entity_of([("ip", "127.0.0.1")])
        await node.services.client_quotas.change(address, {QuotaKey.CONNECTION_CREATION_RATE: 1.0})
        async with connected(node) as one, connected(node) as two:
            await one.call(MetadataRequest(topics=[]), MetadataResponse, 9)
            started_s = asyncio.get_running_loop().time()
            assert await two.is_closed()
            assert asyncio.get_running_loop().time() - started_s > 0.3
        async with connected(node) as gone:
            pass
        assert await gone.is_closed()


async def test_above_the_rate_of_the_broker_a_connection_waits_until_it_is_served(tmp_path: Path) -> None:
    limits = {"max_connection_creation_rate": 2, "quota_window_num": 1, "quota_window_size_seconds": 1}
    async with running(tmp_path, **limits) as node, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(node)) for _ in range(3)]
        started_s = asyncio.get_running_loop().time()
        for client in clients:
            await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)
        assert 0.3 < asyncio.get_running_loop().time() - started_s < 5


async def test_idle_connections_are_closed_but_not_those_that_wait(tmp_path: Path) -> None:
    async with running(tmp_path, connections_max_idle_ms=200) as node:
        await node.services.topics.create("orders", 1, {})
        fetch = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            topics=[FetchTopic(topic="orders", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])],
        )
        async with connected(node) as busy:
            busy.send(fetch, 4)
            async with connected(node) as idle:
                assert await idle.is_closed()
            assert len(await busy.receive()) > 8


async def test_what_a_client_sends_closes_its_own_connection_only(tmp_path: Path) -> None:
    async with running(tmp_path) as node, connected(node) as good:
        for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff", b"\x00\x00\x00\x08" + b"\x7f" * 8):
            async with connected(node) as bad:
                bad.writer.write(nonsense)
                assert await bad.is_closed()
        metadata = await good.call(
            MetadataRequest(topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True),
            MetadataResponse,
            9,
        )
        assert metadata.topics[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("host", "encoded"),
    [
        ("127.0.0.1", b"127.0.0.1"),
        ("::1", b"::1"),
        ("broker-1.example", b"broker-1.example"),
        ("brøker.example", "brøker.example"),
        ("two..dots", "two..dots"),
        ("x" * 64, "x" * 64),
        ("", ""),
    ],
)
def test_a_host_is_encoded_only_where_idna_would_not_change_it(host: str, encoded: str | bytes) -> None:
    assert _encoded(host) == encoded
    if isinstance(encoded, bytes):
        assert host.encode("idna") == encoded
