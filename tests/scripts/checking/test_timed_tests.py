"""Tests run in the order of their nearness until the time is over, and what did not run is counted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from scripts.checking.timed_tests import TimedTests, files_of, missing_package, order


def item(node_id: str) -> Any:
    is_slow = "slow" in node_id
    return SimpleNamespace(nodeid=node_id, path=node_id, get_closest_marker=lambda name: name if is_slow else None)


def test_tests_of_the_change_come_first_and_fast_ones_before_slow_ones() -> None:
    ids = ["b.py::slow", "a.py::slow", "b.py::two", "a.py::one", "b.py::one"]
    ordered = sorted(ids, key=lambda one: order(one, "slow" in one, {"a.py"}))
    assert ordered == ["a.py::one", "a.py::slow", "b.py::two", "b.py::one", "b.py::slow"]


def test_no_test_begins_once_the_time_is_over() -> None:
    times = iter([0.0, 59.9, 60.0, 61.0])
    timed = TimedTests({"a.py"}, 60.0, lambda: next(times))
    items = [item("b.py::slow"), item("b.py::one"), item("a.py::one"), item("b.py::two")]
    timed.pytest_collection_modifyitems(items)
    assert [timed.pytest_runtest_protocol(one) for one in items] == [None, None, True, True]
    assert timed.left_out == ["b.py::two", "b.py::slow"]
    assert files_of(timed.left_out) == ["b.py"]


@pytest.mark.parametrize(
    ("failure", "package"),
    [
        ("E   ModuleNotFoundError: No module named 'no_such_package.part'", "no_such_package"),
        ("E   ModuleNotFoundError: No module named 'fencepost.broker.gone'", None),
        ("E   assert 1 == 2", None),
    ],
)
def test_a_test_that_lacks_a_package_of_others_has_not_failed(failure: str, package: str | None) -> None:
    report = pytest.TestReport("a.py::one", ("a.py", 1, "one"), {}, "failed", failure, "call")
    timed = TimedTests((), 60.0, lambda: 0.0)
    making = timed.pytest_runtest_makereport(item("a.py::one"), None)  # type: ignore[arg-type]
    next(making)
    with pytest.raises(StopIteration) as returned:
        making.send(report)
    assert returned.value.value.outcome == ("failed" if package is None else "skipped")
    assert timed.needing == ({} if package is None else {"a.py::one": package})
    assert missing_package(failure) == package
