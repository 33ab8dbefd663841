"""`fencepost tokens`: tokens are created, listed, renewed and ended at a running broker."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fencepost.broker.config.password import Password
from fencepost.cli.commands import fencepost
from tests.broker.network.test_sasl_listener import SocketClient, add_scram_user, broker

TOKENS = {"delegation_token_secret_key": Password("the secret key")}
MECHANISM = "SCRAM-SHA-512"


def tokens(*arguments: str, typed: str = "") -> Result:
    return CliRunner().invoke(fencepost, ["tokens", *arguments], input=typed)


def done(*arguments: str, typed: str = "") -> str:
    result = tokens(*arguments, typed=typed)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: str, typed: str = "") -> str:
    result = tokens(*arguments, typed=typed)
    assert result.exit_code != 0
    return result.output


def as_user(node: Any, name: str) -> tuple[str, ...]:
    """The options of a command that logs in as the user."""
    properties = ("security.protocol=SASL_PLAINTEXT", f"sasl.mechanism={MECHANISM}")
    named = (*properties, f"sasl.username={name}", "sasl.password=secret")
    address = node.addresses[0]
    return ("--bootstrap", f"{address.host}:{address.port}", *(part for one in named for part in ("-X", one)))


async def log_in(node: Any, token: dict[str, str]) -> int:
    client = await SocketClient.connect(node)
    reply = await client.by_token(token["token_id"], base64.b64decode(token["hmac"]))
    await client.close()
    return int(reply.error_code)


def test_a_token_is_created_listed_renewed_and_ended(tmp_path: Path) -> None:
    async def story() -> None:
        async with broker(tmp_path, MECHANISM, **TOKENS) as node:
            for name in ("alice", "bob", "carol"):
                await add_scram_user(node, name, "secret")
            alice, bob, carol = (as_user(node, name) for name in ("alice", "bob", "carol"))

            async def run(function: Any, *arguments: str, typed: str = "") -> str:
                return str(await asyncio.to_thread(function, *arguments, typed=typed))

            made = json.loads(
                await run(done, "create", "--renewer", "User:bob", "--max-lifetime", "3600000", "--json", *alice)
            )
            name = made["token_id"]
            assert made["owner"] == "User:alice"
            assert await log_in(node, made) == 0
            for who in (alice, bob):
                (row,) = json.loads(await run(done, "list", "--json", *who))
                assert (row["token_id"], row["renewers"]) == (name, ["User:bob"])
            assert made["hmac"] not in await run(done, "list", *alice)
            assert await run(done, "list", "--owner", "User:carol", *alice) == "no tokens\n"
            assert "there is no token 'other'" in await run(refused, "renew", "other", *alice)
            for change in (("renew", name), ("expire", name, "--yes")):
                assert "DELEGATION_TOKEN_OWNER_MISMATCH (63)" in await run(refused, *change, *carol)
            renewed = json.loads(await run(done, "renew", name, "--period", "60000", "--json", *bob))
            assert renewed["expires"] < made["latest_end"]
            assert "--yes answers beforehand" in await run(refused, "expire", name, *alice)
            assert await log_in(node, made) == 0
            assert await run(done, "expire", name, "--yes", *alice) == f"{name}: removed\n"
            assert await log_in(node, made) != 0
            assert await run(done, "list", *alice) == "no tokens\n"

    asyncio.run(story())


def test_a_broker_without_a_secret_key_refuses_by_the_name_of_kafka(tmp_path: Path) -> None:
    async def story() -> str:
        async with broker(tmp_path, MECHANISM) as node:
            await add_scram_user(node, "alice", "secret")
            return await asyncio.to_thread(refused, "create", *as_user(node, "alice"))

    assert "DELEGATION_TOKEN_AUTH_DISABLED (61)" in asyncio.run(story())


@pytest.mark.parametrize("arguments", [("create", "--owner", "alice"), ("create", "--renewer", ":x")])
def test_a_name_that_is_no_principal_is_refused_before_a_broker_is_asked(arguments: tuple[str, ...]) -> None:
    result = tokens(*arguments, "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "is not TYPE:NAME" in result.output
