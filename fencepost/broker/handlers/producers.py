"""DescribeProducers: the producers of a partition, and the transactions that are open there.

Source: KIP-664; Kafka's ReplicaManager.activeProducerState.
"""

from __future__ import annotations

from fencepost.broker.handlers.metadata import missing_topic_error
from fencepost.broker.kernel.sliced_work import SLICE_S, SlicedWork, run_in_slices
from fencepost.broker.log.log_types import ActiveProducer
from fencepost.broker.log.producers.producer_work import LISTED_PER_SLICE
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api
from fencepost.broker.requests.declared_errors import PARTITION_AWAY, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.rights.needed_rights import READ, TOPIC, named
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.producers import (
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


@api(
    DescribeProducersRequest,
    DescribeProducersResponse,
    versions="0",
    rights=NeededRights(items=(Items("topics", "topics", named(READ, TOPIC, "name"), in_order=True),)),
    errors=PARTITION_AWAY | codes("INVALID_TOPIC_EXCEPTION"),
    failed=describe_producers_failed,
)
async def handle_describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse | SlicedResponse:
    """Describe the state that each partition keeps of its producers, with -1 if there is none.

    Refuses, per partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, KAFKA_STORAGE_ERROR.
    """

    def steps() -> SlicedWork[DescribeProducersResponse]:
        topics = []
        for topic in request.topics:
            partitions = []
            for partition in topic.partition_indexes:
                partitions.append((yield from _describe(context.services, topic.name, partition)))
                yield
            topics.append(TopicResponse(name=topic.name, partitions=partitions))
        return DescribeProducersResponse(topics=topics)

    response = await run_in_slices(steps(), SLICE_S)
    count = sum(len(partition.active_producers) for topic in response.topics for partition in topic.partitions)
    return SlicedResponse(response) if count >= LISTED_PER_SLICE else response


def _describe(services: Services, topic: str, partition: int) -> SlicedWork[PartitionResponse]:
    if services.topics.metadata.get(topic) is None:
        error = missing_topic_error(topic)
        return PartitionResponse(partition_index=partition, error_code=error, error_message="There is no such topic.")
    log = find_log(services.topics, topic, partition)
    if isinstance(log, ErrorCode):
        return PartitionResponse(partition_index=partition, error_code=log)
    producers = yield from log.active_producers_in_steps(services.clock.now_ms())
    states: list[ProducerState] = []
    for start in range(0, len(producers), LISTED_PER_SLICE):
        yield
        states += map(_state, producers[start : start + LISTED_PER_SLICE])
    return PartitionResponse(partition_index=partition, error_code=ErrorCode.NONE, active_producers=states)


def _state(producer: ActiveProducer) -> ProducerState:
    return ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp_ms,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=producer.current_transaction_first_offset,
    )
