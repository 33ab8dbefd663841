"""Produce: each partition's batch goes from the frame into the log in one step; the reply leaves when the batch is on
disk.

Source: KIP-98 (idempotence, transactions), KIP-467 (record errors), KIP-516 (topic ids), KIP-890 (verification,
implicit add); Kafka's KafkaApis.handleProduceRequest, ProduceRequest.validateRecords and
ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from broker import eager
from broker.disk import StorageError
from broker.handlers.api import CloseConnection, RequestContext, api
from broker.handlers.produce_verification import (
    FIRST_VERSION_OF_TRANSACTION_VERSION_2,
    NOT_CONFIRMED,
    begin_turn,
    verify,
)
from broker.log.partition_log import AppendResult, PartitionLog
from broker.topic_partition import INTERNAL_TOPICS, TopicPartition
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.record_batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from protocol.schema import Buffer, DecodeError

if TYPE_CHECKING:
    from broker.log.verification import VerificationGuard
    from broker.topics import Topics

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
_SERVED_ACKS = frozenset({ACKS_ALL, ACKS_LEADER, ACKS_NONE})
SMALLEST_BATCH_LENGTH = 14  # of the oldest format

_ANSWERED_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals of a log that say nothing about it. Source: Kafka's ReplicaManager.appendRecordsToLeader."""

SEVERAL_PRODUCERS = "Transactional records contained more than one producer ID"


def produce_failed(
    request: ProduceRequest, error: ErrorCode, version: int, *, message: str | None = None
) -> ProduceResponse:
    """Every partition of the request fails with the same error."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[refused(partition.index, error, message) for partition in topic.partition_data],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )


def refused(partition: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    """The answer for a batch that no log has taken."""
    return PartitionProduceResponse(
        index=partition,
        error_code=error,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[],
        error_message=message,
    )


@api(ProduceRequest, ProduceResponse, failed=produce_failed)
def handle_produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
    """Append each partition's batch, and answer when all of it is on disk (`acks` 1 and -1), or never (0).

    Only a batch that opens a transaction on its partition waits, for the transaction coordinator to confirm it, before
    it is appended; requests of one producer that wait like that keep their order. Versions 0 to 2 are advertised but
    refused: librdkafka takes a higher minimum for a broker without compression (KAFKA-18659).
    Refuses as a whole: CORRUPT_MESSAGE (what cannot be the beginning of a batch, for any partition),
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED (a transactional batch but no transactional id), INVALID_PRODUCER_ID_MAPPING
    (two producers in one request). With INVALID_REQUIRED_ACKS it refuses every batch that
    could be appended. Raises CloseConnection for an error with acks=0. `timeout_ms` is not used: the disk finishes, or
    fails, and then the answer is KAFKA_STORAGE_ERROR.
    """
    production = _Production(context, request)
    refusal = production.read_request()
    if refusal is not None:
        if request.acks == ACKS_NONE:
            raise CloseConnection(f"Produce with acks=0 was refused: {refusal.error.name}")
        return produce_failed(request, refusal.error, context.api_version, message=refusal.message)
    if request.acks not in _SERVED_ACKS:
        return production.refuse_writes(ErrorCode.INVALID_REQUIRED_ACKS)
    unverified = production.begin_verification()
    production.append()
    if unverified:
        return production.verify_in_order(unverified)
    return production.answer()


class Refusal(NamedTuple):
    """Of a batch, or of the request as a whole."""

    error: ErrorCode
    message: str | None = None


_FIRST_FIELDS = struct.Struct(">qiib")
"""The base offset, the length, the leader epoch, and the format."""


def _refusal_as_a_whole(request: ProduceRequest) -> Refusal | None:
    """What Kafka finds as it looks for a transactional batch: one without a transactional id, or, before it has found
    any, one that is no batch of any format.

    Source: Kafka's RequestUtils.hasTransactionalRecords and ByteBufferLogInputStream.nextBatchSize.
    """
    for topic in request.topic_data:
        for partition in topic.partition_data:
            records = partition.records
            if records is None or len(records) < LENGTH_OVERHEAD_BYTES:
                continue
            _, length, _, magic = _FIRST_FIELDS.unpack(bytes(records[: _FIRST_FIELDS.size]).ljust(_FIRST_FIELDS.size))
            refusal = _unreadable(length, magic if len(records) >= _FIRST_FIELDS.size else CURRENT_MAGIC)
            if refusal is not None:
                return refusal
            is_whole = HEADER_BYTES <= length + LENGTH_OVERHEAD_BYTES <= len(records)
            if is_whole and magic == CURRENT_MAGIC and read_header(records).attributes & TRANSACTIONAL_BIT:
                if request.transactional_id is None:
                    return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                return None
    return None


def _unreadable(length: int, magic: int) -> Refusal | None:
    if length < SMALLEST_BATCH_LENGTH:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"No record batch has a length of {length}.")
    if not 0 <= magic <= CURRENT_MAGIC:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"There is no record format {magic}.")
    return None


def read_batch(records: Buffer | None, version: int) -> BatchHeader | Refusal:
    """The header of the one batch that a partition's records must be; the log checks everything else."""
    if not records:
        return Refusal(ErrorCode.INVALID_RECORD, "There is no record batch for this partition.")
    try:
        header = read_header(records)
    except DecodeError:
        return Refusal(ErrorCode.INVALID_RECORD, "There is only a part of a record batch for this partition.")
    if (
        header.magic == CURRENT_MAGIC
        and header.size_bytes == len(records)
        and (version >= FIRST_VERSION_WITH_ZSTD or header.attributes & CODEC_MASK != Codec.ZSTD)
    ):
        return header
    return _refusal_of(header, records, version)


