"""A scrape of many partitions, groups and transactions holds the event loop in short steps only."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.group.offsets.records import OffsetAndMetadata
from fencepost.broker.group.shard import GroupSummary
from fencepost.broker.http.exchange import HttpRequest
from fencepost.broker.http.view_routes import stuck, transactions
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metrics.exposition import exposition
from fencepost.broker.metrics.families import FAMILIES
from fencepost.broker.metrics.scrape import Scrape
from fencepost.broker.transaction.metadata import new_transaction
from tests.support.http_node import HttpNode, http_node

PARTITIONS_COUNT = 1_000
GROUPS_COUNT = 1_000
TRANSACTIONS_COUNT = 10_000
LONGEST_STEP_S = 0.005
"""Of processor time, on a machine that does other things, too; the aim of a step is 1 ms."""


def longest_step_s(make: Callable[[], Iterator[Any]]) -> float:
    """The longest step of the best of three runs, in processor time: other processes can only add to it. The collector
    does not run meanwhile."""
    found = []
    for _ in range(3):
        gc.collect()
        gc.disable()
        try:
            before_s, longest_s = time.thread_time(), 0.0
            for _ in make():
                now_s = time.thread_time()
                longest_s, before_s = max(longest_s, now_s - before_s), now_s
        finally:
            gc.enable()
        found.append(longest_s)
    return min(found)


async def fill(http: HttpNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many real partitions, and groups and transactions as the coordinators would show them."""
    services = http.node.services
    for number in range(4):
        await services.topics.create(f"topic{number}", PARTITIONS_COUNT // 4, {})
    log = services.topics.log(TopicPartition("topic0", 0))
    assert log is not None
    committed = {TopicPartition("topic0", number): OffsetAndMetadata(0, -1, "", 0) for number in range(10)}
    groups = [GroupSummary(f"group{number}", "consumer", "Stable", 3, committed) for number in range(GROUPS_COUNT)]
    known = [
        new_transaction(f"id{number}", producer_id=number, timeout_ms=1_000, now_ms=0)
        for number in range(TRANSACTIONS_COUNT)
    ]
    monkeypatch.setattr(type(services.groups), "summaries", lambda _: iter(groups))
    monkeypatch.setattr(type(services.transactions), "known", lambda _: list(known))


async def test_no_step_of_a_scrape_is_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with http_node(tmp_path, fencepost_metrics_max_partitions=1_000_000) as http:
        await fill(http, monkeypatch)
        assert http.node._http is not None
        view = http.node._http._view
        assert view is not None
        text = (await http.get("/metrics")).text
        assert text.count("\nkafka_log_log_size{") == PARTITIONS_COUNT
        assert text.count("\nkafka_consumergroup_lag{") == 10 * GROUPS_COUNT
        longest_s = longest_step_s(lambda: exposition(FAMILIES, Scrape(view), is_openmetrics=True))
        assert longest_s < LONGEST_STEP_S
        for route, path in ((transactions, "/v1/transactions"), (stuck, "/v1/stuck")):
            response = await route(view, HttpRequest.of_target("GET", path, {}))
            assert longest_step_s(lambda: response.pieces) < LONGEST_STEP_S, path  # noqa: B023  # used at once
