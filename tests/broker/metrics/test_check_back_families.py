"""What a scrape says of the check-back: the figures that operators are alerted by."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.check_back_host import service as broker_check_back
from fencepost.broker.metrics.check_back_families import CHECK_BACK_FAMILIES
from fencepost.check_back.question import Answer
from tests.broker.supervision.planting import until
from tests.support.check_back_broker import ORDERS, ScriptedSource, begin, core_of
from tests.support.http_node import HttpNode, http_node


async def scraped(http: HttpNode) -> dict[tuple[str, ...], float]:
    """The samples of the check-back: name without its prefix, and the values of its labels."""
    text = (await http.get("/metrics")).text
    return {
        (sample.name.removeprefix("fencepost_check_back_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("fencepost_check_back_")
    }


async def test_a_scrape_shows_what_is_in_doubt_and_what_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ScriptedSource()
    monkeypatch.setattr(broker_check_back, "resolver_for", source.make)
    monkeypatch.setattr(broker_check_back, "POLL_S", 0.005)
    async with http_node(tmp_path, check_back=(ORDERS,), transaction_two_phase_commit_enable=True) as http:
        node = http.node
        await node.ensure_loaded()
        await node.services.topics.create("out", 2, {})
        before = await scraped(http)
        assert (before["in_doubt", "orders"], before["resolver_up", "orders"]) == (0, 1)
        await begin(node, "order-1")
        check_back = core_of(node)
        await until(lambda: check_back.figures.decisions["park", "exhausted"])
        source.answer = Answer.COMMIT
        await begin(node, "order-2")
        await until(lambda: check_back.figures.decisions["commit", "resolver"])
        await until(lambda: len(check_back.schedule.cases) == 1)
        found = await scraped(http)
    assert found["in_doubt", "orders"] == 1
    assert found["parked", "orders"] == 1
    assert 0 <= found["oldest_in_doubt_seconds", "orders"] < 60
    assert found["checks_total", "orders", "unknown"] == ORDERS.checks_max
    assert found["checks_total", "orders", "commit"] == 1
    assert found["decisions_total", "park", "exhausted"] == 1
    assert found["decisions_total", "commit", "resolver"] == 1
    assert found["latency_seconds_count", "orders"] == ORDERS.checks_max + 1
    assert found["latency_seconds_bucket", "orders", "+Inf"] == ORDERS.checks_max + 1
    shown = {name for name, *_ in found}
    for family in CHECK_BACK_FAMILIES:
        assert any(name.startswith(family.name.removeprefix("fencepost_check_back_")) for name in shown), family.name


async def test_a_broker_without_resolvers_shows_none_of_it(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        assert await scraped(http) == {}
