"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: the requests of transactional producers to their
coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.printable import cut
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.requests.administrative_changes import (
    LONGEST_REASON_CHARACTERS,
    AdministrativeChange,
    note_changes,
)
from fencepost.broker.requests.api import (
    FEWEST_WRITTEN_IN_SLICES,
    RequestContext,
    Services,
    SlicedResponse,
    UsualAnswer,
    api,
    written_in_slices,
)
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, codes
from fencepost.broker.requests.declared_rights import Needed, NeededRights, Refusal, on_cluster
from fencepost.broker.requests.routes import Repeats
from fencepost.broker.rights.needed_rights import (
    CLUSTER_ACTION,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    both,
    lacks,
    whole,
)
from fencepost.broker.security.acls import AclOperation
from fencepost.broker.transaction.metadata import Producer
from fencepost.broker.transaction.service import TransactionService
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.security.authorizer import Rights


# From these versions on clients know PRODUCER_FENCED; before, they get INVALID_PRODUCER_EPOCH (KIP-588).
INIT_PRODUCER_ID_KNOWS_PRODUCER_FENCED = 4
OTHERS_KNOW_PRODUCER_FENCED = 2

FIRST_BATCH_VERSION = 4  # of AddPartitionsToTxn: many transactions in one request, sent by brokers
END_TXN_TRANSACTION_VERSION_2 = 5  # from this version on EndTxn raises the epoch and returns the next one (KIP-890)


