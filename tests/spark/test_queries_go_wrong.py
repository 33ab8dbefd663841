"""Queries that are stopped, whose tasks fail, whose broker is killed: nothing of it loses or copies a record."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from fencepost.protocol.api_keys import ApiKey
from tests.spark.test_driver_is_killed import between_the_tokens, decided, prepared, undecided
from tests.spark.world import BATCH_ROWS, Flow, Point, Spark, world

ROW = str(BATCH_ROWS + 10)  # in the middle of a task of the second batch

BROKERS = [pytest.param("fencepost", marks=pytest.mark.spark), pytest.param("kafka", marks=pytest.mark.long)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", BROKERS)
def test_stops_and_failures_in_a_batch_are_mended_by_the_next_start(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as here, here.spark() as spark:
        flag = tmp_path / "failing-row"
        flag.write_text(ROW)
        stopped = here.flow("stopped")
        retried = here.flow("retried", transformation="failing_once", flag=str(flag))
        failed = here.flow("failed", transformation="failing", flag=str(flag))
        copied = here.flow("copied", format="fencepost-copies", is_recorded=False)
        hold = here.wire.hold(Point(stopped.sink, "task", ApiKey.PRODUCE))
        for flow in (stopped, retried, failed, copied):
            spark.ask("start", **flow.fields)
        hold.wait()
        spark.ask("stop", name=stopped.name)
        here.wire.release(hold)  # its task may write after the abort
        for flow in (retried, copied):
            assert spark.ask("wait", name=flow.name)["error"] is None, flow.name
        assert f"failing on purpose at {ROW}" in spark.ask("wait", name=failed.name)["error"]
        flag.unlink()
        for flow in (stopped, failed):
            spark.ask("start", **flow.fields)
        for flow in (stopped, failed):
            assert spark.ask("wait", name=flow.name)["error"] is None, flow.name
        here.assert_exactly_once(spark)
        check_refusals(spark, stopped, failed)


def check_refusals(spark: Spark, flow: Flow, other: Flow) -> None:
    """A query whose checkpoint is gone, and one with the sink of another query, write nothing."""
    with_foreign_sink = {
        **other.fields,
        "checkpoint": f"{other.fields['checkpoint']}-2",
        "options": {"sink": flow.sink},
    }
    shutil.rmtree(flow.fields["checkpoint"])
    for fields in (flow.fields, with_foreign_sink):
        spark.ask("start", **fields)
        error = spark.ask("wait", name=fields["name"])["error"]
        assert "the checkpoint was deleted or set back, or another query uses this sink" in error
        assert "batch 0" in error
    decision = re.search(r"sink\.reset' to '(\w+)'", error)
    assert decision is not None
    spark.ask("start", **{**flow.fields, "options": {"sink": flow.sink, "sink.reset": decision[1]}})
    assert spark.ask("wait", name=flow.name)["error"] is None
    counted = spark.ask("count", bootstrap=flow.fields["bootstrap"], topics=[flow.target, other.target])
    assert counted == {
        flow.target: [2 * len(flow.expected), len(flow.expected)],
        other.target: [len(other.expected)] * 2,
    }


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", BROKERS)
def test_a_broker_that_is_killed_in_a_batch_is_waited_for(kind: str, tmp_path: Path) -> None:
    points = {
        "task-sends": lambda sink: Point(sink, "task", ApiKey.PRODUCE),
        "prepared": prepared,
        "decided": decided,
        "between-the-tokens": between_the_tokens,
    }
    with world(kind, tmp_path) as here, here.spark() as spark:
        flows = [here.flow(name) for name in points]
        holds = [here.wire.hold(points[flow.name](flow.sink)) for flow in flows]
        for flow in flows:
            spark.ask("start", **flow.fields)
        for hold in holds:
            hold.wait()
        here.broker.kill()
        for hold in holds:
            here.wire.drop(hold)
        here.broker.start()
        ends = {flow.name: spark.ask("wait", name=flow.name)["error"] for flow in flows}
        assert ends == dict.fromkeys(points)
        here.assert_exactly_once(spark)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["fencepost", "kafka"])
def test_a_lost_executor_loses_and_copies_nothing(kind: str, tmp_path: Path) -> None:
    points = {
        "task-begins": lambda sink: Point(sink, "task", ApiKey.INIT_PRODUCER_ID),
        "task-sends": lambda sink: Point(sink, "task", ApiKey.PRODUCE),
        "task-sent": lambda sink: Point(sink, "task", ApiKey.PRODUCE, is_reply=True),
    }
    with world(kind, tmp_path) as here, here.spark("local-cluster[2,3,1024]") as spark:
        flows = [here.flow(name, batches=3, is_recorded=False) for name in points]
        holds = [here.wire.hold(points[flow.name](flow.sink)) for flow in flows]
        for flow in flows:
            spark.ask("start", **flow.fields)
        for hold in holds:
            hold.wait()
        spark.kill_executor()
        for hold in holds:
            here.wire.release(hold)
        ends = {flow.name: spark.ask("wait", name=flow.name)["error"] for flow in flows}
        assert ends == dict.fromkeys(points)
        here.assert_exactly_once(spark)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["fencepost", "kafka"])
def test_a_driver_that_was_replaced_decides_nothing(kind: str, tmp_path: Path) -> None:
    points = {"undecided": undecided, "between-the-tokens": between_the_tokens}
    with world(kind, tmp_path) as here, here.spark() as former, here.spark() as later:
        flows = [here.flow(name, batches=3) for name in points]
        holds = [here.wire.hold(points[flow.name](flow.sink)) for flow in flows]
        for flow in flows:
            former.ask("start", **flow.fields)
        for hold in holds:
            hold.wait()
        held = {flow.name: here.wire.keep(hold) for flow, hold in zip(flows, holds, strict=True)}
        assert all(held.values())
        for flow in flows:
            later.ask("start", **flow.fields)
        ends = {flow.name: later.ask("wait", name=flow.name)["error"] for flow in flows}
        assert ends == dict.fromkeys(points)
        for hold in holds:
            here.wire.release(hold)
        for flow in flows:
            assert former.ask("wait", name=flow.name)["error"] is not None, flow.name
        here.assert_exactly_once(later)
