"""Log-in and log-out, with a cluster that nobody answers for."""

from __future__ import annotations

import pytest

from fencepost.client.cluster import Cluster
from fencepost.client.errors import LogInNeededError, LogInRefusedError
from fencepost.client.view import ClusterView
from fencepost.console.options import ConsoleOptions
from fencepost.console.roles import Role
from tests.console.running import RunningConsole, csrf_in, text_of

OPTIONS = {"bootstrap": (("127.0.0.1", 1),), "roles": {Role.OPERATOR: frozenset({"alice"})}}


@pytest.fixture
def secured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster on which each user's password is the name."""

    async def view(self: Cluster, *_: object) -> ClusterView:
        credentials = self._options.credentials
        if credentials is None:
            raise LogInNeededError(("PLAIN", "OAUTHBEARER"))
        if credentials.secret != credentials.user:
            raise LogInRefusedError("authentication failed")
        return ClusterView("id", -1, {})

    monkeypatch.setattr(Cluster, "view", view)


def fields(page: str, user: str, password: str, mechanism: str = "PLAIN") -> dict[str, str]:
    return {"csrf": csrf_in(page), "user": user, "password": password, "mechanism": mechanism}


@pytest.mark.usefixtures("secured")
def test_a_user_without_a_role_is_refused_and_a_name_beside_a_token_gives_none() -> None:
    with RunningConsole(ConsoleOptions(**OPTIONS)) as console:  # type: ignore[arg-type]
        for user, mechanism in (("mallory", "PLAIN"), ("alice", "OAUTHBEARER")):
            with console.browser() as browser:
                form = fields(browser.get("/log-in").text, user, user, mechanism)
                answer = browser.post("/log-in", data=form)
                assert answer.status_code == 403
                assert f"The user {user} has no role in the cluster cluster" in text_of(answer.text)


@pytest.mark.usefixtures("secured")
def test_the_cookie_changes_at_the_log_in_and_the_old_one_is_worth_nothing() -> None:
    with RunningConsole(ConsoleOptions(**OPTIONS)) as console, console.browser() as browser:  # type: ignore[arg-type]
        page = browser.get("/log-in").text
        before = browser.cookies["fencepost_console"]
        answer = browser.post("/log-in", data=fields(page, "alice", "alice"), follow_redirects=False)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert browser.cookies["fencepost_console"] != before
        with console.browser() as other:
            other.cookies.set("fencepost_console", before)
            assert other.get("/topics").url.path == "/log-in"


@pytest.mark.usefixtures("secured")
def test_a_log_out_without_the_secret_of_the_session_ends_nothing() -> None:
    with RunningConsole(ConsoleOptions(**OPTIONS)) as console, console.browser() as browser:  # type: ignore[arg-type]
        browser.post("/log-in", data=fields(browser.get("/log-in").text, "alice", "alice"))
        browser.post("/log-out", data={"csrf": "made-up"})
        assert browser.post("/log-out", content=b"\xff").status_code == 422
        (known,) = [one for one in console.app.state.console.sessions._browsers.values() if one.has_logged_in]
        browser.post("/log-out", data={"csrf": known.csrf})
        assert browser.get("/topics").url.path == "/log-in"


@pytest.mark.usefixtures("secured")
def test_passwords_cannot_be_tried_at_will() -> None:
    with RunningConsole(ConsoleOptions(**OPTIONS)) as console, console.browser() as browser:  # type: ignore[arg-type]
        said = ""
        for number in range(11):
            form = fields(browser.get("/log-in").text, "alice", f"guess-{number}")
            said = text_of(browser.post("/log-in", data=form).text)
            assert ("Too many log-ins have failed" in said) == (number == 10)
        form = fields(browser.get("/log-in").text, "alice", "alice")
        assert "Too many log-ins have failed" in text_of(browser.post("/log-in", data=form).text)
        form = fields(browser.get("/log-in").text, "mallory", "x")
        assert "Authentication failed" in text_of(browser.post("/log-in", data=form).text)
