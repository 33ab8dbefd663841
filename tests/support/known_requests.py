"""A client without sockets whose requests may be cached (`broker.requests.request_cache`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from fencepost.broker.network.dispatch import Dispatcher
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.requests.api import UNKNOWN_SOFTWARE, CloseConnection, Services
from fencepost.broker.requests.long_polls import PendingReply, ReplyFrame
from fencepost.broker.requests.request_cache import RequestCache
from fencepost.broker.security.principal import ANONYMOUS
from fencepost.broker.storage.file_slice import portions_to_send
from fencepost.protocol.framing import LENGTH_BYTES


class CountingDispatcher(Dispatcher):
    """known_count: requests that a cache served without decoding."""

    known_count = 0

    _was_decoded = False

    def dispatch(self, *arguments: Any) -> Any:
        self._was_decoded = False
        reply = super().dispatch(*arguments)
        self.known_count += not self._was_decoded
        return reply

    def _decode(self, *arguments: Any) -> Any:
        self._was_decoded = True
        return super()._decode(*arguments)


class ClientConnection:
    """A connection, as the dispatcher sees it."""

    principal = ANONYMOUS
    authentication = None
    client_host = "192.0.2.1"
    client_port = 50_000
    client_software = UNKNOWN_SOFTWARE
    connection_id = 1

    def __init__(self) -> None:
        self.request_cache = RequestCache()
        self.muted_s: list[float] = []
        self.kept_count = 0
        self.held_for: list[asyncio.Future[Any]] = []

    def mute(self, duration_s: float) -> None:
        self.muted_s.append(duration_s)

    def block_until(self, task: asyncio.Future[Any]) -> None:
        self.held_for.append(task)

    def keep_frame_until(self, _: asyncio.Future[Any]) -> None:
        self.kept_count += 1

    def add_close_callback(self, _: Callable[[], None]) -> None:
        """Drop the callback: this connection never closes."""

    def remove_close_callback(self, _: Callable[[], None]) -> None:
        """Nothing is kept."""


class FrameClient:
    """Sends frames to a broker's dispatcher, on one connection until it connects again. memory: of the last frame."""

    def __init__(self, services: Services, *, quotas: ClientQuotas | None = None) -> None:
        self._dispatcher = CountingDispatcher(services, loop=asyncio.get_running_loop(), quotas=quotas)
        self.connection = ClientConnection()
        self.memory = bytearray()

    @property
    def known_count(self) -> int:
        return self._dispatcher.known_count

    @property
    def remembered_count(self) -> int:
        return len(self.connection.request_cache)

    def connect_again(self) -> None:
        """Connect anew, with an empty cache."""
        self.connection = ClientConnection()

    async def send(self, frame: bytes) -> bytes | str | None:
        """The reply, or why the connection is closed. The frame's memory is overwritten at once, unless it is kept."""
        arrived = self.memory = bytearray(frame[LENGTH_BYTES:])
        kept_count = self.connection.kept_count
        try:
            outcome = self._dispatcher.dispatch(memoryview(arrived), cast("Any", self.connection))
            if self.connection.kept_count == kept_count:
                arrived[:] = bytes(len(arrived))
            if isinstance(outcome, PendingReply):
                outcome = self._reply_of(outcome)
            chunks = await outcome if isinstance(outcome, asyncio.Future) else outcome
        except CloseConnection as reason:
            return str(reason)
        return None if chunks is None else b"".join(chunk for portion in portions_to_send(chunks) for chunk in portion)

    @staticmethod
    def _reply_of(pending: PendingReply) -> asyncio.Future[ReplyFrame]:
        reply_future: asyncio.Future[ReplyFrame] = asyncio.get_running_loop().create_future()

        def on_reply(reply: ReplyFrame, error: BaseException | None) -> None:
            if error is None:
                reply_future.set_result(reply)
            else:
                reply_future.set_exception(error)

        pending.on_reply = on_reply
        reply_future.add_done_callback(lambda _: pending.cancel())
        return reply_future
