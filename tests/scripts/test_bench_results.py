"""Samples become medians, ranges and verdicts; the command line chooses figures by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from scripts.benchmarks.command import Runner, main
from scripts.benchmarks.figures import Figure, Round, Sample, Target
from scripts.benchmarks.prepared import copy, prepared
from scripts.benchmarks.results import as_json, readable, result_table, summarize
from scripts.benchmarks.table import FAMILIES, FIGURES


class NoSubject:
    """A subject that no figure of these tests starts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def launch(self, data_directory: Path, settings: object) -> object:
        raise AssertionError("nothing is to be started")


def figure(targets: tuple[Target, ...] = ()) -> Figure:
    return Figure("speed", "how fast", lambda _: [], {}, {}, targets)


def test_rounds_become_a_median_and_a_range() -> None:
    rounds = [[Sample("time", value, "s", "cold"), Sample("size", 7, "B")] for value in (3.0, 1.0, 2.0)]
    time_result, size_result = summarize(figure(), "fencepost", rounds)
    assert (time_result.median, time_result.values, time_result.case) == (2.0, (3.0, 1.0, 2.0), "cold")
    assert size_result.median == 7


@pytest.mark.parametrize(
    ("target", "verdict"),
    [
        (Target("time", 2.0), "met"),
        (Target("time", 1.9), "missed"),
        (Target("time", 2.0, is_lower_bound=True), "met"),
        (Target("time", 2.1, is_lower_bound=True), "missed"),
        (Target("another", 0.0), ""),
    ],
)
def test_a_target_is_compared_with_the_median(target: Target, verdict: str) -> None:
    measured = figure((target,))
    (result,) = summarize(measured, "fencepost", [[Sample("time", value, "s")] for value in (9.0, 2.0, 1.0)])
    assert result.verdict == verdict
    assert as_json([result], rounds_count=3)["results"][0]["verdict"] == verdict
    Console(quiet=True).print(result_table(measured, [result]))


def test_subjects_take_turns(tmp_path: Path) -> None:
    turns: list[str] = []

    def measure(round_: Round) -> list[Sample]:
        assert not list(round_.scratch.iterdir())
        turns.append(round_.subject.name)
        return [Sample("turn", len(turns), "")]

    runner = Runner(
        [NoSubject("a"), NoSubject("b")],  # type: ignore[list-item]
        rounds_count=2,
        is_small=True,
        cache=tmp_path,
        progress=Console(quiet=True),
    )
    first, second = runner.run(Figure("turns", "", measure, {}, {}))
    assert turns == ["a", "b", "a", "b"]
    assert (first.values, second.values) == ((1, 3), (2, 4))
    assert not list(tmp_path.glob("round-*"))


def test_what_was_prepared_is_kept_by_its_sizes(tmp_path: Path) -> None:
    made = []

    def prepare(directory: Path) -> None:
        made.append(directory)
        (directory / "data").write_text("prepared")

    first = prepared(tmp_path, "figure", {"records": 1}, prepare)
    assert prepared(tmp_path, "figure", {"records": 1}, prepare) == first
    assert prepared(tmp_path, "figure", {"records": 2}, prepare) != first
    assert len(made) == 2
    for in_page_cache in (True, False):
        target = copy(first, tmp_path / f"copy-{in_page_cache}", in_page_cache=in_page_cache)
        assert (target / "data").read_text() == "prepared"


def test_a_preparation_that_failed_is_made_again(tmp_path: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").touch()
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011  # it is the one from above
        prepared(tmp_path, "figure", {}, fail)
    assert not list(prepared(tmp_path, "figure", {}, lambda _: None).iterdir())


def test_every_figure_of_every_family_has_a_name_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(FIGURES) == sum(len(family.FIGURES) for family in FAMILIES)
    assert main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in FIGURES)


def test_numbers_are_readable() -> None:
    assert [readable(value) for value in (123456.7, 12.345, 0.012345)] == ["123,457", "12.3", "0.0123"]
