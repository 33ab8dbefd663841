"""CreateTopics and CreatePartitions: administration of topics.

This node is the controller, and the only replica of every partition. The broker creates its internal topics itself
and refuses to delete them: the state of their coordinators would be lost (Kafka allows that).
Source: KIP-4, KIP-195, KIP-464 (defaults), KIP-516 (topic ids), KIP-525 (configs in the response); Kafka's
ControllerApis and ReplicationControlManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.config import ConfigValue, describe_topic_configs
from fencepost.broker.hosting.topics import DEFAULT_PARTITION_COUNT
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.requests.administrative_changes import AdministrativeChange, Changes, succeeded
from fencepost.broker.requests.api import RequestContext, Services, api
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.requests.replica_assignments import assigned_leader, refused_assignments
from fencepost.broker.rights.needed_rights import (
    ALTER,
    CREATE,
    DESCRIBE_CONFIGS,
    TOPIC,
    name_of,
    named,
)
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.errors import NO_PROBLEM, ErrorCode, ErrorWithMessage
from fencepost.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.kernel.sliced_work import SlicedWork
    from fencepost.broker.security.authorizer import Rights


FIRST_DELETE_VERSION_BY_ID = 6
FIRST_DELETE_VERSION_WITH_DISABLED_ERROR = 3
DEFAULT_REPLICATION_FACTOR = -1
REPLICATION_FACTOR = 1
MAX_RECORDS_PER_REQUEST = 10_000
"""Bound on topics, partitions and settings of a request: Kafka's QuorumController.MAX_RECORDS_PER_USER_OP."""

# From these versions on a client over its quota is refused (KIP-599); before, it is only throttled.
FIRST_CREATE_VERSION_WITH_QUOTA = 6
FIRST_CREATE_PARTITIONS_VERSION_WITH_QUOTA = 3

OVER_QUOTA: ErrorWithMessage = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")


def may_mutate(context: RequestContext, partition_count: int, *, strict_from: int) -> bool:
    """Whether the client's quota allows it to create or delete this number of partitions now."""
    meter = context.meter
    return meter is None or meter.charge_mutations(partition_count, is_strict=context.api_version >= strict_from)


async def outcome_of(change: Awaitable[ErrorWithMessage]) -> ErrorWithMessage:
    """Return the result of a change; a storage error is a result, too, so that the other topics get theirs."""
    try:
        return await change
    except StorageError as error:
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)


# CreateTopics


def create_topics_failed(request: CreateTopicsRequest, error: ErrorCode, version: int) -> CreateTopicsResponse:
    """Every topic of the request fails with the same error."""
    return CreateTopicsResponse(topics=[_not_created(topic.name, error, None) for topic in request.topics])


def _not_created(name: str, error: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message, configs=[])


