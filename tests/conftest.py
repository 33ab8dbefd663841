"""What holds for every test."""

from __future__ import annotations

import asyncio
import gc
import signal
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.crashed_workers import GoesOnAfterACrash, HardLimit
from tests.support.durations import Recorder, SlowMarks
from tests.support.forgotten_sockets import let_kafka_python_forget

# A busy machine is no failure: how long an example takes says nothing about whether it holds.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-expected",
        action="store_true",
        help="write into the transcripts of tests/scenarios what really happens; read the difference before you commit",
    )
    parser.addoption(
        "--processes",
        type=int,
        default=1,
        help="how many processes the brokers of tests/compat have (1)",
    )
    parser.addoption(
        "--machines",
        type=int,
        default=1,
        help="how many brokers, as on machines of their own, the clusters of tests/compat have (1)",
    )
    parser.addoption(
        "--record-durations",
        action="store_true",
        help="write into tests/durations.txt which of the tests that run are slow",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(SlowMarks())
    config.pluginmanager.register(HardLimit())
    if config.getoption("--record-durations"):
        config.pluginmanager.register(Recorder())
    # Before the first call of this, Python makes an event loop for code that asks for the current one; pytest-asyncio
    # asks, and nobody would close that loop.
    asyncio.set_event_loop(None)
    # A job that a shell started in the background ignores Ctrl-C, and so would every process that the tests start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Without pytest-xdist there is no such hook, and without `--dist loadgroup` its own schedulers do."""
    return GoesOnAfterACrash(config, log) if config.getoption("dist") == "loadgroup" else None


def pytest_runtest_setup() -> None:
    let_kafka_python_forget()


FIRST = (
    "test_cluster_backup",
    "test_disk_faults",
    "test_examples",
    "test_flights_pipeline",
    "test_machines",
    "test_pages_run",
)
"""Files that `pytest --dist loadgroup` begins with, after Spark: begun last, they would keep one process busy alone."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let one of the processes of `pytest --dist loadgroup` run all tests that share a server."""
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        group = group_of(item)
        if group is not None and not item.nodeid.endswith(f"@{group}"):
            # The scheduler reads the group at the end of the id. pytest-xdist 3.8 writes it there in a way that
            # pytest 9.2 does not see.
            item._id = item.id.parse(f"{item.nodeid}@{group}")

    def turn(item: pytest.Item) -> int:
        if item.get_closest_marker("spark") is not None:
            return 0
        return 1 if item.path.stem in FIRST else 2

    items.sort(key=turn)


def group_of(item: pytest.Item) -> str | None:
    """The group that a marker names; `spark` for Spark, which keeps all processors busy while it starts; else the file,
    if its tests share a fixture of their module.
    """
    named = item.get_closest_marker("xdist_group")
    if named is not None:
        return str(named.args[0])
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures or item.get_closest_marker("spark") is not None:
        return "spark"
    definitions = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
    is_shared = any(definitions[name][-1].scope == "module" for name in fixtures if name in definitions)
    return item.path.stem if is_shared else None


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The Spark session of all tests: a process has one context, so one test must not stop it for others."""
    with warnings.catch_warnings():
        # kafka-python reads its schemas through functions of importlib.resources that are deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        from scripts.pipeline.flights_summary import spark_session  # most runs need no Spark

    session = spark_session("tests")
    yield session
    session.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    # py4j leaves sockets to the garbage collector. Those of the last tests would be found when pytest
    # looks for such things at the very end, where no test's filters hold, and the run would fail for them.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "unclosed", ResourceWarning)
        gc.collect()
