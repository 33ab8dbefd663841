"""The tree of the one-file program has no library of the C library, and no module that needs a terminal or a screen."""

from __future__ import annotations

import pytest

from scripts.program.tree import LEFT_OUT_MODULES, OF_THE_C_LIBRARY


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"])
def test_the_c_library_is_the_systems(name: str) -> None:
    assert OF_THE_C_LIBRARY.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["libcrypto.so.3", "libmpdec.so.3", "libstdc++.so.6", "libcom_err.so.2", "librtmp.so.1"]
)
def test_every_other_library_comes_along(name: str) -> None:
    assert OF_THE_C_LIBRARY.fullmatch(name) is None


def test_compiled_modules_that_no_command_imports_are_left_out() -> None:
    names = ["_ssl.so", "_sqlite3.so", "_ctypes.so", "_curses.so", "_tkinter.so", "readline.so", "_ctypes_test.so"]
    assert [name for name in names if LEFT_OUT_MODULES.match(name) is None] == ["_ssl.so", "_sqlite3.so", "_ctypes.so"]
