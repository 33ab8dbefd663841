"""The cells that `transactions list --in-doubt` has for a transaction."""

from __future__ import annotations

from dataclasses import replace

from fencepost.check_back.case import State
from fencepost.check_back.question import Answer
from fencepost.cli.output import format_time
from fencepost.cli.transaction_doubts import columns_of
from tests.console.test_in_doubt import NOW_MS, UP, VIEW, case, journal


def test_a_transaction_that_nobody_is_asked_about_has_no_cells_and_a_decided_one_is_not_listed() -> None:
    assert columns_of(VIEW, journal()) == {}
    assert columns_of(replace(VIEW, timeout_ms=60_000), journal()) is None
    assert columns_of(replace(VIEW, state="PrepareCommit"), journal(UP)) is None


def test_the_cells_are_what_the_check_back_knows() -> None:
    waiting = case(next_ms=NOW_MS, checks=2, last_answer=Answer.UNKNOWN)
    assert columns_of(VIEW, journal(UP, waiting)) == {
        "resolver": "orders",
        "checks": 2,
        "last_answer": "unknown",
        "next_question": format_time(NOW_MS),
        "parked": "no",
    }
    parked = columns_of(VIEW, journal(UP, case(state=State.PARKED, is_parked=True)))
    assert parked is not None
    assert (parked["next_question"], parked["parked"]) == (None, "yes")
