"""The end of clients of librdkafka that tests leave open, as a crash would."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

FEW = 3
"""Three clients alive cost nothing; more are worth a collection, which takes about 0.1 s."""


def clients_alive() -> int:
    """The number of clients of librdkafka in this process: each has one thread of this name."""
    count = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has ended
            count += (thread / "comm").read_text() == "rdk:main\n"
    return count


@pytest.fixture(autouse=True)
def abandoned_producers_end() -> Iterator[None]:
    """A producer that a test leaves as a crash would is often in a cycle, with the traceback of an expected error. Its
    threads go on, fifty times a second with statistics that nobody polls: fifty of them take both processors and
    gigabytes.
    """
    yield
    if clients_alive() > FEW:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # sockets of clients that tests abandon on purpose
            gc.collect()
