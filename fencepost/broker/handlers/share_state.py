"""InitializeShareGroupState, ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState and
ReadShareGroupStateSummary: states that other nodes store with the share coordinator here.

Source: KIP-932; Kafka's ShareCoordinatorService and ShareCoordinatorShard.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from fencepost.broker.coordination.runtime import CoordinatorRefusal, Decision
from fencepost.broker.requests.api import RequestContext, api
from fencepost.broker.requests.declared_errors import SHARE_STATE, codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.rights.needed_rights import CLUSTER_ACTION, cluster
from fencepost.broker.share.shard import (
    STORED_DELIVERY_STATES,
    UNKNOWN_OFFSET,
    SharePartitionKey,
    ShareState,
    ShareStateShard,
    is_possible,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeShareStatePartition,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadShareStatePartition,
    ReadShareStatePartitionResult,
    ReadShareStateTopicResult,
    ShareStatePartitionResult,
    ShareStateSummary,
    ShareStateSummaryTopic,
    ShareStateTopicResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteShareStatePartition,
)
from fencepost.protocol.stored.share_group_state import StateBatch

_NO_SUCH_PARTITION = "This server does not host this topic-partition."
_MESSAGES = {
    ErrorCode.INVALID_REQUEST: "The share partition has no state, or the request is malformed.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _NO_SUCH_PARTITION,
    ErrorCode.FENCED_LEADER_EPOCH: "The partition has a newer leader epoch.",
    ErrorCode.FENCED_STATE_EPOCH: "The share partition has a newer state epoch.",
}

Response = TypeVar("Response")
Decide = Callable[[ShareStateShard], Decision[Any]]


class _Api(NamedTuple, Generic[Response]):
    """The response of an API, and its parts for a topic and for a partition."""

    response: Callable[..., Response]
    topic: type[Any]
    partition: type[Any]

    def failed(self, request: Any, error: ErrorCode, version: int) -> Response:
        """The response in which every partition fails."""
        return self.response(
            results=[
                self.topic(
                    topic_id=topic.topic_id,
                    partitions=[self.of_error(one.partition, error) for one in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def of_error(self, number: int, error: ErrorCode) -> Any:
        message = None if error is ErrorCode.NONE else _MESSAGES.get(error, error.name)
        return self.partition(partition=number, error_code=error, error_message=message)


_INITIALIZED = _Api(InitializeShareGroupStateResponse, ShareStateTopicResult, ShareStatePartitionResult)
_READ = _Api(ReadShareGroupStateResponse, ReadShareStateTopicResult, ReadShareStatePartitionResult)
_WRITTEN = _Api(WriteShareGroupStateResponse, ShareStateTopicResult, ShareStatePartitionResult)
_DELETED = _Api(DeleteShareGroupStateResponse, ShareStateTopicResult, ShareStatePartitionResult)
_SUMMARY = _Api(ReadShareGroupStateSummaryResponse, ShareStateSummaryTopic, ShareStateSummary)


async def _decided(
    context: RequestContext,
    request: Any,
    of_api: _Api[Response],
    decide: Callable[[SharePartitionKey, Any], Decide | ErrorCode],
    result_of: Callable[[int, Any], Any] | None = None,
) -> Response:
    """The response: all partitions of the request are decided on together. Nothing is done for a request without a
    group, without a topic, or with a topic without a partition, as in Kafka.

    decide:    makes the decision about a partition, or refuses it before.
    result_of: makes the result of a reply that is no error.
    """
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return of_api.response()
    services = context.services
    metadata, coordinator = services.topics.metadata, services.shares.coordinator

    async def one(topic_id: bytes, asked: Any) -> Any:
        key = SharePartitionKey(request.group_id, topic_id, asked.partition)
        wanted = ErrorCode.INVALID_REQUEST if asked.partition < 0 else decide(key, asked)
        if isinstance(wanted, ErrorCode):
            return of_api.of_error(asked.partition, wanted)
        topic = metadata.get_by_id(topic_id)
        exists = topic is not None and asked.partition < topic.partition_count
        try:
            reply = await coordinator.execute(key, lambda shard: _about_known(wanted(shard), exists=exists))
        except CoordinatorRefusal as refusal:
            reply = refusal.error
        if isinstance(reply, ErrorCode) or result_of is None:
            return of_api.of_error(asked.partition, reply)
        return result_of(asked.partition, reply)

    asked = [(topic.topic_id, partition) for topic in request.topics for partition in topic.partitions]
    # Concurrently: records that are appended together share one flush.
    results = iter(await asyncio.gather(*(one(*each) for each in asked)))
    return of_api.response(
        results=[
            of_api.topic(topic_id=topic.topic_id, partitions=[next(results) for _ in topic.partitions])
            for topic in request.topics
        ]
    )


def _about_known(decision: Decision[Any], *, exists: bool) -> Decision[Any]:
    """The decision, unless the partition does not exist: that is the last reason for which Kafka refuses."""
    reply = decision.reply
    if exists or (isinstance(reply, ErrorCode) and reply is not ErrorCode.NONE):
        return decision
    return Decision(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@api(
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    versions="0",
    rights=NeededRights(cluster(CLUSTER_ACTION)),
    errors=SHARE_STATE | codes("FENCED_STATE_EPOCH"),
    failed=_INITIALIZED.failed,
)
async def handle_initialize_share_group_state(
    context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Create the state of share partitions, or reset it to another offset.

    Refuses, per partition: INVALID_REQUEST, FENCED_STATE_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, the coordinator's errors.
    """
    now_ms = context.services.clock.now_ms()

    def decide(key: SharePartitionKey, asked: InitializeShareStatePartition) -> Decide:
        return lambda shard: shard.initialize(
            key, state_epoch=asked.state_epoch, start_offset=asked.start_offset, now_ms=now_ms
        )

    return await _decided(context, request, _INITIALIZED, decide)


