"""Whatever anybody writes to the check-back's topics, it goes on: odd records are left out, and named in one line."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.check_back.case import Case, Decider, Decision, Outcome, State, pause_ms
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.records import (
    Command,
    Entry,
    case_entry,
    command_entry,
    decided_entry,
    left_out_words,
    read_journal,
    resolver_entry,
)
from fencepost.check_back.schedule import Schedule, figures_of
from fencepost.check_back.settings import ResolverSettings
from fencepost.console.in_doubt import doubts, history_line
from fencepost.diagnosis.stuck import UNLIMITED_TIMEOUT_MS, CoordinatorView
from fencepost.two_phase.tokens import Token
from tests.support.odd_json import odd_json, odd_object

ORDERS = ResolverSettings("orders", ("order-*",), "http", first_ms=1_000, interval_ms=500, backoff=1, checks_max=3)
TOKEN = Token(9, 9, "order-9")
QUESTION = Question(TOKEN, 1, (("t", 0),))
DECIDED = Case(QUESTION, "orders", State.DECIDED, 5, decision=Decision(Outcome.COMMIT, Decider.RESOLVER))
WAITING = Case(QUESTION, "orders", State.WAITING, 5, checks=1, last_answer=Answer.UNKNOWN, last_asked_ms=3)
ENTRIES = (
    case_entry(DECIDED),
    case_entry(WAITING),
    command_entry(Command("order-9", "ask-again", None, 7)),
    command_entry(Command("order-9", "commit", str(TOKEN), 7)),
    resolver_entry(ORDERS, up=False, reason="it is closed", since_ms=2),
)
KEYS = [*(entry.key for entry in ENTRIES), "transaction/", "transaction/x@y", "command/", "resolver/", "", "other"]


def odd_record(entry: Entry) -> st.SearchStrategy[tuple[str, bytes]]:
    return st.tuples(st.just(entry.key), odd_object(entry.value or {}))


records = st.dictionaries(st.sampled_from(KEYS), odd_json() | st.none(), max_size=4).map(dict) | st.lists(
    st.sampled_from(ENTRIES).flatmap(odd_record), max_size=4
).map(dict)


@given(records)
@example({"transaction/9:9:order-9@1": b"[" * 200_000})
@example({"command/order-1": b'{"command":"ask-again","token":null,"time_ms":"soon"}', ENTRIES[2].key: b"{}"})
def test_a_check_back_goes_on_whatever_its_topic_holds(found: dict[str, bytes | None]) -> None:
    journal = read_journal(found)
    words = left_out_words(journal)
    assert words is None or (len(words) < 2_000 and words.isprintable())
    schedule = Schedule([ORDERS])
    schedule.started(journal, 10)
    own = Question(Token(7, 0, "order-1"), 0, ())
    schedule.listed([own, QUESTION], 20)
    for now_ms in (5_000, 10_000):
        work = schedule.take_work(now_ms)
        for case in work.to_ask:
            for entry in schedule.answered(case, Answer.UNKNOWN, None, latency_ms=1, now_ms=now_ms):
                entry.encoded_value()
        due_ms = schedule.next_due_ms()
        assert due_ms is None or due_ms <= now_ms + ORDERS.interval_max_ms
        json.dumps(figures_of(schedule, now_ms), allow_nan=False)
    # Once when it was due, and again half a second after its answer.
    (own_case,) = [case for case in schedule.cases.values() if case.question == own]
    assert own_case.checks == 2


@given(records)
def test_the_page_of_transactions_in_doubt_is_made_whatever_the_topic_holds(found: dict[str, bytes | None]) -> None:
    view = CoordinatorView(
        "order-9",
        state="Ongoing",
        producer_id=9,
        producer_epoch=9,
        timeout_ms=UNLIMITED_TIMEOUT_MS,
        started_ms=1,
        partitions=(("t", 0),),
    )
    (doubt,) = doubts([view], read_journal(found), 10)
    assert doubt.next_words.isprintable()


@given(odd_json() | odd_object(decided_entry(DECIDED, "commit", Decider.RESOLVER, 6).value or {}))
def test_a_line_of_the_audit_is_read_or_left_out(value: bytes) -> None:
    line = history_line(value)
    assert line is None or len(line.what) < 1_000


@pytest.mark.parametrize("backoff", [1, 1.0001, 2, 1e300])
@pytest.mark.parametrize("count", [1, 2, 1_000, 2_147_483_647])
def test_the_pause_after_any_number_of_answers_is_reckoned_at_once(backoff: float, count: int) -> None:
    settings = ResolverSettings("orders", ("*",), "http", interval_ms=500, backoff=backoff, interval_max_ms=60_000)
    assert 500 <= pause_ms(settings, count) <= 60_000


def test_a_note_about_another_transaction_than_its_key_is_left_out() -> None:
    entry = case_entry(DECIDED)
    journal = read_journal({entry.key.replace("order-9", "order-8"): entry.encoded_value()})
    assert journal.cases == {}
    assert "it is about 'transaction/9:9:order-9@1'" in str(left_out_words(journal))


def test_many_odd_records_are_one_short_line() -> None:
    words = left_out_words(read_journal({f"command/{number}": b"[]" for number in range(10_000)}))
    assert str(words).startswith("10000 records of __fencepost_check_back cannot be read and are left out: 'command/0'")
    assert str(words).endswith("and 9997 more")
    assert len(str(words)) < 300


# A clock that was ahead


@pytest.mark.parametrize("case", [WAITING, DECIDED], ids=["waiting", "decided"])
def test_nothing_sleeps_for_a_day_after_a_clock_that_was_a_day_ahead(case: Case) -> None:
    day_ms = 86_400_000
    entry = case_entry(Case(QUESTION, "orders", State.WAITING, 5 + day_ms, checks=1))
    if case is DECIDED:
        entry = case_entry(Case(QUESTION, "orders", State.DECIDED, 5 + day_ms, decision=DECIDED.decision))
    schedule = Schedule([ORDERS])
    schedule.started(read_journal({entry.key: entry.encoded_value()}), 10)
    schedule.listed([QUESTION], 10)
    assert schedule.take_work(10) == ([], [], [])
    due_ms = schedule.next_due_ms()
    assert due_ms is not None
    assert due_ms <= 10 + 1_000
    work = schedule.take_work(due_ms)
    assert len(work.to_ask) + len(work.to_end) == 1


def test_a_transaction_that_began_on_a_clock_ahead_is_asked_about_after_the_first_pause() -> None:
    schedule = Schedule([ORDERS])
    schedule.listed([Question(TOKEN, 86_400_000, ())], 10)
    assert schedule.take_work(10).to_ask == []
    assert schedule.next_due_ms() == 10 + ORDERS.first_ms
    assert len(schedule.take_work(10 + ORDERS.first_ms).to_ask) == 1


def test_a_clock_that_is_set_back_while_a_transaction_waits_does_not_keep_it_waiting() -> None:
    schedule = Schedule([ORDERS])
    schedule.listed([QUESTION], 86_400_000)
    (case,) = schedule.take_work(86_400_000).to_ask
    schedule.answered(case, Answer.UNKNOWN, None, latency_ms=1, now_ms=86_400_000)
    assert schedule.take_work(10).to_ask == []
    assert len(schedule.take_work(10 + ORDERS.interval_ms).to_ask) == 1
