"""OAUTHBEARER: the client sends a token that an authorization server has signed. Pure.

Source: RFC 7628, RFC 6750, KIP-255, KIP-768; Kafka's OAuthBearerSaslServer and OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from fencepost.broker.security.sasl.exchange import Challenge, Found, Identified, Refused

MECHANISM: Final = "OAUTHBEARER"
INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
"""RFC 7628's answer to a token that is not accepted; the client acknowledges it with one byte."""
_ACKNOWLEDGEMENT: Final = b"\x01"
MAXIMUM_TOKEN_CHARACTERS: Final = 32 * 1024
"""Longest token: decoding and checking a longer one would take a noticeable time."""

_MALFORMED: Final = Refused(None, "a message that is none of OAUTHBEARER")
_FIRST = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\0\x01,=]|=2C|=3D){1,255}))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)+)\x01"
)
_BEARER = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>[-A-Za-z0-9._~+/]+=*)")


class Bearer(NamedTuple):
    """The claims of a valid token that the broker uses. expires_at_ms: in ms since the epoch."""

    name: str
    expires_at_ms: int


class InvalidToken(NamedTuple):
    """A token that is not accepted. reason: for the broker's log."""

    reason: str


ValidateToken = Callable[[str], "Bearer | InvalidToken | Awaitable[Bearer | InvalidToken]"]
"""Validate a token; an awaitable if keys have to be fetched first."""


class OAuthBearerExchange:
    """One token; two if it is not accepted: the client acknowledges the reason."""

    __slots__ = ("_refused", "_validate")

    def __init__(self, validate: ValidateToken) -> None:
        self._validate = validate
        self._refused: Refused | None = None

    def evaluate(self, token: bytes) -> Found | Awaitable[Found]:
        if self._refused is not None:
            return self._refused if token == _ACKNOWLEDGEMENT else _MALFORMED
        first = read_first_message(token)
        if isinstance(first, Refused):
            return first
        authorization_id, text = first
        validated = self._validate(text)
        if isinstance(validated, Bearer | InvalidToken):
            return self._found(validated, authorization_id)
        return self._await(validated, authorization_id)

    async def _await(self, validated: Awaitable[Bearer | InvalidToken], authorization_id: str) -> Found:
        return self._found(await validated, authorization_id)

    def _found(self, validated: Bearer | InvalidToken, authorization_id: str) -> Found:
        if isinstance(validated, InvalidToken):
            self._refused = Refused(INVALID_TOKEN.decode(), validated.reason)
            return Challenge(INVALID_TOKEN)
        if authorization_id and authorization_id != validated.name:
            message = (
                f"Authentication failed: Client requested an authorization id ({authorization_id}) that is different "
                f"from the token's principal name ({validated.name})"
            )
            return Refused(message, "another authorization id")
        return Identified(validated.name, b"", validated.expires_at_ms)


def read_first_message(message: bytes) -> tuple[str, str] | Refused:
    """Read the authorization id, which may be empty, and the token. Extensions (KIP-342) have no meaning here."""
    try:
        text = message.decode()
    except UnicodeDecodeError:
        return _MALFORMED
    first = _FIRST.fullmatch(text) if len(text) <= 2 * MAXIMUM_TOKEN_CHARACTERS else None
    if first is None:
        return _MALFORMED
    pairs = [pair.partition("=") for pair in first["pairs"].rstrip("\x01").split("\x01")]
    values = {name: value for name, _, value in pairs}
    bearer = _BEARER.fullmatch(values.get("auth", ""))
    if bearer is None or len(values) < len(pairs) or len(bearer["token"]) > MAXIMUM_TOKEN_CHARACTERS:
        return _MALFORMED
    return (first["authzid"] or "").replace("=2C", ",").replace("=3D", "="), bearer["token"]
