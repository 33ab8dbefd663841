"""Markers: the control records that end a transaction in the partitions that it wrote to.

`write_markers` serves WriteTxnMarkers requests. `MarkerChannel` is the seam through which a coordinator sends markers
to partitions of this node or of others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.kernel.supervision import Place, Policy
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_ERROR, ErrorCode

log = get_logger(__name__)

MARKER_APPEND = Place("append of a marker", Policy.RETRY)

MARKERS_PER_STEP = 96
"""More markers of one request are appended in several steps of the event loop."""


class TransactionMarker(NamedTuple):
    """The end of one transaction in some partitions.

    producer_epoch:      epoch; in transaction version 2 one above that of the data, so that late writes and late
                         markers are fenced.
    coordinator_epoch:   the leader epoch of the coordinator's partition; a partition refuses a lower one than it has
                         seen.
    transaction_version: 2 compares the producer epoch strictly, 0 and 1 accept an equal one.
    """

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    transaction_version: int
    partitions: Collection[TopicPartition]

    def limited_to(self, partitions: Collection[TopicPartition]) -> TransactionMarker:
        """Return the marker for some of its partitions."""
        return self._replace(partitions=partitions)


class MarkerChannel(Protocol):
    """Sends markers to the leaders of their partitions."""

    def send(self, marker: TransactionMarker) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        """Send a marker; return an error code per partition. NONE: the marker is durable there."""
        ...

    def group_by_destination(self, partitions: Collection[TopicPartition]) -> Sequence[Collection[TopicPartition]]:
        """Group partitions by the node that leads them now: one node may fail without the others."""
        ...

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        """Whether a partition is known to be deleted. An unreachable partition is not."""
        ...


class LocalMarkerChannel:
    """Delivers markers to the partitions of this node."""

    def __init__(self, topics: Topics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock

    def send(self, marker: TransactionMarker) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        outcome: dict[TopicPartition, ErrorCode] = {}
        volatile = _append_all(self._topics, marker, self._clock.now_ms(), outcome)
        return _when_durable(outcome, volatile) if volatile else eager.Finished(outcome)

    def group_by_destination(self, partitions: Collection[TopicPartition]) -> Sequence[Collection[TopicPartition]]:
        return (partitions,)

    def is_deleted(self, topic_partition: TopicPartition) -> bool:
        metadata = self._topics.metadata.get(topic_partition.topic)
        return metadata is None or topic_partition.partition >= metadata.partition_count


async def write_markers(
    topics: Topics, markers: Sequence[TransactionMarker], now_ms: int
) -> list[dict[TopicPartition, ErrorCode]]:
    """Append markers to the partitions that are hosted here, and wait once until all of them are durable.

    Up to MARKERS_PER_STEP appends are one step of the event loop, more are sliced; then the syncs run together.
    The observer of a `__consumer_offsets` log commits or drops pending offsets. Writing a marker again is harmless.
    Returns errors in the order of `markers`, per partition: NONE; UNKNOWN_TOPIC_OR_PARTITION if this node knows none;
    NOT_LEADER_OR_FOLLOWER if another node leads it, or its log is not open yet; INVALID_PRODUCER_EPOCH or
    TRANSACTION_COORDINATOR_FENCED if a newer owner has the producer id; KAFKA_STORAGE_ERROR.
    Source: Kafka's KafkaApis.handleWriteTxnMarkersRequest.
    """
    outcomes: list[dict[TopicPartition, ErrorCode]] = [{} for _ in markers]
    volatile: dict[TopicPartition, PartitionLog] = {}
    count = sum(len(marker.partitions) for marker in markers)
    if count <= MARKERS_PER_STEP:
        for marker, outcome in zip(markers, outcomes, strict=True):
            volatile |= _append_all(topics, marker, now_ms, outcome)
    else:
        await run_in_slices(_append_all_in_steps(topics, markers, now_ms, outcomes, volatile), SLICE_S)
    failed = await _flush(volatile)
    for outcome in outcomes:
        _replace_failed(outcome, failed)
    return outcomes


def _append_all(
    topics: Topics, marker: TransactionMarker, now_ms: int, outcome: dict[TopicPartition, ErrorCode]
) -> dict[TopicPartition, PartitionLog]:
    """Append a marker to its partitions, put the errors into `outcome`, and return the logs to wait for."""
    volatile: dict[TopicPartition, PartitionLog] = {}
    producer_id, producer_epoch, committed, coordinator_epoch, transaction_version, partitions = marker
    for topic_partition in partitions:
        partition_log = topics.log(topic_partition)
        if partition_log is None:
            # If the log is being opened or restored, or another node leads it, the coordinator sends the marker again.
            outcome[topic_partition] = topics.error_of_absent_log(topic_partition)
            continue
        try:
            error = partition_log.append_marker(
                producer_id, producer_epoch, committed, coordinator_epoch, transaction_version, now_ms
            )
        except StorageError as failure:
            error = _failed(partition_log, failure)
        except BaseException as failure:  # noqa: BLE001  # passed on or logged by `failed`
            MARKER_APPEND.failed(failure, concerns=topic_partition)
            error = ErrorCode.UNKNOWN_SERVER_ERROR  # the coordinator sends it again
        outcome[topic_partition] = error
        if error is NO_ERROR and partition_log.high_watermark < partition_log.log_end_offset:
            volatile[topic_partition] = partition_log
    return volatile


def _append_all_in_steps(
    topics: Topics,
    markers: Sequence[TransactionMarker],
    now_ms: int,
    outcomes: Sequence[dict[TopicPartition, ErrorCode]],
    volatile: dict[TopicPartition, PartitionLog],
) -> SlicedWork[None]:
    """`_append_all` in steps. Each step looks up its logs: topics may be deleted, and partitions move, in between."""
    for marker, outcome in zip(markers, outcomes, strict=True):
        partitions = list(marker.partitions)
        for start in range(0, len(partitions), MARKERS_PER_STEP):
            step = marker.limited_to(partitions[start : start + MARKERS_PER_STEP])
            volatile |= _append_all(topics, step, now_ms, outcome)
            yield


async def _when_durable(
    outcome: dict[TopicPartition, ErrorCode], volatile: Mapping[TopicPartition, PartitionLog]
) -> dict[TopicPartition, ErrorCode]:
    _replace_failed(outcome, await _flush(volatile))
    return outcome


def _replace_failed(outcome: dict[TopicPartition, ErrorCode], failed: Mapping[TopicPartition, ErrorCode]) -> None:
    """Put the errors of failed syncs in the place of NONE."""
    if failed:
        for topic_partition, error in outcome.items():
            if error is ErrorCode.NONE:
                outcome[topic_partition] = failed.get(topic_partition, error)


async def _flush(logs: Mapping[TopicPartition, PartitionLog]) -> dict[TopicPartition, ErrorCode]:
    """Wait for all logs together; return the errors of those whose sync failed."""
    failed: dict[TopicPartition, ErrorCode] = {}
    waits: list[tuple[PartitionLog, Awaitable[None]]] = []
    for topic_partition, partition_log in logs.items():
        try:
            waits.append((partition_log, partition_log.flushed()))
        except StorageError as error:
            failed[topic_partition] = _failed(partition_log, error)
    for partition_log, flushed in waits:
        try:
            await flushed
        except StorageError as error:
            failed[partition_log.topic_partition] = _failed(partition_log, error)
    return failed


def _failed(partition_log: PartitionLog, error: StorageError) -> ErrorCode:
    """Return the error of a failed log; a log deleted meanwhile counts as not hosted here."""
    topic_partition = partition_log.topic_partition
    if partition_log.is_deleted:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition_log.offline_reason is None:  # otherwise the log has reported it
        log.error(
            "marker_write_failed",
            topic=topic_partition.topic,
            partition=topic_partition.partition,
            reason=str(error),
        )
    return ErrorCode.KAFKA_STORAGE_ERROR
