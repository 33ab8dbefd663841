"""The pytest plugin: fixtures that give a test a broker, options, and the broker's view in the report of a failure.

Imported in every pytest run of an environment with Fencepost: nothing of the broker is imported before a test asks for
one.
"""

from __future__ import annotations

import gc
import inspect
import re
import shutil
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from fencepost import Broker
    from fencepost.testing.loop_broker import AsyncBroker
    from fencepost.testing.methods import BrokerMethods
    from fencepost.testing.process import ProcessBroker

HOST: Final = "127.0.0.1"
FIXTURES: Final = frozenset({"fencepost", "fencepost_fresh", "fencepost_process", "async_fencepost"})

BROKERS: Final = pytest.StashKey[list["BrokerMethods"]]()
"""The brokers of a test, by its item."""
FAILED: Final = pytest.StashKey[bool]()
KEPT: Final = pytest.StashKey[list[str]]()
"""Where the data of failed tests were kept, by the session's config."""

SECTION: Final = "fencepost"


# Options


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("fencepost", "a Kafka broker for tests")
    group.addoption(
        "--fencepost-keep", action="store_true", help="keep the data of the brokers of failed tests, and say where"
    )
    group.addoption(
        "--fencepost-url",
        metavar="HOST:PORT",
        help="run the tests against this Kafka; those that need a broker of their own, faults or the clock are skipped",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fencepost(settings={...}): settings of the test's brokers, by Kafka's names")
    config.stash[KEPT] = []


# Fixtures


@pytest.fixture(scope="session")
def fencepost_bootstrap_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """`host:port` of the brokers of the fixture `fencepost`: the same in the whole session, or xdist worker."""
    url = request.config.getoption("--fencepost-url")
    if url:
        yield url
        return
    with held_port() as port:
        yield f"{HOST}:{port}"


@pytest.fixture
def fencepost(request: pytest.FixtureRequest, fencepost_bootstrap_servers: str) -> Iterator[BrokerMethods]:
    """A broker at the session's address, empty: topics, groups and transactional ids are the test's own."""
    if request.config.getoption("--fencepost-url"):
        from fencepost.testing.remote import RemoteBroker

        with _used(request, RemoteBroker(fencepost_bootstrap_servers, refuse=pytest.skip)) as remote:
            yield remote
        return
    with _thread_broker(request, port=int(fencepost_bootstrap_servers.rpartition(":")[2])) as broker:
        yield broker


@pytest.fixture
def fencepost_fresh(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of the test's own, at an address of its own."""
    _needs_own_broker(request, "fencepost_fresh")
    with _thread_broker(request, port=0) as broker:
        yield broker


@pytest.fixture
def fencepost_process(request: pytest.FixtureRequest) -> Iterator[ProcessBroker]:
    """A broker in a process of its own, for kill -9, restarts and freezing."""
    _needs_own_broker(request, "fencepost_process")
    from fencepost.testing.process import ProcessBroker

    broker = ProcessBroker(settings=_settings(request))
    with _used(request, broker):
        broker.start()
        yield broker


async def _async_fencepost(request: pytest.FixtureRequest) -> AsyncIterator[AsyncBroker]:
    """A broker on the event loop of the test: its clock is that loop's, and so is the test's."""
    _needs_own_broker(request, "async_fencepost")
    from fencepost.testing.loop_broker import AsyncBroker

    broker = AsyncBroker(settings=_settings(request))
    _add(request, broker.methods)
    try:
        await broker.start()
        yield broker
        if not _has_failed(request):
            broker.methods.check_faults()
    finally:
        await broker.stop()
        _keep(request, broker.methods)
        await broker.close()


try:
    import pytest_asyncio
except ImportError:
    LOOP_SCOPES: tuple[Any, ...] = ()
else:
    LOOP_SCOPES = ("function", "class", "module", "package", "session")

    def _on_loop_of(scope: Any) -> Any:
        """The fixture for tests whose loop has a scope; `async_fencepost` takes that of its test."""

        async def broker(request: pytest.FixtureRequest) -> AsyncIterator[AsyncBroker]:
            async for started in _async_fencepost(request):
                yield started

        return pytest_asyncio.fixture(broker, name=f"_async_fencepost_{scope}", loop_scope=scope)

    _on_function_loop, _on_class_loop, _on_module_loop, _on_package_loop, _on_session_loop = map(
        _on_loop_of, LOOP_SCOPES
    )


@pytest.fixture
def async_fencepost(request: pytest.FixtureRequest) -> AsyncBroker:
    """A broker on the event loop of the test, for every scope of that loop."""
    if not LOOP_SCOPES:
        pytest.fail("async_fencepost needs pytest-asyncio: install it, or use the fixture fencepost", pytrace=False)
    if _is_taken_by_a_plain_function(request.node):
        pytest.fail(
            "async_fencepost is for tests of `async def`, which await its methods; here nothing would be done: write "
            "`async def`, or use the fixture fencepost",
            pytrace=False,
        )
    marker = request.node.get_closest_marker("asyncio")
    scope = None if marker is None else marker.kwargs.get("loop_scope") or marker.kwargs.get("scope")
    if scope is None:
        try:
            scope = request.config.getini("asyncio_default_test_loop_scope")
        except ValueError:  # of an older pytest-asyncio
            pass
    broker: AsyncBroker = request.getfixturevalue(f"_async_fencepost_{scope or 'function'}")
    return broker


def _is_taken_by_a_plain_function(node: Any) -> bool:
    """Whether a test that is no coroutine function names `async_fencepost` itself, and not only through a fixture."""
    function = getattr(node, "function", None)
    function = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    if function is None or inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return False
    return "async_fencepost" in inspect.signature(function).parameters


# The brokers of a test


@contextmanager
def held_port() -> Iterator[int]:
    """A free port, which no other process gets while the context lasts."""
    holder = socket.socket()
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((HOST, 0))
        yield holder.getsockname()[1]
    finally:
        holder.close()


@contextmanager
def _thread_broker(request: pytest.FixtureRequest, *, port: int) -> Iterator[Broker]:
    is_collecting = gc.isenabled()
    gc.disable()  # a quarter of the time that the imports take
    try:
        from fencepost.in_process import Broker
    finally:
        if is_collecting:
            gc.enable()
    broker = Broker(host=HOST, port=port, settings=_settings(request), durable=False)
    with _used(request, broker):
        broker.start()
        yield broker


@contextmanager
def _used(request: pytest.FixtureRequest, broker: Any) -> Iterator[Any]:
    """A broker that its test uses, up to its end: faults must have fired, and data of failed tests may be kept."""
    _add(request, broker)
    try:
        yield broker
        if not _has_failed(request):
            broker.check_faults()
    finally:
        try:
            _keep(request, broker)
        finally:
            broker.close()


def _add(request: pytest.FixtureRequest, broker: BrokerMethods) -> None:
    request.node.stash.setdefault(BROKERS, []).append(broker)


def _has_failed(request: pytest.FixtureRequest) -> bool:
    failed: bool = request.node.stash.get(FAILED, False)
    return failed


def _keep(request: pytest.FixtureRequest, broker: Any) -> None:
    """Keep the data of a broker whose test has failed, if that was asked for."""
    if not (request.config.getoption("--fencepost-keep") and _has_failed(request)):
        return
    directory = broker.data_to_keep()
    if directory is not None:
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        name = re.sub(r"\W+", "-", request.node.name)[:60]
        kept = str(factory.mktemp(f"fencepost-{name}") / "data")
        shutil.copytree(directory, kept)
        request.node.user_properties.append(("fencepost_data", kept))


def _settings(request: pytest.FixtureRequest) -> Mapping[str, object]:
    settings: dict[str, object] = {}
    for marker in reversed(list(request.node.iter_markers("fencepost"))):
        if marker.args or not marker.kwargs.keys() <= {"settings"}:
            pytest.fail(
                "the mark fencepost takes settings only: write @pytest.mark.fencepost(settings={...})", pytrace=False
            )
        settings.update(marker.kwargs.get("settings", {}))
    return settings


def _needs_own_broker(request: pytest.FixtureRequest, fixture: str) -> None:
    if request.config.getoption("--fencepost-url"):
        pytest.skip(f"{fixture} is a broker of its own, and --fencepost-url names another one")


# Reports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]
    if report.failed:
        item.stash[FAILED] = True
        if call.when != "teardown":
            for broker in item.stash.get(BROKERS, []):
                report.sections.append((SECTION, broker.describe()))
    return report  # type: ignore[return-value]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    kept = [
        (report.nodeid, value)
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "teardown"
        for name, value in report.user_properties
        if name == "fencepost_data"
    ]
    if kept:
        terminalreporter.section("fencepost: data of failed tests")
        for nodeid, path in dict.fromkeys(kept):
            terminalreporter.write_line(f"{nodeid}: {path}")
            terminalreporter.write_line(f"    `fencepost log dump` shows them, and Broker({path!r}) serves them")
