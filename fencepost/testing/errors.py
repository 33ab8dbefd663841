"""Errors for the author of a test: each is one sentence with the cause and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class MisuseError(Exception):
    """A test made an impossible request of a helper: the message has the remedy."""


class FaultNeverFiredError(AssertionError):
    """A fault was set and no request met it, so the test has not proved its claim."""


class WaitedInVainError(AssertionError):
    """A test's condition did not become true in time; the message has the broker's view."""


class RefusedError(Exception):
    """The broker refused a request of a helper. error: the name of the error code, such as `INVALID_PARTITIONS`."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


def hint(name: str, known: Iterable[str]) -> str:
    """Return a clause for a name that does not exist: the one that was probably meant, else the existing ones."""
    names = sorted(known)
    close = get_close_matches(name, names, 1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"there are {shown}" if names else "there are none"
