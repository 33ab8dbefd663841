"""One connection of an HTTP client: h11 reads the bytes; requests are answered one at a time.

Bounds: a head has 5 s and 16 KiB, a body 10 s and 64 KiB; a client that does not read its response for 30 s is cut
off. Nothing is read while a request is answered. A body is made and sent in slices with turns of the event
loop between them; over all connections one slice runs in a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Protocol, cast

import h11

from fencepost.broker.http.access import NEVER_NEED_A_TOKEN
from fencepost.broker.http.exchange import BadRequestError, HttpRequest, HttpResponse, error_response
from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter
from fencepost.broker.kernel.supervision import Place, Policy

log = get_logger(__name__)

HTTP_SERVING = Place("serving of an HTTP connection", Policy.REPORT)
HTTP_ANSWER = Place("answer to an HTTP request", Policy.REPORT)

HEAD_TIMEOUT_S: Final = 5.0
BODY_TIMEOUT_S: Final = 10.0
IDLE_TIMEOUT_S: Final = 90.0
"""Between two requests: more than the usual minute between two scrapes."""
READING_TIMEOUT_S: Final = 30.0
MAXIMUM_HEAD_BYTES: Final = 16 * 1024
MAXIMUM_BODY_BYTES: Final = 64 * 1024
WRITE_BUFFER_BYTES: Final = 64 * 1024
SENT_BYTES: Final = 32 * 1024
TOO_MANY: Final = "too many connections; close some, or try again later"
SLICE_S: Final = 0.0005
"""Longest slice in which a body is made, in a turn of the event loop: other requests wait for it."""


class HttpConnectionOwner(Protocol):
    """The listener, as its connections see it."""

    def http_connection_opened(self, connection: HttpConnection) -> bool:
        """Register a connection; returns whether it may be served."""

    def http_connection_closed(self, connection: HttpConnection) -> None: ...


class HttpConnection(asyncio.Protocol):
    """The protocol object of one connection. respond: answers a request; it raises nothing.

    is_idle:         whether the client has no request in work.
    is_beyond_bound: whether other clients use all connections, so that this one serves probes alone: their answers take
                     a moment, and a supervisor restarts a broker that does not give them.
    """

    _transport: asyncio.Transport

    def __init__(
        self,
        owner: HttpConnectionOwner,
        respond: Callable[[HttpRequest], Awaitable[HttpResponse]],
        turns: PerTurnLimiter,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.client_host = ""
        self.is_idle = True
        self.is_beyond_bound = False
        self._was_served = False
        self._owner = owner
        self._respond = respond
        self._turns = turns
        self._loop = loop
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MAXIMUM_HEAD_BYTES)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._timer: asyncio.TimerHandle | None = None
        self._answer: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._is_open = True

    @property
    def is_arriving(self) -> bool:
        """Whether the client has not sent the whole of a request that the broker waits for."""
        return self._answer is None and not (self.is_idle and self._was_served)

    def abort(self) -> None:
        """Close at once."""
        self._is_open = False
        self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's have the interface but not the class
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        peer = transport.get_extra_info("peername")
        self.client_host = canonical_host(peer[0]) if peer else ""
        if self._owner.http_connection_opened(self):
            self._arm(HEAD_TIMEOUT_S)
        else:
            self._start(self._end_with(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY))

    @HTTP_SERVING.catches_itself
    def data_received(self, data: bytes) -> None:
        try:
            if self.is_idle and self._answer is None and self._head is None:
                self.is_idle = False
                self._arm(HEAD_TIMEOUT_S)
            self._h11.receive_data(data)
            self._read()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            HTTP_SERVING.failed(error, concerns=self.client_host, on_failure=lambda _: self.abort())

    def eof_received(self) -> bool:
        # A client may have sent its last request, and wait for the response.
        return self._answer is not None

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_open = False
        self._disarm()
        if self._answer is not None:
            self._answer.cancel()
        self._owner.http_connection_closed(self)

    # Reading

    def _read(self) -> None:
        """Process the events of h11; start the answer once the request is complete."""
        while self._answer is None and self._is_open:
            try:
                event = self._h11.next_event()
            except h11.RemoteProtocolError as error:
                self._start(self._end_with(error.error_status_hint, f"the request cannot be read: {error}"))
                return
            if isinstance(event, h11.Request):
                self._head = event
                self._arm(BODY_TIMEOUT_S)
            elif isinstance(event, h11.Data):
                self._body += event.data
                if len(self._body) > MAXIMUM_BODY_BYTES:
                    reason = f"a body has at most {MAXIMUM_BODY_BYTES} bytes"
                    self._start(self._end_with(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason))
                    return
            elif isinstance(event, h11.EndOfMessage):
                self._disarm()
                self._start(self._answer_request())
            elif event is h11.NEED_DATA:
                if self._head is not None and self._h11.they_are_waiting_for_100_continue:
                    self._send(h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[]))
                return
            else:  # paused, or closed by the client
                if isinstance(event, h11.ConnectionClosed):
                    self._transport.close()
                return

    def _start(self, work: Awaitable[None]) -> None:
        self.is_idle = False
        self._answer = HTTP_ANSWER.start(
            self._finished_after(work), concerns=self.client_host, on_failure=lambda _: self.abort()
        )
        self._transport.pause_reading()

    async def _finished_after(self, work: Awaitable[None]) -> None:
        await work
        self._answer = None
        if not self._is_open:
            return
        if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
            self._h11.start_next_cycle()
            self._head = None
            self._body.clear()
            self.is_idle = self._was_served = True
            self._arm(IDLE_TIMEOUT_S)
            self._transport.resume_reading()
            self._read()
        else:
            self._transport.close()

    # Answering

    async def _answer_request(self) -> None:
        head = self._head
        assert head is not None, "the request is whole"
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in head.headers}
        method, target = head.method.decode("latin-1"), head.target.decode("latin-1")
        try:
            request = HttpRequest.of_target(method, target, headers, self.client_host)
        except BadRequestError as error:
            response = error_response(error.status, str(error))
        else:
            request.body = bytes(self._body)
            if self.is_beyond_bound and request.path not in NEVER_NEED_A_TOKEN:
                response = error_response(HTTPStatus.SERVICE_UNAVAILABLE, TOO_MANY)
            else:
                response = await self._respond(request)
        if self.is_beyond_bound:
            response.headers = {**response.headers, "Connection": "close"}
        await self._send_response(response, has_body=method != "HEAD")

    async def _end_with(self, status: int, reason: str) -> None:
        """Answer a request that cannot be parsed, and close."""
        self._disarm()
        if self._h11.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = error_response(status, reason)
            body = "".join(response.pieces)
            response.pieces = iter((body,))
            # Its version of HTTP may be unknown, and so whether the client reads chunks.
            response.headers = {"Connection": "close", "Content-Length": str(len(body.encode()))}
            await self._send_response(response, has_body=True)
        self._transport.close()

    async def _send_response(self, response: HttpResponse, *, has_body: bool) -> None:
        headers = [
            ("Content-Type", response.content_type),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Server", "fencepost"),
            *response.headers.items(),
        ]
        self._send(h11.Response(status_code=response.status, headers=headers))
        if has_body:
            await self._send_body(response)
        if self._is_open:
            self._send(h11.EndOfMessage())

    async def _send_body(self, response: HttpResponse) -> None:
        unsent: list[bytes] = []
        unsent_bytes = 0
        time = self._loop.time
        slice_end_s = time() + SLICE_S
        for piece in response.pieces:
            if piece:
                encoded = piece.encode()
                unsent.append(encoded)
                unsent_bytes += len(encoded)
                if unsent_bytes >= SENT_BYTES:
                    self._send(h11.Data(data=b"".join(unsent)))
                    unsent.clear()
                    unsent_bytes = 0
                    if not self._writable.is_set() and not await self._became_writable():
                        return
            if time() >= slice_end_s:
                await asyncio.sleep(0)
                await self._turns.acquire()
                slice_end_s = time() + SLICE_S
        if unsent:
            self._send(h11.Data(data=b"".join(unsent)))

    async def _became_writable(self) -> bool:
        """Wait until the client has read enough; False if it did not in time, and is cut off."""
        try:
            await asyncio.wait_for(self._writable.wait(), READING_TIMEOUT_S)
        except TimeoutError:
            log.info("http_client_cut_off", client=self.client_host, reason="it does not read its response")
            self.abort()
            return False
        return True

    def _send(self, event: h11.Event) -> None:
        sent = self._h11.send(event)
        if sent and self._is_open:
            self._transport.write(sent)

    # Time

    def _arm(self, timeout_s: float) -> None:
        self._disarm()
        self._timer = self._loop.call_later(timeout_s, HTTP_SERVING.callback(self._too_slow))

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self._answer is not None:
            return
        if self.is_idle:
            self._transport.close()
        else:
            self._start(self._end_with(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time"))
