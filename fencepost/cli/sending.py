"""This project's messages, sent over the connections of a kafka-python client: for requests that kafka-python lacks.

So they use the client's configuration, as every other request of the command line does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fencepost.protocol.headers import (
    encode_request_header,
    read_response_header,
    request_header_version,
    response_header_version,
)
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.schema import decode, encode, schema_of


def send_to_coordinator(admin: Any, group: str, message: Any) -> Any:
    """Send a request to the coordinator of a group and return the reply, a message of the protocol package.

    Both use the highest version that the broker and this project have. Raises KafkaError, also for a broker that does
    not have the API.
    """
    return admin._manager.run(_send_to_coordinator, admin, group, message)  # noqa: SLF001  # it has no public way


def send(admin: Any, message: Any) -> Any:
    """Send a request to any broker and return the reply. As `send_to_coordinator`."""
    return admin._manager.run(_send, admin, message)  # noqa: SLF001


async def _send(admin: Any, message: Any) -> Any:
    return (await admin._manager.send(_Request(message))).message  # noqa: SLF001


async def _send_to_coordinator(admin: Any, group: str, message: Any) -> Any:
    node_id = await admin._find_coordinator_id(group)  # noqa: SLF001
    return (await admin._manager.send(_Request(message), node_id=node_id)).message  # noqa: SLF001


class _Request:
    """A request as kafka-python's connections expect one."""

    min_version = 0
    _min_version = None
    _max_version = None

    def __init__(self, message: Any) -> None:
        schema = schema_of(type(message))
        self.API_KEY: int = schema.api_key
        self.API_VERSION: int | None = None
        self.name = type(message).__name__.removesuffix("Request")
        self.max_version: int = schema.versions.last
        self.header: _Header | None = None
        self._message = message

    def expect_response(self) -> bool:
        return True

    def with_header(self, correlation_id: int, client_id: str) -> None:
        assert self.API_VERSION is not None
        self.header = _Header(self.API_KEY, self.API_VERSION, correlation_id, client_id)

    def encode(self, *, framed: bool, header: bool) -> bytes:
        assert framed
        assert header
        assert self.header is not None
        contents = encode_request_header(*self.header, request_header_version(self.API_KEY, self.header.api_version))
        contents += encode(self._message, self.header.api_version)
        return len(contents).to_bytes(4, "big") + contents


class _Header(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str

    def get_response_class(self) -> _ResponseReader:
        return _ResponseReader(self)


class _Correlation(NamedTuple):
    correlation_id: int


class _Reply(NamedTuple):
    message: Any
    throttle_time_ms: int
    API_KEY: int
    API_VERSION: int


class _ResponseReader:
    """Reads one reply in kafka-python's two steps, from its buffer."""

    def __init__(self, header: _Header) -> None:
        self._header = header
        self._position = 0

    def parse_header(self, buffer: Any) -> _Correlation:
        version = response_header_version(self._header.api_key, self._header.api_version)
        correlation_id, self._position = read_response_header(bytes(buffer), version)
        return _Correlation(correlation_id)

    def decode(self, buffer: Any) -> _Reply:
        key, version = self._header.api_key, self._header.api_version
        message = decode(RESPONSES[key], memoryview(bytes(buffer)), version, self._position)
        return _Reply(message, message.throttle_time_ms, key, version)
