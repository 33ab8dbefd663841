"""The driver is killed with kill -9 at each step of a batch, and started again on its checkpoint.

All queries run in one Spark. Each is held at its own point of its second batch; then the Spark is killed, once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fencepost.protocol.api_keys import ApiKey
from tests.spark.world import Point, counts, world

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
