"""One setting: its name, type, default, bounds and documentation; parsing and formatting of its values."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from fencepost.broker.config.password import Password

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1
LARGEST_RECORD_BYTES = 2**31 - 9
"""Kafka's bound: no array of Java is longer."""
SMALLEST_SEGMENT_BYTES = 2**20
"""Since KIP-1030: smaller segments open too many files, and were set by mistake."""


class SettingType(IntEnum):
    """The types of Kafka's ConfigDef, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9

    @property
    def described(self) -> str:
        return _TYPE_NAMES[self]


_TYPE_NAMES = {
    SettingType.BOOLEAN: "true or false",
    SettingType.STRING: "text",
    SettingType.INT: "whole number",
    SettingType.SHORT: "whole number",
    SettingType.LONG: "whole number",
    SettingType.DOUBLE: "number",
    SettingType.LIST: "comma-separated list",
    SettingType.PASSWORD: "secret",
}


class Scope(Enum):
    """The narrowest part of a broker that a setting can be set for: `listener.name.<listener>.<setting>`, and
    `listener.name.<listener>.<mechanism>.<setting>`."""

    BROKER = "broker"
    LISTENER = "listener"
    MECHANISM = "mechanism"


_COUNT = re.compile(r"\S+:\s*[0-9]+")
_EXPIRATION = re.compile(r".+=0*[1-9][0-9]{0,14}")
_REPLICA = re.compile(r"[0-9]+:[0-9]+")
_INTEGER_BOUNDS = {
    SettingType.SHORT: (-(2**15), 2**15 - 1),
    SettingType.INT: (-(2**31), MAX_INT32),
    SettingType.LONG: (-(2**63), MAX_INT64),
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The values of its type that a setting accepts; `described` is for users. normal: makes one of equal values."""

    described: str
    contains: Callable[[Any], bool]
    normal: Callable[[Any], Any] | None = None


def between(lowest: float, highest: float) -> Bounds:
    return Bounds(f"{lowest} to {highest}", lambda value: lowest <= value <= highest)


def at_least(lowest: float) -> Bounds:
    return Bounds(f"{lowest} or more", lambda value: value >= lowest)


def one_of(*choices: str) -> Bounds:
    return Bounds(f"one of {', '.join(choices)}", lambda value: value in choices)


def one_of_in_any_case(*choices: str) -> Bounds:
    """For a text of which Kafka, or Java, does not distinguish upper and lower case; the value is the choice."""
    known = {choice.lower(): choice for choice in choices}
    described = f"one of {', '.join(choices)}, in any case"
    return Bounds(described, lambda value: value.lower() in known, lambda value: known[value.lower()])


def any_of(*choices: str) -> Bounds:
    """For lists: every entry one of the choices; the list may be empty."""
    return Bounds(f"any of {', '.join(choices)}", lambda value: set(value) <= set(choices))


def distinct(values: Bounds | None = None) -> Bounds:
    """For lists: no empty entry, and none twice; every entry as `values` requires."""
    contains = values.contains if values is not None else lambda _: True
    described = "different words" if values is None else f"{values.described}, each once"
    return Bounds(described, lambda value: all(value) and len(set(value)) == len(value) and contains(value))


def each_of(*choices: str) -> Bounds:
    """For lists: at least one entry, and every entry one of the choices."""
    return Bounds(f"one or more of {', '.join(choices)}", lambda value: bool(value) and set(value) <= set(choices))


def gzip_levels() -> Bounds:
    return Bounds("-1 or 1 to 9", lambda value: value == -1 or 1 <= value <= 9)


def replicas() -> Bounds:
    """For lists: partition and broker of each replica, or `*`. Source: Kafka's ThrottledReplicaListValidator."""
    return Bounds(
        "partition:broker,… or *",
        lambda value: "".join(value) == "*" or all(part == "" or _REPLICA.fullmatch(part) for part in value),
    )


def not_zero() -> Bounds:
    return Bounds("anything but 0", lambda value: value != 0)


def connection_counts() -> Bounds:
    """For a text: the most connections of each of some addresses."""
    return Bounds(
        "address:count,…",
        lambda value: all(_COUNT.fullmatch(part.strip()) for part in value.split(",") if part.strip()),
    )


def expirations_by_name() -> Bounds:
    """For lists: a glob of names with a time in ms each."""
    return Bounds("GLOB=MILLISECONDS,…", lambda value: all(_EXPIRATION.fullmatch(part) for part in value))


