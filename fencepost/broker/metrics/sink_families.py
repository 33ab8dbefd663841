"""Families about the decided batches of Spark's sinks: how many have transactions that are still open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost.broker.metrics.family import Family, Kind, Sample, Samples
from fencepost.broker.metrics.scrape import Scrape
from fencepost.broker.transaction.sink_tasks import SinkTasks


def _one(value: Callable[[SinkTasks, int], float]) -> Callable[[Scrape], Samples]:
    """A sample, unless no topic may decide. value: gets the time, in ms."""

    def collect(scrape: Scrape) -> Samples:
        tasks = scrape.view.services.transactions.sink_tasks
        if tasks is not None:
            yield Sample("", value(tasks, scrape.now_ms))

    return collect


def _oldest_s(tasks: SinkTasks, now_ms: int) -> float:
    oldest_ms = min((batch.decided_ms for batch in tasks.unfinished.values()), default=now_ms)
    return max(0, now_ms - oldest_ms) / 1000


SINK_FAMILIES: Final = (
    Family(
        "fencepost_sink_unfinished_batches",
        Kind.GAUGE,
        "Decided batches of Spark's sinks that have open transactions at this coordinator, though it has looked.",
        (),
        _one(lambda tasks, _: len(tasks.unfinished)),
    ),
    Family(
        "fencepost_sink_unfinished_transactions",
        Kind.GAUGE,
        "Their open transactions.",
        (),
        _one(lambda tasks, _: sum(batch.transactions for batch in tasks.unfinished.values())),
    ),
    Family(
        "fencepost_sink_oldest_unfinished_seconds",
        Kind.GAUGE,
        "Time since the decision of the oldest of them; 0 without any.",
        (),
        _one(_oldest_s),
    ),
    Family(
        "fencepost_sink_held_time_outs",
        Kind.GAUGE,
        "Transactions of sinks' tasks whose time-out is due and waits, as their decision topic cannot be read.",
        (),
        _one(lambda tasks, _: sum(tasks.held.values())),
    ),
    Family(
        "fencepost_sink_finished_transactions_total",
        Kind.COUNTER,
        "Decided transactions that this coordinator has committed in place of their driver.",
        (),
        _one(lambda tasks, _: tasks.finished),
    ),
)
