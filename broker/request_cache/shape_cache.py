"""Requests of one connection that differ in a few fields alone, known by the bytes around those fields.

A request is taken apart in one native step: where its fields are follows from its size, as the requests of one size
that are remembered have them at the same places. Who sends something else every time is given up after a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fencepost.protocol.headers import REQUEST_START_BYTES

T = TypeVar("T")

MAXIMUM_SIZE_BYTES: Final = 4096
"""Larger requests are decoded: what is remembered of a connection is to stay small."""


class VaryingField(NamedTuple):
    """Where one begins in a frame (without its length prefix), and what it is in the words of `struct`."""

    position: int
    code: str


@lru_cache(maxsize=1_024)
def _split_at_fields(size_bytes: int, *fields: VaryingField) -> Struct:
    """Takes a request of so many bytes apart, from its client id on: what is before a field and the field, in turns,
    then what is behind the last one. Connections share it.
    """
    parts = [f">{REQUEST_START_BYTES}x"]
    end = REQUEST_START_BYTES
    for position, code in fields:
        parts.append(f"{position - end}s{code}")
        end = position + Struct(f">{code}").size
    return Struct(f"{''.join(parts)}{size_bytes - end}s")


class _Shape(NamedTuple, Generic[T]):
    """Where the fields of requests of one size are, and what is remembered of each, by the bytes around them."""

    struct: Struct
    remembered: dict[tuple[bytes, ...], T]


class ShapeCache(Generic[T]):
    """Those of one API on one connection, in one version at a time.

    maximum_count: of requests that are remembered; then it begins anew.
    """

    __slots__ = ("_has_helped", "_is_off", "_maximum_count", "_shapes", "_version")

    def __init__(self, maximum_count: int) -> None:
        self._maximum_count = maximum_count
        self._version = -1
        self._shapes: dict[int, _Shape[T]] = {}  # by the size of a request; one each
        self._has_helped = False
        self._is_off = False

    def __len__(self) -> int:
        return sum(len(shape.remembered) for shape in self._shapes.values())

    def find(self, frame: memoryview, version: int) -> tuple[T, tuple[Any, ...]] | None:
        """What was remembered of a request like this one, and the fields of this one."""
        shape = self._shapes.get(len(frame))
        if shape is None or version != self._version:
            return None
        struct, remembered = shape
        parts = struct.unpack(frame)
        found = remembered.get(parts[::2])
        if found is None:
            return None
        self._has_helped = True
        return found, parts[1::2]

    def should_remember(self, frame: memoryview) -> bool:
        """Whether a request is worth a closer look."""
        return not self._is_off and len(frame) <= MAXIMUM_SIZE_BYTES

    def make_room(self, version: int) -> bool:
        """Whether one more request may be remembered; others may be forgotten for it."""
        is_full = len(self) >= self._maximum_count
        if version != self._version or is_full:
            # Who sends something else every time, say with the time in it, is not to pay for this.
            self._is_off = is_full and not self._has_helped
            self._has_helped = False
            self._version = version
            self._shapes.clear()
        return not self._is_off

    def remember(self, frame: memoryview, fields: Sequence[VaryingField], what: T) -> None:
        """To be called when there is room for it. One with its fields elsewhere than others of its size is left out."""
        struct = _split_at_fields(len(frame), *fields)
        shape = self._shapes.setdefault(len(frame), _Shape(struct, {}))
        if shape.struct.format == struct.format:
            shape.remembered[struct.unpack(frame)[::2]] = what

    def forget(self, frame: memoryview) -> None:
        """A request that was found."""
        struct, remembered = self._shapes[len(frame)]
        del remembered[struct.unpack(frame)[::2]]
