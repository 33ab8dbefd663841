"""One broker process for the tests of a module: it costs seconds to start."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    # kafka-python reads its schemas through functions of importlib.resources that are deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from tests.support.broker_process import BrokerProcess
    from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

# py4j leaves sockets to the garbage collector, which then warns in whatever test is running.
UNCLOSED_SOCKETS = ("ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")

SESSION_TIMEOUT_S = 300


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:  # the first one also waits for the session, and for its jars
                item.add_marker(pytest.mark.timeout(SESSION_TIMEOUT_S))
            for unclosed in UNCLOSED_SOCKETS:
                item.add_marker(pytest.mark.filterwarnings(unclosed))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as process:
        yield process
