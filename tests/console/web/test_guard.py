"""The headers of every answer, and the names that the console answers to."""

from __future__ import annotations

import pytest

from fencepost.console.options import ConsoleOptions
from fencepost.console.web.guard import HEADERS, allowed_hosts, host_name, is_name
from tests.console.running import RunningConsole


def test_hosts_that_it_answers_to() -> None:
    options = ConsoleOptions(bootstrap=(), listen_host="10.0.0.5", names=frozenset({"console.example"}))
    for host in ("10.0.0.5:8080", "localhost", "[::1]:8080", "Console.Example:443"):
        assert host_name(host) in allowed_hosts(options)
    for host in ("evil.example", "localhost.evil.example:8080", ""):
        assert host_name(host) not in allowed_hosts(options)


ADDRESSES = (
    "/",
    "/topics",
    "/log-in",
    "/static/console.css",
    "/static/none.css",
    "/theme",
    "/clusters",
    "/c/cluster/topics",
    "/c/other/topics",
    "/nowhere",
)


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_route_has_the_same_headers(address: str) -> None:
    options = ConsoleOptions(bootstrap=(("127.0.0.1", 1),))
    with RunningConsole(options) as console, console.browser() as browser:
        for answer in (browser.get(address, follow_redirects=False), browser.post(address)):
            assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)


def test_a_name_of_another_site_is_refused() -> None:
    options = ConsoleOptions(bootstrap=(("127.0.0.1", 1),))
    with RunningConsole(options) as console, console.browser() as browser:
        answer = browser.get("/", headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert "set-cookie" not in answer.headers


def test_behind_a_proxy_with_tls_a_redirection_keeps_to_https() -> None:
    options = ConsoleOptions(bootstrap=(("127.0.0.1", 1),), is_secure=True)
    with RunningConsole(options) as console, console.browser() as browser:
        answer = browser.get("/topics/orders/", follow_redirects=False)
        assert answer.headers["location"] == f"{console.address.replace('http:', 'https:')}/topics/orders"


def test_names_have_hsts_and_addresses_and_this_machine_have_not() -> None:
    assert [one for one in ("console.example", "10.0.0.5", "::1", "localhost", "a.localhost", "") if is_name(one)] == [
        "console.example"
    ]
