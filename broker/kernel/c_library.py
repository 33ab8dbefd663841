"""Functions of the C library that Python has no name for, and that not every system has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


def c_function(name: str) -> Callable[..., Any] | None:
    """The function of this name, whose arguments and result are C's `int` unless told otherwise; None where the C
    library has none."""
    try:
        function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
