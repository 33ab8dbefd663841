"""One connection to one broker: frames, versions, log-in. Requests go one after another."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from fencepost.client.errors import (
    ClusterError,
    LogInNeededError,
    LogInRefusedError,
    NotServedError,
    UnreachableError,
)
from fencepost.client.log_in import Credentials, exchange
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import request_frame
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import decode, schema_of

CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 15.0
LARGEST_FRAME_BYTES: Final = 256 * 1024 * 1024
CLIENT_ID: Final = "fencepost-console"
SOFTWARE: Final = "fencepost-console"

HIGHEST_BY_NAME: Final[Mapping[int, int]] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
    ApiKey.INIT_PRODUCER_ID: 5,
}
"""Where later versions know topics by their ids, or are not stable yet: the highest version that is used."""

LOWEST: Final[Mapping[int, int]] = {ApiKey.OFFSET_FETCH: 8}
"""APIs whose earlier versions lack a needed feature: several groups in one request. Kafka 3.0 has it."""

API_VERSIONS_VERSION: Final = 3
"""Sent first. A broker that does not have it answers in version 0, with its own versions."""


@dataclass(frozen=True)
class Security:
    """How connections are secured. tls: None for none; credentials: None for no log-in."""

    tls: ssl.SSLContext | None = None
    credentials: Credentials | None = None


class Connection:
    """One connection, made by `Connection.open`."""

    def __init__(self, host: str, port: int, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.host, self.port = host, port
        self._reader, self._writer = streams
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()
        self._versions: dict[int, tuple[int, int]] = {}
        self._was_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether either side has closed it, as brokers do with idle connections."""
        return self._was_closed or self._reader.at_eof()

    @classmethod
    async def open(cls, host: str, port: int, security: Security) -> Connection:
        """Connect, ask for versions and log in. Raises ClusterError."""
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                streams = await asyncio.open_connection(
                    host, port, ssl=security.tls, server_hostname=host if security.tls else None
                )
        except TimeoutError:
            raise UnreachableError(f"no connection to {host}:{port} within {CONNECT_TIMEOUT_S:g} s") from None
        except ssl.SSLError as error:
            raise UnreachableError(f"TLS with {host}:{port} failed: {error.reason or error}") from None
        except OSError as error:
            raise UnreachableError(f"no broker answers at {host}:{port}: {_reason(error)}") from None
        connection = cls(host, port, streams)
        try:
            await connection._ask_versions()
            if security.credentials is not None:
                await connection._log_in(security.credentials)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def apis(self) -> Mapping[int, tuple[int, int]]:
        """By API key, the lowest and highest version that the broker serves."""
        return self._versions

    def close(self) -> None:
        """Close at once: nothing is unsent, and the end of TLS would be waited for in vain if the event loop stops."""
        self._was_closed = True
        self._writer.transport.abort()

    def version_of(self, request: Any) -> int:
        """The highest version that both sides have. Raises NotServedError."""
        schema = schema_of(type(request))
        key = schema.api_key
        lowest, highest = self._versions.get(key, (0, -1))
        best = min(highest, schema.versions.last, HIGHEST_BY_NAME.get(key, highest))
        if best < max(lowest, schema.versions.first, LOWEST.get(key, 0)):
            raise NotServedError(f"this cluster does not serve {type(request).__name__.removesuffix('Request')}")
        return best

    async def send(self, request: Any, *, at_version: int | None = None) -> Any:
        """Send a request and return its reply. Raises ClusterError."""
        chosen = self.version_of(request) if at_version is None else at_version
        async with self._turn:
            if self.is_closed:
                raise UnreachableError(f"{self.host}:{self.port} closed the connection")
            number = next(self._numbers)
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    self._writer.write(request_frame(number, CLIENT_ID, request, chosen))
                    await self._writer.drain()
                    length = int.from_bytes(await self._reader.readexactly(4), "big")
                    if not 4 <= length <= LARGEST_FRAME_BYTES:
                        raise UnreachableError(f"what answers at {self.host}:{self.port} is not a Kafka broker")
                    frame = await self._reader.readexactly(length)
            except TimeoutError:
                self.close()
                raise UnreachableError(f"{self.host}:{self.port} gave no answer in {ANSWER_TIMEOUT_S:g} s") from None
            except (OSError, asyncio.IncompleteReadError):
                self.close()
                raise UnreachableError(f"{self.host}:{self.port} closed the connection") from None
            except BaseException:
                self.close()  # the answer may still come, and would be taken for that of another request
                raise
        return self._decode(request, frame, number, chosen)

    def _decode(self, request: Any, frame: bytes, number: int, chosen: int) -> Any:
        key = schema_of(type(request)).api_key
        try:
            correlation_id, position = read_response_header(frame, response_header_version(key, chosen))
            if correlation_id != number:
                raise DecodeError("an answer to another request")
            return decode(RESPONSES[key], memoryview(frame), chosen, position)
        except DecodeError as error:
            self.close()
            raise ClusterError(f"the answer of {self.host}:{self.port} cannot be read: {error}") from None

    async def _ask_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=_software_version())
        try:
            reply = await self.send(request, at_version=API_VERSIONS_VERSION)
            if reply.error_code:
                raise DecodeError("refused")
        except (DecodeError, ClusterError) as error:
            if isinstance(error, UnreachableError):
                raise
            raise ClusterError(
                f"{self.host}:{self.port} does not answer as a Kafka broker of 2.4 or newer does"
            ) from error
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in reply.api_keys}

    async def offered_mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms of this listener; none where nobody has to log in. The connection is spent."""
        try:
            reply = await self.send(SaslHandshakeRequest(mechanism="?"))
        except ClusterError:
            return ()
        finally:
            self.close()
        return tuple(reply.mechanisms)

    async def _log_in(self, credentials: Credentials) -> None:
        reply = await self.send(SaslHandshakeRequest(mechanism=credentials.mechanism))
        if reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            raise LogInNeededError(reply.mechanisms)
        if reply.error_code:
            raise LogInRefusedError("this cluster has no log-in on this listener")
        steps = exchange(credentials, secrets.token_urlsafe(24))
        answer: bytes | None = None
        while True:
            try:
                # A generator takes None, and only None, for its first step.
                token = next(steps) if answer is None else steps.send(answer)
            except StopIteration:
                return
            reply = await self.send(SaslAuthenticateRequest(auth_bytes=token))
            if reply.error_code:
                raise LogInRefusedError(reply.error_message or "the cluster refused the log-in")
            answer = bytes(reply.auth_bytes)


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _software_version() -> str:
    try:
        return version("fencepost")
    except PackageNotFoundError:
        return "0"
