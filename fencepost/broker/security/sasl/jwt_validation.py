"""Validation of signed JSON Web Tokens (JWT) with the public keys of their issuer. Pure, given the time.

Only signatures of key pairs are accepted: not `none`, and no HMAC, whose key would be known to all who verify.
Source: RFC 7515, 7517, 7519, RFC 8725 (which attacks there are); Kafka's BrokerJwtValidator, whose claims these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import jwt
from jwt.exceptions import PyJWTError

from fencepost.broker.security.sasl.claims import Expected, check_claims
from fencepost.broker.security.sasl.oauthbearer import Bearer, InvalidToken

_OF_KEY_TYPES: Final[Mapping[tuple[str, str | None], frozenset[str]]] = {
    ("RSA", None): frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    ("EC", "P-256"): frozenset({"ES256"}),
    ("EC", "P-384"): frozenset({"ES384"}),
    ("EC", "P-521"): frozenset({"ES512"}),
    ("OKP", "Ed25519"): frozenset({"EdDSA"}),
    ("OKP", "Ed448"): frozenset({"EdDSA"}),
}
"""The algorithms of each type of keys, and of its curve. All others are refused."""
ALGORITHMS: Final = frozenset().union(*_OF_KEY_TYPES.values())
MAXIMUM_KEYS: Final = 100
MAXIMUM_TRIED_KEYS: Final = 4
"""Keys that are tried for a token that names none."""
MINIMUM_RSA_BITS: Final = 2048


class KeysError(ValueError):
    """A document is no key set, or has no usable key."""


class PublicKey(NamedTuple):
    """A public key. algorithms: those that it may verify."""

    key_id: str | None
    algorithms: frozenset[str]
    key: Any


def read_keys(document: Any) -> list[PublicKey]:
    """Read the keys of a JSON Web Key Set that can verify signatures; all others are skipped. Raises KeysError."""
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list):
        raise KeysError("it is no JSON Web Key Set: there is no list of `keys`")
    found = [key for key in map(_read_key, keys[:MAXIMUM_KEYS]) if key is not None]
    if not found:
        raise KeysError("it has no key that can verify RS, PS, ES or EdDSA signatures")
    return found


def _read_key(parameters: Any) -> PublicKey | None:
    if not isinstance(parameters, dict) or parameters.get("use", "sig") != "sig":
        return None
    operations = parameters.get("key_ops")
    if operations is not None and not (isinstance(operations, list) and "verify" in operations):
        return None
    kind = parameters.get("kty")
    algorithms = _OF_KEY_TYPES.get((str(kind), None if kind == "RSA" else str(parameters.get("crv"))), frozenset())
    named = parameters.get("alg")
    if named is not None:
        algorithms &= {str(named)}
    if not algorithms:
        return None
    try:
        # The algorithm only chooses how the parameters are read.
        key = jwt.PyJWK(parameters, algorithm=min(algorithms)).key
    except (PyJWTError, ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
    key = key.public_key() if hasattr(key, "public_key") else key
    if kind == "RSA" and key.key_size < MINIMUM_RSA_BITS:
        return None
    key_id = parameters.get("kid")
    return PublicKey(key_id if isinstance(key_id, str) else None, algorithms, key)


class TokenHead(NamedTuple):
    """A token's unverified header with its algorithm of signature. key_id: None if it names none."""

    algorithm: str
    key_id: str | None


def read_head(token: str) -> TokenHead | InvalidToken:
    """Read the head of a token."""
    try:
        head = jwt.get_unverified_header(token)
    except (PyJWTError, ValueError, TypeError, RecursionError):
        return InvalidToken("a token that is no signed JWT")
    algorithm, key_id = head.get("alg"), head.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        return InvalidToken("a token whose algorithm is none of RS, PS, ES and EdDSA")
    if "crit" in head or "b64" in head:
        return InvalidToken("a token with an extension that is not supported")
    return TokenHead(algorithm, key_id if isinstance(key_id, str) else None)


def keys_for(head: TokenHead, keys: Sequence[PublicKey]) -> list[PublicKey]:
    """The keys that may have signed a token; none if it names an unknown one."""
    fitting = [key for key in keys if head.algorithm in key.algorithms]
    if head.key_id is None:
        return fitting[:MAXIMUM_TRIED_KEYS]
    return [key for key in fitting if key.key_id == head.key_id][:MAXIMUM_TRIED_KEYS]


def validate(
    token: str, head: TokenHead, keys: Sequence[PublicKey], expected: Expected, now_ms: int
) -> Bearer | InvalidToken:
    """Verify a token's signature by one of the keys, and its claims."""
    claims: dict[str, Any] | None = None
    for key in keys:
        try:
            # Times are compared below, with the broker's clock.
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[head.algorithm],
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                    "verify_iss": False,
                    "verify_sub": False,
                    "verify_jti": False,
                },
            )
            break
        except (PyJWTError, ValueError, TypeError, RecursionError):
            continue
    if claims is None:
        return InvalidToken("a token whose signature is wrong")
    return check_claims(claims, expected, now_ms)
