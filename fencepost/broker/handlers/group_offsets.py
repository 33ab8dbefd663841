"""OffsetCommit and TxnOffsetCommit: the offsets that groups commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence, Sized
from functools import partial
from itertools import repeat
from typing import NamedTuple, Protocol, TypeVar

from fencepost.broker.group.offsets.commits import Committer, OffsetToCommit
from fencepost.broker.hosting.topics import Topics
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.broker.metadata.image import TopicMetadata
from fencepost.broker.requests.api import (
    FEWEST_WRITTEN_IN_SLICES,
    RequestContext,
    Services,
    SlicedResponse,
    UsualAnswer,
    api,
    written_in_slices,
)
from fencepost.broker.requests.caught_up import may_have_missed
from fencepost.broker.requests.declared_errors import COORDINATOR_AWAY, GROUP_MEMBER, codes
from fencepost.broker.requests.declared_rights import Items, NeededRights
from fencepost.broker.requests.routes import Repeats
from fencepost.broker.rights.needed_rights import (
    GROUP,
    READ,
    TRANSACTIONAL_ID,
    WRITE,
    both,
    topic_by_id,
    whole,
)
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

FIRST_VERSION_WITH_TOPIC_IDS = 10  # KIP-848
COMMIT_KNOWS_MEMBER_EPOCHS = 9  # and GROUP_ID_NOT_FOUND (KIP-848)
TXN_COMMIT_KNOWS_LOAD_IN_PROGRESS = 2
TXN_COMMIT_KNOWS_TRANSACTION_ABORTABLE = 4
TXN_COMMIT_KNOWS_MEMBER_EPOCHS = 6  # and GROUP_ID_NOT_FOUND, and topic ids in place of names (KIP-1319)
TXN_COMMIT_TRANSACTION_VERSION_2 = 5  # from this version on the commit adds the partition to the transaction


OFFSETS_PER_SLICE = 500
"""Larger requests are committed or deleted in slices of this size, with other requests in between."""


class _HasPartitions(Protocol):
    @property
    def partitions(self) -> Sized: ...


def count_of(topics: Iterable[_HasPartitions]) -> int:
    return sum([len(topic.partitions) for topic in topics])


async def yield_if_large(context: RequestContext, count: int) -> None:
    """Let other connections run first if the request has more than OFFSETS_PER_SLICE offsets.

    No other request of this connection starts before the reply: it could commit the same offsets.
    """
    if count > OFFSETS_PER_SLICE:
        context.blocks_connection = True
        await asyncio.sleep(0)


async def look_for(context: RequestContext, found: Iterable[TopicMetadata | None]) -> None:
    """Read the changes by other nodes if a topic is unknown here (None): another node may just have created it."""
    if may_have_missed(context.services, found):
        context.blocks_connection = True
        await context.services.topics.catch_up()


async def change_in_slices(
    offsets: Sequence[Offset],
    change: Callable[[Sequence[Offset]], Awaitable[ErrorCode | list[ErrorCode]]],
) -> ErrorCode | list[ErrorCode]:
    """Change offsets slice by slice; each slice is decided and appended as a whole.

    The refusal of a whole slice is the result for all later ones.
    """
    if len(offsets) <= OFFSETS_PER_SLICE:
        return await change(offsets)
    errors: list[ErrorCode] = []
    for start in range(0, len(offsets), OFFSETS_PER_SLICE):
        await asyncio.sleep(0)
        outcome = await change(offsets[start : start + OFFSETS_PER_SLICE])
        if isinstance(outcome, ErrorCode):
            return errors + [outcome] * (len(offsets) - start)
        errors += outcome
    return errors


def find_topic(topics: Topics, name: str, topic_id: bytes, *, by_id: bool) -> TopicMetadata | ErrorCode:
    """Find a topic by name or by id. Refuses: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID."""
    if by_id:
        return topics.metadata.get_by_id(topic_id) or ErrorCode.UNKNOWN_TOPIC_ID
    return topics.metadata.get(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


Offset = TypeVar("Offset")


class _OffsetResponse(Protocol):
    """The response for one partition of an OffsetCommit or TxnOffsetCommit."""

    error_code: int


Answer = TypeVar("Answer", bound=_OffsetResponse)


class _RequestedOffset(Protocol):
    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class Commit:
    """The offsets of one request that can be committed, each with the response for its partition."""

    def __init__(self) -> None:
        self.offsets: list[OffsetToCommit] = []
        self._answers: list[_OffsetResponse] = []

    def add_topic(
        self,
        topic: TopicMetadata | ErrorCode,
        requested: Iterable[_RequestedOffset],
        new_answer: Callable[[int], Answer],
    ) -> list[Answer]:
        """Add the offsets of one topic, and return the responses for its partitions. A missing topic or partition adds
        nothing; its response has the error.
        """
        answers = []
        for offset in requested:
            partition = offset.partition_index
            answer = new_answer(partition)
            answers.append(answer)
            if isinstance(topic, ErrorCode):
                answer.error_code = topic
            elif not 0 <= partition < topic.partition_count:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                self.offsets.append(
                    OffsetToCommit(
                        TopicPartition(topic.name, partition),
                        topic.topic_id,
                        offset.committed_offset,
                        offset.committed_leader_epoch,
                        offset.committed_metadata,
                    )
                )
                self._answers.append(answer)
        return answers

    def answer(self, errors: ErrorCode | Sequence[ErrorCode]) -> None:
        if isinstance(errors, ErrorCode):
            errors = [errors] * len(self._answers)
        for answer, error in zip(self._answers, errors, strict=True):
            answer.error_code = error


# OffsetCommit


def offset_commit_failed(request: OffsetCommitRequest, error: ErrorCode, version: int) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class _Target(NamedTuple):
    """One partition of an OffsetCommit. error: of a partition that does not exist."""

    requested: OffsetCommitRequestPartition
    topic_partition: TopicPartition
    topic_id: bytes
    error: ErrorCode = ErrorCode.NONE


class _PreparedCommit(NamedTuple):
    """Values derived from the constant fields of an OffsetCommit: the partitions of each topic, and the member."""

    topics: list[tuple[OffsetCommitRequestTopic, list[_Target]]]
    existing: list[_Target]
    committer: Committer


def _prepare_commit(services: Services, request: OffsetCommitRequest, version: int) -> _PreparedCommit:
    is_by_id = version >= FIRST_VERSION_WITH_TOPIC_IDS
    topics = []
    for requested in request.topics:
        topic = find_topic(services.topics, requested.name, requested.topic_id, by_id=is_by_id)
        if isinstance(topic, ErrorCode):
            targets = [_Target(one, TopicPartition("", -1), b"", topic) for one in requested.partitions]
        elif not requested.partitions:
            continue
        else:
            targets = [
                _Target(one, TopicPartition(topic.name, one.partition_index), topic.topic_id)
                if 0 <= one.partition_index < topic.partition_count
                else _Target(one, TopicPartition("", -1), b"", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for one in requested.partitions
            ]
        topics.append((requested, targets))
    existing = [target for _, targets in topics for target in targets if target.error is ErrorCode.NONE]
    committer = Committer(
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        knows_member_epochs=version >= COMMIT_KNOWS_MEMBER_EPOCHS,
    )
    return _PreparedCommit(topics, existing, committer)


def _commit_response(
    prepared: _PreparedCommit, outcome: ErrorCode | Sequence[ErrorCode] = ErrorCode.NONE
) -> OffsetCommitResponse:
    """Make the response. outcome: for the existing partitions, one error for all or one for each."""
    errors = repeat(outcome) if isinstance(outcome, ErrorCode) else iter(outcome)
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=target.requested.partition_index,
                        error_code=target.error or next(errors),
                    )
                    for target in targets
                ],
            )
            for topic, targets in prepared.topics
        ]
    )


@api(
    OffsetCommitRequest,
    OffsetCommitResponse,
    versions="2-10",
    rights=NeededRights(
        whole(READ, GROUP, "group_id"), (Items("topics", "topics", topic_by_id(READ, 10), are_first=True),)
    ),
    errors=GROUP_MEMBER
    | codes(
        "UNKNOWN_TOPIC_OR_PARTITION OFFSET_METADATA_TOO_LARGE ILLEGAL_GENERATION "
        "REBALANCE_IN_PROGRESS TOPIC_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND UNKNOWN_TOPIC_ID "
        "STALE_MEMBER_EPOCH"
    ),
    failed=offset_commit_failed,
    repeats=Repeats(request=("topics[].partitions[].committed_offset",), answer=()),
)
async def handle_offset_commit(
    context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | UsualAnswer | SlicedResponse:
    """Commit offsets; only those of partitions that do not exist are refused."""
    services = context.services
    count = count_of(request.topics)
    await yield_if_large(context, count)
    prepared = context.prepared(_prepare_commit, request)
    if len(prepared.existing) < count and may_have_missed(services):
        context.blocks_connection = True
        await services.topics.catch_up()
        prepared = context.prepared(_prepare_commit, request)
    offsets = [
        OffsetToCommit(
            topic_partition,
            topic_id,
            requested.committed_offset,
            requested.committed_leader_epoch,
            requested.committed_metadata,
        )
        for requested, topic_partition, topic_id, _ in prepared.existing
    ]
    outcome: ErrorCode | Sequence[ErrorCode] = NO_ERROR
    if offsets:

        def change(offsets: Sequence[OffsetToCommit]) -> Awaitable[ErrorCode | list[ErrorCode]]:
            return services.groups.commit_offsets(
                request.group_id, prepared.committer, offsets, retention_time_ms=request.retention_time_ms
            )

        outcome = await change_in_slices(offsets, change)
        is_refused = outcome if isinstance(outcome, ErrorCode) else any(outcome)
        if not is_refused and request.generation_id_or_member_epoch < 0 and not request.member_id:
            # Imported here: consumers that are members of their groups need nothing of it.
            from fencepost.broker.requests.administrative_changes import note_set_offsets

            note_set_offsets(context, request.group_id, {one.topic_partition: one.offset for one in offsets})
        if not is_refused and len(offsets) < FEWEST_WRITTEN_IN_SLICES:
            return UsualAnswer((), partial(_commit_response, prepared))
    return written_in_slices(_commit_response(prepared, outcome), len(offsets))


# TxnOffsetCommit


def txn_offset_commit_failed(
    request: TxnOffsetCommitRequest, error: ErrorCode, version: int
) -> TxnOffsetCommitResponse:
    error = _known_to_transactional_client(error, version)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=error)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_to_transactional_client(error: ErrorCode, version: int) -> ErrorCode:
    """The error code for a client of this version; it covers errors of the transaction coordinator, too.

    Source: Kafka's AddPartitionsToTxnManager and CoordinatorPartitionWriter.maybeStartTransactionVerification.
    """
    match error:
        case ErrorCode.PRODUCER_FENCED:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.TRANSACTION_ABORTABLE if version < TXN_COMMIT_KNOWS_TRANSACTION_ABORTABLE:
            return ErrorCode.INVALID_TXN_STATE
        case ErrorCode.NETWORK_EXCEPTION | ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            if version < TXN_COMMIT_KNOWS_LOAD_IN_PROGRESS:
                return ErrorCode.COORDINATOR_NOT_AVAILABLE
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return error


def _known(topics: Topics, request: TxnOffsetCommitRequest, *, is_by_id: bool) -> Iterable[TopicMetadata | None]:
    metadata = topics.metadata
    return (metadata.get_by_id(one.topic_id) if is_by_id else metadata.get(one.name) for one in request.topics)


def _offsets_in_transaction(
    topics: Topics, request: TxnOffsetCommitRequest, *, is_by_id: bool
) -> tuple[Commit, TxnOffsetCommitResponse]:
    """Collect the offsets that can be committed, and build the response with the errors of the others."""
    commit = Commit()
    answered = []
    for requested in request.topics:
        topic = find_topic(topics, requested.name, requested.topic_id, by_id=is_by_id)
        if not requested.partitions and not isinstance(topic, ErrorCode):
            continue
        answers = commit.add_topic(topic, requested.partitions, TxnOffsetCommitResponsePartition)
        answered.append(TxnOffsetCommitResponseTopic(requested.name, requested.topic_id, answers))
    return commit, TxnOffsetCommitResponse(topics=answered)


@api(
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    versions="0-6",
    rights=NeededRights(
        both(whole(WRITE, TRANSACTIONAL_ID, "transactional_id"), whole(READ, GROUP, "group_id")),
        (Items("topics", "topics", topic_by_id(READ, TXN_COMMIT_KNOWS_MEMBER_EPOCHS), are_first=True),),
    ),
    errors=COORDINATOR_AWAY
    | codes(
        "UNKNOWN_TOPIC_OR_PARTITION OFFSET_METADATA_TOO_LARGE ILLEGAL_GENERATION INVALID_GROUP_ID "
        "UNKNOWN_MEMBER_ID TOPIC_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED INVALID_REQUEST "
        "INVALID_PRODUCER_EPOCH INVALID_TXN_STATE INVALID_PRODUCER_ID_MAPPING CONCURRENT_TRANSACTIONS "
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND FENCED_INSTANCE_ID UNKNOWN_TOPIC_ID "
        "STALE_MEMBER_EPOCH TRANSACTION_ABORTABLE"
    ),
    failed=txn_offset_commit_failed,
)
async def handle_txn_offset_commit(
    context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | SlicedResponse:
    """Commit offsets as a part of a transaction.

    From version 5 on the partition of `__consumer_offsets` joins the transaction here (KIP-890); before, it must have
    been added with AddOffsetsToTxn. Member and generation are checked only if the client sends them (3 and later,
    KIP-447). Version 6 names topics by id, and refuses GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH in place of
    ILLEGAL_GENERATION (KIP-1319).
    """
    version = context.api_version
    services = context.services
    await yield_if_large(context, count_of(request.topics))
    is_by_id = version >= TXN_COMMIT_KNOWS_MEMBER_EPOCHS
    await look_for(context, _known(services.topics, request, is_by_id=is_by_id))
    commit, response = _offsets_in_transaction(services.topics, request, is_by_id=is_by_id)
    if not commit.offsets:
        return response
    is_transaction_version_2 = version >= TXN_COMMIT_TRANSACTION_VERSION_2

    async def verify(offsets_partition: TopicPartition) -> ErrorCode:
        errors = await services.verifier.verify(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            topic_partitions=(offsets_partition,),
            add=is_transaction_version_2,
        )
        return errors[offsets_partition]

    committer = Committer(
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        knows_member_epochs=version >= TXN_COMMIT_KNOWS_MEMBER_EPOCHS,
    )

    async def change(offsets: Sequence[OffsetToCommit]) -> ErrorCode | list[ErrorCode]:
        errors = await services.groups.commit_offsets_in_transaction(
            request.group_id,
            committer,
            offsets,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            is_transaction_version_2=is_transaction_version_2,
            verify=verify,
        )
        return _known_to_transactional_client(errors, version) if isinstance(errors, ErrorCode) else errors

    commit.answer(await change_in_slices(commit.offsets, change))
    return written_in_slices(response, len(commit.offsets))
