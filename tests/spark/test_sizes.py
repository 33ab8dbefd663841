"""Batches of as many tasks as people run are there once and whole, without any fault: streaming, and batch jobs.

Who compares is no Spark: another client reads each partition to its end, committed records only.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.world import Spark, World, world

CORES = "local[4,3]"
ROWS_OF_A_TASK = 3


def check_size(here: World, spark: Spark, tasks: int, *, batches: int) -> None:
    """Three ways to write with as many tasks: a query, a query's `foreachBatch`, and a batch job without a sink."""
    rows = tasks * ROWS_OF_A_TASK
    streamed = here.flow(f"streamed-{tasks}", batches=batches, rows=rows, partitions=tasks)
    updated = here.flow(f"updated-{tasks}", batches=batches, rows=rows, partitions=tasks, output_mode="update")
    saved = here.flow(f"saved-{tasks}", batches=1, rows=rows, partitions=tasks)
    for flow in (streamed, updated):
        spark.ask("start", **flow.fields)
        assert spark.ask("wait", name=flow.name)["error"] is None, flow.name
    spark.ask("save", **{**saved.fields, "options": {}})
    here.assert_exactly_once(spark)
    assert here.open_transactions() == []
    for flow in (streamed, updated):
        assert here.decided_tasks(flow) == [tasks] * batches, "Spark has made another number of tasks"


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["fencepost", "processes"])
def test_batches_of_eight_and_of_a_hundred_tasks_are_there_once(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as here, here.spark(CORES) as spark:
        for tasks in (8, 100):
            check_size(here, spark, tasks, batches=1)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("kind", ["fencepost", "processes", "machines", "kafka"])
@pytest.mark.parametrize("tasks", [2, 8, 100, 200, 1000])
def test_batches_of_any_usual_number_of_tasks_are_there_once(kind: str, tasks: int, tmp_path: Path) -> None:
    with world(kind, tmp_path) as here, here.spark(CORES) as spark:
        check_size(here, spark, tasks, batches=2)
