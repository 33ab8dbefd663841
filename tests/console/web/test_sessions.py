"""Sessions of browsers."""

from __future__ import annotations

from fencepost.client.cluster import Cluster
from fencepost.client.session import ClientOptions
from fencepost.console.roles import Role
from fencepost.console.web.sessions import MOST_BROWSERS, Browser, Session, Sessions


class Clock:
    """A clock that a test moves. now_s: seconds."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def logged_in(sessions: Sessions) -> tuple[Browser, Session]:
    browser = sessions.begin()
    session = Session(browser, Cluster([], ClientOptions()), Role.ADMIN, owns_cluster=True)
    browser.sessions["prod"] = session
    return browser, session


def test_requests_without_a_cookie_do_not_push_out_those_who_logged_in() -> None:
    clock = Clock()
    sessions = Sessions(clock=clock)
    browser, session = logged_in(sessions)
    for _ in range(MOST_BROWSERS + 50):
        sessions.begin()
    assert len(sessions) == MOST_BROWSERS
    assert sessions.find(browser.token) is browser
    clock.now_s += 9 * 3600
    assert sessions.find(browser.token) is None
    assert not session.is_open


def test_a_session_ends_when_only_its_page_asks_by_itself() -> None:
    clock = Clock()
    sessions = Sessions(idle_s=600, lifetime_s=3600, clock=clock)
    browser, _ = logged_in(sessions)
    clock.now_s += 500
    assert sessions.find(browser.token) is browser
    clock.now_s += 500
    assert sessions.find(browser.token, is_use=False) is browser
    clock.now_s += 101
    assert sessions.find(browser.token, is_use=False) is None


def test_a_session_in_use_ends_with_its_lifetime() -> None:
    clock = Clock()
    sessions = Sessions(idle_s=600, lifetime_s=3600, clock=clock)
    browser, session = logged_in(sessions)
    for _ in range(7):
        clock.now_s += 500
        assert sessions.find(browser.token) is browser
    clock.now_s += 100
    assert sessions.find(browser.token) is None
    assert not session.is_open


def test_a_browser_that_logs_in_gets_a_new_token_and_its_whole_lifetime() -> None:
    clock = Clock()
    sessions = Sessions(lifetime_s=3600, clock=clock)
    browser = sessions.begin()
    before = browser.token, browser.csrf
    clock.now_s += 3000
    sessions.renew(browser)
    assert (browser.token, browser.csrf) != before
    assert sessions.find(before[0]) is None
    clock.now_s += 3000
    assert sessions.find(browser.token) is browser


def test_a_browser_that_has_ended_while_it_logs_in_begins_again() -> None:
    sessions = Sessions(clock=Clock())
    browser = sessions.begin()
    before = browser.token
    sessions.end(browser)
    sessions.renew(browser)
    assert sessions.find(before) is None
    assert sessions.find(browser.token) is browser


def test_a_form_of_another_browser_is_not_accepted() -> None:
    sessions = Sessions()
    one, other = sessions.begin(), sessions.begin()
    assert one.accepts(one.csrf)
    assert not one.accepts(other.csrf)
    assert not one.accepts("é")
