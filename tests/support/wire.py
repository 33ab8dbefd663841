"""Requests as raw bytes on a socket, for what no client library would send."""

from __future__ import annotations

import socket
import struct
from types import TracebackType
from typing import Any, Self

from fencepost.protocol.headers import request_header_version
from fencepost.protocol.schema import decode, encode
from tests.support.conditions import PATIENCE_S


def frame(api_key: int, version: int, body: bytes, *, correlation_id: int = 1, client_id: bytes = b"raw") -> bytes:
    """A whole request frame; the header has tagged fields where this API version's header has."""
    header = struct.pack(">hhih", api_key, version, correlation_id, len(client_id)) + client_id
    if request_header_version(api_key, version) >= 2:
        header += b"\x00"
    return struct.pack(">i", len(header) + len(body)) + header + body


def request_frame(request: Any, version: int, *, correlation_id: int = 1) -> bytes:
    """The frame of a request object."""
    return frame(request.api_key, version, bytes(encode(request, version)), correlation_id=correlation_id)


class WireConnection:
    """A blocking socket to a broker that speaks frames."""

    def __init__(self, host: str, port: int, *, timeout_s: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_s)

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def receive_frame(self) -> bytes | None:
        """The next frame without its length, or None when the broker closed the connection. Raises TimeoutError."""
        prefix = self._receive(4)
        if prefix is None:
            return None
        return self._receive(struct.unpack(">i", prefix)[0])

    def call(self, request: Any, response_type: type[Any], version: int, *, flexible_header: bool) -> Any:
        """Send a request object and decode its reply. The connection must not have other requests under way."""
        self.send(request_frame(request, version))
        reply = self.receive_frame()
        assert reply is not None, "the broker closed the connection"
        return decode(response_type, reply, version, 5 if flexible_header else 4)

    def is_closed_by_peer(self) -> bool:
        """Wait for the broker to close; False when it sent something instead. Raises TimeoutError."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, length_bytes: int) -> bytes | None:
        received = bytearray()
        while len(received) < length_bytes:
            try:
                piece = self.socket.recv(length_bytes - len(received))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            received += piece
        return bytes(received)
