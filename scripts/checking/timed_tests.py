"""Runs tests of this process in an order, until a time is over: a plugin of pytest."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Generator, Sequence

import pytest

from scripts.checking.imports import is_missing


class TimedTests:
    """The tests of the files in `first` before all others, fast ones before slow ones, until the time is over.

    ends_s:   when no further test begins, by clock; one that runs then runs to its end.
    left_out: the node ids of the tests for which there was no time.
    needing:  the node ids of the tests that asked for packages that are not installed, with the packages.
    """

    def __init__(self, first: Collection[str], ends_s: float, clock: Callable[[], float]) -> None:
        self._first = first
        self._ends_s = ends_s
        self._clock = clock
        self.left_out: list[str] = []
        self.needing: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: order(item.nodeid, item.get_closest_marker("slow") is not None, self._first))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if self._clock() < self._ends_s:
            return None
        self.left_out.append(item.nodeid)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed and (package := missing_package(report.longreprtext)):
            self.needing[item.nodeid] = package
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"needs {package}")
        return report


def missing_package(failure: str) -> str | None:
    """The package of others for whose lack a test failed: the test itself, or a process whose output it shows."""
    names = re.findall(r"No module named '([A-Za-z_]\w*)", failure)
    return next(filter(is_missing, names), None)


def order(node_id: str, is_slow: bool, first: Collection[str]) -> tuple[bool, bool]:
    return file_of(node_id) not in first, is_slow


def file_of(node_id: str) -> str:
    return node_id.partition("::")[0]


def files_of(node_ids: Sequence[str]) -> list[str]:
    return sorted({file_of(one) for one in node_ids})
