"""The one reader of JSON that others wrote: bounded in size, depth and numbers, with one meaning, or refused. Pure.

Python's own reader takes NaN, a key twice, half of a surrogate pair, numbers of thousands of digits and bytes that no
strict decoder of UTF-8 takes; it fails with RecursionError on deep nesting. Here all of that is a `JsonError`, and each
field is read by its type and range. A value that passed can be compared, added to and written again. Bytes are written
by `text_or_base64`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, NoReturn, TypeVar

EnumT = TypeVar("EnumT", bound=Enum)

LARGEST_BYTES: Final = 1 << 20
MOST_LEVELS: Final = 64
"""Of objects and arrays within each other. Python's reader stops at about 1,000, or not at all."""
MOST_DIGITS: Final = 19
INT16_MAX: Final = (1 << 15) - 1
INT32_MAX: Final = (1 << 31) - 1
INT64_MAX: Final = (1 << 63) - 1
LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999: the latest time that can be shown."""
SHOWN_CHARACTERS: Final = 100

# A string that does not end is one match up to the end: the search is linear in the text.
_STRUCTURE: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")


class JsonError(ValueError):
    """The fault and its field. The text is one short line for any input."""


def parse(text: bytes | str, *, most_bytes: int = LARGEST_BYTES) -> Any:
    """Read a JSON value in UTF-8. Raises JsonError."""
    if len(text) > most_bytes:
        raise JsonError(f"it has {len(text):,} bytes; at most {most_bytes:,} are read")
    try:
        if isinstance(text, str):
            text.encode()
        else:
            text = text.decode()
    except UnicodeError:
        raise JsonError("it is not UTF-8") from None
    _check_depth(text)
    try:
        found = _DECODER.decode(text)
        if _ESCAPED_SURROGATE.search(text) is not None:
            json.dumps(found, ensure_ascii=False).encode()
    except JsonError:
        raise
    except UnicodeError:
        raise JsonError("it has half of a surrogate pair") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"it is not JSON: {error.msg} at character {error.pos}") from None
    return found


def parse_object(text: bytes | str, *, most_bytes: int = LARGEST_BYTES) -> Fields:
    """As `parse`, for an object."""
    return object_of(parse(text, most_bytes=most_bytes))


def object_of(value: object, place: str = "") -> Fields:
    """The fields of a value that `parse` has read. place: the value's, for messages. Raises JsonError."""
    if not isinstance(value, dict):
        raise JsonError(f"{place or 'it'} is not a JSON object")
    return Fields(value, f"{place}." if place else "")


def whole_of(value: object, place: str, lowest: int = 0, highest: int = INT64_MAX) -> int:
    """A whole number of a range; true and 1.0 are none. Raises JsonError."""
    if type(value) is not int or not lowest <= value <= highest:
        raise JsonError(f"{place} must be a whole number from {lowest} to {highest}; it is {shown(value)}")
    return value


def text_of(value: object, place: str) -> str:
    """Raises JsonError."""
    if not isinstance(value, str):
        raise JsonError(f"{place} must be text; it is {shown(value)}")
    return value


def shown(value: object) -> str:
    """A value that others wrote, for a message: printable, on one line, at most 100 characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


class Fields:
    """The fields of an object, each read by its type and range. All methods raise JsonError.

    A method with `or_none` returns None for a field that is missing or null.
    """

    __slots__ = ("_content", "_place")

    def __init__(self, content: Mapping[str, Any], place: str = "") -> None:
        self._content = content
        self._place = place

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def place(self, name: str) -> str:
        return shown(self._place + name)

    def value(self, name: str) -> Any:
        """The value as it was read."""
        try:
            return self._content[name]
        except KeyError:
            raise JsonError(f"{self.place(name)} is missing") from None

    def text(self, name: str) -> str:
        return text_of(self.value(name), self.place(name))

    def text_or_none(self, name: str) -> str | None:
        return None if self._content.get(name) is None else self.text(name)

    def whole(self, name: str, lowest: int = 0, highest: int = INT64_MAX) -> int:
        return whole_of(self.value(name), self.place(name), lowest, highest)

    def whole_or_none(self, name: str, lowest: int = 0, highest: int = INT64_MAX) -> int | None:
        return None if self._content.get(name) is None else self.whole(name, lowest, highest)

    def number(self, name: str) -> float:
        """A finite number; true is none."""
        found = self.value(name)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise JsonError(f"{self.place(name)} must be a number; it is {shown(found)}")
        return found

    def time_ms(self, name: str) -> int:
        """Ms since 1970."""
        return self.whole(name, 0, LATEST_MS)

    def time_ms_or_none(self, name: str) -> int | None:
        return self.whole_or_none(name, 0, LATEST_MS)

    def flag(self, name: str) -> bool:
        found = self.value(name)
        if not isinstance(found, bool):
            raise JsonError(f"{self.place(name)} must be true or false; it is {shown(found)}")
        return found

    def one_of(self, name: str, values: type[EnumT]) -> EnumT:
        """The member of an enumeration of texts."""
        text = self.text(name)
        try:
            return values(text)
        except ValueError:
            known = ", ".join(str(one.value) for one in values)
            raise JsonError(f"{self.place(name)} must be one of {known}; it is {shown(text)}") from None

    def one_of_or_none(self, name: str, values: type[EnumT]) -> EnumT | None:
        return None if self._content.get(name) is None else self.one_of(name, values)

    def array(self, name: str) -> list[Any]:
        found = self.value(name)
        if not isinstance(found, list):
            raise JsonError(f"{self.place(name)} must be an array; it is {shown(found)}")
        return found

    def texts(self, name: str) -> list[str]:
        return [text_of(one, f"{self.place(name)}[{index}]") for index, one in enumerate(self.array(name))]

    def objects(self, name: str) -> list[Fields]:
        return [object_of(one, f"{self._place}{name}[{index}]") for index, one in enumerate(self.array(name))]

    def object(self, name: str) -> Fields:
        return object_of(self.value(name), self._place + name)

    def texts_by_name(self) -> dict[str, str]:
        """All fields, each of which is text."""
        return {name: self.text(name) for name in self._content}


def _check_depth(text: str) -> None:
    if text.count("[") + text.count("{") <= MOST_LEVELS:
        return
    levels = 0
    for found in _STRUCTURE.finditer(text):
        first = text[found.start()]
        if first in "[{":
            levels += 1
            if levels > MOST_LEVELS:
                raise JsonError(f"it is nested more than {MOST_LEVELS} levels deep")
        elif first in "]}":
            levels -= 1


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise JsonError("it has a key twice")
    return made


def _whole(digits: str) -> int:
    if len(digits) <= MOST_DIGITS + 1:
        number = int(digits)
        if -INT64_MAX - 1 <= number <= INT64_MAX:
            return number
    raise JsonError("it has a whole number of more than 64 bits")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isfinite(number):
        return number
    raise JsonError("it has a number beyond the range of a double")


def _refuse_constant(name: str) -> NoReturn:
    raise JsonError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_once, parse_int=_whole, parse_float=_finite, parse_constant=_refuse_constant
)


def text_or_base64(content: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as text, other bytes as `{"base64": …}`, so that nothing is lost; None for null."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
