"""Log-in as a user of a cluster, and log-out."""

from __future__ import annotations

from math import ceil
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.client.errors import ClusterError, LogInRefusedError
from fencepost.client.log_in import Credentials
from fencepost.console.web import changes
from fencepost.console.web.addresses import is_local
from fencepost.console.web.attempts import Attempts
from fencepost.console.web.clusters import ShownCluster
from fencepost.console.web.console import Console, NoRoleError, error_page, sentence
from fencepost.console.web.forms import read_form
from fencepost.console.web.sessions import COOKIE, Browser, LogInFailedError, Person
from fencepost.console.web.visit import BadFormError, NotFoundError, Page
from fencepost.diagnosis.words import duration
from fencepost.protocol.sasl_login import MECHANISMS

OLD_FORM: Final = "this form is from an earlier visit: try again"
FORM_IS_OLD: Final = "form-is-old"


class LogIn:
    """The answers of `/log-in` and `/log-out`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._attempts = Attempts()

    async def log_in(self, request: Request) -> Response:
        console = self._console
        browser = console.browser_of(request)
        try:
            cluster = console.cluster_of(request)
        except NotFoundError as failure:
            return console.render(request, browser, error_page(failure))
        if console.people is not None:
            return self._log_in_page(request, browser)
        error, status = "", 200
        try:
            await cluster.learn_mechanisms()
            if request.method == "POST":
                return await self._take_form(request, browser, cluster)
            if FORM_IS_OLD in request.query_params:
                error = sentence(OLD_FORM)
            if not cluster.needs_log_in and console.session_of(browser, cluster) is not None:
                return console.redirect("/", cluster)
        except (ClusterError, BadFormError, NoRoleError) as failure:
            error, status = sentence(str(failure)), 403
        page = Page("log_in.html", "Log in", {"mechanisms": _offered(cluster), "error": error}, status=status)
        response = console.render(request, browser, page, cluster)
        console.set_cookie(request, response, browser)
        return response

    # by OpenID Connect

    def _log_in_page(self, request: Request, browser: Browser, error: str = "", status: int = 200) -> Response:
        console = self._console
        leads_to = request.query_params.get("to", "/")
        if browser.person is not None and not error:
            return RedirectResponse(leads_to if is_local(leads_to) else "/", 303)
        assert console.options.oidc is not None
        provider = urlsplit(console.options.oidc.issuer).hostname
        data = {"provider": provider, "leads_to": leads_to if is_local(leads_to) else "/", "error": error}
        response = console.render(request, browser, Page("log_in_oidc.html", "Log in", data, status=status))
        console.set_cookie(request, response, browser)
        return response

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider."""
        console = self._console
        browser = console.browser_of(request)
        assert console.people is not None
        try:
            url = await console.people.begin(browser, request.query_params.get("to", "/"))
        except LogInFailedError as error:
            return self._log_in_page(request, browser, sentence(str(error)), 502)
        response = RedirectResponse(url, 303)
        console.set_cookie(request, response, browser)
        return response

    async def finish(self, request: Request) -> Response:
        """Take the provider's answer."""
        console = self._console
        browser = console.browser_of(request)
        assert console.people is not None
        try:
            person, leads_to = await console.people.finish(browser, dict(request.query_params))
        except LogInFailedError as error:
            return self._log_in_page(request, browser, sentence(str(error)), 403)
        console.come_in(browser, person)
        response = RedirectResponse(leads_to, 303)
        console.give_session(response, browser)
        return response

    async def _logged_out_page(self, request: Request, person: Person) -> Response:
        console = self._console
        assert console.people is not None
        data = {"provider_url": await console.people.log_out_url(person)}
        response = console.render(request, console.sessions.begin(), Page("logged_out.html", "Logged out", data))
        response.delete_cookie(COOKIE)
        return response

    # as a user of a cluster

    async def _take_form(self, request: Request, browser: Browser, cluster: ShownCluster) -> Response:
        """Log in by a form. Raises ClusterError, BadFormError, NoRoleError."""
        console = self._console
        if console.known_browser(request) is None:
            # The answer to a form gives no session, so a form in it would be refused, too, however often.
            return console.redirect(f"/log-in?{FORM_IS_OLD}=yes", cluster)
        form = await read_form(request)
        if not browser.accepts(form.get(changes.CSRF, "")):
            raise BadFormError(OLD_FORM)
        credentials = Credentials(form.get("mechanism", ""), form.get("user", ""), form.get("password", ""))
        address = request.client.host if request.client else ""
        wait_s = self._attempts.wait_s(address, credentials.user)
        if wait_s:
            raise BadFormError(
                f"too many log-ins have failed; the next one is possible in {duration(ceil(wait_s) * 1000)}"
            )
        try:
            await console.log_in(browser, cluster, credentials)
        except LogInRefusedError:
            self._attempts.failed(address, credentials.user)
            raise
        self._attempts.succeeded(address, credentials.user)
        response = console.redirect("/", cluster)
        console.give_session(response, browser)
        return response

    async def log_out(self, request: Request) -> Response:
        console = self._console
        browser = console.browser_of(request)
        try:
            form = await read_form(request)
        except BadFormError as error:
            return console.render(request, browser, error_page(error))
        needs_log_in = not console.has_several and console.only_cluster.needs_log_in
        response = RedirectResponse("/log-in" if needs_log_in else "/", 303)
        if browser.accepts(form.get(changes.CSRF, "")):
            console.sessions.end(browser)
            if browser.person is not None:
                return await self._logged_out_page(request, browser.person)
            response.delete_cookie(COOKIE)
        return response


def _offered(cluster: ShownCluster) -> list[str]:
    """The mechanisms to offer, the best first."""
    offered: list[str] = [one for one in MECHANISMS if one in cluster.mechanisms] or list(MECHANISMS)
    if cluster.options.mechanism in offered:
        offered.remove(cluster.options.mechanism)
        offered.insert(0, cluster.options.mechanism)
    return offered
