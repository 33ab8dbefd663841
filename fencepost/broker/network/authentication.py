"""Authentication of the connections of a SASL listener: it answers their requests until the client is authenticated.

An `Authentication` takes the place of the dispatcher of its connection. It knows three APIs and looks up every step in
the table of `security/sasl/authentication_state.py`; no request but ApiVersions reaches a handler through it. When the
client is authenticated, its connection gets the dispatcher, which then serves all requests. A timer puts the
`Authentication` back when the client's session expires; so does a client that authenticates again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from fencepost.broker.handlers.api_versions import is_valid
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.authentication_counts import AuthenticationCounts
from fencepost.broker.network.inbox import MINIMUM_FRAME_BYTES
from fencepost.broker.requests.api import APIS, CloseConnection
from fencepost.broker.requests.error_messages import explain
from fencepost.broker.requests.long_polls import LongPolls, ReplyFrame
from fencepost.broker.requests.served import SERVED
from fencepost.broker.security.sasl.authentication_state import TABLE, Reply
from fencepost.broker.security.sasl.authentication_state import AuthenticationEvent as Event
from fencepost.broker.security.sasl.authentication_state import AuthenticationState as State
from fencepost.broker.security.sasl.exchange import Challenge, Exchange, Found, Identified, Refused
from fencepost.broker.security.sasl.failure_delays import FailureDelays
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import EqualLengthFrames, response_frame
from fencepost.protocol.headers import read_client_id, read_request_start, request_header_version
from fencepost.protocol.messages.api_versions import ApiVersionsRequest
from fencepost.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from fencepost.protocol.schema import DecodeError, decode

if TYPE_CHECKING:
    from fencepost.broker.network.connection import Connection, Outcome, RequestDispatcher
    from fencepost.broker.produce.produce_runs import RunResult

log = get_logger(__name__)

EXPIRY = Place("expiry of the session of a client", Policy.REPORT)
EVALUATION = Place("evaluation of a client's token", Policy.REPORT)
DEADLINE = Place("end of the time for an authentication", Policy.REPORT)

MINIMUM_REAUTHENTICATION_INTERVAL_S: Final = 1.0
"""Source: KIP-368; Kafka's KafkaChannel.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS."""
MAXIMUM_OTHER_REQUEST_BYTES: Final = 16 * 1024
"""Longest request of a client that is not known, other than its tokens, that is decoded to be answered."""
MAXIMUM_SESSION_MS: Final = 365 * 24 * 3600 * 1000
"""Longer sessions need no timer."""

Request = TypeVar("Request")
ReplyT = TypeVar("ReplyT")
EncodeReply = Callable[[SaslAuthenticateResponse], ReplyFrame]


class AuthenticationLimits(Protocol):
    """The settings of an authentication, for one listener."""

    @property
    def timeout_ms(self) -> int: ...
    @property
    def max_receive_bytes(self) -> int: ...
    @property
    def failure_delay_ms(self) -> int: ...
    def max_reauth_ms(self, mechanism: str) -> int:
        """The longest time of a session, 0 for no bound."""
        ...


@dataclass(slots=True)
class ListenerAuthentication:
    """State that the authentications of one listener share.

    mechanisms: the enabled ones, each with a function that begins an exchange with a client at an address.
    delays:     those of all listeners.
    counts:     the authentications so far, by outcome.
    """

    listener: str
    mechanisms: Mapping[str, Callable[[str], Exchange]]
    limits: AuthenticationLimits
    delays: FailureDelays
    clock: Clock
    loop: asyncio.AbstractEventLoop
    log_limit: LogLimit
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)

    def of_connection(self, dispatcher: RequestDispatcher) -> Authentication:
        """The authentication of one connection, whose requests the dispatcher serves afterwards."""
        return Authentication(self, dispatcher)


