"""Templates: how they are found, and the words and addresses that they use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final
from unicodedata import category

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape

from fencepost.console import words
from fencepost.console.web.forms import hidden_field
from fencepost.console.web.visit import path, with_query
from fencepost.diagnosis.words import counted, duration

MENU: Final = (
    ("stuck", "/stuck", "Stuck partitions", "s"),
    ("in-doubt", "/in-doubt", "In doubt", "d"),
    ("transactions", "/transactions", "Transactions", "x"),
    ("topics", "/topics", "Topics", "t"),
    ("groups", "/groups", "Groups", "g"),
    ("producers", "/producers", "Producers", "p"),
    ("access", "/acls", "Access", "a"),
    ("quotas", "/quotas", "Quotas", "q"),
    ("settings", "/settings", "Settings", "c"),
    ("connections", "/connections", "Connections", "n"),
)
"""Of the menu below the overview: name, address, text, and the key that goes there after `g`."""


def _number(value: float | None) -> str:
    if value is None:
        return words.NONE
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _visible(text: str) -> str:
    """A name of any text, so that it can be seen: control characters, and those that turn the direction of writing, as
    their numbers.
    """
    return "".join(letter if letter.isprintable() else f"\\u{ord(letter):04x}" for letter in text) or "(empty)"


_SHOWN_AS_NUMBERS: Final = {"Cc", "Cs", "Zl", "Zp"}
_TURNS_WRITING: Final = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def _finished(value: Any) -> Any:
    """Any text of a page: characters that hide something, as their numbers. Lines and tabs stay.

    Text that a template has marked as finished (Markup) stays as it is, such as the value of a hidden field.
    """
    if not isinstance(value, str) or isinstance(value, Markup) or (value.isascii() and value.isprintable()):
        return value
    return "".join(
        f"\\u{ord(letter):04x}"
        if letter not in "\n\t" and (category(letter) in _SHOWN_AS_NUMBERS or _TURNS_WRITING.match(letter))
        else letter
        for letter in value
    )


def _content(value: bytes | None) -> str:
    """Key or value of a record as text; as hex if it is none."""
    if value is None:
        return "null"
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex(" ")


def make_environment() -> Environment:
    """The templates of the console. Everything that is put into them is escaped."""
    environment = Environment(
        loader=PackageLoader("fencepost.console", "templates"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=_finished,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=_number,
        size=lambda value: words.NONE if value is None else words.size(value),
        duration=duration,
        clock=words.clock,
        visible=_visible,
        content=_content,
        as_given=lambda value: Markup(escape(value)),  # in fields whose value the browser sends back
    )
    environment.globals.update(hidden_field=hidden_field, path=path, with_query=with_query, counted=counted, menu=MENU)
    return environment


@cache
def static_files() -> Mapping[str, bytes]:
    """The files of the folder `static`, by name."""
    folder = files("fencepost.console").joinpath("static")
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}
