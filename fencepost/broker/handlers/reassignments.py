"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, for partitions with a single replica.

No other replica can be elected. A node that is alone moves no partition; a request for the present state succeeds. Of
several nodes, the one that a request names is the one that should lead from then on: the partition's leader moves it.
Source: KIP-183, KIP-455, KIP-460; Kafka's ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.kernel.sliced_work import SlicedWork
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, listed, succeeded
from fencepost.broker.requests.api import RequestContext, Services, SlicedResponse, api, build_in_slices
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.requests.partition_lookup import NO_LEADER, leadership
from fencepost.broker.requests.replica_assignments import assigned_leader, refused_assignment
from fencepost.broker.rights.needed_rights import ALTER, DESCRIBE, cluster
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from fencepost.broker.hosting.leader_choices import LeaderChoices

PREFERRED, UNCLEAN = 0, 1

# ElectLeaders


def elect_leaders_failed(
    request: ElectLeadersRequest, error: ErrorCode, version: int, message: str | None = None
) -> ElectLeadersResponse:
    """The request and every partition that it names fail with the same error."""
    return ElectLeadersResponse(
        error_code=error,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[_elected(partition, (error, message)) for partition in topic.partitions],
            )
            for topic in request.topic_partitions or ()
        ],
    )


def _elected(partition: int, outcome: ErrorWithMessage) -> PartitionResult:
    error, message = outcome
    return PartitionResult(partition_id=partition, error_code=error, error_message=message)


@api(
    ElectLeadersRequest,
    ElectLeadersResponse,
    versions="0-2",
    rights=NeededRights(cluster(ALTER)),
    needs_lease=False,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST "
        "PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED"
    ),
    failed=elect_leaders_failed,
)
def handle_elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect no leader: the one replica of a partition leads it, or none can. `topic_partitions` null for all, with only
    the failures in the reply.

    Refuses, per partition: ELECTION_NOT_NEEDED, UNKNOWN_TOPIC_OR_PARTITION, PREFERRED_LEADER_NOT_AVAILABLE and
    ELIGIBLE_LEADERS_NOT_AVAILABLE (its log is offline). As a whole: INVALID_REQUEST (unknown election type).
    """
    services, election_type = context.services, request.election_type
    if election_type not in (PREFERRED, UNCLEAN):
        message = f"Unknown election type {election_type}"
        return elect_leaders_failed(request, ErrorCode.INVALID_REQUEST, context.api_version, message)
    results = []
    if request.topic_partitions is None:
        for topic in services.topics.metadata.all():
            outcomes = [
                (partition, _elect(services, topic.name, partition, election_type))
                for partition in range(topic.partition_count)
            ]
            failed = [
                _elected(partition, outcome)
                for partition, outcome in outcomes
                if outcome[0] is not ErrorCode.ELECTION_NOT_NEEDED
            ]
            results.append(ReplicaElectionResult(topic=topic.name, partition_result=failed))
    else:
        for wanted in request.topic_partitions:
            elected = [
                _elected(partition, _elect(services, wanted.topic, partition, election_type))
                for partition in wanted.partitions
            ]
            results.append(ReplicaElectionResult(topic=wanted.topic, partition_result=elected))
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results)


def _elect(services: Services, topic: str, partition: int, election_type: int) -> ErrorWithMessage:
    metadata = services.topics.metadata.get(topic)
    if metadata is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}"
    if not 0 <= partition < metadata.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{partition}"
    if leadership(services, topic, partition).error is ErrorCode.NONE:
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if election_type == PREFERRED:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
    return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."


# AlterPartitionReassignments


def alter_partition_reassignments_failed(
    request: AlterPartitionReassignmentsRequest, error: ErrorCode, version: int
) -> AlterPartitionReassignmentsResponse:
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=error,
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                topic.name,
                [
                    ReassignablePartitionResponse(partition.partition_index, error, None)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _audit_moved(context: RequestContext, request: Any, response: Any) -> Changes:
    """Chosen leaders, null if the choice was cancelled. A node that is alone moves nothing."""
    if context.services.leader_choices is None:
        return
    answers = {topic.name: {one.partition_index for one in succeeded(topic.partitions)} for topic in response.responses}
    for topic in request.topics:
        done = [one for one in topic.partitions if one.partition_index in answers.get(topic.name, ())]
        if done:
            chosen = listed(f"{one.partition_index}: {_shown_leader(context.services, one)}" for one in done)
            yield AdministrativeChange("ALTER", "TOPIC", topic.name, {"leaders": chosen})


def _shown_leader(services: Services, wanted: ReassignablePartition) -> int | str | None:
    return "any" if wanted.replicas is None else assigned_leader(services, wanted.replicas)


@api(
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    versions="0-1",
    rights=NeededRights(cluster(ALTER)),
    audit=_audit_moved,
    needs_lease=False,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION CLUSTER_AUTHORIZATION_FAILED INVALID_REPLICATION_FACTOR "
        "INVALID_REPLICA_ASSIGNMENT KAFKA_STORAGE_ERROR NO_REASSIGNMENT_IN_PROGRESS"
    ),
    failed=alter_partition_reassignments_failed,
)
async def handle_alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Of several nodes, choose the one that should lead a partition, which then moves there; null gives the choice
    back. A node that is alone accepts only the assignment that a partition has.

    Refuses, per partition: UNKNOWN_TOPIC_OR_PARTITION, INVALID_REPLICA_ASSIGNMENT (see `refused_assignment`),
    INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS (nothing to cancel),
    KAFKA_STORAGE_ERROR.
    """
    services = context.services
    await services.topics.catch_up()
    choices: dict[TopicPartition, int | None] = {}
    # A request without partitions gets Kafka's empty reply; its other fields do not count.
    may_change_factor = request.allow_replication_factor_change or not request.topics
    responses = []
    for topic in request.topics:
        metadata = services.topics.metadata.get(topic.name)
        answers = []
        for wanted in topic.partitions:
            error, message = _reassign(
                services, topic.name, metadata, wanted, choices, may_change_factor=may_change_factor
            )
            answers.append(
                ReassignablePartitionResponse(
                    partition_index=wanted.partition_index, error_code=error, error_message=message
                )
            )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    if choices and services.leader_choices is not None:
        try:
            await services.leader_choices.choose(choices)
        except StorageError as error:
            _fail_chosen(responses, choices, str(error))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_factor,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=responses,
    )


