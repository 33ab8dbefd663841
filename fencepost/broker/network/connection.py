"""One client connection: its inbox, its outbox, and the table of states that joins them.

Requests are pipelined: the next one starts while earlier ones wait for the disk. Bounds put backpressure on the client:
each is a `Hold`, and a connection with a hold reads nothing and starts nothing (`connection_state.py`).
Every event runs as one step: it changes the state, and at its end `Connection._settle` carries out the state. No
other function starts requests that were held back, stops or resumes reading, or closes the transport in order.
Nothing that a client sends raises into the event loop: an undecodable request closes the connection, and the reason is
logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from fencepost.broker.kernel.addresses import canonical_host
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.connection_state import (
    CLOSED,
    CLOSING,
    DRAINING,
    REPLIES,
    RUNNING,
    TABLE,
    ConnectionEvent,
    ConnectionState,
    Hold,
)
from fencepost.broker.network.foreign_protocols import LONGEST_START_BYTES, foreign_protocol
from fencepost.broker.network.inbox import MIN_PIPELINED, MINIMUM_FRAME_BYTES, Inbox
from fencepost.broker.network.outbox import ConnectionLimits, InFlight, Outbox
from fencepost.broker.network.socket_sender import new_sender
from fencepost.broker.requests.api import UNKNOWN_SOFTWARE, ClientAuthentication, CloseConnection
from fencepost.broker.requests.long_polls import PendingReply, ReplyFrame
from fencepost.broker.requests.request_cache import RequestCache
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.protocol.primitives import DecodeError

if TYPE_CHECKING:
    from fencepost.broker.network.receive_buffer import BufferPool
    from fencepost.broker.network.socket_sender import SendfileSockets
    from fencepost.broker.produce.produce_runs import RunResult
    from fencepost.broker.requests.long_polls import LongPolls
    from fencepost.protocol.framing import EqualLengthFrames

SERVING = Place("serving of a connection", Policy.REPORT)
CLOSE = Place("close of a connection", Policy.REPORT)

Outcome = ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply
"""A reply, or the dispatcher's placeholder for one that is not ready."""
_PENDING_TYPES: Final = (PendingReply, asyncio.Future)


class RequestDispatcher(Protocol):
    """Starts the requests of frames; `Dispatcher` is one. Both methods raise CloseConnection."""

    long_polls: LongPolls

    def dispatch(self, frame: memoryview, connection: Connection) -> Outcome: ...
    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None: ...


