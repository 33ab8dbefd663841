"""Runtime of the transaction, group and share coordinators: decide, append, apply, and reply when durable.

A coordinator is a set of shards, one per partition of its internal topic. A shard is pure: `decide` functions read it
and return records; after the append, `apply` changes it by the records, and `settle` changes the state in no record.
Loading is `apply` over the log, so the live path and the recovery path are one path. Between the decision and the
append there is no await; the reply leaves when the log is durable up to the last record that the shard's state was
computed from.
Source: Kafka's CoordinatorRuntime, CoordinatorShard and CoordinatorResult.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fencepost.broker.coordination.reloads import ReloadPolicy
from fencepost.broker.coordination.replay import Replay
from fencepost.broker.coordination.shard import (
    CoordinatorRecord,
    Decision,
    Parked,
    RecordOrigin,
    ReplyT,
    Shard,
    partition_for_key,
)
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.clock import Clock, ClockWatch
from fencepost.broker.kernel.deadlines import TOO_LARGE
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.per_turn_limiter import PerTurnLimiter
from fencepost.broker.kernel.supervision import Place, Policy, end_tasks
from fencepost.broker.log.files.remedies import remedy_partition_went_offline
from fencepost.broker.storage.disk import NoRoomError, StorageError
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.primitives import DecodeError
from fencepost.protocol.record_batch import NO_PRODUCER

if TYPE_CHECKING:
    from fencepost.broker.log.partition_log import PartitionLog

__all__ = [
    "CoordinatorPartition",
    "CoordinatorRecord",
    "CoordinatorRefusal",
    "CoordinatorRuntime",
    "Decision",
    "LoadTimes",
    "Parked",
    "PartitionState",
    "RecordOrigin",
    "ReplyT",
    "Shard",
    "partition_for_key",
]

log = get_logger(__name__)

S = TypeVar("S", bound=Shard)
QuestionResultT = TypeVar("QuestionResultT")
Progress = TypeVar("Progress")
MAX_LOAD_WAIT_S = 1.0
REFUSED_DEADLINE_PAUSE_S = 1.0
LONGEST_COMMIT_WAIT_S = 10.0
"""Time that a request waits for a cluster's engine, which may not answer. Then it gets COORDINATOR_NOT_AVAILABLE, and
its records may still be committed, as in Kafka when replicas lag. Clients wait 30 s for an answer, or longer."""
FIRST_REFUSED_WORK_PAUSE_S = 1.0
LONGEST_REFUSED_WORK_PAUSE_S = 60.0

LOAD = Place("loading of a coordinator's partition", Policy.FAIL_PARTITION)
DECISION = Place("decision of a coordinator", Policy.FAIL_PARTITION)
APPLICATION = Place("application of a coordinator's records", Policy.FAIL_PARTITION)
MARKER = Place("application of a marker by a coordinator", Policy.FAIL_PARTITION)
ANSWER_PARKED = Place("answer to the waiting requests of a coordinator", Policy.FAIL_PARTITION)
DEADLINE_TIMER = Place("timer of a coordinator's deadlines", Policy.FAIL_PARTITION)
DEADLINE = Place("deadlines of a coordinator", Policy.RETRY)
RELOAD_AFTER_DEADLINE = Place("reload of a coordinator's partition after a failed deadline", Policy.FAIL_PARTITION)


class PartitionState(Enum):
    """Loading partitions answer COORDINATOR_LOAD_IN_PROGRESS, after up to MAX_LOAD_WAIT_S; offline ones, after a failed
    write, NOT_COORDINATOR. An unexpected failure reloads a partition from its log: see `CoordinatorRuntime.fail`."""

    LOADING = "loading"
    ACTIVE = "active"
    OFFLINE = "offline"


_ACTIVE = PartitionState.ACTIVE
_ALREADY_DURABLE = eager.Finished(None)


@dataclass(slots=True)
class CoordinatorPartition(Generic[S]):
    """One partition of the internal topic, and the shard that its records build."""

    index: int
    log: PartitionLog
    shard: S
    coordinator_epoch: int
    state: PartitionState = PartitionState.LOADING
    timer: asyncio.TimerHandle | None = None
    timer_deadline_ms: int | None = None
    is_due: bool = False  # a deadline was reached and is not decided yet
    parked: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)
    load: asyncio.Task[None] | None = None
    pending_reload: asyncio.TimerHandle | None = None  # a deadline failed: the shard is reloaded

    @property
    def is_loading(self) -> bool:
        return self.state is PartitionState.LOADING

    @property
    def is_durable(self) -> bool:
        """Whether all that the shard was computed from is durable."""
        partition_log = self.log
        return partition_log.high_watermark >= partition_log.log_end_offset


@dataclass(slots=True)
class LoadTimes:
    """How long the loads of partitions took, in seconds."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0

    def add(self, duration_s: float) -> None:
        self.count += 1
        self.total_s += duration_s
        self.longest_s = max(self.longest_s, duration_s)


