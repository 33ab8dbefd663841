"""DeleteRecords: partitions begin at a later offset, at once and for good.

Source: KIP-107; Kafka's ReplicaManager.deleteRecords and Partition.deleteRecordsOnLeader.
"""

from __future__ import annotations

import asyncio

from broker.disk import StorageError
from broker.handlers.api import LargeReply, RequestContext, Services, api
from broker.handlers.partition_lookup import find_log
from broker.log.partition_log import PartitionLog
from broker.topic_partition import INTERNAL_TOPICS, TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

NO_LOW_WATERMARK = -1
FOUND_PER_TURN = 500
"""Partitions that are looked up at a stretch, while others are served."""


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


@api(DeleteRecordsRequest, DeleteRecordsResponse, failed=delete_records_failed)
async def handle_delete_records(
    context: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | LargeReply:
    """Let nothing below an offset be read any more; -1 for all up to the high watermark. Kept over any crash.

    Refuses, per partition: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (compacted, and nothing else),
    INVALID_TOPIC_EXCEPTION (internal), KAFKA_STORAGE_ERROR, and what `find_log` refuses.
    """
    services = context.services
    found: dict[TopicPartition, PartitionLog | ErrorCode] = {}
    before_offsets = {}
    for topic in request.topics:
        for count, partition in enumerate(topic.partitions, 1):
            if count % FOUND_PER_TURN == 0:
                await asyncio.sleep(0)
            name = TopicPartition(topic.name, partition.partition_index)
            found[name] = log = _deletable(services, name)
            if isinstance(log, PartitionLog):
                before_offsets[name] = partition.offset
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

    topics = []
    for topic in request.topics:
        results = []
        for count, partition in enumerate(topic.partitions, 1):
            if count % FOUND_PER_TURN == 0:
                await asyncio.sleep(0)
            results.append(result(TopicPartition(topic.name, partition.partition_index)))
        if results:
            topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    response = DeleteRecordsResponse(topics=topics)
    return LargeReply(response) if len(found) >= FOUND_PER_TURN else response


def _deletable(services: Services, name: TopicPartition) -> PartitionLog | ErrorCode:
    """The log of a partition whose records may be deleted on demand."""
    if name.topic in INTERNAL_TOPICS and services.topics.metadata.get(name.topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    log = find_log(services.topics, *name)
    if isinstance(log, PartitionLog) and log.config.is_compacted and "delete" not in log.config.cleanup_policy:
        return ErrorCode.POLICY_VIOLATION
    return log
