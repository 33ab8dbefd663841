"""PLAIN: the client sends its name and its password. Pure.

Source: RFC 4616; Kafka's PlainSaslServer, whose texts these are.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Mapping
from typing import Final, NamedTuple, Protocol

from fencepost.broker.security.sasl.exchange import (
    INVALID_PASSWORD,
    OTHER_AUTHORIZATION_ID,
    Found,
    Identified,
    Refused,
    TooManyWaitingError,
)

MECHANISM: Final = "PLAIN"
INVALID: Final = "Authentication failed: Invalid username or password"
MAXIMUM_PART_BYTES: Final = 64 * 1024
"""Longest name and password: hashing a longer one would take a noticeable time."""


class Passwords(Protocol):
    """Users and their passwords."""

    def has(self, name: str) -> bool: ...
    def check(self, name: str, password: str, host: str) -> bool | Awaitable[bool]:
        """Whether a user of this name exists and has this password; takes equally long for both answers.

        host: the client's address, which has a share of the checks. The awaitable may raise TooManyWaitingError.
        """
        ...


class PlainExchange:
    """One token with everything in it."""

    __slots__ = ("_host", "_passwords")

    def __init__(self, passwords: Passwords, host: str = "") -> None:
        """host: the client's address."""
        self._passwords = passwords
        self._host = host

    def evaluate(self, token: bytes) -> Found | Awaitable[Found]:
        login = read_login(token)
        if isinstance(login, Refused):
            return login
        checked = self._passwords.check(login.name, login.password, self._host)
        return self._found(login, checked) if isinstance(checked, bool) else self._await(login, checked)

    async def _await(self, login: Login, checked: Awaitable[bool]) -> Found:
        try:
            return self._found(login, await checked)
        except TooManyWaitingError:
            return Refused(None, "more passwords of this address than can be checked wait already", is_answered=False)

    def _found(self, login: Login, is_right: bool) -> Found:
        if not is_right:
            return Refused(INVALID, INVALID_PASSWORD, login.name if self._passwords.has(login.name) else None)
        if login.authorization_id not in ("", login.name):
            return Refused(OTHER_AUTHORIZATION_ID, "another authorization id", login.name)
        return Identified(login.name)


class Login(NamedTuple):
    """The fields of a token."""

    authorization_id: str
    name: str
    password: str


def read_login(token: bytes) -> Login | Refused:
    """Read `[authorization id] NUL name NUL password`. Like Kafka, replace bytes not in UTF-8; they fit no user."""
    parts = token.split(b"\0", 3)
    if len(parts) != 3:
        message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
        return Refused(message, "a token that is none of PLAIN")
    if not parts[1]:
        return Refused("Authentication failed: username not specified", "no user name")
    if not parts[2]:
        return Refused("Authentication failed: password not specified", "no password")
    if max(map(len, parts)) > MAXIMUM_PART_BYTES:
        return Refused(INVALID, INVALID_PASSWORD)
    return Login(*(part.decode("utf-8", "replace") for part in parts))


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

    def check(self, name: str, password: str, host: str = "") -> bool:
        """Whether the user exists and has the password."""
        # An unknown user takes the same steps: no password has an empty digest.
        expected = self._digests.get(name, bytes(32))
        return hmac.compare_digest(expected, self._digest(password)) & (name in self._digests)
