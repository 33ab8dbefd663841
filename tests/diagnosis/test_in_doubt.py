"""What is in doubt, and what comes next, from the coordinator's view and what a check-back knows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fencepost.diagnosis.in_doubt import Check, Doubt, doubt_of
from fencepost.diagnosis.stuck import UNLIMITED_TIMEOUT_MS, CoordinatorView

NOW_MS = 1_764_000_100_000
VIEW = CoordinatorView("order-1", "Ongoing", 7, 2, UNLIMITED_TIMEOUT_MS, NOW_MS - 100_000, (("orders", 0),))
WITH_TIME_OUT = replace(VIEW, timeout_ms=60_000)
CHECK = Check("orders", next_ms=NOW_MS + 46_000, checks=1, checks_max=15, last_answer="unknown")


def doubt(view: CoordinatorView, check: Check | None) -> Doubt:
    found = doubt_of(view, check, NOW_MS)
    assert found is not None
    return found


def test_only_what_somebody_else_than_its_time_out_decides_is_in_doubt() -> None:
    assert doubt(VIEW, None).is_two_phase
    assert doubt(WITH_TIME_OUT, CHECK).resolver == "orders"
    assert doubt_of(WITH_TIME_OUT, None, NOW_MS) is None
    for state in ("Empty", "PrepareCommit", "PrepareAbort", "CompleteCommit"):
        assert doubt_of(replace(VIEW, state=state), CHECK, NOW_MS) is None


def test_a_doubt_has_what_the_check_back_knows() -> None:
    found = doubt(VIEW, CHECK)
    assert (found.token, found.age_ms, found.partitions) == ("7:2:order-1", 100_000, (("orders", 0),))
    assert (found.checks, found.checks_max, found.last_answer, found.next_ms) == (1, 15, "unknown", CHECK.next_ms)
    assert (found.is_parked, found.can_be_asked) == (False, True)
    assert doubt(VIEW, replace(CHECK, decided="resolver: commit")).can_be_asked is False


@pytest.mark.parametrize(
    ("check", "words"),
    [
        (None, "no source is asked: its client decides, or an administrator"),
        (CHECK, "the next question in 46 s"),
        (replace(CHECK, next_ms=NOW_MS - 1), "the next question is due"),
        (replace(CHECK, next_ms=None), "a question is on its way"),
        (replace(CHECK, is_parked=True), "parked: an administrator decides"),
        (replace(CHECK, is_parked=True, is_wanted=True), "the source is asked at once"),
        (replace(CHECK, decided="resolver: commit"), "decided by the resolver: commit; it is being ended"),
    ],
)
def test_what_comes_next_is_said(check: Check | None, words: str) -> None:
    assert doubt(VIEW, check).next_words == words
