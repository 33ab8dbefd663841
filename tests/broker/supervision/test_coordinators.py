"""The runtime of the coordinators meets what nobody foresaw: what may differ from the log is loaded again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from types import MethodType

import pytest

from fencepost.broker.coordination import reloads as coordinator_reloads
from fencepost.broker.coordination import runtime
from fencepost.broker.coordination.replay import Replay
from fencepost.broker.coordination.runtime import (
    CoordinatorPartition,
    CoordinatorRefusal,
    CoordinatorRuntime,
    Decision,
    PartitionState,
)
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import ErrorCode
from tests.broker.coordination.test_runtime import ManualClock, WordShard, park, say, words
from tests.broker.supervision.planting import logged, plants, raising, unforeseen, until
from tests.support.memory_topics import MemoryLog

WORDS = TopicPartition("words", 0)


class Harness:
    """A runtime of one partition. applied_errors: raised one after another when records were applied."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(WORDS)
        self.shards: list[WordShard] = []
        self.applied_errors: list[BaseException] = []
        self.runtime: CoordinatorRuntime[WordShard] = CoordinatorRuntime(
            "words",
            make_shard=self._make_shard,
            clock=self.clock,
            applied=self._applied,
        )

    def _make_shard(self, _: int) -> WordShard:
        self.shards.append(WordShard())
        return self.shards[-1]

    def _applied(self, _: CoordinatorPartition[WordShard]) -> None:
        if self.applied_errors:
            raise self.applied_errors.pop(0)

    async def load(self) -> WordShard:
        await self.runtime.load(0, self.log, coordinator_epoch=0)  # type: ignore[arg-type]  # the part of a log that is used
        return self.runtime.partition(0).shard

    async def active(self) -> WordShard:
        """The shard, as soon as it is served again."""
        await until(lambda: self.state is not PartitionState.LOADING)
        return self.runtime.partition(0).shard

    @property
    def state(self) -> PartitionState:
        return next(iter(self.runtime.partitions())).state


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_reloads, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(runtime, "REFUSED_DEADLINE_PAUSE_S", 0.001)


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    harness = Harness()
    yield harness
    await harness.runtime.close()


@plants(runtime.LOAD)
@unforeseen
async def test_a_load_that_fails_is_done_again(
    harness: Harness, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "run", raising(error, times=2, then=Replay.run))
    with logged(runtime.LOAD, WORDS, times=2):
        with pytest.raises(type(error)):
            await harness.load()
        await harness.active()
    assert await harness.runtime.execute(0, lambda _: say("a")) == "said"


@plants(runtime.LOAD)
async def test_a_load_that_fails_each_time_takes_the_partition_offline(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Replay, "run", raising(RuntimeError("planted")))
    with logged(runtime.LOAD, WORDS, times=coordinator_reloads.MAX_RELOADS + 1) as lines:
        harness.runtime.load(0, harness.log, coordinator_epoch=0)  # type: ignore[arg-type]  # as above
        await until(lambda: harness.state is PartitionState.OFFLINE)
    assert lines[-1]["event"] == "coordinator_partition_offline"
    with pytest.raises(CoordinatorRefusal, match="NOT_COORDINATOR"):
        await harness.runtime.execute(0, lambda _: say("a"))


@plants(runtime.APPLICATION)
@unforeseen
async def test_records_appended_and_not_applied_are_never_served(harness: Harness, error: BaseException) -> None:
    shard = await harness.load()
    await harness.runtime.execute(0, lambda _: say("a"))
    shard.apply = raising(error)  # type: ignore[method-assign]
    with logged(runtime.APPLICATION, WORDS):
        with pytest.raises(CoordinatorRefusal, match="COORDINATOR_LOAD_IN_PROGRESS"):
            await harness.runtime.execute(0, lambda _: say("b"))
        assert harness.runtime.durable_shard(0) is None
        again = await harness.active()
    assert again is not shard
    assert again.words == ["a", "b"]  # the log is the truth
    assert await harness.runtime.execute(0, lambda _: say("c")) == "said"


@plants(runtime.APPLICATION)
@unforeseen
async def test_a_waiting_request_whose_decision_was_not_applied_is_refused(
    harness: Harness, error: BaseException
) -> None:
    shard = await harness.load()
    shard.apply = raising(error)  # type: ignore[method-assign]
    with logged(runtime.APPLICATION, WORDS), pytest.raises(CoordinatorRefusal):
        await harness.runtime.execute(0, lambda _: park("a"))
    assert (await harness.active()).words == ["a"]


@plants(runtime.APPLICATION)
async def test_what_follows_an_application_counts_as_a_part_of_it(harness: Harness) -> None:
    shard = await harness.load()
    harness.applied_errors = [RuntimeError("planted")]
    with logged(runtime.APPLICATION, WORDS), pytest.raises(CoordinatorRefusal):
        await harness.runtime.execute(0, lambda _: say("a"))
    assert (await harness.active()) is not shard


