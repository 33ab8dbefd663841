"""The commands against a broker that wants log-ins: with `--command-config` they work, without it they say why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from tests.support.broker_process import BrokerProcess
from tests.support.secured_broker import STANDARD_AUTHORIZER

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("secured") / "data")
    process.settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.jaas.config": f'{MODULE} required user_admin="admin-secret" user_alice="alice-secret";',
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:admin",
    }
    with process:
        yield process


@pytest.fixture
def run(secured: BrokerProcess, tmp_path: Path) -> Run:
    def run_as(user: str | None, *arguments: str, password: str | None = None, input: str | None = None) -> Result:  # noqa: A002
        environment = {"FENCEPOST_BOOTSTRAP": secured.bootstrap}
        if user is not None:
            path = tmp_path / "client.properties"
            path.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
                f'sasl.jaas.config={MODULE} required username="{user}" password="{password or user + "-secret"}";\n'
            )
            environment["FENCEPOST_COMMAND_CONFIG"] = str(path)
        result = CliRunner().invoke(fencepost, arguments, input=input, env=environment, prog_name="fencepost")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run_as


def test_every_command_works_with_the_properties_of_a_user(run: Run) -> None:
    commands = [
        (("ping",), None),
        (("cluster", "info"), None),
        (("topics", "create", "orders", "--partitions", "2"), None),
        (("topics", "list"), None),
        (("topics", "describe", "orders"), None),
        (("topics", "configs", "orders"), None),
        (("produce", "orders"), "one\n"),
        (("produce", "orders", "--transactional-id", "tx"), "two\n"),
        (("consume", "orders", "--from-beginning", "--group", "billing", "--max-records", "2"), None),
        (("groups", "list"), None),
        (("groups", "describe", "billing"), None),
        (("groups", "reset-offsets", "billing", "orders", "--to", "earliest"), None),
        (("transactions", "list"), None),
        (("transactions", "describe", "tx"), None),
        (("acls", "add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "orders"), None),
        (("acls", "list"), None),
        (("quotas", "set", "--user", "alice", "--producer-byte-rate", "1000000"), None),
        (("quotas", "list"), None),
        (("topics", "delete", "orders", "--yes"), None),
    ]
    for command, given in commands:
        result = run("admin", *command, input=given)
        assert result.exit_code == 0, (command, result.output)


def test_without_properties_the_message_says_what_is_missing(run: Run) -> None:
    for command in (("topics", "list"), ("consume", "orders"), ("quotas", "list")):
        result = run(None, *command)
        assert result.exit_code == 1
        assert "has not logged in: give --command-config" in result.stderr
        assert len(result.stderr.splitlines()) == 1
    assert run(None, "ping").exit_code == 0  # it serves


def test_a_wrong_password_is_refused_at_once(run: Run) -> None:
    for command in (("ping",), ("ping", "--wait-seconds", "60"), ("topics", "list"), ("produce", "orders")):
        result = run("admin", *command, password="guess")
        assert result.exit_code == 1
        assert "it refused the log-in: Authentication failed: Invalid username or password" in result.stderr
        assert "guess" not in result.output


def test_a_user_without_rights_is_refused_with_kafkas_error(run: Run) -> None:
    result = run("alice", "quotas", "set", "--user", "alice", "--consumer-byte-rate", "1")
    assert (result.exit_code, "CLUSTER_AUTHORIZATION_FAILED" in result.stderr) == (1, True)


def test_options_count_more_than_the_file(run: Run) -> None:
    result = run("admin", "ping", "-X", "sasl.username=alice", "-X", "sasl.password=guess")
    assert "it refused the log-in" in result.stderr
    result = run("admin", "ping", "-X", "sasl.mechanism=SCRAM-SHA-512")
    assert "sasl.mechanism=SCRAM-SHA-512 is not enabled; enabled there: PLAIN, SCRAM-SHA-256" in result.stderr
    result = run("admin", "ping", "-X", "security.protocol=SSL")
    assert (result.exit_code, "sasl.mechanism" in result.stderr) == (1, False)


def test_quotas_are_set_shown_and_removed(run: Run) -> None:
    assert run("admin", "quotas", "set", "--user", "bob", "--consumer-byte-rate", "5000").exit_code == 0
    options = ("--user-default", "--client-id", "app", "--request-percentage", "50", "--producer-byte-rate", "7")
    assert run("admin", "quotas", "set", *options).exit_code == 0
    lines = run("admin", "quotas", "list", "--user", "bob").stdout.split()
    assert lines[-2:] == ["bob", "5000.0"]
    assert (
        run(
            "admin", "quotas", "remove", "--user-default", "--client-id", "app", "--quota", "request_percentage"
        ).exit_code
        == 0
    )
    found = run("admin", "quotas", "list", "--user-default", "--client-id", "app", "--json").stdout
    assert '"producer_byte_rate": 7.0' in found
    assert '"request_percentage": null' in found
    assert run("admin", "quotas", "remove", "--user", "bob").exit_code == 0
    assert run("admin", "quotas", "list", "--user", "bob").stdout == "no quotas\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("set", "--producer-byte-rate", "5"), "say for whom"),
        (("set", "--user", "bob"), "say how much"),
        (("set", "--user", "bob", "--user-default", "--producer-byte-rate", "5"), "either --user or --user-default"),
        (("set", "--ip", "127.0.0.1", "--user", "bob", "--connection-creation-rate", "5"), "quotas of its own"),
        (("set", "--user", "bob", "--connection-creation-rate", "5"), "INVALID_REQUEST"),
        (("set", "--user", "bob", "--producer-byte-rate", "0"), "0.0 is not in the range x>0"),
        (("remove",), "say for whom"),
    ],
)
def test_errors_about_quotas_take_one_line(run: Run, arguments: tuple[str, ...], message: str) -> None:
    result = run("admin", "quotas", *arguments)
    assert result.exit_code in (1, 2)
    assert message in result.stderr.splitlines()[-1]
