"""People by OpenID Connect: the authorization code flow with PKCE, by Authlib.

Imported only if a console is configured for it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
from authlib.common.errors import AuthlibBaseError
from authlib.integrations.starlette_client import StarletteOAuth2App
from joserfc.errors import BadSignatureError, JoseError

from fencepost.console.options import OidcOptions
from fencepost.console.roles import claim_values
from fencepost.console.web.sessions import BegunLogIn, LogInFailedError, Person

logger = logging.getLogger("fencepost.console")

TIMEOUT_S: Final = 10.0
LONGEST_NAME: Final = 200
LONGEST_REASON: Final = 300
KEYS_AGAIN_S: Final = 10.0
"""Between two requests for the provider's keys because of a token that none of them has signed."""
NAME_CLAIMS: Final = ("preferred_username", "email", "name", "sub")
ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those with a key of the provider's own. A provider that offers none or HS256 gets no further by it."""


class ProviderError(LogInFailedError):
    """The provider does not answer, or refuses, or its answer is not to be trusted; the message is a sentence."""


class ProviderAwayError(ProviderError):
    """The provider does not answer: it may do so later."""


class Provider:
    """The provider of one console. Nothing is asked before it is needed, so that the console starts without it."""

    def __init__(self, options: OidcOptions) -> None:
        self._options = options
        self._redirect_url = f"{options.url}/oidc/callback"
        # Made once: it reads the authorities of the system, which takes a while.
        trusted = ssl.create_default_context(cafile=str(options.ca_file) if options.ca_file else None)
        self._app: Any = StarletteOAuth2App(
            None,
            "oidc",
            client_id=options.client_id,
            client_secret=options.client_secret,
            server_metadata_url=f"{options.issuer}/.well-known/openid-configuration",
            client_kwargs={
                "scope": " ".join(options.scopes),
                "code_challenge_method": "S256",
                "token_endpoint_auth_method": "client_secret_basic" if options.client_secret else "none",
                "timeout": TIMEOUT_S,
                "verify": trusted,
            },
        )
        self._is_checked = False
        self._keys_again_s = 0.0

    async def begin(self) -> BegunLogIn:
        """Raises ProviderError."""
        with _readable_errors(self._options.issuer):
            await self._check_metadata()
            found = await self._app.create_authorization_url(self._redirect_url)
        return BegunLogIn(found["url"], found["state"], found["nonce"], found["code_verifier"])

    async def finish(self, begun: BegunLogIn, code: str) -> Person:
        """Take the code of the provider's answer for tokens, and check them. Raises ProviderError."""
        with _readable_errors(self._options.issuer):
            await self._check_metadata()
            token = await self._app.fetch_access_token(
                redirect_uri=self._redirect_url, code=code, code_verifier=begun.verifier
            )
            claims = await self._claims(token, begun.nonce)
        return self._named(token, claims, None)

    async def refresh(self, before: Person) -> Person:
        """Take a person's refresh token for new tokens. Raises ProviderError."""
        with _readable_errors(self._options.issuer):
            metadata = await self._check_metadata()
            async with self._app._get_oauth_client(**metadata) as client:  # noqa: SLF001  Authlib has no other way
                token = await client.refresh_token(metadata["token_endpoint"], refresh_token=before.refresh_token)
            # A provider need not give a new id token, nor does that have the nonce of the log-in.
            claims = await self._claims(token, None) if "id_token" in token else None
        if claims is not None and claims["sub"] != before.subject:
            raise ProviderError("the provider has refreshed the tokens of another person")
        return self._named(token, claims, before)

    async def log_out_url(self, id_token: str) -> str | None:
        """Where a person also logs out at the provider; None if it has no such place, or does not answer."""
        try:
            with _readable_errors(self._options.issuer):
                metadata = await self._check_metadata()
                if "end_session_endpoint" not in metadata:
                    return None
                made = await self._app.create_logout_url(
                    f"{self._options.url}/", id_token, client_id=self._options.client_id
                )
        except ProviderError:
            return None
        url: str = made["url"]
        return url

    async def _check_metadata(self) -> Mapping[str, Any]:
        metadata: dict[str, Any] = await self._app.load_server_metadata()
        if not self._is_checked:
            try:
                _check(metadata, self._options.issuer)
            except ProviderError:
                self._app.server_metadata.clear()
                raise
            offered = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
            metadata["id_token_signing_alg_values_supported"] = [one for one in offered if one in ALGORITHMS]
            self._is_checked = True
        return metadata

    async def _claims(self, token: Mapping[str, Any], nonce: str | None) -> dict[str, Any]:
        """The claims of the id token, and of the user info if that has the claim of roles and the token has not."""
        if not isinstance(token.get("id_token"), str):
            raise ProviderError("the provider has given no id token: is openid among its scopes?")
        try:
            claims = await self._parse(token, nonce)
        except BadSignatureError:
            # Keys without a number of their own were replaced.
            if time.monotonic() - self._keys_again_s < KEYS_AGAIN_S:
                raise
            self._keys_again_s = time.monotonic()
            await self._app.fetch_jwk_set(force=True)
            claims = await self._parse(token, nonce)
        metadata = self._app.server_metadata
        if not claim_values(claims, self._options.claim) and "userinfo_endpoint" in metadata:
            more = dict(await self._app.userinfo(token=dict(token)))
            if more.get("sub") == claims["sub"]:
                claims = {**more, **claims}
        return claims

    async def _parse(self, token: Mapping[str, Any], nonce: str | None) -> dict[str, Any]:
        options = {
            "iss": {"essential": True, "values": [self._options.issuer, f"{self._options.issuer}/"]},
            "aud": {"essential": True, "values": [self._options.client_id]},
        }
        found = await self._app.parse_id_token(dict(token), nonce, options, leeway=self._options.skew_s)
        return dict(found)

    def _named(self, token: Mapping[str, Any], claims: Mapping[str, Any] | None, before: Person | None) -> Person:
        expires_in = token.get("expires_in")
        lasts_s = float(expires_in) if isinstance(expires_in, int | float | str) and str(expires_in).isdigit() else None
        if claims is None:
            assert before is not None
            subject, name, values = before.subject, before.name, before.values
        else:
            subject, values = str(claims["sub"]), claim_values(claims, self._options.claim)
            wanted = (self._options.name_claim,) if self._options.name_claim else NAME_CLAIMS
            names = (claims.get(one) for one in (*wanted, "sub"))
            name = next(one for one in names if isinstance(one, str) and one)[:LONGEST_NAME]
        return Person(
            subject,
            name,
            values,
            access_token=str(token.get("access_token", "")),
            id_token=str(token.get("id_token") or (before.id_token if before else "")),
            refresh_token=token.get("refresh_token") or (before.refresh_token if before else None),
            expires_s=None if lasts_s is None else time.time() + lasts_s,
        )


