"""Patterns for names of topics and groups: one language for all commands. Pure.

`*` stands for any number of characters and `?` for one, and the whole name must match. A pattern that begins with `^`
is a regular expression instead, which must match from the beginning of the name on; with `$` at its end, all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

HELP: Final = "`orders-*`, with * and ? as in a shell, or a regular expression that begins with ^."
UNLIKE: Final = ("a", "Z-9.z_q", "0" * 64, "\U0001f5c4 \u00e9")
"""Names with nothing in common: a pattern that matches them all does not choose."""


class Pattern:
    """A pattern. text: as it was given. Raises ValueError for one that is empty or no regular expression."""

    def __init__(self, text: str) -> None:
        if not text.strip():
            raise ValueError("an empty pattern matches nothing: write * for every name")
        self.text = text
        if text.startswith("^"):
            try:
                self._matcher = re.compile(text, re.DOTALL).match
            except (re.error, RecursionError, OverflowError) as error:
                raise ValueError(f"{text!r} is no regular expression: {error}") from None
        else:
            whole = "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in text)
            self._matcher = re.compile(re.sub(r"(\.\*)+", ".*", whole), re.DOTALL).fullmatch

    def matches(self, name: str) -> bool:
        return self._matcher(name) is not None

    @property
    def is_of_everything(self) -> bool:
        """Whether it matches any name at all, as `*` does, and as `$PREFIX*` does in a script without a prefix."""
        return all(map(self.matches, UNLIKE))

    def __repr__(self) -> str:
        return f"Pattern({self.text!r})"


class PatternType(click.ParamType):
    """An option's pattern."""

    name = "PATTERN"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Pattern:
        if isinstance(value, Pattern):
            return value
        try:
            return Pattern(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def pattern_option(things: str) -> Callable[[Command], Command]:
    """Add `--pattern`, repeatable. things: those that it chooses, such as "Topics"."""
    return click.option(
        "--pattern", "patterns", type=PatternType(), multiple=True, help=f"{things} of a pattern: {HELP}"
    )


def is_pattern(topic: str) -> bool:
    """Whether an argument that means topics is a pattern: no name of a topic has one of these characters."""
    return topic.startswith("^") or "*" in topic or "?" in topic


def matching(names: Iterable[str], patterns: Iterable[Pattern]) -> list[str]:
    """The names that at least one of the patterns matches, in their order."""
    wanted = list(patterns)
    return [name for name in names if any(pattern.matches(name) for pattern in wanted)]
