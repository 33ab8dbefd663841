"""The seam to wall time. Cores take `now_ms` as an argument; only shells hold a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in milliseconds since 1970. Durations are measured on the event loop's own clock instead."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's wall clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
