"""The application with a real broker under it; FastStream's own TestBroker replaces the broker and the client."""

from __future__ import annotations

import importlib
import sys

import pytest

pytestmark = pytest.mark.asyncio


@pytest.fixture
def greetings(async_fencepost, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KAFKA", async_fencepost.bootstrap_servers)
    sys.modules.pop("greetings", None)
    return importlib.import_module("greetings")


async def test_a_name_is_greeted(async_fencepost, greetings) -> None:
    await async_fencepost.topic("greetings")
    await async_fencepost.produce("names", "Ada")
    async with greetings.broker:
        await greetings.broker.start()
        (greeting,) = await async_fencepost.records("greetings", count=1)
    assert greeting.value == b"Hello, Ada!"


async def test_a_broker_that_refuses_for_a_while_delays_the_greeting(async_fencepost, greetings) -> None:
    await async_fencepost.topic("greetings")
    refused = async_fencepost.fail("Produce", "NOT_LEADER_OR_FOLLOWER", topic="greetings", count=2)
    await async_fencepost.produce("names", "Ada")
    async with greetings.broker:
        await greetings.broker.start()
        assert len(await async_fencepost.records("greetings", count=1)) == 1
    assert refused.fired == 2
