"""The client of a producer id: the one that last opened a session with it, or wrote with it.

Learnt from requests that repeat no earlier one of their connection, so frequent requests cost nothing. In memory only:
clients from before the start of the broker are unknown.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Any, Final

from fencepost.broker.kernel.clock import Clock
from fencepost.broker.requests.api import ClientConnection, RequestContext
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.record_batch import CURRENT_MAGIC, HEADER_BYTES, read_header

MAXIMUM_PRODUCERS: Final = 100_000
"""Producer ids that are remembered; beyond it those without a request for longest are forgotten."""
LONGEST_CLIENT_ID: Final = 256
"""Characters of a client id that are kept: clients choose ids of up to 32 KiB."""
_MAGIC_POSITION: Final = 16


class Client:
    """One connection of a client. client_id and software (the library's name and version) are those of ApiVersions."""

    __slots__ = ("client_id", "connection", "host", "last_seen_ms", "port", "software")

    def __init__(self, connection: ClientConnection) -> None:
        self.connection: ClientConnection | None = connection  # None once it is closed
        self.host = connection.client_host
        self.port: int = getattr(connection, "client_port", 0)
        self.client_id = ""
        self.software = ("", "")
        self.last_seen_ms = 0


class ProducerClient:
    """The client behind a producer id. client_id, principal: those of its last request that was noted."""

    __slots__ = ("client", "client_id", "first_seen_ms", "principal", "seen_ms")

    def __init__(self, client: Client, now_ms: int) -> None:
        self.client = client
        self.first_seen_ms = self.seen_ms = now_ms
        self.client_id = ""
        self.principal = ""


class ProducerClients:
    """The clients of this broker's producers."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clients: dict[ClientConnection, Client] = {}
        self._producers: OrderedDict[int, ProducerClient] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerClient | None:
        return self._producers.get(producer_id)

    def of_connection(self, connection: ClientConnection) -> Client | None:
        """The client of an open connection; None before its first request that names a producer."""
        return self._clients.get(connection)

    def seen(self, api_key: int, connection: ClientConnection, request: Any, client_id: str | None = None) -> int:
        """Learn from a request; return the producer id whose client sends it, -1 without one."""
        if api_key == ApiKey.PRODUCE:
            return _producer_of(request)
        if api_key == ApiKey.ADD_PARTITIONS_TO_TXN:
            return int(request.v3_and_below_producer_id) if request.v3_and_below_transactional_id else -1
        if api_key in (ApiKey.TXN_OFFSET_COMMIT, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN):
            return int(request.producer_id)
        if api_key == ApiKey.API_VERSIONS:
            client = self._client(connection)
            client.client_id = (client_id or "")[:LONGEST_CLIENT_ID]
            client.software = (request.client_software_name[:64], request.client_software_version[:64])
        return -1

    def act(self, producer_id: int, context: RequestContext) -> None:
        """Note that the client of a request, which was carried out, is behind a producer id."""
        client = self._client(context.connection)
        now_ms = self._clock.now_ms()
        producer = self._producers.get(producer_id)
        if producer is None or producer.client is not client:
            if producer is None and len(self._producers) >= MAXIMUM_PRODUCERS:
                self._producers.popitem(last=False)
            producer = self._producers[producer_id] = ProducerClient(client, now_ms)
        self._producers.move_to_end(producer_id)
        producer.seen_ms = now_ms
        producer.client_id = (context.client_id or "")[:LONGEST_CLIENT_ID]
        producer.principal = context.connection.principal

    def last_seen_ms(self, producer: ProducerClient) -> int:
        """The wall time at which the client's connection last sent or got bytes, in ms."""
        connection = producer.client.connection
        if connection is None:
            return max(producer.client.last_seen_ms, producer.seen_ms)
        return max(self._last_activity_ms(connection), producer.seen_ms)

    def _client(self, connection: ClientConnection) -> Client:
        client = self._clients.get(connection)
        if client is None:
            client = self._clients[connection] = Client(connection)
            connection.add_close_callback(lambda: self._closed(connection))
        return client

    def _closed(self, connection: ClientConnection) -> None:
        client = self._clients.pop(connection, None)
        if client is not None:
            client.last_seen_ms = self._last_activity_ms(connection)
            client.connection = None

    def _last_activity_ms(self, connection: ClientConnection) -> int:
        """The wall time of the last event of a connection, whose own is the event loop's."""
        last_activity_s: float = getattr(connection, "last_activity_s", 0.0)
        ago_s = asyncio.get_running_loop().time() - last_activity_s
        return self._clock.now_ms() - int(ago_s * 1000)


def _producer_of(request: Any) -> int:
    """The producer id of the first batch of a Produce, -1 without one."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is not None and len(records) >= HEADER_BYTES and records[_MAGIC_POSITION] == CURRENT_MAGIC:
                return read_header(records).producer_id
            return -1
    return -1
