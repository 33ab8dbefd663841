"""Many deadlines, one timer: the next time at which a coordinator's shard has something to do, and what is due then.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound="str | tuple[Any, ...]")

_COMPACT_ABOVE_ENTRIES = 64


class Deadlines(Generic[Key]):
    """At most one deadline for each key, on a heap.

    Moving a deadline later, which every heartbeat does, is one dictionary write: the heap keeps the earlier time and
    finds out when that time comes; so is clearing one and setting it again, which every transaction does. So `next_ms`
    may be earlier than the earliest deadline, never later, and `due` may find nothing. Whenever something is put on the
    heap, it holds at most twice as many entries as there are keys, and a few.
    """

    __slots__ = ("_deadline_ms", "_heap", "_heaped_ms")

    def __init__(self) -> None:
        self._deadline_ms: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []
        # The earliest heap entry of each key that counts; the others are left over.
        self._heaped_ms: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._deadline_ms)

    def get(self, key: Key) -> int | None:
        return self._deadline_ms.get(key)

    def set(self, key: Key, deadline_ms: int) -> None:
        self._deadline_ms[key] = deadline_ms
        heaped_ms = self._heaped_ms.get(key)
        if heaped_ms is None or deadline_ms < heaped_ms:
            self._heaped_ms[key] = deadline_ms
            heappush(self._heap, (deadline_ms, key))
            if len(self._heap) > 2 * len(self._deadline_ms) + _COMPACT_ABOVE_ENTRIES:
                self._heaped_ms = dict(self._deadline_ms)
                self._heap = [(at_ms, heaped) for heaped, at_ms in self._heaped_ms.items()]
                heapify(self._heap)

    def clear(self, key: Key) -> None:
        self._deadline_ms.pop(key, None)

    def next_ms(self) -> int | None:
        """No deadline is earlier than this; None when there is none at all."""
        return self._heap[0][0] if self._deadline_ms else None

    def due(self, now_ms: int) -> Iterator[Key]:
        """Take out, one by one and earliest first, the keys whose deadline is not after `now_ms`."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, key = self._heap[0]
            if self._heaped_ms.get(key) != at_ms:
                heappop(self._heap)
                continue
            deadline_ms = self._deadline_ms.get(key)
            if deadline_ms is not None and deadline_ms > now_ms:
                self._heaped_ms[key] = deadline_ms
                heapreplace(self._heap, (deadline_ms, key))
                continue
            heappop(self._heap)
            del self._heaped_ms[key]
            if deadline_ms is not None:
                del self._deadline_ms[key]
                yield key
