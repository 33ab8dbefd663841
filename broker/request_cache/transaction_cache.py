"""Caches of AddPartitionsToTxn and EndTxn requests that repeat an earlier one of their connection but for the epoch.

A transactional producer adds the same partitions to each transaction and ends all in the same way. Only the correlation
id changes, and the epoch in transaction version 2, where no client adds partitions. The caches find such a request by
its bytes. Neither is the request decoded nor its reply encoded field by field. The partitions are looked up again if
the metadata have changed; the coordinator decides as for any request. All other requests go to `transactions.py`, which
gives the same reply, byte by byte. Authorization, when added, has to be checked here as well.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

from fencepost.broker.handlers.transactions import (
    END_TXN_TRANSACTION_VERSION_2,
    FIRST_BATCH_VERSION,
    add_partitions_to_txn_failed,
    end_txn_failed,
    partitions_of,
    unwritable_partitions,
)
from fencepost.broker.kernel import eager
from fencepost.broker.kernel.events import get_logger
from fencepost.broker.request_cache.shape_cache import ShapeCache, VaryingField
from fencepost.broker.transaction.metadata import Producer
from fencepost.broker.transaction.shard import ProducerReply
from fencepost.broker.transaction.state_machine import TransactionVersion
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.framing import LENGTH_BYTES, response_frame
from fencepost.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
)
from fencepost.protocol.schema import encode

if TYPE_CHECKING:
    from fencepost.broker.requests.api import Services
    from fencepost.broker.requests.long_polls import ReplyFrame

MAXIMUM_COUNT = 64
"""Cached requests of one connection; when it is reached, all are forgotten, as epochs and partitions change."""

_REPLY_START = Struct(">ii")
"""Length and correlation id."""
_EPOCH = "h"
_EPOCH_AND_BEHIND_BYTES = 4
"""From the epoch to the end of an EndTxn: epoch, `committed`, and no tagged fields."""
_NEXT_PRODUCER = Struct(">qh")
"""The adjacent fields that vary in a reply to EndTxn."""
_PLACEHOLDER_PRODUCER = (0x0123456789ABCDEF, 0x1234)

log = get_logger(__name__)


class _CachedTransactionRequest(ABC):
    """A request that repeats, and the bytes of its reply without error, after the correlation id.

    `submit` is given the values of the `varying_fields`.
    """

    __slots__ = ("reply_end", "reply_size_bytes", "version")

    api_name: ClassVar[str]

    def __init__(self, version: int) -> None:
        self.version = version
        reply = b"".join(response_frame(0, self.answer(ErrorCode.NONE), version))
        self.reply_end = reply[_REPLY_START.size :]
        self.reply_size_bytes = len(reply) - LENGTH_BYTES

    def varying_fields(self, frame: memoryview, body_position: int) -> Sequence[VaryingField] | None:
        """The varying fields of the frame; None if the frame is not the request's own encoding."""
        return ()

    @abstractmethod
    def submit(self, services: Services, varying: tuple[int, ...]) -> eager.MaybeAwaitable[ErrorCode | ProducerReply]:
        """Pass the request to the coordinator."""

    @abstractmethod
    def answer(self, error: ErrorCode) -> AddPartitionsToTxnResponse | EndTxnResponse:
        """Build the response with one error for the whole request."""

    def is_current(self, services: Services) -> bool:
        """Whether the coordinator may still get this request."""
        return True

    def reply(self, correlation_id: int, decided: ErrorCode | ProducerReply) -> ReplyFrame:
        """Encode the coordinator's decision as a frame."""
        error = decided.error if isinstance(decided, ProducerReply) else decided
        if error is NO_ERROR:
            return (_REPLY_START.pack(self.reply_size_bytes, correlation_id) + self.reply_end,)
        return response_frame(correlation_id, self.answer(error), self.version)

    def failed(self, correlation_id: int, error: Exception) -> ReplyFrame:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("request_failed", api=self.api_name, version=self.version, error=code.name, exc_info=error)
        return self.reply(correlation_id, code)


class _AddPartitions(_CachedTransactionRequest):
    __slots__ = ("metadata_version", "partitions", "producer", "request")

    api_name = "AddPartitionsToTxn"

    def __init__(self, request: AddPartitionsToTxnRequest, version: int) -> None:
        self.request = request
        super().__init__(version)
        self.producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        self.partitions = partitions_of(request.v3_and_below_topics)
        self.metadata_version = -1

    def submit(self, services: Services, _: tuple[int, ...]) -> eager.MaybeAwaitable[ErrorCode | ProducerReply]:
        return services.transactions.add_partitions(
            self.request.v3_and_below_transactional_id, self.producer, self.partitions, version=TransactionVersion.V1
        )

    def answer(self, error: ErrorCode) -> AddPartitionsToTxnResponse:
        return add_partitions_to_txn_failed(self.request, error, self.version)

    def is_current(self, services: Services) -> bool:
        """Whether the partitions still exist: a topic may have been created again with fewer."""
        topics = services.topics
        if topics.metadata.version != self.metadata_version:
            if unwritable_partitions(topics, self.request.v3_and_below_topics):
                return False
            self.metadata_version = topics.metadata.version
        return True