def only_false() -> Bounds:
    """For a feature that can only be off."""
    return Bounds("false only", lambda value: value is False)


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the settings table.

    default:    a value of the setting's type, or None if it is unset.
    aliases:    Kafka's other names for the same setting (`broker.id` for `node.id`).
    has_effect: False for a setting without effect, which is accepted and shown because clients and tools set it.
    scope:      the narrowest part of a broker that it can be set for.
    """

    name: str
    type: SettingType
    default: Any
    documentation: str
    bounds: Bounds | None = None
    aliases: tuple[str, ...] = ()
    has_effect: bool = True
    scope: Scope = Scope.BROKER

    @property
    def is_secret(self) -> bool:
        """Whether its values are shown nowhere."""
        return self.type is SettingType.PASSWORD

    @property
    def attribute(self) -> str:
        """The name of the attribute on `Settings`: Kafka's name in snake case."""
        return self.name.replace(".", "_")

    @property
    def expected(self) -> str:
        """The description of valid values, for users."""
        return self.type.described if self.bounds is None else f"{self.type.described}, {self.bounds.described}"

    def parse(self, text: str) -> Any:
        """Parse a value from a file, a variable or a request. Raises ValueError, which describes valid values."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError:
            raise ValueError(f"expected {self.expected}; got {text!r}") from None
        lowest, highest = _INTEGER_BOUNDS.get(self.type, (-math.inf, math.inf))
        if isinstance(value, int | float) and not lowest <= value <= highest:
            raise ValueError(f"expected {self.expected}, within {lowest} to {highest}; got {text!r}")
        if self.bounds is not None and not self.bounds.contains(value):
            raise ValueError(f"expected {self.expected}; got {text!r}")
        return value if self.bounds is None or self.bounds.normal is None else self.bounds.normal(value)

    def format(self, value: Any) -> str | None:
        """A value as Kafka shows it; None if it is unset or a secret."""
        if value is None or isinstance(value, Password):
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple | list):
            return ",".join(value)
        return str(value)


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError(text)
    return lowered == "true"


def _digits(text: str) -> str:
    """Refuse "1_000" and non-ASCII digits, which Python accepts and other readers of the same file refuse."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return text


def _parse_integer(text: str) -> int:
    return int(_digits(text))


def _parse_number(text: str) -> float:
    value = float(_digits(text))
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",")) if text else ()


_PARSERS: dict[SettingType, Callable[[str], Any]] = {
    SettingType.BOOLEAN: _parse_boolean,
    SettingType.STRING: str,
    SettingType.INT: _parse_integer,
    SettingType.SHORT: _parse_integer,
    SettingType.LONG: _parse_integer,
    SettingType.DOUBLE: _parse_number,
    SettingType.LIST: _parse_list,
    SettingType.PASSWORD: Password,
}


def declare(
    type: SettingType,  # noqa: A002  # the word that the table and Kafka use
    default: Any,
    documentation: str,
    bounds: Bounds | None = None,
    *,
    aliases: tuple[str, ...] = (),
    has_effect: bool = True,
    scope: Scope = Scope.BROKER,
) -> Any:
    """Declare a dataclass field that is a setting; the attribute's name gives the setting's."""
    row = Setting("", type, default, documentation, bounds, aliases, has_effect, scope)
    return dataclasses.field(default=default, metadata={"setting": row})


_POSITIVE = at_least(1)


def least_for_groups(default: int, name: str, bounds: Bounds = _POSITIVE) -> Any:
    """Declare the least that a group may set as the group config `name`."""
    return declare(SettingType.INT, default, f"The least that a group may set as `{name}`.", bounds)


def most_for_groups(default: int, name: str, bounds: Bounds = _POSITIVE) -> Any:
    """Declare the most that a group may set as the group config `name`."""
    return declare(SettingType.INT, default, f"The most that a group may set as `{name}`.", bounds)


def accepted(type: SettingType, default: int, reason: str, bounds: Bounds) -> Any:  # noqa: A002  # as in `declare`
    """Declare a setting without effect. reason: the rest of the sentence `Accepted; ….`."""
    return declare(type, default, f"Accepted; {reason}.", bounds, has_effect=False)


def one_copy(type: SettingType) -> Any:  # noqa: A002  # as in `declare`
    """Declare a count of replicas. Other settings decide which counts are accepted."""
    return declare(
        type,
        1,
        "Without effect: a partition has one replica. Accepted above 1 in a cluster of machines, and with "
        "`fencepost.replication.factor.any`.",
        at_least(1),
        has_effect=False,
    )


def declared_settings(settings_class: type[Any]) -> dict[str, Setting]:
    """The rows that a dataclass of settings declares, by Kafka name, in order of declaration."""
    rows = {}
    for field in dataclasses.fields(settings_class):
        row: Setting | None = field.metadata.get("setting")
        if row is not None:
            name = field.name.replace("_", ".")
            rows[name] = dataclasses.replace(row, name=name)
    return rows