def _check(metadata: Mapping[str, Any], issuer: str) -> None:
    """Raises ProviderError if the configuration of the issuer cannot be used."""
    said = metadata.get("issuer")
    if not isinstance(said, str) or said.rstrip("/") != issuer:
        raise ProviderError(f"the issuer {issuer} calls itself {said!r}: write that into the configuration")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        url = metadata.get(name)
        if not isinstance(url, str) or urlsplit(url).scheme not in ("https", urlsplit(issuer).scheme):
            raise ProviderError(f"the issuer {issuer} has no {name} that can be used")
    methods = metadata.get("code_challenge_methods_supported")
    if methods and "S256" not in methods:
        raise ProviderError(f"the issuer {issuer} does not offer PKCE with S256")


class _readable_errors:  # noqa: N801  it is used as a function
    """Turns the errors of libraries into ProviderError."""

    def __init__(self, issuer: str) -> None:
        self._issuer = issuer

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        match error:
            case None | ProviderError() | asyncio.CancelledError():
                return
            case httpx2.HTTPStatusError():
                status = error.response.status_code
                raise ProviderAwayError(f"the provider {self._issuer} answers with status {status}") from None
            case httpx2.HTTPError() | OSError():
                reason = str(error) or type(error).__name__
                raise ProviderAwayError(f"the provider {self._issuer} does not answer: {reason}") from None
            case AuthlibBaseError():
                reason = error.description or error.error or type(error).__name__
                raise ProviderError(f"the provider refused: {shortened(str(reason))}") from None
            case JoseError():
                reason = shortened(str(error))
                raise ProviderError(f"the token of the provider cannot be trusted: {reason}") from None
            case Exception():
                logger.error("the answer of %s cannot be read", self._issuer, exc_info=error)
                raise ProviderError(f"the answer of the provider {self._issuer} cannot be read") from None


def shortened(text: str) -> str:
    """A text of the provider's, at most LONGEST_REASON characters of it."""
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + "…"
