"""Errors that tell the author of a test, in one sentence each, what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class MisuseError(Exception):
    """A test asked for what cannot be: the message has the remedy."""


class FaultNeverFiredError(AssertionError):
    """A fault was set and no request met it, so the test has not shown what it claims to show."""


class WaitedInVainError(AssertionError):
    """What a test waited for did not come in time; the message has the broker's view."""


class RefusedError(Exception):
    """The broker refused a request of a helper. error: the name of the error code, such as `INVALID_PARTITIONS`."""

    def __init__(self, error: str, message: str) -> None:
        super().__init__(message)
        self.error = error


def hint(name: str, known: Iterable[str]) -> str:
    """A clause for a name that does not exist: the one that was probably meant, else what there is."""
    names = sorted(known)
    close = get_close_matches(name, names, 1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"there are {shown}" if names else "there are none"
