"""Secrets in the settings: passwords, keys, and users with their passwords. Nothing shows one by accident."""

from __future__ import annotations

import os
import re

_REFERENCE = re.compile(r"\$\{(file|env):([^}]*)\}")


class Password:
    """A secret as its setting was written.

    Its text, or parts of it, may be references: `${file:/path}` is the content of a file without the end of its last
    line, `${env:NAME}` a variable of the environment.
    """

    __slots__ = ("_written",)

    def __init__(self, written: str) -> None:
        self._written = written

    def reveal(self) -> str:
        """The secret itself; references are read anew. Raises ValueError, without any part of it."""
        return _REFERENCE.sub(_read, self._written) if "${" in self._written else self._written

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and other._written == self._written

    def __hash__(self) -> int:
        return hash(self._written)

    def __repr__(self) -> str:
        return "[hidden]"


def _read(reference: re.Match[str]) -> str:
    source, place = reference[1], reference[2].strip()
    if source == "env":
        text = os.environ.get(place)
        if text is None:
            raise ValueError(f"the environment has no variable {place}")
        return text
    try:
        with open(place, encoding="utf-8") as file:
            return file.read().removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ValueError(f"the file {place} cannot be read: {reason}") from None
