"""The control API as an ASGI application: routes from the table of operations, each carried out in a thread."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from fencepost.testing.http.arguments import arguments_of
from fencepost.testing.http.brokers import Brokers
from fencepost.testing.http.document import document
from fencepost.testing.http.hosts import page_refusal
from fencepost.testing.http.operation import Operation
from fencepost.testing.http.operations import OPERATIONS
from fencepost.testing.http.refusals import FAILED, FORBIDDEN, INPUT, NOT_FOUND, TOO_MUCH, Refusal, refusal_of

logger = logging.getLogger("fencepost.test_broker")

LONGEST_BODY_BYTES: Final = 32 * 1024 * 1024
MOST_OPERATIONS: Final = 200
"""At once: each has a thread, and one that waits keeps it."""
WITHOUT_LIMIT: Final = frozenset({"program", "brokers", "close_broker"})
"""Operations that have threads of their own: they tell of the operations that keep the others, and end them."""
CLOSING_THREADS: Final = 4
OPERATION_THREAD: Final = "test-broker-operation"

JSON: Final = "application/json"
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


class ControlApi:
    """Everything that requests share. From the begin of the application to its end, which closes all brokers."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._running = 0
        self._threads = ThreadPoolExecutor(MOST_OPERATIONS, OPERATION_THREAD)
        self._closing_threads = ThreadPoolExecutor(CLOSING_THREADS, "test-broker-closing")

    async def close_brokers(self) -> None:
        """Close all brokers and create none any more, so that operations that wait on them are answered."""
        await asyncio.get_running_loop().run_in_executor(self._closing_threads, self._brokers.close_all)

    async def close(self) -> None:
        """Close all brokers, and carry out nothing any more."""
        await self.close_brokers()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._closing_threads.shutdown(wait=False)

    async def answer(self, operation: Operation, request: Request) -> Response:
        """Carry out an operation, or refuse it."""
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > LONGEST_BODY_BYTES:
                    break
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        if len(body) > LONGEST_BODY_BYTES:
            limit = f"{LONGEST_BODY_BYTES // 1024 // 1024} MiB"
            return _refused(Refusal(413, TOO_MUCH, f"the body is larger than {limit}: send it in parts"))
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if body and operation.has_body and kind != JSON:
            return _refused(Refusal(415, INPUT, f"the body is said to be {kind!r}: send Content-Type: {JSON}"))
        threads = self._closing_threads if operation.name in WITHOUT_LIMIT else self._threads
        if threads is self._threads and self._running >= MOST_OPERATIONS:
            sentence = f"{MOST_OPERATIONS} operations are under way, which is the limit: wait for one to end"
            return _refused(Refusal(429, TOO_MUCH, sentence))
        self._running += threads is self._threads
        try:
            status, content = await asyncio.get_running_loop().run_in_executor(
                threads, self._carry_out, operation, request.path_params, request.url.query, bytes(body)
            )
        finally:
            self._running -= threads is self._threads
        return Response(content, status, HEADERS, media_type=JSON)

    def _carry_out(
        self, operation: Operation, in_path: Mapping[str, str], query: str, body: bytes
    ) -> tuple[int, bytes]:
        """Status and body of the answer. Called in a thread; no exception passes it."""
        try:
            result = operation.run(self._brokers, arguments_of(operation, in_path, query, body))
            return operation.status, json.dumps(result).encode()
        except Exception as error:  # a client gets a sentence for each
            refusal = refusal_of(error)
            if refusal is None:
                logger.exception("%s failed", operation.name)
                sentence = f"{operation.name} failed inside ({type(error).__name__}): standard error has the reason"
                refusal = Refusal(500, FAILED, sentence)
            return refusal.status, json.dumps(refusal.body()).encode()


def make_app(brokers: Brokers) -> Starlette:
    """The control API of these brokers as an ASGI application."""
    api = ControlApi(brokers)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await api.close()

    described = json.dumps(document(version("fencepost")), indent=1).encode()

    async def openapi(_: Request) -> Response:
        return Response(described, 200, HEADERS, media_type=JSON)

    routes = [Route("/openapi.json", openapi, methods=["GET"])]
    routes += [Route(one.path, _endpoint(api, one), methods=[one.method], name=one.name) for one in OPERATIONS]
    app = Starlette(routes=_merged(routes), lifespan=lifespan, exception_handlers={HTTPException: _missing})
    app.state.control = api
    app.router.redirect_slashes = False
    app.add_middleware(Guard)
    return app


def _merged(routes: list[Route]) -> list[Route]:
    """One route for each path, whose methods it knows: for the status 405, and the methods that it names."""
    by_path: dict[str, dict[str, Callable[[Request], Awaitable[Response]]]] = {}
    for route in routes:
        for method in route.methods or ():
            if method != "HEAD":
                by_path.setdefault(route.path, {})[method] = route.endpoint

    def choose(endpoints: dict[str, Callable[[Request], Awaitable[Response]]]) -> Any:
        async def endpoint(request: Request) -> Response:
            return await endpoints["GET" if request.method == "HEAD" else request.method](request)

        return endpoint

    return [Route(path, choose(endpoints), methods=list(endpoints)) for path, endpoints in by_path.items()]


def _endpoint(api: ControlApi, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return await api.answer(operation, request)

    return endpoint


async def _missing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        sentence = f"{request.url.path[:200]!r} does not know {request.method}: use {allowed}"
        response = _refused(Refusal(405, NOT_FOUND, sentence))
        response.headers["Allow"] = allowed
        return response
    sentence = f"there is no operation at {request.url.path[:200]!r}: GET /openapi.json describes all"
    return _refused(Refusal(404, NOT_FOUND, sentence))


def _refused(refusal: Refusal) -> Response:
    return Response(json.dumps(refusal.body()).encode(), refusal.status, HEADERS, media_type=JSON)


class Guard:
    """Refuses requests that a page in a browser may have sent."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
            refused = page_refusal(headers)
            if refused is not None:
                await _refused(Refusal(refused[0], FORBIDDEN, refused[1]))(scope, receive, send)
                return
        await self._app(scope, receive, send)
