"""Filters of records: by key, header, text and a field of the value, all of them on the text that a person sees. Pure.

A field is a path such as `order.customer.id`: names of a JSON object, with dots between them; in an array a number is a
place, and any other name is looked for in each element. A dot in a name is written `\\.`. Nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from fencepost.console.values import Shown
from fencepost.protocol.checked_json import JsonError, parse

OPERATORS: Final = ("=", "contains", "<", ">")
LONGEST: Final = 1_000
MOST_NAMES: Final = 20
MOST_VALUES: Final = 1_000
"""Of one field in one record, as arrays have many."""
_DOT: Final = re.compile(r"(?<!\\)\.")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}(\.[0-9]{1,19})?([eE][-+]?[0-9]{1,2})?")
PARAMETERS: Final = ("contains", "key", "key_is", "header", "header_value", "field", "op", "operand")


class FilterError(ValueError):
    """A filter that cannot be: one line for the user."""


@dataclass(frozen=True)
class Filter:
    """Conditions on a record; empty text asks for nothing.

    contains: text in key, value or a header. key: text in the key; with key_is, all of it. header: name of a header;
    header_value: text in its value. field: names of the path; op: one of OPERATORS; operand: the other side.
    """

    contains: str = ""
    key: str = ""
    key_is: bool = False
    header: str = ""
    header_value: str = ""
    field: tuple[str, ...] = ()
    op: str = "="
    operand: str = ""

    @property
    def is_empty(self) -> bool:
        return not (self.contains or self.key or self.key_is or self.header or self.header_value or self.field)

    def takes(self, shown: Shown) -> bool:
        """Whether a record has it all."""
        if self.key_is or self.key:
            key = shown.key.text
            if key is None or not (key == self.key if self.key_is else self.key in key):
                return False
        if (self.header or self.header_value) and not self._takes_header(shown):
            return False
        if self.contains:
            wanted = self.contains.encode()
            if not any(wanted in piece for piece in shown.pieces()):
                return False
        return not self.field or any(self._compares(one) for one in values_at(document_of(shown), self.field))

    def _takes_header(self, shown: Shown) -> bool:
        return any(
            (not self.header or name == self.header) and self.header_value in (part.text or "")
            for name, part in shown.headers
        )

    def _compares(self, value: Any) -> bool:
        if isinstance(value, dict | list):
            return False
        if self.op == "contains":
            return self.operand in text_of(value)
        if isinstance(value, int | float) and not isinstance(value, bool) and _NUMBER.fullmatch(self.operand):
            # Whole numbers are compared as such: a float has 53 bits.
            operand = int(self.operand) if self.operand.lstrip("-").isdigit() else float(self.operand)
            return _compared(value, operand, self.op)
        if self.op == "=":
            return text_of(value) == self.operand
        return isinstance(value, str) and _compared(value, self.operand, self.op)


def _compared(value: Any, operand: Any, op: str) -> bool:
    if op == "=":
        return bool(value == operand)
    return bool(value < operand if op == "<" else value > operand)


def text_of(value: Any) -> str:
    """A scalar of JSON as text."""
    if isinstance(value, str):
        return value
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or value is True or value is False
        else str(value)
    )


def document_of(shown: Shown) -> Any:
    """The value as JSON, in whichever format it is shown: read by its schema, or from its bytes; None if it is none."""
    if shown.value.data is not None:
        return shown.value.data
    for text in (shown.value.text, shown.record.value):
        if text is not None:
            with suppress(JsonError):
                return parse(bytes(text) if not isinstance(text, str) else text)
    return None


def values_at(document: Any, path: tuple[str, ...]) -> Iterator[Any]:
    """The values at a path of a JSON document."""
    found = [document]
    for name in path:
        found = [one for value in found for one in _step(value, name)][:MOST_VALUES]
    yield from found


def _step(value: Any, name: str) -> Iterator[Any]:
    if isinstance(value, dict):
        if name in value:
            yield value[name]
    elif isinstance(value, list):
        if name.isascii() and name.isdigit() and len(name) < 10:
            yield from value[int(name) : int(name) + 1]
        else:
            for one in value[:MOST_VALUES]:
                if isinstance(one, dict) and name in one:
                    yield one[name]


def path_of(text: str) -> tuple[str, ...]:
    """Read a path. Raises FilterError."""
    names = tuple(name.replace("\\.", ".") for name in _DOT.split(text))
    if not all(names) or len(names) > MOST_NAMES:
        raise FilterError(f"{text[:100]!r} is no field: write names with dots between them, such as order.customer.id")
    return names


def filter_of(parameters: Mapping[str, str]) -> Filter:
    """Read a filter of an address or a form. Raises FilterError."""
    given = {name: parameters.get(name, "") for name in PARAMETERS}
    for name, text in given.items():
        if len(text) > LONGEST:
            raise FilterError(f"{name} may have at most {LONGEST:,} characters")
    field = given["field"].strip()
    if given["op"] and given["op"] not in OPERATORS:
        raise FilterError(f"a field is compared by {', '.join(OPERATORS)}; not by {given['op'][:20]!r}")
    return Filter(
        given["contains"],
        given["key"],
        given["key_is"] == "yes",
        given["header"],
        given["header_value"],
        path_of(field) if field else (),
        given["op"] or "=",
        given["operand"],
    )
