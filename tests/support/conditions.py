"""Waiting for what other threads and processes bring about, and what to show when it does not come.

`tests.broker.supervision.planting.until` waits on an event loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 150.0
"""A machine that is busy with twenty other programs is no failure."""


def until(condition: Callable[[], T], *, timeout_s: float = PATIENCE_S) -> T:
    """Wait for a condition to be true; return what it returned then."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"it did not come about within {timeout_s:g} s"
        time.sleep(0.05)
    return found


@contextmanager
def noted(said: Callable[[], str]) -> Iterator[None]:
    """Add what programs have said to an exception that passes, as a note: it stays what it is."""
    try:
        yield
    except BaseException as error:
        error.add_note(said())
        raise
