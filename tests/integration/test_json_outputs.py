"""The output of commands with `--json`, against a broker with users, rights, tokens and quotas: it has its schema.

All tests hold every other output with `--json` of commands that they run in their own process against its schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from fencepost.cli.commands import fencepost
from tests.support.broker_process import BrokerProcess
from tests.support.json_outputs import command_of
from tests.support.secured_broker import STANDARD_AUTHORIZER

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
Run = Callable[..., Result]
Show = Callable[..., str]

STEPS = [
    "ping",
    "apis",
    "version",
    "topics create orders other -p 2",
    "topics create orders !",
    "topics list --internal",
    "topics describe orders",
    "topics configs orders --set retention.ms=100000",
    "topics grow orders -p 3 --yes",
    "produce orders",
    "consume orders --from-beginning -e",
    "consume orders --markers",
    "topics trim orders --everything --yes",
    "groups reset-offsets g orders --to earliest",
    "groups list",
    "groups describe g",
    "groups describe g --members",
    "groups delete --pattern g* --dry-run",
    "groups delete-offsets g orders --yes",
    "groups delete g nobody --yes !",
    "transactions list",
    "transactions list --hanging",
    "transactions describe tx",
    "transactions producers orders 0",
    "transactions why orders 0",
    "cluster info",
    "cluster nodes",
    "cluster partitions",
    "acls add --allow-principal User:alice --operation Read --topic orders",
    "acls list",
    "acls remove --topic orders --yes",
    "users set bob --password bob-secret",
    "users list",
    "users remove bob",
    "quotas set --user alice --producer-byte-rate 1000",
    "quotas set --client-id-default --request-percentage 50",
    "quotas list",
    "quotas remove --user alice",
    "configs broker 1 --set log.cleaner.threads=2",
    "configs group g",
    "configs logger 1",
    "bench --records 50",
    "topics delete other --yes",
    "profile create test --bootstrap 127.0.0.1:1 --use",
    "profile list",
    "profile show",
    "profile set test -X client.id=x",
    "profile use test",
    "profile rename test prod",
    "profile path",
    "profile delete prod --yes",
    "profile list",
]
"""In this order; `!` stands behind one that is not done."""


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("json") / "data")
    process.settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": f'{MODULE} required user_admin="admin-secret";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
        "delegation.token.secret.key": "a secret for tokens",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
    }
    with process:
        yield process


@pytest.fixture
def show(secured: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Show:
    """Run a command as the super user, check its output, and return it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FENCEPOST_BOOTSTRAP", secured.bootstrap)
    path = tmp_path / "client.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={MODULE} required username="admin" password="admin-secret";\n'
    )
    monkeypatch.setenv("FENCEPOST_COMMAND_CONFIG", str(path))

    def run(line: str, *more: str, input: str | None = None) -> str:  # noqa: A002  # click's own word
        words = [*line.removesuffix("!").split(), *more, "--json"]
        result = CliRunner().invoke(fencepost, words, input=input, prog_name="fencepost")
        assert (result.exit_code == 0) is not line.endswith("!"), (line, result.output)
        assert command_of(words) is not None
        return result.stdout

    return run


def test_each_output_has_its_schema(show: Show, secured: BrokerProcess) -> None:
    for line in STEPS:
        if line.startswith("produce"):
            show(line, input='{"key": "k", "value": "v", "headers": [["a", "b"]]}\n{"key": "k", "value": null}\n')
            show("produce orders --transactional-id tx", input='{"value": "in a transaction"}\n')
        else:
            show(line)
    created = json.loads(show("tokens create"))["token_id"]
    show("tokens list")
    show(f"tokens renew {created} --period 60000")
    show(f"tokens expire {created} --period 60000 --yes")
    show(f"tokens expire {created} --yes")


@pytest.mark.parametrize("end", ["commit", "abort", "terminate"])
def test_the_ends_of_transactions_have_their_schema(run: Run, broker: BrokerProcess, end: str) -> None:
    assert run("topics", "create", f"ends-{end}", "--json").exit_code == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"tx-{end}"})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(f"ends-{end}", b"value")
    producer.flush()
    assert run("transactions", "list", "--older-than", "0s", "--json").exit_code == 0
    assert run("transactions", "why", f"ends-{end}", "0", "--json").exit_code == 0
    ended = run("transactions", end, f"tx-{end}", "--yes", "--json")
    assert ended.exit_code == 0, ended.output
    del producer


def test_the_checks_of_a_data_directory_and_a_history_have_their_schema(
    run: Run, own_broker: BrokerProcess, tmp_path: Path
) -> None:
    assert run("topics", "create", "orders", "-b", own_broker.bootstrap).exit_code == 0
    assert run("produce", "orders", "-b", own_broker.bootstrap, input="one\n").exit_code == 0
    own_broker.terminate()
    history = tmp_path / "history.jsonl"
    history.write_text("")
    directory = ("--data-dir", str(own_broker.data_directory))
    for command in (
        ("log", "verify", *directory),
        ("log", "dump", "orders-0", "--records", *directory),
        ("log", "restored", *directory),
        ("history", "check", str(history)),
    ):
        result = run(*command, "--json")
        assert result.exit_code == 0, result.output
