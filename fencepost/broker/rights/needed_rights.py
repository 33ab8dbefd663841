"""The rights that each API needs, in one table: NEEDED_RIGHTS.

A name is judged before it is looked up, so that a client cannot tell a topic that it may not see from one that does not
exist; a topic id is looked up first, as in Kafka.
Source: Kafka's KafkaApis, ControllerApis and AclApis; the table "Operations and Resources on Protocols" of its
documentation; KIP-430 (authorized operations), KIP-599 (creation by Metadata), KIP-848, KIP-932, KIP-939, KIP-1071.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS
from fencepost.broker.rights.authorized_operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
)
from fencepost.broker.rights.rights_gate import (
    MESSAGES,
    UNKNOWN,
    Finish,
    Items,
    Needed,
    Part,
    Refusal,
    Row,
    Unknown,
    on_cluster,
)
from fencepost.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.cluster import DescribeTopicPartitionsResponseTopic, TopicRequest
from fencepost.protocol.messages.group_offsets import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from fencepost.protocol.messages.metadata import MetadataResponseTopic
from fencepost.protocol.messages.share_offsets import (
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
    DeleteShareGroupOffsetsResponseTopic,
    DescribeShareGroupOffsetsResponsePartition,
)
from fencepost.protocol.messages.topics import DeletableTopicResult
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from fencepost.protocol.record_batch import CURRENT_MAGIC, HEADER_BYTES, TRANSACTIONAL_BIT, read_header
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.kernel.sliced_work import SlicedWork
    from fencepost.broker.requests.api import RequestContext
    from fencepost.broker.security.authorizer import Rights

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID

Whole = Callable[["Rights", "RequestContext", Any], Refusal | Unknown | None]

# The request as a whole


def _lacks(rights: Rights, *needed: Needed) -> Refusal | None:
    """The refusal for the first right that the client lacks."""
    for one in needed:
        if not rights.may(*one):
            return Refusal(one)
    return None


def whole(operation: AclOperation, resource: AclResource, field: str) -> Whole:
    """The request names one resource; a name that is null is left to the handler."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
        name = getattr(request, field)
        return None if name is None else _lacks(rights, Needed(operation, resource, name))

    return judge


def cluster(*operations: AclOperation) -> Whole:
    """One of these operations on the cluster is needed."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
        refusal = None
        for operation in reversed(operations):
            refusal = _lacks(rights, on_cluster(operation))
            if refusal is None:
                return None
        return refusal

    return judge


def both(*parts: Whole) -> Whole:
    """All of these are needed; the first that is lacking refuses the request."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | Unknown | None:
        return next((refusal for part in parts if (refusal := part(rights, context, request)) is not None), None)

    return judge


