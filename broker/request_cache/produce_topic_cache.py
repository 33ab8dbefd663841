"""Cache of Produce requests for several partitions of one topic, found by the bytes before their partitions.

A producer sends what it has for the partitions of a topic in one request. The partitions, their order and their batches
change from one request to the next; the bytes before them do not. The cache finds a request by this prefix, reads only
its partitions and, if nothing is refused, writes the reply from constant bytes. Verification, append and the wait for
durability are those of a decoded request (`produce_append.py`). All other requests, and all that the cache cannot
answer, go to `produce.py`, which gives the same reply, byte by byte.

Only acknowledged requests of the versions with tagged fields (9 and later). `produce_cache.py` has the requests for one
partition. Authorization, when added, has to be checked here as well.
"""

from __future__ import annotations

import asyncio
from struct import Struct
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from fencepost.broker.handlers.produce import are_of_one_producer, read_batch, resolve
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.request_cache.prefix_cache import PrefixCache
from fencepost.broker.requests.produce_append import (
    BlockConnection,
    PartitionAppend,
    ProduceAppend,
    ProduceRefusal,
    StartedRequest,
    no_connection_to_block,
    refused_partition,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, response_frame
from fencepost.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fencepost.protocol.primitives import Buffer, MalformedError, continue_unsigned_varint
from fencepost.protocol.record_batch import TRANSACTIONAL_BIT
from fencepost.protocol.schema import encode

if TYPE_CHECKING:
    from fencepost.broker.log.log_types import AppendResult
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.requests.api import Services
    from fencepost.broker.requests.long_polls import ReplyFrame

MAXIMUM_COUNT: Final = 32
"""Cached requests of one connection, one per topic; requests for other topics are decoded."""
MAXIMUM_LOGS: Final = 1_024
"""Cached partitions of one connection, over all topics; requests for others are decoded."""
MAXIMUM_PARTITIONS: Final = 126
"""Partitions of a cached request: their number plus one is a byte. Requests with more are decoded."""

_REPLY_START = Struct(">ii")
"""Length and correlation id."""
_PARTITION_START = Struct(">iB")
"""Partition index, and the length of the batch plus one, or the first byte of that."""
_PARTITION_START_BYTES = _PARTITION_START.size
_NO_PARTITIONS_AND_END = b"\1\0\0"
"""The number of partitions plus one, and no tagged fields: of the topic, of the request."""
_REQUEST_END = b"\0\0"
_VARYING_REPLY_FIELDS = Struct(">ihqqq")
"""Index, error code, base offset, log append time and log start offset: adjacent fields."""
_PLACEHOLDER_VALUES = (0x01234567, 0x0123, 0x456789ABCDEF0123, 0x456789ABCDEF0124, 0x456789ABCDEF0125)

log = get_logger(__name__)


class _CachedTopicProduce:
    """What all requests with the same bytes before their partitions have in common, and the constant bytes of a reply.

    logs: of the partitions that were produced to, by index.
    A reply is `reply_start`, the number of partitions, for each partition its fields and `answer_end`, then
    `reply_end`.
    """

    __slots__ = (
        "answer_end",
        "answer_struct",
        "logs",
        "reply_end",
        "reply_start",
        "topic",
        "transactional_id",
        "version",
    )

    def __init__(self, transactional_id: str | None, topic: TopicProduceData, version: int) -> None:
        self.transactional_id = transactional_id
        self.topic = topic
        self.version = version
        self.logs: dict[int, PartitionLog] = {}
        answers = [PartitionProduceResponse(*_PLACEHOLDER_VALUES), PartitionProduceResponse(*_PLACEHOLDER_VALUES)]
        reply = b"".join(self.reply(0, answers))[_REPLY_START.size :]
        start, self.answer_end, end = reply.split(_VARYING_REPLY_FIELDS.pack(*_PLACEHOLDER_VALUES))
        self.reply_start = start[:-1]  # without the number of partitions plus one
        self.reply_end = end.removeprefix(self.answer_end)
        self.answer_struct = Struct(f"{_VARYING_REPLY_FIELDS.format}{len(self.answer_end)}s")

    def reply(self, correlation_id: int, answers: list[PartitionProduceResponse]) -> list[Buffer]:
        topic = TopicProduceResponse(self.topic.name, self.topic.topic_id, answers)
        return response_frame(correlation_id, ProduceResponse(responses=[topic]), self.version)


class _CachedProduceAppend(ProduceAppend["ReplyFrame"]):
    """The append of a cached request."""

    __slots__ = ("_cached", "_correlation_id", "_writes")

    def __init__(
        self, services: Services, cached: _CachedTopicProduce, writes: list[PartitionAppend], correlation_id: int
    ) -> None:
        super().__init__(services, cached.transactional_id, cached.version)
        self._cached = cached
        self._writes = writes
        self._correlation_id = correlation_id

    def append(self) -> StartedRequest[ReplyFrame]:
        if self._cached.transactional_id is None:
            return self.start(self._writes, ())
        return self.start((), self._writes)

    def answer(self) -> ReplyFrame:
        cached = self._cached
        writes = self._writes
        if self.first_error is not ErrorCode.NONE:
            return cached.reply(self._correlation_id, [write.answer() for write in writes])
        pack, answer_end = cached.answer_struct.pack, cached.answer_end
        parts = [cached.reply_start, bytes((len(writes) + 1,))]
        for write in writes:
            appended: AppendResult = write.outcome  # type: ignore[assignment]  # as no batch was refused
            parts.append(
                pack(
                    write.log.topic_partition.partition,
                    0,
                    appended.base_offset,
                    appended.log_append_time_ms,
                    appended.log_start_offset,
                    answer_end,
                )
            )
        parts.append(cached.reply_end)
        body = b"".join(parts)
        return (_REPLY_START.pack(len(body) + _REPLY_START.size - LENGTH_BYTES, self._correlation_id) + body,)

    def failed(self, error: Exception) -> ReplyFrame:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("request_failed", api="Produce", version=self._version, error=code.name, exc_info=error)
        answers = [refused_partition(write.log.topic_partition.partition, code) for write in self._writes]
        return self._cached.reply(self._correlation_id, answers)

    def keep_batches(self) -> None:
        """Copy the batches: the memory that they lie in is reused for the next request."""
        for write in self._writes:
            write.records = memoryview(bytes(write.records))


class ProduceTopicCache:
    """The cached Produce requests for several partitions of one connection."""

    __slots__ = ("_block_connection", "_loop", "_prefixes", "_services")

    def __init__(
        self,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        block_connection: BlockConnection = no_connection_to_block,
    ) -> None:
        self._services = services
        self._loop = loop
        self._block_connection = block_connection
        self._prefixes = PrefixCache[_CachedTopicProduce]()  # a prefix ends before the partitions

    def __len__(self) -> int:
        return len(self._prefixes)

    @property
    def _logs_count(self) -> int:
        return sum(len(cached.logs) for cached in self._prefixes.values())

    def remember(self, frame: memoryview, body_position: int, request: ProduceRequest, version: int) -> None:
        """Remember a decoded request for one topic, acknowledged, of a version with tagged fields."""
        (topic,) = request.topic_data
        name, error = resolve(self._services.topics, topic, version)
        if error is not ErrorCode.NONE:
            return
        self._prefixes.start_version(version)
        if self._logs_count + len(topic.partition_data) > MAXIMUM_LOGS:
            return
        partitions, topic.partition_data = topic.partition_data, []
        before = encode(request, version)[: -len(_NO_PARTITIONS_AND_END)]
        topic.partition_data = partitions
        prefix_end = body_position + len(before)
        if frame[body_position:prefix_end] != before:
            return
        found = self._prefixes.find(frame, version)
        if found is not None:
            cached, _ = found
        elif len(self) >= MAXIMUM_COUNT:
            return
        else:
            cached = _CachedTopicProduce(
                request.transactional_id, TopicProduceData(topic.name, topic.topic_id), version
            )
            self._prefixes.remember(frame, prefix_end, cached)
        for partition in partitions:
            partition_log = self._services.topics.log(TopicPartition(name, partition.index))
            if partition_log is not None:
                cached.logs[partition.index] = partition_log

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Start a cached request: returns its reply, or a future of it. None, and nothing is done, for any other."""
        found = self._prefixes.find(frame, version)
        if found is None:
            return None
        cached, prefix_end = found
        writes = _read_partitions(frame, prefix_end, cached)
        if not writes or (cached.transactional_id is not None and not are_of_one_producer(writes)):
            return None
        append = _CachedProduceAppend(self._services, cached, writes, correlation_id)
        try:
            started = append.append()
        except Exception as error:  # noqa: BLE001  # of one request
            return append.failed(error)
        if isinstance(started, eager.Finished):
            return started.result
        if not append.is_appended:
            append.keep_batches()
        answered = eager.start(_answer(append, started), self._loop)
        if isinstance(answered, eager.Finished):
            return answered.result
        if append.has_large_batches:
            self._block_connection(answered)
        return answered


async def _answer(
    append: _CachedProduceAppend, started: eager.MaybeAwaitable[ReplyFrame] | asyncio.Future[ReplyFrame]
) -> ReplyFrame:
    try:
        return await started
    except Exception as error:  # noqa: BLE001  # of one request
        return append.failed(error)


def _read_partitions(frame: memoryview, position: int, cached: _CachedTopicProduce) -> list[PartitionAppend] | None:
    """Read the batches of a request whose partitions begin at `position`; None if the cache cannot serve one of them,
    or only one of batch and request is transactional.
    """
    transactional_bit = 0 if cached.transactional_id is None else TRANSACTIONAL_BIT
    version = cached.version
    logs = cached.logs
    writes = []
    try:
        count = frame[position] - 1
        position += 1
        if count > MAXIMUM_PARTITIONS:
            return None
        for _ in range(count):
            index, length = _PARTITION_START.unpack_from(frame, position)
            start = position + _PARTITION_START_BYTES
            if length > 0x7F:
                length, start = continue_unsigned_varint(frame, start, length)
            end = start + length - 1
            position = end + 1
            if frame[end]:
                return None  # it has tagged fields
            partition_log = logs[index]
            if partition_log.offline_reason is not None:
                del logs[index]  # it has failed, was deleted with its topic, or has moved to another node
                return None
            records = frame[start:end]
            header = read_batch(records, version)
            if isinstance(header, ProduceRefusal) or header.attributes & TRANSACTIONAL_BIT != transactional_bit:
                return None
            writes.append(PartitionAppend(partition_log, records, header))
    except (IndexError, KeyError, MalformedError, struct_error):
        return None
    return writes if frame[position:] == _REQUEST_END else None