def _refusal_of(header: BatchHeader, records: Buffer, version: int) -> Refusal:
    """What is wrong with a batch that no log needs to see."""
    unreadable = _unreadable(header.batch_length, header.magic)
    if unreadable is not None:
        return unreadable
    if header.magic != CURRENT_MAGIC:
        return Refusal(ErrorCode.INVALID_RECORD, f"Only record format 2 is accepted, not {header.magic}.")
    if header.size_bytes != len(records):
        what = "more than one record batch" if header.size_bytes < len(records) else "only a part of a record batch"
        return Refusal(ErrorCode.INVALID_RECORD, f"There is {what} for this partition.")
    return Refusal(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce {version} does not know zstd; it came with {FIRST_VERSION_WITH_ZSTD}.",
    )


def tell_refusal(answer: PartitionProduceResponse, result: AppendResult, log: PartitionLog) -> None:
    """Fill in the answer for a batch that its log refused."""
    answer.error_code = result.error
    answer.base_offset = result.base_offset
    answer.log_append_time_ms = result.log_append_time_ms
    if result.error not in _ANSWERED_WITHOUT_LOG_START:
        answer.log_start_offset = log.log_start_offset
    answer.record_errors = [
        BatchIndexAndErrorMessage(batch_index=refused.index, batch_index_error_message=refused.message)
        for refused in result.record_errors
    ]
    answer.error_message = result.message


def error_of_lost_log(topics: Topics, topic_partition: TopicPartition, log: PartitionLog) -> ErrorCode:
    """Of a log that has failed, or has gone: to another node, or with its topic."""
    return topics.absence(topic_partition) if log.is_deleted else ErrorCode.KAFKA_STORAGE_ERROR


def resolve(topics: Topics, topic: TopicProduceData, version: int) -> tuple[str, ErrorCode]:
    """The name of a request's topic, or why nothing may be written to it: UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION."""
    name = topic.name
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        metadata = topics.metadata.get_by_id(topic.topic_id)
        if metadata is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = metadata.name
    # What an internal topic says is the work of its coordinator alone, whose memory would not know of a client's
    # records.
    return name, ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE


class _Write:
    """One partition's batch on its way into the log, and its answer, which says so once it is there, or refused."""

    __slots__ = ("answer", "durable_offset", "guard", "header", "log", "records", "topic_partition")

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: PartitionLog,
        records: memoryview,
        header: BatchHeader,
        answer: PartitionProduceResponse,
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.records = records
        self.header = header
        self.answer = answer
        self.guard: VerificationGuard | None = None
        self.durable_offset = 0  # the answer waits until the log is durable up to here, exclusive


