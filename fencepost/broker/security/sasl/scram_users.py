"""The keys of the users of SCRAM, and made-up ones for users that do not exist. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final

from fencepost.broker.security.sasl.scram import Keys, MadeUpKeys, UserKeys, made_up_keys

MODELS: Final = 1_000
"""Users that others are modelled on."""
DEFAULT_MODEL: Final = MadeUpKeys(4096, b"0" * 26, b"", b"")
"""Used if there is no user: the parameters of Kafka's tools."""

Credentials = Mapping[str, Mapping[Any, Keys]]
"""Keys by user and mechanism."""


class ScramUsers:
    """Finds the keys of users for one mechanism.

    key:         the mechanism's key in the credentials.
    credentials: returns those of all users; another object after each change.
    secret:      the cluster's, for made-up keys.
    """

    def __init__(self, mechanism: str, key: Any, credentials: Callable[[], Credentials], secret: bytes) -> None:
        self._mechanism = mechanism
        self._key = key
        self._nothing = {key: None}
        self._credentials = credentials
        self._secret = secret
        self._modelled: Credentials | None = None
        self._models: list[Keys] = [DEFAULT_MODEL]

    def find(self, name: str) -> UserKeys:
        """The keys of a user. All steps are the same for one that does not exist."""
        credentials = self._credentials()
        if credentials is not self._modelled:
            self._renew_models(credentials)
        choice = int.from_bytes(hmac.digest(self._secret, name.encode(), "sha256")[:8], "big")
        model = self._models[choice % len(self._models)]
        made_up = made_up_keys(self._mechanism, name, self._secret, model)
        found = credentials.get(name, self._nothing).get(self._key)
        return UserKeys(made_up, exists=False) if found is None else UserKeys(found, exists=True)

    def _renew_models(self, credentials: Credentials) -> None:
        stored = (keys for _, kept in sorted(credentials.items()) if (keys := kept.get(self._key)) is not None)
        self._models = list(islice(stored, MODELS)) or [DEFAULT_MODEL]
        self._modelled = credentials
