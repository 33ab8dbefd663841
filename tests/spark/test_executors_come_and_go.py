"""Spark runs tasks twice, retries stages and takes executors away: nothing of it loses or copies a record."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from fencepost.protocol.api_keys import ApiKey
from tests.spark.standalone import standalone
from tests.spark.wire import Passing
from tests.spark.world import END_TIMEOUT_S, Point, world

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.parametrize("kind", ["fencepost", "kafka"])]


class OfOneTask(Point):
    """Where the first task to come is held, and no other one."""

    _held = ""

    def __call__(self, passing: Passing) -> bool:
        if not super().__call__(passing):
            return False
        self._held = self._held or str(passing.transactional_id)
        return self._held == passing.transactional_id


def test_a_task_that_speculation_runs_twice_counts_once(kind: str, tmp_path: Path) -> None:
    eager = {
        "spark_speculation": "true",
        "spark_speculation_interval": "100ms",
        "spark_speculation_quantile": "0.5",
        "spark_speculation_multiplier": "1.1",
        "spark_speculation_minTaskRuntime": "100ms",
    }
    with world(kind, tmp_path) as here, standalone(tmp_path) as master, here.spark(master, **eager) as spark:
        flow = here.flow("speculated", partitions=4, is_recorded=False)
        slow = here.wire.hold(OfOneTask(flow.sink, "task", ApiKey.PRODUCE, decided=0))
        spark.ask("start", **flow.fields)
        slow.wait()
        # Its batch ends by the other copy alone.
        assert spark.ask("wait", name=flow.name)["error"] is None
        here.wire.release(slow)
        assert max(here.attempts(flow).values()) > 1
        here.assert_exactly_once(spark)


def test_an_executor_that_is_decommissioned_in_a_batch_takes_nothing_away(kind: str, tmp_path: Path) -> None:
    leaving = {"spark_decommission_enabled": "true"}
    with world(kind, tmp_path) as here, here.spark("local-cluster[2,3,1024]", **leaving) as spark:
        flow = here.flow("decommissioned", batches=4, partitions=4, is_recorded=False)
        hold = here.wire.hold(Point(flow.sink, "task", ApiKey.PRODUCE))
        spark.ask("start", **flow.fields)
        hold.wait()
        executor = spark.decommission_executor()
        here.wire.release(hold)
        assert spark.ask("wait", name=flow.name)["error"] is None
        assert psutil.wait_procs([executor], timeout=END_TIMEOUT_S)[1] == [], "it leaves when its tasks have ended"
        here.assert_exactly_once(spark)


def test_a_stage_that_is_retried_writes_each_row_once(kind: str, tmp_path: Path) -> None:
    """An executor dies with what a shuffle has left on it, between two tasks that need it."""
    with world(kind, tmp_path) as here, here.spark("local-cluster[2,1,1024]") as spark:
        flow = here.flow("retried", partitions=8, is_recorded=False)
        hold = here.wire.hold(Point(flow.sink, "task", ApiKey.PRODUCE, nth=3))
        spark.ask("start", **flow.fields)
        hold.wait()
        spark.kill_executor()
        here.wire.release(hold)
        assert spark.ask("wait", name=flow.name)["error"] is None
        assert "FetchFailed" in (tmp_path / "spark.log").read_text()
        assert max(here.attempts(flow).values()) > 1
        here.assert_exactly_once(spark)
