"""The console's own client: connections that the broker closes, answers that are none, and failures of the console."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection
from fencepost.client.errors import ClusterError, NotServedError, UnreachableError
from fencepost.client.session import ClientOptions
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import response_frame
from fencepost.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from fencepost.protocol.messages.producers import DescribeProducersRequest

SERVED = [ApiVersion(ApiKey.METADATA, 0, 12), ApiVersion(ApiKey.API_VERSIONS, 0, 3)]
Answer = Callable[[int, int], list[Any]]


class FakeBroker:
    """Answers ApiVersions and Metadata. closes_after: requests on one connection, after which it closes."""

    def __init__(self, closes_after: int = 10**9) -> None:
        self.connections = 0
        self.port = 0
        self._closes_after = closes_after

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            for _ in range(self._closes_after):
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
                number = int.from_bytes(frame[4:8], "big")
                reply: Any = ApiVersionsResponse(api_keys=SERVED)
                if key == ApiKey.METADATA:
                    reply = MetadataResponse(
                        brokers=[MetadataResponseBroker(1, "127.0.0.1", self.port)], cluster_id="c"
                    )
                writer.writelines(response_frame(number, reply, version))
                await writer.drain()
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def listening(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> AsyncIterator[int]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_connection_that_the_broker_has_closed_meanwhile_is_made_anew() -> None:
    """As brokers do with idle ones: nobody is shown an error for it."""
    broker = FakeBroker(closes_after=2)
    async with listening(broker.serve) as broker.port:
        cluster = Cluster([("127.0.0.1", broker.port)], ClientOptions())
        for expected in (1, 2, 3):
            assert (await cluster.view()).cluster_id == "c"
            assert broker.connections == expected
            (connection,) = cluster._connections.values()
            async with asyncio.timeout(60):
                await connection._reader.read()  # its end
            assert connection.is_closed
        cluster.close()


async def test_an_api_that_the_cluster_does_not_have_is_named() -> None:
    broker = FakeBroker()
    async with listening(broker.serve) as broker.port:
        connection = await Connection.open("127.0.0.1", broker.port, ClientOptions())
        with pytest.raises(NotServedError, match="this cluster does not serve DescribeProducers"):
            await connection.send(DescribeProducersRequest())
        connection.close()


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x04\0\0\0\x09", b""])
async def test_what_is_no_broker_is_refused_in_words(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with listening(serve) as port:
        with pytest.raises(ClusterError, match=re.escape(f"127.0.0.1:{port}")):
            await Connection.open("127.0.0.1", port, ClientOptions())


async def test_nobody_at_the_address_is_said_so() -> None:
    with pytest.raises(UnreachableError, match=r"no broker answers at 127\.0\.0\.1:1"):
        await Cluster([("127.0.0.1", 1)], ClientOptions()).view()
