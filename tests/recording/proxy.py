"""A proxy that copies bytes between clients and a broker and keeps what passed, frame by frame.

It rewrites nothing: the broker is started with the proxy's port as its advertised listener, so every connection leads
through here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.support.loopback_proxy import Conversation, LoopbackProxy


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its reply, without their length prefixes.

    source:   the client that sent it, for example "confluent-kafka 2.16.1".
    response: None where the broker sends none (Produce with acks=0) or the connection ended before it came.
    """

    source: str
    api_key: int
    version: int
    request: bytes
    response: bytes | None


class RecordingProxy(LoopbackProxy):
    """Keeps each request with its reply.

    `source` names the client that is being recorded; a connection keeps the name it was opened under.
    """

    def __init__(self, port: int, upstream_port: int) -> None:
        super().__init__(port, upstream_port, "recording-proxy")
        self.source = ""
        self.exchanges: list[Exchange] = []

    def conversation(self) -> Conversation:
        return _Recorded(self.source, self.exchanges)

    def failed(self, error: Exception) -> None:
        raise error


class _Recorded(Conversation):
    """A connection whose exchanges are kept."""

    def __init__(self, source: str, exchanges: list[Exchange]) -> None:
        self._source = source
        self._exchanges = exchanges
        self._pending: dict[int, bytes] = {}  # correlation id -> request frame

    async def request(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame, 4)
        self._pending[correlation_id] = frame

    async def reply(self, frame: bytes) -> None:
        (correlation_id,) = struct.unpack_from(">i", frame)
        self._keep(self._pending.pop(correlation_id), frame)

    def ended(self) -> None:
        for unanswered in self._pending.values():
            self._keep(unanswered, None)

    def _keep(self, request: bytes, response: bytes | None) -> None:
        api_key, version = struct.unpack_from(">hh", request)
        self._exchanges.append(Exchange(self._source, api_key, version, request, response))
