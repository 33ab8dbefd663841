"""`fencepost check-back` beside a cluster that checks nothing back itself: Apache Kafka 4.4, and a broker without
resolvers."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kafka.admin import KafkaAdminClient

from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, Command, command_entry, read_journal
from fencepost.check_back.resolvers.record import CLOCK_SKEW_MS
from fencepost.cli.commands import fencepost
from fencepost.soak.free_port import free_port
from fencepost.two_phase import Coordinator, Token, confluent_producer, prepare
from scripts.apache_kafka import ApacheKafka
from tests.support import conditions
from tests.support.answering_source import AnsweringSource
from tests.support.broker_process import ROOT, BrokerProcess
from tests.support.committed_records import committed_records
from tests.support.decision_topic import KEY, create_decisions, write_decision
from tests.support.json_outputs import check_output
from tests.support.missing_tools import require_apache_kafka
from tests.support.secured_broker import STANDARD_AUTHORIZER

pytestmark = pytest.mark.integration
until = conditions.until


@pytest.fixture(scope="module", params=["fencepost", "apache kafka"])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    if request.param == "fencepost":
        with BrokerProcess(directory / "data") as broker:
            yield broker.bootstrap
        return
    require_apache_kafka()
    with ApacheKafka(directory / "data", free_port()) as kafka:
        yield kafka.bootstrap_servers


class CheckBackProcess:
    """`fencepost check-back` as a process of its own. lines: what it has written, as JSON."""

    def __init__(self, directory: Path, bootstrap: str, properties: dict[str, str], client: Path | None = None) -> None:
        self.bootstrap = bootstrap
        self.config = directory / "check-back.properties"
        self.config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._client = client
        self._output = directory / "check-back.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        command = [sys.executable, "-m", "fencepost", "check-back", "--bootstrap", self.bootstrap]
        command += ["--config", str(self.config), "--json"]
        if self._client is not None:
            command += ["--command-config", str(self._client)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        started = len(self.events("check_back_started"))
        until(lambda: len(self.events("check_back_started")) > started)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def terminate(self) -> int:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    @property
    def output(self) -> str:
        return self._output.read_text()

    def events(self, name: str) -> list[Any]:
        if not self._output.exists():
            return []
        written = [line for line in self.output.splitlines() if line.startswith("{")]
        check_output("check-back", "\n".join(written))
        lines = [json.loads(line) for line in written]
        return [line for line in lines if line["event"] == name]


@pytest.fixture
def source() -> Iterator[AnsweringSource]:
    with AnsweringSource() as source:
        yield source


@pytest.fixture
def producers() -> list[Any]:
    """Kept until the end, as an application that hangs keeps its own."""
    return []


@pytest.fixture
def name(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """Of a topic, with one partition, and of transactional ids that are this test's alone."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**9}"
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics({name: {"num_partitions": 1, "replication_factor": 1}}, wait_for_metadata=True)
    finally:
        admin.close()
    return name


def properties(source: AnsweringSource, name: str, **more: str) -> dict[str, str]:
    of_orders = {"type": "http", "ids": f"{name}-*", "url": source.url, "first.ms": "0", "interval.ms": "100"}
    of_orders |= {"backoff": "1", "timeout.ms": "30000"} | {key.replace("_", "."): text for key, text in more.items()}
    return {
        "fencepost.check.back.resolvers": "orders",
        **{f"fencepost.check.back.orders.{key}": text for key, text in of_orders.items()},
    }


def prepared(bootstrap: str, producers: list[Any], topic: str, name: str, timeout_ms: int = 600_000) -> Token:
    producer: Producer = confluent_producer(
        {"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 0, "transaction.timeout.ms": timeout_ms}
    )
    producers.append(producer)
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, name.encode(), partition=0)
    return prepare(producer)


def audit(bootstrap: str, name: str) -> list[Any]:
    """The records about a test's ids."""
    values = [json.loads(record.value) for record in committed_records(bootstrap, AUDIT_TOPIC)]
    return [value for value in values if value["id"].startswith(name)]


def committed(bootstrap: str, topic: str) -> list[str]:
    """The committed values. Of a transaction that has ended they may come a moment later: with its markers."""
    return [record.value.decode() for record in committed_records(bootstrap, topic)]


def has_forgotten_all(bootstrap: str) -> bool:
    """Whether the journal has no case and no command."""
    journal = read_journal({one.key.decode(): one.value for one in committed_records(bootstrap, STATE_TOPIC)})
    return not journal.cases and not journal.commands