class ConnectionAuthentication(RequestDispatcher, ClientAuthentication, Protocol):
    """Takes the dispatcher's place in a connection until its client is known; `Authentication` is one."""

    def begin(self, connection: Connection, *, spent_s: float) -> None: ...
    def close(self) -> None: ...


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    def connection_opened(self, connection: Connection) -> bool:
        """Register a connection; returns whether it stays open for now."""

    def connection_closed(self, connection: Connection) -> None: ...

    def connection_refused(self, connection: Connection, reason: str) -> None:
        """Log that a connection is about to be closed because of its client's bytes or behaviour."""


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection, and the user of the memory that all connections share.

    principal:       the client's; code that changes it clears the request cache, which keeps verdicts.
    authentication:  the client's, on a SASL listener.
    request_cache:   the decoded requests that this client repeats.
    last_activity_s: loop time of the last event: bytes that arrived, or a reply.
    accepted_s:      loop time at which it was accepted, before a TLS handshake.
    """

    _transport: asyncio.Transport
    _outbox: Outbox

    def __init__(
        self,
        connection_id: int,
        *,
        dispatcher: RequestDispatcher,
        owner: ConnectionOwner,
        limits: ConnectionLimits,
        pool: BufferPool,
        sendfile_sockets: SendfileSockets,
        loop: asyncio.AbstractEventLoop,
        authentication: ConnectionAuthentication | None = None,
    ) -> None:
        self.connection_id = connection_id
        self.principal = ANONYMOUS
        self.authentication = authentication
        self.client_host, self.client_port = "", 0
        self.client_software = UNKNOWN_SOFTWARE
        self.accepted_s = 0.0
        self.last_activity_s = 0.0
        self.request_cache = RequestCache()
        self._dispatcher = dispatcher if authentication is None else authentication
        self._owner = owner
        self._limits = limits
        self._max_in_flight = limits.fencepost_connection_max_in_flight
        self._loop = loop
        self._long_polls = dispatcher.long_polls
        self._memory = pool.memory
        self._sendfile_sockets = sendfile_sockets
        self._inbox = Inbox(pool, limits.socket_request_max_bytes)
        if authentication is not None:
            self._inbox.count_apart(self)
        self._state: ConnectionState = RUNNING
        self._holds: set[Hold] = set()
        self._blocking_count = 0  # requests that hold others back
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._close_callbacks: dict[Callable[[], None], None] = {}
        self._is_reading = True
        self._is_in_step = False

    # For the server, the dispatcher and handlers

    @property
    def in_flight_count(self) -> int:
        """Requests that are not answered yet."""
        return len(self._outbox.in_flight)

    @property
    def client(self) -> str:
        """The client's address and port, for the log."""
        return f"{self.client_host}:{self.client_port}"

    @property
    def is_open(self) -> bool:
        return self._state is not CLOSED

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Add a callback for the end of the connection, for a handler that waits only for this client."""
        self._close_callbacks[callback] = None

    def remove_close_callback(self, callback: Callable[[], None]) -> None:
        self._close_callbacks.pop(callback, None)

    def keep_frame_until(self, task: asyncio.Future[Any]) -> None:
        """Pin the frame that is being dispatched until a task is done: the task uses slices of it."""
        buffer = self._inbox.pin_frame()
        task.add_done_callback(
            SERVING.callback(lambda _: self._inbox.release(buffer), on_failure=lambda _: self.abort())
        )

    def block_until(self, task: asyncio.Future[Any]) -> None:
        """Start no further request until a task is done: later requests must not overtake it."""
        self._blocking_count += 1
        task.add_done_callback(self._unblock)
        self._step(self._hold, Hold.REQUEST)

    @SERVING.catches_itself
    def _unblock(self, _: asyncio.Future[Any]) -> None:
        self._blocking_count -= 1
        if not self._blocking_count:
            self._step(self._release, Hold.REQUEST)

    def mute(self, duration_s: float) -> None:
        """Start no further request for a time: the client has used more than its quota (KIP-219)."""
        if self._state is CLOSED:
            return
        until_s = self._loop.time() + duration_s
        if self._unmute_timer is not None:
            if self._unmute_timer.when() >= until_s:
                return
            self._unmute_timer.cancel()
        self._unmute_timer = self._loop.call_at(until_s, self._unmute)
        self._step(self._hold, Hold.QUOTA)

    @SERVING.catches_itself
    def _unmute(self) -> None:
        self._unmute_timer = None
        self._step(self._release, Hold.QUOTA)

    def drain(self) -> None:
        """Read no further requests; close when everything in flight is answered."""
        self._step(self._handle, ConnectionEvent.DRAIN)

    def bound_frames(self, minimum_bytes: int, maximum_bytes: int) -> None:
        """Set the bounds of frames that are not started yet; no frame may be longer than on other connections."""
        self._inbox.bound_frames(minimum_bytes, min(maximum_bytes, self._limits.socket_request_max_bytes))

    def serve_by(self, dispatcher: RequestDispatcher) -> None:
        """Start requests through another dispatcher, from the next frame on."""
        self._dispatcher = dispatcher

    def authenticated_as(self, principal: str, dispatcher: RequestDispatcher) -> None:
        """Serve a client whose principal is known, from the next frame on."""
        self.principal = principal
        self.request_cache.clear()
        self._inbox.count_apart(None)
        self._inbox.bound_frames(MINIMUM_FRAME_BYTES, self._limits.socket_request_max_bytes)
        self.serve_by(dispatcher)

    def authentication_overdue(self, timeout_ms: int) -> None:
        """Close the connection of a client that has not authenticated in time."""
        if self.is_open:
            self._owner.connection_refused(self, f"the client has not authenticated within {timeout_ms} ms")
            self._step(self._handle, ConnectionEvent.OVERDUE)

    def abort(self) -> None:
        """Close at once."""
        self._handle(ConnectionEvent.ABORT)
        self._transport.abort()

    def transport_extra(self, name: str) -> Any:
        """A property of the transport, such as `ssl_object`; None if it has none of this name."""
        return self._transport.get_extra_info(name)

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface but not the base class.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.client_host, self.client_port = canonical_host(peer[0]), peer[1]
        self.last_activity_s = self._loop.time()
        self.accepted_s = self.accepted_s or self.last_activity_s
        limits, memory = self._limits, self._memory
        write_buffer_bytes = memory.connection_opened(limits.fencepost_connection_write_buffer_bytes)
        transport.set_write_buffer_limits(high=write_buffer_bytes)
        sender = new_sender(transport, self._sendfile_sockets, self._socket_writable)
        self._outbox = Outbox(sender, self, memory, limits, write_buffer_bytes)
        if self.authentication is not None:
            self.authentication.begin(self, spent_s=self._loop.time() - self.accepted_s)
        if not self._owner.connection_opened(self):
            self.abort()
        elif self.authentication is not None:
            memory.strangers.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._inbox.writable_memory()

    @SERVING.catches_itself
    def buffer_updated(self, nbytes: int) -> None:
        self.last_activity_s = self._loop.time()
        self._is_in_step = True
        try:
            if self._state is not RUNNING:
                self._inbox.received(nbytes)
                self._inbox.release_if_idle()
            elif self._outbox.in_flight:
                self._inbox.received(nbytes)
                self._start_arrived()
            else:
                frame = self._inbox.received_frame(nbytes)
                if frame is not None:
                    self._start_single(frame)
                    return
                self._start_arrived()
            self._settle()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)
        finally:
            self._is_in_step = False

    def eof_received(self) -> bool:
        # Release the buffer that this end was read into: clients may leave by thousands, and need not have one each.
        self._inbox.release_if_idle()
        # A half-closed client could still read; but Kafka clients close both ways, so no client would take the replies.
        return False

    def pause_writing(self) -> None:
        self._step(self._outbox.set_blocked, True)

    def resume_writing(self) -> None:
        self._step(self._outbox.set_blocked, False)

    def _socket_writable(self) -> None:
        self._step(self._outbox.set_blocked, False)  # the transport's buffer has been empty meanwhile

    def connection_lost(self, exc: Exception | None) -> None:
        self._handle(ConnectionEvent.ABORT)
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
        if self.authentication is not None:
            self.authentication.close()
        self.request_cache.clear()
        callbacks, self._close_callbacks = self._close_callbacks, {}
        forget = partial(self._memory.connection_closed, self)
        clean_ups: tuple[Callable[[], None], ...] = (self._inbox.close, self._outbox.close, forget, *callbacks)
        for clean_up in clean_ups:
            CLOSE.attempt(clean_up, concerns=self.client_host)
        self._owner.connection_closed(self)

    # MemoryUser

    @property
    def arrived_bytes(self) -> int:
        return self._inbox.arrived_bytes

    @property
    def is_blocked_by_broker(self) -> bool:
        return Hold.QUOTA in self._holds or Hold.REQUEST in self._holds

    def memory_granted(self, byte_count: int) -> None:
        """Read on with the granted memory. Raises nothing: called while another connection releases memory."""
        self._inbox.memory_granted(byte_count)
        self._step(self._release, Hold.MEMORY)

    def close_for(self, reason: str) -> None:
        """Log the reason and close at once."""
        self._owner.connection_refused(self, reason)
        self.abort()

    # Steps and states

    @SERVING.catches_itself
    def _step(self, act: Callable[..., bool | None], *arguments: Any) -> None:
        """Run an event, then settle; an event within another leaves that to the outer one. Raises nothing.

        act: returns True if it leaves nothing to settle while the connection is RUNNING.
        """
        if self._state is CLOSED:
            return
        is_nested, self._is_in_step = self._is_in_step, True
        try:
            self.last_activity_s = self._loop.time()
            if not (act(*arguments) and self._state is RUNNING) and not is_nested:
                self._settle()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)
        finally:
            self._is_in_step = is_nested

    def _handle(self, event: ConnectionEvent) -> None:
        self._state = TABLE[event][self._state]

    def _hold(self, reason: Hold) -> None:
        self._holds.add(reason)
        self._handle(ConnectionEvent.HELD)

    def _release(self, reason: Hold) -> None:
        self._holds.discard(reason)
        if not self._holds:
            self._handle(ConnectionEvent.RELEASED)

    def _settle(self) -> None:
        """Carry out the state: send, start requests that were held back, read or not, close."""
        if self._state is CLOSED:
            return
        self._flush()
        if self._state is RUNNING:
            if self._is_reading:
                return
            self._start_arrived()
            self._flush()
        transport = self._transport
        if self._is_reading is not (self._state is RUNNING) and not transport.is_closing():
            self._is_reading = not self._is_reading
            (transport.resume_reading if self._is_reading else transport.pause_reading)()
        if self._state is DRAINING and not self._outbox.in_flight:
            self._handle(ConnectionEvent.ANSWERED)
        if self._state is CLOSING and not self._outbox.has_unsent:
            self._handle(ConnectionEvent.SENT)
            transport.close()

    def _flush(self) -> None:
        """Send the replies that are ready; the number of the others decides whether they hold requests back."""
        outbox = self._outbox
        outbox.flush()
        if outbox.is_full:
            self._hold(REPLIES)
        elif REPLIES in self._holds:
            self._release(REPLIES)

    # Unexpected exceptions

    def _failed(self, error: BaseException) -> None:
        """Close this connection, whose state is unknown after an unexpected exception; the others are served."""
        SERVING.failed(error, concerns=self.client_host, on_failure=lambda _: self.abort())

    # Requests

    def _start_single(self, frame: memoryview) -> None:
        """Start a request that arrived alone, with no other in flight, and send its reply if it is ready at once.

        `_start_arrived` and `_settle` do the same for all other cases.
        """
        reply: ReplyFrame = None
        try:
            outcome = self._dispatcher.dispatch(frame, self)
            if isinstance(outcome, _PENDING_TYPES):
                self._wait_for(outcome)
            else:
                reply = outcome
            if self._long_polls.woken_polls:
                self._long_polls.answer_first_woken()
        except CloseConnection as reason:
            self._refuse(str(reason))
        if self._inbox.buffer is not None:
            self._inbox.release_if_idle()
        outbox = self._outbox
        is_all_sent = outbox.send(reply) if reply is not None else not (outbox.is_full or outbox.has_unsent)
        if not is_all_sent or self._state is not RUNNING:
            self._settle()

    def _start_arrived(self) -> None:
        """Start the whole frames that have arrived, in order, until a bound is reached."""
        inbox = self._inbox
        try:
            self._start_frames()
            if self._long_polls.woken_polls:
                self._long_polls.answer_first_woken()
        except CloseConnection as reason:
            self._refuse(str(reason))
        except DecodeError as reason:
            other = foreign_protocol(inbox.peek(LONGEST_START_BYTES))
            self._refuse(str(reason) if other is None else f"the client speaks {other}, and this listener does not")
        inbox.release_if_idle()
        if (inbox.wanted_bytes or inbox.has_memory) and not inbox.claim_memory(self):
            self._hold(Hold.MEMORY)

    def _start_frames(self) -> None:
        """Start frames until no whole one is left or a hold keeps them back. A run of requests of one shape is started
        together, and in flight as one. Raises CloseConnection, DecodeError."""
        inbox, outbox = self._inbox, self._outbox
        turn_count = self._max_in_flight  # may start before other connections have their turn
        look_count = turn_count  # if runs are short, the same frames are not compared again and again
        while turn_count > 0 and self._state is RUNNING:
            frames = inbox.equal_frames(min(look_count, turn_count)) if look_count else None
            run = None if frames is None else self._dispatcher.dispatch_run(frames, self)
            if frames is not None and run is not None:
                inbox.skip(run.requests_count * frames.frame_bytes)
                turn_count -= run.requests_count
                look_count = 2 * run.requests_count if run.requests_count >= MIN_PIPELINED else 0
                outcome: Outcome = run.replies
            else:
                frame = inbox.take_frame()
                if frame is None:
                    return
                turn_count -= 1
                look_count = 0
                outcome = self._dispatcher.dispatch(frame, self)
            if isinstance(outcome, _PENDING_TYPES):
                self._wait_for(outcome)
            elif outcome is not None:
                outbox.add(outcome)
            if outbox.is_full:
                self._hold(REPLIES)
            if inbox.is_empty:
                return
        # Even if nothing else holds them back at the end of this step.
        self._hold(Hold.TURN)
        self._loop.call_soon(self._end_turn)

    @SERVING.catches_itself
    def _end_turn(self) -> None:
        self._step(self._release, Hold.TURN)

    def _wait_for(self, outcome: asyncio.Future[ReplyFrame] | PendingReply) -> None:
        in_flight = self._outbox.expect()
        if isinstance(outcome, PendingReply):
            cancel = outcome.cancel

            def replied(reply: ReplyFrame, error: BaseException | None) -> None:
                self.remove_close_callback(cancel)
                self._replied(in_flight, reply, error)

            outcome.on_reply = replied
            self.add_close_callback(cancel)
        else:
            outcome.add_done_callback(partial(self._finished, in_flight))

    @SERVING.catches_itself
    def _finished(self, in_flight: InFlight, task: asyncio.Future[ReplyFrame]) -> None:
        """Take the reply of a request whose task is done."""
        if task.cancelled():
            error: BaseException | None = CloseConnection("the request was cancelled")
        else:
            error = task.exception()
        self._replied(in_flight, task.result() if error is None else None, error)

    def _replied(self, in_flight: InFlight, reply: ReplyFrame, error: BaseException | None) -> None:
        """Take the reply of a request that had to wait. Raises nothing."""
        if error is None:
            self._step(self._outbox.fulfil, in_flight, reply)
        else:
            self._step(self._unanswered, error)

    def _unanswered(self, error: BaseException) -> None:
        """Close the connection. The dispatcher answers failures; an error here means that there is no reply."""
        if not isinstance(error, CloseConnection):
            SERVING.failed(error, concerns=self.client_host)
        self._refuse(str(error))

    def _refuse(self, reason: str) -> None:
        """Close the connection once earlier replies are sent, as Kafka does."""
        if self._state in (CLOSING, CLOSED):
            return
        self._owner.connection_refused(self, reason)
        self._handle(ConnectionEvent.CLOSE)
