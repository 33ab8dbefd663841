"""Requests to the other nodes of the cluster, pipelined over one connection to each.

Source: Kafka's InterBrokerSendThread and NetworkClient.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol, cast

from fencepost.broker.hosting.placement import NodeAddress
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.supervision import Place, Policy, describe
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import find_frame, request_frame
from fencepost.protocol.headers import read_response_header, response_header_version
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.schema import decode

log = get_logger(__name__)

CONNECTING = Place("connection to another node", Policy.REPORT)
RESPONSE = Place("response of another node", Policy.REPORT)

RENEWED_AT = 0.85
"""The share of a session's time after which another connection takes its place."""
MAXIMUM_RESPONSE_BYTES = 100 * 1024 * 1024
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 8.0
"""After a refused log-in, or a failed TLS handshake: another attempt at once would be refused, too. There is no pause
before a node that does not listen is connected to again: it may be starting."""

Connect = Callable[
    [Callable[[], asyncio.Protocol], str, int], Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]
]
"""Opens a connection to a host and port, as `loop.create_connection` does. Raises OSError."""


class PeerUnreachable(Exception):  # noqa: N818  # an expected outcome, which callers turn into an error code
    """There will be no response: the node is not alive, the connection was lost, or the request timed out.

    The node may have carried out the request, or not.
    """


LogIn = Callable[["PeerConnection"], Awaitable[float | None]]
"""Authenticates at another node; returns how many seconds it serves the connection, None without a bound. Raises
PeerUnreachable."""


class Peers(Protocol):
    """Channel to the other nodes."""

    async def request(self, node_id: int, message: Any, version: int, timeout_s: float) -> Any:
        """Send a request and return the node's response. Raises PeerUnreachable."""
        ...

    async def close(self) -> None:
        """Fail all pending requests."""
        ...


