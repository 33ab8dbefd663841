"""WriteTxnMarkers: a transaction coordinator, or an administrator, ends a transaction in partitions of this broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.handlers.api import RequestContext, api
from broker.topic_partition import TopicPartition
from broker.transaction.markers import TransactionMarker, write_markers
from protocol.errors import ErrorCode
from protocol.messages.markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


def write_txn_markers_failed(
    request: WriteTxnMarkersRequest, error: ErrorCode, version: int
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[_result(marker, lambda _: error) for marker in request.markers])


@api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, versions="1-2", failed=write_txn_markers_failed)
async def handle_write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    """Append markers; the reply leaves when every partition has an outcome. Version 1 asks for the lax epoch check."""
    services = context.services
    markers = [
        TransactionMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            partitions=_partitions(marker),
        )
        for marker in request.markers
    ]
    outcomes = await write_markers(services.topics, markers, services.clock.now_ms())
    return WriteTxnMarkersResponse(
        markers=[_result(marker, _error_of(outcome)) for marker, outcome in zip(request.markers, outcomes, strict=True)]
    )


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    partitions = (
        TopicPartition(topic.name, partition) for topic in marker.topics for partition in topic.partition_indexes
    )
    return list(dict.fromkeys(partitions))  # a partition that is named twice gets one marker


def _error_of(outcome: Mapping[TopicPartition, ErrorCode]) -> Callable[[TopicPartition], ErrorCode]:
    return outcome.__getitem__


def _result(marker: WritableTxnMarker, error_of: Callable[[TopicPartition], ErrorCode]) -> WritableTxnMarkerResult:
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=partition, error_code=error_of(TopicPartition(topic.name, partition))
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )
