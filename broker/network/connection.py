"""One client connection: bytes to frames, frames to the dispatcher in order, replies back in the same order.

Requests are pipelined: the next one starts while earlier ones wait for the disk. Four bounds put backpressure on the
client: requests in flight, bytes of replies that wait to be sent, the frame size, and the memory that the large
requests of all connections share.
File slices of a reply are read as they are sent.
Nothing that a client sends raises into the event loop: an undecodable request closes the connection, and the reason is
logged.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.partial_send import PartialSend
from fencepost.broker.network.receive_buffer import Receiver
from fencepost.broker.requests.api import CloseConnection
from fencepost.broker.requests.long_polls import PendingReply, ReplyChunks, ReplyFrame
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_slice import FileSlice, is_mapped
from fencepost.protocol.primitives import Buffer, DecodeError

if TYPE_CHECKING:
    from fencepost.broker.network.receive_buffer import BufferPool
    from fencepost.broker.network.reply_memory import ReplyMemory
    from fencepost.broker.network.request_memory import RequestMemory
    from fencepost.broker.network.sendfile_transfer import SendfileTransfer, SendfileTransfers
    from fencepost.broker.request_cache.produce_runs import RunResult
    from fencepost.broker.request_cache.request_cache import RequestCache
    from fencepost.broker.requests.long_polls import LongPolls
    from fencepost.protocol.framing import EqualLengthFrames

SERVING = Place("serving of a connection", Policy.REPORT)
CLOSE = Place("close of a connection", Policy.REPORT)

MINIMUM_FRAME_BYTES = 8  # api key, api version, correlation id

MIN_PIPELINED = 4
"""At least this many requests of one length must be buffered before the connection tries to start them together."""

_PENDING_TYPES: Final = (PendingReply, asyncio.Future)
"""What the dispatcher returns in place of a reply that is not ready."""


class RequestDispatcher(Protocol):
    """Starts the requests of frames; `Dispatcher` is one. Both methods raise CloseConnection."""

    long_polls: LongPolls

    def dispatch(
        self, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply: ...
    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None: ...


class ConnectionLimits(Protocol):
    """The settings that bound a connection; `Settings` has them."""

    @property
    def socket_request_max_bytes(self) -> int: ...
    @property
    def fencepost_connection_max_in_flight(self) -> int: ...
    @property
    def fencepost_connection_write_buffer_bytes(self) -> int: ...
    @property
    def fencepost_connection_write_stall_ms(self) -> int: ...


class ConnectionOwner(Protocol):
    """The server, as its connections see it."""

    def connection_opened(self, connection: Connection) -> bool:
        """Register a connection; returns whether it stays open for now."""
        ...

    def connection_closed(self, connection: Connection) -> None: ...

    def connection_refused(self, connection: Connection, reason: str) -> None:
        """Log that a connection is about to be closed because of what its client sent or did."""
        ...


class _InFlight:
    """A request whose reply has not been handed to the transport."""

    __slots__ = ("is_done", "reply")

    def __init__(self, reply: ReplyFrame = None, *, is_done: bool = False) -> None:
        self.reply = reply
        self.is_done = is_done


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection.

    request_caches:  the dispatcher's request caches for this client, by API key.
    in_flight_count: requests that are not answered yet.
    last_activity_s: loop time of the last byte that arrived or the last reply that left.
    """

    def __init__(
        self,
        connection_id: int,
        *,
        dispatcher: RequestDispatcher,
        owner: ConnectionOwner,
        limits: ConnectionLimits,
        pool: BufferPool,
        sendfile_transfers: SendfileTransfers,
        reply_memory: ReplyMemory | None = None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.connection_id = connection_id
        self.client_host = ""
        self.client_port = 0
        self.last_activity_s = 0.0
        self.request_caches: dict[int, RequestCache] = {}
        self._dispatcher = dispatcher
        self._owner = owner
        self._limits = limits
        self._loop = loop
        self._long_polls = dispatcher.long_polls
        self._receiver = Receiver(pool)
        self._request_memory: RequestMemory | None = pool.memory
        self._awaits_memory = False  # for the arriving frame; nothing is read until it is granted
        self._has_memory = False  # for that frame
        self._reply_memory = reply_memory
        self._mapped_unsent_bytes = 0  # of files, in the transport's buffer: not this process's own memory
        self._waiting_reply_bytes = 0  # of replies in `_in_flight` that are done
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._sendfile_transfers = sendfile_transfers
        self._sendfile_transfer: SendfileTransfer | None = None  # a reply that bypasses the transport
        self._may_use_sendfile = False
        # Chunks of replies with nothing in flight before them: `_in_flight` has the later ones.
        self._ready: list[Any] = []
        self._ready_bytes = 0
        self._in_flight: deque[_InFlight] = deque()
        self._write_buffer_bytes = limits.fencepost_connection_write_buffer_bytes
        self._max_in_flight = limits.fencepost_connection_max_in_flight
        self._maximum_frame_bytes = limits.socket_request_max_bytes
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._is_dispatching = False  # inside _dispatch_frames: replies are sent together after it
        self._has_unstarted_frames = False  # frames wait for the loop's next turn
        self._is_draining = False
        self._is_blocked = True  # see _update_blocked
        self._block_count = 0  # requests that must be answered before others are started
        self._partial_send: Iterator[list[Buffer]] | None = None  # the unsent portions of a reply
        self._is_closing = False  # closes as soon as that is sent
        self._stalled_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_callbacks: dict[Callable[[], None], None] = {}
        self._unmute_timer: asyncio.TimerHandle | None = None

    # For the server, the dispatcher and handlers

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Add a callback for the end of the connection, for a handler that waits only for this client."""
        self._close_callbacks[callback] = None

    def remove_close_callback(self, callback: Callable[[], None]) -> None:
        self._close_callbacks.pop(callback, None)

    def keep_frame_until(self, task: asyncio.Future[Any]) -> None:
        """Pin the frame that is being dispatched until a task is done: the task uses slices of it."""
        buffer = self._receiver.pin_frame()
        task.add_done_callback(SERVING.callback(lambda _: self._receiver.release(buffer), on_failure=self._abort_for))

    def block_until(self, task: asyncio.Future[Any]) -> None:
        """Start no further request until a task is done: later requests must not overtake it."""
        self._block_count += 1
        task.add_done_callback(self._unblock)
        self._update_blocked()
        self._pause_or_resume_reading()

    @SERVING.handles
    def _unblock(self, _: asyncio.Future[Any]) -> None:
        try:
            self._block_count -= 1
            self._update_blocked()
            if self._transport is not None:
                self._send_and_resume()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def mute(self, duration_s: float) -> None:
        """Start no further request for a time: the client has used more than its quota (KIP-219)."""
        if self._transport is None:
            return
        until_s = self._loop.time() + duration_s
        if self._unmute_timer is not None:
            if self._unmute_timer.when() >= until_s:
                return
            self._unmute_timer.cancel()
        self._unmute_timer = self._loop.call_at(until_s, self._unmute)
        self._update_blocked()
        self._pause_or_resume_reading()

    def drain(self) -> None:
        """Read no further requests; close when everything in flight is answered."""
        self._is_draining = True
        self._update_blocked()
        self._pause_or_resume_reading()
        if not self._in_flight:
            self.close()

    def close(self) -> None:
        """Close once the transport's buffer and the partial send, if any, are sent."""
        if self._transport is not None:
            if self._partial_send is None:
                self._transport.close()
            self._is_closing = True
            self._update_blocked()

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()
            self._update_blocked()

    # asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the interface but not the base class.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        if peer:
            self.client_host, self.client_port = peer[0], peer[1]
        self._descriptor = _descriptor_of(transport)
        self._may_use_sendfile = self._descriptor >= 0 and _is_on_this_machine(transport)
        self.last_activity_s = self._loop.time()
        if self._reply_memory is not None:
            self._write_buffer_bytes = self._reply_memory.connection_opened(self._write_buffer_bytes)
        transport.set_write_buffer_limits(high=self._write_buffer_bytes)
        if not self._owner.connection_opened(self):
            transport.abort()
        self._update_blocked()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.writable_memory()

    @SERVING.handles
    def buffer_updated(self, nbytes: int) -> None:
        self.last_activity_s = self._loop.time()
        receiver = self._receiver
        try:
            if self._in_flight or self._is_blocked:
                receiver.received(nbytes)
            else:
                frame = receiver.received_frame(nbytes, MINIMUM_FRAME_BYTES, self._maximum_frame_bytes)
                if frame is not None:
                    self._dispatch_single(frame)
                    return
            self._dispatch_pipeline()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def eof_received(self) -> bool:
        # Release the buffer that this end was read into: clients may leave by thousands, and need not have one each.
        self._receiver.release_if_idle()
        # A half-closed client could still read; but Kafka clients close both ways, so no client would take the replies.
        return False

    @SERVING.handles
    def pause_writing(self) -> None:
        try:
            self._is_writing_paused = True
            self._update_blocked()
            self._pause_or_resume_reading()
            if self._transport is not None and self._stall_timer is None:
                self._watch_for_stall(self._transport)
            self._count_waiting_replies()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    @SERVING.handles
    def resume_writing(self) -> None:
        try:
            self._is_writing_paused = False
            self._mapped_unsent_bytes = 0
            self._update_blocked()
            self._count_waiting_replies()
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._stall_timer = None
            self._send_and_resume()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._update_blocked()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
            self._unmute_timer = None
        self._partial_send = None
        self._ready = []
        self._in_flight.clear()
        self.request_caches.clear()  # they refer to this connection
        callbacks, self._close_callbacks = self._close_callbacks, {}
        for clean_up in (self._receiver.close, self._end_sendfile, self._leave_memories, *callbacks):
            CLOSE.attempt(clean_up, concerns=self._client)
        self._owner.connection_closed(self)

    def _leave_memories(self) -> None:
        if self._request_memory is not None:
            self._request_memory.connection_closed(self)
        if self._reply_memory is not None:
            self._reply_memory.connection_closed(self)

    # MemoryUser and ReplyMemoryUser: memory that all connections share

    @property
    def arrived_bytes(self) -> int:
        return self._receiver.arrived_bytes

    @property
    def is_blocked_by_broker(self) -> bool:
        return self._unmute_timer is not None or self._block_count > 0

    @SERVING.handles
    def memory_granted(self, byte_count: int) -> None:
        """Read on with the granted memory. Raises nothing: called while another connection releases memory."""
        try:
            self._awaits_memory = False
            self._has_memory = True
            self._receiver.reserve(byte_count)
            self._pause_or_resume_reading()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def close_for(self, reason: str) -> None:
        self._owner.connection_refused(self, reason)
        self.abort()

    def _reserve_memory(self, memory: RequestMemory) -> None:
        """Reserve the memory that the arriving frame needs; called after frames were started."""
        receiver = self._receiver
        if self._has_memory and not receiver.wanted_bytes:
            self._has_memory = False
            memory.arrived(self)
        if self._has_memory or self._awaits_memory or self._transport is None:
            return
        byte_count = receiver.unreserved_bytes()
        if byte_count:
            if memory.reserve(self, byte_count):
                self._has_memory = True
                receiver.reserve(byte_count)
            else:
                self._awaits_memory = True

    # Unexpected exceptions

    @property
    def _client(self) -> str:
        return f"{self.client_host}:{self.client_port}"

    def _failed(self, error: BaseException) -> None:
        """Close this connection, whose state is unknown after an unexpected exception; the others are served."""
        SERVING.failed(error, concerns=self._client, on_failure=self._abort_for)

    def _abort_for(self, _: BaseException) -> None:
        self.abort()

    # Requests

    def _dispatch_single(self, frame: memoryview) -> None:
        """Start a request that arrived alone, with no other in flight, and send its reply if it is ready at once.

        `_dispatch_pipeline` does the same for all other cases.
        """
        long_polls = self._long_polls
        reply: ReplyChunks | None = None
        self._is_dispatching = True
        try:
            outcome = self._dispatcher.dispatch(frame, self)
            if isinstance(outcome, _PENDING_TYPES):
                self._wait_for(outcome)
            else:
                reply = outcome
            if long_polls.woken_polls:
                long_polls.answer_first_woken()
        except CloseConnection as reason:
            self._refuse(str(reason))
        finally:
            self._is_dispatching = False
        if self._receiver.buffer is not None:
            self._receiver.release_if_idle()
        if reply is None:
            self._send_ready()
        else:
            transport = self._transport
            if transport is not None and not transport.is_closing():
                self._send_at_once(transport, reply)
        if self._in_flight or self._is_blocked or self._is_reading_paused:
            self._pause_or_resume_reading()

    def _dispatch_pipeline(self) -> None:
        """Start the whole frames that have arrived, as far as the bounds allow; then send the ready replies in one
        write."""
        self._is_dispatching = True
        has_more = False
        try:
            has_more = self._dispatch_frames()
            if self._long_polls.woken_polls:
                self._long_polls.answer_first_woken()
        except CloseConnection as reason:
            self._refuse(str(reason))
        finally:
            self._is_dispatching = False
        receiver = self._receiver
        receiver.release_if_idle()
        if (receiver.wanted_bytes or self._has_memory) and self._request_memory is not None:
            self._reserve_memory(self._request_memory)
        self._send_ready()
        if self._waiting_reply_bytes and not self._is_writing_paused:
            self._recount_waiting_replies()  # earlier replies may have come in this step, and all have left
        if has_more and self._may_start():
            # Other connections are served before the rest of a long pipeline.
            self._has_unstarted_frames = True
            self._loop.call_soon(self._dispatch_remaining)
        if self._in_flight or has_more or self._is_blocked or self._is_reading_paused or self._awaits_memory:
            self._pause_or_resume_reading()

    @SERVING.handles
    def _dispatch_remaining(self) -> None:
        try:
            self._has_unstarted_frames = False
            if self._transport is not None:
                self._dispatch_pipeline()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def _dispatch_frames(self) -> bool:
        """Start frames until no whole one is left (False) or a bound is reached (True). Raises CloseConnection."""
        receiver = self._receiver
        in_flight = self._in_flight
        max_in_flight = self._max_in_flight
        maximum_bytes = self._maximum_frame_bytes
        started_count = 0
        look_count = max_in_flight
        may_be_run = True
        while started_count < max_in_flight:
            if self._is_blocked or len(in_flight) >= max_in_flight:
                return True
            if may_be_run:
                run_count = self._dispatch_run(min(look_count, max_in_flight - started_count))
                # Where runs are short, the same frames are not compared again and again.
                look_count = 2 * run_count
                may_be_run = run_count >= MIN_PIPELINED
                if run_count:
                    started_count += run_count
                    if receiver.is_empty:
                        return False
                    continue
            try:
                frame = receiver.take_frame(MINIMUM_FRAME_BYTES, maximum_bytes)
            except DecodeError as error:
                raise CloseConnection(str(error)) from None
            if frame is None:
                return False
            self._dispatch_frame(frame)
            started_count += 1
            if receiver.is_empty:
                return False
        return True

    def _dispatch_run(self, max_count: int) -> int:
        """Start several requests of one shape together and return their number. They are in flight as one.

        Raises CloseConnection.
        """
        receiver = self._receiver
        frames = receiver.equal_frames(MIN_PIPELINED, max_count, MINIMUM_FRAME_BYTES, self._maximum_frame_bytes)
        if frames is None:
            return 0
        run = self._dispatcher.dispatch_run(frames, self)
        if run is None:
            return 0
        receiver.skip(run.requests_count * frames.frame_bytes)
        if isinstance(run.replies, asyncio.Future):
            self._wait_for(run.replies)
        elif run.replies is not None:
            self._queue_reply(run.replies, sum(map(len, run.replies)))
        return run.requests_count

    def _may_start(self) -> bool:
        return not self._is_blocked and len(self._in_flight) < self._max_in_flight

    def _update_blocked(self) -> None:
        """Recompute whether new requests may start, apart from the bound on those in flight.

        To be called whenever one of the conditions changes.
        """
        transport = self._transport
        self._is_blocked = (
            transport is None
            or self._is_writing_paused
            or self._is_draining
            or self._is_closing
            or self._unmute_timer is not None
            or self._block_count > 0
            or self._waiting_reply_bytes >= self._write_buffer_bytes
            or transport.is_closing()
        )

    def _dispatch_frame(self, frame: memoryview) -> None:
        """Start one request. Raises CloseConnection."""
        outcome = self._dispatcher.dispatch(frame, self)
        if outcome is None:
            return
        if isinstance(outcome, _PENDING_TYPES):
            self._wait_for(outcome)
            return
        reply_bytes = sum(map(len, outcome))
        self._queue_reply(outcome, reply_bytes)
        # Replies of one read go out together, but a large one is sent at once: it may fill the socket.
        if reply_bytes >= self._write_buffer_bytes:
            self._send_ready()

    def _queue_reply(self, reply: ReplyChunks, reply_bytes: int) -> None:
        """Queue a reply that was ready at once: behind the requests in flight, else for the next `_send_ready`."""
        if self._in_flight or self._ready_bytes >= self._write_buffer_bytes:
            self._in_flight.append(_InFlight(reply, is_done=True))
            self._count_waiting_reply(reply)
        else:
            self._ready += reply
            self._ready_bytes += reply_bytes

    def _wait_for(self, outcome: PendingReply | asyncio.Future[ReplyFrame]) -> None:
        in_flight = _InFlight()
        self._in_flight.append(in_flight)
        if isinstance(outcome, PendingReply):
            self._reply_when_polled(in_flight, outcome)
        else:
            outcome.add_done_callback(partial(self._finished, in_flight))

    @SERVING.handles
    def _finished(self, in_flight: _InFlight, task: asyncio.Future[ReplyFrame]) -> None:
        """Take the reply of a request whose task is done."""
        if task.cancelled():
            error: BaseException | None = CloseConnection("the request was cancelled")
        else:
            error = task.exception()
        self._replied(in_flight, task.result() if error is None else None, error)

    def _reply_when_polled(self, in_flight: _InFlight, pending: PendingReply) -> None:
        def replied(reply: ReplyFrame, error: BaseException | None) -> None:
            self.remove_close_callback(pending.cancel)
            self._replied(in_flight, reply, error)

        pending.on_reply = replied
        self.add_close_callback(pending.cancel)

    def _replied(self, in_flight: _InFlight, reply: ReplyFrame, error: BaseException | None) -> None:
        """Take the reply of a request that had to wait, and send it if it is the next. Raises nothing."""
        if self._transport is None:
            return
        try:
            if error is not None:
                # The dispatcher answers failures; an error here means that there is no reply.
                if not isinstance(error, CloseConnection):
                    SERVING.failed(error, concerns=self._client)
                self._refuse(str(error))
                return
            in_flight.reply = reply
            in_flight.is_done = True
            if self._in_flight[0] is in_flight:
                self._send_and_resume()
            elif reply is not None:
                self._count_waiting_reply(reply)
                self._pause_or_resume_reading()
        except BaseException as failure:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(failure)

    # Replies

    def _count_waiting_reply(self, reply: ReplyChunks) -> None:
        """Count a reply that waits for earlier replies or for the client to read."""
        self._waiting_reply_bytes += _bytes_in_memory(reply)
        if self._waiting_reply_bytes >= self._write_buffer_bytes:
            self._update_blocked()
            self._count_waiting_replies()

    def _recount_waiting_replies(self) -> None:
        """Recount the waiting replies after some were sent."""
        self._waiting_reply_bytes = sum(
            _bytes_in_memory(waiting.reply) for waiting in self._in_flight if waiting.reply is not None
        )
        self._update_blocked()
        self._count_waiting_replies()

    def _count_waiting_replies(self) -> None:
        """Report to the `ReplyMemory` how many bytes of this client's replies wait in memory."""
        transport, memory = self._transport, self._reply_memory
        if transport is None or memory is None:
            return
        byte_count = self._waiting_reply_bytes if self._waiting_reply_bytes >= self._write_buffer_bytes else 0
        if self._is_writing_paused:
            byte_count = (
                max(0, transport.get_write_buffer_size() - self._mapped_unsent_bytes) + self._waiting_reply_bytes
            )
        if byte_count:
            memory.set_waiting_bytes(self, byte_count)
        else:
            memory.clear_waiting_bytes(self)

    def _send_and_resume(self) -> None:
        """Send the ready replies, and start requests that a bound has kept from starting."""
        if self._is_dispatching:
            return
        self.last_activity_s = self._loop.time()
        self._send_ready()
        if self._waiting_reply_bytes and not self._is_writing_paused:
            self._recount_waiting_replies()
        if self._is_closing or (self._is_draining and not self._in_flight):
            self.close()
        elif self._is_reading_paused and not self._has_unstarted_frames and self._may_start():
            self._dispatch_pipeline()

    def _send_ready(self) -> None:
        """Hand the finished replies at the head of the queue to the transport, until writing is paused."""
        in_flight = self._in_flight
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._partial_send is not None and not self._continue_send(transport, self._partial_send):
            return
        if self._ready:
            ready, self._ready, self._ready_bytes = self._ready, [], 0
            self._send_at_once(transport, ready)
            if transport.is_closing():
                return
        if not in_flight or not in_flight[0].is_done:
            return
        if len(in_flight) == 1 and not self._is_writing_paused:
            only = in_flight.popleft().reply
            if only is not None:
                self._send_at_once(transport, only)
            return
        limit_bytes = self._write_buffer_bytes
        while in_flight and in_flight[0].is_done and not self._is_writing_paused and not transport.is_closing():
            chunks: list[Any] = []
            chunk_bytes = 0
            while in_flight and in_flight[0].is_done and chunk_bytes < limit_bytes:
                reply = in_flight.popleft().reply
                if reply is not None:
                    chunks += reply
                    chunk_bytes += sum(map(len, reply))
            if chunks:
                self._send(transport, chunks)

    def _send_at_once(self, transport: asyncio.Transport, reply: ReplyChunks) -> None:
        """Send a single reply in this step, if it is one chunk.

        uvloop's transports send at the end of the loop's turn: a waiting consumer would get a record only when its
        producer is answered. The transport sends the reply if its buffer is not empty or replies are encrypted, and
        whatever the socket does not take.
        """
        if len(reply) == 1 and self._descriptor >= 0 and not transport.get_write_buffer_size():
            chunk: Any = reply[0]  # a file slice has others before it
            try:
                sent_bytes = os.write(self._descriptor, chunk)
            except OSError:
                sent_bytes = 0
            if sent_bytes == len(chunk):
                return
            reply = (memoryview(chunk)[sent_bytes:],)
        self._send(transport, reply)

    def _send(self, transport: asyncio.Transport, chunks: Sequence[Any]) -> None:
        """Hand chunks to the transport; a reply with file slices is sent portion by portion, as the client reads."""
        if FileSlice in map(type, chunks):
            self._begin_partial_send(transport, PartialSend(chunks))
        else:
            transport.writelines(chunks)

    def _begin_partial_send(self, transport: asyncio.Transport, reply: PartialSend) -> None:
        """Begin to send a reply with file slices."""
        self._partial_send = reply.remaining_portions()
        if self._may_use_sendfile and not transport.get_write_buffer_size():
            self._sendfile_transfer = self._sendfile_transfers.begin(reply, self._descriptor, self._sendfile_ready)
            if self._sendfile_transfer is not None and not self._continue_sendfile(self._sendfile_transfer):
                self.pause_writing()
                return
        if self._partial_send is not None:
            self._continue_send(transport, self._partial_send)

    def _continue_sendfile(self, transfer: SendfileTransfer) -> bool:
        """Send more by sendfile; False while the socket is full, True if all is sent or the transport has the rest."""
        try:
            if not transfer.resume():
                return False
            self._partial_send = None
        except OSError:
            self._may_use_sendfile = False  # the transport meets the cause
        self._end_sendfile()
        return True

    @SERVING.handles
    def _sendfile_ready(self) -> None:
        try:
            transfer, transport = self._sendfile_transfer, self._transport
            if transfer is None or transport is None or transport.is_closing():
                self._end_sendfile()
            elif self._continue_sendfile(transfer):
                self.resume_writing()
            else:
                self.last_activity_s = self._loop.time()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._end_sendfile()  # or the loop would call for ever
            self._failed(error)

    def _end_sendfile(self) -> None:
        if self._sendfile_transfer is not None:
            self._sendfile_transfer.close()
            self._sendfile_transfer = None

    def _continue_send(self, transport: asyncio.Transport, portions: Iterator[list[Buffer]]) -> bool:
        """Send portions until writing is paused, and keep the rest in `_partial_send`; True if none is left."""
        self._partial_send = portions
        try:
            while not self._is_writing_paused:
                portion = next(portions, None)
                if portion is None:
                    self._partial_send = None
                    return True
                self._mapped_unsent_bytes = sum(len(chunk) for chunk in portion if is_mapped(chunk))
                transport.writelines(portion)
        except StorageError as error:
            # A part of the frame is sent already: no error reply can follow.
            self._partial_send = None
            self._owner.connection_refused(self, f"a reply could not be read: {error}")
            self.abort()
        return False

    @SERVING.handles
    def _unmute(self) -> None:
        try:
            self._unmute_timer = None
            self._update_blocked()
            self._send_and_resume()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def _pause_or_resume_reading(self) -> None:
        should_pause = self._has_unstarted_frames or self._awaits_memory or not self._may_start()
        if should_pause is self._is_reading_paused:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._is_reading_paused = should_pause
        if should_pause:
            transport.pause_reading()
        else:
            transport.resume_reading()

    def _unsent_bytes(self, transport: asyncio.Transport) -> int:
        return transport.get_write_buffer_size() + (
            len(self._sendfile_transfer.reply) if self._sendfile_transfer is not None else 0
        )

    def _watch_for_stall(self, transport: asyncio.Transport) -> None:
        self._stalled_bytes = self._unsent_bytes(transport)
        delay_s = self._limits.fencepost_connection_write_stall_ms / 1000
        self._stall_timer = self._loop.call_later(delay_s, self._check_stall)

    @SERVING.handles
    def _check_stall(self) -> None:
        """Close the connection if its client does not read: nothing is written while writing is paused, so the unsent
        bytes must have shrunk."""
        try:
            self._stall_timer = None
            transport = self._transport
            if transport is None:
                return
            if self._unsent_bytes(transport) < self._stalled_bytes:
                self._watch_for_stall(transport)
                return
            self.close_for("the client does not read its replies")
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def _refuse(self, reason: str) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_closing:
            return
        self._owner.connection_refused(self, reason)
        # Earlier replies are still sent; Kafka closes in the same way.
        self._send_ready()
        self.close()


def _bytes_in_memory(reply: ReplyChunks) -> int:
    """Bytes that a reply takes in memory; its file slices are read as they are sent."""
    return sum(len(chunk) for chunk in reply if not isinstance(chunk, FileSlice))


def _descriptor_of(transport: asyncio.Transport) -> int:
    """The descriptor of an unencrypted socket; negative where there is none."""
    connected = transport.get_extra_info("socket")
    if connected is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    return cast("int", connected.fileno())


def _is_on_this_machine(transport: asyncio.Transport) -> bool:
    """Whether a client connected from the address that it connected to: its replies do not leave the machine."""
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return bool(here and there and here[0] == there[0])