@api(
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    versions="0",
    rights=NeededRights(cluster(CLUSTER_ACTION)),
    errors=SHARE_STATE | codes("FENCED_LEADER_EPOCH"),
    failed=_READ.failed,
)
async def handle_read_share_group_state(
    context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Return the states of records to the leader of their partition; leaders in older epochs are fenced from then on.

    Refuses, per partition: INVALID_REQUEST (also without a state), FENCED_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, the
    coordinator's errors.
    """
    now_ms = context.services.clock.now_ms()

    def decide(key: SharePartitionKey, asked: ReadShareStatePartition) -> Decide:
        return lambda shard: shard.read(key, leader_epoch=asked.leader_epoch, now_ms=now_ms)

    def result_of(number: int, state: ShareState) -> ReadShareStatePartitionResult:
        return ReadShareStatePartitionResult(
            partition=number,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=list(state.state_batches),
            dead_letters=[] if state.dead_letters is None else [state.dead_letters],
        )

    return await _decided(context, request, _READ, decide, result_of)


@api(
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    versions="0-1",
    rights=NeededRights(cluster(CLUSTER_ACTION)),
    errors=SHARE_STATE | codes("FENCED_LEADER_EPOCH FENCED_STATE_EPOCH"),
    failed=_WRITTEN.failed,
)
async def handle_write_share_group_state(
    context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Store the states of records; the reply waits for the disk.

    Refuses, per partition: INVALID_REQUEST (also without a state), FENCED_LEADER_EPOCH, FENCED_STATE_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION, the coordinator's errors.
    """
    now_ms = context.services.clock.now_ms()

    def decide(key: SharePartitionKey, asked: WriteShareStatePartition) -> Decide | ErrorCode:
        if not all(map(_is_storable, asked.state_batches)) or not all(map(is_possible, asked.dead_letters)):
            return ErrorCode.INVALID_REQUEST
        return lambda shard: shard.write(
            key,
            state_epoch=asked.state_epoch,
            leader_epoch=asked.leader_epoch,
            start_offset=asked.start_offset,
            delivery_complete_count=asked.delivery_complete_count,
            state_batches=asked.state_batches,
            dead_letters=asked.dead_letters,
            now_ms=now_ms,
        )

    return await _decided(context, request, _WRITTEN, decide)


def _is_storable(batch: StateBatch) -> bool:
    """Whether offsets and state are possible: a stored state must be readable."""
    return (
        batch.first_offset <= batch.last_offset
        and batch.delivery_state in STORED_DELIVERY_STATES
        and batch.delivery_count >= 0
    )


@api(
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    versions="0",
    rights=NeededRights(cluster(CLUSTER_ACTION)),
    errors=SHARE_STATE,
    failed=_DELETED.failed,
)
async def handle_delete_share_group_state(
    context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Delete the state of share partitions, if there is any.

    Refuses, per partition: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, the coordinator's errors.
    """

    def decide(key: SharePartitionKey, asked: Any) -> Decide:
        return lambda shard: shard.delete(key)

    return await _decided(context, request, _DELETED, decide)


@api(
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    versions="0-1",
    rights=NeededRights(cluster(CLUSTER_ACTION)),
    errors=SHARE_STATE,
    failed=_SUMMARY.failed,
)
async def handle_read_share_group_state_summary(
    context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Return start offsets and counts of share partitions; the offset -1 without a state.

    A node that does not keep the state, but leads the partition, is asked by the one that does to continue copies of
    dead letters.

    Refuses, per partition: INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION, the coordinator's errors.
    """

    def decide(key: SharePartitionKey, asked: ReadShareStatePartition) -> Decide:
        return lambda shard: Decision(shard.state(key))

    def result_of(number: int, state: ShareState | None) -> ShareStateSummary:
        if state is None:
            return ShareStateSummary(partition=number, start_offset=UNKNOWN_OFFSET)
        return ShareStateSummary(
            partition=number,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )

    response = await _decided(context, request, _SUMMARY, decide, result_of)
    for topic in response.results:
        for one in topic.partitions:
            if one.error_code == ErrorCode.NOT_COORDINATOR:
                key = SharePartitionKey(request.group_id, topic.topic_id, one.partition)
                context.services.shares.waiting_copies.continue_copies(key)
    return response
