"""The routes of the HTTP listener."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from fencepost.broker.http import change_routes, health, view_routes
from fencepost.broker.http.exchange import (
    BadRequestError,
    HttpRequest,
    HttpResponse,
    error_response,
)
from fencepost.broker.metrics.exposition import (
    OPENMETRICS_FORMAT,
    TEXT_FORMAT,
    exposition,
    is_openmetrics_wanted,
)
from fencepost.broker.metrics.families import FAMILIES
from fencepost.broker.metrics.node_view import NodeView
from fencepost.broker.metrics.scrape import Scrape

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


_FIXED: Final[dict[tuple[str, ...], Route]] = {
    ("metrics",): of_node(metrics),
    ("healthz",): health.alive,
    ("livez",): health.alive,
    ("readyz",): health.ready,
    ("v1", "node"): of_node(view_routes.node),
    ("v1", "connections"): of_node(view_routes.connections),
    ("v1", "stuck"): of_node(view_routes.stuck),
    ("v1", "transactions"): of_node(view_routes.transactions),
}
GET, POST = "GET", "POST"


def find_route(request: HttpRequest) -> Route:
    """The route of a request. Raises BadRequestError."""
    found = _FIXED.get(request.path)
    if found is not None:
        return _if_allowed(request, GET, found)
    match request.path:
        case ("v1", "partitions", _, _):
            method, route = GET, view_routes.partition
        case ("v1", "producers", _):
            method, route = GET, view_routes.producer
        case ("v1", "transactions", _):
            method, route = GET, view_routes.transaction
        case ("v1", "transactions", _, "history"):
            method, route = GET, view_routes.history
        case ("v1", "groups", _, "lag"):
            method, route = GET, view_routes.group_lag
        case ("v1", "transactions", _, "abort"):
            method, route = POST, change_routes.abort_transaction
        case ("v1", "partitions", _, _, "abort-hanging"):
            method, route = POST, change_routes.abort_hanging
        case ("v1", "log-levels"):
            method, route = POST, change_routes.set_log_level
        case _:
            raise BadRequestError("there is no such path; docs/monitoring.md lists them", 404)
    return _if_allowed(request, method, of_node(route))


def _if_allowed(request: HttpRequest, method: str, route: Route) -> Route:
    if request.method != method and not (method == GET and request.method == "HEAD"):
        raise BadRequestError(f"this path answers {method} alone", 405)
    return route
