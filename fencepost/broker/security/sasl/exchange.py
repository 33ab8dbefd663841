"""What all SASL mechanisms have in common: the steps of an exchange of tokens. Pure."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol


class TooManyWaitingError(Exception):
    """A token cannot be checked now: too many of its client's address wait already."""


class Challenge(NamedTuple):
    """The client has to send another token."""

    token: bytes


class Identified(NamedTuple):
    """The client has proved its name.

    token:         the last of the broker's.
    expires_at_ms: when the proof ends, in ms since the epoch; None for never.
    """

    name: str
    token: bytes = b""
    expires_at_ms: int | None = None


class Refused(NamedTuple):
    """The client has proved nothing.

    message: for the client; None for the text that all mechanisms have. The same for a user that does not exist and
             for a wrong password.
    reason:  for the broker's log, without names and passwords.
    user:    for the broker's log, if there is such a user: what others send as a name may be a password.
    is_answered: False to close the connection without an answer: clients then try again, as nothing was decided.
    """

    message: str | None
    reason: str
    user: str | None = None
    is_answered: bool = True


Found = Challenge | Identified | Refused


class Exchange(Protocol):
    """The tokens of one client and one authentication."""

    def evaluate(self, token: bytes) -> Found | Awaitable[Found]:
        """Evaluate the client's next token; an awaitable where that takes long. Raises nothing.

        It is not called again after Identified or Refused.
        """
        ...


INVALID_PASSWORD = "wrong user or password"
"""The reason of a refusal that must not tell which of the two."""
OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"
