"""WriteTxnMarkers: markers that a transaction coordinator, or an administrator, has this broker append."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.printable import cut
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.administrative_changes import (
    LONGEST_REASON_CHARACTERS,
    AdministrativeChange,
    Changes,
    listed,
    succeeded,
)
from fencepost.broker.requests.api import RequestContext, SlicedResponse, api, written_in_slices
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import ALTER, CLUSTER_ACTION, cluster
from fencepost.broker.transaction.markers import TransactionMarker, write_markers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.markers import (
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


def _audit(context: RequestContext, request: Any, response: Any) -> Changes:
    """Markers that a client asked for. In a cluster, coordinators on other nodes ask for theirs all the time."""
    nodes = {f"broker-{other.node_id}" for other in context.services.topics.placement.other_nodes()}
    if context.client_id in nodes:
        return
    done = {  # the reply has one entry for all markers of a producer
        (answered.producer_id, topic.name, partition.partition_index)
        for answered in response.markers
        for topic in answered.topics
        for partition in succeeded(topic.partitions)
    }
    for asked in request.markers:
        partitions = listed(
            f"{topic.name}-{index}"
            for topic in asked.topics
            for index in topic.partition_indexes
            if (asked.producer_id, topic.name, index) in done
        )
        if partitions:
            outcome = "committed" if asked.transaction_result else "aborted"
            details = {"producer_epoch": asked.producer_epoch, "outcome": outcome, "partitions": partitions}
            if request.reason is not None:
                details["reason"] = cut(request.reason, LONGEST_REASON_CHARACTERS)
            yield AdministrativeChange("ALTER", "PRODUCER", str(asked.producer_id), details)


@api(
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    versions="1-2",
    rights=NeededRights(cluster(ALTER, CLUSTER_ACTION)),
    audit=_audit,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS "
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND CLUSTER_AUTHORIZATION_FAILED INVALID_PRODUCER_EPOCH "
        "TRANSACTION_COORDINATOR_FENCED KAFKA_STORAGE_ERROR"
    ),
    failed=write_txn_markers_failed,
)
async def handle_write_txn_markers(
    context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | SlicedResponse:
    """Append markers; the reply waits for the result of every partition. Version 1 uses the lax epoch check.

    Without markers it asks this node to put changes by other nodes in force: see `Confirmations`.
    Markers without a partition are left out of the reply. Refuses, per partition: as `write_markers`, and
    INVALID_PRODUCER_EPOCH for an id or an epoch that no producer can have, INVALID_REQUEST for a negative
    version of transactions.
    """
    services = context.services
    if not request.markers and services.confirmations is not None:
        await services.confirmations.put_in_force()
    requested = [marker for marker in request.markers if marker.topics]
    markers = [
        TransactionMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            committed=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            partitions=_partitions(marker),
        )
        for marker in requested
    ]
    refusals = [_refusal(marker) for marker in markers]
    good = [marker for marker, refusal in zip(markers, refusals, strict=True) if refusal is ErrorCode.NONE]
    written = iter(await write_markers(services.topics, good, services.clock.now_ms()))
    outcomes = [
        next(written) if refusal is ErrorCode.NONE else _refused(services.topics, marker, refusal)
        for marker, refusal in zip(markers, refusals, strict=True)
    ]
    response = WriteTxnMarkersResponse(
        markers=[_result(marker, _error_of(outcome)) for marker, outcome in zip(requested, outcomes, strict=True)]
    )
    return written_in_slices(response, sum([len(outcome) for outcome in outcomes]))


def _refusal(marker: TransactionMarker) -> ErrorCode:
    """The error of a marker that is invalid for every partition."""
    if marker.producer_id < 0 or marker.producer_epoch < 0:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return ErrorCode.INVALID_REQUEST if marker.transaction_version < 0 else ErrorCode.NONE


def _refused(topics: Topics, marker: TransactionMarker, refusal: ErrorCode) -> dict[TopicPartition, ErrorCode]:
    return {
        topic_partition: topics.error_of_absent_log(topic_partition) if topics.log(topic_partition) is None else refusal
        for topic_partition in marker.partitions
    }


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
