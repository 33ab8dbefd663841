"""AddPartitionsToTxn and EndTxn requests that are the same as an earlier one of their connection.

A transactional producer adds the same partitions to each of its transactions and ends them in the same way: nothing but
the correlation id changes from one to the next. Such a request is known by its bytes, so that it need not be decoded
again, nor its reply be encoded field by field. Whether the topics still have the partitions is looked up; all that the
coordinator decides, it decides as ever. Any other request goes the way of `transactions.py`, which answers the same,
byte by byte.

Only requests of transaction version 1: in version 2 the epoch, and with it EndTxn, is another one each time, and no
client adds partitions. Who adds authorization has to ask for it here as well.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar

import structlog

from broker import eager
from broker.handlers.request_shapes import RequestShapes
from broker.handlers.transactions import (
    END_TXN_TRANSACTION_VERSION_2,
    FIRST_BATCH_VERSION,
    add_partitions_to_txn_failed,
    end_txn_failed,
    partitions_of,
    unwritable_partitions,
)
from broker.transaction.coordinator import ProducerReply
from broker.transaction.metadata import Producer
from broker.transaction.state_machine import TransactionVersion
from protocol.errors import NO_ERROR, ErrorCode
from protocol.framing import LENGTH_BYTES, response_frame
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
)

if TYPE_CHECKING:
    from broker.handlers.api import Services
    from broker.long_polls import Reply

MAXIMUM_COUNT = 64
"""Requests of one connection that are remembered; then it begins anew, as epochs and partitions come and go."""

_REPLY_START = Struct(">ii")
"""Length and correlation id."""

log = structlog.get_logger(__name__)


class _Template(ABC):
    """What is sent again and again, and the reply when all is well, behind the correlation id."""

    __slots__ = ("reply_end", "reply_size_bytes", "version")

    api_name: ClassVar[str]

    def __init__(self, version: int) -> None:
        self.version = version
        reply = b"".join(response_frame(0, self.answer(ErrorCode.NONE), version))
        self.reply_end = reply[_REPLY_START.size :]
        self.reply_size_bytes = len(reply) - LENGTH_BYTES

    @abstractmethod
    def ask(self, services: Services) -> eager.Begun[ErrorCode | ProducerReply]:
        """Have the coordinator do it."""

    @abstractmethod
    def answer(self, error: ErrorCode) -> AddPartitionsToTxnResponse | EndTxnResponse:
        """The response with one error for all of it."""

    def is_current(self, services: Services) -> bool:
        """Whether the request is still one for the coordinator."""
        return True

    def reply(self, correlation_id: int, decided: ErrorCode | ProducerReply) -> Reply:
        """What the coordinator has decided, as a frame."""
        error = decided.error if isinstance(decided, ProducerReply) else decided
        if error is NO_ERROR:
            return (_REPLY_START.pack(self.reply_size_bytes, correlation_id) + self.reply_end,)
        return response_frame(correlation_id, self.answer(error), self.version)

    def failed(self, correlation_id: int, error: Exception) -> Reply:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        log.error("request_failed", api=self.api_name, version=self.version, error=code.name, exc_info=error)
        return self.reply(correlation_id, code)


class _AddPartitions(_Template):
    __slots__ = ("metadata_version", "partitions", "producer", "request")

    api_name = "AddPartitionsToTxn"

    def __init__(self, request: AddPartitionsToTxnRequest, version: int) -> None:
        self.request = request
        super().__init__(version)
        self.producer = Producer(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        self.partitions = partitions_of(request.v3_and_below_topics)
        self.metadata_version = -1

    def ask(self, services: Services) -> eager.Begun[ErrorCode | ProducerReply]:
        return services.transactions.add_partitions(
            self.request.v3_and_below_transactional_id, self.producer, self.partitions, version=TransactionVersion.V1
        )

    def answer(self, error: ErrorCode) -> AddPartitionsToTxnResponse:
        return add_partitions_to_txn_failed(self.request, error, self.version)

    def is_current(self, services: Services) -> bool:
        """Topics may have gone, and come again with fewer partitions."""
        topics = services.topics
        if topics.metadata.version != self.metadata_version:
            if unwritable_partitions(topics, self.request.v3_and_below_topics):
                return False
            self.metadata_version = topics.metadata.version
        return True


class _EndTransaction(_Template):
    __slots__ = ("producer", "request")

    api_name = "EndTxn"

    def __init__(self, request: EndTxnRequest, version: int) -> None:
        self.request = request
        super().__init__(version)
        self.producer = Producer(request.producer_id, request.producer_epoch)

    def ask(self, services: Services) -> eager.Begun[ErrorCode | ProducerReply]:
        request = self.request
        return services.transactions.end_transaction(
            request.transactional_id, self.producer, committed=request.committed, version=TransactionVersion.V1
        )

    def answer(self, error: ErrorCode) -> EndTxnResponse:
        return end_txn_failed(self.request, error, self.version)


class _RepeatedRequests(ABC):
    """Those of one API on one connection."""

    __slots__ = ("_loop", "_services", "_shapes")

    version_limit: ClassVar[int]  # from this version on no request is like another

    def __init__(self, services: Services, loop: asyncio.AbstractEventLoop) -> None:
        self._services = services
        self._loop = loop
        self._shapes = RequestShapes[_Template](MAXIMUM_COUNT)

    def __len__(self) -> int:
        return len(self._shapes)

    @abstractmethod
    def _template(self, request: Any, version: int) -> _Template: ...

    def learn(self, frame: memoryview, body_position: int, request: Any, version: int) -> None:
        """Remember a request that was decoded, if others like it may follow."""
        if version >= self.version_limit or not self._shapes.takes(frame):
            return
        template = self._template(request, version)
        if template.is_current(self._services) and self._shapes.make_room(version):
            self._shapes.remember(frame, (), template)

    def dispatch(self, frame: memoryview, version: int, correlation_id: int) -> Reply | asyncio.Future[Reply]:
        """Start a request that is known: its reply, or what ends in it. None, and nothing is done, for any other."""
        template = self._shapes.find_same(frame, version)
        if template is None:
            return None
        if not template.is_current(self._services):
            self._shapes.forget(frame)
            return None
        try:
            begun = template.ask(self._services)
        except Exception as error:  # noqa: BLE001  # of one request
            return template.failed(correlation_id, error)
        if isinstance(begun, eager.Finished):
            return template.reply(correlation_id, begun.result)
        started = eager.start(self._answer(template, begun, correlation_id), self._loop)
        return started.result if isinstance(started, eager.Finished) else started

    async def _answer(
        self, template: _Template, begun: Awaitable[ErrorCode | ProducerReply], correlation_id: int
    ) -> Reply:
        try:
            reply = await begun
        except Exception as error:  # noqa: BLE001  # of one request
            return template.failed(correlation_id, error)
        return template.reply(correlation_id, reply)


class AddPartitionsToTxnTemplates(_RepeatedRequests):
    """Those of one connection."""

    __slots__ = ()

    version_limit = FIRST_BATCH_VERSION

    def _template(self, request: AddPartitionsToTxnRequest, version: int) -> _Template:
        return _AddPartitions(request, version)


class EndTxnTemplates(_RepeatedRequests):
    """Those of one connection."""

    __slots__ = ()

    version_limit = END_TXN_TRANSACTION_VERSION_2

    def _template(self, request: EndTxnRequest, version: int) -> _Template:
        return _EndTransaction(request, version)
