"""The application: routes, their access checks, and the headers of every answer."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from fencepost.client.cluster import Cluster
from fencepost.client.errors import (
    ClusterError,
    LogInNeededError,
    LogInRefusedError,
    RefusedError,
    UnreachableError,
)
from fencepost.client.log_in import Credentials
from fencepost.client.session import ClientOptions
from fencepost.console.broker_http import BrokerHttp
from fencepost.console.options import ConsoleOptions
from fencepost.console.reading.sharing import Readers
from fencepost.console.values import Values
from fencepost.console.web import changes
from fencepost.console.web.pages import PAGES
from fencepost.console.web.rendering import make_environment, static_files
from fencepost.console.web.sessions import COOKIE, Session, Sessions
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, as_json
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.sasl_login import MECHANISMS

logger = logging.getLogger("fencepost.console")

CLIENT_ID: Final = "fencepost-console"
LONGEST_BODY_BYTES: Final = 1 << 20
OLD_FORM: Final = "this form is from an earlier visit: try again"
FORM_IS_OLD: Final = "form-is-old"
THEMES: Final = ("system", "light", "dark")
POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
CONTENT_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
NOT_FOUND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)

PageFunction = Callable[[Visit], Awaitable[Page]]


class Console:
    """Everything that requests share."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.sessions = Sessions()
        self.readers = Readers()
        self.http = BrokerHttp(options.broker_http, options.broker_http_token)
        self.values = Values()
        self.templates = make_environment()
        self.mechanisms: tuple[str, ...] = ()
        self._shared = Cluster(options.bootstrap, ClientOptions(tls=options.tls, client_id=CLIENT_ID))
        self.needs_log_in = bool(options.needs_log_in)

    def close(self) -> None:
        self.readers.close()
        self.sessions.end_all()
        self._shared.close()

    # sessions

    def session_of(self, request: Request) -> Session:
        """The session of a request, or one that begins with it."""
        found = self.sessions.find(request.cookies.get(COOKIE))
        if found is None:
            found = self.sessions.begin(None if self.needs_log_in else self._shared)
        return found

    async def learn_mechanisms(self) -> None:
        """Ask the cluster whether it needs a log-in, and by which mechanisms. Raises ClusterError."""
        if self.mechanisms:
            return
        try:
            await self._shared.view(())
        except LogInNeededError as error:
            self.needs_log_in = True
            self.mechanisms = error.mechanisms
        else:
            self.needs_log_in = bool(self.options.needs_log_in)

    async def log_in(self, session: Session, credentials: Credentials) -> Session:
        """Begin the session of a user. Raises ClusterError."""
        cluster = Cluster(self.options.bootstrap, ClientOptions(self.options.tls, credentials, CLIENT_ID))
        try:
            await cluster.view(())
        except BaseException:
            cluster.close()
            raise
        self.sessions.end(session)
        return self.sessions.begin(cluster, owns_cluster=True)

    # answers

    def render(self, request: Request, session: Session, page: Page) -> Response:
        """A page as HTML, or its data as JSON for who accepts only that."""
        if wants_json(request):
            return Response(as_json(page.data), page.status, media_type="application/json")
        theme = request.cookies.get("theme", "system")
        notice, session.notice = session.notice, ""
        html = self.templates.get_template(page.template).render(
            {
                **page.data,
                "page_title": page.title,
                "page_menu": page.menu,
                "refreshes": page.refreshes and page.status == 200,
                "session": session,
                "csrf_token": session.csrf,
                "notice": notice,
                "theme": theme if theme in THEMES else "system",
                "bootstrap": ",".join(f"{host}:{port}" for host, port in self.options.bootstrap),
                "user": session.cluster.user if session.cluster else None,
                "read_only": self.options.read_only,
                "read_at_ms": int((time.time() - page.age_s) * 1000),
                "age_s": page.age_s,
                "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
                "search_text": request.query_params.get("q", "") if request.url.path == "/search" else "",
            }
        )
        return HTMLResponse(html, page.status)

    def set_cookie(self, request: Request, response: Response, session: Session) -> None:
        """Give the browser the session. A form that comes without one is another site's, whose answer must not take the
        place of the session that the browser has.
        """
        if request.method != "POST" or self.sessions.find(request.cookies.get(COOKIE)) is not None:
            self.give_session(response, session)

    def give_session(self, response: Response, session: Session) -> None:
        # Lax, as a strict cookie is not sent with a link from another site, and the page would begin a session anew.
        response.set_cookie(
            COOKIE, session.token, httponly=True, samesite="lax", secure=self.options.is_secure, path="/"
        )