def _without_hidden_configs(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    """The configs of a new topic are shown only with the right to describe them (KIP-525)."""
    for topic in response.topics:
        if topic.error_code == ErrorCode.NONE and not rights.may(DESCRIBE_CONFIGS, TOPIC, topic.name):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        yield


def _audit_created(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    configs = {topic.name: {config.name: config.value for config in topic.configs} for topic in request.topics}
    for topic in succeeded(response.topics):
        metadata = context.services.topics.metadata.get(topic.name)
        count = topic.num_partitions if metadata is None else metadata.partition_count
        details = {"partitions": count, "configs": configs.get(topic.name)}
        yield AdministrativeChange("CREATE", "TOPIC", topic.name, details)


@api(
    CreateTopicsRequest,
    CreateTopicsResponse,
    versions="2-7",
    rights=NeededRights(
        items=(
            Items(
                "topics",
                "topics",
                named(CREATE, TOPIC, "name"),
                instead=CREATE,
                message="Authorization failed.",
                key_of=name_of,
            ),
        ),
        finish=_without_hidden_configs,
    ),
    audit=_audit_created,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=codes(
        "REQUEST_TIMED_OUT INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED TOPIC_ALREADY_EXISTS "
        "INVALID_PARTITIONS INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG "
        "INVALID_REQUEST KAFKA_STORAGE_ERROR THROTTLING_QUOTA_EXCEEDED"
    ),
    failed=create_topics_failed,
)
async def handle_create_topics(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics one by one; each is usable when the reply is sent. `validate_only` checks and changes nothing.

    Refuses, per topic: INVALID_REQUEST (named twice; numbers beside an assignment), INVALID_REPLICATION_FACTOR,
    INVALID_REPLICA_ASSIGNMENT, KAFKA_STORAGE_ERROR, THROTTLING_QUOTA_EXCEEDED (6 and later), and the
    refusals of `Topics.check_create`. As a whole: POLICY_VIOLATION (more than 10,000 topics, partitions and settings).
    """
    await context.services.topics.catch_up()
    counts = Counter(topic.name for topic in request.topics)
    default_count = context.services.settings.num_partitions
    wanted_count = sum(
        1 + _wanted_count(topic, default_count) + len(topic.configs)
        for topic in request.topics
        if counts[topic.name] == 1
    )
    if wanted_count > MAX_RECORDS_PER_REQUEST:
        message = (
            f"{wanted_count} topics, partitions and settings in one request; at most {MAX_RECORDS_PER_REQUEST} "
            "are created at once"
        )
        refused = [_not_created(topic.name, ErrorCode.POLICY_VIOLATION, message) for topic in request.topics]
        return CreateTopicsResponse(topics=refused)
    results = [
        _not_created(name, ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
        for name, count in counts.items()
        if count > 1
    ]
    results += [
        await _create(context, topic, validate_only=request.validate_only)
        for topic in request.topics
        if counts[topic.name] == 1
    ]
    return CreateTopicsResponse(topics=results)


def _wanted_count(topic: CreatableTopic, default_count: int) -> int:
    """The number of partitions of a new topic; 0 for a number that will be refused."""
    if topic.assignments:
        return len(topic.assignments)
    return default_count if topic.num_partitions == DEFAULT_PARTITION_COUNT else max(0, topic.num_partitions)


async def _create(context: RequestContext, wanted: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    services = context.services
    topics = services.topics
    configs = {config.name: config.value for config in wanted.configs}
    error, message = topics.check_new(wanted.name, configs)
    if error is ErrorCode.NONE:
        error, message = _check_replicas(services, wanted)
    if error is not ErrorCode.NONE:
        return _not_created(wanted.name, error, message)
    partition_count = len(wanted.assignments) or wanted.num_partitions
    new_count = _wanted_count(wanted, services.settings.num_partitions)
    error, message = topics.check_create(wanted.name, partition_count, configs)
    if error is ErrorCode.NONE and not may_mutate(context, new_count, strict_from=FIRST_CREATE_VERSION_WITH_QUOTA):
        error, message = OVER_QUOTA
    if error is ErrorCode.NONE and not validate_only:
        assigned = {one.partition_index: one.broker_ids for one in wanted.assignments}
        creation = topics.create(wanted.name, partition_count, configs)
        error, message = await outcome_of(_as_assigned(services, wanted.name, creation, assigned))
    if error is not ErrorCode.NONE:
        return _not_created(wanted.name, error, message)
    created = None if validate_only else topics.metadata.get(wanted.name)
    given = {name: text for name, text in configs.items() if text is not None} if created is None else created.configs
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=created.topic_id if created is not None else ZERO_UUID,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=new_count,
        replication_factor=REPLICATION_FACTOR,
        configs=[_creatable_config(value, given) for value in describe_topic_configs(given, services.settings)],
    )


def _creatable_config(value: ConfigValue, given: Mapping[str, str]) -> CreatableTopicConfigs:
    """Show a given value as its text is; DescribeConfigs shows the parsed value."""
    return CreatableTopicConfigs(
        name=value.name,
        value=given.get(value.name, value.value),
        read_only=value.is_read_only,
        config_source=value.source,
        is_sensitive=False,
    )


def _check_replicas(services: Services, wanted: CreatableTopic) -> ErrorWithMessage:
    """Check the replicas of a new topic. Source: ReplicationControlManager.createTopic."""
    if wanted.assignments:
        if wanted.replication_factor != DEFAULT_REPLICATION_FACTOR:
            return ErrorCode.INVALID_REQUEST, "A replication factor cannot be given beside an assignment of replicas."
        if wanted.num_partitions != DEFAULT_PARTITION_COUNT:
            return ErrorCode.INVALID_REQUEST, "A number of partitions cannot be given beside an assignment of replicas."
        return _check_assignments(services, wanted.assignments)
    if wanted.replication_factor == DEFAULT_REPLICATION_FACTOR:
        return NO_PROBLEM
    is_impossible_count = wanted.num_partitions <= 0 and wanted.num_partitions != DEFAULT_PARTITION_COUNT
    if wanted.replication_factor > 0 and is_impossible_count:
        return NO_PROBLEM  # `check_create` refuses the number
    message = services.topics.refused_factor(wanted.replication_factor)
    return NO_PROBLEM if message is None else (ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _check_assignments(services: Services, assignments: Sequence[CreatableReplicaAssignment]) -> ErrorWithMessage:
    if sorted(assignment.partition_index for assignment in assignments) != list(range(len(assignments))):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Assigned partitions must be numbered from 0, without gaps."
    return _check_brokers(services, [assignment.broker_ids for assignment in assignments])


def _check_brokers(services: Services, replicas_of_partitions: Sequence[Sequence[int]]) -> ErrorWithMessage:
    reason = refused_assignments(services, replicas_of_partitions)
    return NO_PROBLEM if reason is None else (ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)


async def _as_assigned(
    services: Services, name: str, change: Awaitable[ErrorWithMessage], assigned: Mapping[int, Sequence[int]]
) -> ErrorWithMessage:
    """Create partitions, and have the brokers lead them that they are assigned to. Raises StorageError."""
    outcome = await change
    if outcome[0] is ErrorCode.NONE and assigned and services.leader_choices is not None:
        leaders = {
            TopicPartition(name, partition): assigned_leader(services, replicas)
            for partition, replicas in assigned.items()
        }
        # None for those whose brokers have all gone since the request was checked.
        await services.leader_choices.choose(leaders)
    return outcome


# CreatePartitions


def create_partitions_failed(
    request: CreatePartitionsRequest, error: ErrorCode, version: int
) -> CreatePartitionsResponse:
    """Every topic of the request fails with the same error."""
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=topic.name, error_code=error) for topic in request.topics]
    )


def _audit_grown(context: RequestContext, request: Any, response: Any) -> Changes:
    if request.validate_only:
        return
    counts = {topic.name: topic.count for topic in request.topics}
    for topic in succeeded(response.results):
        yield AdministrativeChange("ALTER", "TOPIC", topic.name, {"partitions": counts.get(topic.name)})


@api(
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    versions="0-3",
    rights=NeededRights(items=(Items("topics", "results", named(ALTER, TOPIC, "name"), key_of=name_of),)),
    audit=_audit_grown,
    awaits_other_nodes=True,
    needs_lease=False,
    errors=codes(
        "UNKNOWN_TOPIC_OR_PARTITION REQUEST_TIMED_OUT INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED "
        "INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT INVALID_REQUEST KAFKA_STORAGE_ERROR "
        "THROTTLING_QUOTA_EXCEEDED"
    ),
    failed=create_partitions_failed,
)
async def handle_create_partitions(
    context: RequestContext, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Increase the number of partitions of topics. `validate_only` checks and changes nothing.

    Refuses, per topic: INVALID_REQUEST (named twice), INVALID_REPLICA_ASSIGNMENT, KAFKA_STORAGE_ERROR, and the
    refusals of `Topics.check_add_partitions`.
    """
    await context.services.topics.catch_up()
    counts = Counter(topic.name for topic in request.topics)
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        outcome: ErrorWithMessage = (ErrorCode.INVALID_REQUEST, "The request names this topic more than once.")
        if counts[topic.name] == 1:
            outcome = await _grow(context, topic, validate_only=request.validate_only)
        error, message = outcome
        results.append(CreatePartitionsTopicResult(name=topic.name, error_code=error, error_message=message))
    return CreatePartitionsResponse(results=results)


async def _grow(context: RequestContext, wanted: CreatePartitionsTopic, *, validate_only: bool) -> ErrorWithMessage:
    services = context.services
    topics = services.topics
    outcome: ErrorWithMessage = topics.check_add_partitions(wanted.name, wanted.count)
    topic = topics.metadata.get(wanted.name)
    if outcome[0] is not ErrorCode.NONE or topic is None:
        return outcome
    if wanted.assignments is not None:
        added_count = wanted.count - topic.partition_count
        if len(wanted.assignments) != added_count:
            return (
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"{added_count} partitions would be added, but {len(wanted.assignments)} are assigned.",
            )
        outcome = _check_brokers(services, [assignment.broker_ids for assignment in wanted.assignments])
        if outcome[0] is not ErrorCode.NONE:
            return outcome
    added_count = wanted.count - topic.partition_count
    if not may_mutate(context, added_count, strict_from=FIRST_CREATE_PARTITIONS_VERSION_WITH_QUOTA):
        return OVER_QUOTA
    if validate_only:
        return NO_PROBLEM
    given = enumerate(wanted.assignments or (), topic.partition_count)
    assigned = {partition: assignment.broker_ids for partition, assignment in given}
    growth = topics.add_partitions(wanted.name, wanted.count)
    return await outcome_of(_as_assigned(services, wanted.name, growth, assigned))
