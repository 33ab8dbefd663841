"""Deadlines of a coordinator's shard: many for one timer, and the pace at which due ones are decided. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Generic, TypeVar

from fencepost.protocol.errors import ErrorCode

Key = TypeVar("Key", bound="str | tuple[Any, ...]")

_COMPACT_ABOVE_ENTRIES = 64
CLOCK_SLACK_MS = 5_000
"""Longest delay, after a deadline, until it notices that a clock was set back."""
REFUSED_PAUSE_MS = 1_000
"""The pause before a single deadline is retried whose records are too large for the log."""
TOO_LARGE: Final = frozenset((ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE))
"""Errors of a log that would accept smaller batches."""


class Deadlines(Generic[Key]):
    """Heap of deadlines, at most one for each key.

    Moving a deadline later, which every heartbeat does, is one dictionary write: the heap keeps the earlier time and
    corrects it when that time comes; so is clearing one and setting it again, which every transaction does. So
    `next_ms` may be earlier than the earliest deadline, never later, and `due` may find nothing. After each push, the
    heap has at most twice as many entries as there are keys, plus _COMPACT_ABOVE_ENTRIES.
    Only `set`, `clear` and `clock_moved` change a deadline: a decision reads which are due; its result is set or
    cleared once the decision's records are in the log.
    """

    __slots__ = ("_deadline_ms", "_heap", "_heaped_ms")

    def __init__(self) -> None:
        self._deadline_ms: dict[Key, int] = {}
        self._heap: list[tuple[int, Key]] = []
        # The valid heap entry of each key, its earliest; all others are stale.
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

    def clock_moved(self, moved_ms: int, now_ms: int) -> None:
        """Move the deadlines along with a clock that was set, so that each comes after the time that it was meant to.

        now_ms: wall time by the clock that was set. Deadlines may have been set by it already. A deadline that either
                clock may have set stays: it comes as much too soon after a clock that was set ahead.
        """
        if moved_ms > 0:
            before = {key for key, at_ms in self._deadline_ms.items() if at_ms < now_ms}
        else:
            before = {key for key, at_ms in self._deadline_ms.items() if at_ms >= now_ms - moved_ms - CLOCK_SLACK_MS}
        for key in before:
            self._deadline_ms[key] += moved_ms
        self._heaped_ms = dict(self._deadline_ms)
        self._heap = [(at_ms, heaped) for heaped, at_ms in self._heaped_ms.items()]
        heapify(self._heap)

    def next_ms(self) -> int | None:
        """A time before which no deadline is due; None if there are none."""
        return self._heap[0][0] if self._deadline_ms else None

    def due(self, now_ms: int, most: int) -> list[Key]:
        """Return up to `most` keys whose deadline is not after `now_ms`, roughly the earliest first. They stay due."""
        entries: list[tuple[int, Key]] = []
        while self._heap and len(entries) < most and self._heap[0][0] <= now_ms:
            if self._is_first_true(now_ms):
                entry = heappop(self._heap)
                # A deadline that was moved from a time and back to it has two entries: one is stale.
                if not entries or entry != entries[-1]:
                    entries.append(entry)
        for entry in entries:
            heappush(self._heap, entry)
        return [key for _, key in entries]

    def trim(self, now_ms: int) -> None:
        """Make `next_ms` exact if it is not after `now_ms`: for callers that have just cleared due deadlines."""
        while self._heap and self._heap[0][0] <= now_ms and not self._is_first_true(now_ms):
            pass

    def _is_first_true(self, now_ms: int) -> bool:
        """Whether the first entry of the heap is a due deadline. An entry that is not is moved or removed."""
        at_ms, key = self._heap[0]
        if self._heaped_ms.get(key) != at_ms:
            heappop(self._heap)
            return False
        deadline_ms = self._deadline_ms.get(key)
        if deadline_ms is None:
            heappop(self._heap)
            del self._heaped_ms[key]
            return False
        if deadline_ms > now_ms:
            self._heaped_ms[key] = deadline_ms
            heapreplace(self._heap, (deadline_ms, key))
            return False
        return True


class DeadlinePace:
    """Bound on the due deadlines of one decision.

    If the log refuses the records as too large, the bound falls, down to one. A single deadline whose records are too
    large is retried later, so that it does not block the others.
    """

    __slots__ = ("_maximum", "most")

    def __init__(self, maximum: int) -> None:
        self._maximum = maximum
        self.most = maximum

    def settled(self, deadlines: Deadlines[Any], now_ms: int) -> None:
        """Raise the bound: the records are in the log."""
        deadlines.trim(now_ms)
        self.most = min(2 * self.most, self._maximum)

    def refused(self, deadlines: Deadlines[Key], keys: list[Key], now_ms: int, error: ErrorCode) -> None:
        """Lower the bound if the log refused the records of these keys as too large."""
        if error not in TOO_LARGE:
            return
        self.most = max(1, len(keys) // 4)
        if len(keys) == 1:
            deadlines.set(keys[0], now_ms + REFUSED_PAUSE_MS)
