"""A scrape shows the transactions that nothing but their service ends, by the names that operators gave."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.support.check_back_broker import begin
from tests.support.http_node import HttpNode, http_node

IDS = ("orders-*", "bills-*")


async def scraped(http: HttpNode) -> dict[tuple[str, str], float]:
    """The samples: name without its prefix, and glob."""
    text = (await http.get("/metrics")).text
    return {
        (sample.name.removeprefix("fencepost_two_phase_"), sample.labels["ids"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("fencepost_two_phase_")
    }


async def test_each_glob_has_its_open_transactions_their_oldest_and_the_overdue_ones(tmp_path: Path) -> None:
    async with http_node(
        tmp_path,
        transaction_two_phase_commit_enable=True,
        fencepost_two_phase_transactional_ids=IDS,
        fencepost_two_phase_warn_age_ms=1,
    ) as http:
        node = http.node
        await node.ensure_loaded()
        await node.services.topics.create("out", 2, {})
        before = await scraped(http)
        assert before == {(name, ids): 0 for name in ("open", "oldest_open_seconds", "overdue") for ids in IDS}
        for name in ("orders-1", "orders-2", "times-out"):
            await begin(node, name)
        found = {}

        async def is_overdue() -> bool:
            found.update(await scraped(http))
            return found["overdue", "orders-*"] == 2

        while not await is_overdue():
            pass
        assert found["open", "orders-*"] == 2
        assert 0 < found["oldest_open_seconds", "orders-*"] < 60
        assert [found[name, "bills-*"] for name in ("open", "oldest_open_seconds", "overdue")] == [0, 0, 0]
        assert {ids for _, ids in found} == set(IDS), "what times out is not counted"


async def test_a_broker_without_two_phase_ids_shows_none_of_it(tmp_path: Path) -> None:
    async with http_node(tmp_path) as http:
        assert await scraped(http) == {}