@plants(runtime.APPLICATION)
async def test_a_record_that_can_never_be_applied_takes_the_partition_offline(harness: Harness) -> None:
    await harness.load()
    with logged(runtime.APPLICATION, WORDS, times=coordinator_reloads.MAX_RELOADS + 1):
        for _ in range(coordinator_reloads.MAX_RELOADS + 1):
            (await harness.active()).apply = raising(RuntimeError("planted"))  # type: ignore[method-assign]
            with pytest.raises(CoordinatorRefusal) as refused:
                await harness.runtime.execute(0, lambda _: say("a"))
    assert refused.value.error is ErrorCode.NOT_COORDINATOR
    assert harness.state is PartitionState.OFFLINE


@plants(runtime.DECISION)
@unforeseen
async def test_a_shard_whose_decision_failed_is_served_on(harness: Harness, error: BaseException) -> None:
    shard = await harness.load()
    with logged(runtime.DECISION, WORDS), pytest.raises(type(error)):
        await harness.runtime.execute(0, raising(error))
    with logged(runtime.DECISION, WORDS), pytest.raises(type(error)):
        harness.runtime.execute_without_wait(0, raising(error))
    await asyncio.sleep(0.01)
    assert (await harness.active()) is shard
    assert harness.log.log_end_offset == 0


@plants(runtime.RELOAD_AFTER_DEADLINE)
async def test_a_reload_that_cannot_begin_is_a_failure_of_the_partition(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await harness.load()
    partition = harness.runtime.partition(0)
    monkeypatch.setattr(harness.runtime, "_reload_now", MethodType(raising(RuntimeError("planted")), harness.runtime))
    with logged(runtime.RELOAD_AFTER_DEADLINE, WORDS):
        harness.runtime._reload_after_failed_deadline(partition)
        await asyncio.sleep(0.01)
        assert (await harness.active()) is not shard


@plants(runtime.MARKER)
@unforeseen
async def test_a_marker_that_was_not_applied_stays_and_the_partition_is_reloaded(
    harness: Harness, error: BaseException
) -> None:
    shard = await harness.load()
    await harness.runtime.execute(0, lambda _: Decision(None, words("a"), producer=(7, 3)))
    shard.apply_marker = raising(error)  # type: ignore[method-assign]
    with logged(runtime.MARKER, WORDS):
        assert harness.log.append_marker(7, 3, True, 0, 0, 0) is ErrorCode.NONE
        assert harness.runtime.durable_shard(0) is None
        again = await harness.active()
    assert again.markers == [(7, True)]


@plants(runtime.ANSWER_PARKED)
@unforeseen
async def test_replies_that_cannot_be_made_leave_no_request_waiting(
    harness: Harness, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.load()
    waiting = asyncio.create_task(harness.runtime.execute(0, lambda _: park("a")))
    await asyncio.sleep(0.01)
    monkeypatch.setattr(harness.runtime, "_answer", raising(error))
    with logged(runtime.ANSWER_PARKED, WORDS):
        with pytest.raises(type(error)):
            await harness.runtime.execute(0, lambda _: Decision("told", words("b"), parked_replies=[("me", "answer")]))
        async with asyncio.timeout(60):
            with pytest.raises(CoordinatorRefusal):
                await waiting
    assert (await harness.active()).words == ["a", "b"]


@plants(runtime.DEADLINE)
@unforeseen
async def test_a_deadline_that_fails_is_not_the_last(harness: Harness, error: BaseException) -> None:
    shard = await harness.load()
    shard.deadline_ms = harness.clock.milliseconds
    shard.decide_deadline = raising(error)  # type: ignore[method-assign]
    failed = {runtime.DECISION.name, runtime.DEADLINE.name}
    with pytest.MonkeyPatch.context() as patch:
        logged_lines: list[str] = []
        patch.setattr(type(runtime.DEADLINE), "_log", lambda place, *_: logged_lines.append(place.name))
        await harness.runtime.execute(0, lambda _: say("a"))
        await asyncio.sleep(0.02)
        assert set(logged_lines) == failed
    again = await harness.active()
    assert again is not shard
    # A deadline that fails each time does not keep requests from being served.
    with logged(runtime.DEADLINE, WORDS):
        runtime.DEADLINE.failed(
            error, concerns=WORDS, on_failure=partial(harness.runtime._deadline_failed, harness.runtime.partition(0))
        )
        await asyncio.sleep(0.01)
    assert (await harness.active()) is again
    again.deadline_ms = harness.clock.milliseconds
    await harness.runtime.execute(0, lambda _: say("b"))
    await asyncio.sleep(0.02)
    assert again.words == ["a", "b", "late"]


@plants(runtime.DEADLINE_TIMER)
@unforeseen
async def test_a_timer_of_deadlines_that_fails_has_the_partition_loaded_again(
    harness: Harness, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await harness.load()
    shard.deadline_ms = harness.clock.milliseconds
    monkeypatch.setattr(harness.runtime, "_deadline_reached", raising(error))
    with logged(runtime.DEADLINE_TIMER, WORDS):
        await harness.runtime.execute(0, lambda _: say("a"))
        await asyncio.sleep(0.01)
        assert (await harness.active()) is not shard
