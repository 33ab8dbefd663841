"""The sink's protocol at a broker, without Spark: tasks write, a driver commits or aborts, another run takes over."""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from typing import Any

import confluent_kafka as ck
import pytest

from fencepost.spark import clients, decision_topic, sweep, writing
from fencepost.spark.committing import Committer
from fencepost.spark.decision_topic import DecisionReader, DecisionsHidden
from fencepost.spark.decisions import (
    Batch,
    DriverReplaced,
    Latest,
    NotPreparedAnyMore,
    Save,
    SinkInUse,
    SinkUsedTwice,
    require_prepared,
)
from fencepost.spark.messages import Chunk
from fencepost.spark.names import draw_nonce, driver_id, one_off_sink
from fencepost.spark.options import Mode
from fencepost.spark.session import Session
from fencepost.spark.writing import RecordRefused, Task, TaskReport, write
from fencepost.two_phase import Coordinator, HeuristicOutcome, NotPrepared, Token
from tests.spark.run import (  # noqa: F401
    QUERY,
    QUIET,
    Run,
    attempts,
    clients_are_closed,
    kept_by_runs,
    new_run,
    sinks,
    tokens,
)
from tests.support.refused_connections import refused_connections_are_closed  # noqa: F401

pytestmark = pytest.mark.integration


@pytest.fixture
def run(fencepost: Any) -> Run:
    return new_run(fencepost)


def test_a_batch_is_seen_when_it_is_committed(run: Run) -> None:
    reports = run.tasks(0, "a", "b")
    assert run.values() == []
    run.commit(0, reports)
    run.write(1, "c", "d", "e")
    assert run.values() == ["a", "b", "c", "d", "e"]
    assert run.open() == []


def test_tasks_of_one_run_of_a_batch_read_the_decisions_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Counting(DecisionReader):
        def latest(self, sink: str, **options: Any) -> Latest:
            read.append(sink)
            return super().latest(sink, **options)

    monkeypatch.setattr(writing, "DecisionReader", Counting)
    for nonce in ("3f9a1c02", "77a0b1c2"):  # the second one repeats the batch
        for partition in range(3):
            run.task(0, partition, ["a"], nonce=nonce)
    assert read == [run.sink] * 2


def test_a_task_without_rows_opens_no_transaction(run: Run) -> None:
    report = run.task(0, 0, [])
    assert report.token is None
    run.commit(0, [report])
    assert run.values() == []
    assert run.open() == []


def test_a_batch_that_was_decided_is_not_written_again(run: Run) -> None:
    run.write(0, "a", "b")
    rerun = run.again()
    reports = rerun.tasks(0, "a", "b")
    assert tokens(reports) == []
    rerun.commit(0, reports)
    assert rerun.values() == ["a", "b"]


