"""As whom brokers are asked for people who come by OpenID Connect."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from joserfc import jwt

from fencepost import Broker
from fencepost.client.log_in import Credentials
from fencepost.client.session import ClientOptions
from fencepost.console.options import ConsoleOptions, OidcOptions
from fencepost.console.roles import Role
from fencepost.soak.free_port import free_port
from tests.console.providers import CLIENT_ID, CLIENT_SECRET, StrictProvider, come_back
from tests.console.running import RunningConsole, csrf_in, get_json, hidden_fields, text_of
from tests.support.secured_broker import STANDARD_AUTHORIZER

pytestmark = pytest.mark.integration

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
ROLES = {Role.VIEWER: frozenset({"staff"}), Role.ADMIN: frozenset({"root"})}


class TokenProvider(StrictProvider):
    """Gives access tokens that brokers can check."""

    def _made(self, nonce: str | None) -> dict[str, Any]:
        now_s = int(time.time())
        name = self.claims["preferred_username"]
        claims = {"iss": self.issuer, "sub": name, "aud": "kafka", "iat": now_s, "exp": now_s + self.lasts_s}
        token = jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)
        return {**super()._made(nonce), "access_token": token}


@pytest.fixture(scope="module")
def provider() -> Iterator[TokenProvider]:
    with TokenProvider() as running:
        yield running


@pytest.fixture(scope="module")
def broker(provider: TokenProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(json.dumps({"keys": provider.public_keys}))
    settings = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.jaas.config": f'{MODULE} required user_admin="admin-secret" user_looks="looks-secret";',
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin;User:root",
        "connection.failed.authentication.delay.ms": "1",
    }
    with Broker(settings=settings) as running:
        yield running


def console_of(provider: TokenProvider, broker: Broker, **changes: Any) -> RunningConsole:
    port = free_port()
    host, broker_port = broker.bootstrap_servers.split(":")
    oidc = OidcOptions(provider.issuer, CLIENT_ID, f"http://127.0.0.1:{port}", CLIENT_SECRET)
    options = ConsoleOptions(((host, int(broker_port)),), oidc=oidc, roles=ROLES, needs_log_in=True, **changes)
    return RunningConsole(options, port)


def log_in(browser: httpx.Client, provider: TokenProvider, name: str, group: str) -> None:
    provider.subject, provider.claims = f"id-of-{name}", {"preferred_username": name, "groups": [group]}
    assert come_back(browser).status_code == 303


def create(browser: httpx.Client, name: str) -> httpx.Response:
    form = {"csrf": csrf_in(browser.get("/topics").text), "name": name}
    shown = browser.post("/change/create-topic", data=form)
    if shown.status_code != 200:
        return shown
    confirmed = hidden_fields(shown.text) | {"reason": "needed", "typed_name": name}
    return browser.post("/change/create-topic", data=confirmed)


def topics_of(browser: httpx.Client) -> list[str]:
    return [one["name"] for one in get_json(browser, "/topics")["listing"]["rows"]]


def test_each_role_asks_as_its_own_user(provider: TokenProvider, broker: Broker) -> None:
    logins = {
        Role.VIEWER: ClientOptions(None, Credentials("PLAIN", "looks", "looks-secret")),
        Role.ADMIN: ClientOptions(None, Credentials("PLAIN", "admin", "admin-secret")),
    }
    with console_of(provider, broker, logins=logins) as console, console.browser() as ann, console.browser() as bob:
        log_in(ann, provider, "ann", "root")
        log_in(bob, provider, "bob", "staff")
        assert create(ann, "orders").url.path == "/topics/orders"
        assert "orders" in topics_of(ann)
        assert topics_of(bob) == []
        assert create(bob, "more").status_code == 403


def test_each_person_asks_by_the_own_token(provider: TokenProvider, broker: Broker) -> None:
    with (
        console_of(provider, broker, passes_token=True) as console,
        console.browser() as root,
        console.browser() as eve,
    ):
        log_in(root, provider, "root", "root")
        log_in(eve, provider, "eve", "root")
        assert create(root, "payments").url.path == "/topics/payments"
        assert "payments" in topics_of(root)
        assert topics_of(eve) == []
        refused = create(eve, "more")
        assert refused.status_code == 403, text_of(refused.text)


def test_a_user_of_the_console_whom_the_cluster_refuses_is_an_error_and_no_way_to_a_log_in(
    provider: TokenProvider, broker: Broker
) -> None:
    logins = {role: ClientOptions(None, Credentials("PLAIN", "admin", "wrong")) for role in Role}
    for changes in ({"logins": logins}, {}):
        with console_of(provider, broker, **changes) as console, console.browser() as browser:
            log_in(browser, provider, "ann", "root")
            page = browser.get("/topics")
            assert (page.status_code, page.url.path) == (502, "/topics")
            assert "The cluster cluster refuses the user as whom the console asks: " in text_of(page.text)
