"""Append of the batches of one Produce request: they are verified, appended and answered together.

The subclass has read the batches and writes the reply: of a decoded request (`produce.py`), or of a cached one
(`produce_topic_cache.py`).
Source: KIP-98, KIP-890; Kafka's ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias, TypeVar

from fencepost.broker.kernel import eager
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import AppendResult
from fencepost.broker.requests.produce_verification import (
    FIRST_VERSION_OF_TRANSACTION_VERSION_2,
    NOT_CONFIRMED_MESSAGE,
    enter_verification_queue,
    verify,
)
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.compression import TooLargeForOneStepError
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.log.verification import VerificationGuard
    from fencepost.broker.requests.api import Services
    from fencepost.protocol.record_batch import BatchHeader

ResponseT = TypeVar("ResponseT")
StartedRequest: TypeAlias = eager.MaybeAwaitable[ResponseT] | asyncio.Future[ResponseT]

_ANSWERED_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals whose answer leaves out the log start offset. Source: Kafka's ReplicaManager.appendRecordsToLeader."""


BlockConnection: TypeAlias = Callable[[asyncio.Future[Any]], None]
"""Lets no other request of a connection start until one is answered."""


def no_connection_to_block(_: asyncio.Future[Any]) -> None:
    """Do nothing: there is no connection."""


class ProduceRefusal(NamedTuple):
    """Refusal of a batch that was not appended, or of the whole request."""

    error: ErrorCode
    message: str | None = None


