"""Functions of the C library."""

from __future__ import annotations

import os

from fencepost.broker.kernel.c_library import c_function


def test_a_function_is_called_and_one_that_is_missing_is_none() -> None:
    getpid = c_function("getpid")
    assert getpid is not None
    assert getpid() == os.getpid()
    assert c_function("no_such_function_anywhere") is None
