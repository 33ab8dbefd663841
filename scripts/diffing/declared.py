"""The differences that stay, each under the name by which docs/differences-from-kafka.md says why.

A test holds that none is undeclared, that each declared one still exists, and that the page explains exactly these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from scripts.diffing.comparison import Deviation


class Declared(NamedTuple):
    """Where a difference shows: patterns with * for theme, situation and path; `name` is its heading in the page."""

    name: str
    theme: str
    situation: str
    path: str

    def covers(self, deviation: Deviation) -> bool:
        return (
            fnmatchcase(deviation.theme, self.theme)
            and fnmatchcase(deviation.situation, self.situation)
            and fnmatchcase(deviation.path, self.path)
        )


DECLARED: tuple[Declared, ...] = ()


def undeclared(deviations: Iterable[Deviation], declared: Sequence[Declared] = DECLARED) -> list[Deviation]:
    """The deviations that no declaration covers."""
    return [deviation for deviation in deviations if not any(one.covers(deviation) for one in declared)]


def obsolete(deviations: Sequence[Deviation], declared: Sequence[Declared] = DECLARED) -> list[Declared]:
    """The declarations that cover nothing any more."""
    return [one for one in declared if not any(one.covers(deviation) for deviation in deviations)]
