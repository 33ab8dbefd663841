"""Tokens of the client commands for OAUTHBEARER: from a file, from an identity provider, or unsigned for tries.

Source: KIP-768 (client credentials), KIP-1139; Kafka's OAuthBearerLoginModule.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from fencepost.cli.client_properties import Properties, WrongPropertiesError, secret
from fencepost.protocol.checked_json import parse_object

_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_CREDENTIALS: Final = "sasl.oauthbearer.client.credentials.client"
_UNSIGNED: Final = "unsecuredLoginStringClaim_"
TIMEOUT_S: Final = 10
LARGEST_REPLY_BYTES: Final = 1 << 20
UNSIGNED_LIFETIME_S: Final = 3600


def token_source(properties: Properties, options: Mapping[str, str]) -> Callable[[], str]:
    """The function that makes a token anew for each connection. options: of `sasl.jaas.config`.

    Raises WrongPropertiesError; so does the function.
    """
    url = properties.get(_URL)
    if url is None:
        claims = {name.removeprefix(_UNSIGNED): value for name, value in options.items() if name.startswith(_UNSIGNED)}
        if not claims:
            raise WrongPropertiesError(
                f"sasl.mechanism=OAUTHBEARER needs {_URL}: file:///path of a token, or an identity provider's https "
                "address, with clientId and clientSecret in sasl.jaas.config"
            )
        return lambda: _unsigned(claims)
    if url.value.startswith("file:"):
        path = url.value.removeprefix("file:")
        path = "/" + path.lstrip("/") if path.startswith("/") else path
        return lambda: _from_file(path, url.place)
    if not url.value.startswith(("https://", "http://")):
        raise WrongPropertiesError(f"{url.place}: {_URL}={url.value}: expected https://… or file:///…")
    name = secret(properties, f"{_CREDENTIALS}.id") or options.get("clientId")
    password = secret(properties, f"{_CREDENTIALS}.secret") or options.get("clientSecret")
    if not name or password is None:
        raise WrongPropertiesError(f"{url.place}: {_URL} needs {_CREDENTIALS}.id and {_CREDENTIALS}.secret")
    scope = secret(properties, "sasl.oauthbearer.scope") or options.get("scope")
    return lambda: _from_provider(url.value, name, password, scope)


def _unsigned(claims: Mapping[str, str]) -> str:
    """A token that nobody signed, for brokers that accept any."""
    now_s = int(time.time())
    parts: list[Mapping[str, Any]] = [{"alg": "none"}, {"iat": now_s, "exp": now_s + UNSIGNED_LIFETIME_S, **claims}]
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*encoded, ""])


def _from_file(path: str, place: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no token"
        raise WrongPropertiesError(f"{place}: {_URL}: {path} cannot be read: {reason}") from None


def _from_provider(url: str, name: str, password: str, scope: str | None) -> str:
    """Ask an identity provider, with the grant `client_credentials`."""
    import urllib.error
    import urllib.parse
    import urllib.request

    form = {"grant_type": "client_credentials", **({} if scope is None else {"scope": scope})}
    credentials = base64.b64encode(f"{name}:{password}".encode()).decode()
    request = urllib.request.Request(  # the scheme was checked
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={"Authorization": f"Basic {credentials}", "Accept": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as reply:
            return parse_object(reply.read(LARGEST_REPLY_BYTES)).text("access_token")
    except urllib.error.HTTPError as error:
        with error:  # a reply, too
            raise WrongPropertiesError(f"{_URL}: {url} refused a token: {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise WrongPropertiesError(f"{_URL}: {url} gave no token: {error}") from None
