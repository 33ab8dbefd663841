"""One client connection: bytes to frames, frames to the dispatcher in order, replies back in the same order.

Requests are pipelined: the next one is started while earlier ones wait for the disk. Four bounds push back on the
client by not reading from its socket: requests in flight, bytes of replies that wait to be sent, the frame size, and
the memory that the large requests of all connections have together.
What a reply holds of a file is read as it is sent.
Nothing that a client sends raises into the event loop: what cannot be understood closes the connection, with a reason
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
from fencepost.broker.requests.long_polls import PendingReply, Reply, ReplyChunks
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
"""So many requests of one length must have arrived for it to be looked at whether they can be started together."""

_PENDING_TYPES: Final = (PendingReply, asyncio.Future)
"""What comes in place of a reply that is not there yet."""


class RequestDispatcher(Protocol):
    """The way from a frame to its reply; `Dispatcher` is one. Both methods raise CloseConnection."""

    long_polls: LongPolls

    def dispatch(self, frame: memoryview, connection: Connection) -> Reply | asyncio.Future[Reply] | PendingReply: ...
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
        """Whether it stays open for now."""
        ...

    def connection_closed(self, connection: Connection) -> None: ...

    def connection_refused(self, connection: Connection, reason: str) -> None:
        """A connection is about to be closed because of what its client sent or did."""
        ...


class _InFlight:
    """A request whose reply has not been handed to the transport."""

    __slots__ = ("is_done", "reply")

    def __init__(self, reply: Reply = None, *, is_done: bool = False) -> None:
        self.reply = reply
        self.is_done = is_done


class Connection(asyncio.BufferedProtocol):
    """The protocol object of one connection.

    templates:          what the dispatcher remembers of this client's requests, by API key.
    in_flight_count:    requests that are not answered yet.
    last_activity_s:    loop time of the last byte that arrived or the last reply that left.
    """

    def __init__(
        self,
        connection_id: int,
        *,
        dispatcher: RequestDispatcher,
        owner: ConnectionOwner,
        limits: ConnectionLimits,
        pool: BufferPool,
        direct_sends: SendfileTransfers,
        reply_memory: ReplyMemory | None = None,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.connection_id = connection_id
        self.client_host = ""
        self.client_port = 0
        self.last_activity_s = 0.0
        self.templates: dict[int, RequestCache] = {}
        self._dispatcher = dispatcher
        self._owner = owner
        self._limits = limits
        self._loop = loop
        self._long_polls = dispatcher.long_polls
        self._receiver = Receiver(pool)
        self._request_memory: RequestMemory | None = pool.memory
        self._awaits_memory = False  # for the frame that is arriving; nothing is read until it is granted
        self._has_memory = False  # for that frame
        self._reply_memory = reply_memory
        self._mapped_bytes = 0  # of files, in what the transport has to send: not this process's own memory
        self._waiting_reply_bytes = 0  # of replies in `_in_flight` that are done
        self._transport: asyncio.Transport | None = None
        self._descriptor = -1
        self._direct_sends = direct_sends
        self._direct_send: SendfileTransfer | None = (
            None  # what is on its way of a reply, where the transport has no part
        )
        self._may_send_directly = False
        # Chunks of replies with nothing in flight before them: in `_in_flight` is what came later.
        self._ready: list[Any] = []
        self._ready_bytes = 0
        self._in_flight: deque[_InFlight] = deque()
        self._write_buffer_bytes = limits.fencepost_connection_write_buffer_bytes
        self._max_in_flight = limits.fencepost_connection_max_in_flight
        self._maximum_frame_bytes = limits.socket_request_max_bytes
        self._is_reading_paused = False
        self._is_writing_paused = False
        self._is_consuming = False  # inside _dispatch_frames: replies are sent after it, together
        self._is_behind = False  # frames wait for the loop's next turn
        self._is_draining = False
        self._is_blocked = True  # see _update_blocked
        self._block_count = 0  # requests that must be answered before others are started
        self._partial_send: Iterator[list[Buffer]] | None = None  # what is left of a reply that is sent in portions
        self._is_closing = False  # to be closed as soon as that is sent
        self._stalled_bytes = 0
        self._stall_timer: asyncio.TimerHandle | None = None
        self._close_callbacks: dict[Callable[[], None], None] = {}
        self._unmute_timer: asyncio.TimerHandle | None = None

    # What others ask

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def add_close_callback(self, callback: Callable[[], None]) -> None:
        """Call when the connection is gone: for a handler that waits only for this client's sake."""
        self._close_callbacks[callback] = None

    def remove_close_callback(self, callback: Callable[[], None]) -> None:
        self._close_callbacks.pop(callback, None)

    def keep_frame_until(self, task: asyncio.Future[Any]) -> None:
        """Leave the frame that is being dispatched as it is until a task is done: it uses slices of it."""
        buffer = self._receiver.hold()
        task.add_done_callback(SERVING.callback(lambda _: self._receiver.release(buffer), on_failure=self._give_up))

    def block_until(self, task: asyncio.Future[Any]) -> None:
        """Start no further request until a task is done: what follows must not overtake it."""
        self._block_count += 1
        task.add_done_callback(self._end_hold)
        self._update_blocked()
        self._pause_or_resume_reading()

    @SERVING.handles
    def _end_hold(self, _: asyncio.Future[Any]) -> None:
        try:
            self._block_count -= 1
            self._update_blocked()
            if self._transport is not None:
                self._advance()
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
        """Close after what has been handed to the transport, and the reply that has begun, are sent."""
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
        self._may_send_directly = self._descriptor >= 0 and _is_on_this_machine(transport)
        self.last_activity_s = self._loop.time()
        if self._reply_memory is not None:
            self._write_buffer_bytes = self._reply_memory.joined(self._write_buffer_bytes)
        transport.set_write_buffer_limits(high=self._write_buffer_bytes)
        if not self._owner.connection_opened(self):
            transport.abort()
        self._update_blocked()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.writable()

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
        # A buffer of its own that this end was read into: when thousands of clients leave at once, they need not have
        # one each.
        self._receiver.rest()
        # A half-closed client may still read; but Kafka clients close both ways, so nobody would take the replies.
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
            self._mapped_bytes = 0
            self._update_blocked()
            self._count_waiting_replies()
            if self._stall_timer is not None:
                self._stall_timer.cancel()
                self._stall_timer = None
            self._advance()
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
        self.templates.clear()  # they know this connection
        callbacks, self._close_callbacks = self._close_callbacks, {}
        for clean_up in (self._receiver.close, self._end_direct_send, self._leave_memories, *callbacks):
            CLOSE.attempt(clean_up, concerns=self._client)
        self._owner.connection_closed(self)

    def _leave_memories(self) -> None:
        if self._request_memory is not None:
            self._request_memory.leave(self)
        if self._reply_memory is not None:
            self._reply_memory.left(self)

    # Memory for requests, which all connections share

    @property
    def arrived_bytes(self) -> int:
        return self._receiver.arrived_bytes

    @property
    def is_kept_waiting(self) -> bool:
        return self._unmute_timer is not None or self._block_count > 0

    @SERVING.handles
    def memory_granted(self, byte_count: int) -> None:
        """Raises nothing: it is called where another connection gives its memory back."""
        try:
            self._awaits_memory = False
            self._has_memory = True
            self._receiver.reserve(byte_count)
            self._pause_or_resume_reading()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def give_up(self, reason: str) -> None:
        self._owner.connection_refused(self, reason)
        self.abort()

    def _reserve_memory(self, memory: RequestMemory) -> None:
        """After frames were started: see whether the one that is arriving has the memory that it needs."""
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

    # What nobody foresaw

    @property
    def _client(self) -> str:
        return f"{self.client_host}:{self.client_port}"

    def _failed(self, error: BaseException) -> None:
        """Where this connection stands is not known any more, so it is closed: others are served."""
        SERVING.failed(error, concerns=self._client, on_failure=self._give_up)

    def _give_up(self, _: BaseException) -> None:
        self.abort()

    # Requests

    def _dispatch_single(self, frame: memoryview) -> None:
        """Start a request while no other is in flight nor has arrived, and send its reply if that is there at once.

        As `_dispatch_pipeline` does, which is for everything else.
        """
        long_polls = self._long_polls
        reply: ReplyChunks | None = None
        self._is_consuming = True
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
            self._is_consuming = False
        if self._receiver.buffer is not None:
            self._receiver.rest()
        if reply is None:
            self._send_ready()
        else:
            transport = self._transport
            if transport is not None and not transport.is_closing():
                self._send_at_once(transport, reply)
        if self._in_flight or self._is_blocked or self._is_reading_paused:
            self._pause_or_resume_reading()

    def _dispatch_pipeline(self) -> None:
        """Start the whole frames that have arrived, as far as the bounds allow; then send what is ready, in one
        write."""
        self._is_consuming = True
        has_more = False
        try:
            has_more = self._dispatch_frames()
            if self._long_polls.woken_polls:
                self._long_polls.answer_first_woken()
        except CloseConnection as reason:
            self._refuse(str(reason))
        finally:
            self._is_consuming = False
        receiver = self._receiver
        receiver.rest()
        if (receiver.wanted_bytes or self._has_memory) and self._request_memory is not None:
            self._reserve_memory(self._request_memory)
        self._send_ready()
        if self._waiting_reply_bytes and not self._is_writing_paused:
            self._recount_waiting_replies()  # those before them may have come in this step, and all have left
        if has_more and self._may_start():
            # Others get their turn before the rest of a long pipeline.
            self._is_behind = True
            self._loop.call_soon(self._dispatch_remaining)
        if self._in_flight or has_more or self._is_blocked or self._is_reading_paused or self._awaits_memory:
            self._pause_or_resume_reading()

    @SERVING.handles
    def _dispatch_remaining(self) -> None:
        try:
            self._is_behind = False
            if self._transport is not None:
                self._dispatch_pipeline()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def _dispatch_frames(self) -> bool:
        """Start frames until there is no whole one (False) or a bound is reached (True). Raises CloseConnection."""
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
                # Where runs are short, the same frames are not looked at again and again.
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
            self._start(frame)
            started_count += 1
            if receiver.is_empty:
                return False
        return True

    def _dispatch_run(self, most_count: int) -> int:
        """Start several requests together, where they are alike; how many. They are in flight as one.

        Raises CloseConnection.
        """
        receiver = self._receiver
        frames = receiver.equal_frames(MIN_PIPELINED, most_count, MINIMUM_FRAME_BYTES, self._maximum_frame_bytes)
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
        """To be called when anything changes that keeps all requests from being started, however few are in flight."""
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

    def _start(self, frame: memoryview) -> None:
        """Start one request. Raises CloseConnection."""
        outcome = self._dispatcher.dispatch(frame, self)
        if outcome is None:
            return
        if isinstance(outcome, _PENDING_TYPES):
            self._wait_for(outcome)
            return
        reply_bytes = sum(map(len, outcome))
        self._queue_reply(outcome, reply_bytes)
        # Earlier replies of this reading go out together, but a large one is not kept back: it may fill the socket.
        if reply_bytes >= self._write_buffer_bytes:
            self._send_ready()

    def _queue_reply(self, reply: ReplyChunks, reply_bytes: int) -> None:
        """Keep a reply that was there at once until those of this reading are sent, or those before it are there."""
        if self._in_flight or self._ready_bytes >= self._write_buffer_bytes:
            self._in_flight.append(_InFlight(reply, is_done=True))
            self._keep(reply)
        else:
            self._ready += reply
            self._ready_bytes += reply_bytes

    def _wait_for(self, outcome: PendingReply | asyncio.Future[Reply]) -> None:
        in_flight = _InFlight()
        self._in_flight.append(in_flight)
        if isinstance(outcome, PendingReply):
            self._reply_when_polled(in_flight, outcome)
        else:
            outcome.add_done_callback(partial(self._finished, in_flight))

    @SERVING.handles
    def _finished(self, in_flight: _InFlight, task: asyncio.Future[Reply]) -> None:
        """A request that had to wait is finished."""
        if task.cancelled():
            error: BaseException | None = CloseConnection("the request was cancelled")
        else:
            error = task.exception()
        self._replied(in_flight, task.result() if error is None else None, error)

    def _reply_when_polled(self, in_flight: _InFlight, pending: PendingReply) -> None:
        def replied(reply: Reply, error: BaseException | None) -> None:
            self.remove_close_callback(pending.cancel)
            self._replied(in_flight, reply, error)

        pending.on_reply = replied
        self.add_close_callback(pending.cancel)

    def _replied(self, in_flight: _InFlight, reply: Reply, error: BaseException | None) -> None:
        """Raises nothing."""
        if self._transport is None:
            return
        try:
            if error is not None:
                # The dispatcher answers failures; what comes through says that there is no answer.
                if not isinstance(error, CloseConnection):
                    SERVING.failed(error, concerns=self._client)
                self._refuse(str(error))
                return
            in_flight.reply = reply
            in_flight.is_done = True
            if self._in_flight[0] is in_flight:
                self._advance()
            elif reply is not None:
                self._keep(reply)
                self._pause_or_resume_reading()
        except BaseException as failure:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(failure)

    # Replies

    def _keep(self, reply: ReplyChunks) -> None:
        """Take note of a reply that has to wait, for those before it or for the client."""
        self._waiting_reply_bytes += _bytes_in_memory(reply)
        if self._waiting_reply_bytes >= self._write_buffer_bytes:
            self._update_blocked()
            self._count_waiting_replies()

    def _recount_waiting_replies(self) -> None:
        """Some of the replies that had to wait have left."""
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
            byte_count = max(0, transport.get_write_buffer_size() - self._mapped_bytes) + self._waiting_reply_bytes
        if byte_count:
            memory.waits(self, byte_count)
        else:
            memory.sent(self)

    def _advance(self) -> None:
        """Replies became ready or there is room again: send, and start what was held back."""
        if self._is_consuming:
            return
        self.last_activity_s = self._loop.time()
        self._send_ready()
        if self._waiting_reply_bytes and not self._is_writing_paused:
            self._recount_waiting_replies()
        if self._is_closing or (self._is_draining and not self._in_flight):
            self.close()
        elif self._is_reading_paused and not self._is_behind and self._may_start():
            self._dispatch_pipeline()

    def _send_ready(self) -> None:
        """Hand the finished replies at the head of the queue to the transport; stops when it has enough."""
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
        """Send a reply that has no other to go with, if it is one chunk: in this step.

        uvloop's transports send at the end of the loop's turn: who waits for a record would get it only when its
        producer is answered. Where something waits to be sent already, or replies are encrypted, it is for the
        transport; so is what the socket does not take.
        """
        if len(reply) == 1 and self._descriptor >= 0 and not transport.get_write_buffer_size():
            chunk: Any = reply[0]  # one that lies in a file has others before it
            try:
                sent_bytes = os.write(self._descriptor, chunk)
            except OSError:
                sent_bytes = 0
            if sent_bytes == len(chunk):
                return
            reply = (memoryview(chunk)[sent_bytes:],)
        self._send(transport, reply)

    def _send(self, transport: asyncio.Transport, chunks: Sequence[Any]) -> None:
        """Hand chunks to the transport; where some lie in a file, no more than the client takes."""
        if FileSlice in map(type, chunks):
            self._begin(transport, PartialSend(chunks))
        else:
            transport.writelines(chunks)

    def _begin(self, transport: asyncio.Transport, reply: PartialSend) -> None:
        """Begin to send a reply of which parts lie in files."""
        self._partial_send = reply.portions()
        if self._may_send_directly and not transport.get_write_buffer_size():
            self._direct_send = self._direct_sends.begin(reply, self._descriptor, self._sendfile_ready)
            if self._direct_send is not None and not self._continue_sendfile(self._direct_send):
                self.pause_writing()
                return
        if self._partial_send is not None:
            self._continue_send(transport, self._partial_send)

    def _continue_sendfile(self, direct_send: SendfileTransfer) -> bool:
        """Whether there is nothing to wait for: the whole reply is sent, or the rest of it is for the transport."""
        try:
            if not direct_send.go_on():
                return False
            self._partial_send = None
        except OSError:
            self._may_send_directly = False  # the transport finds out why
        self._end_direct_send()
        return True

    @SERVING.handles
    def _sendfile_ready(self) -> None:
        try:
            direct_send, transport = self._direct_send, self._transport
            if direct_send is None or transport is None or transport.is_closing():
                self._end_direct_send()
            elif self._continue_sendfile(direct_send):
                self.resume_writing()
            else:
                self.last_activity_s = self._loop.time()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._end_direct_send()  # or the loop would call for ever
            self._failed(error)

    def _end_direct_send(self) -> None:
        if self._direct_send is not None:
            self._direct_send.close()
            self._direct_send = None

    def _continue_send(self, transport: asyncio.Transport, begun: Iterator[list[Buffer]]) -> bool:
        """Send portions until the client takes no more, and keep the rest in `_partial_send`; whether none is left."""
        self._partial_send = begun
        try:
            while not self._is_writing_paused:
                portion = next(begun, None)
                if portion is None:
                    self._partial_send = None
                    return True
                self._mapped_bytes = sum(len(chunk) for chunk in portion if is_mapped(chunk))
                transport.writelines(portion)
        except StorageError as error:
            # What was sent of the frame cannot be taken back.
            self._partial_send = None
            self._owner.connection_refused(self, f"a reply could not be read: {error}")
            self.abort()
        return False

    @SERVING.handles
    def _unmute(self) -> None:
        try:
            self._unmute_timer = None
            self._update_blocked()
            self._advance()
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def _pause_or_resume_reading(self) -> None:
        should_pause = self._is_behind or self._awaits_memory or not self._may_start()
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
            len(self._direct_send.reply) if self._direct_send is not None else 0
        )

    def _watch_for_stall(self, transport: asyncio.Transport) -> None:
        self._stalled_bytes = self._unsent_bytes(transport)
        delay_s = self._limits.fencepost_connection_write_stall_ms / 1000
        self._stall_timer = self._loop.call_later(delay_s, self._check_stall)

    @SERVING.handles
    def _check_stall(self) -> None:
        """Nothing is written while writing is paused, so a buffer that has not shrunk means a client that does not
        read."""
        try:
            self._stall_timer = None
            transport = self._transport
            if transport is None:
                return
            if self._unsent_bytes(transport) < self._stalled_bytes:
                self._watch_for_stall(transport)
                return
            self.give_up("the client does not read its replies")
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self._failed(error)

    def _refuse(self, reason: str) -> None:
        transport = self._transport
        if transport is None or transport.is_closing() or self._is_closing:
            return
        self._owner.connection_refused(self, reason)
        # What was answered before still goes out; Kafka closes in the same way.
        self._send_ready()
        self.close()


def _bytes_in_memory(reply: ReplyChunks) -> int:
    """What a reply takes; what it holds of files is read as it is sent."""
    return sum(len(chunk) for chunk in reply if not isinstance(chunk, FileSlice))


def _descriptor_of(transport: asyncio.Transport) -> int:
    """Of a socket that takes replies as they are; negative where there is none."""
    connected = transport.get_extra_info("socket")
    if connected is None or transport.get_extra_info("sslcontext") is not None:
        return -1
    return cast("int", connected.fileno())


def _is_on_this_machine(transport: asyncio.Transport) -> bool:
    """Whether a client is at the address that it came to: what is sent to it does not leave the machine."""
    here, there = transport.get_extra_info("sockname"), transport.get_extra_info("peername")
    return bool(here and there and here[0] == there[0])