class Authentication:
    """The authentication of one connection, and its dispatcher until it has succeeded.

    dispatcher: serves the requests of clients that are known.
    """

    __slots__ = (
        "_began_again_s",
        "_by_token",
        "_common",
        "_connection",
        "_deadline",
        "_delay_ms",
        "_dispatcher",
        "_ends",
        "_exchange",
        "_expiry",
        "_is_raw",
        "_known_by",
        "_mechanism",
        "_principal",
        "_state",
        "long_polls",
    )

    def __init__(self, common: ListenerAuthentication, dispatcher: RequestDispatcher) -> None:
        self.long_polls: LongPolls = dispatcher.long_polls
        self._common = common
        self._dispatcher = dispatcher
        self._state = State.INITIAL
        self._connection: Connection | None = None
        self._mechanism = ""  # chosen last
        self._is_raw = False
        self._exchange: Exchange | None = None
        self._delay_ms = 0
        self._known_by = ""  # the mechanism of the first authentication
        self._principal: str | None = None
        self._by_token = False
        self._began_again_s: float | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._ends = False  # whether the session does

    @property
    def state(self) -> State:
        return self._state

    @property
    def by_token(self) -> bool:
        """Whether the client authenticated, the last time, by a delegation token."""
        return self._by_token

    def begin(self, connection: Connection, *, spent_s: float = 0.0) -> None:
        """Begin with a connection that has just opened. spent_s: time that has passed."""
        self._connection = connection
        connection.bound_frames(MINIMUM_FRAME_BYTES, self._common.limits.max_receive_bytes)
        self._start_deadline(spent_s)

    def close(self) -> None:
        """Stop the timers, for a connection that is closed."""
        self._connection = None
        self._stop_deadline()
        if self._expiry is not None:
            self._expiry.cancel()

    # RequestDispatcher

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        return None

    def dispatch(self, frame: memoryview, connection: Connection) -> Outcome:
        """Take the next step with a frame. Raises CloseConnection, and nothing else."""
        if self._is_raw:
            return self._evaluate(bytes(frame), _raw_reply)
        try:
            api_key, version, correlation_id = read_request_start(frame)
            if api_key != ApiKey.SASL_AUTHENTICATE and len(frame) > MAXIMUM_OTHER_REQUEST_BYTES:
                raise self._closed(api_key)
            if api_key == ApiKey.API_VERSIONS:
                return self._api_versions(frame, version, connection)
            if api_key == ApiKey.SASL_HANDSHAKE:
                handshake = _decode(SaslHandshakeRequest, frame, version)
                response, is_last = self.handshake(handshake, version)
                reply = None if response is None else response_frame(correlation_id, response, version)
                return self._end(reply) if is_last else reply
            if api_key == ApiKey.SASL_AUTHENTICATE:
                token = _decode(SaslAuthenticateRequest, frame, version).auth_bytes

                def reply_to_token(response: SaslAuthenticateResponse) -> ReplyFrame:
                    return response_frame(correlation_id, response, version)

                return self._evaluate(bytes(token), reply_to_token)
            return self._other(self._step(Event.REQUEST), frame, api_key, version, correlation_id)
        except DecodeError as error:
            raise CloseConnection(f"undecodable request before authentication: {error}") from None

    # Requests

    def _api_versions(self, frame: memoryview, version: int, connection: Connection) -> Outcome:
        is_answered = 0 <= version <= SERVED[ApiKey.API_VERSIONS].maximum_version
        if is_answered:
            request = _decode(ApiVersionsRequest, frame, version)
            is_answered = is_valid(request, version)
        reply = self._step(Event.API_VERSIONS if is_answered else Event.REFUSED_API_VERSIONS)
        if reply is Reply.SERVE:
            return self._dispatcher.dispatch(frame, connection)
        return self._other(reply, frame, ApiKey.API_VERSIONS, version, read_request_start(frame)[2])

    def handshake(self, request: SaslHandshakeRequest, version: int) -> tuple[SaslHandshakeResponse | None, bool]:
        """Choose a mechanism; return the reply, and whether it is the last, which has to leave later. None: no reply.

        Also called for a client that is known. Raises CloseConnection.
        """
        common = self._common
        enabled = list(common.mechanisms)
        now_s = common.loop.time()
        was_known = self._state in (State.AUTHENTICATED, State.EXPIRED)
        began_again_s = self._began_again_s
        is_early = began_again_s is not None and now_s - began_again_s < MINIMUM_REAUTHENTICATION_INTERVAL_S
        if was_known and (is_early or not self._ends):
            event = Event.UNWANTED_HANDSHAKE
        elif request.mechanism not in common.mechanisms:
            event = Event.UNKNOWN_MECHANISM
        elif was_known and request.mechanism != self._known_by:
            event = Event.OTHER_MECHANISM
        else:
            event = Event.HANDSHAKE if version else Event.RAW_HANDSHAKE
        reply = self._step(event)
        if reply is Reply.ACCEPT:
            self._mechanism, self._is_raw = request.mechanism, not version
            connection = self._live_connection()
            self._exchange = common.mechanisms[request.mechanism](connection.client_host)
            if was_known:
                self._began_again_s = now_s
                connection.serve_by(self)
                self._start_deadline()
            if self._is_raw:
                connection.bound_frames(0, common.limits.max_receive_bytes)
            return SaslHandshakeResponse(mechanisms=enabled), False
        if reply is Reply.UNSUPPORTED_MECHANISM:
            self._log_failure("a mechanism that is not enabled", mechanism=request.mechanism[:64])
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled), True
        if reply in (Reply.ILLEGAL_STATE, Reply.ILLEGAL_STATE_OPEN):
            is_last = reply is Reply.ILLEGAL_STATE
            if is_last:
                self._log_failure("SaslHandshake, where a token is expected")
            return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE), is_last
        if reply is Reply.CLOSE_LATER:
            self._log_failure("a mechanism that is not enabled", mechanism=request.mechanism[:64])
            return None, True
        raise self._closed(ApiKey.SASL_HANDSHAKE)

    def handshake_again(
        self, request: SaslHandshakeRequest, version: int
    ) -> SaslHandshakeResponse | Coroutine[Any, Any, SaslHandshakeResponse | None]:
        """Answer SaslHandshake of a client that is known; its handler returns the same. Raises CloseConnection."""
        response, is_last = self.handshake(request, version)
        if response is not None and not is_last:
            return response
        self._live_connection().drain()
        return self._later(response)

    def _other(self, reply: Reply, frame: memoryview, api_key: int, version: int, correlation_id: int) -> Outcome:
        """Answer a request that has no part in an authentication. Raises CloseConnection, DecodeError."""
        if reply is not Reply.ILLEGAL_STATE:
            raise self._closed(api_key)
        try:
            api = APIS.get(api_key)
        except (ImportError, OSError):  # the module is read from files: there may be no descriptor
            api = None
        if api is None or not api.minimum_version <= version <= api.maximum_version:
            raise self._closed(api_key)
        request = _decode(api.request, frame, version)
        self._log_failure(f"{api.name}, where a token is expected")
        response = api.failed(request, ErrorCode.ILLEGAL_SASL_STATE, version)
        explain(response, f"Unexpected {api.name} request during authentication.")
        return self._end(response_frame(correlation_id, response, version))

    def _closed(self, api_key: int) -> CloseConnection:
        name = ApiKey(api_key).name if api_key in ApiKey.__members__.values() else f"API key {api_key}"
        if self._principal is not None:
            self._common.counts.expired += 1
            return CloseConnection(f"{name} when the time of the session was over")
        return CloseConnection(f"{name} before authentication: this listener expects SASL")

    # Tokens

    def _evaluate(self, token: bytes, encode: EncodeReply) -> Outcome:
        reply = self._step(Event.TOKEN)
        if reply is Reply.EVALUATE:
            assert self._exchange is not None, "a mechanism is chosen"
            try:
                found = self._exchange.evaluate(token)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                found = self._unexpected(error)
            if isinstance(found, Challenge | Identified | Refused):
                frame, is_last = self._conclude(found, encode)
                return self._end(frame) if is_last else frame
            return self._start(self._evaluate_slowly(found, encode))
        if reply is Reply.CLOSE_LATER:
            self._log_failure("another mechanism than the first")
            return self._end(None)
        raise self._closed(ApiKey.SASL_AUTHENTICATE)

    async def _evaluate_slowly(self, evaluation: Awaitable[Found], encode: EncodeReply) -> ReplyFrame:
        try:
            found = await evaluation
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            found = self._unexpected(error)
        if self._connection is None or self._state is State.ENDED:
            return None
        frame, is_last = self._conclude(found, encode)
        if not is_last:
            return frame
        self._connection.drain()
        return await self._later(frame)

    def _unexpected(self, error: BaseException) -> Refused:
        """A token that nobody has foreseen is a failure like others: it is counted, delayed, and logged with them."""
        host = "" if self._connection is None else self._connection.client_host
        EVALUATION.failed(error, concerns=network_of(host))
        return Refused(None, "a token whose evaluation failed unexpectedly")

    def _conclude(self, found: Found, encode: EncodeReply) -> tuple[ReplyFrame, bool]:
        """Answer a token; return the reply, and whether it is the last, which has to leave later."""
        if isinstance(found, Challenge):
            self._step(Event.CHALLENGED)
            return encode(SaslAuthenticateResponse(0, None, found.token)), False
        if isinstance(found, Identified):
            principal = f"User:{found.name}"
            if self._principal is None or principal == self._principal:
                self._step(Event.IDENTIFIED)
                self._by_token = found.by_token
                lifetime_ms = self._succeed(principal, found.expires_at_ms)
                return encode(SaslAuthenticateResponse(0, None, found.token, lifetime_ms)), False
            message = (
                "Cannot change principals during re-authentication from "
                f"{self._principal.replace(':', '.', 1)}: {principal.replace(':', '.', 1)}"
            )
            found = Refused(message, "another principal than before", found.name)
            self._step(Event.OTHER_PRINCIPAL)
        else:
            self._step(Event.REFUSED)
        self._log_failure(found.reason, user=found.user, counts=found.is_answered)
        if not found.is_answered:
            return None, True
        text = found.message
        if text is None:
            kind = "authentication" if self._principal is None else "re-authentication"
            text = (
                f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {self._mechanism}"
            )
        return encode(SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, text)), True

    def _succeed(self, principal: str, expires_at_ms: int | None) -> int:
        """Let the connection be served; return the time of the session in ms, 0 for no end."""
        common, connection = self._common, self._live_connection()
        if self._principal is None:
            common.counts.succeeded += 1
        else:
            common.counts.succeeded_again += 1
        self._stop_deadline()
        self._exchange = None
        self._is_raw = False
        self._principal = principal
        self._known_by = self._mechanism
        connection.authenticated_as(principal, self._dispatcher)
        log.debug(
            "authenticated",
            client=connection.client,
            listener=common.listener,
            mechanism=self._mechanism,
            principal=principal,
        )
        lifetimes_ms = [common.limits.max_reauth_ms(self._mechanism)]
        if expires_at_ms is not None:
            lifetimes_ms.append(max(1, expires_at_ms - common.clock.now_ms()))
        lifetime_ms = min(filter(None, lifetimes_ms), default=0)
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        self._ends = lifetime_ms > 0
        if 0 < lifetime_ms <= MAXIMUM_SESSION_MS:
            self._expiry = common.loop.call_later(
                lifetime_ms / 1000, EXPIRY.callback(self._expire, on_failure=lambda _: connection.abort())
            )
        return lifetime_ms

    def _expire(self) -> None:
        self._step(Event.EXPIRY)
        if self._state is State.EXPIRED and self._connection is not None:
            self._connection.serve_by(self)

    # The end of an authentication that failed

    def _end(self, frame: ReplyFrame) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Serve no further request; send the last reply, if there is one, after the delay, and close the connection."""
        self._live_connection().drain()
        return self._start(self._later(frame))

    async def _later(self, reply: ReplyT) -> ReplyT:
        await asyncio.sleep(self._delay_ms / 1000)
        return reply

    def _start(self, work: Coroutine[Any, Any, ReplyFrame]) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Start work; until it ends, no request of the connection is started."""
        connection = self._live_connection()
        task = eager.start(work, self._common.loop)
        if isinstance(task, eager.Finished):
            return task.result

        def disconnected() -> None:
            task.cancel()

        connection.add_close_callback(disconnected)
        task.add_done_callback(lambda _: connection.remove_close_callback(disconnected))
        connection.block_until(task)
        return task

    def _log_failure(
        self, reason: str, *, mechanism: str | None = None, user: str | None = None, counts: bool = True
    ) -> None:
        """Log a failure, and choose its delay.

        counts: whether it makes the delays of the address longer. False if nothing was decided: hundreds of users
        behind one address come at once after a restart, and have to come again soon.
        """
        common, connection = self._common, self._live_connection()
        self._count_failure()
        self._stop_deadline()
        self._delay_ms = common.limits.failure_delay_ms
        if counts:
            self._delay_ms = common.delays.failed(connection.client_host, self._delay_ms, common.clock.now_ms())
        if common.log_limit.allows(network_of(connection.client_host)):
            log.warning(
                "authentication_failed",
                client=connection.client,
                listener=common.listener,
                mechanism=mechanism or self._mechanism or None,
                user=user,
                reason=reason,
                delay_ms=self._delay_ms,
            )

    def _count_failure(self) -> None:
        counts = self._common.counts
        if self._principal is None:
            counts.failed += 1
        else:
            counts.failed_again += 1

    # The table and the time

    def _step(self, event: Event) -> Reply:
        reply, self._state = TABLE[self._state, event]
        return reply

    def _live_connection(self) -> Connection:
        if self._connection is None:
            raise CloseConnection("the connection is closed")
        return self._connection

    def _start_deadline(self, spent_s: float = 0.0) -> None:
        common = self._common
        self._stop_deadline()
        connection = self._live_connection()
        self._deadline = common.loop.call_later(
            max(0.0, common.limits.timeout_ms / 1000 - spent_s),
            DEADLINE.callback(self._overdue, on_failure=lambda _: connection.abort()),
        )

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        self._deadline = None
        if self._step(Event.OVERDUE) is Reply.CLOSE and self._connection is not None:
            self._count_failure()
            self._connection.authentication_overdue(self._common.limits.timeout_ms)


def _raw_reply(response: SaslAuthenticateResponse) -> ReplyFrame:
    """The broker's token as a frame of its own; no reply to a token that is refused."""
    token = response.auth_bytes
    return None if response.error_code else [len(token).to_bytes(4, "big") + token]


def _decode(request: type[Request], frame: memoryview, version: int) -> Request:
    """Decode a request, with its header. Raises DecodeError."""
    key: int = request.api_key  # type: ignore[attr-defined]  # set by @message
    _, position = read_client_id(frame, request_header_version(key, version))
    return decode(request, frame, version, position)
