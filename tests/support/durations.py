"""Which tests are slow: recorded once in tests/durations.txt, so that `-m "not slow"` leaves them out.

A line names a test file and its slow tests. A parametrized test is recorded as one, by its slowest parameters. Measured
is the processor time of the test and of the processes that it waited for: a busy machine makes no test slow.

    pytest --record-durations [PATHS]     records what these tests take; other entries stay, if their tests still exist
"""

from __future__ import annotations

import ast
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DURATIONS = ROOT / "tests" / "durations.txt"
SLOW_FROM_S = 0.25
PROPERTY = "processor_s"
HEADING = (
    f"# Test files, and their tests that take {SLOW_FROM_S} s or longer: written by `pytest --record-durations`.\n"
)

SlowTests = dict[str, set[str]]
"""The names of slow tests by the path of their file, from the root. A test of a class is named CLASS::TEST."""


def parse(text: str) -> SlowTests:
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return {path: set(names) for path, *names in lines}


def written(slow: SlowTests) -> str:
    return HEADING + "".join(f"{path} {' '.join(sorted(slow[path]))}\n" for path in sorted(slow) if slow[path])


def split(node_id: str) -> tuple[str, str]:
    """The file and the name of a test, without its parameters and the group that `pytest --dist loadgroup` appends."""
    path, _, name = node_id.partition("::")
    return path, name.partition("[")[0].partition("@")[0]


def updated(slow: SlowTests, taken_s: dict[tuple[str, str], float], root: Path) -> SlowTests:
    """The slow tests after a run. taken_s: processor time by file and name. Tests that are not in root are dropped."""
    names = defaultdict(set, {path: set(known) for path, known in slow.items()})
    for (path, name), seconds in taken_s.items():
        if seconds >= SLOW_FROM_S:
            names[path].add(name)
        else:
            names[path].discard(name)
    kept = {path: known & existing(root / path) for path, known in names.items() if known}
    return {path: known for path, known in kept.items() if known}


def existing(path: Path) -> set[str]:
    """The names of the tests in a file; none if there is no such file, or if it is a transcript and no Python."""
    if path.suffix != ".py" or not path.exists():
        return set()

    def functions(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield prefix + node.name
            elif isinstance(node, ast.ClassDef):
                yield from functions(node.body, f"{prefix}{node.name}::")
                # Hypothesis makes a test of a state machine: `TestX = Machine.TestCase`, whose method is `runTest`.
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                yield f"{prefix}{node.targets[0].id}::runTest"

    return set(functions(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def mark_slow_tests(items: list[pytest.Item]) -> None:
    slow = parse(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
    for item in items:
        path, name = split(item.nodeid)
        if name in slow.get(path, ()):
            item.add_marker(pytest.mark.slow)


class SlowMarks:
    """Marks slow tests before `-m` chooses among all tests."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        mark_slow_tests(items)


def processor_s() -> float:
    """What this process and those that it waited for have used."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


STARTED = pytest.StashKey[float]()


class Recorder:
    """Measures each test where it runs, and writes the file where the reports arrive."""

    def __init__(self) -> None:
        self._taken_s: dict[tuple[str, str], float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        item.stash[STARTED] = processor_s()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        # A report has the properties of its time: the last report is made after this.
        item.user_properties.append((PROPERTY, processor_s() - item.stash[STARTED]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            seconds = sum(
                value for name, value in report.user_properties if name == PROPERTY and isinstance(value, float)
            )
            test = split(report.nodeid)
            self._taken_s[test] = max(seconds, self._taken_s.get(test, 0.0))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):
            slow = parse(DURATIONS.read_text(encoding="utf-8")) if DURATIONS.exists() else {}
            DURATIONS.write_text(written(updated(slow, self._taken_s, ROOT)), encoding="utf-8")
