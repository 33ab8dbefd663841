"""Kinds of values in JSON: how one is checked, and its JSON schema. Pure.

A value is checked by hand and not by a schema library, as a refusal gives the remedy in a sentence.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.testing.errors import hint

WHOLE: Final = re.compile(r"-?\d{1,19}", re.ASCII)
NUMBER: Final = re.compile(r"-?\d{1,19}(\.\d{1,19})?", re.ASCII)
SHOWN: Final = 60
"""Characters of a wrong value that a refusal repeats."""

Schema = dict[str, Any]


class InputError(Exception):
    """A value that is refused: the message has its place and the remedy."""


class Kind(ABC):
    """A kind of value."""

    @abstractmethod
    def check(self, value: Any, where: str) -> Any:
        """Return a value, as it is used. where: its place, for the message. Raises InputError."""

    def parse(self, text: str, where: str) -> Any:
        """Return the value that a text in a query means. Raises InputError."""
        return self.check(text, where)

    @abstractmethod
    def schema(self) -> Schema: ...

    def shapes(self) -> Iterable[Shape]:
        """The shapes that its schema refers to."""
        return ()


@dataclass(frozen=True, slots=True)
class Text(Kind):
    """A string that UTF-8 can encode. longest: in characters. choices: the only ones, if there are any."""

    longest: int = 249
    choices: tuple[str, ...] = ()
    least: int = 0

    def check(self, value: Any, where: str) -> str:
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise refusal(where, value, " or ".join(map(repr, self.choices)))
            return value
        if not isinstance(value, str):
            raise refusal(where, value, "a string")
        if not self.least <= len(value) <= self.longest:
            raise InputError(f"{where} has {len(value):,} characters: give {self.least} to {self.longest:,}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(f"{where} has half of a surrogate pair: give text that UTF-8 can encode") from None
        return value

    def schema(self) -> Schema:
        if self.choices:
            return {"type": "string", "enum": list(self.choices)}
        return {"type": "string", "minLength": self.least, "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Whole(Kind):
    """A whole number."""

    least: int
    most: int

    def check(self, value: Any, where: str) -> int:
        if type(value) is not int or not self.least <= value <= self.most:
            raise refusal(where, value, f"a whole number from {self.least} to {self.most}")
        return value

    def parse(self, text: str, where: str) -> int:
        return self.check(int(text) if WHOLE.fullmatch(text) else text, where)

    def schema(self) -> Schema:
        return {"type": "integer", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Number(Kind):
    """A number, such as of seconds."""

    least: float
    most: float

    def check(self, value: Any, where: str) -> float:
        if type(value) not in (int, float) or not self.least <= value <= self.most:  # neither holds for NaN
            raise refusal(where, value, f"a number from {self.least:g} to {self.most:g}")
        return float(value)

    def parse(self, text: str, where: str) -> float:
        return self.check(float(text) if NUMBER.fullmatch(text) else text, where)

    def schema(self) -> Schema:
        return {"type": "number", "minimum": self.least, "maximum": self.most}


@dataclass(frozen=True, slots=True)
class Flag(Kind):
    """True or false."""

    def check(self, value: Any, where: str) -> bool:
        if type(value) is not bool:
            raise refusal(where, value, "true or false")
        return value

    def parse(self, text: str, where: str) -> bool:
        return self.check({"true": True, "false": False}.get(text, text), where)

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Nothing(Kind):
    """`inner`, or null."""

    inner: Kind

    def check(self, value: Any, where: str) -> Any:
        return None if value is None else self.inner.check(value, where)

    def parse(self, text: str, where: str) -> Any:
        return self.inner.parse(text, where)

    def schema(self) -> Schema:
        inner = self.inner.schema()
        if isinstance(inner.get("type"), str) and "enum" not in inner:
            return {**inner, "type": [inner["type"], "null"]}
        return {"anyOf": [inner, {"type": "null"}]}

    def shapes(self) -> Iterable[Shape]:
        return self.inner.shapes()


@dataclass(frozen=True, slots=True)
class Scalar(Kind):
    """A string, a number, or true or false: the value of a setting."""

    longest: int = 4096

    def check(self, value: Any, where: str) -> str | int | float | bool:
        if type(value) in (bool, int) or (type(value) is float and math.isfinite(value)):
            found: bool | int | float = value
            return found
        if not isinstance(value, str):
            raise refusal(where, value, "a string, a number, or true or false")
        return Text(self.longest).check(value, where)

    def schema(self) -> Schema:
        return {"type": ["string", "number", "boolean"], "maxLength": self.longest}


@dataclass(frozen=True, slots=True)
class Listed(Kind):
    """A list of at most `most` values."""

    item: Kind
    most: int
    least: int = 0

    def check(self, value: Any, where: str) -> list[Any]:
        if not isinstance(value, list):
            raise refusal(where, value, "a list")
        if not self.least <= len(value) <= self.most:
            raise InputError(f"{where} has {len(value):,} items: give {self.least} to {self.most:,}")
        return [self.item.check(item, f"{where}[{index}]") for index, item in enumerate(value)]

    def schema(self) -> Schema:
        return {"type": "array", "items": self.item.schema(), "minItems": self.least, "maxItems": self.most}

    def shapes(self) -> Iterable[Shape]:
        return self.item.shapes()


@dataclass(frozen=True, slots=True)
class Mapped(Kind):
    """An object of at most `most` fields with any names."""

    item: Kind
    most: int

    def check(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise refusal(where, value, "an object")
        if len(value) > self.most:
            raise InputError(f"{where} has {len(value):,} fields: give {self.most:,} at most")
        return {
            Text().check(name, f"a name in {where}"): self.item.check(one, f"{where}[{shown(name)}]")
            for name, one in value.items()
        }

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": self.item.schema(), "maxProperties": self.most}

    def shapes(self) -> Iterable[Shape]:
        return self.item.shapes()


@dataclass(frozen=True, slots=True)
class Anything(Kind):
    """Any JSON; of answers only."""

    def check(self, value: Any, where: str) -> Any:
        raise InputError(f"{where} cannot be given")

    def schema(self) -> Schema:
        return {}


@dataclass(frozen=True, slots=True)
class Shape(Kind):
    """An object of an answer, with its fields and the meaning of each; all of them are there."""

    name: str
    fields: Mapping[str, tuple[Kind, str]] = field(hash=False)

    def check(self, value: Any, where: str) -> Any:
        raise InputError(f"{where} cannot be given")

    def schema(self) -> Schema:
        return {"$ref": f"#/components/schemas/{self.name}"}

    def shapes(self) -> Iterable[Shape]:
        yield self
        for kind, _ in self.fields.values():
            yield from kind.shapes()

    def definition(self) -> Schema:
        """The schema that others refer to."""
        return {
            "type": "object",
            "properties": {name: described(kind.schema(), text) for name, (kind, text) in self.fields.items()},
            "required": list(self.fields),
            "additionalProperties": False,
        }


def described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text} if text else schema


def check_names(given: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raises InputError for a name that is not known."""
    names = list(known)
    for name in given:
        if name not in names:
            raise InputError(
                f"{where} has no field {shown(name)}: {hint(name[:SHOWN], names)}"
                if names
                else f"{where} has no field {shown(name)}, nor any other: leave it out"
            )


def refusal(where: str, value: object, wanted: str) -> InputError:
    return InputError(f"{where} is {shown(value)}: give {wanted}")


def shown(value: object) -> str:
    """A wrong value as JSON writes it, shortened."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case list():
            return "a list"
        case dict():
            return "an object"
        case int() if value.bit_length() > 200:
            return "a very large number"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
