"""People who come by OpenID Connect: their way to the provider and back, and how long they stay.

Imported only if a console is configured for it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from fencepost.console.options import OidcOptions
from fencepost.console.web.addresses import is_local
from fencepost.console.web.oidc import Provider, ProviderAwayError, ProviderError, shortened
from fencepost.console.web.sessions import Browser, Person

EARLY_S: Final = 30.0
"""An access token is refreshed this long before it expires."""
AGAIN_S: Final = 15.0
"""Between two attempts to refresh one, while the provider does not answer."""


class People:
    """Asks the provider who somebody is, and again when the answer expires."""

    def __init__(self, options: OidcOptions, *, passes_tokens: bool) -> None:
        self._provider = Provider(options)
        self._passes_tokens = passes_tokens

    async def begin(self, browser: Browser, leads_to: str) -> str:
        """Where the browser goes to log in. leads_to: the page afterwards. Raises ProviderError."""
        begun = await self._provider.begin()
        browser.begin(replace(begun, leads_to=leads_to if is_local(leads_to) else "/"))
        return begun.url

    async def finish(self, browser: Browser, answer: dict[str, str]) -> tuple[Person, str]:
        """The person that the provider's answer names, and the page to lead to. Raises ProviderError."""
        begun = browser.begun.pop(answer.get("state", ""), None)
        if begun is None:
            raise ProviderError(
                "this browser has begun no log-in to which that is the answer, or the answer came twice: log in again"
            )
        if "error" in answer:
            said = answer.get("error_description") or answer["error"]
            raise ProviderError(f"the provider refused: {shortened(said)}")
        if not answer.get("code"):
            raise ProviderError("the answer of the provider has no code")
        return await self._provider.finish(begun, answer["code"]), begun.leads_to

    async def keep(self, browser: Browser) -> bool:
        """Refresh the tokens of a browser's person if it is time to; False if the provider refuses that, or if brokers
        are asked by a token that has expired for good.

        Roles that have changed count from then on.
        """
        person = browser.person
        if person is not None and self._passes_tokens and person.refresh_token is None and _is_over(person):
            return False
        if person is None or not _is_due(person):
            return True
        async with browser.refreshing:
            if browser.person is not person or not _is_due(person):
                return browser.person is not None
            person.asked_s = time.time()
            try:
                refreshed = await self._provider.refresh(person)
            except ProviderAwayError:
                return True  # it may answer later; requests that need the token fail until then
            except ProviderError:
                return False
            if refreshed.values != person.values:
                for name in list(browser.sessions):
                    browser.end_session(name)
            person.take(refreshed)
        return True

    async def log_out_url(self, person: Person) -> str | None:
        """Where a person also logs out at the provider; None if there is no such place."""
        return await self._provider.log_out_url(person.id_token)


def _is_over(person: Person) -> bool:
    return person.expires_s is not None and time.time() >= person.expires_s


def _is_due(person: Person) -> bool:
    now_s = time.time()
    return (
        person.refresh_token is not None
        and person.expires_s is not None
        and now_s >= person.expires_s - EARLY_S
        and abs(now_s - person.asked_s) >= AGAIN_S
    )
