"""Functions of the C library that Python does not offer and that some systems lack."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


def c_function(name: str) -> Callable[..., Any] | None:
    """Find a function. Its arguments and result are `int` unless the caller declares others. None if the C library
    does not have it."""
    try:
        function: Callable[..., Any] = getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None
    return function
