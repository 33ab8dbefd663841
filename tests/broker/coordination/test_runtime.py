"""The runtime of the coordinators: one path for living and loading, replies after durability, waiting requests,
deadlines, lost disks.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest

from fencepost.broker.coordination import runtime
from fencepost.broker.coordination.replay import Replay
from fencepost.broker.coordination.runtime import (
    CoordinatorPartition,
    CoordinatorRecord,
    CoordinatorRefusal,
    CoordinatorRuntime,
    Decision,
    Parked,
    RecordOrigin,
    partition_for_key,
)
from fencepost.broker.kernel.clock import SystemClock
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.protocol.errors import ErrorCode
from tests.broker.supervision.planting import until
from tests.support.memory_topics import MemoryLog


@dataclass
class ManualClock:
    milliseconds: int = 1000

    def now_ms(self) -> int:
        return self.milliseconds


@dataclass
class WordShard:
    """A shard that collects words. It may wait for a deadline, at which it appends `late`."""

    words: list[str] = field(default_factory=list)
    origins: list[RecordOrigin] = field(default_factory=list)
    decided: list[tuple[str, int, int]] = field(default_factory=list)
    markers: list[tuple[int, bool]] = field(default_factory=list)
    loaded_at_ms: int | None = None
    deadline_ms: int | None = None

    def apply(self, key: bytes, value: bytes | None, origin: RecordOrigin) -> None:
        self.words.append(key.decode())
        self.origins.append(origin)
        if key == b"late":
            self.deadline_ms = None

    def apply_decided(self, decoded: str, offset: int, producer_id: int) -> None:
        self.decided.append((decoded, offset, producer_id))

    def apply_marker(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        self.markers.append((producer_id, committed))

    def loaded(self, now_ms: int) -> None:
        self.loaded_at_ms = now_ms

    def clock_moved(self, moved_ms: int, now_ms: int) -> None:
        if self.deadline_ms is not None:
            self.deadline_ms += moved_ms

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def decide_deadline(self, now_ms: int) -> Decision[None]:
        if self.deadline_ms is None or now_ms < self.deadline_ms:
            return Decision(None)
        return Decision(None, words("late"))


def words(*keys: str) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(key.encode(), b"") for key in keys]


def say(*keys: str) -> Decision[str]:
    return Decision("said", words(*keys))


def park(*keys: str) -> Decision[str]:
    return Decision(Parked("me"), words(*keys))


class Harness:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = MemoryLog(TopicPartition("words", 0))
        self.applied: list[int] = []
        self.runtime: CoordinatorRuntime[WordShard] = self.new_runtime()

    def new_runtime(self) -> CoordinatorRuntime[WordShard]:
        def note(partition: CoordinatorPartition[WordShard]) -> None:
            self.applied.append(len(partition.shard.words))

        return CoordinatorRuntime("words", make_shard=lambda _: WordShard(), clock=self.clock, applied=note)

    async def load(self) -> WordShard:
        await self.runtime.load(0, self.log, coordinator_epoch=0)  # type: ignore[arg-type]  # the part of a log that is used
        return self.runtime.partition(0).shard


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    harness = Harness()
    yield harness
    await harness.runtime.close()


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("", 0),
        ("a", 47),
        ("tx-0", 19),
        ("my-transactional-id", 46),
        ("my-group-id", 12),
        ("polygenelubricants", 0),
        ("订单-1", 43),
        ("\U0001f600", 49),
    ],
)
def test_keys_go_to_the_partitions_that_kafka_gives_them(key: str, partition: int) -> None:
    assert partition_for_key(key, 50) == partition


async def test_records_are_applied_before_the_decision_returns_and_the_reply_waits_for_the_disk(
    harness: Harness,
) -> None:
    shard = await harness.load()
    harness.log.flush_gate.clear()
    saying = asyncio.create_task(harness.runtime.execute(0, lambda _: say("a", "b")))
    await asyncio.sleep(0)
    assert shard.words == ["a", "b"]
    assert not saying.done()
    reading = asyncio.create_task(harness.runtime.execute(0, lambda known: Decision(len(known.words))))
    await asyncio.sleep(0)
    assert not reading.done()  # what it read is not durable yet
    harness.log.flush_gate.set()
    assert await saying == "said"
    assert await reading == 2


async def test_a_record_with_a_meaning_is_taken_in_by_it_with_its_offset_and_its_transaction(harness: Harness) -> None:
    shard = await harness.load()
    known = CoordinatorRecord(b"b", b"", "meant")
    await harness.runtime.execute(0, lambda _: Decision(None, [*words("a"), known, *words("c")], producer=(7, 3)))
    await harness.runtime.execute(0, lambda _: Decision(None, [known]))
    assert shard.decided == [("meant", 1, 7), ("meant", 3, -1)]
    assert [origin.offset for origin in shard.origins] == [0, 2]
    harness.runtime = harness.new_runtime()
    loaded = await harness.load()
    assert (loaded.words, loaded.decided) == (["a", "b", "c", "b"], [])  # the log knows no meanings


async def test_what_was_decided_on_a_partition_given_up_or_loaded_anew_is_not_appended(harness: Harness) -> None:
    await harness.load()
    partition = harness.runtime.partition(0)
    assert harness.runtime.submit_decision(partition, say("a")) == "said"
    await harness.load()
    with pytest.raises(CoordinatorRefusal):
        harness.runtime.submit_decision(partition, say("b"))
    harness.runtime.resign(0)
    with pytest.raises(CoordinatorRefusal):
        harness.runtime.submit_decision(partition, say("b"))
    assert partition.shard.words == ["a"]
    assert harness.log.log_end_offset == 1


async def test_loading_replays_the_applied_records(harness: Harness) -> None:
    shard = await harness.load()
    await harness.runtime.execute(0, lambda _: say("a", "b"))
    await harness.runtime.execute(0, lambda _: Decision(None, words("c"), producer=(7, 3)))
    harness.log.append_marker(
        producer_id=7, producer_epoch=3, committed=True, coordinator_epoch=0, transaction_version=0, now_ms=0
    )
    await harness.runtime.execute(0, lambda _: say("d"))
    harness.runtime = harness.new_runtime()
    loaded = await harness.load()
    assert loaded.words == shard.words == ["a", "b", "c", "d"]
    assert loaded.origins == shard.origins
    assert [origin.offset for origin in loaded.origins] == [0, 1, 2, 4]
    assert loaded.origins[2].producer_id == 7
    assert loaded.markers == shard.markers == [(7, True)]
    assert loaded.loaded_at_ms == harness.clock.milliseconds


async def test_a_marker_that_comes_during_the_load_is_taken_in_once(harness: Harness) -> None:
    await harness.load()
    for word in "abc":
        await harness.runtime.execute(0, lambda _, word=word: say(word))  # type: ignore[misc]
    harness.runtime = harness.new_runtime()
    harness.log.observer = None
    loading = asyncio.create_task(harness.load())
    for producer_id in range(20):
        harness.log.append_marker(
            producer_id=producer_id,
            producer_epoch=0,
            committed=True,
            coordinator_epoch=0,
            transaction_version=0,
            now_ms=0,
        )
        await asyncio.sleep(0)
    shard = await loading
    assert shard.markers == [(producer_id, True) for producer_id in range(20)]


async def test_a_partition_that_is_loading_or_not_owned_refuses(harness: Harness) -> None:
    with pytest.raises(CoordinatorRefusal) as refusal:
        harness.runtime.partition(0)
    assert refusal.value.error is ErrorCode.NOT_COORDINATOR
    loading = harness.runtime.load(0, harness.log, coordinator_epoch=0)  # type: ignore[arg-type]
    with pytest.raises(CoordinatorRefusal) as refusal:
        harness.runtime.execute_without_wait(0, lambda _: say("a"))
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    harness.runtime.resign(0)
    with pytest.raises(CoordinatorRefusal) as refusal:
        harness.runtime.execute_without_wait(0, lambda _: say("a"))
    assert refusal.value.error is ErrorCode.NOT_COORDINATOR


async def test_a_request_to_a_partition_that_is_loading_waits_for_it(harness: Harness) -> None:
    await harness.load()
    await harness.runtime.execute(0, lambda _: say("a"))
    harness.runtime = harness.new_runtime()
    harness.runtime.load(0, harness.log, coordinator_epoch=0)  # type: ignore[arg-type]
    assert await harness.runtime.execute(0, lambda known: Decision(list(known.words))) == ["a"]


async def test_requests_are_refused_when_a_load_takes_too_long(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.load()
    await harness.runtime.execute(0, lambda _: say("a"))
    monkeypatch.setattr("fencepost.broker.coordination.runtime.MAX_LOAD_WAIT_S", 0.0)
    harness.runtime = harness.new_runtime()
    loading = harness.runtime.load(0, harness.log, coordinator_epoch=0)  # type: ignore[arg-type]
    async with harness.runtime._load_turn:  # as if another partition were being loaded
        with pytest.raises(CoordinatorRefusal) as refusal:
            await harness.runtime.execute(0, lambda _: say("b"))
    assert refusal.value.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    assert await harness.runtime.execute(0, lambda known: Decision(list(known.words))) == ["a"]


async def test_where_only_the_latest_record_of_a_key_counts_no_other_is_applied(harness: Harness) -> None:
    await harness.load()
    for word in ("a", "b", "a", "c", "b", "a"):
        await harness.runtime.execute(0, lambda _, word=word: say(word))  # type: ignore[misc]
    shard = WordShard()
    replay = Replay(harness.log, shard, only_latest_count=True, is_wanted=lambda: True)  # type: ignore[arg-type]
    assert await replay.run()
    assert (replay.record_count, shard.words) == (6, ["c", "b", "a"])
    assert [origin.offset for origin in shard.origins] == [3, 4, 5]


@pytest.mark.parametrize(("which", "offset"), [(0, 40), (1, 0), (1, 2**62), (1, -5), (2, 0)])
async def test_a_batch_with_an_offset_that_cannot_be_is_not_believed(harness: Harness, which: int, offset: int) -> None:
    await harness.load()
    for word in ("a", "b", "c"):
        await harness.runtime.execute(0, lambda _, word=word: say(word))  # type: ignore[misc]
    harness.log.batches[which][:8] = offset.to_bytes(8, "big", signed=True)
    replay = Replay(harness.log, WordShard(), only_latest_count=False, is_wanted=lambda: True)  # type: ignore[arg-type]
    with pytest.raises(StorageError, match=r"is damaged at offset \d+: .* has the offsets|cannot be read from offset"):
        await replay.run()


async def test_a_replay_takes_in_what_is_appended_while_it_applies(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.coordination.replay.APPLIED_PER_TURN", 1)
    await harness.load()
    await harness.runtime.execute(0, lambda _: say("a", "b"))
    shard = WordShard()
    replay = Replay(harness.log, shard, only_latest_count=True, is_wanted=lambda: True)  # type: ignore[arg-type]
    replaying = asyncio.create_task(replay.run())
    await asyncio.sleep(0)
    await harness.runtime.execute(0, lambda _: say("a"))
    assert await replaying
    assert shard.words == ["a", "b", "a"]


async def test_a_partition_given_up_while_it_loads_does_not_come_alive(harness: Harness) -> None:
    loading = harness.runtime.load(0, harness.log, coordinator_epoch=0)  # type: ignore[arg-type]
    harness.runtime.resign(0)
    await loading
    assert harness.log.observer is None
    assert harness.applied == []


async def test_records_that_cannot_be_read_leave_the_partition_offline(harness: Harness) -> None:
    await harness.load()
    await harness.runtime.execute(0, lambda _: say("a"))
    harness.log.batches[0][-1:] = b"\xff\xff\xff\xff\xff"
    harness.runtime = harness.new_runtime()
    with pytest.raises(CoordinatorRefusal):
        await harness.load()


async def test_a_bad_checksum_leaves_the_partition_offline(harness: Harness) -> None:
    await harness.load()
    await harness.runtime.execute(0, lambda _: say("word"))
    where = harness.log.batches[0].index(b"word")
    harness.log.batches[0][where : where + 4] = b"ward"
    harness.runtime = harness.new_runtime()
    with pytest.raises(CoordinatorRefusal):
        await harness.load()


@pytest.mark.parametrize("error", [ImportError("no such module"), OSError(24, "Too many open files")])
async def test_a_kind_of_record_that_cannot_be_imported_leaves_the_partition_offline(
    harness: Harness, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    await harness.load()
    await harness.runtime.execute(0, lambda _: say("a"))
    harness.runtime = harness.new_runtime()
    monkeypatch.setattr(WordShard, "apply", fail)
    with pytest.raises(CoordinatorRefusal):
        await harness.load()


async def test_a_log_that_cannot_be_read_to_its_end_leaves_the_partition_offline(harness: Harness) -> None:
    await harness.load()
    await harness.runtime.execute(0, lambda _: say("a"))
    del harness.log.batches[0][-1:]
    harness.runtime = harness.new_runtime()
    with pytest.raises(CoordinatorRefusal):
        await asyncio.wait_for(harness.load(), 5)


async def test_an_offline_log_is_not_taken_for_an_empty_one(harness: Harness) -> None:
    harness.log.offline_reason = "the log is damaged at position 0"
    with pytest.raises(CoordinatorRefusal) as refused:
        await harness.load()
    assert refused.value.error is ErrorCode.NOT_COORDINATOR


async def test_a_parked_request_is_answered_when_the_decision_that_answers_it_is_durable(harness: Harness) -> None:
    await harness.load()
    waiting = asyncio.create_task(harness.runtime.execute(0, lambda _: park()))
    await asyncio.sleep(0)
    harness.log.flush_gate.clear()
    answering = asyncio.create_task(
        harness.runtime.execute(0, lambda _: Decision("done", words("a"), parked_replies=[("me", "hello")]))
    )
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    harness.log.flush_gate.set()
    assert await answering == "done"
    assert await waiting == "hello"
    assert not harness.runtime.partition(0).parked


async def test_a_parked_request_is_refused_when_the_partition_is_given_up(harness: Harness) -> None:
    await harness.load()
    waiting = asyncio.create_task(harness.runtime.execute(0, lambda _: park()))
    for _ in range(3):
        await asyncio.sleep(0)
    harness.runtime.resign(0)
    with pytest.raises(CoordinatorRefusal):
        await waiting


async def test_a_parked_request_whose_write_fails_is_refused_and_leaves_nothing_behind(harness: Harness) -> None:
    await harness.load()
    partition = harness.runtime.partition(0)
    harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(CoordinatorRefusal) as refusal:
        await harness.runtime.execute(0, lambda _: park("a"))
    assert refusal.value.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert not partition.parked
    assert not partition.shard.words
    harness.log.refusal = ErrorCode.NONE
    harness.log.flush_gate.clear()
    waiting = asyncio.create_task(harness.runtime.execute(0, lambda _: park("a")))
    await asyncio.sleep(0)
    harness.log.disk_failed = True
    harness.log.flush_gate.set()
    with pytest.raises(CoordinatorRefusal):
        await waiting
    assert not partition.parked


async def test_a_failed_append_takes_the_partition_offline(harness: Harness) -> None:
    await harness.load()
    harness.log.disk_failed = True
    for _ in range(2):
        with pytest.raises(CoordinatorRefusal) as refusal:
            await harness.runtime.execute(0, lambda _: say("a"))
        assert refusal.value.error is ErrorCode.NOT_COORDINATOR
    assert harness.log.observer is None


async def test_an_append_that_finds_no_room_changes_nothing_and_the_partition_goes_on(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await harness.load()

    def full(*_: object, **_options: object) -> ErrorCode:
        raise NoRoomError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(harness.log, "append_records", full)
        with pytest.raises(CoordinatorRefusal) as refusal:
            await harness.runtime.execute(0, lambda _: say("a"))
    assert refusal.value.error is ErrorCode.NOT_COORDINATOR
    assert shard.words == []
    assert await harness.runtime.execute(0, lambda _: say("b")) == "said"
    assert shard.words == ["b"]


async def test_submit_appends_without_waiting_for_the_disk(harness: Harness) -> None:
    shard = await harness.load()
    harness.log.flush_gate.clear()
    assert harness.runtime.execute_without_wait(0, lambda _: say("a")) == "said"
    assert shard.words == ["a"]
    durable = asyncio.ensure_future(harness.runtime.durable(0))
    await asyncio.sleep(0)
    assert not durable.done()
    harness.log.flush_gate.set()
    await durable


async def test_the_applied_hook_runs_after_each_batch_of_records_and_after_the_load(harness: Harness) -> None:
    await harness.load()
    harness.runtime.execute_without_wait(0, lambda _: say("a", "b"))
    harness.runtime.execute_without_wait(0, lambda _: Decision("nothing"))
    assert harness.applied == [0, 2]


async def test_a_deadline_is_decided_when_its_time_comes_and_not_before(harness: Harness) -> None:
    shard = await harness.load()
    shard.deadline_ms = harness.clock.milliseconds + 5
    harness.runtime.execute_without_wait(0, lambda _: say("a"))
    await asyncio.sleep(0.02)
    assert shard.words == ["a"]  # the clock stands still
    harness.clock.milliseconds += 5
    for _ in range(100):
        if shard.words == ["a", "late"]:
            break
        await asyncio.sleep(0.002)
    assert shard.words == ["a", "late"]
    assert harness.runtime.partition(0).timer is None


async def test_a_deadline_that_was_moved_later_is_decided_then_and_one_that_was_moved_earlier_at_once(
    harness: Harness,
) -> None:
    shard = await harness.load()

    async def decided() -> None:
        for _ in range(500):
            if shard.words == ["late"]:
                shard.words.clear()
                return
            await asyncio.sleep(0.002)
        raise AssertionError("the deadline was not decided")

    def move_to(deadline_ms: int) -> None:
        shard.deadline_ms = deadline_ms
        harness.runtime.execute_without_wait(0, lambda _: Decision(None))

    soon_ms, later_ms = (harness.clock.milliseconds + delay_ms for delay_ms in (5, 20))
    move_to(soon_ms)
    timer = harness.runtime.partition(0).timer
    move_to(later_ms)
    assert harness.runtime.partition(0).timer is timer
    for _ in range(500):
        if harness.runtime.partition(0).timer is not timer:
            break
        await asyncio.sleep(0.002)
    assert harness.runtime.partition(0).timer is not timer
    assert shard.words == []
    harness.clock.milliseconds = later_ms
    await decided()

    move_to(later_ms + 3_600_000)
    move_to(later_ms)
    await decided()


class SetClock(SystemClock):
    """A wall clock that an administrator sets. ahead_ms: how far."""

    ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


@pytest.mark.parametrize("moved_ms", [86_400_000, -86_400_000])
async def test_a_wall_clock_that_is_set_by_a_day_moves_no_deadline(moved_ms: int) -> None:
    clock = SetClock()
    runtime = CoordinatorRuntime("words", make_shard=lambda _: WordShard(), clock=clock)
    log = MemoryLog(TopicPartition("words", 0))
    await runtime.load(0, log, coordinator_epoch=0)  # type: ignore[arg-type]  # the part of a log that is used
    shard = runtime.partition(0).shard
    shard.deadline_ms = clock.now_ms() + 60
    await runtime.execute(0, lambda _: say("armed"))
    clock.ahead_ms = moved_ms
    await until(lambda: "late" in shard.words)
    # A second one, which the clock that was set has set.
    shard.deadline_ms = clock.now_ms() + 60
    await runtime.execute(0, lambda _: say("armed"))
    await until(lambda: shard.words.count("late") == 2)
    await runtime.close()


async def test_deadlines_of_many_partitions_at_one_time_are_decided_in_turns_of_their_own(harness: Harness) -> None:
    turn, decided_in = 0, []

    class NotingShard(WordShard):
        def decide_deadline(self, now_ms: int) -> Decision[None]:
            decided_in.append(turn)
            return super().decide_deadline(now_ms)

    logs = [MemoryLog(TopicPartition("words", index)) for index in range(5)]
    runtime = CoordinatorRuntime("words", make_shard=lambda _: NotingShard(), clock=harness.clock)
    for log in logs:
        await runtime.load(log.topic_partition.partition, log, coordinator_epoch=0)  # type: ignore[arg-type]  # as above
    for log in logs:
        runtime.partition(log.topic_partition.partition).shard.deadline_ms = harness.clock.milliseconds
        runtime.execute_without_wait(log.topic_partition.partition, lambda _: Decision(None))
    while len(decided_in) < len(logs):
        turn += 1
        # What else happens to a partition meanwhile does not have its deadline decided twice.
        runtime.execute_without_wait(0, lambda _: Decision(None))
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(decided_in) == len(set(decided_in)) == len(logs)
    assert all(runtime.partition(index).shard.words == ["late"] for index in range(5))
    await runtime.close()


async def test_a_deadline_whose_records_are_refused_is_decided_again_after_a_pause(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.coordination.runtime.REFUSED_DEADLINE_PAUSE_S", 0.005)
    shard = await harness.load()
    harness.log.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    shard.deadline_ms = harness.clock.milliseconds
    harness.runtime.execute_without_wait(0, lambda _: Decision(None))
    await asyncio.sleep(0.02)
    assert shard.words == []
    harness.log.refusal = ErrorCode.NONE
    for _ in range(100):
        if shard.words:
            break
        await asyncio.sleep(0.002)
    assert shard.words == ["late"]


async def test_a_decision_is_settled_when_its_records_are_in_the_log_and_not_yet_applied(harness: Harness) -> None:
    shard = await harness.load()
    seen: list[object] = []
    decision = say("a")._replace(
        settle=lambda: seen.append((harness.log.log_end_offset, list(shard.words))), on_refused=seen.append
    )
    harness.runtime.execute_without_wait(0, lambda _: decision)
    assert seen == [(1, [])]
    harness.log.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(CoordinatorRefusal):
        harness.runtime.execute_without_wait(0, lambda _: decision)
    assert seen == [(1, []), ErrorCode.KAFKA_STORAGE_ERROR]
    assert shard.words == ["a"]


async def test_a_decision_that_cannot_be_settled_has_the_partition_loaded_again(harness: Harness) -> None:
    shard = await harness.load()

    def fail() -> None:
        raise ValueError("planted")

    with pytest.raises(CoordinatorRefusal):
        harness.runtime.execute_without_wait(0, lambda _: say("a")._replace(settle=fail))
    load = harness.runtime._partitions[0].load
    assert load is not None
    await load
    assert harness.runtime.partition(0).shard is not shard
    assert harness.runtime.partition(0).shard.words == ["a"]


@pytest.mark.parametrize(
    ("error", "is_tried_at_once"), [(ErrorCode.MESSAGE_TOO_LARGE, True), (ErrorCode.KAFKA_STORAGE_ERROR, False)]
)
async def test_refused_deadlines_are_retried_at_once_where_the_log_takes_smaller_batches(
    harness: Harness, error: ErrorCode, is_tried_at_once: bool
) -> None:
    shard = await harness.load()
    tried: list[ErrorCode] = []

    def decide(now_ms: int) -> Decision[None]:
        if len(tried) == 3:
            harness.log.refusal = ErrorCode.NONE
        return Decision(None, words("late"), on_refused=tried.append)

    shard.decide_deadline = decide  # type: ignore[method-assign]
    shard.deadline_ms = harness.clock.milliseconds
    harness.log.refusal = error
    harness.runtime._schedule(harness.runtime.partition(0))
    await asyncio.sleep(0.05)
    assert tried == [error] * (3 if is_tried_at_once else 1)
    assert shard.words == (["late"] if is_tried_at_once else [])


async def test_long_work_goes_on_where_it_was_refused(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FIRST_REFUSED_WORK_PAUSE_S", 0.001)
    shard = await harness.load()
    given: list[int | None] = []

    def decide(_: WordShard, progress: int | None) -> Decision[int]:
        given.append(progress)
        remaining = 3 if progress is None else progress - 1
        harness.log.refusal = ErrorCode.MESSAGE_TOO_LARGE if len(given) in (2, 3) else ErrorCode.NONE
        return Decision(remaining, words(str(remaining)))

    await harness.runtime.execute_in_parts(0, decide)
    assert given == [None, 3, 3, 3, 2, 1]
    assert shard.words == ["3", "2", "1", "0"]
    harness.log.refusal = ErrorCode.MESSAGE_TOO_LARGE
    with pytest.raises(CoordinatorRefusal):
        await harness.runtime.execute_in_parts(0, lambda _, progress: Decision(0, words("x")), is_patient=False)
    harness.runtime.resign(0)
    with pytest.raises(CoordinatorRefusal):
        await harness.runtime.execute_in_parts(0, decide)
