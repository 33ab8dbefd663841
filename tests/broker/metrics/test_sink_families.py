"""A scrape shows the decided batches of Spark's sinks that are not finished, and the time-outs that wait."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.transaction.sink_tasks import UnfinishedBatch
from tests.support.http_node import HttpNode, http_node


async def scraped(http: HttpNode) -> dict[str, float]:
    text = (await http.get("/metrics")).text
    return {
        sample.name.removeprefix("fencepost_sink_"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("fencepost_sink_")
    }


async def test_unfinished_batches_and_held_time_outs_are_counted(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        names = ("unfinished_batches", "unfinished_transactions", "oldest_unfinished_seconds", "held_time_outs")
        assert await scraped(http) == dict.fromkeys((*names, "finished_transactions_total"), 0)
        services = http.node.services
        tasks = services.transactions.sink_tasks
        assert tasks is not None
        now_ms = services.clock.now_ms()
        tasks.unfinished |= {"a": UnfinishedBatch(3, now_ms - 90_000), "b": UnfinishedBatch(2, now_ms)}
        tasks.held["a"] = 4
        tasks.finished = 7
        found = await scraped(http)
        assert [found[name] for name in ("unfinished_batches", "unfinished_transactions", "held_time_outs")] == [
            2,
            5,
            4,
        ]
        assert 90 <= found["oldest_unfinished_seconds"] < 150
        assert found["finished_transactions_total"] == 7


async def test_a_broker_without_decision_topics_shows_none_of_it(tmp_path: Path) -> None:
    async with http_node(tmp_path, fencepost_spark_decision_topics=()) as http:
        assert await scraped(http) == {}
