"""The last hour of a cluster, as the console saw it: records a second and lag, in bounded memory.

Samples come from the reads of pages. Times are of a clock that nobody sets and that goes on in standby; a topic is
known by its id. So neither a clock that jumps nor a topic that is made again looks like traffic.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from fencepost.protocol.primitives import ZERO_UUID

SAMPLE_S: Final = 15.0
SAMPLES: Final = 240
SPAN_S: Final = 3_600.0
HOLE_S: Final = 90.0
"""Between two samples further apart than this nothing is known."""
MOST_RANKED: Final = 50
"""Topics with the most records a second, and groups with the greatest lag, whose samples are kept."""
MOST_WATCHED: Final = 50
"""Topics, and groups, that are kept because their page was looked at."""
FADING: Final = 0.98
ALL: Final = ""
"""Name of the series of the whole cluster."""


def steady_s() -> float:
    """Seconds of a clock that nobody sets. On Linux it goes on while the machine sleeps."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class Point(NamedTuple):
    """A sample. value: None if it was not known."""

    age_s: float
    value: float | None


@dataclass
class _Series:
    identity: bytes
    values: array[float]
    score: float = 0.0
    watched_s: float = -math.inf


class Ring:
    """Samples of several names at the same times; the oldest are overwritten."""

    def __init__(self) -> None:
        self._times = array("d", [math.nan]) * SAMPLES
        self._count = 0
        self._series: dict[str, _Series] = {}
        self.last_s = -math.inf

    def __len__(self) -> int:
        return len(self._series)

    def watch(self, name: str, now_s: float) -> None:
        """Keep a name from now on, as somebody looks at it."""
        self._of(name, ZERO_UUID).watched_s = now_s

    def add(self, now_s: float, values: Mapping[str, tuple[bytes, float | None]], whole: float | None) -> None:
        """Add a sample. values: by name the identity, and the value if it is known."""
        slot = self._count % SAMPLES
        self._count += 1
        self._times[slot] = self.last_s = now_s
        known = ((value, name) for name, (_, value) in values.items() if value)
        for _, name in heapq.nlargest(MOST_RANKED, known):
            self._of(name, values[name][0])
        for name, series in list(self._series.items()):
            identity, value = values.get(name, (series.identity, None))
            if identity != series.identity:
                watched_s, fresh = series.watched_s, array("d", [math.nan]) * SAMPLES
                series = self._series[name] = _Series(identity, fresh, watched_s=watched_s)
            series.values[slot] = math.nan if value is None else value
            series.score = max(series.score * FADING, value or 0.0)
        self._of(ALL, ZERO_UUID).values[slot] = math.nan if whole is None else whole
        self._tidy()

    def points(self, name: str, now_s: float) -> list[Point]:
        """The samples of a name over the last hour, oldest first; none if it is not kept."""
        series = self._series.get(name)
        if series is None:
            return []
        found = []
        for number in range(max(0, self._count - SAMPLES), self._count):
            slot = number % SAMPLES
            age_s, value = now_s - self._times[slot], series.values[slot]
            if age_s <= SPAN_S:
                found.append(Point(age_s, None if math.isnan(value) else value))
        return found

    def _of(self, name: str, identity: bytes) -> _Series:
        if name not in self._series:
            self._series[name] = _Series(identity, array("d", [math.nan]) * SAMPLES)
        return self._series[name]

    def _tidy(self) -> None:
        named = [name for name in self._series if name != ALL]
        if len(named) <= MOST_RANKED + MOST_WATCHED:
            return
        watched = heapq.nlargest(MOST_WATCHED, named, key=lambda name: self._series[name].watched_s)
        kept = {name for name in watched if self._series[name].watched_s > -math.inf}
        others = [name for name in named if name not in kept]
        kept |= set(heapq.nlargest(MOST_RANKED, others, key=lambda name: self._series[name].score))
        for name in named:
            if name not in kept:
                del self._series[name]


@dataclass
class _Ends:
    """High watermarks of a topic's partitions, -1 if unknown, and when each was read."""

    topic_id: bytes
    ends: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))


class TopicEnds(Protocol):
    """A topic's identity and the high watermarks of its partitions, in order."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def is_internal(self) -> bool: ...


class History:
    """Of one cluster and one user. Its rings may be used by several threads."""

    def __init__(self, clock: Callable[[], float] = steady_s) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rates = Ring()
        self._lags = Ring()
        self._ends: dict[str, _Ends] = {}

    def add_ends(self, topics: Sequence[tuple[TopicEnds, Sequence[int | None]]]) -> None:
        """Take a sample of all topics, unless the one before is too young."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._rates.last_s < SAMPLE_S - 1:
                return
            before, self._ends = self._ends, {}
            rates: dict[str, tuple[bytes, float | None]] = {}
            whole: float | None = None
            for topic, ends in topics:
                rate = self._take(before.get(topic.name), topic, ends, now_s)
                rates[topic.name] = topic.topic_id, rate
                if rate is not None and not topic.is_internal:
                    whole = (whole or 0.0) + rate
            self._rates.add(now_s, rates, whole)

    def _take(self, old: _Ends | None, topic: TopicEnds, ends: Sequence[int | None], now_s: float) -> float | None:
        """Keep the ends of a topic, and return its records a second since those before; None if nothing is known."""
        if old is not None and old.topic_id != topic.topic_id:
            old = None
        new = self._ends[topic.name] = _Ends(topic.topic_id)
        rate: float | None = None
        for index, end in enumerate(ends):
            is_known = old is not None and index < len(old.ends) and old.ends[index] >= 0
            if end is None:
                new.ends.append(old.ends[index] if old is not None and is_known else -1)
                new.times.append(old.times[index] if old is not None and is_known else now_s)
                continue
            new.ends.append(end)
            new.times.append(now_s)
            if old is not None and is_known and 0 < now_s - old.times[index] <= HOLE_S:
                grown = end - old.ends[index]
                rate = (rate or 0.0) + (grown / (now_s - old.times[index]) if grown > 0 else 0.0)
        return rate

    def add_lags(self, lags: Mapping[str, int | None]) -> None:
        """Take a sample of the lag of all groups, by their ids."""
        with self._lock:
            now_s = self._clock()
            if now_s - self._lags.last_s < SAMPLE_S - 1:
                return
            known = [lag for lag in lags.values() if lag is not None]
            values = {name: (ZERO_UUID, None if lag is None else float(lag)) for name, lag in lags.items()}
            self._lags.add(now_s, values, float(sum(known)) if known else None)

    def rates(self, topic: str = ALL) -> list[Point]:
        """Records a second of a topic, of all but internal ones for ALL. A topic is kept from now on."""
        return self._points(self._rates, topic)

    def lags(self, group_id: str = ALL) -> list[Point]:
        """Lag to the end of a group, of all for ALL. A group is kept from now on."""
        return self._points(self._lags, group_id)

    def _points(self, ring: Ring, name: str) -> list[Point]:
        with self._lock:
            now_s = self._clock()
            if name != ALL:
                ring.watch(name, now_s)
            return ring.points(name, now_s)
