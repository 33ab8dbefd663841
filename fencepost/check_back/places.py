"""The places in a URL, a query or a key that a question fills: `{token}` and its parts. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable

from fencepost.check_back.question import Question

TOKEN = "{token}"
PLACES: dict[str, Callable[[Question], str | int]] = {
    "token": lambda question: str(question.token),
    "transactional_id": lambda question: question.token.transactional_id,
    "producer_id": lambda question: question.token.producer_id,
    "producer_epoch": lambda question: question.token.producer_epoch,
    "started_ms": lambda question: question.started_ms,
}
"""By name, without braces, the value of a place for a question."""

_PLACE = re.compile(rf"\{{({'|'.join(PLACES)})\}}")
_BRACED = re.compile(r"\{([^{}]*)\}")


def unknown_places(text: str) -> list[str]:
    """The places of a text that no question can fill, without their braces."""
    return [name for name in _BRACED.findall(text) if name not in PLACES]


def filled(text: str, fill: Callable[[str], str]) -> str:
    """Replace each place by the result of `fill` for its name. Places in such a result are not replaced."""
    return _PLACE.sub(lambda found: fill(found[1]), text)
