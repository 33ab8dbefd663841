"""One plain connection to a broker, on which any request goes out at any version, encoded and decoded by our codec.

The codec is held against two others and against recorded frames (tests/protocol), so what it reads is what was sent.
"""

from __future__ import annotations

import itertools
import select
import socket
import struct
from types import TracebackType
from typing import Any, NamedTuple, Self

from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.schema import decode

CLIENT_ID = "asker"
TIMEOUT_S = 8.0


AUTHENTICATE_VERSION = 2
HANDSHAKE_VERSION = 1


class Login(NamedTuple):
    """What a client logs in with, by SASL PLAIN."""

    user: str
    password: str

    @property
    def token(self) -> bytes:
        return f"\0{self.user}\0{self.password}".encode()


class ConnectionClosedError(ConnectionError):
    """The broker closed the connection instead of answering."""


class Connection:
    """A blocking socket that sends requests and reads their replies, one after another or pipelined."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=TIMEOUT_S)
        self._correlation_ids = itertools.count(1)

    def log_in(self, login: Login) -> None:
        """Authenticate. Raises ConnectionClosedError, and PermissionError with the broker's reason."""
        self.send(SaslHandshakeRequest("PLAIN"), HANDSHAKE_VERSION)
        self.receive(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION)
        self.send(SaslAuthenticateRequest(login.token), AUTHENTICATE_VERSION)
        reply = self.receive(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION)
        if reply.error_code:
            raise PermissionError(reply.error_message)

    def send(self, request: Any, version: int) -> None:
        self.send_bytes(request_frame(next(self._correlation_ids), CLIENT_ID, request, version))

    def send_bytes(self, content: bytes) -> None:
        """Raises ConnectionClosedError."""
        try:
            self._socket.sendall(content)
        except (BrokenPipeError, ConnectionResetError):
            raise ConnectionClosedError from None

    def receive(self, api_key: int, version: int) -> Any:
        """The next reply, which is one to a request of this API and version. Raises ConnectionClosedError,
        TimeoutError."""
        frame = self.receive_frame()
        _, position = read_response_header(frame, response_header_version(api_key, version))
        return decode(RESPONSES[api_key], frame, version, position)

    def receive_frame(self, timeout_s: float = TIMEOUT_S) -> bytes:
        """The next frame without its length. Raises ConnectionClosedError, TimeoutError."""
        self._socket.settimeout(timeout_s)
        try:
            (length,) = struct.unpack(">i", self._receive(4))
            return self._receive(length)
        finally:
            self._socket.settimeout(TIMEOUT_S)

    def has_reply(self, patience_s: float = 0.0) -> bool:
        """Whether something has come, the end of the connection among it, or comes within this time."""
        readable, _, _ = select.select([self._socket], [], [], patience_s)
        return bool(readable)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            try:
                piece = self._socket.recv(count - len(received))
            except ConnectionResetError:
                raise ConnectionClosedError from None
            if not piece:
                raise ConnectionClosedError
            received += piece
        return bytes(received)
