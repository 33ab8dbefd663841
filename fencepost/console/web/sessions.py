"""Who looks at the console: browsers, known by a cookie, and for each its sessions, one for each cluster."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Final

from fencepost.client.cluster import Cluster
from fencepost.console.options import IDLE_S, LIFETIME_S
from fencepost.console.roles import Role

if TYPE_CHECKING:
    from fencepost.console.web.jobs import Job
from fencepost.console.web.previews import Previews

COOKIE: Final = "fencepost_console"
MOST_BROWSERS: Final = 500
MOST_BEGUN: Final = 8


class LogInFailedError(Exception):
    """A log-in at the provider has come to nothing; the message is a sentence."""


@dataclass
class Person:
    """A person whom OpenID Connect has named. subject: the provider's own name, which is never given to another.

    name: the one to show. values: the texts of the claim that says the roles. access_token: the person's own, by which
    brokers may be asked. id_token: the one that a log-out at the provider wants. refresh_token: None if there is none.
    expires_s: time at which the access token does, in seconds of the Unix epoch; None if the provider does not say.
    asked_s: time of the last attempt to refresh it.
    """

    subject: str
    name: str
    values: frozenset[str]
    access_token: str = field(default="", repr=False)
    id_token: str = field(default="", repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_s: float | None = None
    asked_s: float = 0.0

    def take(self, refreshed: Person) -> None:
        """Have the tokens and the values of a refresh from now on."""
        for one in fields(self):
            setattr(self, one.name, getattr(refreshed, one.name))


@dataclass(frozen=True)
class BegunLogIn:
    """A log-in that has begun at the provider: where the browser goes, and the secrets that its return is checked by.

    leads_to: address of the page to show then.
    """

    url: str
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    leads_to: str = "/"


@dataclass
class Session:
    """A browser at one cluster. cluster: the client that asks for it. role: the person's role there.

    notice: said once, on the next page.
    """

    browser: Browser
    cluster: Cluster
    role: Role
    notice: str = ""
    previews: Previews = field(default_factory=Previews)
    owns_cluster: bool = False
    is_open: bool = True
    downloads: int = 0
    jobs: list[Job] = field(default_factory=list)

    def accepts(self, csrf: str) -> bool:
        """Whether a form came from a page of this browser's."""
        return self.browser.accepts(csrf)

    def end(self) -> None:
        """End it. Requests that run on for it, such as a live tail, end when they see `is_open`."""
        self.is_open = False
        if self.owns_cluster:
            self.cluster.close()


@dataclass
class Browser:
    """A browser. sessions: by the name of the cluster. person: who came by OpenID Connect; None before, and without.

    notice: said once, on the next page that is of no cluster. ends_s: when it ends at the latest, on the clock of
    `time.monotonic`. begun: log-ins at the provider, by their state.
    """

    token: str
    began_s: float
    used_s: float
    ends_s: float
    csrf: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    sessions: dict[str, Session] = field(default_factory=dict)
    person: Person | None = None
    notice: str = ""
    begun: OrderedDict[str, BegunLogIn] = field(default_factory=OrderedDict)
    refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def begin(self, log_in: BegunLogIn) -> None:
        """Remember a log-in at the provider: several tabs may each begin one."""
        self.begun[log_in.state] = log_in
        while len(self.begun) > MOST_BEGUN:
            self.begun.popitem(last=False)

    def accepts(self, csrf: str) -> bool:
        """Whether a form came from a page of this browser's."""
        return hmac.compare_digest(self.csrf.encode(), csrf.encode())

    @property
    def has_logged_in(self) -> bool:
        return self.person is not None or any(one.owns_cluster for one in self.sessions.values())

    def end_session(self, name: str) -> None:
        """End its session of a cluster."""
        session = self.sessions.pop(name, None)
        if session is not None:
            session.end()


class Sessions:
    """All browsers; the least recently used go first when there are too many.

    idle_s: seconds without use after which one ends. lifetime_s: seconds after which it ends in any case.
    """

    def __init__(
        self, idle_s: float = IDLE_S, lifetime_s: float = LIFETIME_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._browsers: OrderedDict[str, Browser] = OrderedDict()
        self._idle_s = idle_s
        self._lifetime_s = lifetime_s
        self._clock = clock

    def __len__(self) -> int:
        return len(self._browsers)

    def find(self, token: str | None, *, is_use: bool = True) -> Browser | None:
        """The browser of a cookie, unless its time is over. is_use: a person did it, and not a page by itself."""
        browser = self._browsers.get(token or "")
        if browser is None:
            return None
        now_s = self._clock()
        if self._is_over(browser, now_s):
            self.end(browser)
            return None
        if is_use:
            browser.used_s = now_s
        self._browsers.move_to_end(browser.token)
        return browser

    def begin(self) -> Browser:
        """Make a browser, with a new secret."""
        now_s = self._clock()
        for browser in [one for one in self._browsers.values() if self._is_over(one, now_s)]:
            self.end(browser)
        if len(self._browsers) >= MOST_BROWSERS:
            # Those that nobody logged in for go first: anybody can make one, by a request without a cookie.
            used_least = min(self._browsers.values(), key=lambda one: (one.has_logged_in, one.used_s))
            self.end(used_least)
        browser = Browser(secrets.token_urlsafe(32), now_s, now_s, now_s + self._lifetime_s)
        self._browsers[browser.token] = browser
        return browser

    def renew(self, browser: Browser) -> None:
        """Give a browser that logs in a new token and a new secret, which nobody else has. Its lifetime begins then.

        It may have ended while the cluster or the provider was asked: it begins again.
        """
        if not browser.has_logged_in:
            browser.ends_s = self._clock() + self._lifetime_s
        self._browsers.pop(browser.token, None)
        browser.token, browser.csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self._browsers[browser.token] = browser

    def end(self, browser: Browser) -> None:
        self._browsers.pop(browser.token, None)
        for name in list(browser.sessions):
            browser.end_session(name)

    def end_all(self) -> None:
        for browser in list(self._browsers.values()):
            self.end(browser)

    def _is_over(self, browser: Browser, now_s: float) -> bool:
        return now_s - browser.used_s > self._idle_s or now_s >= browser.ends_s