@pytest.mark.parametrize(("answer", "is_left"), [("commit", True), ("abort", False)])
def test_prepared_transactions_are_ended_as_their_source_says(
    tmp_path: Path,
    bootstrap: str,
    source: AnsweringSource,
    producers: list[Any],
    name: str,
    answer: str,
    is_left: bool,
) -> None:
    source.answer = answer
    tokens = [prepared(bootstrap, producers, name, f"{name}-{number}") for number in range(3)]
    other = prepared(bootstrap, producers, name, f"other-{name}")
    with CheckBackProcess(tmp_path, bootstrap, properties(source, name)) as process:
        until(lambda: len([one for one in audit(bootstrap, name) if one["event"] == "end"]) == 3)
        assert process.terminate() == 0
        assert len(process.events("transaction_decided")) == 3
    with Coordinator(bootstrap) as coordinator:
        open_ids = [one.token.transactional_id for one in coordinator.in_doubt(f"(other-)?{name}.*")]
        assert open_ids == [other.transactional_id]
        coordinator.complete(other, commit=False)
    until(
        lambda: sorted(committed(bootstrap, name)) == ([token.transactional_id for token in tokens] if is_left else [])
    )
    assert sorted(source.asked) == sorted(map(str, tokens))


def test_a_check_back_that_is_killed_goes_on_counting_parks_and_takes_the_command_to_ask_again(
    tmp_path: Path, bootstrap: str, source: AnsweringSource, producers: list[Any], name: str
) -> None:
    token = prepared(bootstrap, producers, name, f"{name}-1")
    with CheckBackProcess(tmp_path, bootstrap, properties(source, name, checks_max="3")) as process:
        until(lambda: source.asked)
        until(lambda: audit(bootstrap, name))
        listed = ["transactions", "list", "--in-doubt", "--json", "--bootstrap", bootstrap]
        rows = {row["transactional_id"]: row for row in json.loads(CliRunner().invoke(fencepost, listed).stdout)}
        assert (rows[token.transactional_id]["resolver"], rows[token.transactional_id]["timeout_ms"]) == (
            "orders",
            600_000,
        )
        process.kill()
        process.start()
        until(lambda: process.events("transaction_parked"))
        counts = [one["checks"] for one in audit(bootstrap, name) if one["event"] == "question"]
        # The audit is written before the journal: killed between the two, the check-back asks that question again.
        assert [count for count, _ in groupby(counts)] == [1, 2, 3]
        assert len(counts) <= 4
        source.answer = "commit"
        entry = command_entry(Command(token.transactional_id, "ask-again", None, int(time.time() * 1000)))
        writer = Producer({"bootstrap.servers": bootstrap})
        writer.produce(STATE_TOPIC, entry.encoded_value(), entry.key, partition=0)
        assert writer.flush(60) == 0
        until(lambda: [one for one in audit(bootstrap, name) if one["event"] == "end"])
        until(lambda: committed(bootstrap, name) == [token.transactional_id])
        until(lambda: has_forgotten_all(bootstrap))


def test_what_the_client_ends_itself_is_recorded_as_its_end(
    tmp_path: Path, bootstrap: str, source: AnsweringSource, producers: list[Any], name: str
) -> None:
    token = prepared(bootstrap, producers, name, f"{name}-1")
    with CheckBackProcess(tmp_path, bootstrap, properties(source, name, interval_ms="60000", interval_max_ms="60000")):
        until(lambda: audit(bootstrap, name))
        with Coordinator(bootstrap) as coordinator:
            coordinator.complete(token, commit=True)
        (end,) = until(lambda: [one for one in audit(bootstrap, name) if one["event"] == "end"])
        assert (end["who"], end["outcome"], end["decision"]) == ("client", "commit", None)


def test_what_time_ends_is_recorded_as_ended_by_time(
    tmp_path: Path, bootstrap: str, source: AnsweringSource, producers: list[Any], name: str
) -> None:
    with CheckBackProcess(tmp_path, bootstrap, properties(source, name, interval_ms="60000", interval_max_ms="60000")):
        # Its time begins when the check-back runs: it has to be asked about before that is over.
        prepared(bootstrap, producers, name, f"{name}-1", timeout_ms=15_000)
        until(lambda: source.asked)
        (end,) = until(lambda: [one for one in audit(bootstrap, name) if one["event"] == "end"], timeout_s=90)
        assert (end["who"], end["outcome"], end["decision"]) == ("time-out", "abort", None)


