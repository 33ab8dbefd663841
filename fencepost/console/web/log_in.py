"""Log-in as a user of a cluster, and log-out."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from fencepost.client.errors import ClusterError
from fencepost.client.log_in import Credentials
from fencepost.console.web import changes
from fencepost.console.web.clusters import ShownCluster
from fencepost.console.web.console import Console, NoRoleError, error_page, sentence
from fencepost.console.web.forms import read_form
from fencepost.console.web.sessions import COOKIE, Browser
from fencepost.console.web.visit import BadFormError, NotFoundError, Page
from fencepost.protocol.sasl_login import MECHANISMS

OLD_FORM: Final = "this form is from an earlier visit: try again"
FORM_IS_OLD: Final = "form-is-old"


class LogIn:
    """The answers of `/log-in` and `/log-out`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def log_in(self, request: Request) -> Response:
        console = self._console
        browser = console.browser_of(request)
        try:
            cluster = console.cluster_of(request)
        except NotFoundError as failure:
            return console.render(request, browser, error_page(failure))
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
        await console.log_in(browser, cluster, credentials)
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
            response.delete_cookie(COOKIE)
        return response


def _offered(cluster: ShownCluster) -> list[str]:
    """The mechanisms to offer, the best first."""
    offered: list[str] = [one for one in MECHANISMS if one in cluster.mechanisms] or list(MECHANISMS)
    if cluster.options.mechanism in offered:
        offered.remove(cluster.options.mechanism)
        offered.insert(0, cluster.options.mechanism)
    return offered
