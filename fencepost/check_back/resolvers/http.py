"""A resolver that asks a service over HTTP: GET of a URL, answered by `{"outcome": "commit"}`, `abort` or `unknown`.

One connection for each question, on the event loop. The URL is the configuration's, with only percent-encoded parts
of the question in it; redirects are not followed, and no proxy is used, so nothing that a client of Kafka can choose
leads anywhere else.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final
from urllib.parse import quote, urlsplit

try:
    import h11
except ImportError:
    raise ValueError("a resolver of type http needs h11: pip install 'fencepost[check-back]'") from None

from fencepost.check_back.places import PLACES, filled
from fencepost.check_back.question import Answer, Question, ResolverUnreachable
from fencepost.check_back.settings import ResolverSettings
from fencepost.protocol.checked_json import parse_object

LONGEST_BODY_BYTES: Final = 4096
LONGEST_HEAD_BYTES: Final = 16 * 1024
READ_BYTES: Final = 16 * 1024
CANNOT_KNOW: Final = frozenset({400, 404, 410, 414, 422, 431})
"""The statuses that are about this one token. Clients choose their ids: such a status is no fault of the service."""
EXPECTED: Final = '{"outcome": "commit"}, or "abort", or "unknown"'
ANSWERS: Final = {answer.value: answer for answer in Answer}


class HttpResolver:
    """settings.options: `url`; `ca.file`, certificates to trust instead of the system's; `bearer.file`, a token to
    send, read again for each question."""

    def __init__(self, settings: ResolverSettings) -> None:
        self._name = settings.name
        self._timeout_s = settings.timeout_ms / 1000
        self._url = settings.options["url"]
        self._bearer_file = settings.options.get("bearer.file")
        address = urlsplit(self._url)
        assert address.hostname is not None
        self._host = address.hostname
        self._port = address.port or (443 if address.scheme == "https" else 80)
        self._host_header = address.netloc
        self._tls: ssl.SSLContext | None = None
        if address.scheme == "https":
            ca_file = settings.options.get("ca.file")
            try:
                self._tls = ssl.create_default_context(cafile=ca_file)
            except OSError:
                raise ValueError(
                    f"resolver {settings.name}: ca.file: {ca_file} is not a readable file of certificates in PEM"
                ) from None

    async def ask(self, question: Question) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(question)
        except TimeoutError:
            raise self._unreachable(
                f"gave no whole answer within {self._timeout_s:g} s; look whether it hangs, or raise timeout.ms"
            ) from None

    async def close(self) -> None:
        pass  # no connection outlives its question

    async def _ask(self, question: Question) -> Answer:
        if question.token.transactional_id in (".", ".."):
            return Answer.UNKNOWN  # a server takes it for another path
        target = self._target(question)
        headers = [("Host", self._host_header), ("Accept", "application/json"), ("Accept-Encoding", "identity")]
        headers += [("Connection", "close"), *await self._authorization()]
        try:
            reader, writer = await asyncio.open_connection(
                self._host, self._port, ssl=self._tls, server_hostname=self._host if self._tls else None
            )
        except ssl.SSLCertVerificationError as error:
            reason = error.verify_message.rstrip(".")
            raise self._unreachable(
                f"shows a certificate that is not trusted ({reason}); correct it, or set ca.file"
            ) from None
        except ssl.SSLError as error:
            raise self._unreachable(
                f"does not speak TLS as expected ({error.reason or 'it failed'}); check the port and the scheme of url"
            ) from None
        except OSError as error:
            raise self._unreachable(f"cannot be connected to ({_reason(error)}); start it, or correct url") from None
        try:
            status, body = await self._exchange(
                reader, writer, h11.Request(method="GET", target=target, headers=headers)
            )
        except h11.RemoteProtocolError:
            raise self._unreachable(
                "did not answer in whole and valid HTTP/1.1; look at its log, and at what is between"
            ) from None
        except OSError as error:
            raise self._unreachable(f"closed the connection ({_reason(error)}); look at its log") from None
        finally:
            # No farewell: a server that hangs would be waited for.
            writer.transport.abort()
        return self._answer(status, body)

    def _target(self, question: Question) -> str:
        address = urlsplit(self._url)
        text = (address.path or "/") + (f"?{address.query}" if address.query else "")
        return filled(text, lambda name: quote(str(PLACES[name](question)), safe=""))

    async def _authorization(self) -> list[tuple[str, str]]:
        if self._bearer_file is None:
            return []
        return [("Authorization", f"Bearer {await asyncio.to_thread(self._read_bearer, self._bearer_file)}")]

    def _read_bearer(self, path: str) -> str:
        try:
            with open(path, encoding="ascii") as file:
                token = file.read(LONGEST_HEAD_BYTES).strip()
        except (OSError, UnicodeDecodeError):
            token = ""
        if not token or not token.isprintable() or " " in token:
            raise ResolverUnreachable(f"resolver {self._name}: {path} holds no token in one line; write it there")
        return token

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: h11.Request
    ) -> tuple[int, bytes]:
        """Send the request, and return status and body."""
        connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LONGEST_HEAD_BYTES)
        writer.write((connection.send(request) or b"") + (connection.send(h11.EndOfMessage()) or b""))
        await writer.drain()
        status, body, received_bytes = 0, bytearray(), 0
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                data = await reader.read(READ_BYTES)
                received_bytes += len(data)
                if received_bytes > LONGEST_HEAD_BYTES + LONGEST_BODY_BYTES:
                    raise self._too_long()
                connection.receive_data(data)
            elif isinstance(event, h11.Response):
                status = event.status_code
                if status != 200:
                    return status, b""
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > LONGEST_BODY_BYTES:
                    raise self._too_long()
            elif isinstance(event, h11.EndOfMessage):
                return status, bytes(body)
            elif isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("closed")

    def _answer(self, status: int, body: bytes) -> Answer:
        if status in CANNOT_KNOW:
            return Answer.UNKNOWN
        if 300 <= status < 400:
            raise self._unreachable(f"answered {status}, a redirect, which is not followed; name the final url")
        if status in (401, 403):
            raise self._unreachable(f"answered {status}: it refuses this client; check bearer.file")
        if status != 200:
            raise self._unreachable(f"answered {status}; expected 200 with {EXPECTED}, look at its log")
        try:
            found = parse_object(body)
        except ValueError as error:
            raise self._unreachable(
                f"answered 200 with a body that cannot be read: {error}; expected {EXPECTED}"
            ) from None
        outcome = found.value("outcome") if list(found) == ["outcome"] else None
        answer = ANSWERS.get(outcome) if isinstance(outcome, str) else None
        if answer is None:
            raise self._unreachable(
                f"answered 200 with other JSON than expected; expected {EXPECTED}, and no other key"
            )
        return answer

    def _too_long(self) -> ResolverUnreachable:
        return self._unreachable(f"sent more than {LONGEST_BODY_BYTES} bytes; expected {EXPECTED}")

    def _unreachable(self, what: str) -> ResolverUnreachable:
        # Not the path: it may hold a secret.
        return ResolverUnreachable(f"resolver {self._name}: the service at {self._host}:{self._port} {what}")


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
