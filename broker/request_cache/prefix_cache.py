"""Requests of one connection that are alike up to a place, known by the bytes before it.

What is behind varies, and is for the caller to read. Requests whose every byte but a few fields is the same are known
by more: see `shape_cache.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from fencepost.protocol.headers import REQUEST_START_BYTES

T = TypeVar("T")


class PrefixCache(Generic[T]):
    """Those of one API on one connection, in one version at a time: a head is all between a request's start, which
    holds its correlation id, and what varies.
    """

    __slots__ = ("_remembered", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._remembered: dict[int, dict[bytes, T]] = {}  # by where the head ends, by the head

    def __len__(self) -> int:
        return sum(map(len, self._remembered.values()))

    def values(self) -> Iterator[T]:
        for by_prefix in self._remembered.values():
            yield from by_prefix.values()

    def find(self, frame: memoryview, version: int) -> tuple[T, int] | None:
        """What is remembered of a request's head, and where that ends."""
        if version == self._version:
            for prefix_end, by_prefix in self._remembered.items():
                cached = by_prefix.get(bytes(frame[REQUEST_START_BYTES:prefix_end]))
                if cached is not None:
                    return cached, prefix_end
        return None

    def start_version(self, version: int) -> None:
        """Requests of this version are remembered next; all of another one are forgotten."""
        if version != self._version:
            self._version = version
            self._remembered.clear()

    def remember(self, frame: memoryview, prefix_end: int, cached: T) -> None:
        self._remembered.setdefault(prefix_end, {})[bytes(frame[REQUEST_START_BYTES:prefix_end])] = cached

    def forget(self, frame: memoryview, prefix_end: int) -> None:
        del self._remembered[prefix_end][bytes(frame[REQUEST_START_BYTES:prefix_end])]
