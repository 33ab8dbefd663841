"""`fencepost spark finish` beside any Kafka: it commits what is decided and open, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.cli.commands import fencepost
from fencepost.soak.free_port import free_port
from fencepost.spark.decision_topic import TOPIC_CONFIG, DecisionReader
from fencepost.spark.decisions import Batch, Decision
from fencepost.spark.names import draw_nonce, one_off_sink
from fencepost.spark.options import SinkOptions
from fencepost.spark.session import Session
from fencepost.two_phase import Coordinator, Outcome, Token
from scripts.apache_kafka import ApacheKafka
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.committed_records import committed_records
from tests.support.conditions import until
from tests.support.dead_driver import QUERY, decide, prepared_tasks
from tests.support.missing_tools import require_apache_kafka

pytestmark = pytest.mark.integration

_sinks = count()
_jobs = count(0x8CD0EF86)


@pytest.fixture(scope="module", params=["fencepost", "apache kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster that does not finish batches itself, with the topic `out`."""
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "fencepost":
        with BrokerProcess(directory / "data", settings={"fencepost.spark.decision.topics": ""}) as broker:
            create(broker.bootstrap, "out")
            yield broker.bootstrap
        return
    require_apache_kafka()
    with ApacheKafka(directory / "data", free_port()) as kafka:
        create(kafka.bootstrap_servers, "out")
        yield kafka.bootstrap_servers


@pytest.fixture
def sink() -> str:
    return f"squares{next(_sinks)}"


@pytest.fixture
def job() -> str:
    return one_off_sink(f"{next(_jobs):08x}-096d-4b7d-8237-fcb86ebd341a")


def create(bootstrap: str, *topics: str, is_decision_topic: bool = False) -> None:
    client = AdminClient({"bootstrap.servers": bootstrap})
    configs = TOPIC_CONFIG if is_decision_topic else {}
    for one in client.create_topics([NewTopic(topic, 1, 1, config=configs) for topic in topics]).values():
        one.result(60)


def finish(bootstrap: str, *arguments: str) -> Result:
    return CliRunner().invoke(fencepost, ["spark", "finish", "--bootstrap", bootstrap, *arguments])


def lines_about(result: Result, sink: str) -> list[dict[str, Any]]:
    """The lines of JSON that a command has written about a sink."""
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return [line for line in found if line["sink"] == sink]


def outcomes(bootstrap: str, tokens: list[Token]) -> list[Outcome]:
    with Coordinator(bootstrap) as coordinator:
        return [coordinator.outcome(token) for token in tokens]


def _are_committed(bootstrap: str, tokens: list[Token]) -> bool:
    return set(outcomes(bootstrap, tokens)) == {Outcome.COMMITTED}


