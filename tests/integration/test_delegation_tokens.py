"""Delegation tokens with Java's clients: an admin client creates one, a producer and a consumer log in by it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from fencepost.soak.kafka_jars import kafka_clients_class_path
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parent / "java" / "DelegationTokens.java"
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "the secret key",
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.mark.timeout(300)
def test_javas_clients_create_use_and_end_a_token(tmp_path: Path) -> None:
    data = tmp_path / "data"
    added = CliRunner().invoke(fencepost, ["users", "set", "alice", "--data-dir", str(data)], input="alice-secret\n")
    assert added.exit_code == 0, added.output
    with BrokerProcess(data, settings=SETTINGS) as broker:
        done = subprocess.run(
            ["java", "-cp", kafka_clients_class_path(), str(PROGRAM), broker.bootstrap, "alice", "alice-secret"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines() == [
            "owner: User:alice",
            "described: true true",
            "a wrong secret: DelegationTokenNotFoundException",
            "read: 2",
            "a token by a token: UnsupportedByAuthenticationException",
            "expired: true",
            "again: DelegationTokenNotFoundException",
            "a log-in with an expired token: SaslAuthenticationException",
        ]
        assert "Traceback" not in broker.output
