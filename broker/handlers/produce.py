"""Produce: appending of batches. Each partition's batch goes from the frame into its log in one step; the reply waits
until the batch is durable.

Source: KIP-98 (idempotence, transactions), KIP-467 (record errors), KIP-516 (topic ids), KIP-890 (verification,
implicit add); Kafka's KafkaApis.handleProduceRequest, ProduceRequest.validateRecords and
ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING

from fencepost.broker.kernel import eager
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.requests.api import CloseConnection, RequestContext, SlicedResponse, api
from fencepost.broker.requests.produce_append import (
    APPENDED_AT_ONCE_COUNT,
    PartitionAppend,
    ProduceAppend,
    ProduceRefusal,
    refused_partition,
)
from fencepost.protocol.compression import Codec
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.record_batch import (
    CODEC_MASK,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from fencepost.protocol.schema import Buffer, DecodeError

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13

ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1
_SERVED_ACKS = frozenset({ACKS_ALL, ACKS_LEADER, ACKS_NONE})
SMALLEST_BATCH_LENGTH = 14  # of the oldest format

SEVERAL_PRODUCERS_MESSAGE = "Transactional records contained more than one producer ID"


def produce_failed(
    request: ProduceRequest, error: ErrorCode, version: int, *, message: str | None = None
) -> ProduceResponse:
    """Every partition of the request fails with the same error."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    refused_partition(partition.index, error, message) for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
            if topic.partition_data
        ]
    )


@api(ProduceRequest, ProduceResponse, failed=produce_failed)
def handle_produce(
    context: RequestContext, request: ProduceRequest
) -> ProduceResponse | Awaitable[ProduceResponse | SlicedResponse | None] | None:
    """Append each partition's batch, and answer when all of them are durable (`acks` 1 and -1), or never (0).

    Only a batch that opens a transaction on its partition waits before the append, for verification by the transaction
    coordinator; waiting requests of one producer keep their order. Versions 0 to 2 are advertised but
    refused: librdkafka takes a higher minimum for a broker without compression (KAFKA-18659).
    Refuses as a whole: CORRUPT_MESSAGE (records of any partition that do not start like a batch),
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED (a transactional batch but no transactional id), INVALID_PRODUCER_ID_MAPPING
    (two producers in one request). With INVALID_REQUIRED_ACKS it refuses every batch that
    could be appended. Raises CloseConnection for an error with acks=0. `timeout_ms` is not used: the write finishes, or
    fails with KAFKA_STORAGE_ERROR.
    """
    produce = _DecodedProduceAppend(context, request)
    refusal = produce.read_request()
    if refusal is not None:
        if request.acks == ACKS_NONE:
            raise CloseConnection(f"Produce with acks=0 was refused: {refusal.error.name}")
        return produce_failed(request, refusal.error, context.api_version, message=refusal.message)
    if request.acks not in _SERVED_ACKS:
        return produce.refuse_all(ErrorCode.INVALID_REQUIRED_ACKS)
    started = produce.append()
    if isinstance(started, Awaitable) and produce.has_many_batches:
        return _answer_in_slices(started)
    return started


async def _answer_in_slices(started: Awaitable[ProduceResponse | None]) -> SlicedResponse | None:
    response = await started
    return None if response is None else SlicedResponse(response)


_FIRST_FIELDS = struct.Struct(">qiib")
"""The base offset, the length, the leader epoch, and the format."""


def _refusal_as_a_whole(request: ProduceRequest) -> ProduceRefusal | None:
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
            refusal = _unreadable(length, magic if len(records) >= _FIRST_FIELDS.size else CURRENT_MAGIC)
            if refusal is not None:
                return refusal
            is_whole = HEADER_BYTES <= length + LENGTH_OVERHEAD_BYTES <= len(records)
            if is_whole and magic == CURRENT_MAGIC and read_header(records).attributes & TRANSACTIONAL_BIT:
                if request.transactional_id is None:
                    return ProduceRefusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
                return None
    return None


def _unreadable(length: int, magic: int) -> ProduceRefusal | None:
    if length < SMALLEST_BATCH_LENGTH:
        return ProduceRefusal(ErrorCode.CORRUPT_MESSAGE, f"No record batch has a length of {length}.")
    if not 0 <= magic <= CURRENT_MAGIC:
        return ProduceRefusal(ErrorCode.CORRUPT_MESSAGE, f"There is no record format {magic}.")
    return None


def read_batch(records: Buffer | None, version: int) -> BatchHeader | ProduceRefusal:
    """Read the header of the one batch that a partition's records must be; the log checks everything else."""
    if not records:
        return ProduceRefusal(ErrorCode.INVALID_RECORD, "There is no record batch for this partition.")
    try:
        header = read_header(records)
    except DecodeError:
        return ProduceRefusal(ErrorCode.INVALID_RECORD, "There is only a part of a record batch for this partition.")
    if (
        header.magic == CURRENT_MAGIC
        and header.batch_length + LENGTH_OVERHEAD_BYTES == len(records)
        and (version >= FIRST_VERSION_WITH_ZSTD or header.attributes & CODEC_MASK != Codec.ZSTD)
    ):
        return header
    return _refusal_of(header, records, version)


