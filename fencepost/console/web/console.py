"""The state that all requests of the console share: clusters, sessions, templates; and how a page is rendered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fencepost.client.errors import RefusedError, UnreachableError
from fencepost.client.log_in import Credentials
from fencepost.console.options import ConsoleOptions
from fencepost.console.reading.sampling import Sampler
from fencepost.console.reading.sharing import Readers, StillReadingError
from fencepost.console.roles import Role, highest_role
from fencepost.console.web.addresses import base_of, links_with_base, with_base
from fencepost.console.web.clusters import ShownCluster
from fencepost.console.web.rendering import make_environment
from fencepost.console.web.roles import needed_role
from fencepost.console.web.sessions import COOKIE, Browser, Person, Session, Sessions
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, as_json
from fencepost.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from fencepost.console.web.people import People

STILL_READING: Final = 503
THEMES: Final = ("system", "light", "dark")
REFRESH: Final = "fencepost-refresh"
"""Header of a request that a page makes by itself."""
NOT_FOUND: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


class NoRoleError(Exception):
    """A person has no role in a cluster, or not the one that is needed; the message says so."""


class Console:
    """Everything that requests share."""

    def __init__(self, options: ConsoleOptions) -> None:
        self.options = options
        self.sessions = Sessions(options.idle_s, options.lifetime_s)
        self.clusters = {one.name: ShownCluster(one) for one in options.every_cluster}
        self.readers = Readers()
        self.templates = make_environment()
        self.people: People | None = None
        if options.oidc is not None:
            # Only here: its libraries are those of an extra.
            from fencepost.console.web.people import People

            self.people = People(options.oidc, passes_tokens=any(one.passes_token for one in options.every_cluster))

    @property
    def has_several(self) -> bool:
        return len(self.clusters) > 1

    @property
    def only_cluster(self) -> ShownCluster:
        return next(iter(self.clusters.values()))

    def begin(self) -> None:
        """Sample clusters that the console may ask by itself. Sampling ends if one says that it needs a log-in."""
        for cluster in self.clusters.values():
            for client in cluster.own_clients:
                reads = self.readers.of(client)
                reads.keep(Sampler).begin(reads, is_constant=True)

    def close(self) -> None:
        self.readers.close()
        self.sessions.end_all()
        for cluster in self.clusters.values():
            cluster.close()

    def cluster_of(self, request: Request) -> ShownCluster:
        """The cluster of an address. Raises NotFoundError."""
        name = request.path_params.get("cluster")
        if name is None:
            return self.only_cluster
        if name not in self.clusters:
            raise NotFoundError(f"this console has no cluster {name!r}")
        return self.clusters[name]

    def base_of(self, cluster: ShownCluster | None) -> str:
        """The beginning of a cluster's addresses: empty if there is only one cluster."""
        return base_of(cluster.name) if cluster is not None and self.has_several else ""

    # sessions

    def browser_of(self, request: Request) -> Browser:
        """The browser of a request, or one that begins with it."""
        return self.known_browser(request) or self.sessions.begin()

    def known_browser(self, request: Request) -> Browser | None:
        by_itself = REFRESH in request.headers or "text/event-stream" in request.headers.get("accept", "")
        return self.sessions.find(request.cookies.get(COOKIE), is_use=not by_itself)

    async def kept_browser(self, request: Request) -> Browser:
        """The browser of a request, as `browser_of`; without its person if the provider knows that one no more."""
        browser = self.browser_of(request)
        if self.people is not None and not await self.people.keep(browser):
            self.sessions.end(browser)
            browser = self.sessions.begin()
        return browser

    def come_in(self, browser: Browser, person: Person) -> None:
        """Begin the sessions of a person whom the provider has named."""
        for name in list(browser.sessions):
            browser.end_session(name)
        browser.person = None
        self.sessions.renew(browser)
        browser.person = person

    def session_of(self, browser: Browser, cluster: ShownCluster) -> Session | None:
        """The session of a browser at a cluster, or one that begins without a log-in; None if that needs one.

        Raises NoRoleError.
        """
        session = browser.sessions.get(cluster.name)
        if session is None and self.people is not None:
            if browser.person is None:
                return None
            session = browser.sessions[cluster.name] = self._session_of_person(browser, browser.person, cluster)
        elif session is None and not cluster.needs_log_in:
            role = self.role_in(cluster, frozenset({"ANONYMOUS"}), "Somebody without a log-in")
            session = Session(browser, cluster.shared, role)
            browser.sessions[cluster.name] = session
        return session

    def _session_of_person(self, browser: Browser, person: Person, cluster: ShownCluster) -> Session:
        """Raises NoRoleError."""
        role = self.role_in(cluster, person.values, person.name)
        if cluster.options.passes_token:
            client = cluster.client(Credentials("OAUTHBEARER", "", lambda: person.access_token))
            return Session(browser, client, role, owns_cluster=True)
        return Session(browser, cluster.client_of(role), role)

    async def log_in(self, browser: Browser, cluster: ShownCluster, credentials: Credentials) -> None:
        """Begin the session of a user. Raises ClusterError, NoRoleError."""
        client = cluster.client(credentials)
        try:
            await client.view(())
            # A token's user is the broker's to say: the name beside it is anything that a person typed.
            names = frozenset() if credentials.mechanism == "OAUTHBEARER" else frozenset({credentials.user})
            role = self.role_in(cluster, names, f"The user {credentials.user}")
        except BaseException:
            client.close()
            raise
        self.sessions.renew(browser)
        browser.end_session(cluster.name)
        browser.sessions[cluster.name] = Session(browser, client, role, owns_cluster=True)

    def role_in(self, cluster: ShownCluster, values: frozenset[str], who: str) -> Role:
        """The role of a person in a cluster, by the values of the claim or by the user's name. Raises NoRoleError."""
        roles, oidc = cluster.options.roles, self.options.oidc
        role = None if roles is None else highest_role(values, roles)
        if role is None and oidc is not None:
            role = oidc.default_role
        elif roles is None:
            role = Role.ADMIN
        if role is None:
            raise NoRoleError(f"{who} has no role in the cluster {cluster.name}: none of the roles names it")
        return Role.VIEWER if cluster.options.read_only else role

    # answers

    def render(
        self,
        request: Request,
        browser: Browser,
        page: Page,
        cluster: ShownCluster | None = None,
        session: Session | None = None,
    ) -> Response:
        """A page as HTML, or its data as JSON for who accepts only that. session: None before the log-in."""
        if wants_json(request):
            return Response(as_json(page.data), page.status, media_type="application/json")
        theme = request.cookies.get("theme", "system")
        owner = browser if session is None else session
        notice, owner.notice = owner.notice, ""
        role = Role.VIEWER if session is None else session.role
        base = self.base_of(cluster)
        shown: dict[str, Any] = {
            "page_title": page.title,
            "page_menu": page.menu,
            "refreshes": page.refreshes and page.status in (200, STILL_READING),
            "refresh_s": 1 if page.status == STILL_READING else 5,
            "csrf_token": browser.csrf,
            "notice": notice,
            "theme": theme if theme in THEMES else "system",
            "bootstrap": "" if cluster is None else cluster.shared.bootstrap,
            "user": user_of(browser, session),
            "role": role.value,
            "read_only": session is not None and role is Role.VIEWER,
            "may": lambda change: role.includes(needed_role(change)),
            "cluster_name": cluster.name if cluster is not None and self.has_several else "",
            "cluster_warning": "" if cluster is None else cluster.warning,
            "has_clusters": self.has_several,
            "has_cluster": cluster is not None,
            "base": base,
            "read_at_ms": int((time.time() - page.age_s) * 1000),
            "age_s": page.age_s,
            "here": here(request),
            "search_text": request.query_params.get("q", "") if request.url.path == f"{base}/search" else "",
        }
        html = self.templates.get_template(page.template).render({**page.data, **shown})
        return HTMLResponse(links_with_base(html, base), page.status)

    def redirect(self, address: str, cluster: ShownCluster | None = None) -> RedirectResponse:
        """Lead to an address of a cluster, or of none."""
        return RedirectResponse(with_base(address, self.base_of(cluster)), 303)

    def set_cookie(self, request: Request, response: Response, browser: Browser) -> None:
        """Give the browser its session. A form that comes without one is another site's, whose answer must not take the
        place of the session that the browser has.
        """
        if request.method != "POST" or self.known_browser(request) is not None:
            self.give_session(response, browser)

    def give_session(self, response: Response, browser: Browser) -> None:
        # Lax, as a strict cookie is not sent with a link from another site, and the page would begin a session anew.
        response.set_cookie(
            COOKIE, browser.token, httponly=True, samesite="lax", secure=self.options.is_https, path="/"
        )


def user_of(browser: Browser, session: Session | None) -> str | None:
    """Who is logged in, to show."""
    if browser.person is not None:
        return browser.person.name
    return None if session is None else session.cluster.user


def here(request: Request) -> str:
    """The address of a request, on this site."""
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


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
        case NoRoleError():
            title, status = "You may not do this", 403
            advice = "Who runs this console can give a role to you."
        case RefusedError() if error.is_denied:
            title, status = "You may not see this", 403
            advice = "Your user has no right to it. An administrator can add one with `fencepost acls add`."
        case RefusedError() if error.code in NOT_FOUND:
            title, status, advice = "Not found", 404, "It may be gone, or your user may not see it."
        case RefusedError():
            title, status, advice = "The cluster refused", 502, ""
        case StillReadingError():
            title, status = "The cluster is still being read", STILL_READING
            advice = "It is a large one, or a broker is slow. This page reads itself again in a second."
        case UnreachableError():
            title, status, advice = "No broker answers", 502, "This page asks again as soon as you reload it."
        case _:
            title, status, advice = "That did not work", 502, ""
    data = {"error": sentence(str(error)), "advice": advice}
    return Page("error.html", title, data, status=status, refreshes=status == STILL_READING)


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")
