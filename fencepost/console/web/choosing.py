"""The page on which people choose a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.client.errors import ClusterError
from fencepost.console.web.addresses import base_of
from fencepost.console.web.clusters import ShownCluster
from fencepost.console.web.console import Console, NoRoleError, here
from fencepost.console.web.sessions import Browser
from fencepost.console.web.visit import Page, with_query

LONGEST_WAIT_S: Final = 1.5
"""A cluster that does not answer by then is shown without its state."""


@dataclass(frozen=True)
class Choice:
    """A cluster to choose. role: empty if there is none, or it is known after the log-in. state: in a few words."""

    name: str
    address: str
    bootstrap: str
    role: str
    state: str
    is_well: bool
    warning: str = ""


def endpoint(console: Console) -> Callable[[Request], Awaitable[Response]]:
    """The route that shows the clusters. An address of another page leads on to that page, in the chosen cluster."""

    async def answer(request: Request) -> Response:
        browser = await console.kept_browser(request)
        if console.people is not None and browser.person is None:
            response: Response = RedirectResponse(with_query("/log-in", to=here(request)), 303)
            console.set_cookie(request, response, browser)
            return response
        page = request.url.path if request.url.path not in ("/clusters", "/log-in") else "/"
        rest = page + here(request)[len(request.url.path) :]
        choices = await asyncio.gather(
            *(_choice(console, browser, cluster, rest) for cluster in console.clusters.values())
        )
        data = {"choices": choices}
        response = console.render(request, browser, Page("clusters.html", "Clusters", data, menu="clusters"))
        console.set_cookie(request, response, browser)
        return response

    return answer


async def _choice(console: Console, browser: Browser, cluster: ShownCluster, rest: str) -> Choice:
    address = base_of(cluster.name) + rest
    bootstrap = cluster.shared.bootstrap
    state, is_well = await _state(cluster)
    role = ""
    try:
        session = console.session_of(browser, cluster) if is_well else browser.sessions.get(cluster.name)
        role = session.role.value if session is not None else ""
    except NoRoleError as error:
        state, is_well = str(error), False
    return Choice(cluster.name, address, bootstrap, role, state, is_well, cluster.warning)


async def _state(cluster: ShownCluster) -> tuple[str, bool]:
    try:
        async with asyncio.timeout(LONGEST_WAIT_S):
            await cluster.learn_mechanisms()
    except TimeoutError:
        return "no answer yet", False
    except ClusterError as error:
        return str(error), False
    return "needs a log-in" if cluster.needs_log_in else "answers", True
