"""Nodes of a broker that has three are killed under queries, which go on: their partitions have another leader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost.protocol.api_keys import ApiKey
from tests.spark.world import Flow, KilledInTurns, LostInTurns, Point, World, counts, world

BATCHES = 12
BATCHES_ON_MACHINES = 10  # of which each loss takes two at most: one until its point, and the one in which it is


def flows_of(here: World, batches: int) -> list[Flow]:
    return [
        here.flow("copied", batches=batches),
        here.flow(
            "counted", batches=batches, transformation="counting", output_mode="update", expected=counts(batches)
        ),
    ]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_queries_read_and_write_each_row_once_while_processes_are_killed(tmp_path: Path) -> None:
    with world("processes", tmp_path) as here, here.spark() as spark, ThreadPoolExecutor(1) as thread:
        assert isinstance(here.broker, KilledInTurns)
        flows = flows_of(here, BATCHES)
        for flow in flows:
            spark.ask("start", **flow.fields)
        ends = thread.submit(lambda: {flow.name: spark.ask("wait", name=flow.name)["error"] for flow in flows})
        for node_id in here.broker.node_ids:
            assert not ends.done(), "there were too few batches for all kills"
            here.broker.replace(node_id)
        assert ends.result() == dict.fromkeys(flow.name for flow in flows)
        here.assert_exactly_once(spark)


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_queries_read_and_write_each_row_once_while_machines_are_lost(tmp_path: Path) -> None:
    """Each is lost while the tasks of a batch write; what they have sent arrives when another one has taken over."""
    with world("machines", tmp_path) as here, here.spark() as spark:
        assert isinstance(here.broker, LostInTurns)
        flows = flows_of(here, BATCHES_ON_MACHINES)
        for flow in flows:
            spark.ask("start", **flow.fields)
        for node_id in here.broker.machines:
            hold = here.wire.hold(Point(flows[0].sink, "task", ApiKey.PRODUCE))
            hold.wait()
            here.broker.replace(node_id)
            here.wire.release(hold)
        assert {flow.name: spark.ask("wait", name=flow.name)["error"] for flow in flows} == {
            flow.name: None for flow in flows
        }
        here.assert_exactly_once(spark)
