"""Time ends no transaction of a sink's task before its decision was read; of other ids it does at once."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.broker.transaction import sink_tasks
from fencepost.broker.transaction.limits import TransactionLimits
from fencepost.broker.transaction.metadata import TransactionMetadata, new_transaction
from fencepost.broker.transaction.shard import HELD_RETRY_MS, TransactionShard, metadata_record
from fencepost.broker.transaction.sink_tasks import SinkTasks
from fencepost.broker.transaction.state_machine import ONGOING
from tests.support.transaction_shard import NOW_MS, TIMEOUT_MS, ShardDriver

TASK = "squares-3f9a1c02-0-0"
DUE_MS = NOW_MS + TIMEOUT_MS + 1


def open_transaction(name: str) -> TransactionMetadata:
    begun = new_transaction(name, producer_id=1, timeout_ms=TIMEOUT_MS, now_ms=NOW_MS)
    return begun._replace(state=ONGOING, start_ms=NOW_MS)


class Watch:
    """A watch that only counts its runs, and ends when it is let go."""

    def __init__(self) -> None:
        self.runs = 0
        self.let_go = asyncio.Event()
        self.tasks = SinkTasks(self.run)

    async def run(self, tasks: SinkTasks) -> None:
        assert tasks is self.tasks
        self.runs += 1
        await self.let_go.wait()


class WatchedDriver(ShardDriver):
    """A shard that tells its open transactions."""

    def __init__(self, tasks: SinkTasks) -> None:
        self.tasks = tasks
        super().__init__()

    def empty_shard(self) -> TransactionShard:
        return TransactionShard(limits=TransactionLimits(), take_producer_id=lambda: None, sink_tasks=self.tasks)


async def test_a_watch_runs_while_a_task_has_an_open_transaction() -> None:
    watch = Watch()
    watch.tasks.opened(open_transaction("orders-1"))
    assert (watch.tasks.open, watch.tasks._task) == ({}, None)
    for name in (TASK, TASK, "squares-3f9a1c02-1-1"):
        watch.tasks.opened(open_transaction(name))
    assert watch.tasks.open == {"squares": {TASK: None, "squares-3f9a1c02-1-1": None}}
    await asyncio.sleep(0)
    watch.tasks.ended("squares", [TASK, "squares-3f9a1c02-1-1"])
    assert watch.tasks.open == {}
    watch.let_go.set()
    assert watch.tasks._task is not None
    await watch.tasks._task
    watch.tasks.opened(open_transaction(TASK))
    await asyncio.sleep(0)
    assert watch.runs == 2
    await watch.tasks.close()
    watch.tasks.opened(open_transaction(TASK))
    assert watch.tasks._task.done()


async def test_a_shard_holds_the_time_out_of_a_task_until_it_is_marked() -> None:
    watch = Watch()
    driver = WatchedDriver(watch.tasks)
    for name in (TASK, "orders-1"):
        driver.apply(metadata_record(open_transaction(name)))
    driver.do(driver.shard.decide_deadline(DUE_MS))
    states = {name: one.state.display_name for name, one in driver.shard.transactions.items()}
    assert states == {TASK: "Ongoing", "orders-1": "CompleteAbort"}
    assert watch.tasks.due == {"squares": {(TASK, NOW_MS)}}
    assert watch.tasks.asked.is_set()
    driver.do(driver.shard.decide_deadline(DUE_MS + HELD_RETRY_MS - 1))
    watch.tasks.mark(TASK, NOW_MS)
    driver.do(driver.shard.decide_deadline(DUE_MS + HELD_RETRY_MS - 1))
    assert driver.shard.transactions[TASK].state is ONGOING  # it is tried again later
    driver.do(driver.shard.decide_deadline(DUE_MS + HELD_RETRY_MS))
    assert driver.shard.transactions[TASK].state.display_name == "CompleteAbort"
    await watch.tasks.close()


async def test_a_shard_that_is_loaded_tells_its_open_transactions() -> None:
    watch = Watch()
    driver = WatchedDriver(watch.tasks)
    driver.apply(metadata_record(open_transaction(TASK)))
    watch.tasks.open.clear()
    driver.replayed()
    assert watch.tasks.open == {"squares": {TASK: None}}
    await watch.tasks.close()


async def test_a_mark_counts_for_one_transaction_and_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = Watch().tasks
    metadata = open_transaction(TASK)
    assert tasks.may_time_out(open_transaction("orders-1"))
    assert not tasks.may_time_out(metadata)
    tasks.mark(TASK, metadata.start_ms)
    assert tasks.may_time_out(metadata)
    assert not tasks.may_time_out(metadata._replace(start_ms=metadata.start_ms + 1))
    monkeypatch.setattr(sink_tasks, "MARK_S", 0.0)
    assert not tasks.may_time_out(metadata)
