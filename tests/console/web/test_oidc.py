"""Answers of a provider are trusted only after all checks."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey

from fencepost.console.options import OidcOptions
from fencepost.console.web import oidc
from fencepost.console.web.oidc import Provider, ProviderAwayError, ProviderError, shortened
from fencepost.console.web.sessions import BegunLogIn, Person
from tests.console.providers import CLIENT_ID, CLIENT_SECRET, StrictProvider


@pytest.fixture
def provider() -> Iterator[StrictProvider]:
    with StrictProvider() as running:
        yield running


def options_of(provider: StrictProvider, **changes: Any) -> OidcOptions:
    options = OidcOptions(provider.issuer, CLIENT_ID, "http://127.0.0.1:1", CLIENT_SECRET)
    return replace(options, **changes)


async def answered(console: Provider) -> tuple[BegunLogIn, str]:
    """Begin a log-in, and return it with the code that the provider answers."""
    begun = await console.begin()
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(begun.url)
    location = httpx.URL(answer.headers["location"])
    assert location.params["state"] == begun.state
    return begun, location.params["code"]


async def logged_in(console: Provider) -> Person:
    return await console.finish(*await answered(console))


async def test_a_person_has_a_name_and_the_values_of_the_claim(provider: StrictProvider) -> None:
    person = await logged_in(Provider(options_of(provider)))
    assert (person.subject, person.name, person.values) == ("u-1", "ann", frozenset({"staff"}))
    assert person.access_token
    assert person.refresh_token
    assert "staff" in repr(person)
    assert person.access_token not in repr(person)


async def test_a_claim_that_the_token_lacks_is_taken_from_the_user_info_of_the_same_person(
    provider: StrictProvider,
) -> None:
    provider.claims = {}
    provider.only_in_user_info = {"realm_access": {"roles": ["staff"]}, "preferred_username": "ann"}
    console = Provider(options_of(provider, claim="realm_access.roles"))
    person = await logged_in(console)
    assert (person.name, person.values) == ("ann", frozenset({"staff"}))
    provider.only_in_user_info["sub"] = "u-2"
    assert (await logged_in(console)).values == frozenset()


def set_to(**claims: Any) -> Any:
    return lambda token: token.update(claims)


SPOILT = {
    "of another issuer": set_to(iss="https://evil.example"),
    "for another client": set_to(aud="another"),
    "expired": lambda token: token.update(exp=int(time.time()) - 100),
    "without an end": lambda token: token.pop("exp"),
    "of the future": lambda token: token.update(iat=int(time.time()) + 1_000),
    "without the nonce": lambda token: token.pop("nonce"),
    "with another nonce": set_to(nonce="replayed"),
    "without a subject": lambda token: token.pop("sub"),
    "given to another party": set_to(aud=[CLIENT_ID, "another"], azp="another"),
}


@pytest.mark.parametrize("kind", SPOILT)
async def test_a_token_is_refused_that_is(provider: StrictProvider, kind: str) -> None:
    provider.spoil = SPOILT[kind]
    with pytest.raises(ProviderError, match="cannot be trusted"):
        await logged_in(Provider(options_of(provider)))


async def test_clocks_may_differ_by_the_skew(provider: StrictProvider) -> None:
    provider.spoil = lambda token: token.update(exp=int(time.time()) - 30)
    await logged_in(Provider(options_of(provider, skew_s=60)))
    with pytest.raises(ProviderError, match="cannot be trusted"):
        await logged_in(Provider(options_of(provider, skew_s=5)))


def encoded(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


async def test_a_signature_by_none_by_a_shared_key_or_by_somebody_else_is_refused(provider: StrictProvider) -> None:
    provider.metadata = {"id_token_signing_alg_values_supported": ["none", "HS256", "RS256"]}
    public = provider.key.as_pem(private=False)

    def unsigned(claims: dict[str, Any]) -> str:
        return f"{encoded({'alg': 'none'})}.{encoded(claims)}."

    def by_public_key(claims: dict[str, Any]) -> str:
        signed = f"{encoded({'alg': 'HS256', 'kid': provider.key.kid})}.{encoded(claims)}"
        made = hmac.new(public, signed.encode(), hashlib.sha256).digest()
        return f"{signed}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"

    def by_another(claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": provider.key.kid}, claims, RSAKey.generate_key(2048))

    console = Provider(options_of(provider))
    for signing in (unsigned, by_public_key, by_another, lambda _: "no token"):
        provider.signing = signing
        with pytest.raises(ProviderError):
            await logged_in(console)
    provider.signing = None
    assert (await logged_in(console)).name == "ann"


@pytest.mark.parametrize("with_number", [True, False])
async def test_keys_that_the_provider_has_replaced_are_read_again(provider: StrictProvider, with_number: bool) -> None:
    provider.rotate(with_number=with_number)
    console = Provider(options_of(provider))
    await logged_in(console)
    provider.rotate(with_number=with_number)
    await logged_in(console)
    await logged_in(console)
    assert provider.asked.count("keys") == 2


async def test_tokens_that_no_key_has_signed_do_not_make_it_ask_for_keys_each_time(provider: StrictProvider) -> None:
    provider.rotate(with_number=False)
    console = Provider(options_of(provider))
    other = RSAKey.generate_key(2048)
    provider.signing = lambda claims: jwt.encode({"alg": "RS256"}, claims, other)
    for _ in range(4):
        with pytest.raises(ProviderError, match="cannot be trusted"):
            await logged_in(console)
    assert provider.asked.count("keys") == 2


async def test_a_code_counts_once_and_only_with_its_verifier(provider: StrictProvider) -> None:
    console = Provider(options_of(provider))
    begun, code = await answered(console)
    with pytest.raises(ProviderError, match="the provider refused: the code is wrong"):
        await console.finish(replace(begun, verifier="x" * 48), code)
    begun, code = await answered(console)
    await console.finish(begun, code)
    with pytest.raises(ProviderError, match="the code is wrong"):
        await console.finish(begun, code)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"issuer": "https://evil.example"}, "calls itself 'https://evil.example'"),
        ({"jwks_uri": None}, "has no jwks_uri"),
        ({"token_endpoint": "ftp://there/"}, "has no token_endpoint"),
        ({"code_challenge_methods_supported": ["plain"]}, "does not offer PKCE"),
    ],
)
async def test_a_provider_that_cannot_be_used_is_said_so_and_may_be_mended(
    provider: StrictProvider, metadata: dict[str, Any], said: str
) -> None:
    console = Provider(options_of(provider))
    provider.metadata = metadata
    with pytest.raises(ProviderError, match=said):
        await console.begin()
    provider.metadata = {}
    assert (await logged_in(console)).name == "ann"


async def test_a_provider_that_is_away_may_come_back(provider: StrictProvider) -> None:
    console = Provider(options_of(provider))
    provider.is_away = True
    with pytest.raises(ProviderAwayError, match="answers with status 503"):
        await console.begin()
    assert await console.log_out_url("token") is None
    provider.is_away = False
    person = await logged_in(console)
    provider.is_away = True
    with pytest.raises(ProviderAwayError):
        await console.refresh(person)
    url = await console.log_out_url(person.id_token)
    assert url is not None
    assert url.startswith(f"{provider.issuer}/end?id_token_hint=")


async def test_a_provider_that_nobody_listens_for_is_away() -> None:
    with pytest.raises(ProviderAwayError, match="does not answer"):
        await Provider(OidcOptions("http://127.0.0.1:1", CLIENT_ID, "http://127.0.0.1:1")).begin()


async def test_a_refresh_keeps_the_person_and_takes_new_values(provider: StrictProvider) -> None:
    console = Provider(options_of(provider))
    person = await logged_in(console)
    provider.claims["groups"] = ["root"]
    refreshed = await console.refresh(person)
    assert refreshed.values == frozenset({"root"})
    assert refreshed.access_token != person.access_token
    provider.subject = "u-2"
    with pytest.raises(ProviderError, match="of another person"):
        await console.refresh(refreshed)
    provider.refuses_refresh = True
    with pytest.raises(ProviderError, match="the session was ended"):
        await console.refresh(refreshed)


def test_a_text_of_the_provider_is_shortened() -> None:
    assert len(shortened("x" * 10_000)) == oidc.LONGEST_REASON + 1
