"""Delegation tokens: who may create, renew, expire and see them, and until when each is valid. Pure.

Source: KIP-48, KIP-373, KIP-900; Kafka's DelegationTokenControlManager and DelegationTokenManager.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple

from fencepost.broker.security.principal import user_principal
from fencepost.protocol.errors import ErrorCode

USER_TYPE: Final = user_principal("").removesuffix(":")
"""The type of principals that may own and renew tokens."""
MAXIMUM_TOKENS: Final = 1_000
"""Bound on tokens: they are one document, which a node reads and indexes in one step of the event loop, in 20 ms."""
MAXIMUM_NAMES_CHARACTERS: Final = 4096
"""Bound on the names of one token: its owner, its requester and its renewers together."""
_LAST_MS: Final = (1 << 63) - 1


class Token(NamedTuple):
    """A delegation token, without its secret. Principals are written `User:name`; times are ms since the epoch.

    requester:  who created it, for the owner.
    renewers:   who may renew and expire it, beside the owner.
    expires_ms: its end unless somebody renews it; never after max_ms.
    """

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int


Tokens = Mapping[str, Token]
"""Tokens by id."""


class Lifetimes(NamedTuple):
    """The settings `delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    max_lifetime_ms: int
    expiry_time_ms: int


def secret_of(token_id: str, secret_key: bytes) -> bytes:
    """The secret of a token, its HMAC: it follows from the id and the secret key of the cluster, and is not stored."""
    return hmac.digest(secret_key, token_id.encode(), "sha512")


def new_token(
    token_id: str,
    owner: str,
    requester: str,
    renewers: Iterable[str],
    max_lifetime_ms: int,
    lifetimes: Lifetimes,
    now_ms: int,
) -> Token:
    """A token that is valid from now on. max_lifetime_ms: the requested one; not positive for the longest."""
    longest_ms = lifetimes.max_lifetime_ms
    lifetime_ms = min(longest_ms, max_lifetime_ms) if max_lifetime_ms > 0 else longest_ms
    max_ms = min(now_ms + lifetime_ms, _LAST_MS)
    expires_ms = min(now_ms + lifetimes.expiry_time_ms, max_ms)
    return Token(token_id, owner, requester, tuple(dict.fromkeys(renewers)), now_ms, expires_ms, max_ms)


def has_long_names(owner: str, requester: str, renewers: Collection[str]) -> bool:
    """Whether the names of a token exceed their bound."""
    return sum(map(len, renewers)) + len(owner) + len(requester) > MAXIMUM_NAMES_CHARACTERS


def is_expired(token: Token, now_ms: int) -> bool:
    return min(token.expires_ms, token.max_ms) < now_ms


def _is_owner_or_renewer(token: Token, principal: str) -> bool:
    return principal == token.owner or principal in token.renewers


def renewed(token: Token, principal: str, period_ms: int, lifetimes: Lifetimes, now_ms: int) -> Token | ErrorCode:
    """The token after its renewal by a principal. period_ms: from now on; not positive for the longest.

    Refuses: DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    if is_expired(token, now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    if not _is_owner_or_renewer(token, principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    longest_ms = lifetimes.expiry_time_ms
    period_ms = min(longest_ms, period_ms) if period_ms > 0 else longest_ms
    return token._replace(expires_ms=min(now_ms + period_ms, token.max_ms))


def ended(token: Token, principal: str, period_ms: int, now_ms: int) -> Token | ErrorCode | None:
    """The token with the end that a principal sets; None if that is at once. period_ms: from now on; negative for at
    once.

    Refuses: DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED. An expired token may still end at once.
    """
    if not _is_owner_or_renewer(token, principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    if period_ms < 0:
        return None
    if is_expired(token, now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    return token._replace(expires_ms=min(now_ms + period_ms, token.max_ms))


def is_shown(
    token: Token,
    principal: str,
    owners: Collection[str] | None,
    may_describe_token: Callable[[str], bool],
    may_describe_tokens_of: Callable[[str], bool],
) -> bool:
    """Whether a principal sees a token. owners: asked for, or renewers; None for all."""
    if owners is not None and not any(_is_owner_or_renewer(token, owner) for owner in owners):
        return False
    return (
        _is_owner_or_renewer(token, principal)
        or may_describe_token(token.token_id)
        or may_describe_tokens_of(token.owner)
    )


def without_expired(tokens: Tokens, now_ms: int) -> Tokens | None:
    """The tokens that are still valid; None if all are."""
    valid = {token_id: token for token_id, token in tokens.items() if not is_expired(token, now_ms)}
    return valid if len(valid) < len(tokens) else None
