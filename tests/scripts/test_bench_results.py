"""Samples become medians, ranges and verdicts; the command line chooses figures by name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from rich.console import Console

from scripts.benchmarks.client import RefusedError
from scripts.benchmarks.client_process import ClientFailedError, ClientProcess, client
from scripts.benchmarks.command import main
from scripts.benchmarks.figures import (
    COMPARED,
    DURABLE,
    LIMIT,
    LIMIT_ON_DISK,
    PAGE_CACHE,
    REFERENCE,
    Figure,
    RatioTarget,
    Round,
    Sample,
    Target,
)
from scripts.benchmarks.measuring import percentile
from scripts.benchmarks.page import page
from scripts.benchmarks.pictures import draw_pictures
from scripts.benchmarks.prepared import copy, prepared
from scripts.benchmarks.ratios import comparison_table, ratios
from scripts.benchmarks.results import as_json, merged, readable, summarize
from scripts.benchmarks.runner import Runner
from scripts.benchmarks.table import FAMILIES, FIGURES
from scripts.benchmarks.warm_up import is_settled

WHERE = {"cores": 2, "busy_cores": 0.2, "python": "3.11.0"}


class NoSubject:
    """A subject that no figure of these tests starts."""

    is_to_be_warmed = False

    def __init__(self, name: str, *, can_be_launched: bool = True) -> None:
        self.name = name
        self.can_be_launched = can_be_launched

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
    targets = as_json([result], [], where=WHERE, passes={})["figures"]["speed"]["results"][0]["targets"]
    assert [target["verdict"] for target in targets] == ([verdict] if verdict else [])
    Console(quiet=True).print(comparison_table(measured, [result], []))


def compared_figure(*targets: RatioTarget) -> Figure:
    return Figure("speed", "how fast", lambda _: [], {}, {}, ratio_targets=targets, subjects=COMPARED)


def test_a_ratio_is_taken_within_each_round() -> None:
    measured = compared_figure(
        RatioTarget("time", 0.5), RatioTarget("time", 0.4), RatioTarget("time", 0.6, DURABLE, is_lower_bound=True)
    )
    values = {DURABLE: (4.0, 60.0, 5.0), PAGE_CACHE: (1.0, 50.0, 2.0), REFERENCE: (4.0, 100.0, 4.0)}
    results = [
        result
        for subject, of_subject in values.items()
        for result in summarize(measured, subject, [[Sample("time", value, "s", "cold")] for value in of_subject])
    ]
    durable, in_page_cache = ratios(measured, results)
    assert (durable.subject, durable.reference, durable.values) == (DURABLE, REFERENCE, (1.0, 0.6, 1.25))
    assert in_page_cache.values == (0.25, 0.5, 0.5)
    assert (durable.verdict, in_page_cache.verdict) == ("met", "missed")
    content = as_json(results, [durable, in_page_cache], where=WHERE, passes={REFERENCE: 9})
    assert [target["verdict"] for target in content["figures"]["speed"]["ratios"][1]["targets"]] == ["met", "missed"]
    assert content["figures"]["speed"]["warm_after_passes"] == {REFERENCE: 9}
    Console(quiet=True).print(comparison_table(measured, results, [durable, in_page_cache]))


def test_a_case_measured_on_one_side_only_has_no_ratio() -> None:
    measured = compared_figure()
    results = [
        *summarize(measured, DURABLE, [[Sample("time", 1, "s"), Sample("size", 1, "B"), Sample("count", 1, "")]]),
        *summarize(measured, REFERENCE, [[Sample("time", 1, "s", "another case"), Sample("size", 0, "B")]]),
    ]
    assert not ratios(measured, results)


def test_figures_measured_before_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"figures": {"speed": {"old": True}, "size": {"old": True}}}))
    content = merged(
        path, as_json(summarize(figure(), DURABLE, [[Sample("time", 1.23456, "s")]]), [], where=WHERE, passes={})
    )
    assert content["figures"]["size"] == {"old": True}
    assert content["figures"]["speed"]["results"][0]["values"] == [1.235]


def test_the_page_names_the_missed_targets() -> None:
    measured = FIGURES["footprint"]
    results = [
        result
        for subject, value in ((DURABLE, 10.0), (PAGE_CACHE, 10.0), (REFERENCE, 20.0))
        for result in summarize(measured, subject, [[Sample("idle memory", value, "MiB")]])
    ]
    text = page(as_json(results, ratios(measured, results), where=WHERE, passes={REFERENCE: 9}))
    assert "0 of 1 aims are met" in text
    assert "| footprint |  | idle memory | Fencepost, page cache / Kafka | 0.5 |  | ≤ 0.08 | **missed** |" in text
    assert "Passes until the brokers were warm: Kafka after 9." in text
    assert "| idle memory | MiB | 10 | 10 | 20 | 0.5 | 0.5 |" in text
    assert f"What is in the way: {measured.in_the_way}" in text


@pytest.mark.parametrize(("limit_s", "shown"), [(0.5, "**missed**, by the limit too"), (0.1, "**missed**")])
def test_the_page_names_the_targets_that_the_least_server_misses_as_well(limit_s: float, shown: str) -> None:
    measured = FIGURES["group-commits"]
    results = [
        result
        for subject, value in ((DURABLE, 0.4), (LIMIT_ON_DISK, limit_s), (LIMIT, 0.0), (REFERENCE, 0.8))
        for result in summarize(measured, subject, [[Sample("cores in use", value, "cores")]])
    ]
    compared = ratios(measured, results)
    assert {(one.subject, one.reference) for one in compared} == {
        (subject, REFERENCE) for subject in (DURABLE, LIMIT_ON_DISK, LIMIT)
    }
    text = page(as_json(results, compared, where=WHERE, passes={}))
    assert f"| Fencepost | 0.4 cores | {limit_s} | ≤ 0.15 | {shown} |" in text
    assert f"**missed ones say so**. {int('limit' in shown)} are missed by the\nlimit too" in text


def test_the_page_says_nothing_is_in_the_way_of_what_is_met() -> None:
    measured = FIGURES["footprint"]
    results = [
        result
        for subject, value in ((DURABLE, 1.0), (PAGE_CACHE, 1.0), (REFERENCE, 20.0))
        for result in summarize(measured, subject, [[Sample("idle memory", value, "MiB")]])
    ]
    text = page(as_json(results, ratios(measured, results), where=WHERE, passes={REFERENCE: 9}))
    assert "1 of 1 aims are met" in text
    assert "in the way" not in text


@pytest.mark.parametrize(("mb_per_s", "shown"), [(35.0, True), (170.0, False)])
def test_the_page_says_what_is_slower_and_why(mb_per_s: float, shown: bool) -> None:
    measured = FIGURES["idempotence"]
    results = [
        result
        for subject, value in ((DURABLE, mb_per_s), (REFERENCE, 100.0))
        for result in summarize(
            measured,
            subject,
            [[Sample("produce", value, "MB/s", "1 in flight"), Sample("broker CPU", 1 / value, "s/GB", "1 in flight")]],
        )
    ]
    text = page(as_json(results, ratios(measured, results), where=WHERE, passes={}))
    assert ("## What is slower than with Kafka" in text) is shown
    assert ("- 1 in flight: Fencepost / Kafka 0.35" in text) is shown
    assert (measured.slower in text) is shown


@pytest.mark.parametrize(("busy_cores", "shown"), [(0.4, False), (1.7, True)])
def test_the_page_says_how_busy_the_machine_was_before_the_measurement(busy_cores: float, shown: bool) -> None:
    results = summarize(FIGURES["footprint"], DURABLE, [[Sample("idle memory", 10.0, "MiB")]])
    text = page(as_json(results, [], where={**WHERE, "busy_cores": busy_cores}, passes={}))
    assert ("busy with other things (1.7 of 2 cores had work before it began)" in text) is shown


def test_a_long_table_is_folded_away() -> None:
    samples = [Sample("produce", 1.0, "MB/s", f"case {number}") for number in range(61)]
    text = page(as_json(summarize(FIGURES["throughput"], DURABLE, [samples]), [], where=WHERE, passes={}))
    assert "<details><summary>All 61 rows</summary>\n\n| case |" in text


def test_peers_that_only_have_an_address_are_passed_over_where_brokers_are_started() -> None:
    peer = NoSubject("127.0.0.1:9092", can_be_launched=False)
    taking_part = [name for name, one in FIGURES.items() if one.is_about(peer)]  # type: ignore[arg-type]
    assert "produce" in taking_part
    assert not {"footprint", "recovery", "produce-against-limit"} & set(taking_part)
    assert not FIGURES["partitions"].is_about(NoSubject(REFERENCE))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("passes_cpu_s", "expected"),
    [
        ([9, 5, 4, 4, 4], False),
        ([9, 5, 4, 3, 3, 3], False),
        ([4, 4, 4, 4, 3.9, 4], True),
        ([9, 5, 4, 3, 3, 3, 3, 2.9, 3], True),
    ],
)
def test_a_broker_is_warm_when_its_processor_time_no_longer_falls(passes_cpu_s: list[float], expected: bool) -> None:
    assert is_settled(passes_cpu_s) is expected


def test_a_percentile_is_the_value_that_its_share_does_not_exceed() -> None:
    ordered = [float(number) for number in range(1, 101)]
    assert [percentile(ordered, percent) for percent in (50, 99, 99.9)] == [50, 99, 100]
    assert percentile([7.0], 50) == 7.0


def test_subjects_take_turns(tmp_path: Path) -> None:
    turns: list[str] = []

    def measure(round_: Round) -> list[Sample]:
        assert not list(round_.scratch.iterdir())
        turns.append(round_.subject.name)
        return [Sample("turn", len(turns), "")]

    with Runner(
        [NoSubject("a"), NoSubject("b")],  # type: ignore[list-item]
        rounds_count=2,
        is_small=True,
        cache=tmp_path,
        progress=Console(quiet=True),
    ) as runner:
        first, second = runner.run(Figure("turns", "", measure, {}, {}, subjects=("a", "b")))
    assert turns == ["a", "b", "a", "b"]
    assert (first.values, second.values) == ((1, 3), (2, 4))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_prepared_data_is_stored_by_its_sizes(tmp_path: Path) -> None:
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


def test_the_same_results_draw_the_same_picture(tmp_path: Path) -> None:
    results = [
        result
        for subject, value in ((DURABLE, 3.0), (REFERENCE, 2.0))
        for result in summarize(
            figure(), subject, [[Sample("time", value, "s", "cold")], [Sample("time", 1, "s", "cold")]]
        )
    ]
    content = as_json(results, [], where=WHERE, passes={})
    for name in ("first", "second"):
        draw_pictures(tmp_path / name, content)
    first, second = (tmp_path / name / "speed.svg" for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()
    assert "time, s" in first.read_text()


def test_the_failure_of_a_client_is_reported_with_its_last_output() -> None:
    with pytest.raises(ClientFailedError, match="KeyError: 'nothing-that-is-there'"):
        client("nothing-that-is-there")


@pytest.mark.parametrize(
    "arguments", [["--rounds", "0"], ["--peer", "9092"], ["--only", "nothing"], ["--rest", "--page"]]
)
def test_impossible_arguments_are_reported(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert arguments[0] in capsys.readouterr().err


def test_a_figure_that_cannot_be_measured_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Round) -> list[Sample]:
        raise RefusedError("NOT_LEADER_OR_FOLLOWER")

    figures = {
        "fails": Figure("fails", "", fail, {}, {}),
        "works": Figure("works", "", lambda _: [Sample("time", 1, "s")], {}, {}),
    }
    monkeypatch.setattr("scripts.benchmarks.command.FIGURES", figures)
    output = tmp_path / "results.json"
    assert main(["--alone", "--rounds", "1", "--cache", str(tmp_path), "--json", str(output)]) == 2
    shown = capsys.readouterr().out
    assert "fails: RefusedError: NOT_LEADER_OR_FOLLOWER" in shown
    assert "not measured: fails" in shown
    assert list(json.loads(output.read_text())["figures"]) == ["works"]


def test_a_client_that_says_nothing_is_killed_and_named() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        ClientProcess(command, longest_s=0.2) as process,
        pytest.raises(ClientFailedError, match=r"killed after 0.2 s"),
    ):
        process.wait_until_ready()
