"""Wall clock: the seam to the system's time. Cores take `now_ms` as an argument; only services have a `Clock`."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time in milliseconds since 1970. Durations are measured with the event loop's clock."""

    def now_ms(self) -> int: ...


class SystemClock:
    """The machine's wall clock."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000
