"""SCRAM credentials of users, in the metadata store: no passwords, and nothing that can replace one.

Source: KIP-84, KIP-554, RFC 5802; Kafka's ScramControlManager and ScramFormatter.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.metadata.document import VersionedDocument
from fencepost.broker.metadata.store import MetadataStore
from fencepost.protocol.checked_json import INT32_MAX, Fields, object_of
from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import hashlib
    import hmac
else:
    hashlib = lazy_module("hashlib")
    hmac = lazy_module("hmac")

log = get_logger(__name__)

SCRAM_CREDENTIALS_KEY = "scram-credentials"
MINIMUM_ITERATIONS = 4096
MAXIMUM_ITERATIONS = 16_384


class ScramMechanism(IntEnum):
    """SCRAM mechanisms, with Kafka's numbers."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def digest(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


class Credential(NamedTuple):
    """The keys that a server stores for a password: they check it, and do not suffice to log in."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


Credentials = Mapping[str, Mapping[ScramMechanism, Credential]]


def credential_of(mechanism: ScramMechanism, iterations: int, salt: bytes, salted_password: bytes) -> Credential:
    """Derive the stored keys from a salted password. Source: RFC 5802, section 3."""
    client_key = hmac.digest(salted_password, b"Client Key", mechanism.digest)
    stored_key = hashlib.new(mechanism.digest, client_key).digest()
    server_key = hmac.digest(salted_password, b"Server Key", mechanism.digest)
    return Credential(iterations, salt, stored_key, server_key)


class ScramCredentials:
    """The credentials of all users, by name and mechanism."""

    def __init__(self, store: MetadataStore) -> None:
        self._document: VersionedDocument[Credentials] = VersionedDocument(
            store, SCRAM_CREDENTIALS_KEY, read=_read, write=_write
        )

    async def open(self) -> None:
        """Load the stored credentials, also those that another node has written since. Raises StorageError."""
        await self._document.load()

    @property
    def all(self) -> Credentials:
        return self._document.content

    async def change(self, changes: Mapping[tuple[str, ScramMechanism], Credential | None]) -> None:
        """Set credentials, and remove those given as None, in one change. Raises StorageError."""
        if not changes:
            return

        def changed(before: Credentials) -> Credentials:
            after = {user: dict(credentials) for user, credentials in before.items()}
            for (user, mechanism), credential in changes.items():
                if credential is None:
                    after.get(user, {}).pop(mechanism, None)
                else:
                    after.setdefault(user, {})[mechanism] = credential
            return {user: credentials for user, credentials in after.items() if credentials}

        await self._document.change(changed)
        log.info("scram_credentials_altered", users=sorted({user for user, _ in changes}))


def _read(content: Any) -> Credentials:
    users = object_of({} if content is None else content)
    return {user: _read_user(users.object(user)) for user in users}


def _read_user(credentials: Fields) -> dict[ScramMechanism, Credential]:
    found = {}
    for name in credentials:
        kept = credentials.object(name)
        parts = (base64.b64decode(kept.text(part), validate=True) for part in ("salt", "stored_key", "server_key"))
        found[ScramMechanism[name]] = Credential(kept.whole("iterations", 1, INT32_MAX), *parts)
    return found


def _write(content: Credentials) -> Any:
    return {
        user: {
            mechanism.name: {
                "iterations": credential.iterations,
                "salt": base64.b64encode(credential.salt).decode(),
                "stored_key": base64.b64encode(credential.stored_key).decode(),
                "server_key": base64.b64encode(credential.server_key).decode(),
            }
            for mechanism, credential in credentials.items()
        }
        for user, credentials in content.items()
    }
