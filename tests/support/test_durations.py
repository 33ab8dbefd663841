"""Slow tests are recorded by the processor time that they take, and marked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import durations
from tests.support.durations import Recorder, existing, mark_slow_tests, parse, split, updated, written


def test_a_file_with_slow_tests_is_one_line() -> None:
    slow = {"tests/b.py": {"test_two", "test_one"}, "tests/a.py": {"Class::test"}, "tests/c.py": set[str]()}
    text = written(slow)
    assert text.splitlines()[1:] == ["tests/a.py Class::test", "tests/b.py test_one test_two"]
    assert parse(text) == {"tests/a.py": {"Class::test"}, "tests/b.py": {"test_one", "test_two"}}


def test_a_parametrized_test_is_recorded_without_its_parameters() -> None:
    assert split("tests/a.py::test_one[x::y[0]]") == ("tests/a.py", "test_one")
    assert split("tests/a.py::Class::test_one[2]@group") == ("tests/a.py", "Class::test_one")
    assert split("tests/a.py::test_one@group") == ("tests/a.py", "test_one")


def test_a_record_keeps_other_tests_and_drops_those_that_are_fast_or_do_not_exist(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def test_slow(): ...\nasync def test_kept(): ...\ndef test_fast(): ...\n")
    before = {"a.py": {"test_kept", "test_fast", "test_removed"}, "gone.py": {"test_of_a_removed_file"}}
    taken_s = {("a.py", "test_slow"): 0.25, ("a.py", "test_fast"): 0.24}
    assert updated(before, taken_s, tmp_path) == {"a.py": {"test_kept", "test_slow"}}


def test_tests_of_classes_and_state_machines_are_found(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        "class A:\n    def test_one(self): ...\n    class B:\n        def test_two(self): ...\nT = M.TestCase\n"
    )
    assert existing(path) == {"A::test_one", "A::B::test_two", "T::runTest"}


def test_a_transcript_that_runs_as_a_test_is_not_recorded(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("broker starts with a setting\n")
    assert updated({}, {("a.txt", "a broker starts"): 1.0}, tmp_path) == {}


class Report:
    def __init__(self, nodeid: str, seconds: float) -> None:
        self.when = "teardown"
        self.nodeid = nodeid
        self.user_properties = [(durations.PROPERTY, seconds), ("another", "property")]


class Session:
    class config:  # noqa: N801 - as pytest calls it
        pass


def test_the_slowest_parameters_decide_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_one(): ...\ndef test_two(): ...\n")
    monkeypatch.setattr(durations, "ROOT", tmp_path)
    monkeypatch.setattr(durations, "DURATIONS", tmp_path / "tests" / "durations.txt")
    recorder = Recorder()
    for name, seconds in (("one[1]", 0.3), ("one[2]", 0.1), ("two", 0.1)):
        recorder.pytest_runtest_logreport(Report(f"tests/test_a.py::test_{name}", seconds))  # type: ignore[arg-type]
    recorder.pytest_sessionfinish(Session())  # type: ignore[arg-type]
    assert parse(durations.DURATIONS.read_text()) == {"tests/test_a.py": {"test_one"}}


@pytest.mark.parametrize("parameter", [1, 2])
def test_a_recorded_test_is_marked(
    parameter: int, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durations, "DURATIONS", tmp_path / "durations.txt")
    mark_slow_tests([request.node])
    assert request.node.get_closest_marker("slow") is None
    durations.DURATIONS.write_text(written({"tests/support/test_durations.py": {"test_a_recorded_test_is_marked"}}))
    mark_slow_tests([request.node])
    assert request.node.get_closest_marker("slow") is not None