def wants_json(request: Request) -> bool:
    accepted = request.headers.get("accept", "")
    return "application/json" in accepted and "text/html" not in accepted


def error_page(error: Exception) -> Page:
    """Return the page of an error, with its status."""
    match error:
        case NotFoundError():
            title, status, advice = "Not found", 404, ""
        case BadFormError():
            title, status, advice = "That cannot be done", 422, "Go back and change it."
        case RefusedError() if error.is_denied:
            title, status = "You may not see this", 403
            advice = "Your user has no right to it. An administrator can add one with `fencepost acls add`."
        case RefusedError() if error.code in NOT_FOUND:
            title, status, advice = "Not found", 404, "It may be gone, or your user may not see it."
        case RefusedError():
            title, status, advice = "The cluster refused", 502, ""
        case UnreachableError():
            title, status, advice = "No broker answers", 502, "This page asks again as soon as you reload it."
        case _:
            title, status, advice = "That did not work", 502, ""
    return Page("error.html", title, {"error": _sentence(str(error)), "advice": advice}, status=status)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def _endpoint(console: Console, function: PageFunction) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await _visit(console, request, function)

    return answer


async def _visit(
    console: Console, request: Request, function: Callable[[Visit], Awaitable[Page | Response]]
) -> Response:
    session = console.session_of(request)
    if session.cluster is None:
        response = await _to_log_in(console, request, session)
        if response is not None:
            return response
        session = console.sessions.begin(console._shared)  # noqa: SLF001
    assert session.cluster is not None
    http = console.http.for_person(session.cluster)
    visit = Visit(request, session, session.cluster, http, console.options, console.values, console.readers)
    try:
        result = await function(visit)
    except (LogInNeededError, LogInRefusedError) as error:
        # A password may have been changed meanwhile, or the cluster secured.
        console.needs_log_in = True
        if isinstance(error, LogInNeededError) and error.mechanisms:
            console.mechanisms = error.mechanisms
        console.sessions.end(session)
        session = console.sessions.begin(None)
        response = await _to_log_in(console, request, session)
        assert response is not None
        return response
    except (ClusterError, NotFoundError, BadFormError) as error:
        result = error_page(error)
    except Exception:
        logger.exception("%s %s failed", request.method, request.url.path)
        text = "The console itself failed; its log, on standard error, has the reason."
        result = Page("error.html", "That did not work", {"error": text, "advice": ""}, status=500)
    response = result if isinstance(result, Response) else console.render(request, session, result)
    console.set_cookie(request, response, session)
    return response


async def _to_log_in(console: Console, request: Request, session: Session) -> Response | None:
    """The way to the log-in; None if the cluster needs none after all."""
    try:
        await console.learn_mechanisms()
    except ClusterError as error:
        return console.render(request, session, error_page(error))
    if not console.needs_log_in:
        return None
    if wants_json(request):
        return JSONResponse({"error": "log in first"}, 401)
    response = RedirectResponse("/log-in", 303)
    console.set_cookie(request, response, session)
    return response


async def _read_form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises BadFormError."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY_BYTES:
            raise BadFormError(f"a form may have at most {LONGEST_BODY_BYTES:,} bytes")
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=200, errors="strict")
    except ValueError:
        raise BadFormError("the form cannot be read") from None
    return dict(pairs)


