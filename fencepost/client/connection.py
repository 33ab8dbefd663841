"""One asyncio connection to one broker. Requests go one after another."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Mapping
from typing import Any, Final

from fencepost.client.errors import ClusterError, NoAnswerError, UnreachableError, system_reason, tls_failure
from fencepost.client.session import ClientOptions, Sent, Session
from fencepost.protocol.framing import LENGTH_BYTES
from fencepost.protocol.messages.sasl import SaslHandshakeRequest

LARGE_ANSWER_BYTES: Final = 128 << 10
"""From here on an answer is decoded in a thread: the metadata of 50,000 partitions take 0.1 s."""


class Connection:
    """One connection, made by `Connection.open`."""

    def __init__(
        self, host: str, port: int, options: ClientOptions, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        self._reader, self._writer = streams
        self._session = Session(f"{host}:{port}", options.client_id)
        self._answer_timeout_s = options.answer_timeout_s
        self._turn = asyncio.Lock()
        self._was_closed = False
        self.waiting = 0
        """Requests that were sent, or wait for their turn."""

    @property
    def is_closed(self) -> bool:
        """Whether either side has closed it, as brokers do with idle connections."""
        return self._was_closed or self._reader.at_eof()

    @property
    def apis(self) -> Mapping[int, tuple[int, int]]:
        """By API key, the lowest and highest version that the broker serves."""
        return self._session.apis

    @classmethod
    async def open(cls, host: str, port: int, options: ClientOptions) -> Connection:
        """Connect, ask for versions and log in. Raises ClusterError."""
        try:
            async with asyncio.timeout(options.connect_timeout_s):
                streams = await asyncio.open_connection(
                    host, port, ssl=options.tls, server_hostname=host if options.tls else None
                )
        except TimeoutError:
            raise NoAnswerError(f"no connection to {host}:{port} within {options.connect_timeout_s:g} s") from None
        except ssl.SSLError as error:
            raise tls_failure(f"{host}:{port}", error) from None
        except OSError as error:
            raise UnreachableError(f"no broker answers at {host}:{port}: {system_reason(error)}") from None
        connection = cls(host, port, options, streams)
        opening = connection._session.open(options.credentials, secrets.token_urlsafe(24))
        try:
            sent = next(opening)
            while True:
                sent = opening.send(await connection._exchange(sent))
        except StopIteration:
            return connection
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close at once: nothing is unsent, and the end of TLS would be waited for in vain if the event loop stops."""
        self._was_closed = True
        self._writer.transport.abort()

    async def send(self, request: Any, at_most: int | None = None) -> Any:
        """Send a request and return its reply. If it is cancelled, the connection is closed. Raises ClusterError."""
        self.waiting += 1
        try:
            async with self._turn:
                return await self._send(request, at_most)
        finally:
            self.waiting -= 1

    async def _send(self, request: Any, at_most: int | None) -> Any:
        if self.is_closed:
            raise self._closed()
        sent = self._session.prepare(request, at_most=at_most)
        frame = await self._exchange(sent)
        try:
            if len(frame) < LARGE_ANSWER_BYTES:
                return self._session.answer(sent, frame)
            return await asyncio.to_thread(self._session.answer, sent, frame)
        except ClusterError:
            self.close()
            raise

    async def _exchange(self, sent: Sent) -> bytes:
        try:
            async with asyncio.timeout(self._answer_timeout_s):
                self._writer.write(sent.frame)
                await self._writer.drain()
                length = self._session.frame_bytes(await self._reader.readexactly(LENGTH_BYTES))
                return await self._reader.readexactly(length)
        except TimeoutError:
            self.close()
            raise NoAnswerError(f"{self._session.where} gave no answer in {self._answer_timeout_s:g} s") from None
        except ssl.SSLError as error:
            self.close()
            raise tls_failure(self._session.where, error) from None
        except (OSError, asyncio.IncompleteReadError):
            self.close()
            raise self._closed() from None
        except BaseException:
            self.close()  # the answer may still come, and would be taken for that of another request
            raise

    def _closed(self) -> UnreachableError:
        return UnreachableError(f"{self._session.where} closed the connection")

    async def offered_mechanisms(self) -> tuple[str, ...]:
        """The SASL mechanisms of this listener; none where nobody has to log in. The connection is spent."""
        try:
            reply = await self.send(SaslHandshakeRequest(mechanism="?"))
        except ClusterError:
            return ()
        finally:
            self.close()
        return tuple(reply.mechanisms)