APPENDED_AT_ONCE_COUNT = 200
"""The most batches of a request that are appended in one step: some milliseconds."""
_NOT_APPENDED_YET = ProduceRefusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def refused_partition(partition: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    """The answer for a batch that was not appended."""
    return PartitionProduceResponse(
        index=partition,
        error_code=error,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        record_errors=[],
        error_message=message,
    )


def fill_refusal(answer: PartitionProduceResponse, result: AppendResult, log: PartitionLog) -> None:
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


def error_of_missing_log(topics: Topics, topic_partition: TopicPartition, log: PartitionLog) -> ErrorCode:
    """The error for a log that has failed, was deleted with its topic, or has moved to another node."""
    return topics.error_of_absent_log(topic_partition) if log.is_deleted else ErrorCode.KAFKA_STORAGE_ERROR


class PartitionAppend:
    """The batch of one partition, and the outcome of its append.

    durable_offset: the answer waits until the log is durable up to this offset, exclusive.
    """

    __slots__ = ("durable_offset", "guard", "header", "log", "outcome", "records")

    def __init__(self, log: PartitionLog, records: memoryview, header: BatchHeader) -> None:
        self.log = log
        self.records = records
        self.header = header
        self.guard: VerificationGuard | None = None
        self.outcome: AppendResult | ProduceRefusal = _NOT_APPENDED_YET
        self.durable_offset = 0

    def answer(self) -> PartitionProduceResponse:
        outcome = self.outcome
        index = self.log.topic_partition.partition
        if isinstance(outcome, ProduceRefusal):
            return refused_partition(index, outcome.error, outcome.message)
        answer = PartitionProduceResponse(
            index, outcome.error, outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset
        )
        if outcome.error is not ErrorCode.NONE:
            answer.log_start_offset = -1
            fill_refusal(answer, outcome, self.log)
        return answer


class ProduceAppend(ABC, Generic[ResponseT]):
    """The append of one Produce request.

    first_error:  of the first batch that was refused.
    is_appended:  whether nothing is left to be appended, so that the batches' memory is free.
    has_large_batches: whether a batch is too large to be checked in one step, or there are too many for one step. They
                       are appended later, and later requests of the connection must wait, or they would overtake this
                       one.
    """

    __slots__ = (
        "_appended",
        "_large",
        "_later",
        "_leave_queue",
        "_ready",
        "_services",
        "_transactional_id",
        "_version",
        "first_error",
        "has_large_batches",
        "is_appended",
    )

    def __init__(self, services: Services, transactional_id: str | None, version: int) -> None:
        self._services = services
        self._transactional_id = transactional_id
        self._version = version
        self._ready: Sequence[PartitionAppend] = ()  # to be appended
        self._appended: list[PartitionAppend] = []
        self.first_error = ErrorCode.NONE
        self.is_appended = False
        self.has_large_batches = False
        self._later: Sequence[PartitionAppend] = ()  # appended in later steps, as they are too many for one
        self._large: list[PartitionAppend] = []  # appended when they have been checked in slices
        self._leave_queue: Callable[[], None] | None = None  # starts the verification of the producer's next request

    @abstractmethod
    def answer(self) -> ResponseT:
        """Build the reply, when every batch is durable or refused."""

    def start(
        self, writes: Sequence[PartitionAppend], transactional: Sequence[PartitionAppend]
    ) -> StartedRequest[ResponseT]:
        """Append, and answer when all batches are durable.

        transactional: of one producer; those that open a transaction on their partition are verified.
        """
        self._ready = writes
        if len(writes) > APPENDED_AT_ONCE_COUNT and not transactional:
            self._ready, self._later = writes[:APPENDED_AT_ONCE_COUNT], writes[APPENDED_AT_ONCE_COUNT:]
            self.has_large_batches = True
        unverified: Sequence[PartitionAppend] = ()
        if transactional:
            predecessor = self._services.produce_verifications.get(transactional[0].header.producer_id)
            if predecessor is None or predecessor.done():
                unverified = self._begin_verifications(transactional)
            else:
                # A batch that needs no verification by now would overtake those in between.
                unverified = transactional
        self._append()
        if self.has_large_batches:
            return eager.start(self._finish_large(unverified), asyncio.get_running_loop())
        if unverified:
            return self._verify_in_order(unverified)
        self.is_appended = True
        return self.finish()

    def refuse(self, write: PartitionAppend, error: ErrorCode, message: str | None = None) -> None:
        """Record that a batch is refused."""
        if self.first_error is ErrorCode.NONE:
            self.first_error = error
        write.outcome = ProduceRefusal(error, message)

    # Verification of batches that open a transaction on their partition

    def _begin_verifications(self, writes: Sequence[PartitionAppend]) -> list[PartitionAppend]:
        """Return the batches that need verification, each with the guard that proves, at its append, that no marker
        came in between; the others become ready, or are refused."""
        ready = [*self._ready]
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
                ready.append(write)
            elif isinstance(guard, ErrorCode):
                self.refuse(write, guard)
            else:
                write.guard = guard
                unverified.append(write)
        self._ready = ready
        return unverified

    def _verify_in_order(self, unverified: Sequence[PartitionAppend]) -> StartedRequest[ResponseT]:
        """Verify, append and answer after the producer's earlier requests that wait for verification.

        Without that order, the next batch would overtake one whose verification is retried, and its sequence would be
        refused. If the coordinator is on this node and no request is ahead, all happens in this step; else in a task,
        which goes on when the connection is gone, as an append without verification would have happened too.
        """
        producer_id = unverified[0].header.producer_id
        predecessor = self._services.produce_verifications.get(producer_id)
        if predecessor is None:
            verified = self._request_verification(unverified)
            if isinstance(verified, eager.Finished):  # and so confirmed
                return self._append_verified(unverified)
            rest = self._append_when_verified(unverified, verified)
        else:
            rest = self._verify_behind(predecessor, unverified)
        started = eager.start(rest, asyncio.get_running_loop())
        if not self.is_appended and isinstance(started, asyncio.Future):
            self._leave_queue = enter_verification_queue(self._services, producer_id, started)
        return started

    def _request_verification(
        self, unverified: Sequence[PartitionAppend]
    ) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        header = unverified[0].header
        return verify(
            self._services,
            [write.log.topic_partition for write in unverified],
            transactional_id=self._transactional_id or "",
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            version=self._version,
        )

    async def _verify_behind(self, predecessor: asyncio.Future[None], writes: Sequence[PartitionAppend]) -> ResponseT:
        if not predecessor.done():
            await asyncio.wait([predecessor])
        # What was appended meanwhile may have opened the transaction on these partitions too.
        unverified = self._begin_verifications(writes)
        if unverified:
            return await self._append_when_verified(unverified, self._request_verification(unverified))
        return await self._append_verified(())

    async def _append_when_verified(
        self, unverified: Sequence[PartitionAppend], verified: Awaitable[dict[TopicPartition, ErrorCode]]
    ) -> ResponseT:
        errors = await verified
        confirmed = []
        for write in unverified:
            error = errors[write.log.topic_partition]
            if error is ErrorCode.NONE:
                confirmed.append(write)
            else:
                self.refuse(write, error, NOT_CONFIRMED_MESSAGE)
        return await self._append_verified(confirmed)

    def _append_verified(self, confirmed: Sequence[PartitionAppend]) -> eager.MaybeAwaitable[ResponseT]:
        self._ready = [*self._ready, *confirmed] if self._ready else confirmed
        self._append()
        if self._large:
            return self._finish_large()
        self.is_appended = True
        if self._leave_queue is not None:
            self._leave_queue()
        return self.finish()

    # Batches that are too large to be checked in one step

    async def _finish_large(self, unverified: Sequence[PartitionAppend] = ()) -> ResponseT:
        await self._append_large()
        if unverified:
            return await self._verify_in_order(unverified)
        return await self._append_verified(())

    async def _append_large(self) -> None:
        """Check one batch after the other in slices, and append each in the step after its check.

        Before that, append the batches that are merely too many for one step.
        """
        await asyncio.sleep(0)  # so that the caller can pin the batches' memory, or copy them
        while self._later:
            self._ready, self._later = self._later[:APPENDED_AT_ONCE_COUNT], self._later[APPENDED_AT_ONCE_COUNT:]
            self._append()
            await asyncio.sleep(0)
        while self._large:
            write = self._large.pop(0)
            try:
                result = await self._check_and_append(write)
            except StorageError as error:
                self._log_failed(write, error)
            else:
                self._note_appended(write, result)

    async def _check_and_append(self, write: PartitionAppend) -> AppendResult:
        """Raises StorageError."""
        services = self._services
        while True:
            rules = write.log.append_rules()
            now_ms = services.clock.now_ms()
            checked = await services.large_batches.check(write.records, write.header, rules, now_ms)
            if isinstance(checked, AppendResult):
                return checked
            now_ms = services.clock.now_ms()
            try:
                return write.log.append(
                    write.records, now_ms=now_ms, header=write.header, guard=write.guard, checked=checked
                )
            except TooLargeForOneStepError:
                continue  # the topic's settings have changed meanwhile

    # Appending and answering

    def _append(self) -> None:
        """Append the ready batches. No await comes between a batch's check and its append."""
        if not self._ready:
            return
        now_ms = self._services.clock.now_ms()
        appended = self._appended
        for write in self._ready:
            try:
                result = write.log.append(write.records, now_ms=now_ms, header=write.header, guard=write.guard)
            except StorageError as error:
                self._log_failed(write, error)
                continue
            except TooLargeForOneStepError:
                self._large.append(write)
                self.has_large_batches = True
                continue
            write.outcome = result
            if result.error is NO_ERROR:
                write.durable_offset = result.last_offset + 1
                appended.append(write)
            elif self.first_error is NO_ERROR:
                self.first_error = result.error
        self._ready = ()

    def _note_appended(self, write: PartitionAppend, result: AppendResult) -> None:
        """Record an append. `_append` does this inline, to save a call for each batch."""
        write.outcome = result
        if result.error is ErrorCode.NONE:
            write.durable_offset = result.last_offset + 1
            self._appended.append(write)
        elif self.first_error is ErrorCode.NONE:
            self.first_error = result.error

    def finish(self) -> eager.MaybeAwaitable[ResponseT]:
        """Answer when all appended batches are durable.

        The leader is the only replica, so acks=1 and acks=all are answered at the same moment: when the batch can be
        read.
        """
        for write in self._appended:
            if write.log.high_watermark < write.durable_offset:
                return self._finish_when_durable()
        return eager.Finished(self.answer())

    async def _finish_when_durable(self) -> ResponseT:
        for write in self._appended:
            try:
                await write.log.flushed(write.durable_offset)
            except StorageError as error:
                self._log_failed(write, error)
        return self.answer()

    def _log_failed(self, write: PartitionAppend, error: StorageError) -> None:
        self.refuse(
            write, error_of_missing_log(self._services.topics, write.log.topic_partition, write.log), str(error)
        )
