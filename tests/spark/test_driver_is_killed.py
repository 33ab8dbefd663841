"""The driver is killed with kill -9 at each step of a batch, and started again on its checkpoint.

All queries run in one Spark. Each is held at its own point of its second batch; then the Spark is killed, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fencepost.broker.check_back_host.decided_batches import FIRST_MS, PAUSE_S
from fencepost.check_back.decided import is_job, sink_of
from fencepost.protocol.api_keys import ApiKey
from tests.spark.wire import Passing
from tests.spark.world import Point, counts, world
from tests.support.conditions import until

BOUND_S = FIRST_MS / 1000 + PAUSE_S + 45.0
"""The broker's, and what a busy machine adds."""
PRODUCE, INIT, END = ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN


@dataclass(frozen=True)
class Case:
    """Where a query is held, what it is, and what is different when it is started again."""

    point: Callable[[str], Point]
    query: Mapping[str, Any] = field(default_factory=dict)
    again: Mapping[str, Any] = field(default_factory=dict)


COUNTING = {"transformation": "counting", "output_mode": "update", "expected": counts(2)}
IN_ONE = {"options": {"mode": "driver"}}


def prepared(sink: str) -> Point:
    """All tasks are prepared, and the commit begins to ask whether they still are."""
    return Point(sink, "check", ApiKey.DESCRIBE_TRANSACTIONS)


def undecided(sink: str) -> Point:
    """The decision is written, and the request to commit it has not arrived."""
    return Point(sink, "decision", END)


def decided(sink: str) -> Point:
    """The decision is committed, and the driver does not know it."""
    return Point(sink, "decision", END, is_reply=True)


def between_the_tokens(sink: str) -> Point:
    """One transaction of the batch is committed, the other one is not."""
    return Point(sink, "task", END, decided=2, nth=2)


CASES: Mapping[str, Case] = {
    "task-begins": Case(lambda sink: Point(sink, "task", INIT)),
    "task-sends": Case(lambda sink: Point(sink, "task", PRODUCE)),
    "task-sent": Case(lambda sink: Point(sink, "task", PRODUCE, is_reply=True)),
    "prepared": Case(prepared),
    "first-session": Case(lambda sink: Point(sink, "driver", INIT, decided=0, is_reply=True)),
    "decision-is-sent": Case(lambda sink: Point(sink, "decision", PRODUCE)),
    "decision-is-written": Case(lambda sink: Point(sink, "decision", PRODUCE, is_reply=True)),
    "undecided": Case(undecided),
    "decided": Case(decided),
    "before-the-tokens": Case(lambda sink: Point(sink, "task", END, decided=2)),
    "between-the-tokens": Case(between_the_tokens),
    "after-the-tokens": Case(lambda sink: Point(sink, "done", PRODUCE, decided=2)),
    "done": Case(lambda sink: Point(sink, "done", END, decided=2, is_reply=True)),
    "next-batch": Case(lambda sink: Point(sink, "task", INIT, decided=2), {"batches": 3}),
    "prepared-then-fewer-tasks": Case(prepared, {"partitions": 3}, {"partitions": 1}),
    "decided-then-more-tasks": Case(decided, again={"partitions": 5}),
    "between-the-tokens-then-more-tasks": Case(between_the_tokens, again={"partitions": 5}),
    "counting-prepared": Case(prepared, COUNTING),
    "counting-between-the-tokens": Case(between_the_tokens, COUNTING),
    "in-one-undecided": Case(undecided, IN_ONE),
    "in-one-decided": Case(decided, IN_ONE),
}
SAMPLE = ("prepared", "decided-then-more-tasks", "counting-between-the-tokens")


def check_kill(kind: str, folder: Path, names: tuple[str, ...]) -> None:
    with world(kind, folder) as here:
        flows = [here.flow(name, **CASES[name].query) for name in names]
        holds = [here.wire.hold(CASES[flow.name].point(flow.sink)) for flow in flows]
        with here.spark() as spark:
            for flow in flows:
                spark.ask("start", **flow.fields)
            for hold in holds:
                hold.wait()
            spark.kill()
        for hold in holds:
            here.wire.drop(hold)
        with here.spark() as spark:
            for flow in flows:
                spark.ask("start", **{**flow.fields, **CASES[flow.name].again})
            ends = {flow.name: spark.ask("wait", name=flow.name)["error"] for flow in flows}
            assert ends == dict.fromkeys(names)
            here.assert_exactly_once(spark)


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_killed_driver_goes_on_without_loss_or_copy(tmp_path: Path) -> None:
    check_kill("fencepost", tmp_path, SAMPLE)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["fencepost", "kafka"])
def test_a_driver_that_is_killed_at_any_step_goes_on_without_loss_or_copy(kind: str, tmp_path: Path) -> None:
    check_kill(kind, tmp_path, tuple(CASES))


def committing_second_task_of_a_job() -> Callable[[Passing], bool]:
    """One transaction of a batch job without a sink's name is committed, and the next one is not."""
    ends: list[str] = []

    def matches(passing: Passing) -> bool:
        if passing.api is not END or passing.is_reply:
            return False
        sink = sink_of(passing.transactional_id)
        if sink is None or not is_job(sink):
            return False
        ends.append(passing.transactional_id)
        return len(ends) > 1

    return matches


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_a_broker_finishes_what_a_killed_driver_has_decided_though_nobody_starts_it_again(tmp_path: Path) -> None:
    with world("fencepost", tmp_path) as here:
        # Not recorded: commits of the broker itself do not pass the wire.
        query = here.flow("nobody-restarts", partitions=4, is_recorded=False)
        job = here.flow("nobody-saves-again", batches=1, partitions=4, is_recorded=False)
        holds = [
            here.wire.hold(Point(query.sink, "task", END, decided=2, nth=3)),
            here.wire.hold(committing_second_task_of_a_job()),
        ]
        with here.spark() as spark, ThreadPoolExecutor(1) as thread:
            spark.ask("start", **query.fields)
            holds[0].wait()
            saving = thread.submit(spark.ask, "save", **{**job.fields, "options": {}})
            holds[1].wait()
            spark.kill()  # between two commits of each
            assert saving.exception() is not None
        for hold in holds:
            here.wire.drop(hold)
        until(lambda: (here.values(query), here.values(job)) == (query.expected, job.expected), timeout_s=BOUND_S)
        assert here.open_transactions() == []
