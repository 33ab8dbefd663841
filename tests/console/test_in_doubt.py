"""In doubt: what the check-back's records come to as words, and a person's decisions against a broker process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.check_back.case import Case, Decider, Decision, Outcome, State
from fencepost.check_back.question import Answer, Question
from fencepost.check_back.records import (
    AUDIT_TOPIC,
    STATE_TOPIC,
    TOPIC_CONFIGS,
    Command,
    Entry,
    asked_entry,
    case_entry,
    command_entry,
    decided_entry,
    ended_entry,
    read_journal,
    resolver_entry,
)
from fencepost.check_back.settings import ResolverSettings
from fencepost.console.in_doubt import doubts, history_line
from fencepost.diagnosis.in_doubt import Doubt
from fencepost.diagnosis.stuck import UNLIMITED_TIMEOUT_MS, CoordinatorView
from fencepost.two_phase.tokens import Token
from tests.console.running import RunningConsole, change, csrf_in, get_json, look, options_for, text_of
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until

NOW_MS = 1_764_000_100_000
STARTED_MS = NOW_MS - 100_000
TOKEN = Token(7, 0, "order-1")
QUESTION = Question(TOKEN, STARTED_MS, (("orders", 0),))
ORDERS = ResolverSettings("orders", ("order-*",), "http", {"url": "https://secret.internal/{token}"}, first_ms=120_000)
VIEW = CoordinatorView("order-1", "Ongoing", 7, 0, UNLIMITED_TIMEOUT_MS, STARTED_MS, (("orders", 0),))


def journal(*entries: Entry) -> Any:
    return read_journal({entry.key: entry.encoded_value() for entry in entries})


def only(view: CoordinatorView, *entries: Entry) -> Doubt:
    (found,) = doubts([view], journal(*entries), NOW_MS)
    return found


def case(**changes: Any) -> Entry:
    return case_entry(
        Case(**{"question": QUESTION, "resolver": "orders", "state": State.WAITING, "next_ms": 0, **changes})
    )


UP = resolver_entry(ORDERS, up=True, reason=None, since_ms=0)


def test_a_transaction_without_a_source_waits_for_its_client() -> None:
    found = only(VIEW)
    assert found.next_words == "no source is asked: its client decides, or an administrator"
    assert (found.resolver, found.age_ms, found.can_be_asked) == (None, 100_000, False)


def test_what_comes_next_is_said_for_each_state_of_a_case() -> None:
    said = {
        "before the first question": only(VIEW, UP).next_words,
        "waiting": only(VIEW, UP, case(next_ms=NOW_MS + 46_000)).next_words,
        "due": only(VIEW, UP, case(next_ms=NOW_MS - 1)).next_words,
        "parked": only(VIEW, UP, case(state=State.PARKED, is_parked=True)).next_words,
        "decided": only(
            VIEW, UP, case(state=State.DECIDED, decision=Decision(Outcome.COMMIT, Decider.RESOLVER))
        ).next_words,
        "wanted": only(
            VIEW, UP, case(is_parked=True), command_entry(Command("order-1", "ask-again", str(TOKEN), 1))
        ).next_words,
    }
    assert said == {
        "before the first question": "the next question in 20 s",
        "waiting": "the next question in 46 s",
        "due": "the next question is due",
        "parked": "parked: an administrator decides",
        "decided": "decided by the resolver: commit; it is being ended",
        "wanted": "the source is asked at once",
    }


def test_a_source_that_does_not_answer_is_named_with_the_reason() -> None:
    down = resolver_entry(ORDERS, up=False, reason="resolver orders: the service answered 500", since_ms=1)
    found = only(VIEW, down, case(checks=3, last_answer=Answer.UNKNOWN))
    assert found.resolver_error == "resolver orders: the service answered 500"
    assert (found.checks, found.checks_max, found.last_answer) == (3, 15, "unknown")


def test_only_open_transactions_that_somebody_else_decides_are_in_doubt() -> None:
    with_time_out = CoordinatorView("order-1", "Ongoing", 7, 0, 60_000, STARTED_MS, ())
    ended = CoordinatorView("order-1", "CompleteCommit", 7, 0, UNLIMITED_TIMEOUT_MS, STARTED_MS, ())
    other = CoordinatorView("till-1", "Ongoing", 8, 0, 60_000, STARTED_MS, ())
    assert [one.transactional_id for one in doubts([with_time_out, ended, other], journal(UP), NOW_MS)] == ["order-1"]
    assert doubts([with_time_out, ended, other], journal(), NOW_MS) == []


def test_what_is_known_of_an_earlier_transaction_of_the_same_pair_does_not_count() -> None:
    later = CoordinatorView("order-1", "Ongoing", 7, 0, UNLIMITED_TIMEOUT_MS, STARTED_MS + 1, ())
    assert only(later, UP, case(checks=9, is_parked=True)).checks == 0


def test_the_history_says_questions_decisions_and_ends_in_words() -> None:
    asked = Case(QUESTION, "orders", State.ASKING, 0, checks=2)
    decision = Decision(Outcome.COMMIT, Decider.RESOLVER)
    decided = Case(QUESTION, "orders", State.DECIDED, 0, last_answer=Answer.COMMIT, decision=decision)
    entries = [
        asked_entry(asked, Answer.UNKNOWN, None, latency_ms=40, now_ms=1),
        asked_entry(asked, None, "it is closed", latency_ms=0, now_ms=2),
        asked_entry(asked, Answer.ABORT, None, latency_ms=3, now_ms=3, late=True),
        decided_entry(asked, "park", Decider.EXHAUSTED, 4),
        decided_entry(asked, "ask-again", Decider.ADMINISTRATOR, 5),
        decided_entry(decided, "commit", Decider.RESOLVER, 6),
        ended_entry(decided, "commit", Decider.RESOLVER, 7),
        ended_entry(decided, "abort", Decider.ADMINISTRATOR, 8),
    ]
    lines = [history_line(entry.encoded_value() or b"") for entry in entries]
    assert [(line.time_ms, line.kind, line.what) for line in lines if line] == [
        (1, "question", "orders said unknown, after 40 ms, 2 checks"),
        (2, "question", "orders could not be asked: it is closed, after 1 ms"),
        (3, "question", "orders said abort, after 3 ms, too late to count"),
        (4, "decision", "the setting for exhausted transactions parked"),
        (5, "decision", "the administrator asked for another question"),
        (6, "decision", "the resolver decided commit"),
        (7, "end", "committed, by the resolver"),
        (8, "end", "aborted, by the administrator, though commit was decided"),
    ]


@pytest.mark.parametrize("fields", [{}, {"time_ms": "1", "event": "end"}, {"time_ms": 1, "event": "other"}])
def test_a_record_of_another_form_is_left_out(fields: Mapping[str, Any]) -> None:
    assert history_line(json.dumps(fields).encode()) is None


# Against a broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "num.partitions": "1",
        "transaction.two.phase.commit.enable": "true",
        "fencepost.two.phase.transactional.ids": "order-*,till-*",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", settings=settings) as process:
        yield process
        assert "Traceback" not in process.output, process.output


@pytest.fixture(scope="module")
def browser(broker: BrokerProcess) -> Iterator[httpx.Client]:
    with RunningConsole(options_for(broker)) as console, console.browser() as client:
        yield client


def prepared(broker: BrokerProcess, transactional_id: str, topic: str) -> Producer:
    """A producer with a record that is flushed and not committed."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, transactional_id)
    producer.flush(60)
    return producer


