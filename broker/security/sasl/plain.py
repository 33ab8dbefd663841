"""PLAIN: the client sends its name and its password. Pure.

Source: RFC 4616; Kafka's PlainSaslServer, whose texts these are.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Mapping
from typing import Final, Protocol

from fencepost.broker.security.sasl.exchange import (
    INVALID_PASSWORD,
    OTHER_AUTHORIZATION_ID,
    Found,
    Identified,
    Refused,
)

MECHANISM: Final = "PLAIN"
INVALID: Final = "Authentication failed: Invalid username or password"
MAXIMUM_PART_BYTES: Final = 64 * 1024
"""Longest name and password: hashing a longer one would take a noticeable time."""


class Passwords(Protocol):
    """Users and their passwords."""

    def has(self, name: str) -> bool: ...
    def check(self, name: str, password: str) -> bool | Awaitable[bool]:
        """Whether a user of this name exists and has this password; takes equally long for both answers."""
        ...


class PlainExchange:
    """One token with everything in it."""

    __slots__ = ("_passwords",)

    def __init__(self, passwords: Passwords) -> None:
        self._passwords = passwords

    def evaluate(self, token: bytes) -> Found | Awaitable[Found]:
        login = read_login(token)
        if isinstance(login, Refused):
            return login
        name, password = login
        checked = self._passwords.check(name, password)
        return self._found(name, checked) if isinstance(checked, bool) else self._await(name, checked)

    async def _await(self, name: str, checked: Awaitable[bool]) -> Found:
        return self._found(name, await checked)

    def _found(self, name: str, is_right: bool) -> Found:
        if is_right:
            return Identified(name)
        return Refused(INVALID, INVALID_PASSWORD, name if self._passwords.has(name) else None)


def read_login(token: bytes) -> tuple[str, str] | Refused:
    """Read name and password from `[authorization id] NUL name NUL password`."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        return Refused(message, "a token that is none of PLAIN")
    try:
        authorization_id, name, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        return Refused("Invalid SASL/PLAIN response: it is not UTF-8", "a token that is not UTF-8")
    if not name:
        return Refused("Authentication failed: username not specified", "no user name")
    if not password:
        return Refused("Authentication failed: password not specified", "no password")
    if max(len(parts[1]), len(parts[2])) > MAXIMUM_PART_BYTES:
        return Refused(INVALID, INVALID_PASSWORD)
    if authorization_id and authorization_id != name:
        return Refused(OTHER_AUTHORIZATION_ID, "another authorization id")
    return name, password


class ClearPasswords:
    """Users whose passwords the settings give in clear text."""

    __slots__ = ("_digests", "_key")

    def __init__(self, passwords: Mapping[str, str], key: bytes) -> None:
        """key: random. Passwords are compared by digests under it, so that their lengths do not show in the time."""
        self._key = key
        self._digests = {name: self._digest(password) for name, password in passwords.items()}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self._digests)} users)"

    def _digest(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")

    def has(self, name: str) -> bool:
        return name in self._digests

    def check(self, name: str, password: str) -> bool:
        """Whether the user exists and has the password."""
        # An unknown user takes the same steps: no password has an empty digest.
        expected = self._digests.get(name, bytes(32))
        return hmac.compare_digest(expected, self._digest(password)) & (name in self._digests)
