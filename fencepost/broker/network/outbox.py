"""Outbox of a connection: replies leave in the order of their requests, as fast as the client reads.

Replies that are ready with no other before them are sent together at the end of the step. The others wait in the queue
of the requests in flight. While the client takes no more, the outbox is stuck; if that lasts, the connection is closed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.network.network_memory import MemoryUser, NetworkMemory
from fencepost.broker.network.sender import PartialSend, TransportSender
from fencepost.broker.requests.long_polls import ReplyChunks, ReplyFrame
from fencepost.broker.storage.disk import StorageError
from fencepost.broker.storage.file_slice import FileSlice

STALL_CHECK = Place("check for a client that does not read", Policy.REPORT)
NOT_WATCHED = "the broker could not check whether the client reads its replies"


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


@dataclass(slots=True, eq=False)
class InFlight:
    """A request whose reply has not been handed to the sender. waiting_bytes: of the reply, in memory."""

    is_done: bool = False
    reply: ReplyFrame = None
    waiting_bytes: int = 0


class Outbox:
    """The replies of one connection.

    connection:         is closed with `close_for`.
    write_buffer_bytes: bound on the replies that may wait.
    in_flight:          requests in flight, in their order.
    is_full:            whether a bound is reached, so that no further request may start: of requests in flight, of the
                        bytes of replies that wait, or of the client, which does not read.
    """

    def __init__(
        self,
        sender: TransportSender,
        connection: MemoryUser,
        memory: NetworkMemory,
        limits: ConnectionLimits,
        write_buffer_bytes: int,
    ) -> None:
        self.in_flight: deque[InFlight] = deque()
        self.is_full = False
        self._sender = sender
        self._connection = connection
        self._memory = memory
        self._limits = limits
        self._max_in_flight = limits.fencepost_connection_max_in_flight
        self._write_buffer_bytes = write_buffer_bytes
        self._ready: list[Any] = []  # chunks of replies with nothing before them
        self._ready_bytes = 0
        self._waiting_bytes = 0  # of replies in `in_flight`
        self._partial_send: PartialSend | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def has_unsent(self) -> bool:
        """Whether a reply is ready, or has begun to be sent, and the sender does not take it yet."""
        return bool(self._partial_send or self._ready or (self.in_flight and self.in_flight[0].is_done))

    # Replies

    def expect(self) -> InFlight:
        """Keep a place for a reply that is not ready."""
        in_flight = InFlight()
        self.in_flight.append(in_flight)
        if len(self.in_flight) >= self._max_in_flight:
            self.is_full = True
        return in_flight

    def fulfil(self, in_flight: InFlight, reply: ReplyFrame) -> bool:
        """Put a reply in its place, or send it if it is the next, and no other is ready. Returns whether that is all:
        `flush` has nothing to send, and no bound is reached."""
        queue = self.in_flight
        is_next = in_flight is queue[0]
        if is_next and not self._ready and not self.is_full and (len(queue) == 1 or not queue[1].is_done):
            queue.popleft()
            return reply is None or self.send(reply)
        in_flight.reply = reply
        in_flight.is_done = True
        if reply is not None and not is_next:
            in_flight.waiting_bytes = sum(len(chunk) for chunk in reply if not isinstance(chunk, FileSlice))
            self._waiting_bytes += in_flight.waiting_bytes
            if self._waiting_bytes >= self._write_buffer_bytes:
                self.is_full = True
        return not is_next and not self.is_full

    def add(self, reply: ReplyChunks) -> None:
        """Queue a reply that is ready. A large one, or many together, are sent at once: they may fill the socket."""
        if self.in_flight:
            self.fulfil(self.expect(), reply)
            return
        self._ready += reply
        self._ready_bytes += sum(map(len, reply))
        if self._ready_bytes >= self._write_buffer_bytes:
            self.flush()

    def send(self, reply: ReplyChunks) -> bool:
        """Send a reply that has none before it; False if the client takes no more, and `flush` has to send the rest."""
        sender = self._sender
        try:
            if not sender.is_closing():
                self._partial_send = sender.send(reply)
        except StorageError as error:
            self._unreadable(error)
        if self._partial_send is None and not sender.is_blocked:
            return True
        self.is_full = True
        return False

    def flush(self) -> None:
        """Send the next replies until the client takes no more, and recount the rest."""
        sender, in_flight = self._sender, self.in_flight
        try:
            if self._partial_send is not None and not sender.is_closing():
                self._partial_send = self._partial_send.resume()
            while (
                (self._ready or (in_flight and in_flight[0].is_done))
                and self._partial_send is None
                and not sender.is_blocked
                and not sender.is_closing()
            ):
                chunks = self._take_next()
                if chunks:
                    self._partial_send = sender.send(chunks)
        except StorageError as error:
            self._unreadable(error)
        if self.is_full or sender.is_blocked or self._partial_send is not None:
            self._recount()

    def _take_next(self) -> ReplyChunks:
        """Take the replies at the head, up to a write buffer full and one more."""
        if self._ready:
            ready, self._ready, self._ready_bytes = self._ready, [], 0
            return ready
        in_flight = self.in_flight
        taken: list[Any] = []
        taken_bytes = 0
        while in_flight and in_flight[0].is_done and taken_bytes < self._write_buffer_bytes:
            done = in_flight.popleft()
            self._waiting_bytes -= done.waiting_bytes
            if done.reply is not None:
                taken += done.reply
                taken_bytes += sum(map(len, done.reply))
        return taken

    def _unreadable(self, error: StorageError) -> None:
        """Close the connection: a part of the frame is sent already, so no error reply can follow."""
        self._partial_send = None
        self._connection.close_for(f"a reply could not be read: {error}")

    # A client that does not read

    def set_blocked(self, is_blocked: bool) -> None:
        """Note whether the transport's buffer is full: nothing is sent then."""
        self._sender.is_blocked = is_blocked
        if is_blocked:
            self.is_full = True
        else:  # the client has read
            self._stop_watching()

    def close(self) -> None:
        """Forget all replies, and the connection, so that both are freed at once; nothing else may be called then."""
        self.in_flight.clear()
        self._ready = []
        if self._partial_send is not None:
            self._partial_send.close()
            self._partial_send = None
        self._stop_watching()
        del self._connection, self._sender

    def _recount(self) -> None:
        """Recompute from the unsent replies the room for more, the shared memory and the timer."""
        was_full = self.is_full
        is_stuck = self._sender.is_blocked or self._partial_send is not None
        is_unread = is_stuck or self._waiting_bytes >= self._write_buffer_bytes
        self.is_full = is_unread or len(self.in_flight) >= self._max_in_flight
        if is_unread:
            mapped_bytes = 0 if self._partial_send is None else self._partial_send.mapped_bytes
            buffered_bytes = max(0, self._sender.buffered_bytes() - mapped_bytes)
            self._memory.set_unread_bytes(self._connection, self._waiting_bytes + buffered_bytes)
        elif was_full:
            self._memory.set_unread_bytes(self._connection, 0)
        if not is_stuck:
            self._stop_watching()
        elif self._stall_timer is None:
            self._watch_for_stall()

    def _unsent_bytes(self) -> int:
        return self._sender.buffered_bytes() + (self._partial_send.unsent_bytes if self._partial_send else 0)

    def _watch_for_stall(self) -> None:
        check = STALL_CHECK.callback(self._check_stall, on_failure=lambda _: self._connection.close_for(NOT_WATCHED))
        delay_s = self._limits.fencepost_connection_write_stall_ms / 1000
        self._stall_timer = asyncio.get_running_loop().call_later(delay_s, check, self._unsent_bytes())

    def _stop_watching(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def _check_stall(self, unsent_bytes: int) -> None:
        """Close the connection if its client does not read: nothing more is handed to the transport while the outbox is
        stuck, so the unsent bytes must have shrunk."""
        if self._unsent_bytes() < unsent_bytes:
            self._watch_for_stall()
        else:
            self._connection.close_for("the client does not read its replies")
