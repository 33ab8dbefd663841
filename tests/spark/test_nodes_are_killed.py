"""Processes of a broker that has three are killed under queries, which go on: their partitions have another leader."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.spark.world import KilledInTurns, counts, world

BATCHES = 12


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_queries_read_and_write_each_row_once_while_processes_are_killed(tmp_path: Path) -> None:
    with world("processes", tmp_path) as here, here.spark() as spark, ThreadPoolExecutor(1) as thread:
        assert isinstance(here.broker, KilledInTurns)
        flows = [
            here.flow("copied", batches=BATCHES),
            here.flow(
                "counted",
                batches=BATCHES,
                transformation="counting",
                output_mode="update",
                expected=counts(BATCHES),
            ),
        ]
        for flow in flows:
            spark.ask("start", **flow.fields)
        ends = thread.submit(lambda: {flow.name: spark.ask("wait", name=flow.name)["error"] for flow in flows})
        for node_id in here.broker.node_ids:
            assert not ends.done(), "there were too few batches for all kills"
            here.broker.replace(node_id)
        assert ends.result() == dict.fromkeys(flow.name for flow in flows)
        here.assert_exactly_once(spark)
