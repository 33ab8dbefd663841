"""The keys by which clients prove that they know the secret of a delegation token."""

from __future__ import annotations

import base64
import hashlib
import secrets
from functools import lru_cache

from fencepost.broker.hosting.scram_credentials import (
    MINIMUM_ITERATIONS,
    Credential,
    ScramMechanism,
    credential_of,
)
from fencepost.broker.security.delegation_token_store import DelegationTokens
from fencepost.broker.security.delegation_tokens import MAXIMUM_TOKENS
from fencepost.broker.security.sasl.scram import TokenKeys

SALT_BYTES = 16


class TokenUsers:
    """Finds the keys of delegation tokens for one mechanism. They are made when a token is first used, in about 3 ms,
    and kept: two nodes, and a node after its restart, may have others."""

    def __init__(self, mechanism: ScramMechanism, tokens: DelegationTokens) -> None:
        self._mechanism = mechanism
        self._tokens = tokens
        self._keys = lru_cache(MAXIMUM_TOKENS)(self._make_keys)

    def find(self, token_id: str) -> TokenKeys | None:
        """The keys of a token; None if there is none of this id, or it is expired."""
        token = self._tokens.valid(token_id)
        if token is None:
            return None
        return TokenKeys(self._keys(token_id), token.owner.partition(":")[2], token.expires_ms)

    def _make_keys(self, token_id: str) -> Credential:
        # Clients send the secret as text, as the tools of Kafka print it.
        password = base64.b64encode(self._tokens.secret(token_id))
        salt = secrets.token_bytes(SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(self._mechanism.digest, password, salt, MINIMUM_ITERATIONS)
        return credential_of(self._mechanism, MINIMUM_ITERATIONS, salt, salted)