def _reassign(
    services: Services,
    topic: str,
    metadata: TopicMetadata | None,
    wanted: ReassignablePartition,
    choices: dict[TopicPartition, int | None],
    *,
    may_change_factor: bool,
) -> ErrorWithMessage:
    """Check the request for one partition; with several nodes, add its choice of a leader to the choices."""
    partition, replicas = wanted.partition_index, wanted.replicas
    if metadata is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}."
    if not 0 <= partition < metadata.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{partition}."
    name = TopicPartition(topic, partition)
    if replicas is None:
        if services.leader_choices is None or services.leader_choices.choice(name).chosen is None:
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None
        choices[name] = None
        return NO_PROBLEM
    reason = refused_assignment(services, replicas)
    if reason is not None:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason
    current = leadership(services, topic, partition).replicas or [NO_LEADER]
    if len(replicas) != len(current) and not may_change_factor:
        return (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(current)} to {len(replicas)}",
        )
    if services.leader_choices is not None:
        choices[name] = assigned_leader(services, replicas)
    elif list(replicas) != current:
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The partition has one replica, and that stays on {current}."
    return NO_PROBLEM


def _fail_chosen(
    responses: Sequence[ReassignableTopicResponse], choices: Collection[TopicPartition], message: str
) -> None:
    for topic in responses:
        for answer in topic.partitions:
            if TopicPartition(topic.name, answer.partition_index) in choices:
                answer.error_code, answer.error_message = ErrorCode.KAFKA_STORAGE_ERROR, message


# ListPartitionReassignments


def list_partition_reassignments_failed(
    request: ListPartitionReassignmentsRequest, error: ErrorCode, version: int
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=error, error_message=None)


@api(
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    versions="0",
    rights=NeededRights(cluster(DESCRIBE)),
    needs_lease=False,
    errors=codes("CLUSTER_AUTHORIZATION_FAILED"),
    failed=list_partition_reassignments_failed,
)
def handle_list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse | Coroutine[Any, Any, SlicedResponse]:
    """List the partitions that another node should lead than the one that does, of all topics for null. A node that is
    alone lists none.
    """
    services = context.services
    if services.leader_choices is None:
        return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
    return build_in_slices(_list_moves(services, services.leader_choices, request))


def _list_moves(
    services: Services, leader_choices: LeaderChoices, request: ListPartitionReassignmentsRequest
) -> SlicedWork[ListPartitionReassignmentsResponse]:
    metadata = services.topics.metadata
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topics is None:
        wanted = [(topic.name, range(topic.partition_count)) for topic in metadata.all()]
    else:
        wanted = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics = []
    for name, partitions in wanted:
        moves = []
        for partition in partitions:
            target = leader_choices.choice(TopicPartition(name, partition)).next_leader
            if target is not None:
                sources = leadership(services, name, partition).replicas
                moves.append(
                    OngoingPartitionReassignment(partition, [target, *sources], [target], removing_replicas=sources)
                )
            yield
        if moves:
            topics.append(OngoingTopicReassignment(name, moves))
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=topics)