class _EndTransaction(_CachedTransactionRequest):
    __slots__ = ("producer", "request")

    api_name = "EndTxn"

    def __init__(self, request: EndTxnRequest, version: int) -> None:
        self.request = request
        super().__init__(version)
        self.producer = Producer(request.producer_id, request.producer_epoch)

    def submit(self, services: Services, _: tuple[int, ...]) -> eager.MaybeAwaitable[ErrorCode | ProducerReply]:
        request = self.request
        return services.transactions.end_transaction(
            request.transactional_id, self.producer, committed=request.committed, version=TransactionVersion.V1
        )

    def answer(self, error: ErrorCode) -> EndTxnResponse:
        return end_txn_failed(self.request, error, self.version)


class _EndTransactionOfVersion2(_EndTransaction):
    """Each transaction has its own epoch; the reply reports the next one."""

    __slots__ = ("reply_start", "reply_struct")

    def __init__(self, request: EndTxnRequest, version: int) -> None:
        super().__init__(request, version)
        producer_id, producer_epoch = _PLACEHOLDER_PRODUCER
        placeholder = EndTxnResponse(producer_id=producer_id, producer_epoch=producer_epoch)
        reply = b"".join(response_frame(0, placeholder, version))[_REPLY_START.size :]
        self.reply_start, _, self.reply_end = reply.partition(_NEXT_PRODUCER.pack(*_PLACEHOLDER_PRODUCER))
        self.reply_struct = Struct(f">ii{len(self.reply_start)}sqh{len(self.reply_end)}s")

    def varying_fields(self, frame: memoryview, body_position: int) -> Sequence[VaryingField] | None:
        if frame[body_position:] != encode(self.request, self.version):
            return None
        return (VaryingField(len(frame) - _EPOCH_AND_BEHIND_BYTES, _EPOCH),)

    def submit(self, services: Services, varying: tuple[int, ...]) -> eager.MaybeAwaitable[ErrorCode | ProducerReply]:
        request = self.request
        (producer_epoch,) = varying
        return services.transactions.end_transaction(
            request.transactional_id,
            Producer(request.producer_id, producer_epoch),
            committed=request.committed,
            version=TransactionVersion.V2,
        )

    def reply(self, correlation_id: int, decided: ErrorCode | ProducerReply) -> ReplyFrame:
        if isinstance(decided, ProducerReply) and decided.error is ErrorCode.NONE:
            _, producer_id, producer_epoch = decided
            size_bytes = self.reply_size_bytes
            start, end = self.reply_start, self.reply_end
            return (self.reply_struct.pack(size_bytes, correlation_id, start, producer_id, producer_epoch, end),)
        return super().reply(correlation_id, decided)


class _TransactionRequestCache(ABC):
    """The cached requests of one API on one connection."""

    __slots__ = ("_loop", "_services", "_shapes")

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._shapes = ShapeCache[_CachedTransactionRequest](MAXIMUM_COUNT)

    def __len__(self) -> int:
        return len(self._shapes)

    @abstractmethod
    def _new_cached(self, request: Any, version: int) -> _CachedTransactionRequest | None:
        """Make the cached form of a request; None if none can repeat it."""

    def remember(self, frame: memoryview, body_position: int, request: Any, version: int) -> None:
        """Remember a decoded request, if others like it may follow."""
        if not self._shapes.should_remember(frame):
            return
        cached = self._new_cached(request, version)
        if cached is None or not cached.is_current(self._services) or not self._shapes.make_room(version):
            return
        varying_fields = cached.varying_fields(frame, body_position)
        if varying_fields is not None:
            self._shapes.remember(frame, varying_fields, cached)

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> ReplyFrame | asyncio.Future[ReplyFrame]:
        """Start a cached request: returns its reply, or a future of it. None, and nothing is done, for any other."""
        found = self._shapes.find(frame, version)
        if found is None:
            return None
        cached, varying = found
        if not cached.is_current(self._services):
            self._shapes.forget(frame)
            return None
        try:
            decided = cached.submit(self._services, varying)
        except Exception as error:  # noqa: BLE001  # of one request
            return cached.failed(correlation_id, error)
        if isinstance(decided, eager.Finished):
            return cached.reply(correlation_id, decided.result)
        started = eager.start(self._answer(cached, decided, correlation_id), self._loop)
        return started.result if isinstance(started, eager.Finished) else started

    async def _answer(
        self, cached: _CachedTransactionRequest, decided: Awaitable[ErrorCode | ProducerReply], correlation_id: int
    ) -> ReplyFrame:
        try:
            reply = await decided
        except Exception as error:  # noqa: BLE001  # of one request
            return cached.failed(correlation_id, error)
        return cached.reply(correlation_id, reply)


class AddPartitionsToTxnCache(_TransactionRequestCache):
    """The cached AddPartitionsToTxn requests of one connection."""

    __slots__ = ()

    def _new_cached(self, request: AddPartitionsToTxnRequest, version: int) -> _CachedTransactionRequest | None:
        return _AddPartitions(request, version) if version < FIRST_BATCH_VERSION else None


class EndTxnCache(_TransactionRequestCache):
    """The cached EndTxn requests of one connection."""

    __slots__ = ()

    def _new_cached(self, request: EndTxnRequest, version: int) -> _CachedTransactionRequest | None:
        is_of_version_2 = version >= END_TXN_TRANSACTION_VERSION_2
        return _EndTransactionOfVersion2(request, version) if is_of_version_2 else _EndTransaction(request, version)