def received_error(code: int) -> ErrorCode:
    """The error code of a response; UNKNOWN_SERVER_ERROR if it is unknown here."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


class _PendingRequest(NamedTuple):
    correlation_id: int
    response_type: type[Any]
    version: int
    answered: asyncio.Future[Any]


class PeerConnection(asyncio.Protocol):
    """One connection to another node. Requests are sent at once; responses arrive in the order of the requests."""

    def __init__(self, client_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.is_open = False
        self._client_id = client_id
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._waiting: deque[_PendingRequest] = deque()
        self._next_correlation_id = 0
        self._is_leaving = False

    def send(self, message: Any, version: int) -> asyncio.Future[Any]:
        """Send a request; the future gets its response, or PeerUnreachable."""
        transport = self._transport
        if transport is None or not self.is_open:
            raise PeerUnreachable("the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        answered: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append(_PendingRequest(correlation_id, RESPONSES[message.api_key], version, answered))
        transport.write(request_frame(correlation_id, self._client_id, message, version))
        return answered

    def leave(self) -> None:
        """Close when all requests are answered."""
        self._is_leaving = True
        if not self._waiting:
            self.abort("another connection takes its place")

    def abort(self, reason: str) -> None:
        """Close at once, and fail all pending requests: later responses are not read."""
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            if not request.answered.done():
                request.answered.set_exception(PeerUnreachable(reason))
                request.answered.exception()  # the caller may have been cancelled

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface but not the base class.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.abort(f"the connection was lost: {exc}" if exc else "the node closed the connection")
        self._transport = None

    def data_received(self, data: bytes) -> None:
        if not self.is_open:
            return
        self._received += data
        try:
            self._read_responses()
        except DecodeError as error:
            log.error("peer_response_undecodable", reason=str(error))  # noqa: TRY400  # the reason says it all
            self.abort(f"its response cannot be read: {error}")
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            RESPONSE.failed(error, on_failure=lambda failure: self.abort(f"its response failed: {describe(failure)}"))

    def _read_responses(self) -> None:
        """Raises DecodeError."""
        received, position = bytes(self._received), 0
        while True:
            frame = find_frame(received, position, len(received), MAXIMUM_RESPONSE_BYTES)
            if frame is None:
                break
            start, position = frame
            self._answer(received[start:position])
        del self._received[:position]

    def _answer(self, frame: bytes) -> None:
        if not self._waiting:
            raise DecodeError("a response without a request", position=0, expected="nothing")
        request = self._waiting[0]
        header_version = response_header_version(request.response_type.api_key, request.version)
        correlation_id, body_position = read_response_header(frame, header_version)
        if correlation_id != request.correlation_id:
            raise DecodeError(
                f"the response to request {correlation_id}", position=0, expected=f"that to {request.correlation_id}"
            )
        response = decode(request.response_type, frame, request.version, body_position)
        self._waiting.popleft()
        if not request.answered.done():
            request.answered.set_result(response)
        if self._is_leaving:
            self.leave()


class _PeerLink:
    """The connection to one node, from its first request until it breaks.

    opened:     PeerUnreachable if it cannot be opened, or not in time.
    renew_at_s: the loop time from which on another link takes its place, as its session ends; None for never.
    """

    __slots__ = ("opened", "opening", "renew_at_s")

    def __init__(self, opened: asyncio.Future[PeerConnection]) -> None:
        self.opened = opened
        self.opening: asyncio.Task[None] | None = None
        self.renew_at_s: float | None = None

    @property
    def is_broken(self) -> bool:
        return self.opened.done() and (self.opened.exception() is not None or not self.opened.result().is_open)

    def give_up(self, reason: str) -> None:
        if not self.opened.done():
            self.opened.set_exception(PeerUnreachable(reason))
            self.opened.exception()  # the caller may have been cancelled
            if self.opening is not None:
                self.opening.cancel()
        elif self.opened.exception() is None:
            self.opened.result().abort(reason)


class _Pause(NamedTuple):
    """The reason to connect to a node only after a loop time."""

    reason: str
    length_s: float
    until_s: float


class TcpPeers:
    """Channel to the other nodes over TCP, or over the connections of `connect`.

    address_of: the current address of a node, None while it is not alive; called for every new connection.
    connect:    the running loop's `create_connection`, unless given.
    log_in:     authenticates on each new connection; nothing, unless given.
    A connection is opened with the first request. After a time-out it is closed, so that a late response is never taken
    for that to a later request, and a late request never arrives after its repetition on the same connection. A node
    that hangs closes no connection: `leave_lost` does, so that requests do not wait for their time-outs.
    """

    def __init__(
        self,
        node_id: int,
        address_of: Callable[[int], NodeAddress | None],
        *,
        connect: Connect | None = None,
        log_in: LogIn | None = None,
    ) -> None:
        self._client_id = f"broker-{node_id}"
        self._address_of = address_of
        self._connect = connect
        self._log_in = log_in
        self._leaving: set[PeerConnection] = set()
        self._links: dict[int, _PeerLink] = {}
        self._pauses: dict[int, _Pause] = {}
        self._opening: set[asyncio.Task[None]] = set()

    async def request(self, node_id: int, message: Any, version: int, timeout_s: float) -> Any:
        link = self._link(node_id)
        try:
            async with asyncio.timeout(timeout_s):
                connection = await asyncio.shield(link.opened)
                return await connection.send(message, version)
        except TimeoutError:
            reason = f"node {node_id} did not answer within {timeout_s} s"
            link.give_up(reason)
            raise PeerUnreachable(reason) from None

    def leave_lost(self) -> None:
        """Close the connections to nodes that are not alive any more, and fail their pending requests."""
        lost = [node_id for node_id in self._links if self._address_of(node_id) is None]
        for node_id in lost:
            self._links.pop(node_id).give_up(f"node {node_id} is not alive any more")

    async def close(self) -> None:
        for link in self._links.values():
            link.give_up("this node stops")
        self._links.clear()
        for connection in self._leaving:
            connection.abort("this node stops")
        await asyncio.gather(*self._opening, return_exceptions=True)

    def _link(self, node_id: int) -> _PeerLink:
        link = self._links.get(node_id)
        if link is not None and link.renew_at_s is not None and asyncio.get_running_loop().time() >= link.renew_at_s:
            self._leave(link)
            link = None
        if link is None or link.is_broken:
            loop = asyncio.get_running_loop()
            link = new = self._links[node_id] = _PeerLink(loop.create_future())
            pause = self._pauses.get(node_id)
            if pause is not None and loop.time() < pause.until_s:
                link.give_up(pause.reason)
                return link
            link.opening = CONNECTING.start(
                self._open(node_id, link),
                concerns=f"node {node_id}",
                on_failure=lambda error: new.give_up(f"node {node_id} cannot be connected to: {describe(error)}"),
            )
            self._opening.add(link.opening)
            link.opening.add_done_callback(self._opening.discard)
        return link

    def _leave(self, link: _PeerLink) -> None:
        self._leaving = {connection for connection in self._leaving if connection.is_open}
        if not link.is_broken:
            connection = link.opened.result()
            self._leaving.add(connection)
            connection.leave()

    async def _open(self, node_id: int, link: _PeerLink) -> None:
        address = self._address_of(node_id)
        if address is None:
            link.give_up(f"node {node_id} is not alive")
            return
        loop = asyncio.get_running_loop()
        connect = self._connect or loop.create_connection
        connection = PeerConnection(self._client_id, loop)
        try:
            await connect(lambda: connection, address.host, address.port)
            if self._log_in is not None:
                lifetime_s = await self._log_in(connection)
                if lifetime_s is not None:
                    link.renew_at_s = loop.time() + RENEWED_AT * lifetime_s
        except OSError as error:
            reason = f"node {node_id} cannot be connected to: {error}"
            if not isinstance(error, ConnectionError | FileNotFoundError):  # a TLS handshake, the look-up of a name
                log.warning("node_not_connected_to", node=node_id, reason=str(error))
                self._pause(node_id, reason)
            link.give_up(reason)
            return
        except PeerUnreachable as error:
            log.warning("node_not_logged_in_to", node=node_id, reason=str(error))
            connection.abort(str(error))
            self._pause(node_id, f"node {node_id}: {error}")
            link.give_up(f"node {node_id}: {error}")
            return
        except asyncio.CancelledError:
            connection.abort("it was given up")
            raise
        self._pauses.pop(node_id, None)
        if link.opened.done():
            connection.abort("it was opened too late")
        else:
            link.opened.set_result(connection)

    def _pause(self, node_id: int, reason: str) -> None:
        before = self._pauses.get(node_id)
        length_s = FIRST_PAUSE_S if before is None else min(2 * before.length_s, LONGEST_PAUSE_S)
        self._pauses[node_id] = _Pause(reason, length_s, asyncio.get_running_loop().time() + length_s)
