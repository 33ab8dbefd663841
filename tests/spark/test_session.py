"""A driver's session fences the one before it, and keeps the sink's ledger."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from fencepost.spark import sweep
from fencepost.spark.decision_topic import OPEN_TIMEOUT_S
from fencepost.spark.decisions import (
    MOST_WRITTEN_BYTES,
    Batch,
    Decision,
    DriverReplaced,
    LedgerChanged,
    NotPreparedAnyMore,
    SinkInUse,
    TooManyTasks,
)
from fencepost.spark.names import driver_id
from fencepost.spark.session import Session
from fencepost.two_phase import Token
from tests.spark.run import QUERY, QUIET, Run, clients_are_closed, new_run  # noqa: F401
from tests.support.conditions import until
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

pytestmark = pytest.mark.integration


@pytest.fixture
def run(fencepost: Any) -> Run:
    return new_run(fencepost)


def test_a_decision_with_as_many_names_as_it_may_have_is_read_again(run: Run) -> None:
    names = (f"{run.sink}-3f9a1c02-{number}-{number}" for number in range(27_000))
    tokens = tuple(Token(10_000 + number, 0, name) for number, name in enumerate(names))
    decision = Decision("a1b2c3d4", Batch(QUERY, 0), tokens, rows=len(tokens))
    assert 1_000_000 < len(decision.value()) <= MOST_WRITTEN_BYTES  # more than the topic takes uncompressed
    deciding = Session(run.options, run.sink)
    deciding.decide(decision, check=list)
    deciding.close()
    reading = Session(run.options, run.sink)
    assert reading.latest.decision == decision
    reading.close()


def test_a_decision_with_more_names_is_refused_before_anything_is_written(run: Run) -> None:
    tokens = tuple(Token(number, 0, f"{run.sink}-3f9a1c02-{number}-{number}") for number in range(40_000))
    session = Session(run.options, run.sink)
    with pytest.raises(TooManyTasks):
        session.decide(Decision("a1b2c3d4", Batch(QUERY, 0), tokens, 1), check=lambda: pytest.fail("it was checked"))
    session.mark_aborted(1)  # the session can be used
    session.close()
    reading = Session(run.options, run.sink)
    assert reading.latest.decision is None
    reading.close()


def test_a_session_that_was_replaced_writes_nothing_more(run: Run) -> None:
    first = Session(run.options, run.sink)
    second = Session(run.options, run.sink)
    with pytest.raises(DriverReplaced, match=f"another driver of the sink '{run.sink}' has taken over"):
        first.mark_aborted(1)
    second.mark_aborted(2)
    first.close()
    second.close()
    reading = Session(run.options, run.sink)
    assert reading.latest.aborted_until_ms == 2
    reading.close()


def ledger_of(run: Run) -> dict[str, dict[str, Any]]:
    """The latest value of each key in a sink's decision topic."""
    found: dict[str, dict[str, Any]] = {}
    for record in run.broker.records(run.options.decision_topic(run.sink)):
        found[record.key.decode()] = json.loads(record.value)
    return found


def topic_id(run: Run) -> str:
    session = Session(run.options, run.sink)
    session.close()
    assert session.ledger is not None
    return session.ledger


def delete_ledger(run: Run) -> None:
    admin = AdminClient({"bootstrap.servers": run.broker.bootstrap_servers})
    topic = run.options.decision_topic(run.sink)
    admin.delete_topics([topic])[topic].result(30)
    for client, _ in run.kept.values():
        client.close()
    run.kept.clear()


def test_a_ledger_names_its_query_and_its_topic(run: Run) -> None:
    run.write(0, "a")
    found = ledger_of(run)
    ledger = topic_id(run)
    assert found[f"{run.sink}/owner"]["query"] == run.query
    assert found[f"{run.sink}/owner"]["ledger"] == found[run.sink]["ledger"] == ledger
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", ledger), "as Kafka writes ids"


def test_a_sink_whose_ledger_was_deleted_writes_nothing_until_it_is_reset(run: Run) -> None:
    run.write(0, "a")
    run.write(1, "b")
    delete_ledger(run)
    rerun = run.again()
    with pytest.raises(LedgerChanged, match="the topic was deleted") as refused:
        rerun.write(1, "b")
    with pytest.raises(LedgerChanged):
        run.again().write(1, "b")
    with pytest.raises(LedgerChanged):
        sweep({"kafka.bootstrap.servers": run.broker.bootstrap_servers, "sink": run.sink, **QUIET})
    assert run.values() == ["a", "b"]
    ledger = topic_id(run)
    assert f"'sink.reset' to '{ledger}'" in str(refused.value)
    resetting = run.again(**{"sink.reset": ledger, "sink.reason": "compared with the source"})
    resetting.write(1, "b again")
    assert run.values() == ["a", "b", "b again"]
    assert run.open() == [], "those of the refused tasks are swept"
    override = ledger_of(run)[f"{run.sink}/override/{ledger}"]
    assert override["option"] == "sink.reset"
    assert override["reason"] == "compared with the source"
    assert override["user"]
    assert override["host"]
    last = run.again(**{"sink.reset": ledger})
    last.write(1, "b once more")
    last.write(2, "c")
    assert run.values() == ["a", "b", "b again", "c"]
    delete_ledger(last)
    with pytest.raises(LedgerChanged):
        run.again(**{"sink.reset": ledger}).write(2, "c")


