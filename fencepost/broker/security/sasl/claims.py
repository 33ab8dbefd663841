"""The claims of a JSON Web Token, and tokens that nobody has signed. Pure.

Source: RFC 7519; Kafka's BrokerJwtValidator and OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken
from fencepost.protocol.checked_json import parse


class Expected(NamedTuple):
    """The claims that a token must have. audiences: one of them; empty for any."""

    audiences: Sequence[str] = ()
    issuer: str | None = None
    name_claim: str = "sub"
    skew_s: int = 30


def check_claims(
    claims: Mapping[str, Any], expected: Expected, now_ms: int, *, needs_iat: bool = True
) -> Bearer | InvalidToken:
    """Check the claims of a token whose signature is right."""
    times_ms = {name: _milliseconds(claims.get(name)) for name in ("exp", "iat", "nbf")}
    expires_at_ms, skew_ms = times_ms["exp"], 1000 * expected.skew_s
    if expires_at_ms is None or (needs_iat and times_ms["iat"] is None):
        return InvalidToken("a token without the times `exp` and `iat`")
    if now_ms - skew_ms >= expires_at_ms:
        return InvalidToken("a token that has expired")
    if "nbf" in claims and times_ms["nbf"] is None:
        return InvalidToken("a token whose `nbf` is no time")
    if now_ms + skew_ms < max(times_ms["nbf"] or 0, times_ms["iat"] or 0):
        return InvalidToken("a token that is not valid yet")
    if expected.audiences:
        audience = claims.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience
        if not isinstance(audiences, list) or not any(name in expected.audiences for name in audiences):
            return InvalidToken("a token for another audience")
    if expected.issuer is not None and claims.get("iss") != expected.issuer:
        return InvalidToken("a token of another issuer")
    name = claims.get(expected.name_claim)
    if not isinstance(name, str) or not name.strip():
        return InvalidToken(f"a token without the claim {expected.name_claim!r}")
    if not _can_be_sent(name):
        return InvalidToken("a token whose name is no Unicode text")
    return Bearer(name, expires_at_ms)


def _can_be_sent(name: str) -> bool:
    """Whether a name can be sent in replies: JSON may hold halves of characters, which UTF-8 cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _milliseconds(seconds: Any) -> int | None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return int(seconds * 1000) if is_number and 0 <= seconds < 1e12 else None


def validate_unsecured(token: str, expected: Expected, now_ms: int) -> Bearer | InvalidToken:
    """Check a token of the algorithm `none`: anybody can write one, for anybody's name. For trials only."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        return InvalidToken("a token that is no unsecured JWT")
    try:
        head, claims = (parse(_decoded(part)) for part in parts[:2])
    except ValueError:  # of base64 or JSON
        return InvalidToken("a token that is no unsecured JWT")
    if not isinstance(head, dict) or not isinstance(claims, dict) or head.get("alg") != "none":
        return InvalidToken("a token that is no unsecured JWT")
    return check_claims(claims, expected, now_ms, needs_iat=False)


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
