"""A small blocking client: request objects over sockets, to the broker, the leader or the coordinator that must get
them.

It speaks to any Kafka. It is what the helpers of a test use, so that a test needs no client of its own for them.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from typing import Any, Final, NamedTuple

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import FAMILIES, REQUESTS, RESPONSES
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.coordinators import FindCoordinatorRequest
from fencepost.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from fencepost.protocol.schema import decode, schema_of
from fencepost.testing.errors import MisuseError, RefusedError

CLIENT_ID: Final = "fencepost.testing"
"""The client id of the helpers: faults do not concern it, and `requests` does not show it."""

TIMEOUT_S: Final = 30.0
RETRY_PAUSE_S: Final = 0.01

RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
"""Errors that pass: the client asks again until its time is over."""

GROUP: Final = 0
TRANSACTION: Final = 1

_HIGHEST: Final = {
    # Above these, topics go by id, or several groups are in one request.
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_FETCH: 7,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.METADATA: 12,
    ApiKey.INIT_PRODUCER_ID: 5,
}


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, bootstrap: str) -> Address:
        """The first of `host:port,host:port`. Raises MisuseError."""
        host, _, port = bootstrap.split(",")[0].strip().rpartition(":")
        if not host or not port.isdigit():
            raise MisuseError(f"{bootstrap!r} is no address of a broker: give host:port, such as localhost:9092")
        return cls(host.strip("[]"), int(port))


class WireClient:
    """Connections to the brokers of one cluster. Not for several threads at once."""

    def __init__(self, bootstrap: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._bootstrap = Address.parse(bootstrap)
        self._timeout_s = timeout_s
        self._connections: dict[Address, _Connection] = {}
        self._coordinators: dict[tuple[int, str], Address] = {}

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._coordinators.clear()

    def call(self, request: Any, address: Address | None = None) -> Any:
        """Send a request and return the reply. Connects anew, once, if an older connection has broken.

        Raises ConnectionError, TimeoutError, MisuseError (the broker does not serve the API).
        """
        where = self._bootstrap if address is None else address
        connection = self._connections.get(where)
        if connection is not None:
            try:
                return connection.call(request)
            except ConnectionError:
                # The broker was restarted, or closed the connection. What the helpers send may be sent twice.
                self._drop(where)
        connection = self._connections[where] = _Connection(where, self._timeout_s)
        try:
            return connection.call(request)
        except BaseException:
            self._drop(where)
            raise

    def coordinated(self, kind: int, key: str, request: Any, error_of: Any) -> Any:
        """Send a request to the coordinator of a group or a transactional id; ask again while it is not ready.

        error_of: gives the error code of a reply.
        """
        give_up_at_s = time.monotonic() + self._timeout_s
        while True:
            address = self._coordinators.get((kind, key))
            if address is None:
                found = self.call(FindCoordinatorRequest(key=key, key_type=kind))
                error = found.error_code
                if error == ErrorCode.NONE:
                    address = self._coordinators[kind, key] = Address(found.host, found.port)
            if address is not None:
                reply = self.call(request, address)
                error = error_of(reply)
                if error not in RETRIED:
                    return reply
                if error != ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinators.pop((kind, key), None)
            elif error not in RETRIED:
                raise RefusedError(ErrorCode(error).name, f"the coordinator of {key!r}: {ErrorCode(error).name}")
            if time.monotonic() > give_up_at_s:
                raise RefusedError(ErrorCode(error).name, f"{key!r}: {ErrorCode(error).name} for {self._timeout_s} s")
            time.sleep(RETRY_PAUSE_S)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """Ask for topics, or all of them. Creates none."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        reply: MetadataResponse = self.call(request)
        return reply

    def _drop(self, address: Address) -> None:
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()


class _Connection:
    """One connection, with the versions that its broker serves."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self.address = address
        self._correlation_id = 0
        self._socket = socket.create_connection(address, timeout=timeout_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            served = self._call(ApiVersionsRequest("fencepost", "0"), 3)
        except BaseException:
            self.close()
            raise
        self._served = {api.api_key: (api.min_version, api.max_version) for api in served.api_keys}

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def call(self, request: Any) -> Any:
        key: int = request.api_key
        declared = schema_of(REQUESTS[key]).versions
        lowest, highest = self._served.get(key, (0, -1))
        version = min(highest, declared.last, _HIGHEST.get(ApiKey(key), declared.last))
        if version < max(lowest, declared.first):
            name = FAMILIES[key][1]
            raise MisuseError(f"the broker at {self.address} does not serve {name}: use another")
        return self._call(request, version)

    def _call(self, request: Any, version: int) -> Any:
        key: int = request.api_key
        self._correlation_id += 1
        try:
            self._socket.sendall(request_frame(self._correlation_id, CLIENT_ID, request, version))
            if key == ApiKey.PRODUCE and request.acks == 0:
                return None
            (length,) = struct.unpack(">i", self._receive(4))
            reply = self._receive(length)
        except TimeoutError:
            raise TimeoutError(
                f"{FAMILIES[key][1]} got no reply from {self.address} in {self._socket.gettimeout()} s"
            ) from None
        _, position = read_response_header(reply, response_header_version(key, version))
        return decode(RESPONSES[key], reply, version, position)

    def _receive(self, length_bytes: int) -> bytes:
        received = bytearray()
        while len(received) < length_bytes:
            piece = self._socket.recv(length_bytes - len(received))
            if not piece:
                raise ConnectionResetError(f"{self.address} closed the connection")
            received += piece
        return bytes(received)
