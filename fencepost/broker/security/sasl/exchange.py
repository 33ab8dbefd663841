"""Types that all SASL mechanisms share: the steps of an exchange of tokens. Pure."""

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

    token:         the broker's last one.
    expires_at_ms: end of the proof, in ms since the epoch; None for never.
    by_token:      whether a delegation token proved it.
    """

    name: str
    token: bytes = b""
    expires_at_ms: int | None = None
    by_token: bool = False


class Refused(NamedTuple):
    """The client has proved nothing.

    message: text for the client; None for the text that all mechanisms have. The same for a user that does not
             exist and for a wrong password.
    reason:  text for the broker's log, without names and passwords.
    user:    name for the broker's log, if there is such a user: a client may have sent a password as the name.
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
        """Evaluate the client's next token; an awaitable if that takes long. Raises nothing.

        It is not called again after Identified or Refused.
        """
        ...


INVALID_PASSWORD = "wrong user or password"
"""The reason of a refusal that must not tell which of the two."""
OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"
