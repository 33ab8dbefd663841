"""How `pytest --dist loadgroup` distributes the tests: those that share a server run in one of its processes, because
else each would start its own; and one of its processes that crashes or hangs costs one test.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import OrderedDict, defaultdict
from pathlib import Path

import pytest

from tests.support.broker_process import ROOT
from tests.support.crashed_workers import GoesOnAfterACrash

SHARING = """
import os
import pytest


@pytest.fixture(scope="module")
def server():
    return os.getpid()


@pytest.mark.parametrize("number", range(6))
def test_shared(server, number):
    assert server == os.getpid()


@pytest.mark.xdist_group("named")
@pytest.mark.parametrize("number", range(6))
def test_named(number):
    pass
"""


CRASHING = """
import os
import pytest


@pytest.mark.xdist_group("crashing")
@pytest.mark.parametrize("number", range(12))
def test_crashing(number):
    if number == 6:
        os._exit(3)


@pytest.mark.xdist_group("also-crashing")
def test_alone():
    os._exit(3)


@pytest.mark.parametrize("number", range(20))
def test_quiet(number):
    pass
"""

HANGING = """
import ctypes
import pytest


@pytest.mark.timeout(0.1)
def test_hanging():
    lock = ctypes.CDLL(None).pthread_mutex_lock
    mutex = ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)


def test_quiet():
    pass
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    options = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-p", "no:randomly", *options)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *options, f"--rootdir={folder}", "--confcutdir", folder, folder],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("processes", ["1", "2", "3"])
def test_a_process_that_crashes_costs_the_test_that_it_ran_and_no_other(tmp_path: Path, processes: str) -> None:
    (tmp_path / "test_one.py").write_text(CRASHING, encoding="utf-8")
    finished = run(tmp_path, "--numprocesses", processes, "--dist", "loadgroup")
    assert "2 failed, 31 passed" in finished.stdout, finished.stdout + finished.stderr
    crashed = set(re.findall(r"crashed while running 'test_one\.py::(\w+)", finished.stdout))
    assert crashed == {"test_crashing", "test_alone"}


def test_a_hang_that_hears_no_signal_ends_its_process_and_shows_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.support.crashed_workers import HardLimit\n"
        "def pytest_configure(config):\n"
        "    config.pluginmanager.register(HardLimit(grace_s=1))\n",
        encoding="utf-8",
    )
    (tmp_path / "test_one.py").write_text(HANGING, encoding="utf-8")
    finished = run(tmp_path, "--numprocesses", "1", "--dist", "loadgroup")
    assert "1 failed, 1 passed" in finished.stdout, finished.stdout + finished.stderr
    assert re.search(r'File ".*test_one.py", line \d+ in test_hanging', finished.stderr)


def test_tests_that_share_a_fixture_of_their_module_or_a_named_group_run_in_one_process(tmp_path: Path) -> None:
    for name in ("test_one.py", "test_other.py"):
        (tmp_path / name).write_text(SHARING, encoding="utf-8")
    finished = run(tmp_path, "--numprocesses", "2", "--dist", "loadgroup")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    processes = defaultdict(set)
    for process, group in re.findall(r"\[(gw\d)\].* PASSED .*@(\w+)", finished.stdout):
        processes[group].add(process)
    assert {group: len(found) for group, found in processes.items()} == {"test_one": 1, "test_other": 1, "named": 1}


class Process:
    """A process of pytest that has crashed, which its scheduler has not heard of yet."""

    shutting_down = False

    def send_runtest_some(self, indexes: list[int]) -> None:
        raise OSError("cannot send (already closed?)")


def test_two_processes_that_crash_at_once_cost_their_two_tests() -> None:
    scheduler = GoesOnAfterACrash.__new__(GoesOnAfterACrash)
    scheduler.log = lambda *_: None
    first, second = Process(), Process()
    tests = ["a::1", "a::2", "b::1"]
    scheduler.workqueue = OrderedDict()
    scheduler.registered_collections = {first: tests, second: tests}
    scheduler.assigned_work = {
        first: OrderedDict(a=OrderedDict({"a::1": False, "a::2": False})),
        second: OrderedDict(b=OrderedDict({"b::1": False})),
    }
    assert scheduler.remove_node(first) == "a::1"
    assert scheduler.remove_node(second) == "b::1"
    assert scheduler.workqueue == {"a": {"a::2": False}}


def test_the_folders_that_the_script_names_have_all_tests_of_their_markers() -> None:
    """Other folders are not searched: to collect all tests takes half a minute in each process."""
    text = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    (braces,) = re.findall(r"tests/\{([\w,]+)\}", text)
    (languages,) = re.findall(r'-m "compat and not long"((?: tests/\w+)+)\n\}', text)
    folders = {"integration|spark": set(braces.split(",")), "compat": set(re.findall(r"tests/(\w+)", languages))}
    for markers, named in folders.items():
        marked = re.compile(rf"\bmark\.({markers})\b")
        paths = [
            path for path in (ROOT / "tests").rglob("test_*.py") if marked.search(path.read_text(encoding="utf-8"))
        ]
        found = {path.relative_to(ROOT / "tests").parts[0] for path in paths} - {"test_groups.py"}
        assert found - named == set(), markers
