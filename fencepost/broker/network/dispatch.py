"""Dispatch of a request: frame, header, version check, body, handler, reply frame.

Undecodable bytes, unknown APIs and unsupported versions close the connection, as in Kafka: later bytes on it cannot be
trusted. The one exception is ApiVersions, from which a newer client learns the supported versions (KIP-511).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.handlers import APIS, CloseConnection, RequestContext, Services, SlicedResponse
from fencepost.broker.handlers.api_versions import unsupported_version_reply
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.addresses import network_of
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.log_limit import LogLimit
from fencepost.broker.kernel.sliced_work import SLICE_S, run_in_slices
from fencepost.broker.produce.produce_append import NotInTimeError, flushed_in_time
from fencepost.broker.produce.produce_runs import ProduceRun, RunResult, append_run
from fencepost.broker.quotas.client_quotas import ClientQuotas
from fencepost.broker.requests.api import RequestObserver, UsualAnswer
from fencepost.broker.requests.long_polls import LongPoll, PendingReply, ReplyFrame
from fencepost.broker.requests.routes import RoomAfter, Route
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, response_frame, response_frame_in_slices
from fencepost.protocol.headers import read_client_id, read_request_start
from fencepost.protocol.schema import DecodeError, decode
from fencepost.protocol.shape import ReplyForm

if TYPE_CHECKING:
    from fencepost.broker.network.connection import Connection
    from fencepost.broker.network.lease_gate import LeaseGate

log = get_logger(__name__)

PRODUCE = int(ApiKey.PRODUCE)


class Dispatcher:
    """Runs the requests of all connections of one listener against its services.

    Every request passes the quota, the gate, the handler, the reply and the observer. Only its decoding and the
    encoding of its reply may be left out, if it repeats an earlier one of its connection.

    In a cluster whose nodes have leases:
    lease_gate: stops a leader's answers if the lease may be over when they leave.
    room_after: notes the bytes of Produce requests; connections wait while too many are to be committed.
    """

    def __init__(
        self,
        services: Services,
        *,
        loop: asyncio.AbstractEventLoop,
        quotas: ClientQuotas | None = None,
        lease_gate: LeaseGate | None = None,
        room_after: RoomAfter | None = None,
    ) -> None:
        self._lease_gate = lease_gate
        self._room_after = room_after
        self._services = services
        self._quotas = quotas
        self._loop = loop
        self.long_polls = services.long_polls
        self._routes: dict[tuple[int, int], Route] = {}
        self._log_limit = LogLimit(
            loop.time,
            lambda count, host: log.error("failed_requests_not_logged", requests=count, host=host or "others"),
        )

    def dispatch(
        self, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        """Start a request. Returns the chunks of its reply, None when there is none, a task that ends in one of the
        two, or a `PendingReply`.

        Raises CloseConnection, also out of the task, and nothing else.
        """
        found = connection.request_cache.find(frame)
        if found is None:
            return self._decode(frame, connection)
        cached, correlation_id = found
        route, client_id = cached.route, cached.client_id
        context = RequestContext(self._services, route.version, correlation_id, client_id, connection, cached)
        started = self._start(route, context, cached.request, frame, connection)
        if route.room_after is not None:
            _wait_for_room(route.room_after, len(frame), connection)
        for owner, name, _ in cached.records:  # as `drop_records`, whose call is saved
            setattr(owner, name, b"")
        return started

    def _decode(
        self, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        """Start a request that repeats no earlier one. As `dispatch`."""
        try:
            api_key, api_version, correlation_id = read_request_start(frame)
            route = self._routes.get((api_key, api_version))
            if route is None:
                if api_key == ApiKey.API_VERSIONS and not 0 <= api_version <= APIS[api_key].maximum_version:
                    return unsupported_version_reply(correlation_id)
                route = self._route(api_key, api_version)
            client_id, body_position = read_client_id(frame, route.header_version)
            request = decode(route.api.request, frame, api_version, body_position)
        except DecodeError as error:
            raise _undecodable(error) from None
        context = RequestContext(self._services, api_version, correlation_id, client_id, connection)
        started = self._start(route, context, request, frame, connection)
        if route.room_after is not None:
            _wait_for_room(route.room_after, len(frame), connection)
        if route.varying is not None:
            try:
                connection.request_cache.remember(frame, body_position, request, route, client_id)
            except Exception:
                # The request is under way: without the cache the next one like it is decoded, too.
                log.exception("request_not_remembered", api=route.api.name, version=route.version)
        return started

    def _start(
        self, route: Route, context: RequestContext, request: Any, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        """Start a decoded request. As `dispatch`."""
        services, quotas, api = self._services, self._quotas, route.api
        if services.observer is not None:
            services.observer.begun(api, context, request)
        if quotas is not None and quotas.is_active:
            produced_bytes = len(frame) if api.key == PRODUCE else 0
            context.meter = quotas.meter(
                connection.principal, context.client_id, produced_bytes=produced_bytes, mute=connection.mute
            )
        try:
            restriction = None
            if services.gate is not None:
                restriction = services.gate.restriction(api, context, request)
            response = api.handler(context, request) if restriction is None else restriction.answer(context)
            if type(response) is UsualAnswer:
                return self._encode_usual(route, response, context)
            if type(response) is api.response or response is None:
                return self._encode(route, response, context)
            if isinstance(response, LongPoll):
                return self._begin_long_poll(route, context, request, response)
            started = eager.start(self._answer(route, context, request, response), self._loop)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  # one request must not take the connection down
            return self._failed(route, context, request, error)
        if isinstance(started, eager.Finished):
            return started.result
        if context.meter is not None:
            context.meter.pause_timing()
        if services.observer is not None:
            services.observer.waits(context)
        if route.carries_records and context.needs_frame:
            connection.keep_frame_until(started)
        if context.blocks_connection:
            connection.block_until(started)
        if api.is_cancelled_on_disconnect:
            _cancel_on_disconnect(started, connection)
        return started

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        """Start several Produce requests together that repeat an earlier one; returns None, and does nothing, for any
        others.

        Raises CloseConnection.
        """
        found = connection.request_cache.find(frames.first)
        if found is None or found[0].route.api.key != PRODUCE:
            return None
        cached, correlation_id = found
        route, client_id, services = cached.route, cached.client_id, self._services
        context = RequestContext(services, route.version, correlation_id, client_id, connection, cached)
        try:
            if services.gate is not None and services.gate.restriction(route.api, context, cached.request):
                return None
            result = self._start_run(context, frames, connection)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  # as for a single request; the others are started one by one
            result = RunResult(1, self._failed(route, context, cached.request, error))
        finally:
            cached.drop_records()
        if route.room_after is not None and result is not None:
            _wait_for_room(route.room_after, result.requests_count * frames.frame_bytes, connection)
        return result

    def _start_run(
        self, context: RequestContext, frames: EqualLengthFrames, connection: Connection
    ) -> RunResult | None:
        cached, quotas = context.cached, self._quotas
        assert cached is not None, "the run repeats it"
        if quotas is not None and quotas.is_active:
            context.meter = quotas.meter(
                connection.principal, context.client_id, produced_bytes=0, mute=connection.mute
            )
        observer = self._services.observer
        if observer is not None:
            observer.begun(cached.route.api, context, cached.request)
        run = append_run(context, cached, frames)
        if run is None:
            return None
        meter, throttle_ms = context.meter, 0
        if meter is not None:
            meter.charge_produced(run.requests_count * (frames.frame_bytes - LENGTH_BYTES))
            throttle_ms = meter.finish()
        work = self._answer_run(run, throttle_ms)
        if observer is not None:
            work = self._answer_observed_run(work, run, context, observer)
        started = eager.start(work, self._loop)
        if observer is not None and not isinstance(started, eager.Finished):
            observer.waits(context)
        return RunResult(run.requests_count, started.result if isinstance(started, eager.Finished) else started)

    @staticmethod
    async def _answer_observed_run(
        work: Awaitable[ReplyFrame], run: ProduceRun, context: RequestContext, observer: RequestObserver
    ) -> ReplyFrame:
        assert context.cached is not None, "the run repeats it"
        replies = await work
        observer.answered(context.cached.route.api, context, run.requests_count, run)
        return replies

    async def _answer_run(self, run: ProduceRun, throttle_ms: int) -> ReplyFrame:
        try:
            if run.failure is not None:
                raise run.failure
            if run.end_offset > run.log.high_watermark:
                if run.log.durability.is_shared:
                    await flushed_in_time(run.log, run.end_offset, run.timeout_s)
                else:
                    await run.log.flushed(run.end_offset)
            return run.replies(throttle_ms)
        except Exception as error:  # the batches may be in the log: their requests must be answered
            if not isinstance(error, (StorageError, NotInTimeError)):
                log.exception("request_failed", api="Produce", error=ErrorCode.UNKNOWN_SERVER_ERROR.name)
            return run.failed(error, self._services, throttle_ms)

    def _begin_long_poll(
        self, route: Route, context: RequestContext, request: Any, waiting: LongPoll[Any]
    ) -> PendingReply:
        def poll() -> ReplyFrame:
            try:
                response = waiting.poll()
                return None if response is None else self._encode(route, response, context)
            except CloseConnection:
                raise
            except Exception as error:  # noqa: BLE001  # as above
                return self._failed(route, context, request, error)

        pending = PendingReply(self.long_polls, waiting, poll)
        pending.begin()
        if context.meter is not None:
            context.meter.pause_timing()
        if self._services.observer is not None:
            self._services.observer.waits(context)
        return pending

    def _route(self, api_key: int, api_version: int) -> Route:
        """Find and cache a route. Raises CloseConnection for an unknown API or version."""
        try:
            api = APIS.get(api_key)
        except (ImportError, OSError) as error:  # the module is read from files: there may be no descriptor
            raise CloseConnection(f"API key {api_key} cannot be loaded: {error}") from error
        if api is None:
            raise CloseConnection(f"API key {api_key} is not served")
        highest_version = api.highest_version(with_unstable=self._services.settings.unstable_api_versions_enable)
        if not api.minimum_version <= api_version <= highest_version:
            raise CloseConnection(
                f"{api.name} version {api_version} is not served; "
                f"versions {api.minimum_version} to {highest_version} are"
            )
        gate = self._lease_gate
        route = self._routes[(api_key, api_version)] = Route(
            api,
            api_version,
            require_lease=gate.require_lease if gate is not None and api.needs_lease else None,
            room_after=self._room_after if api_key == PRODUCE else None,
        )
        return route

    async def _answer(
        self, route: Route, context: RequestContext, request: Any, response: Awaitable[Any]
    ) -> ReplyFrame:
        try:
            answer = await response
            if type(answer) is SlicedResponse:
                return await self._encode_in_slices(route, answer.response, context)
            return self._encode(route, answer, context)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            return self._failed(route, context, request, error)

    async def _encode_in_slices(self, route: Route, response: Any, context: RequestContext) -> ReplyFrame:
        throttle_ms = self._finish(route, context, response)
        if throttle_ms:
            response.throttle_time_ms = throttle_ms
        steps = response_frame_in_slices(context.correlation_id, response, context.api_version)
        reply = await run_in_slices(steps, SLICE_S)
        if route.require_lease is not None:
            route.require_lease()
        if context.meter is not None:
            context.meter.finish_timing()
        return reply

    def _encode_usual(self, route: Route, answer: UsualAnswer, context: RequestContext) -> ReplyFrame:
        """Write a usual reply, in the form of earlier ones to the same request if there is one."""
        if route.require_lease is not None:
            route.require_lease()
        throttle_ms = 0
        if context.meter is not None or self._services.observer is not None:
            throttle_ms = self._finish(route, context, answer)
        cached = context.cached
        if cached is not None and cached.form is not None:
            reply: ReplyFrame = cached.form.write(context.correlation_id, answer.values, throttle_ms, answer.records)
        else:
            reply = self._encode_first(route, answer, context, throttle_ms)
        if context.meter is not None:
            context.meter.finish_timing()
        return reply

    def _encode(self, route: Route, response: Any, context: RequestContext) -> ReplyFrame:
        if type(response) is UsualAnswer:
            return self._encode_usual(route, response, context)
        if route.require_lease is not None:
            route.require_lease()
        throttle_ms = self._finish(route, context, response)
        reply = None
        if response is not None:
            if throttle_ms and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            reply = response_frame(context.correlation_id, response, route.version)
        if context.meter is not None:
            context.meter.finish_timing()
        return reply

    def _encode_first(self, route: Route, answer: UsualAnswer, context: RequestContext, throttle_ms: int) -> ReplyFrame:
        """Write a usual reply field by field, and keep its form for requests that repeat this one."""
        response = answer.build()
        if throttle_ms:
            response.throttle_time_ms = throttle_ms
        reply = response_frame(context.correlation_id, response, route.version)
        if context.cached is not None and route.answer_paths is not None:
            response.throttle_time_ms = 0
            context.cached.form = ReplyForm(response, route.version, route.answer_paths)
        return reply

    def _finish(self, route: Route, context: RequestContext, answer: Any) -> int:
        """Charge the request and notify the observer; return the client's throttle, in ms."""
        if context.is_observed:
            return 0  # the reply could not be encoded, and this is the error's
        context.is_observed = True
        throttle_ms = 0 if context.meter is None else context.meter.finish()
        if self._services.observer is not None:
            self._services.observer.answered(route.api, context, 1, answer)
        return throttle_ms

    def _failed(self, route: Route, context: RequestContext, request: Any, error: Exception) -> ReplyFrame:
        """Encode the error reply to a request whose handler raised. Raises CloseConnection if that is impossible."""
        api = route.api
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, CoordinatorRefusal):
            code = error.error
        elif isinstance(error, StorageError):
            code = ErrorCode.KAFKA_STORAGE_ERROR
            if self._log_limit.allows(network_of(context.connection.client_host)):
                log.error(
                    "request_failed", api=api.name, error=code.name, reason=str(error), client_id=context.client_id
                )
        elif self._log_limit.allows(network_of(context.connection.client_host)):
            log.error(
                "request_failed",
                api=api.name,
                version=context.api_version,
                client_id=context.client_id,
                error=code.name,
                exc_info=error,
            )
        if api.key == PRODUCE and request.acks == 0:
            raise CloseConnection(f"a write without acknowledgement failed with {code.name}")
        try:
            return self._encode(route, api.failed(request, code, context.api_version), context)
        except Exception as unanswerable:
            log.exception("failure_reply_failed", api=api.name, version=context.api_version)
            raise CloseConnection(f"{api.name} failed and could not be answered") from unanswerable


def _wait_for_room(room_after: RoomAfter, produced_bytes: int, connection: Connection) -> None:
    room = room_after(produced_bytes)
    if room is not None:
        connection.block_until(room)


def _undecodable(error: DecodeError) -> CloseConnection:
    return CloseConnection(f"undecodable request: {error}")


def _cancel_on_disconnect(task: asyncio.Future[ReplyFrame], connection: Connection) -> None:
    def disconnected() -> None:
        task.cancel()

    connection.add_close_callback(disconnected)
    task.add_done_callback(lambda _: connection.remove_close_callback(disconnected))