def test_what_was_decided_and_not_completed_is_completed_by_the_next_run(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = run.tasks(0, "a", "b")

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_complete", die)
        with pytest.raises(KeyboardInterrupt):
            run.commit(0, reports)
    assert len(run.open()) == 2
    rerun = run.again()
    rerun.commit(0, rerun.tasks(0, "a", "b"))
    assert rerun.values() == ["a", "b"]
    assert rerun.open() == []


def test_tasks_that_did_not_know_of_the_decision_are_aborted(run: Run) -> None:
    late = run.tasks(0, "a", "b")
    run.write(0, "a", "b")
    run.commit(0, late)
    assert run.values() == ["a", "b"]
    assert run.open() == []


def test_a_lost_copy_of_a_task_and_a_dead_run_are_swept(run: Run) -> None:
    run.tasks(0, "a", "b")  # and the run dies
    rerun = run.again()
    rerun.task(0, 0, ["a"])  # a copy that is lost
    rerun.write(0, "a", "b")
    assert rerun.values() == ["a", "b"]
    assert rerun.open() == []


def test_a_sweep_leaves_what_began_after_the_batch(run: Run) -> None:
    reports = run.tasks(0, "a")
    while True:  # starts are in milliseconds
        later = run.task(0, 1, ["later"])
        with run.coordinator() as coordinator:
            starts = {found.token: found.start_ms for found in coordinator.in_doubt(re.escape(run.sink) + "-.*")}
        assert later.token is not None
        assert reports[0].token is not None
        if starts[later.token] > starts[reports[0].token]:
            break
    run.commit(0, reports)
    assert run.open() == [str(later.token)]


def test_a_transaction_that_ended_before_the_decision_fails_the_batch_whole(run: Run) -> None:
    reports = run.tasks(0, "a", "b")
    with run.coordinator() as coordinator:
        coordinator.complete(tokens(reports)[0], commit=False)
    with pytest.raises(NotPreparedAnyMore, match=re.escape(str(tokens(reports)[0]))):
        run.commit(0, reports)
    assert run.open() == []
    run.write(0, "a", "b")
    assert run.values() == ["a", "b"]


def test_a_batch_is_decided_while_a_coordinator_moves_that_no_list_has(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka.admin.KafkaAdminClient.list_transactions", lambda *_, **__: {})
    run.write(0, "a", "b")
    assert run.values() == ["a", "b"]


def test_a_transaction_that_ended_after_the_decision_fails_the_query_in_words(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = run.tasks(0, "a", "b")

    def ended_by_somebody(committer: Committer, session: Session, swept: Any = ()) -> None:
        session.coordinator.complete(tokens(reports)[0], commit=False)
        complete(committer, session, swept)

    complete = Committer._complete
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_complete", ended_by_somebody)
        with pytest.raises(HeuristicOutcome) as failed:
            run.commit(0, reports)
    assert "1 of its 2 transactions" in str(failed.value)
    assert str(tokens(reports)[0]) in str(failed.value)
    decision_id = run.decision_id()
    assert decision_id in str(failed.value)

    rerun = run.again()
    with pytest.raises(HeuristicOutcome):  # as often as it is tried
        rerun.commit(0, rerun.tasks(0, "a", "b"))
    accepting = run.again(**{"sink.accept": decision_id})
    accepting.commit(0, accepting.tasks(0, "a", "b"))
    accepting.write(1, "c")
    assert accepting.values() == ["b", "c"]


def test_a_batch_may_be_written_again_after_a_reset(run: Run) -> None:
    run.write(0, "a", "b")
    rerun = run.again(**{"sink.reset": run.decision_id()})
    rerun.write(0, "a", "b")
    rerun.write(0, "a", "b")  # the reset was of another decision
    assert rerun.values() == ["a", "a", "b", "b"]


def test_an_abort_ends_the_batchs_transactions(run: Run) -> None:
    run.abort([*run.tasks(0, "a", "b")])
    assert run.values() == []
    assert run.open() == []


def test_an_abort_without_reports_ends_all_that_is_open(run: Run) -> None:
    run.write(0, "a")
    run.tasks(1, "b", "c")
    run.abort([None, None])
    assert run.values() == ["a"]
    assert run.open() == []


def test_what_an_abort_has_ended_no_driver_decides(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write(0, "a")
    reports = run.tasks(1, "b", "c")
    monkeypatch.setattr("fencepost.spark.committing.STOPPING_TASKS_S", 0)
    monkeypatch.setattr("fencepost.spark.committing.abort_all", lambda *_: None)  # it is slow, say
    run.abort([None, None])
    with pytest.raises(NotPreparedAnyMore, match="another driver"):
        run.again().commit(1, reports)


def test_a_driver_that_was_replaced_decides_nothing_that_is_decided(run: Run) -> None:
    run.write(0, "a")
    other = run.again()
    other.write(1, "b")
    run.commit(1, run.tasks(1, "b"))
    assert other.values() == ["a", "b"]
    assert other.open() == []


def test_a_driver_that_is_replaced_while_it_decides_fails(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def replaced(*about: Any) -> None:
        Session(run.options, run.sink).close()
        require_prepared(*about)

    reports = run.tasks(0, "a")
    monkeypatch.setattr("fencepost.spark.committing.require_prepared", replaced)
    with pytest.raises(DriverReplaced, match=f"'{run.sink}'"):
        run.commit(0, reports)
    run.abort([*reports])
    assert run.values() == []
    assert run.open() == []


def test_workers_of_one_spark_commit_in_turns(run: Run) -> None:
    other = run.again()
    for number, worker in enumerate((run, other, run, run, other)):
        worker.write(number, f"{number}")
    assert run.values() == ["0", "1", "2", "3", "4"]
    assert run.open() == []


def test_an_abort_leaves_what_another_worker_has_decided(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.write(0, "a")
    other = run.again()
    reports = other.tasks(1, "b")

    def give_up(*_: object, **__: object) -> None:
        raise TimeoutError

    with monkeypatch.context() as patched:
        patched.setattr("fencepost.spark.committing.end_all", give_up)
        with pytest.raises(TimeoutError):
            other.commit(1, reports)
    run.abort([*reports])  # its session is that of the batch before
    rerun = run.again()
    rerun.commit(1, rerun.tasks(1, "b"))
    assert rerun.values() == ["a", "b"]
    assert rerun.open() == []


def test_another_query_and_a_deleted_checkpoint_are_refused(run: Run) -> None:
    run.write(0, "a")
    run.write(1, "b")
    other = run.again()
    other.query = "another"
    with pytest.raises(SinkInUse, match="batch 1 of query " + QUERY):
        other.tasks(0, "a")
    with pytest.raises(SinkInUse, match="batch 0"):
        run.again().tasks(0, "a")
    assert run.values() == ["a", "b"]


def test_a_record_that_is_refused_fails_the_task_in_words(run: Run) -> None:
    with pytest.raises(RecordRefused, match="too large"):
        run.task(0, 0, ["x" * 1_100_000])
    assert run.open() == []


def test_a_large_row_needs_its_two_limits_raised(run: Run, fencepost: Any) -> None:
    topic = fencepost.topic(f"large-{run.sink}", configs={"max.message.bytes": 3_000_000})
    large = Run(fencepost, topic, run.sink, **{"kafka.message.max.bytes": "3000000"})
    large.write(0, "x" * 2_000_000)
    assert [len(value) for value in large.values()] == [2_000_000]


def test_through_the_driver_a_batch_and_its_decision_are_one_transaction(run: Run) -> None:
    run.options = replace(run.options, mode=Mode.DRIVER)
    reports = run.tasks(0, "a", "b")
    assert tokens(reports) == []
    run.commit(0, reports)
    run.commit(0, run.tasks(0, "a", "b"))
    run.write(1, "c")
    assert run.values() == ["a", "b", "c"]
    assert run.open() == []


def test_through_the_driver_more_rows_than_its_queue_holds_are_written(run: Run) -> None:
    run = run.again(mode="driver", **{"kafka.queue.buffering.max.messages": "10"})
    values = [str(number) for number in range(10)]
    run.commit(0, [run.task(0, 0, values)])
    assert run.values() == values


def test_through_the_driver_a_refused_record_leaves_nothing(run: Run) -> None:
    run.options = replace(run.options, mode=Mode.DRIVER)
    with pytest.raises(RecordRefused, match="too large"):
        run.write(0, "a", "x" * 1_100_000)
    run.write(0, "a", "b")
    assert run.values() == ["a", "b"]


def test_a_batch_job_completes_what_the_job_before_has_decided(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Committer(run.options, run.sink)
    reports = run.tasks(0, "a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_complete", lambda *_: None)  # it dies
        job.commit(Batch(None, "job-1"), reports, run.layout)
    run.kept = clients._kept = {}
    kept_by_runs.append(run.kept)
    again = write(
        run.options,
        run.layout,
        Task(run.sink, Batch(None, "job-2"), draw_nonce(), 0, next(attempts)),
        iter([Chunk([b"c"], None, None, None, None)]),
    )
    Committer(run.options, run.sink).commit(Batch(None, "job-2"), [again], run.layout)
    assert run.values() == ["a", "b", "c"]


def test_a_sweep_by_hand_ends_what_a_stopped_query_has_left(run: Run) -> None:
    run.write(0, "a")
    run.tasks(1, "b", "c")
    options = {"kafka.bootstrap.servers": run.broker.bootstrap_servers, "sink": run.sink, **QUIET}
    assert sweep(options) == 2
    assert sweep(options) == 0
    assert run.values() == ["a"]
    assert run.open() == []


def test_a_decision_topic_that_would_lose_decisions_is_refused(run: Run, fencepost: Any) -> None:
    topic = fencepost.topic("decisions-that-go")
    with pytest.raises(ValueError, match=r"cleanup\.policy=delete"):
        run.again(**{"decision.topic": topic}).write(0, "a")
    topic = fencepost.topic("decisions-in-two", partitions=2, configs={"cleanup.policy": "compact"})
    with pytest.raises(ValueError, match="2 partitions; it needs exactly 1"):
        run.again(**{"decision.topic": topic}).write(0, "a")


def test_decisions_are_found_behind_many_records_of_others(run: Run, fencepost: Any) -> None:
    topic = fencepost.topic("decisions", configs={"cleanup.policy": "compact"})
    run.again(**{"decision.topic": topic}).write(0, "a")
    fencepost.produce(topic, *map(str, range(3000)), key="another")
    rerun = run.again(**{"decision.topic": topic})
    rerun.write(0, "a")
    rerun.write(1, "b")
    assert rerun.values() == ["a", "b"]


def test_a_task_whose_id_was_taken_is_never_decided(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.writing.task_id", lambda *_: f"{run.sink}-00000000-0-0")

    def take_the_id(*arguments: Any) -> int:
        rows = send_all(*arguments)
        run.broker.fence(f"{run.sink}-00000000-0-0")
        return rows

    send_all = writing.send_all
    monkeypatch.setattr(writing, "send_all", take_the_id)
    with pytest.raises((RecordRefused, NotPrepared, NotPreparedAnyMore)):
        run.commit(0, [run.task(0, 0, ["a"])])
    assert run.open() == []


def test_a_batch_that_was_decided_in_another_worker_is_completed_by_one_that_has_not_seen_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.write(0, "a")
    other = run.again()
    reports = other.tasks(1, "b", "c")
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_complete", lambda *_: None)  # it dies
        other.commit(1, reports)
    run.commit(1, [TaskReport(run.sink, Batch(QUERY, 1))] * 2)  # the tasks have found the decision
    run.write(2, "d")
    assert run.values() == ["a", "b", "c", "d"]
    assert run.open() == []


def die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def beside(run: Run, fencepost: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run whose sink shares its decision topic with another one. That one's driver has died in its decision, behind
    which is that of the run's batch 0, of two tasks, which is not completed."""
    topic = fencepost.topic(f"decisions-of-{run.sink}", configs={"cleanup.policy": "compact"})
    run = run.again(**{"decision.topic": topic})
    reports = run.tasks(0, "a", "b")
    others = Session(replace(run.options, sink="other"), "other")
    others.open_ledger()
    others.close()
    hanging = ck.Producer(
        {"bootstrap.servers": fencepost.bootstrap_servers, "transactional.id": driver_id("other"), "log_level": 0}
    )
    hanging.init_transactions(30)
    hanging.begin_transaction()
    hanging.produce(topic, key="other", value=b"{}")
    assert hanging.flush(30) == 0
    monkeypatch.setattr(decision_topic, "OPEN_TIMEOUT_S", 0)
    with monkeypatch.context() as patched:
        # Its session had read before the other driver began.
        patched.setattr(DecisionReader, "latest", lambda *_, **__: Latest())
        patched.setattr(Committer, "_complete", die)
        with pytest.raises(KeyboardInterrupt):
            run.commit(0, reports)
    yield run.again(**{"decision.topic": topic})
    with Coordinator(fencepost.bootstrap_servers) as coordinator:
        for found in coordinator.in_doubt(re.escape(driver_id("other"))):
            coordinator.complete(found.token, commit=False)


def test_what_was_decided_behind_another_drivers_open_decision_is_not_written_again(beside: Run) -> None:
    decided = beside.open()
    with pytest.raises(DecisionsHidden, match=r"other-driver stays open there.*transactions abort"):
        beside.commit(0, beside.tasks(0, "a", "b"))
    with pytest.raises(DecisionsHidden):
        beside.abort([None, None])
    assert set(beside.open()) >= set(decided), "what is decided is not aborted"
    sweep({"kafka.bootstrap.servers": beside.broker.bootstrap_servers, "sink": "other", **QUIET, **topic_of(beside)})
    beside.write(0, "a", "b")
    beside.write(1, "c")
    assert beside.values() == ["a", "b", "c"]
    assert beside.open() == []


def topic_of(run: Run) -> dict[str, str]:
    return {"decision.topic": run.options.decision_topic(run.sink)}


def test_another_drivers_open_decision_is_waited_for(beside: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = decision_topic._bounds
    asked = count()

    def after_a_while(*about: Any) -> tuple[int, int] | None:
        if next(asked) == 3:
            beside.broker.fence(driver_id("other"))
        return bounds(*about)

    reports = beside.tasks(0, "a", "b")
    monkeypatch.setattr(decision_topic, "OPEN_TIMEOUT_S", 60)
    monkeypatch.setattr(decision_topic, "_bounds", after_a_while)
    beside.commit(0, reports)
    assert beside.values() == ["a", "b"]
    assert beside.open() == []


def save(id_: str, run: Run, *, of: str, query: str = QUERY) -> Save:
    return Save(id_, run.options.topic, query, of)


def test_a_second_save_of_a_batch_is_refused_and_not_lost_in_silence(run: Run) -> None:
    run.write(0, "a", save=save("first", run, of="run-1"))
    with pytest.raises(SinkUsedTwice, match="a sink of its own"):
        run.write(0, "b", save=save("second", run, of="run-1"))
    rerun = run.again()
    rerun.write(0, "a", save=save("first again", run, of="run-2"))
    with pytest.raises(SinkUsedTwice):
        rerun.write(0, "b", save=save("second again", run, of="run-2"))
    last = run.again()
    last.write(0, "a", save=save("first once more", run, of="run-3"))
    last.write(1, "c", save=save("of the next batch", run, of="run-3"))
    assert run.values() == ["a", "c"]
    assert run.open() == []


def test_a_second_save_to_another_topic_is_refused_in_each_run(run: Run, fencepost: Any) -> None:
    topic = fencepost.topic("elsewhere")
    elsewhere = Run(fencepost, topic, run.sink)
    run.write(0, "a", save=save("first", run, of="run-1"))
    for number in (1, 2):
        with pytest.raises(SinkUsedTwice, match="'elsewhere'"):
            elsewhere.write(0, "b", save=save(f"second in {number}", elsewhere, of=f"run-{number}"))
    accepted = Run(fencepost, topic, run.sink, **{"sink.accept": run.decision_id()})
    accepted.write(0, "b", save=save("accepted", elsewhere, of="run-3"))
    assert elsewhere.values() == []
    assert run.values() == ["a"]


def test_saves_of_two_queries_with_one_sink_are_refused(run: Run) -> None:
    run.write(0, "a", save=save("first", run, of="run-1"))
    with pytest.raises(SinkInUse, match="another query uses this sink"):
        run.again().write(0, "b", save=save("other", run, of="run-9", query="another"))
    assert run.values() == ["a"]


class Job:
    """A batch job that names no sink."""

    def __init__(self, run: Run, name: str, **options: str) -> None:
        assert run.options.topic is not None
        self.run = Run(run.broker, run.options.topic, "unused", **options)
        self.run.sink = one_off_sink(str(uuid.uuid5(uuid.NAMESPACE_OID, name)))
        self.run.options = replace(self.run.options, sink=None).one_off()
        self.batch = Batch(None, name)

    def tasks(self, *values: str) -> list[TaskReport]:
        return [
            write(
                self.run.options,
                self.run.layout,
                Task(self.run.sink, self.batch, draw_nonce(), partition, next(attempts)),
                iter([Chunk([value.encode()], None, None, None, None)]),
            )
            for partition, value in enumerate(values)
        ]

    def commit(self, reports: list[TaskReport]) -> None:
        Committer(self.run.options, self.run.sink).commit(self.batch, reports, self.run.layout)

    def write(self, *values: str) -> None:
        self.commit(self.tasks(*values))


def test_an_abort_after_the_decision_completes_a_batch_job(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(run, "job")
    reports = job.tasks("a", "b", "c")
    complete = Coordinator.complete

    def fail_once(coordinator: Coordinator, token: Token, **about: Any) -> None:
        if token == tokens(reports)[1]:
            raise TimeoutError("no coordinator answered")
        complete(coordinator, token, **about)

    with monkeypatch.context() as patched:
        patched.setattr(Coordinator, "complete", fail_once)
        with pytest.raises(TimeoutError, match="1 of 3 transactions"):
            job.commit(reports)
    assert len(job.run.open()) == 1, "the others are tried, too"
    job.run.abort([*reports])
    assert run.values() == ["a", "b", "c"]
    assert job.run.open() == []


@pytest.mark.parametrize("by", ["another job", "a sweep"])
def test_a_batch_job_whose_driver_died_after_the_decision_is_completed(
    run: Run, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    job = Job(run, "dead")
    reports = job.tasks("a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_complete", die)
        with pytest.raises(KeyboardInterrupt):
            job.commit(reports)
    for _ in range(2):
        if by == "another job":
            Job(run, f"later-{next(sinks)}").write()
        else:
            assert sweep({"kafka.bootstrap.servers": run.broker.bootstrap_servers, **QUIET}) == 0
        assert run.values() == ["a", "b"]
    assert job.run.open() == []
    assert job_keys(run) == {}


def job_keys(run: Run) -> dict[str, Any]:
    """What the decision topic of batch jobs has, after compaction."""
    found: dict[str, Any] = {}
    for record in run.broker.records("fencepost-sink-batch"):
        found[record.key.decode()] = record.value and json.loads(record.value)
    return {key: value for key, value in found.items() if value is not None}


def test_what_is_missing_of_a_batch_job_stays_on_record(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job = Job(run, "torn")
    reports = job.tasks("a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(Committer, "_complete", die)
        with pytest.raises(KeyboardInterrupt):
            job.commit(reports)
    with run.coordinator() as coordinator:
        coordinator.complete(tokens(reports)[0], commit=False)  # as time does
    for number in range(2):
        Job(run, f"later-{number}").write("c")
    assert run.values() == ["b", "c", "c"]
    (key, mark), *others = job_keys(run).items()
    assert (key, others) == (f"{job.run.sink}/done", [])
    assert mark["missing"] == [str(tokens(reports)[0])]
    assert capsys.readouterr().err.count("the batch job torn was decided, and is there in parts only") == 1


def test_a_broker_that_is_away_while_a_batch_job_is_completed_is_waited_for(
    fencepost_fresh: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(fencepost_fresh, fencepost_fresh.topic("out", partitions=2), "unused")
    job = Job(run, "through-a-crash")
    reports = job.tasks(*"abcdefghijkl")
    complete = Coordinator.complete
    calls = count()
    restarts: list[threading.Thread] = []

    def complete_through_a_crash(coordinator: Coordinator, token: Token, **about: Any) -> None:
        if next(calls) == 5:
            fencepost_fresh.crash()
            restarts.append(threading.Thread(target=fencepost_fresh.restart))
            restarts[0].start()
        complete(coordinator, token, **about)

    monkeypatch.setattr(Coordinator, "complete", complete_through_a_crash)
    job.commit(reports)
    restarts[0].join()
    assert run.values() == list("abcdefghijkl")
    assert job.run.open() == []
