"""The threads and descriptors that this process holds.

Sets and no counts: what earlier tests left behind may end, or be collected, while a later one looks.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from typing import NamedTuple


class Held(NamedTuple):
    """descriptors: the number of each and what it is open on."""

    threads: frozenset[threading.Thread]
    descriptors: frozenset[tuple[int, str]]

    def more_than(self, before: Held) -> list[str]:
        """What is held now and was not then."""
        threads = [thread.name for thread in self.threads - before.threads]
        return sorted(threads + [f"{number}: {target}" for number, target in self.descriptors - before.descriptors])


def held() -> Held:
    gc.collect()
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            descriptors.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return Held(frozenset(threading.enumerate()), frozenset(descriptors))