class _Answers:
    """Answers of the routes that are no pages of the cluster: log-in, changes, the theme, static files."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def log_in(self, request: Request) -> Response:
        session = self._console.session_of(request)
        error = ""
        status = 200
        try:
            await self._console.learn_mechanisms()
            if request.method == "POST":
                if self._console.sessions.find(request.cookies.get(COOKIE)) is None:
                    # The answer to a form gives no session, so a form in it would be refused, too, however often.
                    return RedirectResponse(f"/log-in?{FORM_IS_OLD}=yes", 303)
                form = await _read_form(request)
                if not session.accepts(form.get(changes.CSRF, "")):
                    raise BadFormError(OLD_FORM)
                credentials = Credentials(form.get("mechanism", ""), form.get("user", ""), form.get("password", ""))
                session = await self._console.log_in(session, credentials)
                response: Response = RedirectResponse("/", 303)
                self._console.give_session(response, session)
                return response
            if FORM_IS_OLD in request.query_params:
                error = _sentence(OLD_FORM)
        except (ClusterError, BadFormError) as failure:
            error, status = _sentence(str(failure)), 403
        if session.cluster is not None and not self._console.needs_log_in:
            return RedirectResponse("/", 303)
        offered = [one for one in MECHANISMS if one in self._console.mechanisms] or list(MECHANISMS)
        if self._console.options.mechanism in offered:
            offered.remove(self._console.options.mechanism)
            offered.insert(0, self._console.options.mechanism)
        page = Page("log_in.html", "Log in", {"mechanisms": offered, "error": error}, status=status)
        response = self._console.render(request, session, page)
        self._console.set_cookie(request, response, session)
        return response

    async def log_out(self, request: Request) -> Response:
        session = self._console.session_of(request)
        form = await _read_form(request)
        response = RedirectResponse("/log-in" if self._console.needs_log_in else "/", 303)
        if session.accepts(form.get(changes.CSRF, "")):
            self._console.sessions.end(session)
            response.delete_cookie(COOKIE)
        return response

    async def change(self, request: Request) -> Response:
        name = request.path_params["name"]

        async def carry_out(visit: Visit) -> Page | Response:
            form = await _read_form(request)
            if name not in changes.CHANGES:
                raise NotFoundError(f"there is no change {name}")
            if not visit.session.accepts(form.get(changes.CSRF, "")):
                raise BadFormError("this form is from an earlier visit: open its page again")
            if self._console.options.read_only:
                raise BadFormError("this console was started with --read-only")
            return await changes.answer(visit, name, form)

        return await _visit(self._console, request, carry_out)

    async def theme(self, request: Request) -> Response:
        chosen = request.query_params.get("to", "system")
        back = request.query_params.get("back", "/")
        # Only a path of this site: `//host` and `/\host` are addresses elsewhere.
        safe = back if back.startswith("/") and back[1:2] not in ("/", "\\") else "/"
        response = RedirectResponse(safe, 303)
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
        return self._console.render(request, self._console.session_of(request), page)


def make_app(options: ConsoleOptions) -> Starlette:
    """The console as an ASGI application."""
    console = Console(options)
    answers = _Answers(console)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        console.close()

    routes = [Route(address, _endpoint(console, function)) for address, function in PAGES.items()]
    routes += [
        Route("/log-in", answers.log_in, methods=["GET", "POST"]),
        Route("/log-out", answers.log_out, methods=["POST"]),
        Route("/change/{name}", answers.change, methods=["POST"]),
        Route("/theme", answers.theme),
        Route("/static/{name}", answers.static),
    ]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: answers.missing})
    app.state.console = console
    app.add_middleware(Guard, options=options)
    return app


class Guard:
    """Puts the same headers on every answer, and refuses a Host that this console is not: a page of another site may
    make its own name point here (DNS rebinding).
    """

    def __init__(self, app: Any, options: ConsoleOptions) -> None:
        self._app = app
        self._names = allowed_hosts(options)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1")
        if self._names and host_name(host) not in self._names:
            text = f"this console does not answer to the name {host_name(host)!r}; start it with --name to let it\n"
            await Response(text, 421, HEADERS, media_type="text/plain")(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                present = {name.lower() for name, _ in message["headers"]}
                added = (
                    dict(HEADERS) if scope["path"].startswith("/static/") else {**HEADERS, "Cache-Control": "no-store"}
                )
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.lower().encode(), value.encode())
                        for name, value in added.items()
                        if name.lower().encode() not in present
                    ),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def allowed_hosts(options: ConsoleOptions) -> frozenset[str]:
    """Names that this console answers to."""
    return options.names | {options.listen_host.lower(), "localhost", "127.0.0.1", "::1"}
