"""Families about the engine of a cluster: a sample of each where a broker has one, and the figures as they are."""

from __future__ import annotations

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from fencepost.broker.cluster.machines.engine_figures import EngineFigures
from fencepost.broker.metrics.engine_families import ENGINE_FAMILIES
from tests.broker.metrics.test_broker_families import values_of
from tests.support.http_node import http_node

FIGURES = EngineFigures(
    flushes={"rows": 7, "objects": 2},
    flushed_bytes={"rows": 700, "objects": 9_000_000},
    flushed_rows=30,
    unflushed_bytes=512,
    is_waiting=True,
    lease_left_s=1.5,
    tail_bytes=4_096,
    tail_budget_bytes=128 * 1024 * 1024,
    sealed_segments=3,
    sealed_bytes=300,
    fetched_segments=1,
    fetched_bytes=100,
    fetched_blocks=17,
    block_reads=18,
    block_read_bytes=19,
    read_replicas=15,
    replica_read_bytes=16,
    merged_segments=12,
    removed_leftovers=13,
    removed_objects=14,
    refused_removals=15,
    object_requests={("put", "done"): 5, ("get", "missing"): 1},
    take_overs=1,
    resignations=2,
    asynchronous_standbys=1,
)


async def test_the_figures_of_the_engine_are_shown_as_they_are_at_the_scrape(tmp_path: Path) -> None:
    async with http_node(tmp_path) as node:
        view = node.node._http._view  # type: ignore[union-attr]
        assert view is not None
        view.engine_figures = lambda: FIGURES
        found = values_of((await node.get("/metrics")).text)
        view.engine_figures = lambda: FIGURES._replace(is_waiting=False)
        later = values_of((await node.get("/metrics?name[]=fencepost_engine_flush_waiting")).text)
    shown = {name.removeprefix("fencepost_engine_"): value for name, value in found.items() if "_engine_" in name}
    assert shown == {
        'flushes_total{kind="rows"}': 7,
        'flushes_total{kind="objects"}': 2,
        'flushed_bytes_total{kind="rows"}': 700,
        'flushed_bytes_total{kind="objects"}': 9_000_000,
        "flushed_rows_total": 30,
        "unflushed_bytes": 512,
        "flush_waiting": 1,
        "lease_left_seconds": 1.5,
        "tail_bytes": 4_096,
        "tail_budget_bytes": 134_217_728,
        "sealed_segments_total": 3,
        "sealed_bytes_total": 300,
        "brought_segments_total": 1,
        "brought_bytes_total": 100,
        "brought_blocks_total": 17,
        "block_reads_total": 18,
        "block_read_bytes_total": 19,
        "read_replicas": 15,
        "replica_read_bytes_total": 16,
        "merged_segments_total": 12,
        "removed_leftovers_total": 13,
        "removed_objects_total": 14,
        "refused_removals": 15,
        'object_requests_total{operation="put",outcome="done"}': 5,
        'object_requests_total{operation="get",outcome="missing"}': 1,
        "take_overs_total": 1,
        "resignations_total": 2,
        "asynchronous_standbys": 1,
    }
    assert later == {"fencepost_engine_flush_waiting": 0}


async def test_a_broker_whose_files_are_its_own_has_no_sample_of_them(tmp_path: Path) -> None:
    async with http_node(tmp_path) as node:
        text = (await node.get("/metrics")).text
    names = {family.openmetrics_name for family in ENGINE_FAMILIES}
    samples = [one.samples for one in text_string_to_metric_families(text) if one.name in names]
    assert not any(samples)