def test_a_committed_record_of_the_same_cluster_decides(
    tmp_path: Path, bootstrap: str, source: AnsweringSource, producers: list[Any], name: str
) -> None:
    decisions = f"{name}-decisions"
    create_decisions(bootstrap, decisions)
    listed, left_out = (prepared(bootstrap, producers, name, f"{name}-{word}") for word in ("listed", "left-out"))
    settings = properties(source, name, checks_max="1000") | {
        "fencepost.check.back.orders.type": "record",
        "fencepost.check.back.orders.topic": decisions,
        "fencepost.check.back.orders.key": KEY.decode(),
    }
    del settings["fencepost.check.back.orders.url"]
    with CheckBackProcess(tmp_path, bootstrap, settings):
        until(lambda: len({one["id"] for one in audit(bootstrap, name) if one["answer"] == "unknown"}) == 2)
        write_decision(bootstrap, decisions, [left_out], committed=False)
        time.sleep(CLOCK_SKEW_MS / 1000)  # what began so shortly before a decision may have begun after it
        write_decision(bootstrap, decisions, [listed])
        until(lambda: len([one for one in audit(bootstrap, name) if one["event"] == "end"]) == 2)
    outcomes = {one["id"]: one["outcome"] for one in audit(bootstrap, name) if one["event"] == "end"}
    assert outcomes == {listed.transactional_id: "commit", left_out.transactional_id: "abort"}
    until(lambda: committed(bootstrap, name) == [listed.transactional_id])
    assert source.asked == []


def test_settings_without_a_resolver_are_refused_in_words(tmp_path: Path, bootstrap: str) -> None:
    config = tmp_path / "empty.properties"
    config.write_text("a=b\n")
    command = [sys.executable, "-m", "fencepost", "check-back", "--bootstrap", bootstrap, "--config", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "fencepost.check.back.resolvers names no resolver" in done.stderr


RIGHTS = (
    ("prefixed", "--transactional-id", "order-", ("describe", "write")),
    ("literal", "--topic", "out", ("describe",)),
    ("literal", "--topic", STATE_TOPIC, ("create", "describe", "read", "write")),
    ("literal", "--topic", AUDIT_TOPIC, ("create", "describe", "write")),
)
"""What the user of a check-back needs, for transactions that write to `out`."""


def test_a_user_with_these_rights_and_no_others_can_check_back(
    tmp_path: Path, source: AnsweringSource, producers: list[Any]
) -> None:
    source.answer = "commit"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker = BrokerProcess(
        tmp_path / "data",
        settings={
            "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.jaas.config": f'{module} required user_admin="admin-secret" user_asker="asker-secret";',
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:admin",
        },
    )
    clients = {}
    for user in ("admin", "asker"):
        clients[user] = tmp_path / f"{user}.properties"
        clients[user].write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            f'sasl.jaas.config={module} required username="{user}" password="{user}-secret";\n'
        )
    as_admin = {"FENCEPOST_BOOTSTRAP": broker.bootstrap, "FENCEPOST_COMMAND_CONFIG": str(clients["admin"])}
    log_in = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    log_in |= {"sasl.username": "admin", "sasl.password": "admin-secret"}
    with broker:
        for pattern, kind, resource, operations in RIGHTS:
            command = ["acls", "add", "--allow-principal", "User:asker", "--resource-pattern-type", pattern]
            command += [kind, resource, *(part for one in operations for part in ("--operation", one))]
            done = CliRunner().invoke(fencepost, command, env=as_admin)
            assert done.exit_code == 0, done.output
        producer = confluent_producer(
            {"bootstrap.servers": broker.bootstrap, "transactional.id": "order-1", "log_level": 0, **log_in}
        )
        producers.append(producer)
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("out", b"order-1", partition=0)
        prepare(producer)
        settings = properties(source, "order")
        with CheckBackProcess(tmp_path, broker.bootstrap, settings, clients["asker"]) as process:
            (ended,) = until(lambda: process.events("transaction_in_doubt_ended"))
            assert (ended["id"], ended["outcome"]) == ("order-1", "commit")
        shown = CliRunner().invoke(
            fencepost, ["consume", AUDIT_TOPIC, "--from-beginning", "--exit-at-end"], env=as_admin
        )
        assert '"partitions":["out-0"]' in shown.stdout
