"""The routes of the HTTP listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.broker.http import health
from fencepost.broker.http.exchange import (
    BadRequestError,
    HttpRequest,
    HttpResponse,
    error_response,
)
from fencepost.broker.http.exposition import (
    OPENMETRICS_FORMAT,
    TEXT_FORMAT,
    exposition,
    is_openmetrics_wanted,
)
from fencepost.broker.http.families import FAMILIES
from fencepost.broker.http.node_view import NodeView
from fencepost.broker.http.scrape import Scrape

Route = Callable[[NodeView | None, HttpRequest], Awaitable[HttpResponse]]
NodeRoute = Callable[[NodeView, HttpRequest], Awaitable[HttpResponse]]


def of_node(route: NodeRoute) -> Route:
    """A route that only a started node can answer."""

    async def respond(view: NodeView | None, request: HttpRequest) -> HttpResponse:
        if view is None:
            return error_response(503, health.STARTING)
        return await route(view, request)

    return respond


async def metrics(view: NodeView, request: HttpRequest) -> HttpResponse:
    """All metrics, or the families that are named by `name[]`."""
    names = frozenset(request.query.get("name[]", ()))
    families = [family for family in FAMILIES if not names or names & {family.name, family.openmetrics_name}]
    is_openmetrics = is_openmetrics_wanted(request.headers.get("accept", ""))
    pieces = exposition(families, Scrape(view), is_openmetrics=is_openmetrics)
    return HttpResponse(200, OPENMETRICS_FORMAT if is_openmetrics else TEXT_FORMAT, pieces)


GET: Final[dict[tuple[str, ...], Route]] = {
    ("metrics",): of_node(metrics),
    ("healthz",): health.alive,
    ("livez",): health.alive,
    ("readyz",): health.ready,
}


def find_route(request: HttpRequest) -> Route:
    """The route of a request. Raises BadRequestError."""
    if request.method in ("GET", "HEAD"):
        route = GET.get(request.path)
        if route is not None:
            return route
    raise BadRequestError("there is no such path; /metrics, /healthz, /livez, /readyz and /v1/… are served", 404)