def produce(bootstrap: str, topic: str, *records: tuple[str, str | bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for key, value in records:
        producer.produce(topic, value, key, 0)
    assert producer.flush(60) == 0


def test_it_commits_what_a_dead_driver_has_decided_and_says_so(bootstrap: str, sink: str) -> None:
    tokens = prepared_tasks(bootstrap, sink, "out", 3)
    undecided = prepared_tasks(bootstrap, sink, "out", 1)
    decide(bootstrap, sink, tokens, number=7)
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(tokens[0], commit=True)
    done = finish(bootstrap, "--json", "--topic", f"fencepost-sink-{sink}")
    assert done.exit_code == 0, done.output
    (line,) = lines_about(done, sink)
    assert line == line | {
        "batch": "7",
        "query": QUERY,
        "rows": 3,
        "transactions": 3,
        "committed": 2,
        "already_committed": 1,
        "lost": [],
        "error": None,
        "marked_done": False,
    }
    assert outcomes(bootstrap, tokens) == [Outcome.COMMITTED] * 3
    assert outcomes(bootstrap, undecided) == [Outcome.PREPARED]
    again = finish(bootstrap, "--topic", f"fencepost-sink-{sink}")
    assert (again.exit_code, again.stdout) == (0, f"{sink}: batch 7, 3 rows: 3 were committed before\n")
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(undecided[0], commit=False)


def test_a_batch_job_is_committed_and_marked_as_done(bootstrap: str, job: str) -> None:
    tokens = prepared_tasks(bootstrap, job, "out", 2)
    decide(bootstrap, job, tokens)
    done = finish(bootstrap, "--json")
    assert done.exit_code == 0, done.output
    assert [(line["committed"], line["marked_done"]) for line in lines_about(done, job)] == [(2, True)]
    reader = DecisionReader(SinkOptions.read({"kafka.bootstrap.servers": bootstrap, "topic": "out"}).one_off())
    try:
        assert job not in reader.jobs("fencepost-sink-batch")
    finally:
        reader.close()
    assert lines_about(finish(bootstrap, "--json"), job) == []


@pytest.mark.parametrize("is_job", [False, True])
def test_a_decided_transaction_that_was_aborted_is_lost_and_the_exit_code_says_so(
    bootstrap: str, sink: str, job: str, is_job: bool
) -> None:
    sink = job if is_job else sink
    tokens = prepared_tasks(bootstrap, sink, "out", 2)
    decide(bootstrap, sink, tokens)
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(tokens[1], commit=False)
    topic = "fencepost-sink-batch" if is_job else f"fencepost-sink-{sink}"
    done = finish(bootstrap, "--json", "--topic", topic)
    assert done.exit_code == 1, done.output
    (line,) = lines_about(done, sink)
    assert (line["committed"], line["lost"], line["marked_done"]) == (1, [str(tokens[1])], is_job)
    assert f"1 are lost, though decided: {tokens[1]}" in line["message"]
    if is_job:
        marks = {record.key.decode(): record.value for record in committed_records(bootstrap, topic)}
        assert json.loads(marks[f"{job}/done"])["missing"] == [str(tokens[1])]
        assert marks[job] is None
    else:  # so that nobody counts it as lost in the tests that follow
        client = AdminClient({"bootstrap.servers": bootstrap})
        client.delete_topics([topic])[topic].result(60)


def test_nonsense_and_forged_decisions_commit_nothing_and_stop_nothing(bootstrap: str, sink: str) -> None:
    other = f"{sink}x"
    tokens, forged = prepared_tasks(bootstrap, sink, "out", 1), prepared_tasks(bootstrap, other, "out", 1)
    decide(bootstrap, sink, tokens)
    evil, own = f"fencepost-sink-evil-{sink}", f"fencepost-sink-{other}"
    create(bootstrap, evil, own, is_decision_topic=True)
    listed = json.dumps({"batch": 1, "query": "q", "tokens": [str(forged[0])]})
    produce(bootstrap, evil, (other, listed), (f"evil-{sink}", listed))
    produce(bootstrap, own, (other, b"\xff\xfe"), (f"{other}/done", "nonsense"), ("", "{}"), (other, "[" * 5_000))
    done = finish(bootstrap)
    assert f"{own}: the record under the key {other!r} is no decision" in done.stderr
    assert outcomes(bootstrap, tokens + forged) == [Outcome.COMMITTED, Outcome.PREPARED]
    with Coordinator(bootstrap) as coordinator:
        coordinator.complete(forged[0], commit=False)


def test_it_runs_beside_a_living_driver_and_beside_itself(bootstrap: str, sink: str) -> None:
    given = {"kafka.bootstrap.servers": bootstrap, "kafka.log_level": "0", "topic": "out", "sink": sink}
    session = Session(SinkOptions.read(given), sink)
    try:
        for number in range(3):
            tokens = prepared_tasks(bootstrap, sink, "out", 8)
            decision = Decision(draw_nonce(), Batch(QUERY, number), tuple(tokens), 8)
            session.decide(decision, check=list)
            with ThreadPoolExecutor(3) as threads:
                finishing = [threads.submit(_as_process, bootstrap, f"fencepost-sink-{sink}") for _ in range(2)]
                for token in tokens:
                    session.coordinator.complete(token, commit=True)
                assert [one.result() for one in finishing] == [0, 0]
            session.mark_done(decision, complete_ms=1, swept=0)
            assert outcomes(bootstrap, tokens) == [Outcome.COMMITTED] * 8
    finally:
        session.close()
    done = finish(bootstrap, "--topic", f"fencepost-sink-{sink}")
    assert (done.exit_code, done.stdout) == (0, f"{sink}: nothing to do\n")


def _as_process(bootstrap: str, topic: str) -> int:
    command = [sys.executable, "-m", "fencepost", "spark", "finish", "--bootstrap", bootstrap, "--topic", topic]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, timeout=120).returncode


def test_a_shared_topic_that_is_named_has_the_decisions_of_many_sinks(bootstrap: str, sink: str) -> None:
    names = [f"{sink}-{letter}" for letter in "abc"]
    topic = f"decisions-{sink}"
    tokens = []
    for name in names:
        prepared = prepared_tasks(bootstrap, name, "out", 2)
        decide(bootstrap, name, prepared, topic=topic)
        tokens += prepared
    assert finish(bootstrap).exit_code in (0, 1)  # it does not look there
    assert outcomes(bootstrap, tokens) == [Outcome.PREPARED] * 6
    done = finish(bootstrap, "--json", "--topic", f"decisions-{sink[:-1]}*")
    assert sorted(line["sink"] for line in map(json.loads, done.stdout.splitlines()) if line["sink"] in names) == names
    assert outcomes(bootstrap, tokens) == [Outcome.COMMITTED] * 6


def test_as_a_service_it_finishes_what_is_decided_while_it_runs_and_ends_on_sigterm(
    bootstrap: str, sink: str, tmp_path: Path
) -> None:
    output = tmp_path / "service.log"
    command = [
        sys.executable,
        "-m",
        "fencepost",
        "spark",
        "finish",
        "--bootstrap",
        bootstrap,
        "--json",
        "--every",
        "0.5",
    ]
    with output.open("wb") as log, subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT) as service:
        try:
            for number in range(2):
                tokens = prepared_tasks(bootstrap, sink, "out", 2)
                decide(bootstrap, sink, tokens, number=number)
                until(partial(_are_committed, bootstrap, tokens))
            os.kill(service.pid, signal.SIGTERM)
            assert service.wait(60) == 0
        finally:
            service.kill()
    text = output.read_text()
    assert "Traceback" not in text
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    about = [(line["batch"], line["committed"]) for line in lines if line["sink"] == sink]
    assert about == [("0", 2), ("1", 2)]


def test_a_topic_that_does_not_exist_and_a_broker_that_is_away_are_said_in_words(bootstrap: str) -> None:
    missing = finish(bootstrap, "--topic", "no-such-topic")
    assert (missing.exit_code, missing.stderr) == (1, "no-such-topic was not read: there is no such topic\n")
    away = finish(f"127.0.0.1:{free_port()}")
    assert away.exit_code == 1
    assert "no broker answers" in away.stderr
