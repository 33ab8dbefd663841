"""All transactions in doubt: whatever happens in whatever order, nothing is decided twice, or without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fencepost.check_back.case import Case, CaseKey, Decider, State
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, Command, Entry, left_out_words, read_journal
from fencepost.check_back.schedule import Schedule
from fencepost.check_back.settings import Exhausted, ResolverSettings
from fencepost.two_phase.tokens import Token

ORDERS = ResolverSettings("orders", ("order-*",), "http", first_ms=1_000, interval_ms=500, checks_max=3, concurrency=2)
SHOP = ResolverSettings("shop", ("shop-*", "order-*"), "sql", first_ms=0, exhausted=Exhausted.ABORT, checks_max=2)


def question(name: str, started_ms: int = 0) -> Question:
    return Question(Token(7, 0, name), started_ms, (("t", 0), ("t", 1)))


class Topics:
    """The two topics."""

    def __init__(self) -> None:
        self.state: dict[str, bytes | None] = {}
        self.audit: list[Any] = []

    def write(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.topic == STATE_TOPIC:
                self.state[entry.key] = entry.encoded_value()
            else:
                assert entry.topic == AUDIT_TOPIC
                self.audit.append(entry.value)

    def events(self) -> list[tuple[str, ...]]:
        return [
            (record["event"], record["who"], str(record.get("decision") or record.get("outcome")))
            for record in self.audit
        ]


def asked(schedule: Schedule, topics: Topics, answer: Answer | None, now_ms: int) -> Case:
    """Let the only question that is due be answered."""
    (case,) = schedule.take_work(now_ms).to_ask
    topics.write(schedule.answered(case, answer, None if answer else "no way", latency_ms=3, now_ms=now_ms))
    return schedule.cases[case.key]


def test_nothing_is_recorded_of_a_transaction_that_ends_before_its_first_question() -> None:
    schedule = Schedule([ORDERS])
    assert schedule.listed([question("order-1")], 10) == []
    assert schedule.listed([], 20) == []
    assert schedule.cases == {}


def test_the_first_resolver_whose_globs_match_is_asked() -> None:
    schedule = Schedule([ORDERS, SHOP])
    schedule.listed([question("order-1"), question("shop-1"), question("other")], 10)
    assert {case.resolver for case in schedule.cases.values()} == {"orders", "shop"}
    assert schedule.doubts() == {"orders": (1, 0, 0), "shop": (1, 0, 0)}


def test_a_source_is_asked_up_to_its_concurrency_and_one_question_at_a_time_while_it_is_down() -> None:
    schedule = Schedule([ORDERS])
    schedule.listed([question(f"order-{number}") for number in range(5)], 10)
    first = schedule.take_work(2_000).to_ask
    assert len(first) == 2
    assert schedule.take_work(2_000).to_ask == []
    for case in first:
        schedule.answered(case, None, "it is down", latency_ms=3, now_ms=2_001)
    assert not schedule.sources["orders"].up
    assert len(schedule.take_work(2_002).to_ask) == 1
    assert schedule.take_work(2_002).to_ask == []


def test_what_waits_for_a_source_that_was_down_is_asked_as_soon_as_it_is_up() -> None:
    schedule = Schedule([ORDERS])
    schedule.listed([question("order-1"), question("order-2")], 10)
    one, two = schedule.take_work(2_000).to_ask
    schedule.answered(one, None, "it is down", latency_ms=3, now_ms=2_001)
    schedule.answered(two, Answer.UNKNOWN, None, latency_ms=3, now_ms=2_002)
    assert [case.key for case in schedule.take_work(2_002).to_ask] == [one.key]


def test_a_decision_is_in_the_journal_before_the_transaction_is_ended() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    asked(schedule, topics, Answer.COMMIT, 2_000)
    again = Schedule([ORDERS])
    again.started(read_journal(topics.state), 3_000)
    again.listed([question("order-1")], 3_000)
    work = again.take_work(3_000)
    assert work.to_ask == []
    assert [case.decision for case in work.to_end] == [schedule.cases[work.to_end[0].key].decision]


def test_counters_survive_a_restart() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    before = asked(schedule, topics, Answer.UNKNOWN, 2_000)
    again = Schedule([ORDERS])
    again.started(read_journal(topics.state), 2_100)
    again.listed([question("order-1")], 2_100)
    assert again.cases[before.key] == before
    assert again.take_work(2_499).to_ask == []
    assert len(again.take_work(2_500).to_ask) == 1


def test_the_next_transaction_of_the_same_pair_is_another_case() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    asked(schedule, topics, Answer.UNKNOWN, 2_000)
    topics.write(schedule.listed([question("order-1", 2_050)], 2_100))
    states = {key.started_ms: (case.state, case.checks) for key, case in schedule.cases.items()}
    assert states == {0: (State.LEAVING, 1), 2_050: (State.WAITING, 0)}


def test_an_end_by_others_is_looked_up_and_recorded_and_a_late_answer_changes_nothing() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    (case,) = schedule.take_work(2_000).to_ask
    topics.write(schedule.listed([], 2_001))
    (leaving,) = schedule.take_work(2_001).to_look_up
    assert schedule.take_work(2_001).to_look_up == []
    topics.write(schedule.looked_up(leaving, "commit", Decider.CLIENT, 2_002))
    topics.write(schedule.answered(case, Answer.ABORT, None, latency_ms=9, now_ms=2_009))
    assert schedule.cases == {}
    assert topics.events() == [("end", "client", "commit"), ("question", "resolver", "None")]
    assert topics.audit[-1]["late"]


def test_a_listing_that_began_before_the_end_does_not_bring_a_transaction_back() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    asked(schedule, topics, Answer.COMMIT, 2_000)
    (case,) = schedule.take_work(2_000).to_end
    topics.write(schedule.ended(case, "commit", 2_001))
    topics.write(schedule.listed([question("order-1")], 2_002))
    assert schedule.cases == {}
    assert all(value is None for key, value in topics.state.items() if key.startswith("transaction/"))


def test_a_contradiction_is_recorded_as_such() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    asked(schedule, topics, Answer.COMMIT, 2_000)
    (case,) = schedule.take_work(2_000).to_end
    topics.write(schedule.ended(case, "abort", 2_001))
    assert (topics.audit[-1]["decision"], topics.audit[-1]["outcome"], topics.audit[-1]["who"]) == (
        "commit",
        "abort",
        "client",
    )


def test_a_parked_transaction_stays_parked_over_a_restart_until_an_administrator_speaks() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    for now_ms in (2_000, 4_000, 8_000):
        asked(schedule, topics, Answer.UNKNOWN, now_ms)
    again = Schedule([ORDERS])
    topics.write(again.started(read_journal(topics.state), 9_000))
    topics.write(again.listed([question("order-1")], 9_000))
    assert again.take_work(10**9).to_ask == []
    topics.write(again.commanded([Command("order-1", "ask-again", None, 9_100)], 9_100))
    assert len(again.take_work(9_100).to_ask) == 1
    assert topics.state["command/order-1"] is None
    assert topics.events()[-2:] == [
        ("decision", "exhausted", "park"),
        ("decision", "administrator", "ask-again"),
    ]


def test_a_command_waits_until_the_transactions_are_listed() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    assert schedule.commanded([Command("order-1", "ask-again", None, 5)], 5) == []
    topics.write(schedule.listed([question("order-1", 0)], 10))
    assert len(schedule.take_work(10).to_ask) == 1


def test_an_administrators_own_end_is_recorded_as_his() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    asked(schedule, topics, Answer.UNKNOWN, 2_000)
    topics.write(schedule.commanded([Command("order-1", "abort", "7:0:order-1", 2_100)], 2_100))
    topics.write(schedule.listed([], 2_200))
    (leaving,) = schedule.take_work(2_200).to_look_up
    topics.write(schedule.looked_up(leaving, "abort", Decider.CLIENT, 2_300))
    assert topics.events()[-1] == ("end", "administrator", "abort")


def test_transactions_of_no_resolver_stay_in_the_journal() -> None:
    schedule, topics = Schedule([ORDERS]), Topics()
    topics.write(schedule.listed([question("order-1")], 10))
    asked(schedule, topics, Answer.UNKNOWN, 2_000)
    before = dict(topics.state)
    other = Schedule([ResolverSettings("other", ("x",), "http")])
    topics.write(other.started(read_journal(topics.state), 3_000))
    topics.write(other.listed([], 3_000))
    kept = {key: value for key, value in topics.state.items() if key.startswith("transaction/")}
    assert kept == {key: value for key, value in before.items() if key.startswith("transaction/")}


def test_records_that_cannot_be_read_are_left_out() -> None:
    journal = read_journal(
        {
            "transaction/7:0:x@1": b"{",
            "transaction/a": b"{}",
            "command/x": b"[]",
            "resolver/y": b'{"ids":1}',
            "z": b"{}",
        }
    )
    assert (journal.cases, journal.commands, journal.resolvers) == ({}, [], {})
    assert journal.left_out_count == 5
    assert str(left_out_words(journal)).startswith("5 records of __fencepost_check_back cannot be read")


NAMES = st.sampled_from(["order-1", "order-2", "shop-1"])


class World(RuleBasedStateMachine):
    """Two sources, a few ids, a cluster that ends transactions once, and a check-back that may crash at any time."""

    @initialize()
    def begin(self) -> None:
        self.now_ms = 10_000
        self.topics = Topics()
        self.open: dict[str, Question] = {}
        self.ends: dict[CaseKey, list[str]] = {}
        self.answers: dict[CaseKey, list[Answer | None]] = {}
        self.restart()

    def restart(self) -> None:
        self.schedule = Schedule([ORDERS, SHOP])
        self.asking: list[Case] = []
        self.ending: list[Case] = []
        self.looking: list[Case] = []
        self.topics.write(self.schedule.started(read_journal(self.topics.state), self.now_ms))

    @rule(name=NAMES)
    def a_transaction_begins(self, name: str) -> None:
        if name not in self.open:
            self.now_ms += 1
            self.open[name] = question(name, self.now_ms)

    @rule(name=NAMES, outcome=st.sampled_from(["commit", "abort"]))
    def its_client_ends_it(self, name: str, outcome: str) -> None:
        self._end(name, outcome)

    def _end(self, name: str, outcome: str) -> None:
        if name in self.open:
            one = self.open.pop(name)
            self.ends.setdefault(CaseKey(one.token, one.started_ms), []).append(outcome)

    @rule(passed_ms=st.integers(0, 3_000))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

    @rule()
    def it_lists(self) -> None:
        self.topics.write(self.schedule.listed(list(self.open.values()), self.now_ms))

    @rule()
    def it_works(self) -> None:
        work = self.schedule.take_work(self.now_ms)
        self.asking += work.to_ask
        self.ending += work.to_end
        self.looking += work.to_look_up

    @precondition(lambda self: self.asking)
    @rule(data=st.data(), answer=st.sampled_from([*Answer, None]))
    def a_source_answers(self, data: st.DataObject, answer: Answer | None) -> None:
        case = self.asking.pop(data.draw(st.integers(0, len(self.asking) - 1)))
        self.answers.setdefault(case.key, []).append(answer)
        self.topics.write(self.schedule.answered(case, answer, None, latency_ms=1, now_ms=self.now_ms))

    @precondition(lambda self: self.ending)
    @rule(data=st.data(), reached=st.booleans())
    def a_coordinator_ends(self, data: st.DataObject, reached: bool) -> None:
        case = self.ending.pop(data.draw(st.integers(0, len(self.ending) - 1)))
        assert case.decision is not None
        assert any(
            record["event"] == "decision" and record["token"] == str(case.question.token)
            for record in self.topics.audit
        ), "it ends what it has not recorded"
        outcome = None
        if reached:
            name = case.question.token.transactional_id
            if self.open.get(name) == case.question:
                self._end(name, case.decision.outcome.value)
            outcome = self.ends[case.key][0]
        self.topics.write(self.schedule.ended(case, outcome, self.now_ms))

    @precondition(lambda self: self.looking)
    @rule(data=st.data(), reached=st.booleans())
    def a_coordinator_is_asked(self, data: st.DataObject, reached: bool) -> None:
        case = self.looking.pop(data.draw(st.integers(0, len(self.looking) - 1)))
        outcome = self.ends[case.key][0] if reached else None
        self.topics.write(self.schedule.looked_up(case, outcome, Decider.CLIENT, self.now_ms))

    @rule(name=NAMES)
    def an_administrator_wants_it_asked(self, name: str) -> None:
        self.topics.write(self.schedule.commanded([Command(name, "ask-again", None, self.now_ms)], self.now_ms))

    @rule()
    def it_crashes(self) -> None:
        self.restart()

    @invariant()
    def no_transaction_is_decided_twice(self) -> None:
        decisions = Counter(
            (record["token"], record["started_ms"])
            for record in self.topics.audit
            if record["event"] == "decision" and record["decision"] in ("commit", "abort")
        )
        assert all(count == 1 for count in decisions.values())
        assert all(len(outcomes) == 1 for outcomes in self.ends.values())

    @invariant()
    def each_decision_is_what_the_source_said_or_what_is_configured(self) -> None:
        for record in self.topics.audit:
            if record["event"] != "decision" or record["decision"] not in ("commit", "abort"):
                continue
            said = self.answers.get(CaseKey(Token.parse(record["token"]), record["started_ms"]), [])
            if record["who"] == "resolver":
                assert Answer(record["decision"]) in said
            else:
                assert record["who"] == "exhausted"
                assert (record["resolver"], record["decision"]) == ("shop", "abort")
                assert said.count(Answer.UNKNOWN) >= SHOP.checks_max

    @invariant()
    def no_more_checks_are_counted_than_the_source_said_unknown(self) -> None:
        for key, case in self.schedule.cases.items():
            assert case.checks <= self.answers.get(key, []).count(Answer.UNKNOWN)
            assert case.checks <= self.schedule.sources[case.resolver].settings.checks_max

    @invariant()
    def nothing_open_is_given_up_without_a_word(self) -> None:
        for name, one in self.open.items():
            key = CaseKey(one.token, one.started_ms)
            case = self.schedule.cases.get(key)
            if case is not None and case.state is State.PARKED:
                assert case.checks == self.schedule.sources[case.resolver].settings.checks_max, name


TestAnyOrder = World.TestCase
TestAnyOrder.settings = hypothesis_settings(max_examples=80, stateful_step_count=60, deadline=None)
