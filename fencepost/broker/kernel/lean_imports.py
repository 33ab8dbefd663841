"""Imports of the libraries of `fencepost serve`, without the modules that they import and a broker never uses.

That saves 9 MB of an idle broker, and much of its startup time.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.machinery import PathFinder
from types import FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

from fencepost.broker.kernel.unannotated import import_unannotated
from fencepost.protocol.lazy_import import lazy_module

_CO_COROUTINE = 0x80
"""A flag of a function's code. Source: `inspect`."""


def import_dataclasses() -> None:
    """Import the library of the settings before other code does. One that is already imported is not changed."""
    with _in_place_of(_STAND_INS):
        importlib.import_module("dataclasses")


def import_libraries(*, with_openssl: bool = False) -> None:
    """Import the libraries before other code does. A library that is already imported is not changed.

    with_openssl: whether a listener needs TLS.
    """
    import_dataclasses()
    with _in_place_of({**_STAND_INS, "subprocess": _deferred_subprocess()}), _without_signatures():
        if "asyncio" not in sys.modules and "uvloop" not in sys.modules:
            if with_openssl:
                importlib.import_module("asyncio")
                importlib.import_module("uvloop")
            else:
                _import_asyncio_without_openssl()
    if "structlog" not in sys.modules:
        _import_structlog_alone()
    if "crc32c" not in sys.modules:
        _import_crc32c_without_its_version()
    import_unannotated()


@contextmanager
def _without_signatures() -> Iterator[None]:
    """Find no signature of a class, for dataclasses of asyncio (3.14) without a docstring, which would show it."""

    def refuse(value: Any, **_options: Any) -> Any:
        raise ValueError(f"no signature found for {value!r}")

    vars(_INSPECT)["signature"] = refuse
    try:
        yield
    finally:
        if vars(_INSPECT)["signature"] is refuse:  # not the function of the real module, which was imported meanwhile
            del vars(_INSPECT)["signature"]


def _is_coroutine_function(function: Any) -> bool:
    while isinstance(function, MethodType | partial):
        function = function.__func__ if isinstance(function, MethodType) else function.func
    if type(function) is FunctionType and not vars(function):
        return bool(function.__code__.co_flags & _CO_COROUTINE)
    # Not a plain function, or a marked one.
    return bool(_real("inspect").iscoroutinefunction(function))


def _unwrapped(function: Any) -> Any:
    if isinstance(function, type) or not hasattr(function, "__wrapped__"):
        return function
    if not hasattr(function.__wrapped__, "__wrapped__"):
        return function.__wrapped__  # as a dataclass's `__repr__` is
    return _real("inspect").unwrap(function)


def _annotations(value: Any, **options: Any) -> Any:
    """The annotations of a class, which dataclasses read by it in Python 3.13."""
    if isinstance(value, type) and not options:
        return dict(vars(value).get("__annotations__", {}))
    return _real("inspect").get_annotations(value, **options)


_INSPECT = lazy_module(
    "inspect",
    isfunction=lambda value: isinstance(value, FunctionType),
    isgenerator=lambda value: isinstance(value, GeneratorType),
    iscoroutinefunction=_is_coroutine_function,
    unwrap=_unwrapped,
    get_annotations=_annotations,
)
"""`inspect` with the functions that event loops call at their start. The real one imports the compiler.

Dataclasses without a docstring call it for their signatures: a broker has none of those.
"""
_STAND_INS = {"inspect": _INSPECT}
if sys.version_info >= (3, 14):
    # The colours of tracebacks, which are dataclasses.
    _STAND_INS["_colorize"] = lazy_module("_colorize")


def _real(name: str) -> ModuleType:
    """Import a module that has a stand-in, which may be in its place just now."""
    if sys.modules.get(name) is _STAND_INS[name]:
        del sys.modules[name]
    return importlib.import_module(name)


def _deferred_subprocess() -> ModuleType:
    """Make a lazy `subprocess` with the names that asyncio and uvloop need. A broker never starts processes."""
    return lazy_module(
        "subprocess", PIPE=-1, STDOUT=-2, DEVNULL=-3, SubprocessError=type("SubprocessError", (Exception,), {})
    )


def _import_asyncio_without_openssl() -> None:
    """Import asyncio and uvloop without `ssl`: no listener has TLS. uvloop needs some names of `ssl`."""
    sslproto = lazy_module("asyncio.sslproto")
    with _in_place_of({"ssl": None, "asyncio.sslproto": sslproto}):
        importlib.import_module("asyncio")
    try:
        with _in_place_of({"ssl": _NamesOfSsl("ssl"), "asyncio.sslproto": sslproto}):
            importlib.import_module("uvloop")
    except AttributeError:
        _leave_to_others("uvloop")


class _NamesOfSsl(ModuleType):
    """Names of `ssl` that uvloop reads when it is imported; it uses them only for TLS."""

    SSLContext = MemoryBIO = create_default_context = type(None)
    SSL_ERROR_WANT_READ, SSL_ERROR_WANT_WRITE, SSL_ERROR_SYSCALL = 2, 3, 5

    class SSLError(OSError):
        """The base of the others, as in `ssl`."""

    class SSLWantReadError(SSLError): ...

    class SSLSyscallError(SSLError): ...

    class SSLZeroReturnError(SSLError): ...

    class CertificateError(SSLError, ValueError): ...


def _import_structlog_alone() -> None:
    """Import structlog without rich, for coloured tracebacks, which the broker's log never shows, and without modules
    of other kinds of loggers."""
    stand_ins = {
        "rich": None,
        "structlog.twisted": None,
        "structlog.stdlib": lazy_module("structlog.stdlib"),
        "structlog.threadlocal": lazy_module("structlog.threadlocal"),
        "pickle": _NamesOfPickle("pickle"),
    }
    try:
        with _in_place_of(stand_ins):
            importlib.import_module("structlog")
    except ImportError:
        _leave_to_others("structlog")


class _NamesOfPickle(ModuleType):
    """Names of `pickle` that structlog needs, for loggers that are pickled."""

    class PicklingError(Exception): ...


def _leave_to_others(package: str) -> None:
    """Remove a package that needs more names than these; its users import it later, with its own imports."""
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        del sys.modules[name]


def _import_crc32c_without_its_version() -> None:
    """Import only the function: to find its version, the package imports e-mail, archives and calendars."""
    found = PathFinder.find_spec("crc32c")
    if found is None or found.submodule_search_locations is None:
        return
    package = ModuleType("crc32c")
    package.__path__ = found.submodule_search_locations
    sys.modules["crc32c"] = package
    try:
        package.crc32c = importlib.import_module("crc32c._crc32c").crc32c  # type: ignore[attr-defined]
    except (ImportError, AttributeError):
        # Another version with another structure; its users import the whole package.
        del sys.modules["crc32c"]


@contextmanager
def _in_place_of(stand_ins: Mapping[str, ModuleType | None]) -> Iterator[None]:
    """Replace modules while others are imported; a module replaced by None cannot be imported.

    A module that is already imported is not replaced.
    """
    names = [name for name in stand_ins if name not in sys.modules]
    for name in names:
        sys.modules[name] = stand_ins[name]  # type: ignore[assignment]  # None is how Python spells "cannot be imported"
    try:
        yield
    finally:
        for name in names:
            # Unless the stand-in was asked for more, and replaced itself by the real module.
            if name in sys.modules and sys.modules[name] is stand_ins[name]:
                del sys.modules[name]
