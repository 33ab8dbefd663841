"""Commands log in by delegation tokens: those on kafka-python's clients, and those on our own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kafka.net.sasl import SASL_MECHANISMS

from fencepost.cli.commands import fencepost
from tests.broker.network.test_sasl_listener import add_scram_user, broker
from tests.cli.test_tokens import MECHANISM, TOKENS, as_user

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(autouse=True)
def mechanisms_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command is a process; here its change must not reach other tests."""
    monkeypatch.setattr("kafka.net.sasl.SASL_MECHANISMS", dict(SASL_MECHANISMS))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(fencepost, arguments)


def by_token(directory: Path, node: Any, token_id: str, secret: str) -> tuple[str, ...]:
    """The options of a command that logs in by a token, as Java's clients do."""
    path = directory / "token.properties"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\n"
        f'sasl.jaas.config={MODULE} required username="{token_id}" password="{secret}" tokenauth="true";\n'
    )
    address = node.addresses[0]
    return ("--bootstrap", f"{address.host}:{address.port}", "--command-config", str(path))


def test_commands_of_both_kinds_log_in_by_a_token_until_it_ends(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path / "data", MECHANISM, **TOKENS) as node:
            await add_scram_user(node, "alice", "secret")
            alice = as_user(node, "alice")
            made = json.loads((await asyncio.to_thread(run, "tokens", "create", "--json", *alice)).output)
            options = by_token(tmp_path, node, made["token_id"], made["hmac"])
            created = await asyncio.to_thread(run, "topics", "create", "orders", *options)
            assert created.exit_code == 0, created.output
            listed = await asyncio.to_thread(run, "topics", "list", "--json", *options)
            assert [row["topic"] for row in json.loads(listed.output)] == ["orders"]
            renewed = await asyncio.to_thread(run, "tokens", "create", *options)
            assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in renewed.output, "who logged in by a token makes none"
            wrong = by_token(tmp_path, node, made["token_id"], "d3Jvbmc=")
            refused = await asyncio.to_thread(run, "topics", "list", *wrong)
            assert refused.exit_code == 1
            assert "refused the log-in" in refused.output
            assert made["token_id"] not in refused.output
            await asyncio.to_thread(run, "tokens", "expire", made["token_id"], "--yes", *alice)
            ended = await asyncio.to_thread(run, "topics", "list", *options)
            assert ended.exit_code == 1
            assert "refused the log-in" in ended.output

    asyncio.run(story())
