"""Dispatch of a request: frame, header, version check, body, handler, reply frame.

Undecodable bytes, unknown APIs and versions that are not served close the connection, as in Kafka: nothing that follows
on it can be trusted. The one exception is ApiVersions, from which a newer client learns what is served (KIP-511).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fencepost.broker.coordination.runtime import CoordinatorRefusal
from fencepost.broker.handlers import APIS, Api, CloseConnection, RequestContext, Services, SlicedResponse
from fencepost.broker.handlers.api_versions import unsupported_version_reply
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.log.sliced_work import SLICE_S, run_in_slices
from fencepost.broker.quotas.client_quotas import ClientQuotas, RequestMeter
from fencepost.broker.request_cache.request_cache import CACHES, new_request_cache
from fencepost.broker.requests.long_polls import LongPoll, PendingReply, ReplyFrame
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import EqualLengthFrames, response_frame, response_frame_in_slices
from fencepost.protocol.headers import read_client_id, read_request_start, request_header_version
from fencepost.protocol.primitives import RECORDS
from fencepost.protocol.schema import DecodeError, decode, schema_of

if TYPE_CHECKING:
    from fencepost.broker.network.connection import Connection
    from fencepost.broker.request_cache.produce_cache import ProduceCache
    from fencepost.broker.request_cache.produce_runs import RunResult

log = get_logger(__name__)

PRODUCE = int(ApiKey.PRODUCE)


class _Route(NamedTuple):
    """The handler of one (API, version) and how its requests are read; looked up once."""

    api: Api
    header_version: int
    carries_records: bool


class Dispatcher:
    """Runs the requests of all connections of one listener against its services."""

    def __init__(
        self, services: Services, *, loop: asyncio.AbstractEventLoop, quotas: ClientQuotas | None = None
    ) -> None:
        self._services = services
        self._quotas = quotas
        self._loop = loop
        self.long_polls = services.long_polls
        self._routes: dict[tuple[int, int], _Route] = {}
        self._without_cache: set[int] = set()  # API keys whose cache could not be loaded; each is logged once

    def dispatch(
        self, frame: memoryview, connection: Connection
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        """Start a request. Returns the chunks of its reply, None when there is none, a task that ends in one of the
        two, or a `PendingReply`.

        Raises CloseConnection, also out of the task, and nothing else.
        """
        try:
            api_key, api_version, correlation_id = read_request_start(frame)
        except DecodeError as error:
            raise _undecodable(error) from None
        cache = connection.request_caches.get(api_key)
        quotas = self._quotas
        if cache is not None and (quotas is None or not quotas.is_active):
            try:
                found = cache.dispatch(frame, api_version, correlation_id)
            except CloseConnection:
                raise
            except Exception as error:  # noqa: BLE001  # is answered
                # Closing the connection would make the client send, and append, it once more.
                return self._decode_and_dispatch(frame, api_key, api_version, correlation_id, connection, error)
            if found is not None:
                return found
        return self._decode_and_dispatch(frame, api_key, api_version, correlation_id, connection)

    def _decode_and_dispatch(
        self,
        frame: memoryview,
        api_key: int,
        api_version: int,
        correlation_id: int,
        connection: Connection,
        failure: Exception | None = None,
    ) -> ReplyFrame | asyncio.Future[ReplyFrame] | PendingReply:
        """Start a request that no cache has answered. As `dispatch`.

        failure: raised by the cache that served the request; the request is then only answered with it.
        """
        quotas = self._quotas
        meter = None
        if quotas is not None and quotas.is_active:
            meter = RequestMeter(quotas, mute=connection.mute)
        try:
            route = self._routes.get((api_key, api_version))
            if route is None:
                if api_key == ApiKey.API_VERSIONS and not 0 <= api_version <= APIS[api_key].maximum_version:
                    return unsupported_version_reply(correlation_id)
                route = self._route(api_key, api_version)
            api, header_version, carries_records = route
            client_id, body_position = read_client_id(frame, header_version)
            request = decode(api.request, frame, api_version, body_position)
        except DecodeError as error:
            raise _undecodable(error) from None
        context = RequestContext(
            self._services,
            api_key,
            api_version,
            correlation_id,
            client_id,
            connection.client_host,
            connection.connection_id,
            meter,
            connection,
        )
        if failure is not None:
            return self._failed(api, context, request, failure)
        if api_key in CACHES:
            self._cache_request(frame, body_position, request, api_version, connection)
        if meter is not None:
            meter.begin(client_id, produced_bytes=len(frame) if api_key == PRODUCE else 0)
        try:
            response = api.handler(context, request)
            if isinstance(response, api.response):
                if meter is None:
                    return response_frame(correlation_id, response, api_version)
                return self._encode(response, context)
            if response is None:
                return self._encode(None, context)
            if isinstance(response, LongPoll):
                return self._begin_long_poll(api, context, request, response)
            started = eager.start(self._answer(api, context, request, response), self._loop)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  # one request must not take the connection down
            return self._failed(api, context, request, error)
        if isinstance(started, eager.Finished):
            return started.result
        if context.meter is not None:
            context.meter.pause_timing()
        if carries_records and context.needs_frame:
            connection.keep_frame_until(started)
        if context.blocks_connection:
            connection.block_until(started)
        if api.is_cancelled_on_disconnect:
            _cancel_on_disconnect(started, connection)
        return started

    def dispatch_run(self, frames: EqualLengthFrames, connection: Connection) -> RunResult | None:
        """Start several cached Produce requests together; returns None, and does nothing, for any others.

        Raises CloseConnection.
        """
        cache = connection.request_caches.get(PRODUCE)
        quotas = self._quotas
        if cache is None or (quotas is not None and quotas.is_active):
            return None
        if read_request_start(frames.first)[0] != PRODUCE:
            return None
        try:
            return cast("ProduceCache", cache).dispatch_run(frames)
        except Exception as error:
            log.exception("request_failed", api="Produce", error=ErrorCode.UNKNOWN_SERVER_ERROR.name)
            raise CloseConnection("Produce failed and could not be answered") from error

    def _cache_request(
        self, frame: memoryview, body_position: int, request: Any, version: int, connection: Connection
    ) -> None:
        api_key = request.api_key
        cache = connection.request_caches.get(api_key)
        if cache is None:
            try:
                cache = new_request_cache(api_key, self._services, self._loop, connection.block_until)
                connection.request_caches[api_key] = cache
            except (ImportError, OSError) as error:
                # A later request is remembered, say when there are descriptors again.
                if api_key not in self._without_cache:
                    self._without_cache.add(api_key)
                    log.warning("request_cache_not_loaded", api=ApiKey(api_key).name, reason=str(error))
                return
        cache.remember(frame, body_position, request, version)

    def _begin_long_poll(self, api: Api, context: RequestContext, request: Any, waiting: LongPoll[Any]) -> PendingReply:
        def poll() -> ReplyFrame:
            try:
                response = waiting.poll()
                return None if response is None else self._encode(response, context)
            except CloseConnection:
                raise
            except Exception as error:  # noqa: BLE001  # as above
                return self._failed(api, context, request, error)

        pending = PendingReply(self.long_polls, waiting, poll)
        pending.begin()
        if context.meter is not None:
            context.meter.pause_timing()
        return pending

    def _route(self, api_key: int, api_version: int) -> _Route:
        """Look up and keep a route. Raises CloseConnection for what is not served."""
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
        header_version = request_header_version(api_key, api_version)
        carries_records = any(field.type is RECORDS for field in schema_of(api.request).all_fields())
        route = self._routes[(api_key, api_version)] = _Route(api, header_version, carries_records)
        return route

    async def _answer(self, api: Api, context: RequestContext, request: Any, response: Awaitable[Any]) -> ReplyFrame:
        try:
            answer = await response
            if type(answer) is SlicedResponse:
                return await self._encode_in_slices(answer.response, context)
            return self._encode(answer, context)
        except CloseConnection:
            raise
        except Exception as error:  # noqa: BLE001  # as above
            return self._failed(api, context, request, error)

    async def _encode_in_slices(self, response: Any, context: RequestContext) -> ReplyFrame:
        meter = context.meter
        if meter is not None:
            meter.finish(response)
        steps = response_frame_in_slices(context.correlation_id, response, context.api_version)
        reply = await run_in_slices(steps, SLICE_S)
        if meter is not None:
            meter.finish_timing()
        return reply

    def _encode(self, response: Any, context: RequestContext) -> ReplyFrame:
        meter = context.meter
        if meter is not None:
            meter.finish(response)
        reply = None if response is None else response_frame(context.correlation_id, response, context.api_version)
        if meter is not None:
            meter.finish_timing()
        return reply

    def _failed(self, api: Api, context: RequestContext, request: Any, error: Exception) -> ReplyFrame:
        """Encode the error reply to a request whose handler raised. Raises CloseConnection if that is impossible."""
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        if isinstance(error, CoordinatorRefusal):
            code = error.error
        elif isinstance(error, StorageError):
            code = ErrorCode.KAFKA_STORAGE_ERROR
            log.error("request_failed", api=api.name, error=code.name, reason=str(error), client_id=context.client_id)
        else:
            log.error(
                "request_failed",
                api=api.name,
                version=context.api_version,
                client_id=context.client_id,
                error=code.name,
                exc_info=error,
            )
        if api.key == ApiKey.PRODUCE and request.acks == 0:
            raise CloseConnection(f"a write without acknowledgement failed with {code.name}")
        try:
            return self._encode(api.failed(request, code, context.api_version), context)
        except Exception as unanswerable:
            log.exception("failure_reply_failed", api=api.name, version=context.api_version)
            raise CloseConnection(f"{api.name} failed and could not be answered") from unanswerable


def _undecodable(error: DecodeError) -> CloseConnection:
    return CloseConnection(f"undecodable request: {error}")


def _cancel_on_disconnect(task: asyncio.Future[ReplyFrame], connection: Connection) -> None:
    def disconnected() -> None:
        task.cancel()

    connection.add_close_callback(disconnected)
    task.add_done_callback(lambda _: connection.remove_close_callback(disconnected))
