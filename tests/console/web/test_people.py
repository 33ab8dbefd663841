"""People come by OpenID Connect, with a role in each cluster, and stay as long as the provider knows them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx
import oidc_provider_mock
import pytest

from fencepost.console.options import ClusterOptions, ConsoleOptions, OidcOptions
from fencepost.console.roles import Role
from fencepost.soak.free_port import free_port
from tests.console.providers import CLIENT_ID, CLIENT_SECRET, StrictProvider, come_back
from tests.console.running import RunningConsole, csrf_in, get_json, text_of

NOWHERE = (("127.0.0.1", 1),)
ROLES = {Role.VIEWER: frozenset({"staff"}), Role.ADMIN: frozenset({"root"})}


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    with StrictProvider() as running:
        yield running


@contextmanager
def console_of(issuer: str, *, claim: str = "groups", **changes: Any) -> Iterator[RunningConsole]:
    port = free_port()
    default_role = changes.pop("default_role", None)
    oidc = OidcOptions(
        issuer, CLIENT_ID, f"http://127.0.0.1:{port}", CLIENT_SECRET, claim=claim, default_role=default_role
    )
    options = ConsoleOptions(NOWHERE, oidc=oidc, **{"roles": ROLES, **changes})
    with RunningConsole(options, port) as console:
        yield console


@pytest.fixture
def console(provider: StrictProvider) -> Iterator[RunningConsole]:
    with console_of(provider.issuer) as running:
        yield running


@pytest.fixture
def browser(console: RunningConsole) -> Iterator[httpx.Client]:
    with console.browser() as one:
        yield one


def shows(browser: httpx.Client, user: str, role: str, address: str = "/topics") -> bool:
    """Whether a page is of this user with this role. No broker answers there."""
    page = browser.get(address)
    assert page.status_code == 502, text_of(page.text)
    return f'title="Role: {role}">{user}<' in page.text


def test_a_person_is_led_to_the_provider_and_back_to_the_page(browser: httpx.Client) -> None:
    asked = browser.get("/topics/orders?page=2")
    assert asked.url.path == "/log-in"
    assert "/oidc/log-in?to=%2Ftopics%2Forders%3Fpage%3D2" in asked.text
    before = browser.cookies["fencepost_console"]
    answer = come_back(browser, "/oidc/log-in?to=%2Ftopics%2Forders%3Fpage%3D2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics/orders?page=2")
    assert browser.cookies["fencepost_console"] != before
    assert shows(browser, "ann", "viewer")


def test_programs_without_a_session_get_401(console: RunningConsole) -> None:
    answer = httpx.get(f"{console.address}/topics", headers={"Accept": "application/json"})
    assert answer.status_code == 401


@pytest.mark.parametrize("elsewhere", ["//evil.example", "/\\evil.example", "https://evil.example", "/\n/evil"])
def test_a_log_in_leads_nowhere_else(browser: httpx.Client, elsewhere: str) -> None:
    begun = browser.get("/oidc/log-in", params={"to": elsewhere}, follow_redirects=False)
    answered = httpx.get(begun.headers["location"], follow_redirects=False)
    back = urlsplit(answered.headers["location"])
    answer = browser.get(f"{back.path}?{back.query}", follow_redirects=False)
    assert answer.headers["location"] == "/"
    again = browser.get("/log-in", params={"to": elsewhere}, follow_redirects=False)
    assert again.headers["location"] == "/"


def test_an_answer_that_comes_twice_or_to_another_browser_is_refused(
    console: RunningConsole, browser: httpx.Client
) -> None:
    begun = browser.get("/oidc/log-in", follow_redirects=False)
    answered = httpx.get(begun.headers["location"], follow_redirects=False)
    back = urlsplit(answered.headers["location"])
    address = f"{back.path}?{back.query}"
    with console.browser() as other:
        other.get("/log-in")
        refused = other.get(address)
        assert refused.status_code == 403
        assert "has begun no log-in to which that is the answer" in text_of(refused.text)
        assert other.get("/topics").url.path == "/log-in"
    assert browser.get(address, follow_redirects=False).status_code == 303
    assert browser.get(address, follow_redirects=False).status_code == 403
    assert shows(browser, "ann", "viewer")


def test_two_tabs_and_two_browsers_log_in_beside_each_other(
    console: RunningConsole, browser: httpx.Client, provider: StrictProvider
) -> None:
    begun = [browser.get("/oidc/log-in", follow_redirects=False).headers["location"] for _ in range(2)]
    for location in reversed(begun):
        back = urlsplit(httpx.get(location, follow_redirects=False).headers["location"])
        assert browser.get(f"{back.path}?{back.query}", follow_redirects=False).status_code == 303
    provider.subject, provider.claims = "u-2", {"preferred_username": "root@example", "groups": ["root"]}
    with console.browser() as other:
        come_back(other)
        assert shows(other, "root@example", "admin")
    assert shows(browser, "ann", "viewer")


def test_the_providers_refusal_is_shown_as_text(browser: httpx.Client, provider: StrictProvider) -> None:
    provider.error = {"error": "access_denied", "error_description": "<script>alert(1)</script> not you" + "!" * 9_000}
    answer = come_back(browser)
    assert answer.status_code == 403
    assert "The provider refused: &lt;script&gt;alert(1)&lt;/script&gt; not you!!" in answer.text
    assert "<script>alert" not in answer.text
    assert "!" * 400 not in answer.text


def test_a_person_without_a_role_sees_nothing_and_learns_why(browser: httpx.Client, provider: StrictProvider) -> None:
    provider.claims = {"preferred_username": "eve", "groups": ["guests"]}
    come_back(browser)
    page = browser.get("/topics")
    assert page.status_code == 403
    assert "Eve has no role in the cluster cluster: none of the roles names it" in text_of(page.text)


def test_a_default_role_is_given_only_if_it_is_configured(provider: StrictProvider) -> None:
    provider.claims = {"preferred_username": "eve"}
    with console_of(provider.issuer, default_role=Role.VIEWER) as console, console.browser() as browser:
        come_back(browser)
        assert shows(browser, "eve", "viewer")
    with (
        console_of(provider.issuer, roles=None, default_role=Role.VIEWER) as console,
        console.browser() as browser,
    ):
        come_back(browser)
        assert shows(browser, "eve", "viewer")
    with console_of(provider.issuer, roles=None) as console, console.browser() as browser:
        come_back(browser)
        assert browser.get("/topics").status_code == 403


def test_the_console_starts_without_its_provider_and_those_who_are_in_stay(
    console: RunningConsole, browser: httpx.Client, provider: StrictProvider
) -> None:
    provider.is_away = True
    with console.browser() as early:
        refused = early.get("/oidc/log-in")
        assert refused.status_code == 502
        assert "answers with status 503" in text_of(refused.text)
        provider.is_away = False
        come_back(early)
        provider.is_away = True
        assert shows(early, "ann", "viewer")


def test_tokens_are_refreshed_and_changed_roles_count_from_then_on(
    browser: httpx.Client, provider: StrictProvider
) -> None:
    provider.lasts_s = 1
    come_back(browser)
    provider.claims["groups"] = ["root"]
    provider.lasts_s = 3600
    assert shows(browser, "ann", "admin")
    assert shows(browser, "ann", "admin")
    assert provider.asked.count("refresh_token") == 1


def test_a_person_whom_the_provider_no_longer_knows_is_logged_out(
    browser: httpx.Client, provider: StrictProvider
) -> None:
    provider.lasts_s = 1
    come_back(browser)
    provider.refuses_refresh = True
    assert browser.get("/topics").url.path == "/log-in"
    assert browser.get("/clusters").url.path == "/log-in"


def test_a_provider_that_is_away_when_a_token_expires_is_asked_again_later(
    browser: httpx.Client, provider: StrictProvider
) -> None:
    provider.lasts_s = 1
    come_back(browser)
    provider.is_away = True
    for _ in range(3):
        assert shows(browser, "ann", "viewer")
    assert provider.asked.count("refresh_token") == 1


def test_a_token_for_brokers_that_has_expired_for_good_ends_the_session(provider: StrictProvider) -> None:
    provider.lasts_s, provider.gives_refresh_token = 0, False
    with console_of(provider.issuer, passes_token=True) as console, console.browser() as browser:
        come_back(browser)
        assert browser.get("/topics").url.path == "/log-in"


def test_a_log_out_ends_the_session_and_offers_that_of_the_provider(
    browser: httpx.Client, provider: StrictProvider
) -> None:
    come_back(browser)
    page = browser.get("/topics").text
    answer = browser.post("/log-out", data={"csrf": csrf_in(page)})
    assert f"{provider.issuer}/end?id_token_hint=" in answer.text
    assert browser.get("/topics").url.path == "/log-in"


def test_people_have_a_role_in_each_cluster(provider: StrictProvider) -> None:
    clusters = (
        ClusterOptions(NOWHERE, name="prod", roles=ROLES),
        ClusterOptions(NOWHERE, name="test", roles={Role.OPERATOR: frozenset({"staff"})}),
        ClusterOptions(NOWHERE, name="bank", roles={Role.ADMIN: frozenset({"root"})}),
    )
    with console_of(provider.issuer, clusters=clusters) as console, console.browser() as browser:
        assert browser.get("/").url.path == "/log-in"
        assert browser.get("/c/prod/topics").url.path == "/c/prod/log-in"
        come_back(browser)
        assert [one["name"] for one in get_json(browser, "/")["choices"]] == ["prod", "test", "bank"]
        assert shows(browser, "ann", "viewer", "/c/prod/topics")
        assert shows(browser, "ann", "operator", "/c/test/topics")
        assert browser.get("/c/bank/topics").status_code == 403


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_works_with_a_provider_that_others_have_made() -> None:
    with oidc_provider_mock.run_server_in_thread(access_token_max_age=timedelta(minutes=5)) as server:
        issuer = f"http://localhost:{server.server_port}"
        httpx.put(f"{issuer}/users/zoe", json={"preferred_username": "Zoë", "groups": ["root"]}).raise_for_status()
        with console_of(issuer) as console, console.browser() as browser:
            begun = browser.get("/oidc/log-in", follow_redirects=False)
            answered = httpx.post(begun.headers["location"], data={"sub": "zoe"}, follow_redirects=False)
            back = urlsplit(answered.headers["location"])
            assert browser.get(f"{back.path}?{back.query}", follow_redirects=False).headers["location"] == "/"
            assert shows(browser, "Zoë", "admin")
            denied = browser.get("/oidc/log-in?to=/", follow_redirects=False)
            answered = httpx.post(denied.headers["location"], data={"action": "deny"}, follow_redirects=False)
            back = urlsplit(answered.headers["location"])
            assert back.query.startswith("error=access_denied")
            assert browser.get(f"{back.path}?{back.query}").status_code == 403
