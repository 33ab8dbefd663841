"""Spark's own source and sink at a secured broker, by a delegation token that Spark obtains itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost
from tests.support.broker_process import ROOT, BrokerProcess

pytestmark = pytest.mark.spark

SETTINGS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
    "delegation.token.secret.key": "the secret key",
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.mark.timeout(600)
def test_spark_reads_and_writes_by_a_token_that_it_obtained_until_the_token_ends(tmp_path: Path) -> None:
    data = tmp_path / "data"
    added = CliRunner().invoke(fencepost, ["users", "set", "alice", "--data-dir", str(data)], input="alice-secret\n")
    assert added.exit_code == 0, added.output
    with BrokerProcess(data, settings=SETTINGS, protocol="SASL_PLAINTEXT") as broker:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.token_program", broker.bootstrap, "alice", "alice-secret"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-10_000:]
        steps = [line for line in done.stdout.splitlines() if not line.startswith("::")]  # what Ivy writes
        assert steps == [
            "without a token: IllegalArgumentException",
            "token: kafka.server.delegation.token.orders",
            "by the token: 100",
            "owner: User:alice",
            "its id: True",
            "after its end: SaslAuthenticationException",
        ]
        assert "Traceback" not in broker.output
