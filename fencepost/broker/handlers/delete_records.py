"""DeleteRecords: raising the log start offset of partitions, at once and durably.

Source: KIP-107; Kafka's ReplicaManager.deleteRecords and Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

from typing import Any

from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices, run_to_end
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, listed, succeeded
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api, build_in_slices
from fencepost.broker.requests.declared_errors import PARTITION_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.rights.needed_rights import DELETE, TOPIC, named
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1
FEWEST_IN_SLICES = 500
"""From this number of partitions on, the reply is built in slices between other requests."""


def delete_records_failed(request: DeleteRecordsRequest, error: ErrorCode, version: int) -> DeleteRecordsResponse:
    """Every partition of the request fails with the same error."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_failed(partition.partition_index, error) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _failed(partition: int, error: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=partition, low_watermark=NO_LOW_WATERMARK, error_code=error)


def _audit(context: RequestContext, request: Any, response: Any) -> Changes:
    for topic in response.topics:
        starts = listed(f"{one.partition_index}: {one.low_watermark}" for one in succeeded(topic.partitions))
        if starts:
            yield AdministrativeChange("DELETE", "TOPIC", topic.name, {"records_before": starts})


@api(
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    versions="0-2",
    rights=NeededRights(items=(Items("topics", "topics", named(DELETE, TOPIC, "name")),)),
    audit=_audit,
    errors=PARTITION_AWAY | codes("OFFSET_OUT_OF_RANGE INVALID_TOPIC_EXCEPTION POLICY_VIOLATION"),
    failed=delete_records_failed,
)
async def handle_delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | SlicedResponse:
    """Raise log start offsets to an offset, or to the high watermark for -1. The change survives any crash.

    Refuses, per partition: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (compacted only),
    INVALID_TOPIC_EXCEPTION (internal), KAFKA_STORAGE_ERROR, and the refusals of `find_log`.
    """
    services = context.services
    found: dict[TopicPartition, PartitionLog | ErrorCode] = {}
    before_offsets = {}

    def look_up() -> SlicedWork[None]:
        for topic in request.topics:
            for partition in topic.partitions:
                name = TopicPartition(topic.name, partition.partition_index)
                found[name] = log = _deletable(services, name)
                if isinstance(log, PartitionLog):
                    before_offsets[name] = partition.offset
                yield

    await run_in_slices(look_up(), SLICE_S)
    for name, log in found.items():
        if isinstance(log, PartitionLog) and log.is_deleted:  # meanwhile, and perhaps created again
            found[name] = services.topics.error_of_absent_log(name)
            del before_offsets[name]
    try:
        errors = await services.topics.delete_records(before_offsets)
    except StorageError:
        errors = dict.fromkeys(before_offsets, ErrorCode.KAFKA_STORAGE_ERROR)

    def result(name: TopicPartition) -> DeleteRecordsPartitionResult:
        log = found[name]
        error = log if isinstance(log, ErrorCode) else errors[name]
        if isinstance(log, ErrorCode) or error is not ErrorCode.NONE:
            return _failed(name.partition, error)
        return DeleteRecordsPartitionResult(
            partition_index=name.partition, low_watermark=log.log_start_offset, error_code=ErrorCode.NONE
        )

    def answer() -> SlicedWork[DeleteRecordsResponse]:
        topics = []
        for topic in request.topics:
            results = []
            for partition in topic.partitions:
                results.append(result(TopicPartition(topic.name, partition.partition_index)))
                yield
            if results:
                topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
        return DeleteRecordsResponse(topics=topics)

    return await build_in_slices(answer()) if len(found) >= FEWEST_IN_SLICES else run_to_end(answer())


def _deletable(services: Services, name: TopicPartition) -> PartitionLog | ErrorCode:
    """The log of a partition whose records may be deleted by request, or the refusal."""
    if name.topic in INTERNAL_TOPICS and services.topics.metadata.get(name.topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    log = find_log(services.topics, *name)
    if isinstance(log, PartitionLog) and log.config.is_compacted and "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return log
