"""Cache of the requests of one connection by prefix: their leading bytes.

The bytes behind the prefix vary, and the caller reads them. `shape_cache.py` is for requests that are the same in all
bytes but a few fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from fencepost.protocol.headers import REQUEST_START_BYTES

T = TypeVar("T")


class PrefixCache(Generic[T]):
    """The cached requests of one API on one connection, in one version at a time. A prefix is all bytes between a
    request's start, which holds its correlation id, and the bytes that vary.
    """

    __slots__ = ("_remembered", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._remembered: dict[int, dict[bytes, T]] = {}  # by the end of the prefix, then by the prefix

    def __len__(self) -> int:
        return sum(map(len, self._remembered.values()))

    def values(self) -> Iterator[T]:
        for by_prefix in self._remembered.values():
            yield from by_prefix.values()

    def find(self, frame: memoryview, version: int) -> tuple[T, int] | None:
        """Return what is cached for a request's prefix, and where the prefix ends."""
        if version == self._version:
            for prefix_end, by_prefix in self._remembered.items():
                cached = by_prefix.get(bytes(frame[REQUEST_START_BYTES:prefix_end]))
                if cached is not None:
                    return cached, prefix_end
        return None

    def start_version(self, version: int) -> None:
        """Remember requests of this version from now on; forget those of another one."""
        if version != self._version:
            self._version = version
            self._remembered.clear()

    def remember(self, frame: memoryview, prefix_end: int, cached: T) -> None:
        self._remembered.setdefault(prefix_end, {})[bytes(frame[REQUEST_START_BYTES:prefix_end])] = cached

    def forget(self, frame: memoryview, prefix_end: int) -> None:
        del self._remembered[prefix_end][bytes(frame[REQUEST_START_BYTES:prefix_end])]
