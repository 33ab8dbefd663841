"""The check-back of a broker process: its source is a service of the test, and the broker is killed in between."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from fencepost.check_back.case import Case, Decider, Decision, State
from fencepost.check_back.case import Outcome as CaseOutcome
from fencepost.check_back.question import Question
from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, Journal, case_entry, read_journal
from fencepost.check_back.resolvers.record import CLOCK_SKEW_MS
from fencepost.cli.commands import fencepost
from fencepost.two_phase import Coordinator, Outcome, Token, confluent_producer, prepare
from tests.support.answering_source import AnsweringSource
from tests.support.broker_process import BrokerProcess
from tests.support.committed_records import committed_records
from tests.support.conditions import until
from tests.support.decision_topic import KEY, create_decisions, write_decision

pytestmark = pytest.mark.integration

Prepare = Callable[[str], Token]


def settings_for(source: AnsweringSource, **more: str) -> dict[str, str]:
    of_orders = {"type": "http", "ids": "order-*", "url": source.url, "first.ms": "0", "interval.ms": "200"}
    of_orders |= {"backoff": "1", "timeout.ms": "30000"} | {name.replace("_", "."): text for name, text in more.items()}
    return {
        "transaction.two.phase.commit.enable": "true",
        "fencepost.check.back.resolvers": "orders",
        **{f"fencepost.check.back.orders.{name}": text for name, text in of_orders.items()},
    }


@pytest.fixture
def source() -> Iterator[AnsweringSource]:
    with AnsweringSource() as source:
        yield source


@pytest.fixture
def producers() -> list[Any]:
    """Kept until the end, as an application that hangs keeps its own."""
    return []


def prepared(broker: BrokerProcess, producers: list[Any], name: str) -> Token:
    """Prepare a transaction with one record; its producer stays away from then on."""
    producer: Producer = confluent_producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producers.append(producer)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("out", name.encode(), partition=0)
    return prepare(producer)


def run(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(fencepost, ["transactions", *arguments, "--bootstrap", broker.bootstrap])


def audit(broker: BrokerProcess) -> list[Any]:
    return [json.loads(record.value) for record in committed_records(broker.bootstrap, AUDIT_TOPIC)]


def committed(broker: BrokerProcess) -> list[bytes]:
    """The committed values. Of a transaction that has ended they may come a moment later: with its markers."""
    return [one.value for one in committed_records(broker.bootstrap, "out")]


def journal(broker: BrokerProcess) -> Journal:
    return read_journal(
        {record.key.decode(): record.value for record in committed_records(broker.bootstrap, STATE_TOPIC)}
    )


@pytest.mark.parametrize(("answer", "left"), [("commit", [b"order-1"]), ("abort", [])])
def test_a_prepared_transaction_is_ended_as_its_source_says(
    tmp_path: Path, source: AnsweringSource, producers: list[Any], answer: str, left: list[bytes]
) -> None:
    source.answer = answer
    with BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker:
        with source.silent():
            token = prepared(broker, producers, "order-1")
        ended = until(lambda: [one for one in audit(broker) if one["event"] == "end"])
        until(lambda: committed(broker) == left)
        assert source.asked == [str(token)]
        events = [(one["event"], one["who"], one.get("answer"), one.get("decision")) for one in audit(broker)]
        assert events == [
            ("question", "resolver", answer, None),
            ("decision", "resolver", answer, answer),
            ("end", "resolver", None, answer),
        ]
        assert ended[0]["outcome"] == answer
        assert (ended[0]["token"], ended[0]["partitions"]) == (str(token), ["out-0"])
        until(lambda: not journal(broker).cases)


def test_its_ids_are_two_phase_by_name_and_no_time_out_ends_them(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    with (
        BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker,
        Coordinator(broker.bootstrap) as coordinator,
    ):
        prepared(broker, producers, "order-1")
        prepared(broker, producers, "other-1")
        by_id = {one.token.transactional_id: one.is_two_phase for one in coordinator.in_doubt()}
        assert by_id == {"order-1": True, "other-1": False}


def test_a_broker_that_is_killed_between_questions_counts_on_where_it_was(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    settings = settings_for(source, checks_max="4")
    source.hangs_after = 2
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        prepared(broker, producers, "order-1")
        until(lambda: [one for one in journal(broker).cases.values() if one.checks == 2])
        until(lambda: len(source.asked) == 3)
        broker.kill()
        source.hangs_after = None
        broker.start()
        parked = until(lambda: [one for one in journal(broker).cases.values() if one.is_parked])
        assert parked[0].checks == 4
        # What was asked and not answered before the kill is asked again, and nothing more than that.
        assert len(source.asked) == 5
        broker.wait_for_output("transaction_parked")
        assert [one["decision"] for one in audit(broker) if one["event"] == "decision"] == ["park"]
        broker.restart_after_kill()
        asked = len(source.asked)
        with Coordinator(broker.bootstrap) as coordinator:
            assert coordinator.in_doubt()
        time.sleep(2.5)  # longer than it takes to look at all transactions twice
        assert len(source.asked) == asked


def test_a_broker_that_is_killed_between_the_question_and_the_answer_asks_again(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    source.answer = None
    with BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker:
        token = prepared(broker, producers, "order-1")
        until(lambda: source.asked)
        broker.kill()
        source.answer = "commit"
        broker.start()
        until(lambda: [one for one in audit(broker) if one["event"] == "end"])
        assert source.asked == [str(token), str(token)]
        until(lambda: committed(broker) == [b"order-1"])
        assert [one["decision"] for one in audit(broker) if one["event"] == "decision"] == ["commit"]


def test_a_broker_that_is_killed_between_the_decision_and_the_end_carries_it_out_and_asks_nobody(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    source.answer = None
    with BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker:
        prepared(broker, producers, "order-1")
        until(lambda: source.asked)
        (case,) = until(lambda: _asked_cases(broker, source))
        # As a broker leaves it that ends right after it has recorded the decision.
        decided = dataclasses.replace(case, decision=Decision(CaseOutcome.COMMIT, Decider.RESOLVER))
        entry = case_entry(decided)
        writer = Producer({"bootstrap.servers": broker.bootstrap})
        writer.produce(STATE_TOPIC, entry.encoded_value(), entry.key, partition=0)
        assert writer.flush(60) == 0
        broker.restart_after_kill()
        (end,) = until(lambda: [one for one in audit(broker) if one["event"] == "end"])
        assert (end["outcome"], end["who"], end["decision"]) == ("commit", "resolver", "commit")
        until(lambda: committed(broker) == [b"order-1"])
        assert len(source.asked) == 1


def _asked_cases(broker: BrokerProcess, source: AnsweringSource) -> list[Case]:
    """The case that the source is asked about, as it would be recorded."""
    with Coordinator(broker.bootstrap) as coordinator:
        found = coordinator.in_doubt()
    return [
        Case(Question(one.token, one.start_ms, (("out", 0),)), "orders", State.DECIDED, next_ms=0)
        for one in found
        if str(one.token) in source.asked
    ]


def test_a_source_that_hangs_decides_nothing_and_counts_as_no_check(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    source.answer = None
    with BrokerProcess(tmp_path / "data", settings=settings_for(source, checks_max="1", timeout_ms="500")) as broker:
        prepared(broker, producers, "order-1")
        until(lambda: len(source.asked) >= 3)
        broker.wait_for_output("resolver_unreachable")
        assert [(one.checks, one.is_parked) for one in journal(broker).cases.values()] == [(0, False)]
        assert {one["answer"] for one in audit(broker)} == {"unreachable"}
        until(lambda: not journal(broker).resolvers["orders"].up)
        source.answer = "abort"
        until(lambda: [one for one in audit(broker) if one["event"] == "end"])
        until(lambda: journal(broker).resolvers["orders"].up)


def test_the_client_that_ends_its_transaction_first_is_the_one_that_ended_it(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    with BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker:
        token = prepared(broker, producers, "order-1")
        until(lambda: source.asked)
        with Coordinator(broker.bootstrap) as coordinator:
            coordinator.complete(token, commit=True)
        (end,) = until(lambda: [one for one in audit(broker) if one["event"] == "end"])
        assert (end["who"], end["outcome"], end["decision"]) == ("client", "commit", None)


def test_a_clients_end_beside_the_answer_has_one_outcome(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    """Ten times, the client and the check-back end a transaction at about the same time, with the same outcome."""
    source.answer = "commit"
    names = [f"order-{number}" for number in range(10)]
    with (
        BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker,
        Coordinator(broker.bootstrap) as coordinator,
    ):
        for name in names:
            with source.silent():
                token = prepared(broker, producers, name)
            if int(name[-1]) % 2:
                until(lambda token=token: str(token) in source.asked)  # type: ignore[misc]
            coordinator.complete(token, commit=True)
            assert coordinator.outcome(token) is Outcome.COMMITTED
        until(lambda: sorted(committed(broker)) == [name.encode() for name in names])
        assert "outcome_contradicts_decision" not in broker.output


@pytest.mark.parametrize("command", ["ask-again", "commit", "abort"])
def test_a_parked_transaction_is_resolved_by_a_command(
    tmp_path: Path, source: AnsweringSource, producers: list[Any], command: str
) -> None:
    with BrokerProcess(tmp_path / "data", settings=settings_for(source, checks_max="1")) as broker:
        token = prepared(broker, producers, "order-1")
        broker.wait_for_output("transaction_parked")
        (row,) = json.loads(run(broker, "list", "--in-doubt", "--json").stdout)
        assert (row["resolver"], row["checks"], row["last_answer"], row["next_question"], row["parked"]) == (
            "orders",
            1,
            "unknown",
            None,
            "yes",
        )
        source.answer = "commit"
        more = [] if command == "ask-again" else ["--yes"]
        done = run(broker, command, "order-1", *more)
        assert done.exit_code == 0, done.output
        (end,) = until(lambda: [one for one in audit(broker) if one["event"] == "end"])
        outcome = "abort" if command == "abort" else "commit"
        by = "resolver" if command == "ask-again" else "administrator"
        assert (end["token"], end["outcome"], end["who"]) == (str(token), outcome, by)
        decisions = [(one["who"], one["decision"]) for one in audit(broker) if one["event"] == "decision"]
        assert decisions == [("exhausted", "park"), ("administrator", command)] + (
            [("resolver", "commit")] if command == "ask-again" else []
        )
        until(lambda: not journal(broker).commands)
        again = run(broker, "ask-again", "order-1")
        assert again.exit_code == 1
        assert "order-1 has no open transaction" in again.stderr


def test_asking_again_says_when_nobody_can_be_asked(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    with BrokerProcess(tmp_path / "data", settings=settings_for(source)) as broker:
        prepared(broker, producers, "other-1")
        refused = run(broker, "ask-again", "other-1")
        assert refused.exit_code == 1
        assert "no check-back asks about other-1" in refused.stderr


def test_a_committed_record_of_this_broker_decides(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    settings = settings_for(source, type="record", topic="decisions", key=KEY.decode(), checks_max="1000")
    del settings["fencepost.check.back.orders.url"]
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        create_decisions(broker.bootstrap, "decisions")
        listed, left_out = (prepared(broker, producers, name) for name in ("order-listed", "order-left-out"))
        until(lambda: len({one["id"] for one in audit(broker) if one["answer"] == "unknown"}) == 2)
        write_decision(broker.bootstrap, "decisions", [left_out], committed=False)
        time.sleep(CLOCK_SKEW_MS / 1000)  # what began so shortly before a decision may have begun after it
        write_decision(broker.bootstrap, "decisions", [listed])
        until(lambda: len([one for one in audit(broker) if one["event"] == "end"]) == 2)
        outcomes = {one["id"]: one["outcome"] for one in audit(broker) if one["event"] == "end"}
        assert outcomes == {listed.transactional_id: "commit", left_out.transactional_id: "abort"}
        until(lambda: committed(broker) == [b"order-listed"])


def test_settings_that_cannot_work_are_refused_at_the_start_in_words(tmp_path: Path, source: AnsweringSource) -> None:
    settings = settings_for(source) | {"transaction.two.phase.commit.enable": "false"}
    with pytest.raises(RuntimeError, match=r"needs\s+transaction.two.phase.commit.enable=true"):
        BrokerProcess(tmp_path / "data", settings=settings).start()
    settings = settings_for(source) | {"fencepost.check.back.orders.urll": "x"}
    with pytest.raises(
        RuntimeError, match=r"--set: fencepost\.check\.back\.orders\.urll: unknown setting of a resolver"
    ):
        BrokerProcess(tmp_path / "data", settings=settings).start()
