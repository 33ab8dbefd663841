"""DescribeProducers: who writes to a partition, and which transactions are open there.

Source: KIP-664; Kafka's ReplicaManager.activeProducerState.
"""

from __future__ import annotations

from broker.handlers.api import RequestContext, Services, api
from broker.handlers.metadata import missing_topic_error
from broker.handlers.partition_lookup import find_log
from protocol.errors import ErrorCode
from protocol.messages.producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def describe_producers_failed(
    request: DescribeProducersRequest, error: ErrorCode, version: int
) -> DescribeProducersResponse:
    """Every partition of the request fails with the same error."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=partition, error_code=error)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


@api(DescribeProducersRequest, DescribeProducersResponse, failed=describe_producers_failed)
def handle_describe_producers(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The state that each partition keeps of its producers, -1 where there is none.

    Refuses, per partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR.
    """
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(context.services, topic.name, partition) for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(services: Services, topic: str, partition: int) -> PartitionResponse:
    if services.topics.metadata.get(topic) is None:
        error = missing_topic_error(topic)
        return PartitionResponse(partition_index=partition, error_code=error, error_message="There is no such topic.")
    log = find_log(services.topics, topic, partition)
    if isinstance(log, ErrorCode):
        return PartitionResponse(partition_index=partition, error_code=log)
    return PartitionResponse(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp_ms,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.current_transaction_first_offset,
            )
            for producer in log.active_producers(services.clock.now_ms())
        ],
    )
