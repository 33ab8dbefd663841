"""The commands for open transactions: list, why, commit, abort, terminate."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import KafkaException, Producer

from fencepost.cli import questions
from fencepost.cli.commands import fencepost
from fencepost.protocol.messages.transactions import InitProducerIdRequest, InitProducerIdResponse
from fencepost.two_phase import Coordinator, Superseded, Token
from tests.support.broker_process import BrokerProcess
from tests.support.conditions import until
from tests.support.hanging_transaction import leave_hanging
from tests.support.wire import WireConnection

Run = Callable[..., Result]
Unique = Callable[[str], str]


def open_transaction(bootstrap: str, topic: str, transactional_id: str) -> Producer:
    """A producer with one record of an open transaction in partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(60)
    return producer


def described(run: Run, transactional_id: str) -> Any:
    (row,) = json.loads(run("transactions", "describe", transactional_id, "--json").stdout)
    return row


def read(run: Run, topic: str) -> list[str]:
    return run("consume", topic, "--from-beginning", "--exit-at-end").stdout.split()


@pytest.mark.parametrize(
    ("command", "state", "left"), [("commit", "CompleteCommit", ["open"]), ("abort", "CompleteAbort", [])]
)
def test_an_open_transaction_is_ended_in_the_place_of_its_producer(
    broker: BrokerProcess,
    run: Run,
    unique: Unique,
    command: str,
    state: str,
    left: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = unique(command)
    run("topics", "create", name, "-p", "1")
    producer = open_transaction(broker.bootstrap, name, name)
    row = described(run, name)
    pair = f"{row['producer_id']}:{row['producer_epoch']}"
    assert run("transactions", command, name).exit_code == 2
    refused = run("transactions", command, name, "--pair", f"{row['producer_id']}:{row['producer_epoch'] + 7}", "--yes")
    assert refused.exit_code == 1
    assert f"the pair of {name} is {pair} now" in refused.stderr
    assert described(run, name)["state"] == "Ongoing"
    reason = f"the service of {name} is gone"
    monkeypatch.setattr(questions, "is_answerable", lambda: True)
    assert run("transactions", command, name, input="n\n").exit_code == 1
    done = run("transactions", command, name, "--pair", pair, input=f"y\n{reason}\n")
    assert done.exit_code == 0, done.output
    until(lambda: f"reason='{reason}'" in broker.output)
    assert f"the transaction of {name}, which {pair} wrote" in done.stdout
    until(lambda: described(run, name)["state"] == state)  # complete when its markers are written
    assert read(run, name) == left
    again = run("transactions", command, name, "--pair", pair, "--yes")
    assert (again.exit_code, "nothing was left to do" in again.stdout) == (0, True), again.output
    other = run("transactions", "abort" if command == "commit" else "commit", name, "--pair", pair, "--yes")
    assert other.exit_code == 1
    assert f"{name} has no open transaction; the last state of its coordinator is {state}" in other.stderr
    del producer


def test_a_pair_that_is_none_is_refused_before_anything_is_tried(run: Run) -> None:
    refused = run("transactions", "commit", "any", "--pair", "7", "--yes")
    assert refused.exit_code == 2
    assert "is not PID:EPOCH, such as 7:0" in refused.stderr


def test_a_transaction_that_a_later_session_keeps_is_left_to_it(tmp_path: Path) -> None:
    settings = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}
    with BrokerProcess(tmp_path / "data", settings=settings) as process:

        def run(*arguments: str) -> Result:
            return CliRunner().invoke(fencepost, arguments, env={"FENCEPOST_BOOTSTRAP": process.bootstrap})

        run("topics", "create", "kept", "-p", "1")
        producer = open_transaction(process.bootstrap, "kept", "keeper")
        keep = InitProducerIdRequest(
            transactional_id="keeper", transaction_timeout_ms=60_000, enable2_pc=True, keep_prepared_txn=True
        )
        with WireConnection(process.host, process.port) as connection:
            reply = connection.call(keep, InitProducerIdResponse, 6, flexible_header=True)
        assert reply.error_code == 0
        listed = json.loads(run("transactions", "list", "--in-doubt", "--json").stdout)
        assert [(row["transactional_id"], row["partitions"]) for row in listed] == [("keeper", ["kept-0"])]
        for command in ("commit", "abort"):
            refused = run("transactions", command, "keeper", "--yes")
            assert refused.exit_code == 1
            assert "a later session of keeper keeps the transaction, and alone may end it" in refused.stderr
        (pair,) = {(row["producer_id"], row["producer_epoch"]) for row in listed}
        with Coordinator(process.bootstrap) as coordinator:
            for commit in (True, False):
                with pytest.raises(Superseded, match="is open, and a newer session of its id has kept it"):
                    coordinator.complete(Token(*pair, "keeper"), commit=commit)
        assert "waits for its application's decision" in run("transactions", "why", "kept", "0").stdout
        assert run("transactions", "terminate", "keeper", "--yes").exit_code == 0
        assert run("transactions", "list", "--in-doubt").stdout == "no such transaction is open\n"
        del producer


