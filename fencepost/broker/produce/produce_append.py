"""Append of the batches of one Produce request: they are verified, appended and answered together.

Source: KIP-98, KIP-890; Kafka's ReplicaManager.handleProduceAppend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fencepost.broker.kernel import eager
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.log.log_types import AppendResult
from fencepost.broker.log.producers.verification import ANSWERED_AT_ONCE
from fencepost.broker.produce.produce_verification import (
    FIRST_VERSION_OF_TRANSACTION_VERSION_2,
    NOT_CONFIRMED_MESSAGE,
    enter_verification_queue,
    verify,
)
from fencepost.broker.requests.api import CloseConnection, UsualAnswer
from fencepost.broker.requests.leader_hints import current_leader, endpoints_of
from fencepost.broker.storage.disk import StorageError
from fencepost.protocol.compression import TooLargeForOneStepError
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from fencepost.broker.hosting.topics import Topics
    from fencepost.broker.log.partition_log import PartitionLog
    from fencepost.broker.log.producers.verification import VerificationGuard
    from fencepost.broker.requests.api import RequestContext, Services
    from fencepost.protocol.record_batch import BatchHeader

ProduceAnswer: TypeAlias = UsualAnswer | ProduceResponse | None
"""None for a request that is not acknowledged."""
StartedProduce: TypeAlias = eager.MaybeAwaitable[ProduceAnswer] | asyncio.Future[ProduceAnswer]

_ANSWERED_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Refusals whose answer leaves out the log start offset. Source: Kafka's ReplicaManager.appendRecordsToLeader."""


class ProduceRefusal(NamedTuple):
    """Refusal of a batch that was not appended, or of the whole request."""

    error: ErrorCode
    message: str | None = None


ACKS_NONE = 0
ACKS_LEADER = 1
ACKS_ALL = -1

FIRST_VERSION_WITH_LEADERS = 10
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


def name_leaders(services: Services, response: ProduceResponse, version: int) -> None:
    """Name the leaders of the partitions that are led elsewhere, with their addresses.

    Source: KIP-951; Kafka's KafkaApis.handleProduceRequest.
    """
    if version < FIRST_VERSION_WITH_LEADERS:
        return
    leaders = set()
    for topic in response.responses:
        name = topic.name
        if not name and (metadata := services.topics.metadata.get_by_id(topic.topic_id)) is not None:
            name = metadata.name
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                answer.current_leader = current_leader(services, name, answer.index)
                leaders.add(answer.current_leader.leader_id)
    response.node_endpoints = endpoints_of(services, leaders)


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
    return (
        topics.error_of_absent_log(topic_partition)
        if log.is_deleted or log.is_moving
        else ErrorCode.KAFKA_STORAGE_ERROR
    )


class NotInTimeError(Exception):
    """Records are not durable within the time that their client has given the broker."""


async def flushed_in_time(log: PartitionLog, end_offset: int, timeout_s: float) -> None:
    """Return when a log is durable up to an offset. Raises NotInTimeError, and StorageError.

    Uses no `asyncio.timeout`: it may run in the first step of an eager coroutine.
    """
    waiting = log.flushed(end_offset)
    if isinstance(waiting, asyncio.Future):
        done, _ = await asyncio.wait([waiting], timeout=max(0.0, timeout_s))
        if not done:
            waiting.cancel()
            raise NotInTimeError("the records are not committed yet; they may be later")
    await waiting


class PartitionAppend:
    """The batch of one partition, and the outcome of its append.

    guard: the verification guard of a batch that opens a transaction on the partition.
    """

    __slots__ = ("guard", "header", "log", "outcome", "records")

    def __init__(self, log: PartitionLog, records: memoryview, header: BatchHeader) -> None:
        self.log = log
        self.records = records
        self.header = header
        self.guard: VerificationGuard | None = None
        self.outcome: AppendResult | ProduceRefusal = _NOT_APPENDED_YET

    def keep_guard(self, transactional_id: str) -> None:
        """Get a guard in place of ANSWERED_AT_ONCE: the batch is not appended in this step."""
        header = self.header
        self.guard = self.log.keep_verification(
            header.producer_id, header.producer_epoch, header.base_sequence, transactional_id
        )

    def refused_by_coordinator(self, error: ErrorCode) -> None:
        """Withdraw the guard of a transactional id that the producer id does not belong to."""
        if self.guard is not None and error is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            self.log.withdraw_verification(self.header.producer_id, self.guard)

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


