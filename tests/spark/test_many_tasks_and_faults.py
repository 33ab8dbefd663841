"""Batches of a hundred and two hundred tasks, while somebody dies in the middle of their commits."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.protocol.api_keys import ApiKey
from tests.spark.world import Flow, KilledInTurns, LostInTurns, Point, World, world

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

CORES = "local[4,3]"
TIMEOUT_MS = 60_000


def flow_of(here: World, name: str, tasks: int, **options: str) -> Flow:
    return here.flow(name, rows=2 * tasks, partitions=tasks, options=options)


def half_committed(flow: Flow) -> Point:
    """Half of the second batch's transactions are committed."""
    return Point(flow.sink, "task", ApiKey.END_TXN, decided=2, nth=int(flow.fields["partitions"]) // 2)


@pytest.mark.parametrize("kind", ["fencepost", "kafka"])
def test_a_driver_that_is_killed_between_a_hundred_commits_goes_on(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as here:
        flow = flow_of(here, "driver", 100)
        hold = here.wire.hold(half_committed(flow))
        with here.spark(CORES) as spark:
            spark.ask("start", **flow.fields)
            hold.wait()
            spark.kill()
        here.wire.drop(hold)
        with here.spark(CORES) as spark:
            spark.ask("start", **flow.fields)
            assert spark.ask("wait", name=flow.name)["error"] is None
            here.assert_exactly_once(spark)


@pytest.mark.parametrize("kind", ["fencepost", "processes", "kafka"])
def test_a_broker_that_is_killed_between_two_hundred_commits_is_waited_for(kind: str, tmp_path: Path) -> None:
    with world(kind, tmp_path) as here, here.spark(CORES) as spark:
        flow = flow_of(here, "broker", 200)
        hold = here.wire.hold(half_committed(flow))
        spark.ask("start", **flow.fields)
        hold.wait()
        here.broker.kill()
        here.wire.drop(hold)
        here.broker.start()
        assert spark.ask("wait", name=flow.name)["error"] is None
        here.assert_exactly_once(spark)


@pytest.mark.parametrize("kind", ["processes", "machines"])
def test_nodes_that_are_lost_under_a_hundred_tasks_are_waited_for(kind: str, tmp_path: Path) -> None:
    """One while tasks write, another one while the driver commits."""
    with world(kind, tmp_path) as here, here.spark(CORES) as spark:
        assert isinstance(here.broker, KilledInTurns | LostInTurns)
        flow = flow_of(here, "nodes", 100)
        writing = here.wire.hold(Point(flow.sink, "task", ApiKey.PRODUCE, nth=50))
        committing = here.wire.hold(half_committed(flow))
        spark.ask("start", **flow.fields)
        for hold, node_id in ((writing, 0), (committing, 1)):
            hold.wait()
            here.broker.replace(here.broker.node_ids[node_id])
            here.wire.release(hold)
        assert spark.ask("wait", name=flow.name)["error"] is None
        here.assert_exactly_once(spark)


def test_commits_that_take_longer_than_the_driver_waits_are_done_by_the_next_start(tmp_path: Path) -> None:
    with world("fencepost", tmp_path) as here, here.spark(CORES) as spark:
        flow = flow_of(here, "late", 100, **{"kafka.transaction.timeout.ms": str(TIMEOUT_MS)})
        hold = here.wire.hold(half_committed(flow))
        spark.ask("start", **flow.fields)
        error = spark.ask("wait", name=flow.name)["error"]
        assert error is not None
        assert "of 100 transactions were not committed" in error
        here.wire.drop(hold)
        spark.ask("start", **flow.fields)
        assert spark.ask("wait", name=flow.name)["error"] is None
        here.assert_exactly_once(spark)