def test_open_transactions_are_listed_by_their_age(broker: BrokerProcess, run: Run, unique: Unique) -> None:
    name = unique("old")
    run("topics", "create", name, "-p", "1")
    producer = open_transaction(broker.bootstrap, name, name)

    def listed(*options: str) -> list[str]:
        rows = json.loads(run("transactions", "list", *options, "--json").stdout)
        return [row["transactional_id"] for row in rows]

    assert name in listed("--older-than", "0s")
    assert name not in listed("--older-than", "10m")
    assert name not in listed("--in-doubt")
    wrong = run("transactions", "list", "--older-than", "soon")
    assert wrong.exit_code == 2
    assert "'soon' is no duration: write 500ms, 90s, 10m, 2h or 1d" in wrong.stderr
    producer.abort_transaction(60)


def test_why_names_the_transaction_and_the_command_that_ends_it(
    broker: BrokerProcess, run: Run, unique: Unique
) -> None:
    name = unique("why")
    run("topics", "create", name, "-p", "1")
    assert "is not stuck" in run("transactions", "why", name, "0").stdout
    producer = open_transaction(broker.bootstrap, name, name)
    shown = run("transactions", "why", name, "0").stdout
    assert f"{name}-0: read_committed readers stop at offset 0; 1 offset waits behind it" in shown
    assert f"The transaction of {name} is still open" in shown
    found = json.loads(run("transactions", "why", name, "0", "--json").stdout)
    assert found["cause"] == "ongoing"
    assert [link["kind"] for link in found["chain"]][:4] == ["partition", "transaction", "producer", "transactional id"]
    (command,) = [remedy["command"] for remedy in found["remedies"] if remedy["command"]]
    assert command == f"fencepost transactions terminate {name}"
    assert run(*command.split()[1:], "--yes").exit_code == 0
    assert json.loads(run("transactions", "why", name, "0", "--json").stdout)["cause"] == "not_stuck"
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_why_says_what_does_not_exist(run: Run, unique: Unique) -> None:
    missing = run("transactions", "why", unique("missing"), "0")
    assert missing.exit_code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.stderr
    name = unique("short")
    run("topics", "create", name, "-p", "2")
    beyond = run("transactions", "why", name, "9")
    assert beyond.exit_code == 1
    assert f"{name} has no partition 9; it has 2" in beyond.stderr


def test_hanging_transactions_are_listed_and_why_gives_the_remedy(tmp_path: Path) -> None:
    """Without verification an old client's late write opens a transaction that nobody will ever end."""
    settings = {"transaction.partition.verification.enable": "false"}
    with BrokerProcess(tmp_path / "data", settings=settings) as process:

        def run(*arguments: str) -> Result:
            return CliRunner().invoke(fencepost, arguments, env={"FENCEPOST_BOOTSTRAP": process.bootstrap})

        run("topics", "create", "orders", "-p", "1")
        producer = open_transaction(process.bootstrap, "orders", "alive")
        leave_hanging(process.host, process.port, "orders")
        (hanging,) = json.loads(run("transactions", "list", "--hanging", "--json").stdout)
        assert [hanging[column] for column in ("topic", "partition", "producer_id", "producer_epoch")] == [
            "orders",
            0,
            5000,
            3,
        ]
        assert run("transactions", "list", "--hanging", "--older-than", "1h").stdout == "no transaction hangs\n"
        producer.abort_transaction(60)

        def why() -> Any:
            return json.loads(run("transactions", "why", "orders", "0", "--json").stdout)

        until(lambda: why()["cause"] == "hanging")
        found = why()
        (remedy,) = found["remedies"]
        assert run(*remedy["command"].split()[1:], "--yes").exit_code == 0
        assert json.loads(run("transactions", "list", "--hanging", "--json").stdout) == []
