"""Produce requests for several partitions of one topic that differ from an earlier one of their connection in nothing
but the partitions and their batches.

A producer sends what it has for the partitions of a topic in one request: which partitions these are, and in what
order, changes from one to the next, and so do the batches, but not what is before them. Such a request is known by
that; only its partitions are read, and when all is well the reply is filled into a form. Verifying, appending and
waiting for the disk is the same as for a request that was decoded (`production.py`). All other requests, and whatever
is out of the ordinary in one of these, go the way of `produce.py`, which answers the same, byte by byte.

Only requests that are acknowledged, of the versions with tagged fields (9 and later). Requests for one partition alone
are known by more of their bytes: see `produce_templates.py`. Who adds authorization has to ask for it here as well.
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
    refused,
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
    from fencepost.broker.requests.long_polls import Reply

MAXIMUM_COUNT: Final = 32
"""Topics of one connection that are remembered; requests for others are decoded."""
MAXIMUM_LOGS: Final = 1_024
"""Partitions of one connection that are remembered, of all topics together; requests for others are decoded."""
MAXIMUM_PARTITIONS: Final = 126
"""Of a request: their number plus one is a byte. Those with more are decoded."""

_REPLY_START = Struct(">ii")
"""Length and correlation id."""
_PARTITION_START = Struct(">iB")
"""Its index, and how long its batch is plus one, or the first byte of that."""
_PARTITION_START_BYTES = _PARTITION_START.size
_NO_PARTITIONS_AND_END = b"\1\0\0"
"""The number of partitions plus one, and no tagged fields: of the topic, of the request."""
_REQUEST_END = b"\0\0"
_ANSWER = Struct(">ihqqq")
"""Index, error code, base offset, log append time and log start offset: what changes in a reply, in one piece."""
_MARKED_ANSWER = (0x01234567, 0x0123, 0x456789ABCDEF0123, 0x456789ABCDEF0124, 0x456789ABCDEF0125)

log = get_logger(__name__)


class _CachedTopicProduce:
    """What all requests with the same bytes before their partitions have in common.

    logs: of the partitions that have been asked for, by their index.
    The parts of a reply: `reply_start`, up to the number of partitions, then of each the answer and `answer_end`, and
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
        answers = [PartitionProduceResponse(*_MARKED_ANSWER), PartitionProduceResponse(*_MARKED_ANSWER)]
        reply = b"".join(self.reply(0, answers))[_REPLY_START.size :]
        start, self.answer_end, end = reply.split(_ANSWER.pack(*_MARKED_ANSWER))
        self.reply_start = start[:-1]  # what is left out is the number of partitions plus one
        self.reply_end = end.removeprefix(self.answer_end)
        self.answer_struct = Struct(f"{_ANSWER.format}{len(self.answer_end)}s")

    def reply(self, correlation_id: int, answers: list[PartitionProduceResponse]) -> list[Buffer]:
        topic = TopicProduceResponse(self.topic.name, self.topic.topic_id, answers)
        return response_frame(correlation_id, ProduceResponse(responses=[topic]), self.version)


class _CachedProduceAppend(ProduceAppend["Reply"]):
    """A request that is known."""

    __slots__ = ("_correlation_id", "_template", "_writes")

    def __init__(
        self, services: Services, template: _CachedTopicProduce, writes: list[PartitionAppend], correlation_id: int
    ) -> None:
        super().__init__(services, template.transactional_id, template.version)
        self._template = template
        self._writes = writes
        self._correlation_id = correlation_id

    def append(self) -> StartedRequest[Reply]:
        if self._template.transactional_id is None:
            return self.start(self._writes, ())
        return self.start((), self._writes)

    def answer(self) -> Reply:
        template = self._template
        writes = self._writes
        if self.first_error is not ErrorCode.NONE:
            return template.reply(self._correlation_id, [write.answer() for write in writes])
        pack, answer_end = template.answer_struct.pack, template.answer_end
        parts = [template.reply_start, bytes((len(writes) + 1,))]
        for write in writes:
            appended: AppendResult = write.outcome  # type: ignore[assignment]  # as nothing was refused
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
        parts.append(template.reply_end)
        body = b"".join(parts)
        return (_REPLY_START.pack(len(body) + _REPLY_START.size - LENGTH_BYTES, self._correlation_id) + body,)

    def failed(self, error: Exception) -> Reply:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("request_failed", api="Produce", version=self._version, error=code.name, exc_info=error)
        answers = [refused(write.log.topic_partition.partition, code) for write in self._writes]
        return self._template.reply(self._correlation_id, answers)

    def keep_batches(self) -> None:
        """The memory that they came in is for the next request."""
        for write in self._writes:
            write.records = memoryview(bytes(write.records))