def fields_of(browser: httpx.Client, transactional_id: str) -> dict[str, str]:
    doubt = get_json(browser, f"/in-doubt/transaction?id={transactional_id}")["doubt"]
    return {"id": transactional_id, "token": doubt["token"], "started_ms": str(doubt["started_ms"])}


def committed(broker: BrokerProcess, topic: str) -> list[str]:
    """What a read_committed reader gets up to the end."""
    options = {"group.id": topic, "auto.offset.reset": "earliest", "enable.partition.eof": True, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "isolation.level": "read_committed", **options})
    consumer.subscribe([topic])
    found, deadline_s = [], time.monotonic() + 60
    while time.monotonic() < deadline_s:
        record = consumer.poll(0.2)
        if record is None:
            continue
        if record.error() is not None:
            break  # the end
        found.append(record.value().decode())
    consumer.close()
    return found


@pytest.fixture
def check_back_topics(broker: BrokerProcess) -> None:
    """The topics that a check-back makes."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = [NewTopic(name, 1, 1, config=dict(configs)) for name, configs in TOPIC_CONFIGS.items()]
    known = admin.list_topics(timeout=60).topics
    for future in admin.create_topics([one for one in wanted if one.topic not in known] or [wanted[0]]).values():
        if not set(TOPIC_CONFIGS) <= set(known):
            future.result(60)


def write(broker: BrokerProcess, *entries: Entry) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for entry in entries:
        producer.produce(entry.topic, entry.encoded_value(), entry.key)
    producer.flush(60)


def records(broker: BrokerProcess, topic: str) -> list[tuple[str, Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reads-records",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[tuple[str, Any]] = []
    while True:
        record = consumer.poll(60)
        assert record is not None
        if record.error() is not None:
            break
        found.append((record.key().decode(), json.loads(record.value()) if record.value() else None))
    consumer.close()
    return found


@pytest.mark.integration
@pytest.mark.parametrize(("outcome", "read"), [("commit", ["till-{0}"]), ("abort", [])])
def test_a_person_decides_and_both_audits_have_it(
    broker: BrokerProcess, browser: httpx.Client, check_back_topics: None, outcome: str, read: list[str]
) -> None:
    name, topic = f"till-{outcome}", f"decided-{outcome}"
    prepared(broker, name, topic)
    row = next(
        row for row in get_json(browser, "/in-doubt")["listing"]["rows"] if row["doubt"]["transactional_id"] == name
    )
    assert row["held"] == 1
    assert row["doubt"]["is_two_phase"]
    page = text_of(browser.get(f"/in-doubt/transaction?id={name}").text)
    assert "No source is asked: its client decides, or an administrator." in page
    answer = change(browser, "decide-in-doubt", name, **fields_of(browser, name), outcome=outcome)
    assert answer.status_code == 200
    said = text_of(answer.text)
    assert f"The transaction of {name} was {'committed' if outcome == 'commit' else 'aborted'}." in said
    assert "This transactional id has nothing in doubt." in said
    assert f"the administrator decided {outcome}" in said
    assert committed(broker, topic) == [one.format(outcome) for one in read]
    assert any(
        key == f"command/{name}" and value["command"] == outcome for key, value in records(broker, STATE_TOPIC) if value
    )
    assert any(
        (key, value["who"], value.get("decision")) == (name, "administrator", outcome)
        for key, value in records(broker, AUDIT_TOPIC)
    )


@pytest.mark.integration
def test_a_decision_about_another_transaction_than_the_one_seen_is_refused(
    broker: BrokerProcess, browser: httpx.Client
) -> None:
    producer = prepared(broker, "order-again", "again")
    seen = fields_of(browser, "order-again")
    producer.commit_transaction(60)
    form = {"csrf": csrf_in(browser.get("/topics").text), **seen, "outcome": "abort", "typed_name": "order-again"}
    deadline_s = time.monotonic() + 60
    while "not in doubt any more" not in (said := text_of(browser.post("/change/decide-in-doubt", data=form).text)):
        assert time.monotonic() < deadline_s, said
    producer.begin_transaction()
    producer.produce("again", "second")
    producer.flush(60)
    # The client may use its pair again: the start tells them apart.
    answer = browser.post("/change/decide-in-doubt", data=form)
    assert answer.status_code == 422
    assert "has another transaction than the one you saw" in text_of(answer.text)
    producer.commit_transaction(60)
    assert committed(broker, "again") == ["order-again", "second"]


@pytest.mark.integration
def test_only_the_transaction_that_was_seen_is_aborted(broker: BrokerProcess, browser: httpx.Client) -> None:
    producer = prepared(broker, "order-next", "next")
    form = look(browser, "abort-transaction", id="order-next") | {"typed_name": "order-next", "reason": "it is stuck"}
    producer.commit_transaction(60)
    until(lambda: "open transaction" in said_to(browser, form), timeout_s=60)
    producer.begin_transaction()
    producer.produce("next", "second")
    producer.flush(60)
    answer = browser.post("/change/abort-transaction", data=form)
    assert answer.status_code == 409
    assert "The start of the transaction of order-next: " in text_of(answer.text)
    producer.commit_transaction(60)
    assert committed(broker, "next") == ["order-next", "second"]


def said_to(browser: httpx.Client, form: dict[str, str]) -> str:
    return text_of(browser.post("/change/abort-transaction", data=form).text)


@pytest.mark.integration
def test_a_parked_transaction_is_shown_with_its_history_and_can_be_asked_about_again(
    broker: BrokerProcess, browser: httpx.Client, check_back_topics: None
) -> None:
    prepared(broker, "order-parked", "parked")
    seen = fields_of(browser, "order-parked")
    question = Question(Token.parse(seen["token"]), int(seen["started_ms"]), (("parked", 0),))
    parked = Case(question, "orders", State.PARKED, 0, checks=15, last_answer=Answer.UNKNOWN, is_parked=True)
    now_ms = int(time.time() * 1000)
    write(
        broker,
        resolver_entry(ORDERS, up=False, reason="resolver orders: the service at 10.0.0.1:443 <b>", since_ms=now_ms),
        case_entry(parked),
        asked_entry(parked, Answer.UNKNOWN, None, latency_ms=12, now_ms=now_ms),
        decided_entry(parked, "park", Decider.EXHAUSTED, now_ms),
    )
    page = text_of(browser.get("/in-doubt?q=order-parked").text)
    assert "1 transaction parked" in page
    assert "15 of 15" in page
    assert "Resolver orders does not answer: resolver orders: the service at 10.0.0.1:443 <b>." in page
    page = text_of(browser.get("/in-doubt/transaction?id=order-parked").text)
    assert "Parked: an administrator decides." in page
    assert "orders said unknown, after 12 ms, 15 checks" in page
    assert "secret.internal" not in page
    answer = change(browser, "ask-again", "order-parked", **seen)
    assert "The source of order-parked is asked again." in text_of(answer.text)
    assert "The source is asked at once." in text_of(answer.text)
    assert any(
        (key, (value or {}).get("command")) == ("command/order-parked", "ask-again")
        for key, value in records(broker, STATE_TOPIC)
    )
    change(browser, "decide-in-doubt", "order-parked", **seen, outcome="abort")


@pytest.mark.integration
def test_a_console_that_only_reads_shows_no_buttons(broker: BrokerProcess) -> None:
    prepared(broker, "order-shown", "shown")
    with RunningConsole(options_for(broker, read_only=True)) as console, console.browser() as only_reads:
        page = only_reads.get("/in-doubt/transaction?id=order-shown").text
        assert "Open for" in page
        assert "/change/" not in page


@pytest.mark.integration
def test_what_is_not_there_is_said(browser: httpx.Client) -> None:
    assert browser.get("/in-doubt/transaction?id=nobody").status_code == 404
    form = {"csrf": csrf_in(browser.get("/topics").text), "id": "x", "token": "y", "started_ms": "1", "outcome": "both"}
    assert (
        "the outcome must be commit or abort"
        in text_of(browser.post("/change/decide-in-doubt", data=form).text).lower()
    )