class _Production:
    """One Produce request being served: its batches, and the response as it comes about."""

    __slots__ = (
        "_appended",
        "_context",
        "_end_turn",
        "_first_error",
        "_is_appended",
        "_request",
        "_response",
        "_services",
        "_transactional",
        "_version",
        "_writes",
    )

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._context = context
        self._services = context.services
        self._version = context.api_version
        self._request = request
        self._response = ProduceResponse()
        self._writes: list[_Write] = []  # ready to be appended
        self._transactional: list[_Write] = []  # not known to be ready
        self._appended: list[_Write] = []
        self._first_error = ErrorCode.NONE
        self._is_appended = False
        self._end_turn: Callable[[], None] | None = None  # lets the producer's next request be verified

    # Reading: everything that can be said before a log is touched

    def read_request(self) -> Refusal | None:
        """Find the log of every batch, and refuse the batches and the requests that no log needs to see."""
        for topic in self._request.topic_data:
            if not topic.partition_data:
                continue
            name, error = resolve(self._services.topics, topic, self._version)
            answers = [self._read_partition(name, error, partition) for partition in topic.partition_data]
            self._response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        if self._first_error is not ErrorCode.NONE:
            # Batches count that do not get as far as a log, too.
            refusal = _refusal_as_a_whole(self._request)
            if refusal is not None:
                return refusal
        transactional = self._transactional
        if transactional:
            if self._request.transactional_id is None:
                return Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            first = transactional[0].header
            for write in transactional:
                header = write.header
                if header.producer_id != first.producer_id or header.producer_epoch != first.producer_epoch:
                    return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS)
        return None

    def _read_partition(
        self, topic: str, error: ErrorCode, partition: PartitionProduceData
    ) -> PartitionProduceResponse:
        """The answer for the partition: a refusal, or, for a batch that goes on to the log, one that will be filled
        in."""
        index = partition.index
        if error is not ErrorCode.NONE:
            return self._refuse(index, error)
        topic_partition = TopicPartition(topic, index)
        log = self._services.topics.log(topic_partition)
        if log is None:
            return self._refuse(index, self._services.topics.absence(topic_partition))
        if log.is_offline:
            return self._refuse(index, ErrorCode.KAFKA_STORAGE_ERROR)
        records = partition.records
        batch = read_batch(records, self._version)
        if isinstance(batch, Refusal):
            return self._refuse(index, batch.error, batch.message)
        answer = PartitionProduceResponse(index, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        write = _Write(topic_partition, log, memoryview(records or b""), batch, answer)
        if batch.attributes & TRANSACTIONAL_BIT:
            self._transactional.append(write)
        else:
            self._writes.append(write)
        return answer

    def _refuse(self, partition: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
        if self._first_error is ErrorCode.NONE:
            self._first_error = error
        return refused(partition, error, message)

    def refuse_writes(self, error: ErrorCode) -> ProduceResponse:
        """Append nothing, and say so for every batch that was not refused already."""
        for write in (*self._writes, *self._transactional):
            self._answer_refused(write, error)
        return self._response

    def _answer_refused(self, write: _Write, error: ErrorCode, message: str | None = None) -> None:
        if self._first_error is ErrorCode.NONE:
            self._first_error = error
        answer = write.answer
        answer.error_code = error
        answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        answer.error_message = message

    def _answer_lost(self, write: _Write, error: StorageError) -> None:
        code = error_of_lost_log(self._services.topics, write.topic_partition, write.log)
        self._answer_refused(write, code, str(error))

    # Verification: a batch that opens a transaction on its partition needs the coordinator's word

    def begin_verification(self) -> list[_Write]:
        """The batches that must be verified before they are appended; the others stay ready, or are refused.

        While an earlier request of the producer waits, all of them do: one that need not be verified any more would
        overtake those in between.
        """
        transactional = self._transactional
        if not transactional:
            return transactional
        predecessor = self._services.produce_verifications.get(transactional[0].header.producer_id)
        if predecessor is not None and not predecessor.done():
            return transactional
        return self._take_guards(transactional)

    def _take_guards(self, writes: list[_Write]) -> list[_Write]:
        """Those that need verification, each with the guard that proves, at its append, that no marker came in
        between."""
        unverified = []
        is_transaction_version_2 = self._version >= FIRST_VERSION_OF_TRANSACTION_VERSION_2
        for write in writes:
            header = write.header
            guard = write.log.begin_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                transaction_version_2=is_transaction_version_2,
            )
            if guard is None:
                self._writes.append(write)
            elif isinstance(guard, ErrorCode):
                self._answer_refused(write, guard)
            else:
                write.guard = guard
                unverified.append(write)
        return unverified

    def verify_in_order(self, unverified: list[_Write]) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        """Verify, append and answer behind the producer's earlier requests that still wait for the same.

        Without that order, a batch whose verification is repeated would be overtaken by the next one, and its sequence
        refused. Where the coordinator is here and nobody is before this one, all of it happens in this step; else in a
        task, which goes on when the connection is gone, as an append that needs no verification would have happened
        too.
        """
        producer_id = unverified[0].header.producer_id
        predecessor = self._services.produce_verifications.get(producer_id)
        started = eager.start(self._verify_and_append(unverified, predecessor), asyncio.get_running_loop())
        if isinstance(started, eager.Finished):
            return started.result
        if not self._is_appended:
            self._end_turn = begin_turn(self._services, producer_id, started)
        return started

    async def _verify_and_append(
        self, unverified: list[_Write], predecessor: asyncio.Future[None] | None
    ) -> ProduceResponse | None:
        if predecessor is not None:
            if not predecessor.done():
                await asyncio.wait([predecessor])
            # What was appended meanwhile may have opened the transaction on these partitions too.
            unverified = self._take_guards(unverified)
        if unverified:
            header = unverified[0].header
            errors = await verify(
                self._services,
                [write.topic_partition for write in unverified],
                transactional_id=self._request.transactional_id or "",
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                version=self._version,
            )
            for write in unverified:
                error = errors[write.topic_partition]
                if error is ErrorCode.NONE:
                    self._writes.append(write)
                else:
                    self._answer_refused(write, error, NOT_CONFIRMED)
        self.append()
        self._is_appended = True
        if self._end_turn is not None:
            self._end_turn()
        answer = self.answer()
        return await answer if isinstance(answer, Awaitable) else answer

    # Appending and answering

    def append(self) -> None:
        """Append what is ready. No await comes between a batch's check and its append."""
        if not self._writes:
            return
        now_ms = self._services.clock.now_ms()
        for write in self._writes:
            try:
                result = write.log.append(write.records, now_ms=now_ms, header=write.header, guard=write.guard)
            except StorageError as error:
                self._answer_lost(write, error)
                continue
            answer = write.answer
            if result.error is not ErrorCode.NONE:
                if self._first_error is ErrorCode.NONE:
                    self._first_error = result.error
                tell_refusal(answer, result, write.log)
                continue
            answer.error_code = ErrorCode.NONE
            answer.base_offset = result.base_offset
            answer.log_append_time_ms = result.log_append_time_ms
            answer.log_start_offset = write.log.log_start_offset
            write.durable_offset = result.last_offset + 1
            self._appended.append(write)
        self._writes = []

    def answer(self) -> ProduceResponse | Awaitable[ProduceResponse] | None:
        """The reply as `acks` asks for it, now that every batch is in the log, or refused.

        Raises CloseConnection for an error with acks=0. The leader is the only replica, so its word and that of all of
        them come at the same moment: when the batch can be read.
        """
        self._context.needs_frame = False
        if self._request.acks == ACKS_NONE:
            if self._first_error is not ErrorCode.NONE:
                raise CloseConnection(f"Produce with acks=0 was refused: {self._first_error.name}")
            return None
        for write in self._appended:
            if write.log.high_watermark < write.durable_offset:
                return self._answer_when_durable()
        return self._response

    async def _answer_when_durable(self) -> ProduceResponse:
        volatile = [write for write in self._appended if write.log.high_watermark < write.durable_offset]
        for write in volatile:
            try:
                await write.log.flushed(write.durable_offset)
            except StorageError as error:
                self._answer_lost(write, error)
        return self._response
