"""Long work on the producers of one log: snapshots, expiry and listings, in time slices if there are many producers.

Background work runs as tasks; `cancel` ends all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from fencepost.broker.kernel.sliced_work import SHORT_SLICE_S, SlicedWork, run_in_slices, run_to_end
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.files.partition_files import PartitionFiles
from fencepost.broker.log.files.producer_snapshot import PRODUCERS_PER_SLICE, encoding_steps
from fencepost.broker.log.log_types import ActiveProducer, LastRecord
from fencepost.broker.log.producers.producer_state import ProducerState
from fencepost.broker.storage.disk import LogFile, StorageError, UnexpectedFailureError

PRODUCER_WORK = Place("work on the many producers of a log", Policy.FAIL_PARTITION)

FEW_PRODUCERS_COUNT = PRODUCERS_PER_SLICE
"""Producers up to which their state is written in the step that rolls the log."""
LISTED_PER_SLICE = 1_000

NO_OFFSETS: frozenset[int] = frozenset()
"""One for all partitions: most never have any, and a set of their own would take 216 bytes."""


class ServedLog(Protocol):
    """The log, as background work on its producers sees it."""

    is_deleted: bool

    @property
    def is_offline(self) -> bool: ...

    def give_up(self, error: StorageError) -> None:
        """Take the log offline."""
        ...


class ProducerWork:
    """The work on the producers of one log, and its background tasks."""

    __slots__ = ("_files", "_producers", "_tasks", "_topic_partition", "_unwritten_snapshots")

    def __init__(self, topic_partition: TopicPartition, files: PartitionFiles, producers: ProducerState) -> None:
        self._topic_partition = topic_partition
        self._files = files
        self._producers = producers
        self._unwritten_snapshots: frozenset[int] = NO_OFFSETS  # of which the state is not written yet
        self._tasks: set[asyncio.Task[None]] = set()

    # Snapshots

    @property
    def has_few_producers(self) -> bool:
        """Whether the state of all producers may be written in one step."""
        return len(self._producers) <= FEW_PRODUCERS_COUNT

    @property
    def has_unwritten_snapshot(self) -> bool:
        """Whether a snapshot is still being written: the records before its offset are needed until then."""
        return bool(self._unwritten_snapshots)

    def write_snapshot(self, offset: int) -> LogFile:
        """Write the state of now. Returns the file, to be synced and closed. Raises StorageError."""
        return self._files.write_snapshot(offset, self._producers.snapshot())

    def write_snapshot_in_steps(self, offset: int) -> SlicedWork[LogFile]:
        """Write the state of now, despite changes between two steps. As `write_snapshot`."""
        if self.has_few_producers:
            return self.write_snapshot(offset)
        capture = self._producers.capture()
        try:
            content = yield from encoding_steps(capture.producers(), len(capture))
        finally:
            self._producers.release(capture)
        return self._files.write_encoded_snapshot(offset, content)

    def write_snapshot_later(self, offset: int, log: ServedLog, written: Callable[[LogFile], None]) -> None:
        """Write the state of now in the background; a crash before that replays from the snapshot before it.

        written: takes the file, to be synced and closed. `log` goes offline if it cannot be written.
        """
        capture = self._producers.capture()

        async def write() -> None:
            try:
                content = await run_in_slices(encoding_steps(capture.producers(), len(capture)), SHORT_SLICE_S)
                if log.is_offline or log.is_deleted:
                    return
                written(self._files.write_encoded_snapshot(offset, content))
            except StorageError as error:
                log.give_up(error)
            finally:
                self._producers.release(capture)
                self._unwritten_snapshots -= {offset}

        self._unwritten_snapshots |= {offset}
        self._start(write(), log)

    # Expiry

    def expire(self, now_ms: int, expiration_ms: int, log: ServedLog) -> None:
        """Forget producers that wrote nothing for `expiration_ms`: in the background if there are many."""
        steps = self._producers.expiring_steps(now_ms, expiration_ms)
        if self.has_few_producers:
            run_to_end(steps)
        else:
            self._start(run_in_slices(steps, SHORT_SLICE_S), log)

    # Listings

    def active_producers_in_steps(self, now_ms: int, expiration_ms: int) -> SlicedWork[list[ActiveProducer]]:
        """List all producers that have not expired; each is shown as it is when its step comes."""
        yield from self._producers.expiring_steps(now_ms, expiration_ms)
        producer_ids = self._producers.producer_ids()
        found: list[ActiveProducer] = []
        for start in range(0, len(producer_ids), LISTED_PER_SLICE):
            if start:
                yield
            found.extend(self._producers.active_producers(producer_ids[start : start + LISTED_PER_SLICE]))
        return found

    def last_records_in_steps(self) -> SlicedWork[dict[int, LastRecord]]:
        """Return the origin of each producer's state, as of the first step."""
        capture = self._producers.capture()
        try:
            found = {}
            for count, producer in enumerate(capture.producers(), 1):
                recent = producer.recent_batches
                last_offset = recent[-1].last_offset if recent else None
                found[producer.producer_id] = LastRecord(last_offset, producer.producer_epoch)
                if count % LISTED_PER_SLICE == 0:
                    yield
            return found
        finally:
            self._producers.release(capture)

    # Tasks

    def cancel(self) -> None:
        """Cancel the background tasks."""
        for task in self._tasks:
            task.cancel()
        self._producers.release_all()  # a task that is cancelled before its first step does nothing any more

    def _start(self, work: Coroutine[Any, Any, None], log: ServedLog) -> None:
        task = PRODUCER_WORK.start(
            work,
            concerns=self._topic_partition,
            on_failure=lambda error: log.give_up(UnexpectedFailureError("work on its producers", error)),
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