def described_topics(names_of: Callable[[Any], Iterable[str]]) -> Whole:
    """DESCRIBE on all topics that the request names."""

    def judge(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
        return _lacks(rights, *(Needed(DESCRIBE, TOPIC, name) for name in names_of(request)))

    return judge


def _subscribed(request: Any) -> Iterable[str]:
    return request.subscribed_topic_names or ()


def _topics_of_topology(request: Any) -> Iterator[str]:
    for part in () if request.topology is None else request.topology.subtopologies:
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
            yield topic.name


def _init_producer_id(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    name = request.transactional_id
    if name is None:
        if rights.may_on_any(WRITE, TOPIC):
            return None
        return _lacks(rights, on_cluster(AclOperation.IDEMPOTENT_WRITE))
    needed = [Needed(WRITE, TRANSACTIONAL_ID, name)]
    if request.enable2_pc or context.services.transactions.is_two_phase(name):
        needed.append(Needed(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, name))
    return _lacks(rights, *needed)


def _add_partitions(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    """Up to version 3 a client adds its partitions, all or none; from version 4 on brokers send the request."""
    if context.api_version >= FIRST_ADD_PARTITIONS_VERSION_OF_BROKERS:
        return _lacks(rights, on_cluster(CLUSTER_ACTION))
    refusal = _lacks(rights, Needed(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id))
    if refusal is not None:
        return refusal
    topics = request.v3_and_below_topics
    refused = {topic.name for topic in topics if not rights.may(WRITE, TOPIC, topic.name)}
    if not refused:
        return None
    results = []
    for topic in topics:
        metadata = context.services.topics.metadata.get(topic.name)
        count = 0 if metadata is None else metadata.partition_count
        partitions = []
        for partition in topic.partitions:
            error = ErrorCode.OPERATION_NOT_ATTEMPTED
            if topic.name in refused or topic.name in INTERNAL_TOPICS:
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not 0 <= partition < count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions.append(AddPartitionsToTxnPartitionResult(partition, error))
        if partitions:
            results.append(AddPartitionsToTxnTopicResult(topic.name, partitions))
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    return Refusal(Needed(WRITE, TOPIC, min(refused)), response)


FIRST_ADD_PARTITIONS_VERSION_OF_BROKERS = 4


def _produce(rights: Rights, context: RequestContext, request: Any) -> Refusal | Unknown | None:
    """A transactional id is used by transactional batches only."""
    name = request.transactional_id
    if name is None or rights.may(WRITE, TRANSACTIONAL_ID, name):
        return None
    if not _has_transactional_batch(request):
        return UNKNOWN
    return Refusal(Needed(WRITE, TRANSACTIONAL_ID, name))


def _has_transactional_batch(request: Any) -> bool:
    """Whether any batch is transactional. Source: Kafka's RequestUtils.hasTransactionalRecords."""
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is not None and len(records) >= HEADER_BYTES:
                header = read_header(records)
                if header.magic == CURRENT_MAGIC and header.attributes & TRANSACTIONAL_BIT:
                    return True
    return False


def _sync_group(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    """A request that does not name its protocol, as it must, is refused for that, whatever it may do."""
    if context.api_version >= SYNC_NAMES_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return None
    return _lacks(rights, Needed(READ, GROUP, request.group_id))


SYNC_NAMES_PROTOCOL = 5  # KIP-559


def _single_coordinator(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    if context.api_version >= FIRST_COORDINATORS_VERSION:
        return None
    needed = _coordinator(context, request, request.key)
    return None if isinstance(needed, Unknown) else _lacks(rights, needed)


FIRST_COORDINATORS_VERSION = 4

# Items


def named(operation: AclOperation, resource: AclResource, field: str = "") -> Callable[..., Needed | Unknown]:
    """Items with a name in this field, or that are names."""

    def needed(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
        return Needed(operation, resource, getattr(item, field) if field else item)

    return needed


def topic_by_id(operation: AclOperation, first_version: int, field: str = "name") -> Callable[..., Needed | Unknown]:
    """Topics by name, from this version on by id."""

    def needed(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
        if context.api_version < first_version:
            return Needed(operation, TOPIC, getattr(item, field))
        topic = context.services.topics.metadata.get_by_id(item.topic_id)
        return UNKNOWN if topic is None else Needed(operation, TOPIC, topic.name)

    return needed


def _coordinator(context: RequestContext, request: Any, key: str) -> Needed | Unknown:
    match request.key_type:
        case 0:
            return Needed(DESCRIBE, GROUP, key)
        case 1:
            return Needed(DESCRIBE, TRANSACTIONAL_ID, key)
        case 2:
            return on_cluster(CLUSTER_ACTION)
    return UNKNOWN


_KINDS_OF_CONFIGS: Final[Mapping[int, AclResource]] = {2: TOPIC, 4: CLUSTER, 8: CLUSTER, 16: CLUSTER, 32: GROUP}
"""The resource of a right, by the resource type of a request about configs."""


def configs_of(operation: AclOperation) -> Callable[..., Needed | Unknown]:
    def needed(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
        kind = _KINDS_OF_CONFIGS.get(item.resource_type)
        if kind is None:
            return UNKNOWN
        return Needed(operation, kind, CLUSTER_NAME if kind is CLUSTER else item.resource_name)

    return needed


def _config_key(item: Any) -> tuple[int, str]:
    return item.resource_type, item.resource_name


def _name(item: Any) -> str:
    name: str = item.name
    return name


def _itself(item: Any) -> Any:
    return item


def _deleted_name(context: RequestContext, request: Any, name: str) -> Needed | Unknown:
    """That a topic does not exist is said to those who may describe it, whether they may delete it or not."""
    services = context.services
    is_missing = services.topics.metadata.get(name) is None
    if is_missing and services.gate is not None and services.gate.rights_of(context).may(DESCRIBE, TOPIC, name):
        return UNKNOWN
    return Needed(DELETE, TOPIC, name)


def _deleted_topic(context: RequestContext, request: Any, item: Any) -> Needed | Unknown:
    if item.name is not None:
        return UNKNOWN if item.topic_id != ZERO_UUID else _deleted_name(context, request, item.name)
    topic = context.services.topics.metadata.get_by_id(item.topic_id)
    return UNKNOWN if topic is None else Needed(DELETE, TOPIC, topic.name)


def _not_deleted_topic(rights: Rights, context: RequestContext, item: Any, error: ErrorCode) -> DeletableTopicResult:
    """The name of a topic that is given by id is shown only to those who may describe the topic."""
    name = item.name
    if name is None:
        topic = context.services.topics.metadata.get_by_id(item.topic_id)
        if topic is not None and rights.may(DESCRIBE, TOPIC, topic.name):
            name = topic.name
    return DeletableTopicResult(name=name, topic_id=item.topic_id, error_code=error)


def _offsets_not_deleted(
    rights: Rights, context: RequestContext, item: Any, error: ErrorCode
) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        item.name, [OffsetDeleteResponsePartition(partition.partition_index, error) for partition in item.partitions]
    )


def _share_offsets_not_altered(
    rights: Rights, context: RequestContext, item: Any, error: ErrorCode
) -> AlterShareGroupOffsetsResponseTopic:
    return AlterShareGroupOffsetsResponseTopic(
        item.topic_name,
        ZERO_UUID,
        [
            AlterShareGroupOffsetsResponsePartition(partition.partition_index, error, MESSAGES[error])
            for partition in item.partitions
        ],
    )


def _share_offsets_not_deleted(
    rights: Rights, context: RequestContext, item: Any, error: ErrorCode
) -> DeleteShareGroupOffsetsResponseTopic:
    return DeleteShareGroupOffsetsResponseTopic(item.topic_name, ZERO_UUID, error, MESSAGES[error])


# Requests that are not just split


def _metadata(rights: Rights, context: RequestContext, request: Any) -> Part:
    """Topics by name or id; of all topics those that the client may not see are left out. A missing topic is created
    only with CREATE on it, or on the cluster.
    """
    asked = request.topics
    if asked is None or (not asked and context.api_version == 0):
        return Part(request, finish=_only_described_topics)
    metadata, settings = context.services.topics.metadata, context.services.settings
    creates = (
        request.allow_auto_topic_creation and settings.auto_create_topics_enable and not rights.may(*on_cluster(CREATE))
    )
    allowed, refused, lacking = [], [], []
    for topic in asked:
        name = topic.name
        if topic.topic_id != ZERO_UUID:
            known = metadata.get_by_id(topic.topic_id)
            if known is None or rights.may(DESCRIBE, TOPIC, known.name):
                allowed.append(topic)
                continue
            lacking.append(Needed(DESCRIBE, TOPIC, known.name))
            name = None if context.api_version >= FIRST_METADATA_VERSION_WITHOUT_NAMES else ""
        elif name is None:
            allowed.append(topic)
            continue
        elif not rights.may(DESCRIBE, TOPIC, name):
            lacking.append(Needed(DESCRIBE, TOPIC, name))
        elif creates and metadata.get(name) is None and not rights.may(CREATE, TOPIC, name):
            lacking.append(Needed(CREATE, TOPIC, name))
        else:
            allowed.append(topic)
            continue
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused.append(MetadataResponseTopic(error_code=error, name=name, topic_id=topic.topic_id))
    if not refused:
        return Part(request)
    part = Part(_with_topics(request, allowed), "topics", refused, lacking)
    # In version 0 a request for no topic is one for all.
    return part._replace(finish=_no_topics) if not allowed and context.api_version == 0 else part


FIRST_METADATA_VERSION_WITHOUT_NAMES = 12


def _describe_topic_partitions(rights: Rights, context: RequestContext, request: Any) -> Part:
    """Topics by name, in pages; where none is named, all that the client may see. The names of others are taken out
    before the page is made, so that a page does not end at one of them.
    """
    cursor, limit = request.cursor, max(1, min(request.response_partition_limit, MAXIMUM_PARTITIONS_PER_PAGE))
    first = "" if cursor is None else cursor.topic_name
    refused, lacking = [], []
    if request.topics:
        wanted = {topic.name for topic in request.topics}
        if cursor is not None and cursor.topic_name not in wanted:
            return Part(request)  # the handler refuses it
        allowed = sorted(name for name in wanted if name >= first and rights.may(DESCRIBE, TOPIC, name))
        for name in sorted(wanted.difference(allowed)):
            if name >= first:
                lacking.append(Needed(DESCRIBE, TOPIC, name))
                error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                refused.append(DescribeTopicPartitionsResponseTopic(error_code=error, name=name))
    else:
        allowed, count = [], 0
        for topic in context.services.topics.metadata.all():
            if topic.name >= first and rights.may(DESCRIBE, TOPIC, topic.name):
                allowed.append(topic.name)
                count += topic.partition_count
                if count > limit and len(allowed) > 1:
                    break  # one more than the page shows: where the next begins
    if not allowed:
        return Part(None, "topics", refused, lacking)
    changed = _with_topics(request, [TopicRequest(name) for name in allowed])
    if cursor is not None and cursor.topic_name not in allowed:
        changed.cursor = None
    return Part(changed, "topics", refused, lacking)


MAXIMUM_PARTITIONS_PER_PAGE = 2000


def _with_topics(request: Any, topics: list[Any]) -> Any:
    changed = type(request)(**{name: getattr(request, name) for name in type(request).__slots__})
    changed.topics = topics
    return changed


# What a client may not see of a response


def bits(rights: Rights, operations: Iterable[AclOperation], resource: AclResource, name: str) -> int:
    """The operations that the client may do, as bits."""
    return sum(1 << operation for operation in operations if rights.may(operation, resource, name))


def _cluster_bits(rights: Rights, response: Any) -> None:
    if response.cluster_authorized_operations != NOT_ASKED_FOR:
        may_describe = rights.may(*on_cluster(DESCRIBE))
        response.cluster_authorized_operations = (
            bits(rights, CLUSTER_OPERATIONS, CLUSTER, CLUSTER_NAME) if may_describe else 0
        )


def _finish_cluster(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    _cluster_bits(rights, response)
    yield


def _topic_bits(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    for topic in response.topics:
        if topic.topic_authorized_operations != NOT_ASKED_FOR and topic.name is not None:
            topic.topic_authorized_operations = bits(rights, TOPIC_OPERATIONS, TOPIC, topic.name)
            yield
    yield


def _finish_metadata(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    _cluster_bits(rights, response)
    yield from _topic_bits(rights, context, request, response)


def _only_described_topics(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    described = []
    for topic in response.topics:
        if rights.may(DESCRIBE, TOPIC, topic.name):
            described.append(topic)
        yield
    response.topics = described
    yield from _finish_metadata(rights, context, request, response)


def _no_topics(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    response.topics = []
    yield


def only(answered: str, resource: AclResource, field: str, *, everything: AclOperation | None = None) -> Finish:
    """Leave out what the client may not describe. everything: the operation on the cluster that shows all."""

    def finish(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
        if everything is not None and rights.may(*on_cluster(everything)):
            return
        shown = []
        for one in getattr(response, answered):
            if rights.may(DESCRIBE, resource, getattr(one, field)):
                shown.append(one)
            yield
        setattr(response, answered, shown)

    return finish


def _described_transactions(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    for transaction in response.transaction_states:
        transaction.topics = [topic for topic in transaction.topics if rights.may(DESCRIBE, TOPIC, topic.topic)]
        yield


def _group_bits(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    for group in response.groups:
        if group.authorized_operations != NOT_ASKED_FOR:
            group.authorized_operations = bits(rights, GROUP_OPERATIONS, GROUP, group.group_id)
        yield


def groups_without_hidden_topics(names_of: Callable[[Any], Iterable[str]]) -> Finish:
    """Of a group that has a topic which the client may not describe, only the id is shown."""

    def finish(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
        yield from _group_bits(rights, context, request, response)
        for position, group in enumerate(response.groups):
            if not all(rights.may(DESCRIBE, TOPIC, name) for name in set(names_of(group))):
                response.groups[position] = type(group)(
                    group_id=group.group_id,
                    error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    error_message=HIDDEN_TOPICS,
                )
            yield

    return finish


HIDDEN_TOPICS = "The group has described topic(s) that the client is not authorized to describe."


def _consumer_topics(group: Any) -> Iterator[str]:
    for member in group.members:
        for assignment in (member.assignment, member.target_assignment):
            for topic in assignment.topic_partitions:
                yield topic.topic_name


def _share_topics(group: Any) -> Iterator[str]:
    for member in group.members:
        for topic in member.assignment.topic_partitions:
            yield topic.topic_name


def _streams_topics(group: Any) -> Iterator[str]:
    for part in () if group.topology is None else group.topology.subtopologies or ():
        yield from part.source_topics
        yield from part.repartition_sink_topics
        for topic in (*part.repartition_source_topics, *part.state_changelog_topics):
            yield topic.name


def _fetched_offsets(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    """Offsets of topics that the client may not describe: an error where they are named, else left out."""
    if response.groups:
        are_named = {group.group_id: group.topics is not None for group in request.groups}
        for group in response.groups:
            group.topics = yield from _described_offsets(rights, group.topics, are_named[group.group_id])
    else:
        response.topics = yield from _described_offsets(rights, response.topics, request.topics is not None)


def _described_offsets(rights: Rights, topics: list[Any], are_named: bool) -> SlicedWork[list[Any]]:
    shown = []
    for topic in topics:
        yield
        # A topic without a name was given by an id that nobody has.
        if topic.name and not rights.may(DESCRIBE, TOPIC, topic.name):
            if not are_named:
                continue
            for partition in topic.partitions:
                partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                partition.committed_offset = partition.committed_leader_epoch = -1
                partition.metadata = ""
        shown.append(topic)
    return shown


def _share_offsets(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    are_named = {group.group_id: group.topics is not None for group in request.groups}
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for group in response.groups:
        shown = []
        for topic in group.topics:
            yield
            if not rights.may(DESCRIBE, TOPIC, topic.topic_name):
                if not are_named[group.group_id]:
                    continue
                topic.topic_id = ZERO_UUID
                topic.partitions = [
                    DescribeShareGroupOffsetsResponsePartition(
                        partition.partition_index, start_offset=-1, error_code=error, error_message=MESSAGES[error]
                    )
                    for partition in topic.partitions
                ]
            shown.append(topic)
        group.topics = shown


def _created_topics(rights: Rights, context: RequestContext, request: Any, response: Any) -> SlicedWork[None]:
    """The configs of a new topic are shown only with the right to describe them (KIP-525)."""
    for topic in response.topics:
        if topic.error_code == ErrorCode.NONE and not rights.may(DESCRIBE_CONFIGS, TOPIC, topic.name):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []
        yield


# The table

_TOPICS = "topics"

NEEDED_RIGHTS: Final[Mapping[int, Row | None]] = {
    ApiKey.PRODUCE: Row(_produce, (Items("topic_data", "responses", topic_by_id(WRITE, 13)),)),
    ApiKey.FETCH: None,  # READ on each topic of the session, or CLUSTER_ACTION: `broker.handlers.fetch` asks
    ApiKey.LIST_OFFSETS: Row(items=(Items(_TOPICS, _TOPICS, named(DESCRIBE, TOPIC, "name")),)),
    ApiKey.METADATA: Row(split=_metadata, finish=_finish_metadata),
    ApiKey.OFFSET_COMMIT: Row(
        whole(READ, GROUP, "group_id"), (Items(_TOPICS, _TOPICS, topic_by_id(READ, 10), are_first=True),)
    ),
    ApiKey.OFFSET_FETCH: Row(
        lambda rights, context, request: (
            _lacks(rights, Needed(DESCRIBE, GROUP, request.group_id)) if context.api_version < 8 else None
        ),
        (Items("groups", "groups", named(DESCRIBE, GROUP, "group_id"), in_order=True, versions=(8, 99)),),
        finish=_fetched_offsets,
    ),
    ApiKey.FIND_COORDINATOR: Row(
        _single_coordinator,
        (
            Items(
                "coordinator_keys",
                "coordinators",
                _coordinator,
                in_order=True,
                versions=(FIRST_COORDINATORS_VERSION, 99),
            ),
        ),
    ),
    ApiKey.JOIN_GROUP: Row(whole(READ, GROUP, "group_id")),
    ApiKey.HEARTBEAT: Row(whole(READ, GROUP, "group_id")),
    ApiKey.LEAVE_GROUP: Row(whole(READ, GROUP, "group_id")),
    ApiKey.SYNC_GROUP: Row(_sync_group),
    ApiKey.DESCRIBE_GROUPS: Row(
        items=(Items("groups", "groups", named(DESCRIBE, GROUP), are_first=True),), finish=_group_bits
    ),
    ApiKey.LIST_GROUPS: Row(finish=only("groups", GROUP, "group_id", everything=DESCRIBE)),
    ApiKey.SASL_HANDSHAKE: None,
    ApiKey.API_VERSIONS: None,
    ApiKey.CREATE_TOPICS: Row(
        items=(
            Items(
                _TOPICS,
                _TOPICS,
                named(CREATE, TOPIC, "name"),
                instead=CREATE,
                message="Authorization failed.",
                key_of=_name,
            ),
        ),
        finish=_created_topics,
    ),
    ApiKey.DELETE_TOPICS: Row(
        items=(
            Items("topic_names", "responses", _deleted_name, instead=DELETE, key_of=_itself, versions=(0, 5)),
            Items(
                _TOPICS,
                "responses",
                _deleted_topic,
                instead=DELETE,
                refused=_not_deleted_topic,
                key_of=lambda item: (item.name, item.topic_id),
                versions=(6, 99),
            ),
        )
    ),
    ApiKey.DELETE_RECORDS: Row(items=(Items(_TOPICS, _TOPICS, named(DELETE, TOPIC, "name")),)),
    ApiKey.INIT_PRODUCER_ID: Row(_init_producer_id),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Row(
        items=(Items(_TOPICS, _TOPICS, named(DESCRIBE, TOPIC, "topic"), instead=CLUSTER_ACTION),)
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Row(_add_partitions),
    ApiKey.ADD_OFFSETS_TO_TXN: Row(
        both(whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id"))
    ),
    ApiKey.END_TXN: Row(whole(WRITE, TRANSACTIONAL_ID, "transactional_id")),
    ApiKey.WRITE_TXN_MARKERS: Row(cluster(ALTER, CLUSTER_ACTION)),
    ApiKey.TXN_OFFSET_COMMIT: Row(
        both(whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id")),
        (Items(_TOPICS, _TOPICS, named(READ, TOPIC, "name"), are_first=True),),
    ),
    ApiKey.DESCRIBE_ACLS: Row(cluster(DESCRIBE)),
    ApiKey.CREATE_ACLS: Row(cluster(ALTER)),
    ApiKey.DELETE_ACLS: Row(cluster(ALTER)),
    ApiKey.DESCRIBE_CONFIGS: Row(items=(Items("resources", "results", configs_of(DESCRIBE_CONFIGS)),)),
    ApiKey.ALTER_CONFIGS: Row(items=(Items("resources", "responses", configs_of(ALTER_CONFIGS), key_of=_config_key),)),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Row(cluster(ALTER)),
    ApiKey.DESCRIBE_LOG_DIRS: Row(cluster(DESCRIBE)),
    ApiKey.SASL_AUTHENTICATE: None,
    ApiKey.CREATE_PARTITIONS: Row(items=(Items(_TOPICS, "results", named(ALTER, TOPIC, "name"), key_of=_name),)),
    ApiKey.CREATE_DELEGATION_TOKEN: None,  # CREATE_TOKENS for another owner: `broker.handlers.delegation_tokens`
    # There are no tokens: the handlers refuse these to everybody.
    ApiKey.RENEW_DELEGATION_TOKEN: None,
    ApiKey.EXPIRE_DELEGATION_TOKEN: None,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: None,
    ApiKey.DELETE_GROUPS: Row(items=(Items("groups_names", "results", named(DELETE, GROUP)),)),
    ApiKey.ELECT_LEADERS: Row(cluster(ALTER)),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Row(
        items=(Items("resources", "responses", configs_of(ALTER_CONFIGS), key_of=_config_key),)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row(cluster(ALTER)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Row(cluster(DESCRIBE)),
    ApiKey.OFFSET_DELETE: Row(
        whole(DELETE, GROUP, "group_id"),
        (
            Items(
                _TOPICS,
                _TOPICS,
                named(READ, TOPIC, "name"),
                refused=_offsets_not_deleted,
                are_first=True,
                asks_always=True,
            ),
        ),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Row(cluster(DESCRIBE_CONFIGS)),
    ApiKey.ALTER_CLIENT_QUOTAS: Row(cluster(ALTER_CONFIGS)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Row(cluster(DESCRIBE)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Row(cluster(ALTER)),
    ApiKey.DESCRIBE_QUORUM: Row(cluster(DESCRIBE)),
    ApiKey.UPDATE_FEATURES: Row(cluster(ALTER)),
    ApiKey.DESCRIBE_CLUSTER: Row(finish=_finish_cluster),
    ApiKey.DESCRIBE_PRODUCERS: Row(items=(Items(_TOPICS, _TOPICS, named(READ, TOPIC, "name"), in_order=True),)),
    ApiKey.UNREGISTER_BROKER: Row(cluster(ALTER)),
    ApiKey.DESCRIBE_TRANSACTIONS: Row(
        items=(Items("transactional_ids", "transaction_states", named(DESCRIBE, TRANSACTIONAL_ID), in_order=True),),
        finish=_described_transactions,
    ),
    ApiKey.LIST_TRANSACTIONS: Row(finish=only("transaction_states", TRANSACTIONAL_ID, "transactional_id")),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Row(both(whole(READ, GROUP, "group_id"), described_topics(_subscribed))),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Row(
        items=(Items("group_ids", "groups", named(DESCRIBE, GROUP), are_first=True),),
        finish=groups_without_hidden_topics(_consumer_topics),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: Row(cluster(DESCRIBE_CONFIGS)),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row(split=_describe_topic_partitions, finish=_topic_bits),
    ApiKey.SHARE_GROUP_HEARTBEAT: Row(both(whole(READ, GROUP, "group_id"), described_topics(_subscribed))),
    ApiKey.SHARE_GROUP_DESCRIBE: Row(
        items=(Items("group_ids", "groups", named(DESCRIBE, GROUP), are_first=True),),
        finish=groups_without_hidden_topics(_share_topics),
    ),
    ApiKey.SHARE_FETCH: Row(whole(READ, GROUP, "group_id")),  # and READ on each topic: `broker.handlers.share_fetch`
    ApiKey.SHARE_ACKNOWLEDGE: Row(whole(READ, GROUP, "group_id")),  # the same
    ApiKey.ADD_RAFT_VOTER: Row(cluster(ALTER)),
    ApiKey.REMOVE_RAFT_VOTER: Row(cluster(ALTER)),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: Row(cluster(CLUSTER_ACTION)),
    ApiKey.READ_SHARE_GROUP_STATE: Row(cluster(CLUSTER_ACTION)),
    ApiKey.WRITE_SHARE_GROUP_STATE: Row(cluster(CLUSTER_ACTION)),
    ApiKey.DELETE_SHARE_GROUP_STATE: Row(cluster(CLUSTER_ACTION)),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: Row(cluster(CLUSTER_ACTION)),
    ApiKey.STREAMS_GROUP_HEARTBEAT: Row(
        both(whole(READ, GROUP, "group_id"), described_topics(_topics_of_topology))
    ),  # and CREATE for the internal topics that are missing: `broker.handlers.streams_groups`
    ApiKey.STREAMS_GROUP_DESCRIBE: Row(
        items=(Items("group_ids", "groups", named(DESCRIBE, GROUP), are_first=True),),
        finish=groups_without_hidden_topics(_streams_topics),
    ),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Row(
        items=(Items("groups", "groups", named(DESCRIBE, GROUP, "group_id"), in_order=True),), finish=_share_offsets
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Row(
        whole(READ, GROUP, "group_id"),
        (
            Items(
                _TOPICS,
                "responses",
                named(READ, TOPIC, "topic_name"),
                refused=_share_offsets_not_altered,
                asks_always=True,
            ),
        ),
    ),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Row(
        whole(DELETE, GROUP, "group_id"),
        (
            Items(
                _TOPICS,
                "responses",
                named(READ, TOPIC, "topic_name"),
                refused=_share_offsets_not_deleted,
                asks_always=True,
            ),
        ),
    ),
}
"""By API key; None for an API that needs nothing, or that asks itself."""