def _known_to_client(error: ErrorCode, version: int, *, knows_producer_fenced: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED and version < knows_producer_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _note_reason(context: RequestContext, request: Any, *, outcome: str, pair: Producer) -> None:
    """Write an administrator's decision to the audit log: a request with a reason is none of a producer's."""
    reason = cut(request.reason, LONGEST_REASON_CHARACTERS)
    details = {"outcome": outcome, **pair._asdict(), "reason": reason}
    change = AdministrativeChange("WRITE", "TRANSACTIONAL_ID", request.transactional_id, details)
    note_changes(lambda *_: [change], context, request, None)


# InitProducerId


def init_producer_id_failed(request: InitProducerIdRequest, error: ErrorCode, version: int) -> InitProducerIdResponse:
    error = _known_to_client(error, version, knows_producer_fenced=INIT_PRODUCER_ID_KNOWS_PRODUCER_FENCED)
    return InitProducerIdResponse(error_code=error, producer_id=-1, producer_epoch=-1)


FIRST_ADD_PARTITIONS_VERSION_OF_BROKERS = 4


def _rights_to_init_producer_id(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    name = request.transactional_id
    if name is None:
        if rights.may_on_any(WRITE, TOPIC):
            return None
        return lacks(rights, on_cluster(AclOperation.IDEMPOTENT_WRITE))
    needed = [Needed(WRITE, TRANSACTIONAL_ID, name)]
    if request.enable2_pc or context.services.transactions.is_two_phase(name):
        needed.append(Needed(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, name))
    return lacks(rights, *needed)


@api(
    InitProducerIdRequest,
    InitProducerIdResponse,
    versions="0-6",
    unstable_from=6,  # KIP-939, not finished in Kafka either
    rights=NeededRights(_rights_to_init_producer_id),
    errors=COORDINATOR_AWAY
    | codes(
        "CLUSTER_AUTHORIZATION_FAILED UNSUPPORTED_VERSION INVALID_REQUEST INVALID_PRODUCER_EPOCH "
        "INVALID_TRANSACTION_TIMEOUT CONCURRENT_TRANSACTIONS TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
        "PRODUCER_FENCED"
    ),
    failed=init_producer_id_failed,
)
async def handle_init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Give a producer its id and epoch; with a transactional id, end or keep the transaction of an earlier session."""
    reply = await context.services.transactions.init_producer_id(
        request.transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        two_phase_commit=request.enable2_pc,
        keep_prepared_transaction=request.keep_prepared_txn,
        guard=request.guard,
        forced=request.forced,
    )
    if reply.error is not ErrorCode.NONE:
        return init_producer_id_failed(request, reply.error, context.api_version)
    if request.reason is not None:
        _note_reason(context, request, outcome="fenced", pair=Producer(reply.producer_id, reply.producer_epoch))
    response = InitProducerIdResponse(producer_id=reply.producer_id, producer_epoch=reply.producer_epoch)
    if reply.ongoing is not None:
        response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch = reply.ongoing
    return response


# AddPartitionsToTxn


def add_partitions_to_txn_failed(
    request: AddPartitionsToTxnRequest, error: ErrorCode, version: int
) -> AddPartitionsToTxnResponse:
    if version >= FIRST_BATCH_VERSION:
        return AddPartitionsToTxnResponse(error_code=error)
    error = _known_to_client(error, version, knows_producer_fenced=OTHERS_KNOW_PRODUCER_FENCED)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_topic_results(request.v3_and_below_topics, lambda _: error)
    )


def _rights_to_add_partitions(rights: Rights, context: RequestContext, request: Any) -> Refusal | None:
    """Up to version 3 a client adds its partitions, all or none; from version 4 on brokers send the request."""
    if context.api_version >= FIRST_ADD_PARTITIONS_VERSION_OF_BROKERS:
        return lacks(rights, on_cluster(CLUSTER_ACTION))
    refusal = lacks(rights, Needed(WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id))
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


@api(
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    versions="0-5",
    rights=NeededRights(_rights_to_add_partitions),
    errors=COORDINATOR_AWAY
    | codes(
        "UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED CLUSTER_AUTHORIZATION_FAILED "
        "INVALID_REQUEST INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING "
        "CONCURRENT_TRANSACTIONS TRANSACTIONAL_ID_AUTHORIZATION_FAILED OPERATION_NOT_ATTEMPTED "
        "PRODUCER_FENCED TRANSACTION_ABORTABLE"
    ),
    failed=add_partitions_to_txn_failed,
    repeats=Repeats(request=(), answer=()),
)
async def handle_add_partitions_to_txn(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | UsualAnswer | SlicedResponse:
    """Add partitions to a transaction. Up to version 3 a client does so for its own, from version 4 on a partition's
    leader for many.
    """
    prepared = context.prepared(_prepare_partitions, request)
    if prepared.partition_count >= FEWEST_WRITTEN_IN_SLICES:
        # Reading so large a request took a whole step. The next request of its connection may end the transaction.
        context.blocks_connection = True
        await asyncio.sleep(0)
        prepared = context.prepared(_prepare_partitions, request)  # topics may be gone
    services = context.services
    if context.api_version >= FIRST_BATCH_VERSION:
        results = await asyncio.gather(
            *(
                _add_or_verify(services.transactions, services.topics, transaction)
                for transaction in request.transactions
            )
        )
        return written_in_slices(
            AddPartitionsToTxnResponse(results_by_transaction=list(results)), prepared.partition_count
        )
    if prepared.errors:
        refused = _not_attempted(request.v3_and_below_topics, prepared.errors)
        return written_in_slices(
            AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused), prepared.partition_count
        )
    error = await services.transactions.add_partitions(
        request.v3_and_below_transactional_id, prepared.producer, prepared.partitions, version=TransactionVersion.V1
    )
    answer = partial(add_partitions_to_txn_failed, request, error, context.api_version)
    if error is NO_ERROR and prepared.partition_count < FEWEST_WRITTEN_IN_SLICES:
        return UsualAnswer((), answer)
    return written_in_slices(answer(), prepared.partition_count)


class _PreparedPartitions(NamedTuple):
    """Values derived from the constant fields of an AddPartitionsToTxn of a client.

    partition_count: partitions of a broker's request included.
    """

    partition_count: int
    producer: Producer
    partitions: list[TopicPartition]
    errors: dict[TopicPartition, ErrorCode]


def _prepare_partitions(services: Services, request: AddPartitionsToTxnRequest, _version: int) -> _PreparedPartitions:
    topics = request.v3_and_below_topics
    count = sum([len(topic.partitions) for topic in topics])
    count += sum([len(topic.partitions) for transaction in request.transactions for topic in transaction.topics])
    producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    return _PreparedPartitions(count, producer, partitions_of(topics), unwritable_partitions(services.topics, topics))


async def _add_or_verify(
    transactions: TransactionService, known_topics: Topics, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    transactional_id, topics = transaction.transactional_id, transaction.topics
    producer = Producer(transaction.producer_id, transaction.producer_epoch)
    partitions = partitions_of(topics)
    errors: Mapping[TopicPartition, ErrorCode] = _missing_partitions(known_topics, topics)
    if errors:
        return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=_not_attempted(topics, errors))
    if transaction.verify_only:
        errors = await transactions.verify_partitions(transactional_id, producer, partitions)
    else:
        error = await transactions.add_partitions(transactional_id, producer, partitions, version=TransactionVersion.V2)
        errors = dict.fromkeys(partitions, error)
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id, topic_results=_topic_results(topics, errors.__getitem__)
    )


def partitions_of(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def unwritable_partitions(
    known_topics: Topics, topics: Sequence[AddPartitionsToTxnTopic]
) -> dict[TopicPartition, ErrorCode]:
    """The partitions that a client may not write to, with the error of each."""
    errors = _missing_partitions(known_topics, topics)
    for topic in topics:
        if topic.name in INTERNAL_TOPICS:
            # Clients never write to internal topics; their own offsets join a transaction through AddOffsetsToTxn.
            errors |= dict.fromkeys(partitions_of([topic]), ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return errors


def _missing_partitions(
    known_topics: Topics, topics: Sequence[AddPartitionsToTxnTopic]
) -> dict[TopicPartition, ErrorCode]:
    missing: dict[TopicPartition, ErrorCode] = {}
    for topic in topics:
        metadata = known_topics.metadata.get(topic.name)
        partition_count = 0 if metadata is None else metadata.partition_count
        for partition in topic.partitions:
            if not 0 <= partition < partition_count:
                missing[TopicPartition(topic.name, partition)] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return missing


def _not_attempted(
    topics: Sequence[AddPartitionsToTxnTopic], errors: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    """Refuse all partitions if one is refused: the valid ones get OPERATION_NOT_ATTEMPTED."""
    named = [topic for topic in topics if topic.partitions]
    return _topic_results(named, lambda partition: errors.get(partition, ErrorCode.OPERATION_NOT_ATTEMPTED))


def _topic_results(
    topics: Sequence[AddPartitionsToTxnTopic], error_of: Callable[[TopicPartition], ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=partition,
                    partition_error_code=error_of(TopicPartition(topic.name, partition)),
                )
                for partition in topic.partitions
            ],
        )
        for topic in topics
    ]


# AddOffsetsToTxn


def add_offsets_to_txn_failed(
    request: AddOffsetsToTxnRequest, error: ErrorCode, version: int
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(
        error_code=_known_to_client(error, version, knows_producer_fenced=OTHERS_KNOW_PRODUCER_FENCED)
    )


@api(
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    versions="0-4",
    rights=NeededRights(both(whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id"))),
    errors=COORDINATOR_AWAY
    | codes(
        "GROUP_AUTHORIZATION_FAILED INVALID_REQUEST INVALID_PRODUCER_EPOCH INVALID_TXN_STATE "
        "INVALID_PRODUCER_ID_MAPPING CONCURRENT_TRANSACTIONS TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
        "PRODUCER_FENCED"
    ),
    failed=add_offsets_to_txn_failed,
)
async def handle_add_offsets_to_txn(
    context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add a consumer group's offsets to a transaction; TxnOffsetCommit commits them afterwards."""
    error = await context.services.transactions.add_offsets(
        request.transactional_id, Producer(request.producer_id, request.producer_epoch), request.group_id
    )
    return add_offsets_to_txn_failed(request, error, context.api_version)


# EndTxn


def end_txn_failed(request: EndTxnRequest, error: ErrorCode, version: int) -> EndTxnResponse:
    return EndTxnResponse(
        error_code=_known_to_client(error, version, knows_producer_fenced=OTHERS_KNOW_PRODUCER_FENCED)
    )


@api(
    EndTxnRequest,
    EndTxnResponse,
    versions="0-5",
    rights=NeededRights(whole(WRITE, TRANSACTIONAL_ID, "transactional_id")),
    errors=COORDINATOR_AWAY
    | codes(
        "INVALID_REQUEST INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING "
        "CONCURRENT_TRANSACTIONS TRANSACTIONAL_ID_AUTHORIZATION_FAILED PRODUCER_FENCED"
    ),
    failed=end_txn_failed,
    repeats=Repeats(request=("producer_epoch",), answer=("producer_id", "producer_epoch")),
)
async def handle_end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse | UsualAnswer:
    """Commit or abort a producer's transaction; success means that the decision is durable."""
    reply = await context.services.transactions.end_transaction(
        request.transactional_id,
        Producer(request.producer_id, request.producer_epoch),
        committed=request.committed,
        version=(
            TransactionVersion.V2 if context.api_version >= END_TXN_TRANSACTION_VERSION_2 else TransactionVersion.V1
        ),
    )
    if reply.error is not NO_ERROR:
        return end_txn_failed(request, reply.error, context.api_version)
    if request.reason is not None:
        pair = Producer(request.producer_id, request.producer_epoch)
        _note_reason(context, request, outcome="committed" if request.committed else "aborted", pair=pair)
    values = reply.producer_id, reply.producer_epoch
    return UsualAnswer(values, lambda: EndTxnResponse(producer_id=values[0], producer_epoch=values[1]))
