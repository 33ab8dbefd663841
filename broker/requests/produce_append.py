"""The batches of one Produce request on their way into their logs: verified, appended and answered together.

How they were read, and what the answer is written as, says the request that is served: one that was decoded
(`produce.py`), or one that is known by its bytes (`produce_topic_templates.py`).
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
"""Refusals of a log that say nothing about it. Source: Kafka's ReplicaManager.appendRecordsToLeader."""


BlockConnection: TypeAlias = Callable[[asyncio.Future[Any]], None]
"""Starts no other request of a connection until one is answered."""


def no_connection_to_block(_: asyncio.Future[Any]) -> None:
    """Where there is no connection."""


class ProduceRefusal(NamedTuple):
    """Of a batch that no log has taken, or of the request as a whole."""

    error: ErrorCode
    message: str | None = None


APPENDED_AT_ONCE_COUNT = 200
"""Batches of a request that are appended in one step: some milliseconds."""
_NOT_APPENDED_YET = ProduceRefusal(ErrorCode.UNKNOWN_SERVER_ERROR)


def refused_partition(partition: int, error: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
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
    """Of a log that has failed, or has gone: to another node, or with its topic."""
    return topics.absence(topic_partition) if log.is_deleted else ErrorCode.KAFKA_STORAGE_ERROR


class PartitionAppend:
    """One partition's batch, and what has become of it.

    durable_offset: the answer waits until the log is durable up to here, exclusive.
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
    """One Produce request being served.

    first_error:  that any of its batches was refused with.
    is_appended:  whether nothing is left to be appended, so that the memory that the batches came in is needed no more.
    has_large_batches: whether some are too large to be checked in one step, or all are too many to be appended in one.
                       They are appended later, and the requests that follow on the connection must wait for that, or
                       they would overtake this one.
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
        self._later: Sequence[PartitionAppend] = ()  # to be appended in later steps, for there are so many
        self._large: list[PartitionAppend] = []  # to be appended when they have been checked in steps
        self._leave_queue: Callable[[], None] | None = None  # lets the producer's next request be verified

    @abstractmethod
    def answer(self) -> ResponseT:
        """The reply, when every batch is durable, or refused."""

    def start(
        self, writes: Sequence[PartitionAppend], transactional: Sequence[PartitionAppend]
    ) -> StartedRequest[ResponseT]:
        """Append, and answer when all of it is durable.

        transactional: of one producer, to be verified where they open a transaction on their partition.
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
                # One that need not be verified any more would overtake those in between.
                unverified = transactional
        self._append()
        if self.has_large_batches:
            return eager.start(self._finish_large(unverified), asyncio.get_running_loop())
        if unverified:
            return self._verify_in_order(unverified)
        self.is_appended = True
        return self.finish()

    def refuse(self, write: PartitionAppend, error: ErrorCode, message: str | None = None) -> None:
        """ResponseT for a batch that it is not there."""
        if self.first_error is ErrorCode.NONE:
            self.first_error = error
        write.outcome = ProduceRefusal(error, message)

    # Verification: a batch that opens a transaction on its partition needs the coordinator's word

    def _begin_verifications(self, writes: Sequence[PartitionAppend]) -> list[PartitionAppend]:
        """Those that need verification, each with the guard that proves, at its append, that no marker came in between;
        the others are ready, or refused."""
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
        """Verify, append and answer behind the producer's earlier requests that still wait for the same.

        Without that order, a batch whose verification is repeated would be overtaken by the next one, and its sequence
        refused. Where the coordinator is here and nobody is before this one, all of it happens in this step; else in a
        task, which goes on when the connection is gone, as an append that needs no verification would have happened
        too.
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
        """Check one batch after the other, which takes many steps, and append each in the step after its check.

        Before that, what are merely too many batches for one step are appended in several.
        """
        await asyncio.sleep(0)  # so that the caller, whose memory the batches lie in, can keep it or copy them
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
        """Append what is ready. No await comes between a batch's check and its append."""
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
        """What `_append` does in place, where a call for each batch would count."""
        write.outcome = result
        if result.error is ErrorCode.NONE:
            write.durable_offset = result.last_offset + 1
            self._appended.append(write)
        elif self.first_error is ErrorCode.NONE:
            self.first_error = result.error

    def finish(self) -> eager.MaybeAwaitable[ResponseT]:
        """ResponseT when all that is in the logs is durable.

        The leader is the only replica, so its word and that of all of them come at the same moment: when the batch can
        be read.
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
