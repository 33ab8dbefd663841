"""One transaction in doubt: each cell of its table, and its pauses."""

from __future__ import annotations

import dataclasses

import pytest

from fencepost.check_back.case import (
    TABLE,
    Case,
    Decider,
    Decision,
    Event,
    Outcome,
    State,
    decide,
    event_of,
    found,
    pause_ms,
    still_open,
)
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.settings import Exhausted, ResolverSettings
from fencepost.two_phase.tokens import Token

SETTINGS = ResolverSettings(
    "orders", ("order-*",), "http", first_ms=5_000, interval_ms=1_000, interval_max_ms=7_000, checks_max=3
)
QUESTION = Question(Token(7, 0, "order-1"), 1_000, (("t", 0),))
NOW_MS = 50_000


def case_in(state: State, **fields: object) -> Case:
    return dataclasses.replace(found(QUESTION, SETTINGS), state=state, **fields)  # type: ignore[arg-type]


def test_the_first_question_is_due_some_time_after_the_start() -> None:
    assert found(QUESTION, SETTINGS).next_ms == 6_000


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_each_event_in_each_state_leads_where_the_table_says(state: State, event: Event) -> None:
    case = case_in(state)
    after = decide(case, event, SETTINGS, NOW_MS)
    cell = TABLE[event][list(State).index(state)]
    if isinstance(cell, State):
        assert after is not None
        assert after.state is cell
    else:
        assert after is {"ignore": case, "forget": None}[cell.value]


def test_only_the_answer_unknown_counts_as_a_check() -> None:
    counting = {
        event
        for event in Event
        for state in State
        if (after := decide(case_in(state, checks=1), event, SETTINGS, NOW_MS)) is not None and after.checks > 1
    }
    assert counting == {Event.SAID_UNKNOWN, Event.PARK, Event.GIVE_UP}


def test_only_an_answer_or_the_configured_end_of_all_checks_decides() -> None:
    deciding = {
        event
        for event in Event
        for state in State
        if (after := decide(case_in(state), event, SETTINGS, NOW_MS)) is not None and after.decision is not None
    }
    assert deciding == {Event.SAID_COMMIT, Event.SAID_ABORT, Event.GIVE_UP}


@pytest.mark.parametrize(
    ("answer", "outcome"), [(Answer.COMMIT, Outcome.COMMIT), (Answer.ABORT, Outcome.ABORT)], ids=["commit", "abort"]
)
def test_an_answer_decides(answer: Answer, outcome: Outcome) -> None:
    case = case_in(State.ASKING)
    after = decide(case, event_of(case, answer, SETTINGS), SETTINGS, NOW_MS)
    assert after is not None
    assert (after.state, after.decision) == (State.DECIDED, Decision(outcome, Decider.RESOLVER))


@pytest.mark.parametrize(
    ("exhausted", "state", "decision"),
    [
        (Exhausted.PARK, State.PARKED, None),
        (Exhausted.ABORT, State.DECIDED, Decision(Outcome.ABORT, Decider.EXHAUSTED)),
        (Exhausted.COMMIT, State.DECIDED, Decision(Outcome.COMMIT, Decider.EXHAUSTED)),
    ],
)
def test_the_last_unknown_parks_or_decides_as_configured(
    exhausted: Exhausted, state: State, decision: Decision | None
) -> None:
    settings = dataclasses.replace(SETTINGS, exhausted=exhausted)
    case = case_in(State.ASKING, checks=2)
    after = decide(case, event_of(case, Answer.UNKNOWN, settings), settings, NOW_MS)
    assert after is not None
    assert (after.state, after.decision, after.checks) == (state, decision, 3)


def test_pauses_grow_up_to_the_longest() -> None:
    assert [pause_ms(SETTINGS, count) for count in range(1, 6)] == [1_000, 2_000, 4_000, 7_000, 7_000]
    assert pause_ms(SETTINGS, 10_000) == 7_000


def test_a_source_that_does_not_answer_is_asked_less_and_less_often_and_the_next_answer_ends_that() -> None:
    case: Case | None = case_in(State.ASKING, checks=1)
    for pause in (1_000, 2_000, 4_000):
        assert case is not None
        case = decide(dataclasses.replace(case, state=State.ASKING), Event.UNREACHABLE, SETTINGS, NOW_MS)
        assert case is not None
        assert case.next_ms == NOW_MS + pause
    assert case is not None
    case = decide(dataclasses.replace(case, state=State.ASKING), Event.SAID_UNKNOWN, SETTINGS, NOW_MS)
    assert case is not None
    assert (case.failures, case.checks, case.next_ms) == (0, 2, NOW_MS + 2_000)


def test_an_administrator_has_a_parked_transaction_asked_anew() -> None:
    after = decide(case_in(State.PARKED, checks=3, is_parked=True), Event.ASK_AGAIN, SETTINGS, NOW_MS)
    assert after is not None
    assert (after.state, after.checks, after.next_ms, after.is_parked) == (State.WAITING, 0, NOW_MS, False)


@pytest.mark.parametrize(
    "before",
    [
        case_in(State.WAITING),
        case_in(State.PARKED, is_parked=True),
        case_in(State.DECIDED, decision=Decision(Outcome.COMMIT, Decider.RESOLVER)),
    ],
    ids=lambda case: case.state.value,
)
def test_a_transaction_that_was_taken_for_ended_goes_on_as_before(before: Case) -> None:
    leaving = decide(before, Event.GONE, SETTINGS, NOW_MS)
    assert leaving is not None
    after = decide(leaving, still_open(leaving), SETTINGS, NOW_MS)
    assert after is not None
    assert after.state is before.state