class CoordinatorRefusal(Exception):  # noqa: N818  # an expected answer of a coordinator, not an error
    """Error code for a request to a partition that is loading, offline or not owned.

    is_too_large: the log accepts smaller batches.
    """

    def __init__(self, error: ErrorCode, *, is_too_large: bool = False) -> None:
        super().__init__(error.name)
        self.error = error
        self.is_too_large = is_too_large


class CoordinatorRuntime(Generic[S]):
    """Runs the shards of one coordinator over the partitions of its internal topic.

    name:       name in log events: `transaction`, `group` or `share`.
    make_shard: builds the empty shard of a partition.
    clock:      wall time; delays use the running event loop.
    applied:    called in the same step, after a decision's records are applied and after a partition is loaded; the
                records are not durable yet.
    only_latest_count: whether the last record of a key holds its whole state, which makes loading faster.
    reload:     gives a partition up and loads it from the given log; set by its `InternalTopicLoader`.
    """

    reload: Callable[[PartitionLog], None] | None = None

    def __init__(
        self,
        name: str,
        *,
        make_shard: Callable[[int], S],
        clock: Clock,
        applied: Callable[[CoordinatorPartition[S]], None] | None = None,
        only_latest_count: bool = False,
    ) -> None:
        self.name = name
        self._make_shard = make_shard
        self._clock = clock
        self._clock_watch = ClockWatch(clock)
        self._applied = applied
        self._only_latest_count = only_latest_count
        self.load_times = LoadTimes()
        self._reloads = ReloadPolicy()
        self._pauses_s: dict[int, float] = {}  # before loads that follow a failure
        self._partitions: dict[int, CoordinatorPartition[S]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._load_turn = asyncio.Lock()
        # Deadlines may be due in every partition together; requests are served in between.
        self._deadline_turns = PerTurnLimiter(1)

    def partitions(self) -> Iterable[CoordinatorPartition[S]]:
        return self._partitions.values()

    def offline_partitions(self) -> list[int]:
        """The partitions that answer no request until the next start."""
        return [one.index for one in self._partitions.values() if one.state is PartitionState.OFFLINE]

    def partition(self, index: int) -> CoordinatorPartition[S]:
        """The active partition. Raises CoordinatorRefusal: NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        partition = self._partitions.get(index)
        if partition is not None and partition.state is _ACTIVE:
            return partition
        if partition is not None and partition.is_loading:
            raise CoordinatorRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)

    async def execute(self, index: int, decide: Callable[[S], Decision[ReplyT]]) -> ReplyT:
        """Decide on a partition's shard, append and apply the records, and return the reply once it is durable.

        Wait for a loading partition up to MAX_LOAD_WAIT_S: after COORDINATOR_LOAD_IN_PROGRESS clients pause for longer
        than most loads take.
        Raises CoordinatorRefusal if the partition cannot answer, or its log cannot be written.
        """
        execution = self.execute_eagerly(index, decide)
        return execution.result if isinstance(execution, eager.Finished) else await execution

    def execute_eagerly(self, index: int, decide: Callable[[S], Decision[ReplyT]]) -> eager.MaybeAwaitable[ReplyT]:
        """`execute` that has decided, appended and applied when it returns, unless the partition is loading."""
        partition = self._partitions.get(index)
        if partition is None or partition.state is not _ACTIVE:
            return self._execute_when_loaded(index, decide)
        try:
            decision = decide(partition.shard)
        except BaseException as error:
            self._decision_failed(partition, error)
            raise
        reply = decision.reply
        if isinstance(reply, Parked):
            return self._park(partition, decision, reply)
        self._append_and_apply(partition, decision)
        partition_log = partition.log
        if decision.parked_replies or partition_log.high_watermark < partition_log.log_end_offset:
            return _after(self._delivery(partition, decision), reply)
        return eager.Finished(reply)

    async def execute_in_parts(
        self, index: int, decide: Callable[[S, Progress | None], Decision[Progress]], *, is_patient: bool = True
    ) -> None:
        """Execute long work as a sequence of decisions. The first gets None, each later one the previous reply; an
        empty reply or None ends the work.

        A refused decision is retried after a pause that doubles up to LONGEST_REFUSED_WORK_PAUSE_S, also while the
        partition loads. Raises CoordinatorRefusal if the partition is offline or resigned from, and without
        `is_patient` at the first refusal.
        """
        progress: Progress | None = None
        pause_s = FIRST_REFUSED_WORK_PAUSE_S
        while True:
            try:
                progress = await self.execute(index, partial(_next_part, decide, progress))
            except CoordinatorRefusal as refusal:
                partition = self._partitions.get(index)
                if not is_patient or partition is None or partition.state is PartitionState.OFFLINE:
                    raise
                log.debug("coordinator_work_refused", coordinator=self.name, partition=index, error=refusal.error.name)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_REFUSED_WORK_PAUSE_S)
                continue
            if not progress:
                return
            pause_s = FIRST_REFUSED_WORK_PAUSE_S

    async def _execute_when_loaded(self, index: int, decide: Callable[[S], Decision[ReplyT]]) -> ReplyT:
        await self._loaded(index)
        return await self.execute_eagerly(index, decide)

    def _park(
        self, partition: CoordinatorPartition[S], decision: Decision[ReplyT], parked: Parked
    ) -> Coroutine[Any, Any, ReplyT]:
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        partition.parked[parked.token] = waiting
        try:
            self._append_and_apply(partition, decision)
        except BaseException:
            _unpark(partition, parked.token, waiting)
            raise
        return self._answer_to_parked(partition, decision, parked.token, waiting)

    async def _answer_to_parked(
        self,
        partition: CoordinatorPartition[S],
        decision: Decision[ReplyT],
        token: Hashable,
        waiting: asyncio.Future[Any],
    ) -> ReplyT:
        try:
            await self._delivery(partition, decision)
            return await waiting  # type: ignore[no-any-return]
        finally:
            _unpark(partition, token, waiting)

    def durable_shard(self, index: int) -> S | None:
        """Return the shard of a partition, for queries, if everything it was computed from is durable.

        None if it is not durable yet, or the partition is not active: `query` waits for both.
        """
        partition = self._partitions.get(index)
        if partition is None or partition.state is not _ACTIVE:
            return None
        partition_log = partition.log
        return partition.shard if partition_log.high_watermark >= partition_log.log_end_offset else None

    async def query(self, index: int, question: Callable[[S], QuestionResultT]) -> QuestionResultT:
        """Return a shard's answer to a question that changes nothing, once the state it was read from is durable.

        Waits for a loading partition, and raises, as `execute` does.
        """
        partition = self._partitions.get(index)
        if partition is None or partition.state is not _ACTIVE:
            partition = await self._loaded(index)
        answer = question(partition.shard)
        partition_log = partition.log
        if partition_log.high_watermark < partition_log.log_end_offset:
            await self._durable_in_time(partition)
        return answer

    async def _loaded(self, index: int) -> CoordinatorPartition[S]:
        """The active partition; waits up to MAX_LOAD_WAIT_S for a loading one. Raises CoordinatorRefusal."""
        partition = self._partitions.get(index)
        if partition is not None and partition.is_loading and partition.load is not None:
            await asyncio.wait((partition.load,), timeout=MAX_LOAD_WAIT_S)
        return self.partition(index)

    def execute_without_wait(self, index: int, decide: Callable[[S], Decision[ReplyT]]) -> ReplyT:
        """Decide, append and apply in this step, for callers that do not depend on the records' durability.

        The reply must not leave the process. Raises CoordinatorRefusal.
        """
        partition = self.partition(index)
        try:
            decision = decide(partition.shard)
        except BaseException as error:
            self._decision_failed(partition, error)
            raise
        return self.submit_decision(partition, decision)

    def submit_decision(self, partition: CoordinatorPartition[S], decision: Decision[ReplyT]) -> ReplyT:
        """Append and apply a decision that was made on a partition's shard in this step, as `execute_without_wait`.

        Raises CoordinatorRefusal, also after a resignation from the partition, or a reload.
        """
        if partition.state is not _ACTIVE or self._partitions.get(partition.index) is not partition:
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR)
        reply = decision.reply
        if isinstance(reply, Parked) or decision.parked_replies:
            raise TypeError("replies to waiting requests leave only when they are durable")
        self._append_and_apply(partition, decision, is_awaited=False)
        return reply

    def durable(self, index: int) -> eager.MaybeAwaitable[None]:
        """Wait until everything appended to a partition so far is durable. Raises CoordinatorRefusal."""
        partition = self.partition(index)
        partition_log = partition.log
        if partition_log.high_watermark >= partition_log.log_end_offset:
            return _ALREADY_DURABLE
        return self._durable(partition)

    def _append_and_apply(
        self, partition: CoordinatorPartition[S], decision: Decision[Any], *, is_awaited: bool = True
    ) -> None:
        """Append the records of a decision, apply them, and schedule the shard's next deadline.

        If records were appended and cannot be applied, the shard is reloaded from the log.
        """
        records = decision.records
        if records:
            partition_log = partition.log
            offset = partition_log.log_end_offset  # of the first record
            now_ms = self._clock.now_ms()
            producer = decision.producer
            try:
                error_code = partition_log.append_records(
                    records, now_ms=now_ms, producer=producer, guard=decision.guard, is_awaited=is_awaited
                )
            except NoRoomError:
                error_code = ErrorCode.KAFKA_STORAGE_ERROR  # the log has reported it, and nothing has changed
            except StorageError as error:
                self._take_offline(partition, error)
                raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR) from error
            except BaseException as error:
                self._decision_failed(partition, error)
                raise
            if error_code is not NO_ERROR:
                # Nothing was written and nothing has changed: the state, deadlines included, matches the log.
                if decision.on_refused is not None:
                    decision.on_refused(error_code)
                raise CoordinatorRefusal(
                    _APPEND_ERRORS.get(error_code, error_code), is_too_large=error_code in TOO_LARGE
                )
        try:
            if decision.settle is not None:
                decision.settle()
            if records:
                shard = partition.shard
                producer_id, producer_epoch = producer or NO_PRODUCER
                for key, value, decoded in records:
                    if decoded is not None:
                        shard.apply_decided(decoded, offset, producer_id)
                    else:
                        shard.apply(key, value, RecordOrigin(offset, now_ms, producer_id, producer_epoch))
                    offset += 1
                if self._applied is not None:
                    self._applied(partition)
            self._schedule(partition)
        except BaseException as error:
            APPLICATION.failed(error, concerns=partition.log.topic_partition, on_failure=partial(self.fail, partition))
            self.partition(partition.index)  # raises: it is loading, or offline
            raise

    async def _durable(self, partition: CoordinatorPartition[S]) -> None:
        try:
            await partition.log.flushed()
        except StorageError as error:
            self._take_offline(partition, error)
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR) from error

    async def _durable_in_time(
        self, partition: CoordinatorPartition[S], delivery: asyncio.Future[None] | None = None
    ) -> None:
        """Wait, for a request, until a partition is durable, or `delivery` has ended. Raises CoordinatorRefusal.

        Uses no `asyncio.timeout`: it may run in the first step of an eager coroutine.
        """
        if not partition.log.durability.is_shared:
            await (self._durable(partition) if delivery is None else delivery)
            return
        try:
            waiting = partition.log.flushed() if delivery is None else delivery
            if isinstance(waiting, asyncio.Future):
                done, _ = await asyncio.wait([waiting], timeout=LONGEST_COMMIT_WAIT_S)
                if not done:
                    waiting.cancel()
                    raise CoordinatorRefusal(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            await waiting
        except StorageError as error:
            self._take_offline(partition, error)
            raise CoordinatorRefusal(ErrorCode.NOT_COORDINATOR) from error

    def _delivery(self, partition: CoordinatorPartition[S], decision: Decision[Any]) -> Awaitable[None]:
        """An awaitable that ends when a decision is durable and its parked requests have their replies."""
        if not decision.parked_replies:
            return self._durable_in_time(partition)
        # Parked requests get these replies even if the connection of the deciding request closes.
        # A failed write refuses the parked requests. The deciding request gets the same error from the task.
        task = ANSWER_PARKED.start(
            self._answer_when_durable(partition, decision),
            concerns=partition.log.topic_partition,
            on_failure=partial(self.fail, partition),
            expected=(CoordinatorRefusal,),
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return self._durable_in_time(partition, asyncio.shield(task))

    async def _answer_when_durable(self, partition: CoordinatorPartition[S], decision: Decision[Any]) -> None:
        """Parked requests wait no longer for a commit than others do: they are refused, and retry. Raises
        CoordinatorRefusal."""
        try:
            await self._durable_in_time(partition)
        except CoordinatorRefusal as refusal:
            for token, _ in decision.parked_replies:
                waiting = partition.parked.pop(token, None)
                if waiting is not None and not waiting.done():
                    waiting.set_exception(CoordinatorRefusal(refusal.error))
            raise
        self._answer(partition, decision)

    def _answer(self, partition: CoordinatorPartition[S], decision: Decision[Any]) -> None:
        for token, answer in decision.parked_replies:
            waiting = partition.parked.pop(token, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)

    # Ownership

    def load(self, index: int, partition_log: PartitionLog, *, coordinator_epoch: int) -> asyncio.Task[None]:
        """Take over a partition: replay its log in the background, then answer requests. The task ends when it is
        active. Partitions load one after another, so that the first answers while the others wait.
        """
        partition = CoordinatorPartition(index, partition_log, self._make_shard(index), coordinator_epoch)
        self._partitions[index] = partition
        task = LOAD.start(
            self._load(partition, self._pauses_s.pop(index, 0.0)),
            concerns=partition_log.topic_partition,
            on_failure=partial(self.fail, partition),
        )
        partition.load = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def resign(self, index: int) -> None:
        """Give a partition up: drop its state, refuse its parked requests with NOT_COORDINATOR."""
        partition = self._partitions.pop(index, None)
        if partition is not None:
            self._stop(partition)
            if index not in self._pauses_s:
                self._reloads.forget(index)

    def refuse_parked(self) -> None:
        """Answer all parked requests with NOT_COORDINATOR: no later decision here will answer them."""
        for partition in self._partitions.values():
            _refuse_parked(partition)

    async def close(self) -> None:
        await end_tasks(*self._tasks)
        for index in list(self._partitions):
            self.resign(index)

    async def _load(self, partition: CoordinatorPartition[S], pause_s: float) -> None:
        if pause_s:
            await asyncio.sleep(pause_s)
        async with self._load_turn:
            if not partition.is_loading:
                return  # given up while it waited
            began_at_s = time.perf_counter()
            replay = Replay(
                partition.log,
                partition.shard,
                only_latest_count=self._only_latest_count,
                is_wanted=lambda: partition.is_loading,
            )
            try:
                if not await replay.run():
                    return  # given up meanwhile
            except (DecodeError, ImportError, OSError) as error:
                # Of the log, or of importing a record's decoder, which needs a free descriptor.
                self._take_offline(partition, error)
                return
            # No await since the log's end was reached: a marker was either replayed or reaches the observer.
            partition.shard.loaded(self._clock.now_ms())
            partition.log.observer = _MarkerObserver(self, partition)
            partition.state = PartitionState.ACTIVE
        duration_s = time.perf_counter() - began_at_s
        self.load_times.add(duration_s)
        if replay.record_count:
            log.info(
                "coordinator_partition_loaded",
                coordinator=self.name,
                partition=partition.index,
                records=replay.record_count,
                duration_ms=round(duration_s * 1000, 3),
            )
        if self._applied is not None:
            self._applied(partition)
        self._schedule(partition)

    def _take_offline(self, partition: CoordinatorPartition[S], error: BaseException) -> None:
        if partition.state is not PartitionState.OFFLINE:
            partition.state = PartitionState.OFFLINE
            log.error(
                "coordinator_partition_offline",
                coordinator=self.name,
                partition=partition.index,
                reason=str(error),
                remedy="what it coordinates is refused with NOT_COORDINATOR until the next start of the broker. "
                f"{remedy_partition_went_offline(partition.log.files.directory)}",
            )
            self._stop(partition)

    def fail(self, partition: CoordinatorPartition[S], error: BaseException) -> None:
        """Stop serving a shard that may differ from its log. Reload it with growing pauses, up to MAX_RELOADS times;
        then take the partition offline."""
        index = partition.index
        if self._partitions.get(index) is not partition or partition.state is PartitionState.OFFLINE:
            return
        pause_s = self._reloads.pause_s(index, asyncio.get_running_loop().time())
        if pause_s is None:
            self._take_offline(partition, error)
        else:
            self._reload(partition, pause_s)

    def _reload(self, partition: CoordinatorPartition[S], pause_s: float = 0.0) -> None:
        log.warning("coordinator_partition_reloaded", coordinator=self.name, partition=partition.index, pause_s=pause_s)
        self._pauses_s[partition.index] = pause_s
        self._stop(partition)
        if self.reload is not None:
            self.reload(partition.log)
        else:
            self.load(partition.index, partition.log, coordinator_epoch=partition.coordinator_epoch)

    def _decision_failed(self, partition: CoordinatorPartition[S], error: BaseException) -> None:
        """Log a decision that failed before the append: the shard is as it was, since only applying changes it.

        A refusal is an answer, not a failure.
        """
        if not isinstance(error, CoordinatorRefusal):
            DECISION.failed(error, concerns=partition.log.topic_partition)

    def _reload_after_failed_deadline(self, partition: CoordinatorPartition[S]) -> None:
        """Schedule the reload of a shard after a failed deadline; see `ReloadPolicy`."""
        if self._partitions.get(partition.index) is not partition or partition.state is not _ACTIVE:
            return
        if partition.pending_reload is not None:
            return
        loop = asyncio.get_running_loop()
        delay_s = self._reloads.pause_after_deadline_s(partition.index, loop.time())
        # Not in this step: the failed deadline still uses the shard.
        doubted = RELOAD_AFTER_DEADLINE.callback(
            self._reload_now, concerns=partition.log.topic_partition, on_failure=partial(self.fail, partition)
        )
        partition.pending_reload = loop.call_later(delay_s, doubted, partition)

    def _reload_now(self, partition: CoordinatorPartition[S]) -> None:
        partition.pending_reload = None
        if self._partitions.get(partition.index) is partition and partition.state is _ACTIVE:
            self._reload(partition)

    def _stop(self, partition: CoordinatorPartition[S]) -> None:
        partition.state = PartitionState.OFFLINE
        partition.log.observer = None
        _disarm(partition)
        if partition.pending_reload is not None:
            partition.pending_reload.cancel()
            partition.pending_reload = None
        _refuse_parked(partition)

    # Time

    def _schedule(self, partition: CoordinatorPartition[S], *, minimum_delay_s: float = 0.0) -> None:
        deadline_ms = partition.shard.next_deadline_ms()
        armed_ms = partition.timer_deadline_ms
        if deadline_ms is None or (armed_ms is not None and armed_ms <= deadline_ms) or partition.is_due:
            return  # an early timer finds nothing due and is set again: cheaper than moving it each time
        _disarm(partition)
        if partition.state is PartitionState.ACTIVE:
            partition.timer_deadline_ms = deadline_ms
            delay_s = max(minimum_delay_s, (deadline_ms - self._clock.now_ms()) / 1000)
            reached = DEADLINE_TIMER.callback(
                self._deadline_reached,
                concerns=partition.log.topic_partition,
                on_failure=partial(self.fail, partition),
            )
            partition.timer = asyncio.get_running_loop().call_later(delay_s, reached, partition)

    def _deadline_reached(self, partition: CoordinatorPartition[S]) -> None:
        _disarm(partition)
        if partition.state is not PartitionState.ACTIVE:
            return
        partition.is_due = True
        task = DEADLINE.start(
            self._run_deadline(partition),
            concerns=partition.log.topic_partition,
            on_failure=partial(self._deadline_failed, partition),
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run_deadline(self, partition: CoordinatorPartition[S]) -> None:
        await self._deadline_turns.acquire()
        partition.is_due = False
        if partition.state is not PartitionState.ACTIVE:
            return
        self._follow_clock()
        now_ms = self._clock.now_ms()
        try:
            await self.execute(partition.index, lambda shard: shard.decide_deadline(now_ms))
        except CoordinatorRefusal as refusal:
            log.warning(
                "coordinator_deadline_refused",
                coordinator=self.name,
                partition=partition.index,
                error=refusal.error.name,
            )
            pause_s = 0.0 if refusal.is_too_large else REFUSED_DEADLINE_PAUSE_S
            self._schedule(partition, minimum_delay_s=pause_s)

    def _follow_clock(self) -> None:
        """Move all deadlines along if the wall clock was set: else all would be due, or none for as long."""
        moved_ms = self._clock_watch.moved_ms()
        if not moved_ms:
            return
        now_ms = self._clock.now_ms()
        log.warning("clock_was_set", coordinator=self.name, moved_ms=moved_ms, deadlines="moved along")
        for partition in self._partitions.values():
            if partition.state is PartitionState.ACTIVE:
                partition.shard.clock_moved(moved_ms, now_ms)
                _disarm(partition)
                self._schedule(partition)

    def _deadline_failed(self, partition: CoordinatorPartition[S], _: BaseException) -> None:
        """Reload the shard, which computes its deadlines again, and retry after a pause."""
        partition.is_due = False
        self._reload_after_failed_deadline(partition)
        try:
            self._schedule(partition, minimum_delay_s=REFUSED_DEADLINE_PAUSE_S)
        except Exception as error:  # noqa: BLE001  # logged, and the partition is loaded again
            DEADLINE.failed(error, concerns=partition.log.topic_partition, on_failure=partial(self.fail, partition))


def _next_part(
    decide: Callable[[S, Progress | None], Decision[Progress]], progress: Progress | None, shard: S
) -> Decision[Progress]:
    return decide(shard, progress)


async def _after(delivery: Awaitable[None], reply: ReplyT) -> ReplyT:
    await delivery
    return reply


def _unpark(partition: CoordinatorPartition[Any], token: Hashable, waiting: asyncio.Future[Any]) -> None:
    """Remove a parked request that was answered or cancelled."""
    if partition.parked.get(token) is waiting:
        del partition.parked[token]
    if waiting.done() and not waiting.cancelled():
        waiting.exception()  # a failed write has refused it too; the error is raised once
    else:
        waiting.cancel()


def _disarm(partition: CoordinatorPartition[Any]) -> None:
    if partition.timer is not None:
        partition.timer.cancel()
        partition.timer = None
        partition.timer_deadline_ms = None


def _refuse_parked(partition: CoordinatorPartition[Any]) -> None:
    for waiting in partition.parked.values():
        if not waiting.done():
            waiting.set_exception(CoordinatorRefusal(ErrorCode.NOT_COORDINATOR))
    partition.parked.clear()


_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class _MarkerObserver(Generic[S]):
    """Applies markers that other coordinators write into this partition's log to its shard, in log order."""

    __slots__ = ("_partition", "_runtime")

    def __init__(self, runtime: CoordinatorRuntime[S], partition: CoordinatorPartition[S]) -> None:
        self._runtime = runtime
        self._partition = partition

    def marker_appended(self, producer_id: int, producer_epoch: int, *, committed: bool, offset: int) -> None:
        """Raises nothing: the marker is in the log even if the shard cannot apply it."""
        runtime, partition = self._runtime, self._partition  # the observer is a part of the runtime
        try:
            partition.shard.apply_marker(producer_id, producer_epoch, committed=committed, offset=offset)
            runtime._schedule(partition)  # noqa: SLF001
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            MARKER.failed(
                error,
                concerns=partition.log.topic_partition,
                on_failure=partial(runtime.fail, partition),
            )