def test_a_sink_that_has_failed_before_it_decided_may_go_on(run: Run) -> None:
    for _ in range(2):
        run.again().abort([*run.again().tasks(0, "a")])
    rerun = run.again()
    rerun.write(0, "a")
    assert rerun.values() == ["a"]


def test_a_copy_of_a_ledger_is_refused_by_name(run: Run, fencepost: Any) -> None:
    run.write(0, "a")
    run.write(1, "b")
    copy = fencepost.topic(f"copy-for-{run.sink}", configs={"cleanup.policy": "compact"})
    for record in fencepost.records(run.options.decision_topic(run.sink)):
        fencepost.produce(copy, record.value.decode(), key=record.key.decode())
    decision_id = run.decision_id()
    copied = {"decision.topic": copy}
    with pytest.raises(LedgerChanged, match="is a copy of it") as refused:
        run.again(**copied).write(2, "c")
    assert decision_id in str(refused.value)
    with pytest.raises(LedgerChanged):
        run.again(**copied).write(1, "b")
    run.again(**copied, **{"sink.accept": decision_id}).write(1, "b")
    accepting = run.again(**copied, **{"sink.accept": decision_id})
    accepting.write(2, "c")
    run.again(**copied).write(3, "d")
    assert run.values() == ["a", "b", "c", "d"]


def test_a_ledger_of_an_earlier_moment_is_refused_by_the_batches_that_are_missing(run: Run) -> None:
    run.write(0, "a")
    decision_id = run.decision_id()
    with pytest.raises(LedgerChanged, match=r"batch 3 of query .* the latest decision .* batch 0 of query") as refused:
        run.again().write(3, "d")
    assert decision_id in str(refused.value)
    run.again(**{"sink.accept": decision_id}).write(3, "d")
    run.again().write(4, "e")
    assert run.values() == ["a", "d", "e"]
    assert ledger_of(run)[f"{run.sink}/override/{decision_id}"]["option"] == "sink.accept"


def test_batches_without_rows_leave_no_gap(run: Run) -> None:
    run.write(0, "a")
    for number in (1, 2):
        run.commit(number, [run.task(number, 0, [])])
    rerun = run.again()
    rerun.commit(2, [rerun.task(2, 0, [])])
    rerun.write(3, "d")
    assert run.values() == ["a", "d"]
    assert run.open() == []


def test_a_ledger_of_an_earlier_version_may_have_gaps(run: Run) -> None:
    topic_id(run)
    stored = {"batch": 3, "query": run.query, "tokens": [], "rows": 2, "prepare_ms": 1, "id": "a1b2c3d4"}
    run.broker.produce(run.options.decision_topic(run.sink), json.dumps(stored), key=run.sink)
    run.write(5, "a")
    assert run.values() == ["a"]


def test_a_second_query_is_refused_before_the_first_one_has_decided(run: Run) -> None:
    session = Session(run.options, run.sink)
    session.open_ledger(Batch(run.query, 0), run.query)
    session.close()
    other = run.again()
    other.query = "another"
    with pytest.raises(SinkInUse, match=f"the query {run.query} has begun to write with") as refused:
        other.tasks(0, "a")
    owner_id = ledger_of(run)[f"{run.sink}/owner"]["id"]
    assert owner_id in str(refused.value)
    resetting = run.again(**{"sink.reset": owner_id})
    resetting.query = "another"
    resetting.write(0, "a")
    assert run.values() == ["a"]
    with pytest.raises(SinkInUse):
        run.again().tasks(0, "b")


def test_a_dead_drivers_decision_is_ended_by_time_before_others_of_the_topic_fail(run: Run) -> None:
    session = Session(run.options, run.sink)
    session.producer.begin_transaction()
    session.producer.produce(run.options.decision_topic(run.sink), key="x", value=b"{}", partition=0)
    session.producer.flush(30)
    described = session.coordinator.describe(driver_id(run.sink))
    session.close()
    assert described is not None
    # Brokers look every 10 s.
    assert described.timeout_ms / 1000 + 10 < OPEN_TIMEOUT_S


def test_what_time_is_about_to_end_is_not_decided_and_the_batch_runs_again(fencepost: Any) -> None:
    run = new_run(fencepost, **{"kafka.transaction.timeout.ms": "6000", "kafka.delivery.timeout.ms": "5000"})
    reports = run.tasks(0, "a", "b")
    with run.coordinator() as coordinator:
        until(lambda: min(found.age_ms for found in coordinator.in_doubt(f"{run.sink}-.*")) > 3_000)
    with pytest.raises(NotPreparedAnyMore, match="would soon be ended by the transactions' time-out"):
        run.commit(0, reports)
    assert (run.values(), run.open()) == ([], [])
    run.again().write(0, "a", "b")
    assert run.values() == ["a", "b"]


def test_the_drivers_transactions_end_by_time_before_those_of_tasks(fencepost: Any) -> None:
    run = new_run(fencepost, **{"kafka.socket.timeout.ms": "60000"})
    (report,) = run.tasks(0, "a")
    assert report.token is not None
    run.commit(0, [report])
    with run.coordinator() as coordinator:
        described = [coordinator.describe(name) for name in (driver_id(run.sink), report.token.transactional_id)]
    assert [one and one.timeout_ms for one in described] == [60_000, 900_000]
