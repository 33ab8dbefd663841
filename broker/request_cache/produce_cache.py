"""Cache of Produce requests that differ from an earlier one of their connection in the batch alone.

A producer repeats one request: client id, topic, partition, acks and timeout stay, only the correlation id and the
batch change. The cache finds it by the prefix before its batch. Neither is the prefix decoded nor the reply encoded
field by field: that is a third of the cost of a produce of 16 KB. The log checks the batch as at any append. All other
requests, and all exceptional ones, go to `produce.py`, which gives the same reply, byte by byte.

A batch that opens a transaction on its partition is verified first. Only acknowledged requests for one partition, of
the versions with tagged fields (9 and later); `produce_topic_cache.py` has those for several partitions of a topic.
Authorization, when added, has to be checked here as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING

from fencepost.broker.handlers.produce import ACKS_ALL, ACKS_LEADER, resolve
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import AppendResult
from fencepost.broker.log.verification import ANSWERED_AT_ONCE, VerificationGuard
from fencepost.broker.request_cache.prefix_cache import PrefixCache
from fencepost.broker.request_cache.produce_runs import REQUEST_END, RunResult, find_run
from fencepost.broker.request_cache.produce_topic_cache import ProduceTopicCache
from fencepost.broker.requests.produce_append import (
    BlockConnection,
    error_of_missing_log,
    fill_refusal,
    no_connection_to_block,
    refused_partition,
)
from fencepost.broker.requests.produce_verification import (
    FIRST_VERSION_OF_TRANSACTION_VERSION_2,
    NOT_CONFIRMED_MESSAGE,
    enter_verification_queue,
    verify,
)
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.compression import TooLargeForOneStepError
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, EqualLengthFrames, response_frame
from fencepost.protocol.headers import REQUEST_START_BYTES, read_request_start
from fencepost.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from fencepost.protocol.primitives import Buffer, DecodeError, MalformedError, continue_unsigned_varint
from fencepost.protocol.record_batch import (
    CURRENT_MAGIC,
    LENGTH_OVERHEAD_BYTES,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from fencepost.protocol.schema import encode

if TYPE_CHECKING:
    from fencepost.broker.log.large_batch_checks import CheckedLargeBatch
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.requests.api import Services
    from fencepost.broker.requests.long_polls import ReplyChunks, ReplyFrame

FIRST_FLEXIBLE_VERSION = 9
MAXIMUM_COUNT = 128
"""Cached requests of one connection, one per partition; requests for other partitions are decoded."""

_NO_RECORDS = b"\x01"
_VARYING_REPLY_FIELDS = Struct(">hqqq")
"""Error code, base offset, log append time and log start offset: adjacent fields."""
_PLACEHOLDER_VALUES = (0x0123, 0x456789ABCDEF0123, 0x456789ABCDEF0124, 0x456789ABCDEF0125)


log = get_logger(__name__)


class _CachedProduce:
    """What all requests with the same bytes before the batch have in common, and the constant bytes of their reply."""

    __slots__ = (
        "log",
        "reply_end",
        "reply_size_bytes",
        "reply_start",
        "reply_struct",
        "topic_partition",
        "topic_response",
        "transactional_bit",
        "transactional_id",
        "version",
    )

    def __init__(
        self,
        transactional_id: str | None,
        topic_partition: TopicPartition,
        log: PartitionLog,
        topic_response: TopicProduceResponse,
        version: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.transactional_bit = 0 if transactional_id is None else TRANSACTIONAL_BIT  # of a batch's attributes
        self.topic_partition = topic_partition
        self.log = log
        self.topic_response = topic_response
        self.version = version
        reply = b"".join(self.reply(0, PartitionProduceResponse(topic_partition.partition, *_PLACEHOLDER_VALUES)))
        placeholder = _VARYING_REPLY_FIELDS.pack(*_PLACEHOLDER_VALUES)
        self.reply_start, _, self.reply_end = reply[REQUEST_START_BYTES:].partition(placeholder)
        self.reply_struct = Struct(f">ii{len(self.reply_start)}shqqq{len(self.reply_end)}s")
        self.reply_size_bytes = self.reply_struct.size - LENGTH_BYTES

    def replies(self, correlation_ids: Sequence[int], base_offsets: range) -> ReplyChunks:
        """Encode the replies to requests whose batches were appended together, as one chunk."""
        pack, size_bytes, start, end = self.reply_struct.pack, self.reply_size_bytes, self.reply_start, self.reply_end
        before = repeat(size_bytes), correlation_ids, repeat(start), repeat(0)
        behind = repeat(-1), repeat(self.log.log_start_offset), repeat(end)
        return (b"".join(map(pack, *before, base_offsets, *behind)),)

    def reply(self, correlation_id: int, answer: PartitionProduceResponse) -> list[Buffer]:
        topic = TopicProduceResponse(self.topic_response.name, self.topic_response.topic_id, [answer])
        return response_frame(correlation_id, ProduceResponse(responses=[topic]), self.version)


class _UnverifiedBatch:
    """A batch that is being verified, and then appended."""

    __slots__ = ("guard", "header", "is_appended", "leave_queue", "records")

    def __init__(self, records: memoryview, header: BatchHeader, guard: VerificationGuard) -> None:
        self.records = records
        self.header = header
        self.guard = guard
        self.is_appended = False
        self.leave_queue: Callable[[], None] | None = None  # starts the verification of the producer's next request


class ProduceCache:
    """The cached Produce requests of one connection."""

    __slots__ = ("_loop", "_prefixes", "_services", "_topic_cache")

    def __init__(
        self,
        services: Services,
        loop: asyncio.AbstractEventLoop,
        block_connection: BlockConnection = no_connection_to_block,
    ) -> None:
        self._services = services
        self._loop = loop
        self._prefixes = PrefixCache[_CachedProduce]()  # a prefix ends before the batch's length
        self._topic_cache = ProduceTopicCache(services, loop, block_connection)

    def __len__(self) -> int:
        return len(self._prefixes) + len(self._topic_cache)

    def remember(self, frame: memoryview, body_position: int, request: ProduceRequest, version: int) -> None:
        """Remember a decoded request, if later ones like it can be found by their bytes."""
        topics = request.topic_data
        if len(topics) != 1 or request.acks not in (ACKS_LEADER, ACKS_ALL) or version < FIRST_FLEXIBLE_VERSION:
            return
        topic = topics[0]
        if len(topic.partition_data) != 1:
            self._topic_cache.remember(frame, body_position, request, version)
            return
        if len(self._prefixes) >= MAXIMUM_COUNT:
            return
        partition = topic.partition_data[0]
        name, error = resolve(self._services.topics, topic, version)
        topic_partition = TopicPartition(name, partition.index)
        log = self._services.topics.log(topic_partition) if error is ErrorCode.NONE else None
        if log is None or log.is_offline:
            return
        # Requests are read from left to right: if this frame, up to its batch, is the request's own encoding, then in
        # all frames with the same prefix a batch follows at the same position.
        records, partition.records = partition.records, b""
        before = encode(request, version)[: -len(_NO_RECORDS + REQUEST_END)]
        partition.records = records
        prefix_end = body_position + len(before)
        if frame[body_position:prefix_end] != before:
            return
        topic_response = TopicProduceResponse(topic.name, topic.topic_id)
        cached = _CachedProduce(request.transactional_id, topic_partition, log, topic_response, version)
        self._prefixes.start_version(version)
        self._prefixes.remember(frame, prefix_end, cached)

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Start a cached request: returns its reply, or a future of it. None, and nothing is done, for any other."""
        found = self._find(frame, version)
        if found is None:
            return self._topic_cache.dispatch(frame, version, correlation_id)
        cached, _, records, header = found
        if cached.transactional_id is not None:
            if header.producer_id in self._services.produce_verifications:
                return None  # it waits for an earlier request
            guard = cached.log.begin_verification(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                transaction_version_2=version >= FIRST_VERSION_OF_TRANSACTION_VERSION_2,
                in_this_step=True,
            )
            if isinstance(guard, VerificationGuard):
                return self._verify(cached, records, header, guard, correlation_id)
            if guard is not None:
                return None  # it is refused
        return self._append(cached, records, header, correlation_id)

    def dispatch_run(self, frames: EqualLengthFrames) -> RunResult | None:
        """Start the requests, from the first on, that are cached and can be appended together; returns None, and does
        nothing, if there are fewer than two.
        """
        first = frames.first
        _, version, _ = read_request_start(first)
        found = self._find(first, version)
        if found is None:
            return None
        cached, start, records, header = found
        if header.producer_id in self._services.produce_verifications:
            return None
        if cached.transactional_id is not None and header.producer_id < 0:
            return None
        run = find_run(frames, start, start + len(records))
        if run is None:
            return None
        log = cached.log
        try:
            appended = log.append_run(run.batches, header, now_ms=self._services.clock.now_ms())
        except StorageError as error:
            # The other requests find the log offline.
            return RunResult(1, self._failed_log_reply(cached, run.correlation_ids[0], error))
        if appended is None:
            return None
        count, end_offset = appended.batches_count, appended.end_offset
        correlation_ids = run.correlation_ids[:count]
        try:
            replies = cached.replies(correlation_ids, appended.base_offsets)
            if end_offset <= log.high_watermark:
                return RunResult(count, replies)
            started = eager.start(self._run_when_durable(cached, end_offset, replies, correlation_ids), self._loop)
        except Exception as error:  # noqa: BLE001  # the batches are in the log: their requests must be answered
            failed = [self._failed(cached, correlation_id, error) for correlation_id in correlation_ids]
            return RunResult(count, [chunk for reply in failed for chunk in reply])
        return RunResult(count, started.result if isinstance(started, eager.Finished) else started)

    def _find(self, frame: memoryview, version: int) -> tuple[_CachedProduce, int, memoryview, BatchHeader] | None:
        """Find the cached request, the batch's position, the batch in the current format, and its header. None for all
        others, and if only one of batch and request is transactional.
        """
        found = self._prefixes.find(frame, version)
        if found is None:
            return None
        cached, prefix_end = found
        try:
            length = frame[prefix_end]
            start = prefix_end + 1
            if length > 0x7F:
                length, start = continue_unsigned_varint(frame, start, length)
            end = start + length - 1
            records = frame[start:end]
            header = read_header(records)
        except (IndexError, MalformedError, DecodeError):
            return None
        if (
            frame[end:] != REQUEST_END
            or header.magic != CURRENT_MAGIC
            or header.batch_length + LENGTH_OVERHEAD_BYTES != length - 1
        ):
            return None
        if cached.log.offline_reason is not None:  # it has failed, was deleted with its topic, or has moved
            self._prefixes.forget(frame, prefix_end)
            return None
        if header.attributes & TRANSACTIONAL_BIT != cached.transactional_bit:
            return None
        return cached, start, records, header

    def _append(
        self,
        cached: _CachedProduce,
        records: memoryview,
        header: BatchHeader,
        correlation_id: int,
        guard: VerificationGuard | None = None,
        checked: CheckedLargeBatch | None = None,
    ) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Append, and answer once the batch is durable.

        None, and nothing is done, if the batch is too large to be checked in this step: the request is then decoded.
        """
        log = cached.log
        try:
            result = log.append(
                records, now_ms=self._services.clock.now_ms(), header=header, guard=guard, checked=checked
            )
        except StorageError as error:
            return self._failed_log_reply(cached, correlation_id, error)
        except TooLargeForOneStepError:
            return None
        if result.error is not NO_ERROR:
            return self._refused(cached, correlation_id, result)
        reply = (
            cached.reply_struct.pack(
                cached.reply_size_bytes,
                correlation_id,
                cached.reply_start,
                NO_ERROR,
                result.base_offset,
                result.log_append_time_ms,
                log.log_start_offset,
                cached.reply_end,
            ),
        )
        if result.last_offset < log.high_watermark:
            return reply
        durable = self._when_durable(cached, result.last_offset + 1, reply, correlation_id)
        started = eager.start(durable, self._loop)
        return started.result if isinstance(started, eager.Finished) else started

    def _verify(
        self,
        cached: _CachedProduce,
        records: memoryview,
        header: BatchHeader,
        guard: VerificationGuard,
        correlation_id: int,
    ) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Verify, append and answer; in this step if the coordinator answers at once."""
        transactional_id = cached.transactional_id or ""
        topic_partition = cached.topic_partition
        producer_id = header.producer_id
        producer_epoch = header.producer_epoch
        try:
            if guard is ANSWERED_AT_ONCE:
                is_confirmed = self._services.verifier.is_confirmed
                if is_confirmed(transactional_id, producer_id, producer_epoch, topic_partition):
                    return self._append(cached, records, header, correlation_id, guard)
                guard = cached.log.keep_verification(producer_id, producer_epoch, header.base_sequence)
            verified = verify(
                self._services,
                (topic_partition,),
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                version=cached.version,
            )
            if isinstance(verified, eager.Finished):  # and so confirmed
                return self._append(cached, records, header, correlation_id, guard)
        except Exception as error:  # noqa: BLE001  # of one request
            return self._failed(cached, correlation_id, error)
        batch = _UnverifiedBatch(records, header, guard)
        started = eager.start(self._append_when_verified(cached, batch, verified, correlation_id), self._loop)
        if isinstance(started, eager.Finished):
            return started.result
        if not batch.is_appended:
            batch.records = memoryview(bytes(batch.records))  # the frame's memory is reused
            batch.leave_queue = enter_verification_queue(self._services, batch.header.producer_id, started)
        return started

    async def _append_when_verified(
        self,
        cached: _CachedProduce,
        batch: _UnverifiedBatch,
        verified: Awaitable[dict[TopicPartition, ErrorCode]],
        correlation_id: int,
    ) -> ReplyFrame:
        try:
            error = (await verified)[cached.topic_partition]
            if error is not ErrorCode.NONE:
                answer = refused_partition(cached.topic_partition.partition, error, NOT_CONFIRMED_MESSAGE)
                return cached.reply(correlation_id, answer)
            reply = self._append(cached, batch.records, batch.header, correlation_id, batch.guard)
            while reply is None:
                rules = cached.log.append_rules()
                now_ms = self._services.clock.now_ms()
                checked = await self._services.large_batches.check(batch.records, batch.header, rules, now_ms)
                if isinstance(checked, AppendResult):
                    reply = self._refused(cached, correlation_id, checked)
                else:
                    reply = self._append(cached, batch.records, batch.header, correlation_id, batch.guard, checked)
        except StorageError as error:
            reply = self._failed_log_reply(cached, correlation_id, error)
        except Exception as error:  # noqa: BLE001  # of one request
            return self._failed(cached, correlation_id, error)
        batch.is_appended = True
        if batch.leave_queue is not None:
            batch.leave_queue()
        return await reply if isinstance(reply, asyncio.Future) else reply

    def _refused(self, cached: _CachedProduce, correlation_id: int, result: AppendResult) -> list[Buffer]:
        answer = PartitionProduceResponse(cached.topic_partition.partition, result.error)
        fill_refusal(answer, result, cached.log)
        return cached.reply(correlation_id, answer)

    def _failed(self, cached: _CachedProduce, correlation_id: int, error: Exception) -> list[Buffer]:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("request_failed", api="Produce", version=cached.version, error=code.name, exc_info=error)
        return cached.reply(correlation_id, refused_partition(cached.topic_partition.partition, code))

    async def _when_durable(
        self, cached: _CachedProduce, durable_offset: int, reply: ReplyFrame, correlation_id: int
    ) -> ReplyFrame:
        try:
            await cached.log.flushed(durable_offset)
        except StorageError as error:
            return self._failed_log_reply(cached, correlation_id, error)
        return reply

    async def _run_when_durable(
        self, cached: _CachedProduce, end_offset: int, replies: ReplyChunks, correlation_ids: Sequence[int]
    ) -> ReplyFrame:
        try:
            await cached.log.flushed(end_offset)
        except StorageError as error:
            return self._failed_log_replies(cached, correlation_ids, error)
        return replies

    def _failed_log_replies(
        self, cached: _CachedProduce, correlation_ids: Sequence[int], error: StorageError
    ) -> ReplyChunks:
        return [
            chunk
            for correlation_id in correlation_ids
            for chunk in self._failed_log_reply(cached, correlation_id, error)
        ]

    def _failed_log_reply(self, cached: _CachedProduce, correlation_id: int, error: StorageError) -> list[Buffer]:
        code = error_of_missing_log(self._services.topics, cached.topic_partition, cached.log)
        answer = refused_partition(cached.topic_partition.partition, code, str(error))
        return cached.reply(correlation_id, answer)
