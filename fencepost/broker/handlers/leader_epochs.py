"""OffsetForLeaderEpoch: end offsets of leader epochs, by which a client detects a truncated log.

Source: KIP-101, KIP-320; Kafka's ReplicaManager.lastOffsetForLeaderEpoch.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from fencepost.broker.kernel.sliced_work import SlicedWork, run_to_end
from fencepost.broker.requests.api import (
    FEWEST_WRITTEN_IN_SLICES,
    RequestContext,
    Services,
    SlicedResponse,
    api,
    build_in_slices,
)
from fencepost.broker.requests.declared_errors import LEADER_EPOCH, PARTITION_AWAY
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.rights.needed_rights import CLUSTER_ACTION, DESCRIBE, TOPIC, named
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def offset_for_leader_epoch_failed(
    request: OffsetForLeaderEpochRequest, error: ErrorCode, version: int
) -> OffsetForLeaderEpochResponse:
    """Every partition of the request fails with the same error."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(error_code=error, partition=asked.partition) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )


@api(
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    versions="2-4",
    rights=NeededRights(items=(Items("topics", "topics", named(DESCRIBE, TOPIC, "topic"), instead=CLUSTER_ACTION),)),
    errors=PARTITION_AWAY | LEADER_EPOCH,
    failed=offset_for_leader_epoch_failed,
)
def handle_offset_for_leader_epoch(
    context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse | Coroutine[Any, Any, SlicedResponse]:
    """Return for each partition the largest epoch not above the given one, and the offset after its last record.

    Refuses, per partition, as `find_log`. An unknown epoch gives (-1, -1) without an error.
    """

    def steps() -> SlicedWork[OffsetForLeaderEpochResponse]:
        topics = []
        for topic in request.topics:
            partitions = []
            for asked in topic.partitions:
                partitions.append(_end_offset(context.services, topic.topic, asked))
                yield
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        return OffsetForLeaderEpochResponse(topics=topics)

    count = sum([len(topic.partitions) for topic in request.topics])
    return build_in_slices(steps()) if count >= FEWEST_WRITTEN_IN_SLICES else run_to_end(steps())


def _end_offset(services: Services, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    log = find_log(services.topics, topic, asked.partition, current_leader_epoch=asked.current_leader_epoch)
    if isinstance(log, ErrorCode):
        return EpochEndOffset(error_code=log, partition=asked.partition)
    found = log.end_offset_for_leader_epoch(asked.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=found.leader_epoch,
        end_offset=found.end_offset,
    )
