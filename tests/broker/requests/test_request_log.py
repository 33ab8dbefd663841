"""The request log: off until a level switches it on, with or without metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.config import Alteration, AlterOperation
from fencepost.broker.kernel.loggers import Loggers, LogLevel
from fencepost.broker.node import Node
from fencepost.broker.requests.request_log import NAMES, RequestLog
from fencepost.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker.test_node import connected, settings_for
from tests.support.captured_events import capture_logs
from tests.support.http_node import LISTENER

ASKED = ApiVersionsRequest("tested", "1.0")


@asynccontextmanager
async def started(directory: Path, loggers: Loggers, **chosen: Any) -> AsyncIterator[Node]:
    node = Node(settings_for(directory, **chosen), loggers=loggers)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def set_level(node: Node, name: str, level: str | None) -> None:
    operation = AlterOperation.DELETE if level is None else AlterOperation.SET
    alteration = Alteration(name, operation, level)
    assert node.services.loggers.alter(1, "1", [alteration], validate_only=False) is None


async def logged(node: Node) -> list[Any]:
    """The events of the request log about one request."""
    with capture_logs() as events:
        async with connected(node) as client:
            await client.call(ASKED, ApiVersionsResponse, 3)
    return [event for event in events if event["event"] == "request_answered"]


@pytest.mark.parametrize("http", [None, LISTENER])
@pytest.mark.parametrize("name", NAMES)
async def test_its_logger_switches_it_on_and_off_while_the_broker_runs(
    tmp_path: Path, name: str, http: str | None
) -> None:
    loggers = Loggers(LogLevel.DEBUG)
    async with started(tmp_path, loggers, fencepost_http_listener=http) as node:
        assert await logged(node) == [], "the level of all loggers does not switch it on"
        set_level(node, name, "DEBUG")
        (event,) = await logged(node)
        assert (event["api"], event["version"], event["client_id"]) == ("ApiVersions", 3, "test")
        assert (event["principal"], event["client"], event["log_level"]) == ("User:ANONYMOUS", "127.0.0.1", "debug")
        assert 0 < event["duration_ms"] < 10_000
        set_level(node, name, None)
        assert await logged(node) == []
        assert (node.services.observer is None) is (http is None)
    assert not loggers.on_changed


async def test_a_request_that_was_under_way_when_it_was_switched_on_has_no_duration(tmp_path: Path) -> None:
    async with started(tmp_path, Loggers()) as node:
        observer = RequestLog()
        async with connected(node) as client:
            begun = observer.begun
            observer.begun = lambda *_: None  # type: ignore[method-assign]
            for server in node.servers.of_clients:
                server._dispatcher._services.observer = observer  # type: ignore[attr-defined]
            with capture_logs() as events:
                await client.call(ASKED, ApiVersionsResponse, 3)
            observer.begun = begun  # type: ignore[method-assign]
        (event,) = [event for event in events if event["event"] == "request_answered"]
        assert event["duration_ms"] is None
