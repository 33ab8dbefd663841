"""Delegation tokens in a broker of several processes: each change counts at all of them when its reply arrives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fencepost.cli.commands import fencepost
from fencepost.soak.free_port import free_ports
from tests.support.broker_processes import BrokerProcesses

pytestmark = pytest.mark.integration

COUNT = 3
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_alice="alice-secret";',
    "delegation.token.secret.key": "the secret key",
    "connection.failed.authentication.delay.ms": "1",
    "transaction.state.log.num.partitions": "6",
    "offsets.topic.num.partitions": "6",
    "share.coordinator.state.topic.num.partitions": "6",
}


def run(directory: Path, port: int, mechanism: str, login: str, *arguments: str) -> Result:
    path = directory / "client.properties"
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n")
    options = ("--bootstrap", f"127.0.0.1:{port}", "--command-config", str(path))
    return CliRunner().invoke(fencepost, [*arguments, *options])


def as_alice(directory: Path, port: int, *arguments: str) -> Result:
    return run(directory, port, "PLAIN", f'{PLAIN} username="alice" password="alice-secret";', *arguments)


def by_token(directory: Path, port: int, token: dict[str, str]) -> Result:
    login = f'{SCRAM} username="{token["token_id"]}" password="{token["hmac"]}" tokenauth="true";'
    return run(directory, port, "SCRAM-SHA-256", login, "topics", "list", "--json")


@pytest.mark.timeout(300)
def test_a_token_counts_at_every_process_when_its_creation_returns_and_at_none_after_its_end(tmp_path: Path) -> None:
    broker = BrokerProcesses(tmp_path / "data", COUNT, settings=SETTINGS)
    first = free_ports(COUNT)
    broker.config = tmp_path / "server.properties"
    broker.config.write_text(
        f"listeners=CLIENTS://127.0.0.1:{first}\nlistener.security.protocol.map=CLIENTS:SASL_PLAINTEXT\n"
    )
    broker.port = first
    ports = range(first, first + COUNT)
    with broker:
        for number, at in enumerate(ports):
            made = as_alice(tmp_path, at, "tokens", "create", "--json")
            assert made.exit_code == 0, made.output
            token = json.loads(made.output)
            for port in ports:
                found = by_token(tmp_path, port, token)
                assert found.exit_code == 0, (number, port, found.output)
            elsewhere = ports[(number + 1) % COUNT]
            ended = as_alice(tmp_path, elsewhere, "tokens", "expire", token["token_id"], "--yes")
            assert ended.exit_code == 0, ended.output
            for port in ports:
                refused = by_token(tmp_path, port, token)
                assert refused.exit_code == 1, (number, port, refused.output)
                assert "refused the log-in" in refused.output
        assert "Traceback" not in broker.output, broker.output
