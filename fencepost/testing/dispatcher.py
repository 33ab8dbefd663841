"""The way of a request through a broker under test: it is written down, and faults meet it before the handler and at
the reply.

`WatchedDispatcher` stands between a connection and the broker's dispatcher. A broker without it pays nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from fencepost.broker.handlers import APIS, CloseConnection, Services
from fencepost.broker.network.connection import Connection, RequestDispatcher
from fencepost.broker.requests.long_polls import PendingReply, ReplyChunks, ReplyFrame
from fencepost.broker.storage.disk import LogFile
from fencepost.broker.storage.file_slice import FileSlice
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, request_frame, response_frame
from fencepost.protocol.headers import (
    read_client_id,
    read_request_start,
    read_response_header,
    request_header_version,
    response_header_version,
)
from fencepost.protocol.messages import RESPONSES
from fencepost.protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from fencepost.protocol.schema import DecodeError, decode
from fencepost.testing.apis import PLACES, is_written, joined, with_partitions
from fencepost.testing.faults import FaultKind, Faults, PlacedFault
from fencepost.testing.requests import ANSWERED, LARGEST_KEPT_REPLY_BYTES, RequestLog, SeenRequest
from fencepost.testing.wire import CLIENT_ID

if TYPE_CHECKING:
    from fencepost.broker.produce.produce_runs import RunResult
    from fencepost.testing.unsynced_disk import UnsyncedDisk

Outcome = ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply


class Watch:
    """Faults and log of the requests to a broker under test. It outlives the broker's restarts.

    crash:       ends the broker at once, as kill -9 does; called in the step in which a fault fires.
    has_crashed: whether a fault has crashed the broker; no request is answered then.
    is_stopping: whether the broker is being stopped.
    disk:        the running broker's disk.
    """

    def __init__(self) -> None:
        self.faults = Faults()
        self.log = RequestLog()
        self.crash: Callable[[], None] = lambda: None
        self.has_crashed = False
        self.is_stopping = False
        self.disk: UnsyncedDisk | None = None
        self.connections: dict[int, tuple[Connection, str | None]] = {}


class WatchedDispatcher:
    """Dispatches as `inner` does; `watch` sees each request, and its faults meet it."""

    def __init__(
        self, inner: RequestDispatcher, services: Services, watch: Watch, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.long_polls = inner.long_polls
        self._inner = inner
        self._services = services
        self._watch = watch
        self._loop = loop
        self._cut_off: tuple[SeenRequest, PlacedFault] | None = None  # the request that is to be lost in a crash

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        """Leave the requests to `dispatch`."""
        return None

    def dispatch(self, frame: memoryview, connection: Connection) -> Outcome:
        """As `Dispatcher.dispatch`."""
        if self._watch.has_crashed:
            raise CloseConnection("the broker has crashed")
        seen = self._see(frame, connection)
        if seen is None:
            return self._inner.dispatch(frame, connection)
        fault = self._watch.faults.first(seen, "request")
        if fault is None:
            return self._handle(seen, frame, connection)
        fault.fired += 1
        kind = fault.order.kind
        if kind in (FaultKind.HOLD, FaultKind.DELAY):
            later: asyncio.Future[ReplyFrame] = self._loop.create_future()
            kept = bytes(frame)
            self._stop_over(fault, seen, lambda: self._begin_late(seen, kept, connection, later))
            connection.block_until(later)
            return later
        seen.outcome = str(fault.order)
        if kind is FaultKind.FAIL:
            return self._fail(seen, fault, frame, connection)
        self._end_connection(fault)
        raise AssertionError("unreachable")

    def _see(self, frame: memoryview, connection: Connection) -> SeenRequest | None:
        """Write a request down. None for one that nobody asks for: a helper's, or one that cannot be read."""
        try:
            api_key, version, _ = read_request_start(frame)
            client_id, position = read_client_id(frame, request_header_version(api_key, version))
        except DecodeError:
            return None
        api = APIS.get(api_key)
        if client_id == CLIENT_ID or api is None or not api.minimum_version <= version <= api.maximum_version:
            return None
        watch = self._watch
        number = connection.connection_id
        if number not in watch.connections:
            connection.add_close_callback(lambda: watch.connections.pop(number, None) and None)
        watch.connections[number] = (connection, client_id)
        body = bytes(frame[position:])
        seen = watch.log.add(
            lambda number: SeenRequest(
                number,
                self._services.clock.now_ms(),
                api_key,
                version,
                client_id,
                connection.connection_id,
                body,
            )
        )
        if next(iter(watch.faults), None) is not None:
            try:
                seen.name_partitions(self._topic_name)
            except DecodeError:
                return None
        return seen

    def _topic_name(self, topic_id: bytes) -> str | None:
        metadata = self._services.topics.metadata.get_by_id(topic_id)
        return None if metadata is None else metadata.name

    def name_partitions(self, seen: SeenRequest) -> None:
        """Find the names of the topics that a request gives by id."""
        seen.name_partitions(self._topic_name)

    # The handler and its reply

    def _handle(self, seen: SeenRequest, frame: memoryview, connection: Connection) -> Outcome:
        if self._cut_off is None:
            fault = self._watch.faults.first(seen, "sync")
            if fault is not None:
                self._cut_off_from_disk(seen, fault)
        outcome = self._inner.dispatch(frame, connection)
        if isinstance(outcome, PendingReply):
            outcome = self._as_future(outcome, connection)
        if not isinstance(outcome, asyncio.Future):
            return self._at_reply(seen, outcome)
        replied: asyncio.Future[ReplyFrame] = self._loop.create_future()
        outcome.add_done_callback(lambda done: self._pass_on(done, replied, seen))
        return replied

    def _as_future(self, pending: PendingReply, connection: Connection) -> asyncio.Future[ReplyFrame]:
        future: asyncio.Future[ReplyFrame] = self._loop.create_future()

        def replied(reply: ReplyChunks | None, error: BaseException | None) -> None:
            connection.remove_close_callback(pending.cancel)
            _resolve(future, reply, error)

        pending.on_reply = replied
        connection.add_close_callback(pending.cancel)
        return future

    def _pass_on(
        self, done: asyncio.Future[ReplyFrame], replied: asyncio.Future[ReplyFrame], seen: SeenRequest
    ) -> None:
        """Give the reply of a handler that has ended, after the faults of its request."""
        if replied.done() or self._watch.has_crashed:
            return
        if done.cancelled():
            self._spare(seen)
            seen.outcome = "given up: its client is gone"
            replied.set_exception(CloseConnection("the request was cancelled"))
            return
        error = done.exception()
        if error is not None:
            self._spare(seen)
            seen.outcome = f"closed the connection: {error}"
            _resolve(replied, None, error)
            return
        try:
            reply = self._at_reply(seen, done.result())
        except CloseConnection as reason:
            _resolve(replied, None, reason)
            return
        if isinstance(reply, asyncio.Future):
            reply.add_done_callback(lambda late: _resolve(replied, late.result(), None))
        else:
            _resolve(replied, reply, None)

    def _at_reply(self, seen: SeenRequest, reply: ReplyFrame) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Return a reply that is ready, after the faults of its request. Raises CloseConnection."""
        if self._is_to_be_lost(seen):
            self._crash_without_unsynced()  # nothing that it has appended was to be synced
            raise CloseConnection("the broker has crashed")
        fault = self._watch.faults.first(seen, "reply")
        if fault is None:
            self._answered(seen, reply)
            return reply
        fault.fired += 1
        kind = fault.order.kind
        if kind in (FaultKind.HOLD, FaultKind.DELAY):
            later: asyncio.Future[ReplyFrame] = self._loop.create_future()

            def go_on() -> None:
                self._answered(seen, reply)
                if not later.done():
                    later.set_result(reply)

            self._stop_over(fault, seen, go_on)
            return later
        seen.outcome = f"{fault.order}: done, and the reply was lost"
        if kind is FaultKind.FAIL:
            seen.outcome = f"{fault.order}: done, and answered with the error"
            failed = self._failed(seen, seen.fields, fault.order.error)
            return response_frame(_correlation_id(reply), failed, seen.version) if reply is not None else None
        self._end_connection(fault)
        raise AssertionError("unreachable")

    def _answered(self, seen: SeenRequest, reply: ReplyFrame) -> None:
        seen.outcome = ANSWERED
        if reply is not None and sum(map(len, reply)) <= LARGEST_KEPT_REPLY_BYTES:
            seen.answer = _whole(reply)[LENGTH_BYTES:]

    # Effects of faults

    def _end_connection(self, fault: PlacedFault) -> None:
        """Raises CloseConnection; the broker may crash first."""
        if fault.order.kind is FaultKind.CRASH:
            self._watch.has_crashed = True
            self._watch.crash()
        raise CloseConnection(f"a fault of the test: {fault.order}")

    def _cut_off_from_disk(self, seen: SeenRequest, fault: PlacedFault) -> None:
        """Crash at the first sync of a request's records, or at its reply, and lose all data that is not synced."""
        disk = self._watch.disk
        assert disk is not None, "the broker runs"

        def is_about_request(files: Sequence[LogFile]) -> bool:
            if not any(self._is_written(seen, file) for file in files) or not self._is_to_be_lost(seen):
                return False
            self._crash_without_unsynced()
            return True

        self._cut_off = seen, fault
        disk.before_sync = is_about_request

    def _is_written(self, seen: SeenRequest, file: LogFile) -> bool:
        topic, _, partition = os.path.basename(os.path.dirname(file.path)).rpartition("-")
        return partition.isdigit() and is_written(seen.api_key, seen.partitions, topic, int(partition))

    def _is_to_be_lost(self, seen: SeenRequest) -> bool:
        """Whether a crash waits for a request, by a fault that has not been removed meanwhile, of a broker that is not
        being stopped."""
        if self._cut_off is None or self._cut_off[0] is not seen:
            return False
        if self._cut_off[1].is_removed or self._watch.is_stopping:
            self._spare(seen)
            return False
        return True

    def _spare(self, seen: SeenRequest) -> None:
        """Let the broker go on whose crash waits for a request that has ended otherwise."""
        if self._cut_off is not None and self._cut_off[0] is seen:
            self._cut_off = None
            assert self._watch.disk is not None
            self._watch.disk.before_sync = None

    def _crash_without_unsynced(self) -> None:
        assert self._cut_off is not None
        assert self._watch.disk is not None
        seen, fault = self._cut_off
        fault.fired += 1
        seen.outcome = f"{fault.order}: done, and lost"
        self._watch.has_crashed = True
        self._watch.disk.lose_unsynced()
        self._watch.crash()

    def _stop_over(self, fault: PlacedFault, seen: SeenRequest, go_on: Callable[[], None]) -> None:
        """Go on later: after the delay of a fault, or at its release."""
        seen.outcome = f"held by {fault.order}" if fault.order.kind is FaultKind.HOLD else f"waits: {fault.order}"
        is_over = False

        def once() -> None:
            nonlocal is_over
            if not is_over and not self._watch.has_crashed:
                is_over = True
                go_on()

        fault.releases.append(once)
        if fault.order.kind is FaultKind.DELAY:
            self._loop.call_later(fault.order.seconds, once)

    def _begin_late(
        self, seen: SeenRequest, frame: bytes, connection: Connection, later: asyncio.Future[ReplyFrame]
    ) -> None:
        if later.done() or not connection.is_open:
            return
        try:
            outcome = self._handle(seen, memoryview(frame), connection)
        except CloseConnection as reason:
            _resolve(later, None, reason)
            return
        if isinstance(outcome, asyncio.Future):
            outcome.add_done_callback(lambda done: _resolve_as(later, done, lambda reply: reply))
        else:
            _resolve(later, cast("ReplyFrame", outcome), None)

    def _fail(self, seen: SeenRequest, fault: PlacedFault, frame: memoryview, connection: Connection) -> Outcome:
        """Answer with the error of a fault: for all that was asked, or for the partitions that it concerns."""
        order = fault.order
        _, _, correlation_id = read_request_start(frame)
        request = seen.fields
        is_partial = (order.topic is not None or order.partition is not None) and seen.api_key in PLACES
        if not is_partial:
            return self._failed_frame(seen, correlation_id, self._failed(seen, request, order.error))
        wanted = order.concerns_partition
        concerned = with_partitions(seen.api_key, request, wanted, self._topic_name)
        failed = self._failed(seen, concerned, order.error)
        rest = with_partitions(seen.api_key, request, lambda topic, index: not wanted(topic, index), self._topic_name)
        if not getattr(rest, PLACES[ApiKey(seen.api_key)].topics):
            return self._failed_frame(seen, correlation_id, failed)
        if isinstance(rest, FetchRequest):
            rest.max_wait_ms = 0
        smaller = request_frame(correlation_id, seen.client_id, rest, seen.version)[LENGTH_BYTES:]
        outcome = self._inner.dispatch(memoryview(smaller), connection)
        if isinstance(outcome, PendingReply):
            outcome = self._as_future(outcome, connection)
        if not isinstance(outcome, asyncio.Future):
            return self._joined(seen, outcome, failed)
        replied: asyncio.Future[ReplyFrame] = self._loop.create_future()
        outcome.add_done_callback(
            lambda done: _resolve_as(replied, done, lambda reply: self._joined(seen, reply, failed))
        )
        return replied

    def _failed_frame(self, seen: SeenRequest, correlation_id: int, response: Any) -> ReplyFrame:
        if seen.api_key == ApiKey.PRODUCE and seen.fields.acks == 0:
            raise CloseConnection("a fault of the test, for a Produce that expects no reply")
        frame = response_frame(correlation_id, response, seen.version)
        seen.answer = _whole(frame)[LENGTH_BYTES:]
        return frame

    def _failed(self, seen: SeenRequest, request: Any, error: int) -> Any:
        """The reply in which all of a request failed."""
        if isinstance(request, FetchRequest):
            return FetchResponse(
                responses=[
                    FetchableTopicResponse(
                        topic=topic.topic,
                        topic_id=topic.topic_id,
                        partitions=[
                            PartitionData(
                                partition_index=partition.partition,
                                error_code=error,
                                high_watermark=-1,
                                aborted_transactions=None,
                                records=b"",
                            )
                            for partition in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        return APIS[seen.api_key].failed(request, ErrorCode(error), seen.version)

    def _joined(self, seen: SeenRequest, reply: ReplyFrame, failed: Any) -> ReplyFrame:
        if reply is None:
            return None
        whole = _whole(reply)[LENGTH_BYTES:]
        correlation_id, position = read_response_header(whole, response_header_version(seen.api_key, seen.version))
        response = decode(RESPONSES[seen.api_key], whole, seen.version, position)
        frame = response_frame(correlation_id, joined(seen.api_key, response, failed), seen.version)
        self._answered(seen, frame)
        return frame


def _resolve(future: asyncio.Future[ReplyFrame], reply: ReplyFrame, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(reply)


def _resolve_as(
    future: asyncio.Future[ReplyFrame], done: asyncio.Future[ReplyFrame], change: Callable[[ReplyFrame], ReplyFrame]
) -> None:
    """Resolve a future as another one was, with its reply changed."""
    if done.cancelled():
        _resolve(future, None, CloseConnection("the request was cancelled"))
        return
    error = done.exception()
    _resolve(future, None if error is not None else change(done.result()), error)


def _whole(reply: Sequence[Any]) -> bytes:
    return b"".join(b"".join(chunk.pieces()) if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in reply)


def _correlation_id(reply: ReplyFrame) -> int:
    assert reply is not None
    return int.from_bytes(_whole(reply[:1])[LENGTH_BYTES : LENGTH_BYTES + 4], "big", signed=True)
