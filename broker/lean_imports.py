"""The libraries of `fencepost serve`, imported without what they import beside and a broker never uses.

That is 8 MB of an idle broker, and much of the time of its start.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import PathFinder
from types import ModuleType

from protocol.deferred import deferred


def import_libraries() -> None:
    """Import them before anybody else does. One that has been imported already stays as it is."""
    if "asyncio" not in sys.modules and "uvloop" not in sys.modules:
        _import_asyncio_without_openssl()
    if "structlog" not in sys.modules:
        _import_structlog_alone()
    if "crc32c" not in sys.modules:
        _import_crc32c_without_its_version()


def _import_asyncio_without_openssl() -> None:
    """Every listener is PLAINTEXT. asyncio does without `ssl` where there is none; uvloop wants its names.

    `locale` is what asyncio needs for the output of other processes: it has a table of all languages.
    """
    with _in_place_of({"ssl": None, "locale": deferred("locale")}):
        importlib.import_module("asyncio")
    try:
        with _in_place_of({"ssl": _NamesOfSsl("ssl")}):
            importlib.import_module("uvloop")
    except AttributeError:
        _leave_to_others("uvloop")


class _NamesOfSsl(ModuleType):
    """What uvloop takes from `ssl` when it is imported, and uses for connections with TLS only."""

    SSLContext = MemoryBIO = create_default_context = type(None)
    SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_SYSCALL = 2, 3, 5

    class SSLError(OSError):
        """The base of the others, as in `ssl`."""

    class SSLWantReadError(SSLError): ...

    class SSLSyscallError(SSLError): ...

    class SSLZeroReturnError(SSLError): ...

    class CertificateError(SSLError, ValueError): ...


def _import_structlog_alone() -> None:
    """Without rich, for tracebacks in colour, which the broker's log never shows, and what Twisted's loggers need."""
    try:
        with _in_place_of({"rich": None, "structlog.twisted": None, "pickle": _NamesOfPickle("pickle")}):
            importlib.import_module("structlog")
    except ImportError:
        _leave_to_others("structlog")


class _NamesOfPickle(ModuleType):
    """What structlog takes from `pickle`, for loggers that are pickled."""

    class PicklingError(Exception): ...


def _leave_to_others(package: str) -> None:
    """One that wants more names than are known here is imported where it is used, with all that it asks for."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def _import_crc32c_without_its_version() -> None:
    """Only the function: to find out the version of the package, it imports e-mail, archives and calendars."""
    found = PathFinder.find_spec("crc32c")
    if found is None or found.submodule_search_locations is None:
        return
    package = ModuleType("crc32c")
    package.__path__ = found.submodule_search_locations
    sys.modules["crc32c"] = package
    try:
        package.crc32c = importlib.import_module("crc32c._crc32c").crc32c  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        # Another version of it, built in another way; the whole package is imported where it is used.
        del sys.modules["crc32c"]


@contextmanager
def _in_place_of(stand_ins: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """While others are imported, these modules are others; with None they cannot be imported.

    One that has been imported already stays as it is.
    """
    names = [name for name in stand_ins if name not in sys.modules]
    for name in names:
        sys.modules[name] = stand_ins[name]  # type: ignore[assignment]  # None is how Python spells "cannot be imported"
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]
