"""The check-back of a broker of several processes: each asks about the ids that it coordinates."""

from __future__ import annotations

import collections
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from fencepost.check_back.records import AUDIT_TOPIC, STATE_TOPIC, Journal, read_journal
from fencepost.check_back.resolvers.record import CLOCK_SKEW_MS
from fencepost.cli.commands import fencepost
from fencepost.two_phase import Token, confluent_producer, prepare
from tests.integration.test_check_back import settings_for
from tests.support import conditions
from tests.support.answering_source import AnsweringSource
from tests.support.broker_processes import BrokerProcesses
from tests.support.committed_records import committed_records
from tests.support.decision_topic import KEY, create_decisions, write_decision

pytestmark = pytest.mark.integration

IDS = [f"order-{number}" for number in range(12)]
PARTITIONS = 6
PATIENCE_S = 60.0
until = partial(conditions.until, timeout_s=PATIENCE_S)
FEW = {"transaction.state.log.num.partitions": "6", "offsets.topic.num.partitions": "6"}


@pytest.fixture
def source() -> Iterator[AnsweringSource]:
    with AnsweringSource() as source:
        yield source


def create(broker: BrokerProcesses) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("out", PARTITIONS, 1)])["out"].result()


def prepared(broker: BrokerProcesses, name: str) -> tuple[Token, Producer]:
    """A prepared transaction with a record in each partition, and its producer, which stays away from then on."""
    producer: Producer = confluent_producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    for partition in range(PARTITIONS):
        producer.produce("out", name.encode(), partition=partition)
    return prepare(producer), producer


def audit(broker: BrokerProcesses) -> list[Any]:
    return [json.loads(record.value) for record in committed_records(broker.bootstrap, AUDIT_TOPIC)]


def journal(broker: BrokerProcesses) -> Journal:
    return read_journal(
        {record.key.decode(): record.value for record in committed_records(broker.bootstrap, STATE_TOPIC)}
    )


def ended(broker: BrokerProcesses) -> set[str]:
    return {one["token"] for one in audit(broker) if one["event"] == "end"}


@pytest.mark.timeout(240)
def test_each_transaction_is_asked_about_once_and_ended_as_its_source_says(
    tmp_path: Path, source: AnsweringSource
) -> None:
    source.answer = "commit"
    with BrokerProcesses(tmp_path / "data", 3, settings={**FEW, **settings_for(source)}) as broker:
        create(broker)
        with source.silent():
            left = [prepared(broker, name) for name in IDS]
        tokens = {str(token) for token, _ in left}
        until(lambda: ended(broker) == tokens)
        assert sorted(source.asked) == sorted(tokens)
        once = {name.encode(): 1 for name in IDS}
        # Markers are written after the end.
        until(lambda: collections.Counter(one.value for one in committed_records(broker.bootstrap, "out")) == once)
        until(lambda: not journal(broker).cases)
        assert "Traceback" not in broker.output, broker.output


@pytest.mark.timeout(240)
def test_a_process_that_takes_over_counts_on_where_the_killed_one_was(tmp_path: Path, source: AnsweringSource) -> None:
    settings = {**FEW, **settings_for(source, checks_max="1000", interval_ms="300", interval_max_ms="300")}
    with BrokerProcesses(tmp_path / "data", 3, settings=settings) as broker:
        create(broker)
        left = [prepared(broker, name) for name in IDS]
        tokens = {str(token) for token, _ in left}

        def checks() -> dict[str, int]:
            return {str(case.question.token): case.checks for case in journal(broker).cases.values()}

        for node_id in broker.node_ids:
            highest = max(checks().values(), default=0)
            until(lambda: len(checks()) == len(tokens) and min(checks().values()) > highest)  # noqa: B023  # at once
            before = checks()
            broker.wait_for_another(node_id, than=broker.kill_node(node_id))
            after = until(lambda: found if len(found := checks()) == len(tokens) else {})
            assert all(after[token] >= before[token] for token in tokens)
        source.answer = "abort"
        until(lambda: ended(broker) == tokens)
        assert list(committed_records(broker.bootstrap, "out")) == []
        decisions = collections.Counter(one["token"] for one in audit(broker) if one["event"] == "decision")
        assert decisions == dict.fromkeys(tokens, 1)
        assert "Traceback" not in broker.output, broker.output


@pytest.mark.timeout(240)
def test_administrators_and_records_decide_wherever_the_coordinator_is(tmp_path: Path, source: AnsweringSource) -> None:
    settings = {**FEW, **settings_for(source, checks_max="1")}
    with BrokerProcesses(tmp_path / "data", 3, settings=settings) as broker:
        create(broker)
        left = [prepared(broker, name) for name in IDS[:6]]
        until(lambda: len([one for one in journal(broker).cases.values() if one.is_parked]) == len(left))
        source.answer = "commit"
        for name in IDS[:6]:
            arguments = ["transactions", "ask-again", name, "--bootstrap", broker.bootstrap]
            asked = CliRunner().invoke(fencepost, arguments)
            assert asked.exit_code == 0, asked.output
        until(lambda: ended(broker) == {str(token) for token, _ in left})


@pytest.mark.timeout(240)
def test_a_record_decides_wherever_its_partition_is_led(tmp_path: Path, source: AnsweringSource) -> None:
    of_sinks = settings_for(source, type="record", topic="decisions", key=KEY.decode(), checks_max="1000")
    del of_sinks["fencepost.check.back.orders.url"]
    with BrokerProcesses(tmp_path / "data", 3, settings={**FEW, **of_sinks}) as broker:
        create(broker)
        create_decisions(broker.bootstrap, "decisions")
        left = [prepared(broker, name) for name in IDS]
        listed, left_out = left[::2], left[1::2]
        write_decision(broker.bootstrap, "decisions", [token for token, _ in left_out], committed=False)
        time.sleep(CLOCK_SKEW_MS / 1000)  # what began so shortly before a decision may have begun after it
        write_decision(broker.bootstrap, "decisions", [token for token, _ in listed])
        until(lambda: len(ended(broker)) == len(left))
        outcomes = {one["token"]: one["outcome"] for one in audit(broker) if one["event"] == "end"}
        assert outcomes == {str(token): "commit" for token, _ in listed} | {
            str(token): "abort" for token, _ in left_out
        }
        assert "Traceback" not in broker.output, broker.output
