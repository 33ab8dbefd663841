"""Problems in words, with what can be done."""

from __future__ import annotations

import pytest

from fencepost.broker.inspection.findings import Severity, finding, offsets_text, repair_command
from fencepost.broker.inspection.problems import DirectoryProblem, Kind
from fencepost.broker.kernel.topic_partition import TopicPartition

NAME = TopicPartition("orders", 0)


def problem(kind: Kind, first: int | None = None, end: int | None = None) -> DirectoryProblem:
    return DirectoryProblem(kind, "/d/orders-0/0.log", "wrong", 10, 40, first, end)


@pytest.mark.parametrize(
    ("first", "end", "text"),
    [
        (None, None, "no records are"),
        (50, None, "offset 50 and what followed are"),
        (50, 51, "offset 50 (1 record) is"),
        (50, 100, "offsets 50 to 99 (at most 50 records) are"),
    ],
)
def test_offsets_that_are_concerned_are_named(first: int | None, end: int | None, text: str) -> None:
    assert offsets_text(problem(Kind.DAMAGE, first, end)) == text


def test_a_command_is_quoted_for_the_shell() -> None:
    command = repair_command("/my data", NAME, "--accept-loss")
    assert command == "fencepost log repair --data-dir '/my data' orders-0 --accept-loss"


def test_damage_costs_what_it_says_and_a_stale_file_nothing() -> None:
    damage = finding("/d", NAME, problem(Kind.DAMAGE, 5, 7), "refused", is_offline=False)
    assert damage.severity is Severity.DAMAGE
    assert [choice.cost.startswith("offsets 5 to 6") for choice in damage.choices] == [False, True]
    stale = finding("/d", NAME, problem(Kind.STALE), "refused", is_offline=False)
    assert (stale.severity, stale.at_next_start) == (Severity.REBUILT, "it is rebuilt")
    assert stale.choices[0].cost.startswith("nothing is lost")


def test_a_finding_is_a_row_for_json() -> None:
    row = finding("/d", NAME, problem(Kind.NOTE), "", is_offline=False).as_row()
    assert (row["severity"], row["partition"], row["at_next_start"], row["choices"]) == (
        "note",
        "orders-0",
        "nothing changes",
        [],
    )
