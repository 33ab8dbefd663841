"""Cache of the requests of one connection by shape: the constant bytes around a few fields that vary.

One `struct` call splits a request at its fields. Their positions follow from the request's size, as all cached requests
of one size have them at the same positions. The cache switches itself off for a connection whose requests never repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, Final, Generic, NamedTuple, TypeVar

from fencepost.protocol.headers import REQUEST_START_BYTES

T = TypeVar("T")

MAXIMUM_SIZE_BYTES: Final = 4096
"""Larger requests are decoded, to keep the cache of a connection small."""


class VaryingField(NamedTuple):
    """The position of a field in a frame (without length prefix), and its format code of `struct`."""

    position: int
    code: str


@lru_cache(maxsize=1_024)
def _split_at_fields(size_bytes: int, *fields: VaryingField) -> Struct:
    """Return the Struct that splits a request of `size_bytes`, from its client id on: the bytes before a field and the
    field, in turns, then the bytes after the last one. Connections share it.
    """
    parts = [f">{REQUEST_START_BYTES}x"]
    end = REQUEST_START_BYTES
    for position, code in fields:
        parts.append(f"{position - end}s{code}")
        end = position + Struct(f">{code}").size
    return Struct(f"{''.join(parts)}{size_bytes - end}s")


class _Shape(NamedTuple, Generic[T]):
    """The field positions of requests of one size, and what is cached for each, by the bytes around the fields."""

    struct: Struct
    remembered: dict[tuple[bytes, ...], T]


class ShapeCache(Generic[T]):
    """The cached requests of one API on one connection, in one version at a time.

    maximum_count: of cached requests; when it is reached, all are forgotten.
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
        """Return what is cached for a request of this shape, and the fields of this one."""
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
        """Whether a request is small enough, and the cache is not switched off."""
        return not self._is_off and len(frame) <= MAXIMUM_SIZE_BYTES

    def make_room(self, version: int) -> bool:
        """Whether one more request may be remembered; may forget all others for it."""
        is_full = len(self) >= self._maximum_count
        if version != self._version or is_full:
            # A client whose requests never repeat, say with the time in them, must not pay for the cache.
            self._is_off = is_full and not self._has_helped
            self._has_helped = False
            self._version = version
            self._shapes.clear()
        return not self._is_off

    def remember(self, frame: memoryview, fields: Sequence[VaryingField], what: T) -> None:
        """Remember a request after `make_room`, unless its fields are elsewhere than in others of its size."""
        struct = _split_at_fields(len(frame), *fields)
        shape = self._shapes.setdefault(len(frame), _Shape(struct, {}))
        if shape.struct.format == struct.format:
            shape.remembered[struct.unpack(frame)[::2]] = what

    def forget(self, frame: memoryview) -> None:
        """Forget a request that was found."""
        struct, remembered = self._shapes[len(frame)]
        del remembered[struct.unpack(frame)[::2]]
