"""The page on which people choose a cluster."""

from __future__ import annotations

import asyncio
import time

import pytest

from fencepost.client.cluster import Cluster
from fencepost.console.options import ClusterOptions, ConsoleOptions
from tests.console.running import RunningConsole, get_json


def test_a_cluster_that_hangs_is_shown_after_a_moment_without_its_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def view(*_: object) -> None:
        await asyncio.sleep(3600)

    monkeypatch.setattr(Cluster, "view", view)
    nowhere = (("127.0.0.1", 1),)
    clusters = tuple(ClusterOptions(nowhere, name=name) for name in ("one", "two"))
    with RunningConsole(ConsoleOptions(nowhere, clusters=clusters)) as console, console.browser() as browser:
        began_s = time.monotonic()
        choices = get_json(browser, "/clusters")["choices"]
        assert time.monotonic() - began_s < 30
    assert [(one["name"], one["state"]) for one in choices] == [("one", "no answer yet"), ("two", "no answer yet")]
