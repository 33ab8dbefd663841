"""Produce: appending of batches. Each partition's batch goes from the frame into its log in one step; the reply waits
until the batch is durable.

Source: KIP-98 (idempotence, transactions), KIP-467 (record errors), KIP-516 (topic ids), KIP-890 (verification,
implicit add); Kafka's KafkaApis.handleProduceRequest, ProduceRequest.validateRecords and
ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from fencepost.broker.kernel import eager
from fencepost.broker.produce.produce_append import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    APPENDED_AT_ONCE_COUNT,
    PartitionAppend,
    ProduceAnswer,
    ProduceAppend,
    ProduceRefusal,
    produce_failed,
)
from fencepost.broker.produce.produce_batches import find_log_again, find_targets, read_batch, unreadable
from fencepost.broker.requests.api import (
    CloseConnection,
    RequestContext,
    SlicedResponse,
    UsualAnswer,
    api,
)
from fencepost.broker.requests.declared_errors import codes
from fencepost.broker.requests.declared_rights import UNKNOWN, Items, Needed, NeededRights, Refusal, Unknown
from fencepost.broker.requests.routes import Repeats
from fencepost.broker.rights.needed_rights import TRANSACTIONAL_ID, WRITE, topic_by_id
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.produce import (
    ProduceRequest,
    ProduceResponse,
)
from fencepost.protocol.record_batch import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    read_header,
)

if TYPE_CHECKING:
    from fencepost.broker.kernel.topic_partition import TopicPartition
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.security.authorizer import Rights

_SERVED_ACKS = frozenset({ACKS_ALL, ACKS_LEADER, ACKS_NONE})

SEVERAL_PRODUCERS_MESSAGE = "Transactional records contained more than one producer ID"


def _rights_to_produce(rights: Rights, context: RequestContext, request: Any) -> Refusal | Unknown | None:
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


@api(
    ProduceRequest,
    ProduceResponse,
    versions="3-13",
    advertised_minimum=0,
    rights=NeededRights(_rights_to_produce, (Items("topic_data", "responses", topic_by_id(WRITE, 13)),)),
    needs_lease=False,  # answered when the batches are committed, or from batches that were
    errors=codes(
        "CORRUPT_MESSAGE UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER REQUEST_TIMED_OUT "
        "MESSAGE_TOO_LARGE INVALID_TOPIC_EXCEPTION RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS "
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS TOPIC_AUTHORIZATION_FAILED "
        "INVALID_TIMESTAMP INVALID_REQUEST OUT_OF_ORDER_SEQUENCE_NUMBER INVALID_PRODUCER_EPOCH "
        "INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING CONCURRENT_TRANSACTIONS "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED OPERATION_NOT_ATTEMPTED KAFKA_STORAGE_ERROR "
        "UNKNOWN_PRODUCER_ID INVALID_RECORD UNKNOWN_TOPIC_ID TRANSACTION_ABORTABLE"
    ),
    failed=produce_failed,
    repeats=Repeats(
        request=("topic_data[].partition_data[].records",),
        answer=(
            "responses[].partition_responses[].base_offset",
            "responses[].partition_responses[].log_append_time_ms",
            "responses[].partition_responses[].log_start_offset",
        ),
    ),
)
def handle_produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceAnswer | Awaitable[ProduceAnswer | SlicedResponse]:
    """Append each partition's batch, and answer when all of them are durable (`acks` 1 and -1), or never (0).

    Only a batch that opens a transaction on its partition waits before the append, for verification by the transaction
    coordinator; waiting requests of one producer keep their order. Versions 0 to 2 are advertised but
    refused: librdkafka takes a higher minimum for a broker without compression (KAFKA-18659).
    Refuses as a whole: CORRUPT_MESSAGE (records of any partition that do not start like a batch),
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED (a transactional batch but no transactional id), INVALID_PRODUCER_ID_MAPPING
    (two producers in one request). With INVALID_REQUIRED_ACKS it refuses every batch that
    could be appended. Raises CloseConnection for an error with acks=0. `timeout_ms` is not used if the disk is this
    machine's: the write finishes, or fails with KAFKA_STORAGE_ERROR. In a cluster of several machines the answer is
    REQUEST_TIMED_OUT when it is over; the batches stay appended. NOT_LEADER_OR_FOLLOWER for a partition that moves away
    waits until its next leader is known.
    """
    version = context.api_version
    produce = ProduceAppend(context, request)
    answers, writes = produce.answers, produce.writes
    transactional: list[PartitionAppend] = []
    moving: tuple[TopicPartition, ...] = ()
    log: PartitionLog | ErrorCode | None
    for target in context.prepared(find_targets, request):
        requested, _, log, _ = target
        if log is None or log.offline_reason is not None:
            log = find_log_again(context.services.topics, target)
            if isinstance(log, ErrorCode):
                answers.append(produce.refused(requested.index, ProduceRefusal(log)))
                if target.topic_partition in context.services.topics.moves_under_way:
                    moving += (target.topic_partition,)
                continue
        records = requested.records or b""
        batch = read_batch(records, version)
        if isinstance(batch, ProduceRefusal):
            answers.append(produce.refused(requested.index, batch))
            continue
        write = PartitionAppend(log, memoryview(records), batch)
        answers.append(write)
        (transactional if batch.attributes & TRANSACTIONAL_BIT else writes).append(write)
    if transactional or produce.first_error is not NO_ERROR:
        refusal = _refusal_as_a_whole(request, transactional, produce.first_error)
        if refusal is not None:
            if request.acks == ACKS_NONE:
                raise CloseConnection(f"Produce with acks=0 was refused: {refusal.error.name}")
            return produce_failed(request, refusal.error, version, message=refusal.message)
    if request.acks not in _SERVED_ACKS:
        for write in (*writes, *transactional):
            produce.refuse(write, ErrorCode.INVALID_REQUIRED_ACKS)
        return produce.answer()
    started = produce.start(transactional)
    if moving and request.acks != ACKS_NONE:
        started = produce.answer_after_moves(started, moving)
    if isinstance(started, eager.Finished):
        return started.result
    context.blocks_connection = produce.has_large_batches
    return _answer_in_slices(started) if len(writes) > APPENDED_AT_ONCE_COUNT else started


async def _answer_in_slices(started: Awaitable[ProduceAnswer]) -> SlicedResponse | None:
    response = await started
    if isinstance(response, UsualAnswer):
        response = response.build()
    return None if response is None else SlicedResponse(response)


_FIRST_FIELDS = struct.Struct(">qiib")
"""The base offset, the length, the leader epoch, and the format."""


def _refusal_as_a_whole(
    request: ProduceRequest, transactional: Sequence[PartitionAppend], first_error: ErrorCode
) -> ProduceRefusal | None:
    """The error of the whole request; None if there is none.

    transactional: the appends of transactional batches. first_error: of a batch that does not reach its log.
    """
    if first_error is not NO_ERROR:
        refusal = _refusal_of_any_batch(request)  # batches that do not reach a log count, too
        if refusal is not None:
            return refusal
    if transactional:
        if request.transactional_id is None:
            return ProduceRefusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        if not _are_of_one_producer(transactional):
            return ProduceRefusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS_MESSAGE)
    return None


def _refusal_of_any_batch(request: ProduceRequest) -> ProduceRefusal | None:
    """The error that Kafka finds in its search for a transactional batch: one without a transactional id, or, before
    any is found, records that are no batch of any format.

    Source: Kafka's RequestUtils.hasTransactionalRecords and ByteBufferLogInputStream.nextBatchSize.
    """
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None or len(records) < LENGTH_OVERHEAD_BYTES:
                continue
            _, length, _, magic = _FIRST_FIELDS.unpack(bytes(records[: _FIRST_FIELDS.size]).ljust(_FIRST_FIELDS.size))
            refusal = unreadable(length, magic if len(records) >= _FIRST_FIELDS.size else CURRENT_MAGIC)
            if refusal is not None:
                return refusal
            is_whole = HEADER_BYTES <= length + LENGTH_OVERHEAD_BYTES <= len(records)
            if is_whole and magic == CURRENT_MAGIC and read_header(records).attributes & TRANSACTIONAL_BIT:
                if request.transactional_id is None:
                    return ProduceRefusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                return None
    return None


def _are_of_one_producer(writes: Sequence[PartitionAppend]) -> bool:
    """Whether all batches have the same producer id and epoch."""
    if len(writes) == 1:
        return True
    producers = {(header.producer_id, header.producer_epoch) for header in [write.header for write in writes]}
    return len(producers) == 1
