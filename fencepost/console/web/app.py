"""The application: its routes, and how each is answered."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from fencepost.client.errors import ClusterError, LogInNeededError, LogInRefusedError
from fencepost.console.options import ConsoleOptions
from fencepost.console.web import changes, choosing
from fencepost.console.web.addresses import PREFIX, is_local, with_base
from fencepost.console.web.clusters import ShownCluster
from fencepost.console.web.console import THEMES, Console, NoRoleError, error_page, here, wants_json
from fencepost.console.web.forms import read_form
from fencepost.console.web.guard import Guard
from fencepost.console.web.log_in import LogIn
from fencepost.console.web.pages import PAGES
from fencepost.console.web.rendering import static_files
from fencepost.console.web.roles import needed_role
from fencepost.console.web.sessions import Browser
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, with_query

logger = logging.getLogger("fencepost.console")

CONTENT_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

PageFunction = Callable[[Visit], Awaitable[Page | Response]]


def _endpoint(console: Console, function: PageFunction) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await _visit(console, request, function)

    return answer


async def _visit(console: Console, request: Request, function: PageFunction) -> Response:
    browser = await console.kept_browser(request)
    try:
        cluster = console.cluster_of(request)
    except NotFoundError as error:
        response = console.render(request, browser, error_page(error))
    else:
        response = await _in_cluster(console, request, browser, cluster, function)
        if "location" in response.headers:
            response.headers["location"] = with_base(response.headers["location"], console.base_of(cluster))
    console.set_cookie(request, response, browser)
    return response


async def _in_cluster(
    console: Console, request: Request, browser: Browser, cluster: ShownCluster, function: PageFunction
) -> Response:
    try:
        session = console.session_of(browser, cluster)
        if session is None:
            response = await _to_log_in(console, request, browser, cluster)
            if response is not None:
                return response
            session = console.session_of(browser, cluster)
            assert session is not None
    except NoRoleError as error:
        return console.render(request, browser, error_page(error), cluster)
    http = cluster.http.for_person(session.cluster)
    visit = Visit(request, session, session.cluster, http, cluster.options, cluster.values, console.readers)
    try:
        result = await function(visit)
    except (LogInNeededError, LogInRefusedError) as error:
        if console.people is not None:
            # Nobody logs in here as a user of the cluster: the console's own user, or the person's token, is refused.
            who = "the person's token" if cluster.options.passes_token else "the user as whom the console asks"
            refused = ClusterError(f"the cluster {cluster.name} refuses {who}: {error}")
            return console.render(request, browser, error_page(refused), cluster, session)
        cluster.refused_log_in(error.mechanisms if isinstance(error, LogInNeededError) else ())
        browser.end_session(cluster.name)
        response = await _to_log_in(console, request, browser, cluster)
        assert response is not None
        return response
    except (ClusterError, NotFoundError, BadFormError, NoRoleError) as error:
        result = error_page(error)
    except Exception:
        logger.exception("%s %s failed", request.method, request.url.path)
        text = "The console itself failed; its log, on standard error, has the reason."
        result = Page("error.html", "That did not work", {"error": text, "advice": ""}, status=500)
    return result if isinstance(result, Response) else console.render(request, browser, result, cluster, session)


async def _to_log_in(console: Console, request: Request, browser: Browser, cluster: ShownCluster) -> Response | None:
    """The way to the log-in; None if the cluster needs none after all."""
    if console.people is None:
        try:
            await cluster.learn_mechanisms()
        except ClusterError as error:
            return console.render(request, browser, error_page(error), cluster)
        if not cluster.needs_log_in:
            return None
    if wants_json(request):
        return JSONResponse({"error": "log in first"}, 401)
    if console.people is None or request.method != "GET":
        return RedirectResponse("/log-in", 303)
    return RedirectResponse(with_query("/log-in", to=here(request)), 303)


class _Answers:
    """Answers of the routes that are no pages of a cluster: changes, the theme, static files."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def change(self, request: Request) -> Response:
        name = request.path_params["name"]

        async def carry_out(visit: Visit) -> Page | Response:
            form = await read_form(request)
            if name not in changes.CHANGES:
                raise NotFoundError(f"there is no change {name}")
            refusal: BadFormError | NoRoleError | None = None
            if not visit.session.accepts(form.get(changes.CSRF, "")):
                refusal = BadFormError("this form is from an earlier visit: open its page again")
            elif visit.options.read_only:
                refusal = BadFormError("this console was started with --read-only")
            elif not visit.may(name):
                refusal = NoRoleError(f"this needs the role {needed_role(name).value}, and you are {visit.role.value}")
            if refusal is not None:
                await changes.note_refusal(visit, name, form, str(refusal))
                raise refusal
            await visit.cluster.view(())
            self._console.clusters[visit.cluster_name].check_id()
            return await changes.answer(visit, name, form)

        return await _visit(self._console, request, carry_out)

    async def theme(self, request: Request) -> Response:
        chosen = request.query_params.get("to", "system")
        back = request.query_params.get("back", "/")
        response = RedirectResponse(back if is_local(back) else "/", 303)
        if chosen in THEMES:
            response.set_cookie("theme", chosen, max_age=365 * 86_400, samesite="strict", httponly=True, path="/")
        return response

    async def static(self, request: Request) -> Response:
        name = request.path_params["name"]
        content = static_files().get(name)
        kind = CONTENT_TYPES.get(name.rpartition(".")[2])
        if content is None or kind is None:
            return Response("there is no such file", 404, media_type="text/plain")
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    async def missing(self, request: Request, _: Exception) -> Response:
        page = error_page(NotFoundError(f"there is no page {request.url.path}"))
        return self._console.render(request, self._console.browser_of(request), page)


def make_app(options: ConsoleOptions) -> Starlette:
    """The console as an ASGI application."""
    console = Console(options)
    answers, log_in = _Answers(console), LogIn(console)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        console.begin()
        yield
        console.close()
        for cluster in console.clusters.values():
            await cluster.values.close()

    of_a_cluster: list[BaseRoute] = [
        *(Route(address, _endpoint(console, function)) for address, function in PAGES.items()),
        Route("/log-in", log_in.log_in, methods=["GET", "POST"]),
        Route("/change/{name}", answers.change, methods=["POST"]),
    ]
    routes: list[BaseRoute] = [
        Route("/log-out", log_in.log_out, methods=["POST"]),
        Route("/theme", answers.theme),
        Route("/static/{name}", answers.static),
        Route("/clusters", choosing.endpoint(console)),
        Mount(f"{PREFIX}/{{cluster}}", routes=of_a_cluster),
    ]
    if console.people is not None:
        routes += [Route("/oidc/log-in", log_in.begin), Route("/oidc/callback", log_in.finish)]
        routes += [Route("/log-in", log_in.log_in)]
    if console.has_several:
        # Old addresses, and those of no cluster: people choose one, and go on with the same page.
        routes += [Route(address, choosing.endpoint(console)) for address in (*PAGES, "/log-in")]
    else:
        routes += of_a_cluster
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: answers.missing})
    app.state.console = console
    app.add_middleware(Guard, options=options)
    return app
