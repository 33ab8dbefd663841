"""Attempts to log in that failed, counted so that nobody can try passwords at will."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final

WINDOW_S: Final = 300.0
MOST_OF_ONE: Final = 10
"""Failed attempts for one user from one address within the window."""
MOST_OF_ADDRESS: Final = 100
"""Failed attempts from one address, of all users together. Behind a proxy all people have one address."""
MOST_KEPT: Final = 10_000
LONGEST_USER: Final = 200
"""Characters of a user that are kept: a form may have a million of them. Longer names that begin alike count as one."""


class Attempts:
    """Failed attempts of the last minutes, by address and by user and address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._failed: OrderedDict[Hashable, list[float]] = OrderedDict()
        self._clock = clock

    def __len__(self) -> int:
        return len(self._failed)

    def wait_s(self, address: str, user: str) -> float:
        """Seconds until the next attempt is allowed; 0 if it is now."""
        return max(self._wait_s(_key(address, user), MOST_OF_ONE), self._wait_s(address, MOST_OF_ADDRESS))

    def failed(self, address: str, user: str) -> None:
        for key, most in ((_key(address, user), MOST_OF_ONE), (address, MOST_OF_ADDRESS)):
            times = self._failed.setdefault(key, [])
            times.append(self._clock())
            del times[:-most]
            self._failed.move_to_end(key)
        while len(self._failed) > MOST_KEPT:
            self._failed.popitem(last=False)

    def succeeded(self, address: str, user: str) -> None:
        self._failed.pop(_key(address, user), None)

    def _wait_s(self, key: Hashable, most: int) -> float:
        times = self._failed.get(key, [])
        if len(times) < most:
            return 0.0
        return max(0.0, times[-most] + WINDOW_S - self._clock())


def _key(address: str, user: str) -> Hashable:
    return address, user[:LONGEST_USER]
