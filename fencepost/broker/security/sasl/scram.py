"""SCRAM-SHA-256 and SCRAM-SHA-512: the client proves that it knows its password, without sending it. Pure.

The broker keeps keys that check a proof and cannot make one. A user that does not exist gets a challenge like all
others, and fails at the step of a wrong password: names cannot be probed. Kafka fails it at its first message.
Source: RFC 5802, RFC 7677, KIP-84; Kafka's ScramSaslServer, ScramMessages and ScramFormatter, whose texts these are.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from fencepost.broker.security.sasl.exchange import (
    INVALID_PASSWORD,
    OTHER_AUTHORIZATION_ID,
    Challenge,
    Found,
    Identified,
    Refused,
)

DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""

MAXIMUM_MESSAGE_BYTES: Final = 4096
"""Longest message of a client: reading a longer one would take a noticeable time."""

_NAME = r"(?:[^\0,=]|=2C|=3D)"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\0,]+)*"
_FIRST = re.compile(
    rf"(?P<gs2>(?P<binding>[ny]|p=[A-Za-z0-9.-]+),(?:a=(?P<authzid>{_NAME}+))?,)"
    rf"(?P<bare>(?P<mandatory>m=[^\0,]+,)?n=(?P<name>{_NAME}+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+){_EXTENSIONS}),"
    r"p=(?P<proof>[A-Za-z0-9+/=]+)"
)


class Keys(Protocol):
    """The stored keys of a password."""

    @property
    def iterations(self) -> int: ...
    @property
    def salt(self) -> bytes: ...
    @property
    def stored_key(self) -> bytes: ...
    @property
    def server_key(self) -> bytes: ...


class MadeUpKeys(NamedTuple):
    """The keys of no password, for a user that does not exist."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


class UserKeys(NamedTuple):
    """The keys with which a client's proof is checked. exists: whether there is such a user."""

    keys: Keys
    exists: bool


class TokenKeys(NamedTuple):
    """The keys of the secret of a delegation token. owner: the name of its user. expires_at_ms: since the epoch."""

    keys: Keys
    owner: str
    expires_at_ms: int


class ScramExchange:
    """Two tokens: the client's name, and its proof for the broker's challenge.

    With the extension `tokenauth=true` the name is the id of a delegation token, and the client becomes its owner.
    """

    __slots__ = (
        "_auth_message",
        "_digest",
        "_find",
        "_find_token",
        "_gs2_header",
        "_identified",
        "_mechanism",
        "_nonce",
        "_user",
    )

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str], UserKeys],
        nonce: str,
        find_token: Callable[[str], TokenKeys | None] | None = None,
    ) -> None:
        """find:  the keys of a user; takes equally long whether it exists or not.
        nonce: random, of printable characters without commas.
        find_token: the keys of a valid delegation token by its id, which nobody can guess; None if there are none.
        """
        self._mechanism = mechanism
        self._digest = DIGESTS[mechanism]
        self._find = find
        self._find_token = find_token
        self._nonce = nonce
        self._identified = Identified("")
        self._gs2_header = ""
        self._auth_message = ""
        self._user: UserKeys | None = None

    def evaluate(self, token: bytes) -> Found:
        if len(token) > MAXIMUM_MESSAGE_BYTES:
            return self._refused("a message that is too long")
        try:
            text = token.decode()
        except UnicodeDecodeError:
            return self._refused("a token that is not UTF-8")
        return self._challenge(text) if self._user is None else self._check(text, self._user)

    def _challenge(self, text: str) -> Found:
        first = _FIRST.fullmatch(text)
        if first is None:
            return self._refused("a first message that is none of SCRAM")
        if first["binding"] not in ("n", "y"):
            return self._refused("channel binding, which is not supported")
        if first["mandatory"]:
            return self._refused("an extension that is not supported")
        name = _unescaped(first["name"])
        if first["authzid"] and _unescaped(first["authzid"]) != name:
            return Refused(OTHER_AUTHORIZATION_ID, "another authorization id")
        self._gs2_header = first["gs2"]
        if any(extension.lower() == "tokenauth=true" for extension in first["extensions"].split(",")):
            if self._find_token is None:
                return self._refused("a delegation token: delegation.token.secret.key is not set")
            token = self._find_token(name)
            if token is None:
                return self._refused("a delegation token that is unknown or expired")
            self._identified = Identified(token.owner, expires_at_ms=token.expires_at_ms, by_token=True)
            user = UserKeys(token.keys, exists=True)
        else:
            self._identified = Identified(name)
            user = self._find(name)
        self._user = user
        self._nonce = first["nonce"] + self._nonce
        challenge = f"r={self._nonce},s={base64.b64encode(user.keys.salt).decode()},i={user.keys.iterations}"
        self._auth_message = f"{first['bare']},{challenge},"
        return Challenge(challenge.encode())

    def _check(self, text: str, user: UserKeys) -> Found:
        final = _FINAL.fullmatch(text)
        if final is None:
            return self._refused("a final message that is none of SCRAM")
        try:
            binding, proof = (base64.b64decode(final[part], validate=True) for part in ("binding", "proof"))
        except binascii.Error:
            return self._refused("a final message that is none of SCRAM")
        if binding != self._gs2_header.encode() or final["nonce"] != self._nonce:
            return self._refused("a final message that does not belong to the first")
        keys, digest = user.keys, self._digest
        auth_message = (self._auth_message + final["bare"]).encode()
        signature = hmac.digest(keys.stored_key, auth_message, digest)
        if len(proof) != len(signature):
            return self._refused("a proof of another length")
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        is_right = hmac.compare_digest(hashlib.new(digest, client_key).digest(), keys.stored_key)
        server_signature = hmac.digest(keys.server_key, auth_message, digest)
        if not (is_right & user.exists):
            return self._refused(INVALID_PASSWORD, self._identified.name if user.exists else None)
        return self._identified._replace(token=b"v=" + base64.b64encode(server_signature))

    def _refused(self, reason: str, user: str | None = None) -> Refused:
        return Refused(None, reason, user)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


_BASE_36: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def made_up_keys(mechanism: str, name: str, secret: bytes, model: Keys) -> MadeUpKeys:
    """The keys of a user that does not exist: always the same for a name, and alike to those of a user that does.

    secret: the cluster's; nobody who does not know it can make the salt.
    model:  the keys of an existing user: its iterations, and a salt of the same length and alphabet.
    """
    digest = DIGESTS[mechanism]
    key = hmac.digest(secret, name.encode(), digest)
    length = len(model.salt)
    salt = b"".join(hmac.digest(key, b"salt %d" % block, digest) for block in range(-(-length // len(key))))[:length]
    if all(byte in _BASE_36 for byte in model.salt):  # as Kafka's tools make it
        salt = bytes(_BASE_36[byte % 36] for byte in salt)
    return MadeUpKeys(
        model.iterations, salt, hmac.digest(key, b"stored key", digest), hmac.digest(key, b"server key", digest)
    )
