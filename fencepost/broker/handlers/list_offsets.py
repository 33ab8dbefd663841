"""ListOffsets: the first and last offsets of partitions, and offsets by timestamp.

Source: KIP-79 (by timestamp), KIP-98 (isolation), KIP-734 (maximum timestamp), KIP-405, KIP-1005, KIP-1023 (tiers);
Kafka's KafkaApis.handleListOffsetRequest and UnifiedLog.fetchOffsetByTimestamp.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Awaitable

from fencepost.broker.log.partition_log import Isolation, PartitionLog
from fencepost.broker.log.reads.time_search import Need, Search, searched_at_once
from fencepost.broker.log.segment.batch_scan import DamagedLogError
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api
from fencepost.broker.requests.caught_up import caught_up, may_have_missed
from fencepost.broker.requests.declared_errors import LEADER_EPOCH, PARTITION_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.rights.needed_rights import DESCRIBE, TOPIC, named
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from fencepost.protocol.record_batch import NO_LEADER_EPOCH

FEWEST_IN_SLICES = 100
"""From this number of partitions on, other requests run between the look-ups."""

LATEST_TIMESTAMP = -1
EARLIEST_TIMESTAMP = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL_TIMESTAMP = -4
LATEST_TIERED_TIMESTAMP = -5
EARLIEST_PENDING_UPLOAD_TIMESTAMP = -6

CONSUMER_REPLICA_ID = -1
NO_OFFSET = -1
NO_TIMESTAMP_MS = -1

_FIRST_VERSIONS = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: 11,
}
_ISOLATIONS = {0: Isolation.READ_UNCOMMITTED, 1: Isolation.READ_COMMITTED}


def list_offsets_failed(request: ListOffsetsRequest, error: ErrorCode, version: int) -> ListOffsetsResponse:
    """Every partition of the request fails with the same error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_failed(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _failed(partition: int, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition,
        error_code=error,
        timestamp=NO_TIMESTAMP_MS,
        offset=NO_OFFSET,
        leader_epoch=NO_LEADER_EPOCH,
    )


@api(
    ListOffsetsRequest,
    ListOffsetsResponse,
    versions="1-11",
    rights=NeededRights(items=(Items("topics", "topics", named(DESCRIBE, TOPIC, "name")),)),
    errors=PARTITION_AWAY
    | LEADER_EPOCH
    | codes("CORRUPT_MESSAGE UNSUPPORTED_VERSION INVALID_REQUEST OFFSET_NOT_AVAILABLE"),
    failed=list_offsets_failed,
)
def handle_list_offsets(
    context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse | SlicedResponse]:
    """Look up one offset per partition; if there is none, the offset is -1 without an error.

    Refuses, per partition: INVALID_REQUEST (named twice, and answered once), UNSUPPORTED_VERSION (a special
    timestamp that this version does not know), CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR, and the refusals of `find_log`.
    As a whole: INVALID_REQUEST (unknown isolation level).
    """
    version = context.api_version
    isolation = _ISOLATIONS.get(request.isolation_level)
    if isolation is None:
        return list_offsets_failed(request, ErrorCode.INVALID_REQUEST, version)
    if request.replica_id != CONSUMER_REPLICA_ID:
        isolation = Isolation.LOG_END
    services = context.services
    # The node that has created a topic may have named it, and this node as a leader, to the client.
    if may_have_missed(services, (services.topics.metadata.get(topic.name) for topic in request.topics)):
        return caught_up(context, lambda: _list(context, request, isolation))
    return _list(context, request, isolation)


def _list(
    context: RequestContext, request: ListOffsetsRequest, isolation: Isolation
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse | SlicedResponse]:
    version = context.api_version
    counts = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    # A topic that is named twice is answered once; one without partitions is left out.
    wanted: defaultdict[str, dict[int, ListOffsetsPartition]] = defaultdict(dict)
    for topic in request.topics:
        for partition in topic.partitions:
            wanted[topic.name][partition.partition_index] = partition

    def search() -> Search[ListOffsetsResponse]:
        topics = []
        for name, partitions in wanted.items():
            found = []
            for index, partition in partitions.items():
                if counts[name, index] > 1:
                    found.append(_failed(index, ErrorCode.INVALID_REQUEST))
                else:
                    found.append((yield from _look_up(context.services, name, partition, isolation, version)))
                yield Need.NEXT
            topics.append(ListOffsetsTopicResponse(name=name, partitions=found))
        return ListOffsetsResponse(topics=topics)

    if len(counts) >= FEWEST_IN_SLICES:
        return _answer_in_slices(context.services, search())
    if any(_is_searched_for(partition.timestamp) for topic in request.topics for partition in topic.partitions):
        return context.services.topics.searches.finish(search())
    return searched_at_once(search())


async def _answer_in_slices(services: Services, search: Search[ListOffsetsResponse]) -> SlicedResponse:
    return SlicedResponse(await services.topics.searches.finish(search))


def _is_searched_for(timestamp_ms: int) -> bool:
    """Whether the timestamp needs a search for a record, which may take many steps."""
    return timestamp_ms >= 0 or timestamp_ms == MAX_TIMESTAMP


def _look_up(
    services: Services, topic: str, wanted: ListOffsetsPartition, isolation: Isolation, version: int
) -> Search[ListOffsetsPartitionResponse]:
    timestamp_ms = wanted.timestamp
    if timestamp_ms < 0:
        first_version = _FIRST_VERSIONS.get(timestamp_ms)
        if first_version is None or version < first_version:
            return _failed(wanted.partition_index, ErrorCode.UNSUPPORTED_VERSION)
    log = find_log(services.topics, topic, wanted.partition_index, current_leader_epoch=wanted.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return _failed(wanted.partition_index, log)
    try:
        offset, found_timestamp_ms, leader_epoch = yield from _offset(log, timestamp_ms, isolation)
    except DamagedLogError:
        return _failed(wanted.partition_index, ErrorCode.CORRUPT_MESSAGE)
    except StorageError:
        return _failed(wanted.partition_index, ErrorCode.KAFKA_STORAGE_ERROR)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found_timestamp_ms,
        offset=offset,
        leader_epoch=leader_epoch,
    )


def _offset(log: PartitionLog, timestamp_ms: int, isolation: Isolation) -> Search[tuple[int, int, int]]:
    """Offset, timestamp and leader epoch of the requested position; -1 for each that does not exist."""
    if timestamp_ms == LATEST_TIMESTAMP:
        return readable_end_offset(log, isolation), NO_TIMESTAMP_MS, log.leader_epoch
    if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        return log.log_start_offset, NO_TIMESTAMP_MS, _leader_epoch_at_start(log)
    if timestamp_ms in (LATEST_TIERED_TIMESTAMP, EARLIEST_PENDING_UPLOAD_TIMESTAMP):
        # As Kafka answers for a topic without a remote tier.
        return NO_OFFSET, NO_TIMESTAMP_MS, NO_LEADER_EPOCH
    if timestamp_ms == MAX_TIMESTAMP:
        found = yield from log.offset_of_max_timestamp(isolation)
    else:
        found = yield from log.offset_for_timestamp(timestamp_ms, isolation=isolation)
    if found is None or found.offset >= readable_end_offset(log, isolation):
        return NO_OFFSET, NO_TIMESTAMP_MS, NO_LEADER_EPOCH
    return found.offset, found.timestamp_ms, found.leader_epoch


def readable_end_offset(log: PartitionLog, isolation: Isolation) -> int:
    """The offset after the last record that a reader of this isolation may see."""
    if isolation is Isolation.READ_COMMITTED:
        return log.last_stable_offset
    if isolation is Isolation.READ_UNCOMMITTED:
        return log.high_watermark
    return log.log_end_offset


def _leader_epoch_at_start(log: PartitionLog) -> int:
    """The leader epoch of the first record if it is known; -1 leaves the client's position unchecked."""
    before = log.end_offset_for_leader_epoch(log.leader_epoch - 1)
    return log.leader_epoch if before.end_offset <= log.log_start_offset else NO_LEADER_EPOCH
