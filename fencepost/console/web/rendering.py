"""Templates: how they are found, and the words and addresses that they use."""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from fencepost.console import words
from fencepost.console.web.visit import path, with_query

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


def _content(value: bytes | None) -> str:
    """Key or value of a record as text; as hex where it is none."""
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
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=_number,
        size=lambda value: words.NONE if value is None else words.size(value),
        duration=words.duration,
        clock=words.clock,
        visible=_visible,
        content=_content,
    )
    environment.globals.update(path=path, with_query=with_query, counted=words.counted, menu=MENU)
    return environment


def static_file(name: str) -> bytes | None:
    """A file of the folder `static`; None if there is none of that name."""
    if "/" in name or name.startswith("."):
        return None
    found: Any = files("fencepost.console").joinpath("static", name)
    return bytes(found.read_bytes()) if found.is_file() else None
