"""The delegation tokens of the cluster, in the metadata store: all but their secrets, which follow from a setting.

Source: KIP-900; Kafka's DelegationTokenControlManager, DelegationTokenPublisher and DelegationTokenCache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from fencepost.broker.kernel.clock import Clock, ClockWatch
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.security.delegation_tokens import (
    MAXIMUM_TOKENS,
    Lifetimes,
    Token,
    Tokens,
    ended,
    is_expired,
    new_token,
    renewed,
    secret_of,
    without_expired,
)
from fencepost.protocol.checked_json import INT64_MAX, text_of, whole_of
from fencepost.protocol.errors import ErrorCode

log = get_logger(__name__)

TOKENS_KEY: Final = "delegation-tokens"


class DelegationTokens:
    """The tokens and their changes; a change is in force in the step in which it is known to be durable.

    secret_key: the setting `delegation.token.secret.key`, the same on all nodes: the secrets follow from it.
    clock:      the wall clock, as times are stored.
    """

    def __init__(self, store: MetadataStore, secret_key: str, lifetimes: Lifetimes, clock: Clock) -> None:
        self._document: VersionedDocument[Tokens] = VersionedDocument(
            # An operator may have to take a token back to keep clients from filling the disk.
            store,
            TOKENS_KEY,
            read=_read,
            write=_write,
            may_use_reserve=True,
        )
        self._secret_key = secret_key.encode()
        self._lifetimes = lifetimes
        self._clock = clock
        self._clock_watch = ClockWatch(clock)
        self._indexed: Tokens = {}
        self._ids: dict[bytes, str] = {}  # by secret, of the tokens in `_indexed`

    async def open(self) -> None:
        """Load the stored tokens, also those that another node has written since. Raises StorageError."""
        self._index(await self._document.load())

    @property
    def all(self) -> Tokens:
        return self._document.content

    def valid(self, token_id: str) -> Token | None:
        """The token of this id; None if there is none, or it is expired."""
        token = self.all.get(token_id)
        return None if token is None or is_expired(token, self._clock.now_ms()) else token

    def id_of(self, secret: bytes) -> str | None:
        """The id of the token with this secret; None if there is none."""
        return self._ids.get(secret)

    def secret(self, token_id: str) -> bytes:
        """The secret of a token."""
        return secret_of(token_id, self._secret_key)

    async def create(
        self, token_id: str, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> Token | ErrorCode:
        """Create a token. Refuses: POLICY_VIOLATION if MAXIMUM_TOKENS are valid. Raises StorageError."""
        token = new_token(token_id, owner, requester, renewers, max_lifetime_ms, self._lifetimes, self._clock.now_ms())
        is_full = False

        def changed(before: Tokens) -> Tokens | None:
            nonlocal is_full
            if len(before) >= MAXIMUM_TOKENS:
                valid = without_expired(before, token.issued_ms)
                before = before if valid is None else valid
            is_full = len(before) >= MAXIMUM_TOKENS
            return None if is_full else {**before, token_id: token}

        await self._change(changed)
        return ErrorCode.POLICY_VIOLATION if is_full else token

    async def renew(self, secret: bytes, principal: str, period_ms: int) -> Token | ErrorCode:
        """Renew the token of a secret; see `renewed`. Refuses also: DELEGATION_TOKEN_NOT_FOUND. Raises StorageError."""
        after = await self._alter(
            secret, lambda token: renewed(token, principal, period_ms, self._lifetimes, self._clock.now_ms())
        )
        assert after is not None, "a renewal removes no token"
        return after

    async def expire(self, secret: bytes, principal: str, period_ms: int) -> Token | ErrorCode | None:
        """End the token of a secret; see `ended`. Refuses also: DELEGATION_TOKEN_NOT_FOUND. Raises StorageError."""
        return await self._alter(secret, lambda token: ended(token, principal, period_ms, self._clock.now_ms()))

    async def remove_expired(self) -> None:
        """Remove the tokens that have expired. Raises StorageError.

        The first call after the wall clock was set removes none: the clock may be set back, and no token comes back.
        """
        if self._clock_watch.moved_ms():
            return
        removed: list[str] = []

        def changed(before: Tokens) -> Tokens | None:
            after = without_expired(before, self._clock.now_ms())
            removed[:] = () if after is None else (token_id for token_id in before if token_id not in after)
            return after

        await self._change(changed)
        if removed:
            log.info("delegation_tokens_expired", count=len(removed))

    async def _alter(
        self, secret: bytes, alter: Callable[[Token], Token | ErrorCode | None]
    ) -> Token | ErrorCode | None:
        """Alter the token of a secret, as it is stored by then; None removes it."""
        outcome: Token | ErrorCode | None = None

        def changed(before: Tokens) -> Tokens | None:
            nonlocal outcome
            self._index(before)
            token = before.get(self._ids.get(secret, ""))
            outcome = ErrorCode.DELEGATION_TOKEN_NOT_FOUND if token is None else alter(token)
            if token is None or isinstance(outcome, ErrorCode) or outcome == token:
                return None
            others = {token_id: kept for token_id, kept in before.items() if kept is not token}
            return others if outcome is None else {**others, token.token_id: outcome}

        await self._change(changed)
        return outcome

    async def _change(self, changed: Callable[[Tokens], Tokens | None]) -> None:
        self._index(await self._document.change(changed))

    def _index(self, tokens: Tokens) -> None:
        """Know the secrets of exactly these tokens."""
        before = self._indexed
        if tokens is before:
            return
        for token_id in before.keys() - tokens.keys():
            del self._ids[self.secret(token_id)]
        self._ids.update((self.secret(token_id), token_id) for token_id in tokens.keys() - before.keys())
        self._indexed = tokens


def _read(content: Any) -> Tokens:
    tokens = {}
    for token_id, owner, requester, renewers, *times_ms in content or ():
        issued_ms, expires_ms, max_ms = (whole_of(time_ms, "a time", 0, INT64_MAX) for time_ms in times_ms)
        tokens[text_of(token_id, "the id of a token")] = Token(
            token_id,
            text_of(owner, "an owner"),
            text_of(requester, "a requester"),
            tuple(text_of(renewer, "a renewer") for renewer in renewers),
            issued_ms,
            expires_ms,
            max_ms,
        )
    return tokens


def _write(content: Tokens) -> Any:
    return list(content.values())
