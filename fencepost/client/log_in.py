"""Credentials of a client, and the messages of its log-in, with refusals in words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from fencepost.client.errors import LogInRefusedError
from fencepost.protocol.sasl_login import MECHANISMS, LoginError, login

Exchange = Generator[bytes, bytes, None]
"""A generator that yields the bytes to send, and gets each answer."""


@dataclass(frozen=True)
class Credentials:
    """Who logs in, and by which mechanism. secret: the password, or the token of OAUTHBEARER, or a function that makes
    one for each connection. is_delegated: user and secret are the id and the HMAC of a delegation token."""

    mechanism: str
    user: str
    secret: str | Callable[[], str] = field(repr=False)
    is_delegated: bool = False


def exchange(credentials: Credentials, nonce: str) -> Exchange:
    """Begin the exchange of the mechanism. nonce: random printable text without commas. Raises LogInRefusedError."""
    if credentials.mechanism not in MECHANISMS:
        raise LogInRefusedError(f"this client has no mechanism {credentials.mechanism}; it has {', '.join(MECHANISMS)}")
    secret = credentials.secret if isinstance(credentials.secret, str) else credentials.secret()
    token = secret.strip if credentials.mechanism == "OAUTHBEARER" else None
    steps = login(credentials.mechanism, credentials.user, secret, token, nonce, is_delegated=credentials.is_delegated)
    return _refusals_in_words(steps)


def _refusals_in_words(steps: Exchange) -> Exchange:
    try:
        yield from steps
    except LoginError as error:
        raise LogInRefusedError(f"the broker cannot be logged in to: {error}") from None