class ProduceTopicCache:
    """Those of one connection."""

    __slots__ = ("_heads", "_hold_connection", "_loop", "_services")

    def __init__(
        self,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        hold_connection: BlockConnection = no_connection_to_block,
    ) -> None:
        self._services = services
        self._loop = loop
        self._hold_connection = hold_connection
        self._heads = PrefixCache[_CachedTopicProduce]()  # each ends where the partitions begin

    def __len__(self) -> int:
        return len(self._heads)

    @property
    def _logs_count(self) -> int:
        return sum(len(template.logs) for template in self._heads.values())

    def learn(self, frame: memoryview, body_position: int, request: ProduceRequest, version: int) -> None:
        """Remember a request that was decoded, for one topic, acknowledged, of a version with tagged fields."""
        (topic,) = request.topic_data
        name, error = resolve(self._services.topics, topic, version)
        if error is not ErrorCode.NONE:
            return
        self._heads.start_version(version)
        if self._logs_count + len(topic.partition_data) > MAXIMUM_LOGS:
            return
        partitions, topic.partition_data = topic.partition_data, []
        before = encode(request, version)[: -len(_NO_PARTITIONS_AND_END)]
        topic.partition_data = partitions
        head_end = body_position + len(before)
        if frame[body_position:head_end] != before:
            return
        found = self._heads.find(frame, version)
        if found is not None:
            template, _ = found
        elif len(self) >= MAXIMUM_COUNT:
            return
        else:
            template = _CachedTopicProduce(
                request.transactional_id, TopicProduceData(topic.name, topic.topic_id), version
            )
            self._heads.remember(frame, head_end, template)
        for partition in partitions:
            partition_log = self._services.topics.log(TopicPartition(name, partition.index))
            if partition_log is not None:
                template.logs[partition.index] = partition_log

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> Reply | asyncio.Future[Reply]:
        """Start a request that is known: its reply, or what ends in it. None, and nothing is done, for any other."""
        found = self._heads.find(frame, version)
        if found is None:
            return None
        template, head_end = found
        writes = _read_partitions(frame, head_end, template)
        if not writes or (template.transactional_id is not None and not are_of_one_producer(writes)):
            return None
        production = _CachedProduceAppend(self._services, template, writes, correlation_id)
        try:
            started = production.append()
        except Exception as error:  # noqa: BLE001  # of one request
            return production.failed(error)
        if isinstance(started, eager.Finished):
            return started.result
        if not production.is_appended:
            production.keep_batches()
        answered = eager.start(_answer(production, started), self._loop)
        if isinstance(answered, eager.Finished):
            return answered.result
        if production.has_large_batches:
            self._hold_connection(answered)
        return answered


async def _answer(
    production: _CachedProduceAppend, started: eager.MaybeAwaitable[Reply] | asyncio.Future[Reply]
) -> Reply:
    try:
        return await started
    except Exception as error:  # noqa: BLE001  # of one request
        return production.failed(error)


def _read_partitions(frame: memoryview, position: int, template: _CachedTopicProduce) -> list[PartitionAppend] | None:
    """The batches of a request whose partitions begin there, transactional just where the request is; None where there
    is more to say about any of them.
    """
    transactional_bit = 0 if template.transactional_id is None else TRANSACTIONAL_BIT
    version = template.version
    logs = template.logs
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
                del logs[index]  # it has failed, or has gone: with its topic, or to another node
                return None
            records = frame[start:end]
            header = read_batch(records, version)
            if isinstance(header, ProduceRefusal) or header.attributes & TRANSACTIONAL_BIT != transactional_bit:
                return None
            writes.append(PartitionAppend(partition_log, records, header))
    except (IndexError, KeyError, MalformedError, struct_error):
        return None
    return writes if frame[position:] == _REQUEST_END else None
