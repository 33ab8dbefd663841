"""What a soak of services says about two sides that differ."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fencepost.soak.plan import Plan
from fencepost.soak.two_phase_run import WITHOUT_POOLER, Found, TwoPhaseSoak, differences, times_in_doubt
from fencepost.two_phase.commit_ids import new_commit
from fencepost.two_phase.comparison import Place

PLACE = Place("transfers", 0, 7)


@pytest.mark.parametrize(("program", "ways"), [("/usr/sbin/pgbouncer", 4), (None, 2)])
def test_a_soak_without_a_pooler_says_so_and_goes_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | None, ways: int
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: program)
    plan = Plan(kinds=["confluent"], rate=1, seed=1, is_two_phase=True)
    console = Console(file=io.StringIO())
    made = TwoPhaseSoak(plan, tmp_path, minutes=1.0, fault_interval_s=1.0, java_class_path=None, console=console)
    made._log.close()
    made._history.close()
    assert len(made._surroundings.database_urls) == ways
    assert made.report.notes == ([] if program else [WITHOUT_POOLER])


def test_rows_that_equal_records_are_no_finding() -> None:
    ids = [new_commit().id for _ in range(3)]
    rows = {one: f"a {number} 1" for number, one in enumerate(ids)}
    assert differences(rows, {one: Found(row, PLACE) for one, row in rows.items()}) == []


def test_each_side_that_lacks_something_is_named() -> None:
    one, other = sorted(new_commit().id for _ in range(2))
    assert differences({one: "a 1 1"}, {other: Found("a 2 1", PLACE)}) == [
        f"a row without its record: {one}",
        f"a record without its row: {other} at transfers-0@7",
    ]


def test_a_record_of_another_transfer_than_its_row_is_a_finding() -> None:
    one = new_commit().id
    assert differences({one: "a 1 1"}, {one: Found("a 1 2", PLACE)}) == [f"a record that differs from its row: {one}"]


def test_what_has_no_id_of_a_commit_is_a_finding() -> None:
    assert differences({}, {"x": Found("a 1 1", PLACE)}) == ["no id of a commit: 1 rows and records"]


def test_of_many_differences_the_first_are_shown() -> None:
    found = differences({new_commit().id: "a 1 1" for _ in range(9)}, {})
    assert len(found) == 6
    assert found[-1] == "a row without its record: 4 more"


def test_times_in_doubt_are_those_of_transfers_and_of_what_other_sessions_have_finished() -> None:
    told: list[dict[str, Any]] = [
        {"service": "a", "doubt_s": 0.1, "number": 1},
        {"service": "a", "raised": "InDoubtError", "text": "the database did not say"},
        {"service": "b", "raised": "NeedsRecovery", "text": "1:2:b is committed on both sides, but"},
        {"service": "a", "doubt_s": 4.0, "was_left": True},
        {"service": "b", "doubt_s": 9.0, "was_left": True},  # only its token was left
        {"service": "b", "doubt_s": 3.0, "was_left": True},
    ]
    assert times_in_doubt(told) == ([0.1, 4.0, 3.0], [4.0, 3.0])