class ProduceAppend:
    """The append of one Produce request.

    answers:      the append or the refusal of each partition, in the order of the request.
    writes:       those of the appends that need no verification.
    first_error:  the error of the first batch that was refused.
    is_appended:  whether nothing is left to be appended, so that the batches' memory is free.
    has_large_batches: whether a batch is too large to be checked in one step, or there are too many for one step. They
                       are appended later, and later requests of the connection must wait, or they would overtake this
                       one.
    """

    first_error = NO_ERROR
    is_appended = False
    has_large_batches = False
    _later: Sequence[PartitionAppend] = ()  # appended in later steps, as they are too many for one
    _leave_queue: Callable[[], None] | None = None  # starts the verification of the producer's next request

    def __init__(self, context: RequestContext, request: ProduceRequest) -> None:
        self._context = context
        self._services = context.services
        self._request = request
        self._transactional_id = request.transactional_id or ""
        self.answers: list[PartitionAppend | PartitionProduceResponse] = []
        self.writes: list[PartitionAppend] = []
        self._awaited: list[PartitionAppend] = []  # appended, and not durable in that step
        self._large: list[PartitionAppend] = []  # appended when they have been checked in slices

    def refused(self, partition: int, refusal: ProduceRefusal) -> PartitionProduceResponse:
        """Record that a batch is refused before its log is asked; return its answer."""
        if self.first_error is NO_ERROR:
            self.first_error = refusal.error
        return refused_partition(partition, refusal.error, refusal.message)

    def refuse(self, write: PartitionAppend, error: ErrorCode, message: str | None = None) -> None:
        """Record that a batch is refused."""
        if self.first_error is NO_ERROR:
            self.first_error = error
        write.outcome = ProduceRefusal(error, message)

    def start(self, transactional: Sequence[PartitionAppend]) -> StartedProduce:
        """Append, and answer when all batches are durable.

        transactional: appends of one producer; those that open a transaction on their partition are verified.
        """
        ready: Sequence[PartitionAppend] = self.writes
        unverified: Sequence[PartitionAppend] = ()
        if transactional:
            predecessor = self._services.verifier.waiting.get(self._transactional_id)
            if predecessor is None or predecessor.done():
                confirmed, unverified = self._begin_verifications(transactional, in_this_step=True)
                ready = [*ready, *confirmed] if ready else confirmed
            else:
                # A batch that needs no verification by now would overtake those in between.
                unverified = transactional
        elif len(ready) > APPENDED_AT_ONCE_COUNT:
            ready, self._later = ready[:APPENDED_AT_ONCE_COUNT], ready[APPENDED_AT_ONCE_COUNT:]
            self.has_large_batches = True
        self._append(ready)
        if self.has_large_batches:
            return eager.start(self._finish_large(unverified), asyncio.get_running_loop())
        if unverified:
            return self._verify_in_order(unverified)
        self.is_appended = True
        return self.finish()

    # Verification of batches that open a transaction on their partition

    def _begin_verifications(
        self, writes: Sequence[PartitionAppend], *, in_this_step: bool = False
    ) -> tuple[list[PartitionAppend], list[PartitionAppend]]:
        """Return the batches that are ready, and those that need verification, each with the guard that proves, at its
        append, that no marker came in between. The others are refused.

        in_this_step: whether those that are ready are appended in this step.
        """
        ready = []
        unverified = []
        is_transaction_version_2 = self._context.api_version >= FIRST_VERSION_OF_TRANSACTION_VERSION_2
        transactional_id = self._transactional_id
        for write in writes:
            header = write.header
            producer_id, producer_epoch = header.producer_id, header.producer_epoch
            guard = write.log.begin_verification(
                producer_id,
                producer_epoch,
                header.base_sequence,
                transaction_version_2=is_transaction_version_2,
                transactional_id=transactional_id,
                in_this_step=in_this_step,
            )
            if guard is None:
                ready.append(write)
            elif isinstance(guard, ErrorCode):
                self.refuse(write, guard)
            else:
                write.guard = guard
                if guard is ANSWERED_AT_ONCE:
                    if self._services.verifier.is_confirmed(
                        transactional_id, producer_id, producer_epoch, write.log.topic_partition
                    ):
                        ready.append(write)
                        continue
                    write.keep_guard(transactional_id)
                unverified.append(write)
        return ready, unverified

    def _verify_in_order(self, unverified: Sequence[PartitionAppend]) -> StartedProduce:
        """Verify, append and answer after the producer's earlier requests that wait for verification.

        Without that order, the next batch would overtake one whose verification is retried, and its sequence would be
        refused. If the coordinator is on this node and no request is ahead, all happens in this step; else in a task,
        which continues after the connection has closed, as an append without verification would have happened, too.
        """
        predecessor = self._services.verifier.waiting.get(self._transactional_id)
        if predecessor is None:
            verified = self._request_verification(unverified)
            if isinstance(verified, eager.Finished):  # and so confirmed
                return self._append_verified(unverified)
            rest = self._append_when_verified(unverified, verified)
        else:
            rest = self._verify_behind(predecessor, unverified)
        started = eager.start(rest, asyncio.get_running_loop())
        if not self.is_appended and isinstance(started, asyncio.Future):
            self._leave_queue = enter_verification_queue(self._services, self._transactional_id, started)
        return started

    def _request_verification(
        self, unverified: Sequence[PartitionAppend]
    ) -> eager.MaybeAwaitable[dict[TopicPartition, ErrorCode]]:
        header = unverified[0].header
        return verify(
            self._services,
            [write.log.topic_partition for write in unverified],
            transactional_id=self._transactional_id,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            version=self._context.api_version,
        )

    async def _verify_behind(
        self, predecessor: asyncio.Future[None], writes: Sequence[PartitionAppend]
    ) -> ProduceAnswer:
        if not predecessor.done():
            await asyncio.wait([predecessor])
        allowed = []
        for write in writes:
            if self._may_write(write):
                allowed.append(write)
            else:
                self.refuse(write, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        # Appends in the meantime may have opened the transaction on these partitions too.
        ready, unverified = self._begin_verifications(allowed)
        self._append(ready)
        if unverified:
            return await self._append_when_verified(unverified, self._request_verification(unverified))
        return await self._append_verified(())

    def _may_write(self, write: PartitionAppend) -> bool:
        """Whether the client may write now, after a wait: its right may have been revoked meanwhile."""
        gate = self._services.gate
        if gate is None:
            return True
        from fencepost.broker.security.acls import AclOperation, AclResource  # a broker without rights needs none of it

        topic = write.log.topic_partition.topic
        return gate.may(self._context, "Produce", AclOperation.WRITE, AclResource.TOPIC, topic) and gate.may(
            self._context, "Produce", AclOperation.WRITE, AclResource.TRANSACTIONAL_ID, self._transactional_id
        )

    async def _append_when_verified(
        self, unverified: Sequence[PartitionAppend], verified: Awaitable[dict[TopicPartition, ErrorCode]]
    ) -> ProduceAnswer:
        errors = await verified
        confirmed = []
        for write in unverified:
            error = errors[write.log.topic_partition]
            if error is NO_ERROR and not self._may_write(write):
                self.refuse(write, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif error is NO_ERROR:
                confirmed.append(write)
            else:
                self.refuse(write, error, NOT_CONFIRMED_MESSAGE)
                write.refused_by_coordinator(error)
        return await self._append_verified(confirmed)

    def _append_verified(self, confirmed: Sequence[PartitionAppend]) -> eager.MaybeAwaitable[ProduceAnswer]:
        self._append(confirmed)
        if self._large:
            return self._finish_large()
        self.is_appended = True
        if self._leave_queue is not None:
            self._leave_queue()
        return self.finish()

    # Batches that are too large to be checked in one step

    async def _finish_large(self, unverified: Sequence[PartitionAppend] = ()) -> ProduceAnswer:
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
            ready, self._later = self._later[:APPENDED_AT_ONCE_COUNT], self._later[APPENDED_AT_ONCE_COUNT:]
            self._append(ready)
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

    def _append(self, ready: Sequence[PartitionAppend]) -> None:
        """Append batches. No await comes between a batch's check and its append."""
        now_ms = self._services.clock.now_ms()
        for write in ready:
            try:
                result = write.log.append(write.records, now_ms=now_ms, header=write.header, guard=write.guard)
            except StorageError as error:
                if write.guard is ANSWERED_AT_ONCE:
                    write.keep_guard(self._transactional_id)
                self._log_failed(write, error)
            except TooLargeForOneStepError:
                if write.guard is ANSWERED_AT_ONCE:
                    write.keep_guard(self._transactional_id)
                self._large.append(write)
                self.has_large_batches = True
            else:
                self._note_appended(write, result)

    def _note_appended(self, write: PartitionAppend, result: AppendResult) -> None:
        write.outcome = result
        if result.error is NO_ERROR:
            if write.log.high_watermark <= result.last_offset:
                self._awaited.append(write)
            if write.guard is not None:
                write.log.confirm_owner(write.header.producer_id, self._transactional_id)
            return
        if self.first_error is NO_ERROR:
            self.first_error = result.error
        if write.guard is ANSWERED_AT_ONCE:
            write.keep_guard(self._transactional_id)

    def finish(self) -> eager.MaybeAwaitable[ProduceAnswer]:
        """Answer when all appended batches are durable.

        The leader is the only replica, so acks=1 and acks=all are answered at the same moment: when the batch can be
        read. Raises CloseConnection for an error with acks=0.
        """
        self._context.needs_frame = False
        if self._request.acks == ACKS_NONE:
            if self.first_error is not NO_ERROR:
                raise CloseConnection(f"Produce with acks=0 was refused: {self.first_error.name}")
            return eager.Finished(None)
        if awaited := self._awaited:
            return self._finish_in_time() if awaited[0].log.durability.is_shared else self._finish_when_durable()
        return eager.Finished(self.answer())

    async def _finish_when_durable(self) -> ProduceAnswer:
        for write in self._awaited:
            try:
                await write.log.flushed(write.outcome.last_offset + 1)  # type: ignore[union-attr]  # it was appended
            except StorageError as error:
                self._log_failed(write, error)
        return self.answer()

    async def _finish_in_time(self) -> ProduceAnswer:
        """Answer when all batches are durable, or at the client's timeout. The other batches may become durable later,
        as in Kafka with replicas that lag."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + max(0, self._request.timeout_ms) / 1000
        for write in self._awaited:
            end_offset = write.outcome.last_offset + 1  # type: ignore[union-attr]  # it was appended
            try:
                await flushed_in_time(write.log, end_offset, end_s - loop.time())
            except NotInTimeError as error:
                self.refuse(write, ErrorCode.REQUEST_TIMED_OUT, str(error))
            except StorageError as error:
                self._log_failed(write, error)
        return self.answer()

    async def answer_after_moves(self, started: StartedProduce, names: Sequence[TopicPartition]) -> ProduceAnswer:
        """Answer when all batches are durable or refused, and the next leaders of partitions that move are known."""
        await started
        await self._services.topics.moves_under_way.ended(names, within_s=self._request.timeout_ms / 1000)
        return self.answer()

    def answer(self) -> UsualAnswer | ProduceResponse:
        """Answer, when every batch is durable or refused."""
        if self.first_error is not NO_ERROR:
            response = self.response()
            name_leaders(self._services, response, self._context.api_version)
            return response
        values: list[int] = []
        for write in self.answers:
            result: AppendResult = write.outcome  # type: ignore[union-attr,assignment]  # as none was refused
            values += (result.base_offset, result.log_append_time_ms, result.log_start_offset)
        return UsualAnswer(values, self.response)

    def response(self) -> ProduceResponse:
        answers = iter(self.answers)
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [
                        answer.answer() if isinstance(answer, PartitionAppend) else answer
                        for answer in islice(answers, len(topic.partition_data))
                    ],
                )
                for topic in self._request.topic_data
                if topic.partition_data
            ]
        )

    def _log_failed(self, write: PartitionAppend, error: StorageError) -> None:
        self.refuse(
            write, error_of_missing_log(self._services.topics, write.log.topic_partition, write.log), str(error)
        )
