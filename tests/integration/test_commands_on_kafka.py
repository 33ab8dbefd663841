"""Each command that asks a broker, against Apache Kafka: it works there, or says why not; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from fencepost.cli.cluster_leaders import NO_CHOICE
from fencepost.cli.commands import fencepost
from fencepost.cli.other_brokers import OTHER_BROKERS
from fencepost.soak.free_port import free_port
from scripts.apache_kafka import ApacheKafka
from tests.support.json_outputs import command_of
from tests.support.missing_tools import require_apache_kafka

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

NO_AUTHORIZER: Final = "SECURITY_DISABLED"
NO_TOKENS: Final = "DELEGATION_TOKEN_"

STEPS: Final[list[tuple[str, str | None]]] = [
    ("ping", None),
    ("apis", None),
    ("cluster info", None),
    ("cluster nodes", None),
    ("cluster partitions", None),
    ("topics create orders other -p 2", None),
    ("topics list --internal", None),
    ("topics grow orders -p 3", None),
    ("topics configs orders --set retention.ms=100000000000", None),
    ("produce orders", None),
    ("produce orders --transactional-id tx", None),
    ("topics describe orders", None),
    ("consume orders --from-beginning -e", None),
    ("groups reset-offsets g orders --to earliest", None),
    ("groups list", None),
    ("groups describe g", None),
    ("groups export g", None),
    ("groups import FILE --yes", None),
    ("groups delete-offsets g orders --yes", None),
    ("groups reset-offsets g orders --to earliest", None),
    ("groups dead-letters g", "has no dead-letter topic"),
    ("groups redeliver g --yes", "has no dead-letter topic"),
    ("groups delete g --yes", None),
    ("transactions list", None),
    ("transactions list --hanging", None),
    ("transactions list --older-than 0s", None),
    ("transactions describe tx", None),
    ("transactions producers orders 0", None),
    ("transactions why orders 0", None),
    ("transactions commit tx --yes", "tx has no open transaction"),
    ("transactions ask-again open-ask", "no check-back asks about open-ask"),
    ("transactions commit open-commit --yes", None),
    ("transactions abort open-abort --yes", None),
    ("transactions terminate open-terminate --yes", None),
    ("transactions abort-hanging orders 0 --producer-id 999 --yes", "999"),
    ("cluster move orders 0 --to 2", "there is no node 2; the nodes are 1"),
    ("cluster drain 1", "no other node is alive"),
    ("cluster drain 1 --resume", NO_CHOICE),
    ("acls add --allow-principal User:alice --operation Read --topic orders", NO_AUTHORIZER),
    ("acls list", NO_AUTHORIZER),
    ("acls remove --topic orders --yes", NO_AUTHORIZER),
    ("users set bob --password bob-secret", None),
    ("users list", None),
    ("users remove bob", None),
    ("tokens create", NO_TOKENS),
    ("tokens list", NO_TOKENS),
    ("tokens renew AAAA", NO_TOKENS),
    ("tokens expire AAAA --yes", NO_TOKENS),
    ("quotas set --user alice --producer-byte-rate 1000", None),
    ("quotas list", None),
    ("quotas remove --user alice", None),
    ("configs broker 1", None),
    ("configs group g", None),
    ("configs logger 1", None),
    ("bench --records 20", None),
    ("spark finish --topic missing", "there is no such topic"),
    ("topics trim orders --everything --yes", None),
    ("topics delete orders other --yes", None),
]
"""In this order: a command, and the reason with which it is refused, None if it works."""

ELSEWHERE: Final = {"console", "check-back", "two-phase compare"}
"""Run until they are stopped, or need a database: tests/console/test_apache_kafka.py, tests/two_phase and
tests/compat/test_two_phase_services_on_kafka.py run them against Apache Kafka."""

Run = Callable[[str], Result]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    require_apache_kafka()
    folder: Path = tmp_path_factory.mktemp("kafka")
    with ApacheKafka(folder, free_port()) as kafka:

        def run_there(line: str) -> Result:
            words = line.replace("FILE", str(folder / "groups.jsonl")).split()
            given = "one\ntwo\n" if words[0] == "produce" else None
            environment = {"FENCEPOST_BOOTSTRAP": kafka.bootstrap_servers}
            result = CliRunner().invoke(fencepost, words, input=given, env=environment, prog_name="fencepost")
            if line.startswith("groups export"):
                (folder / "groups.jsonl").write_text(result.stdout)
            if line.startswith("produce orders --transactional-id"):
                for end in ("ask", "commit", "abort", "terminate"):
                    leave_open(kafka.bootstrap_servers, f"open-{end}")
            return result

        yield run_there


def leave_open(bootstrap: str, transactional_id: str) -> None:
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    producer = Producer({**settings, "transaction.timeout.ms": 600_000, "log_level": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=1)
    assert producer.flush(60) == 0
    OPEN.append(producer)


OPEN: Final[list[Producer]] = []
"""They are not closed: that would end their transactions."""


def test_each_command_works_with_apache_kafka_or_says_why_not(run: Run) -> None:
    for line, reason in STEPS:
        result = run(line)
        assert result.exception is None or isinstance(result.exception, SystemExit), (line, result.exception)
        assert "Traceback" not in result.output, line
        if reason is None:
            assert result.exit_code == 0, (line, result.output)
        else:
            assert result.exit_code == 1, (line, result.output)
            assert reason in result.stderr or reason in result.stdout, (line, result.output)
    assert json.loads(run("topics list --json").stdout) == []
    OPEN.clear()


def test_each_command_that_asks_a_broker_is_among_them() -> None:
    asking = {name for name, there in OTHER_BROKERS.items() if there is not None}
    assert {command_of(line.split()) or line for line, _ in STEPS} | {"groups export"} >= asking - ELSEWHERE
    refused = {command_of(line.split()) for line, reason in STEPS if reason == NO_CHOICE}
    # One broker has nobody to move to: tests/cli/test_cluster_leaders.py has two.
    is_none = {name for name, there in OTHER_BROKERS.items() if there is not None and not there.works}
    assert refused == is_none - {"cluster move"}