def _refusal_of(header: BatchHeader, records: Buffer, version: int) -> ProduceRefusal:
    """The error of a batch that is refused without its log; None if there is none."""
    unreadable = _unreadable(header.batch_length, header.magic)
    if unreadable is not None:
        return unreadable
    if header.magic != CURRENT_MAGIC:
        return ProduceRefusal(ErrorCode.INVALID_RECORD, f"Only record format 2 is accepted, not {header.magic}.")
    if header.size_bytes != len(records):
        what = "more than one record batch" if header.size_bytes < len(records) else "only a part of a record batch"
        return ProduceRefusal(ErrorCode.INVALID_RECORD, f"There is {what} for this partition.")
    return ProduceRefusal(
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        f"Produce {version} does not know zstd; it came with {FIRST_VERSION_WITH_ZSTD}.",
    )


def resolve(topics: Topics, topic: TopicProduceData, version: int) -> tuple[str, ErrorCode]:
    """Return the name of a request's topic. Refuses: UNKNOWN_TOPIC_ID, INVALID_TOPIC_EXCEPTION (internal)."""
    name = topic.name
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        metadata = topics.metadata.get_by_id(topic.topic_id)
        if metadata is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        name = metadata.name
    # Only its coordinator writes to an internal topic: the coordinator's state would miss a client's records.
    return name, ErrorCode.INVALID_TOPIC_EXCEPTION if name in INTERNAL_TOPICS else ErrorCode.NONE


class _DecodedProduceAppend(ProduceAppend[ProduceResponse | None]):
    """Produce of a decoded request. Its answers are in the order of its partitions."""

    __slots__ = ("_answers", "_context", "_request", "_transactional", "_writes")

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        super().__init__(context.services, request.transactional_id, context.api_version)
        self._context = context
        self._request = request
        self._writes: list[PartitionAppend] = []
        self._transactional: list[PartitionAppend] = []
        self._answers: list[tuple[TopicProduceData, list[PartitionAppend | PartitionProduceResponse]]] = []

    def read_request(self) -> ProduceRefusal | None:
        """Find the log of every batch; refuse invalid requests, and batches that can be refused without their logs."""
        for topic in self._request.topic_data:
            if not topic.partition_data:
                continue
            name, error = resolve(self._services.topics, topic, self._version)
            answers = [self._read_partition(name, error, partition) for partition in topic.partition_data]
            self._answers.append((topic, answers))
        if self.first_error is not ErrorCode.NONE:
            # Batches that do not reach a log count, too.
            refusal = _refusal_as_a_whole(self._request)
            if refusal is not None:
                return refusal
        transactional = self._transactional
        if transactional:
            if self._request.transactional_id is None:
                return ProduceRefusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            if not are_of_one_producer(transactional):
                return ProduceRefusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING, SEVERAL_PRODUCERS_MESSAGE)
        return None

    def _read_partition(
        self, topic: str, error: ErrorCode, partition: PartitionProduceData
    ) -> PartitionAppend | PartitionProduceResponse:
        """Add the batch to those for the logs, or refuse it."""
        index = partition.index
        if error is not ErrorCode.NONE:
            return self._refuse(index, error)
        topic_partition = TopicPartition(topic, index)
        log = self._services.topics.log(topic_partition)
        if log is None:
            return self._refuse(index, self._services.topics.error_of_absent_log(topic_partition))
        if log.is_offline:
            return self._refuse(index, ErrorCode.KAFKA_STORAGE_ERROR)
        records = partition.records
        batch = read_batch(records, self._version)
        if isinstance(batch, ProduceRefusal):
            return self._refuse(index, batch.error, batch.message)
        write = PartitionAppend(log, memoryview(records or b""), batch)
        (self._transactional if batch.attributes & TRANSACTIONAL_BIT else self._writes).append(write)
        return write

    def _refuse(self, partition: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
        if self.first_error is ErrorCode.NONE:
            self.first_error = error
        return refused_partition(partition, error, message)

    def refuse_all(self, error: ErrorCode) -> ProduceResponse | None:
        """Append nothing, and refuse every batch that was not refused yet."""
        for write in (*self._writes, *self._transactional):
            self.refuse(write, error)
        return self.answer()

    @property
    def has_many_batches(self) -> bool:
        return len(self._writes) > APPENDED_AT_ONCE_COUNT

    def append(self) -> ProduceResponse | Awaitable[ProduceResponse | None] | None:
        started = self.start(self._writes, self._transactional)
        self._context.blocks_connection = self.has_large_batches
        return started.result if isinstance(started, eager.Finished) else started

    def finish(self) -> eager.MaybeAwaitable[ProduceResponse | None]:
        """Return the response that `acks` asks for. Raises CloseConnection for an error with acks=0."""
        self._context.needs_frame = False
        if self._request.acks == ACKS_NONE:
            if self.first_error is not ErrorCode.NONE:
                raise CloseConnection(f"Produce with acks=0 was refused: {self.first_error.name}")
            return eager.Finished(None)
        return super().finish()

    def answer(self) -> ProduceResponse | None:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [answer.answer() if isinstance(answer, PartitionAppend) else answer for answer in answers],
                )
                for topic, answers in self._answers
            ]
        )


def are_of_one_producer(writes: Sequence[PartitionAppend]) -> bool:
    """Whether all batches have the same producer id and epoch."""
    producers = {(header.producer_id, header.producer_epoch) for header in [write.header for write in writes]}
    return len(producers) == 1
