"""ShareFetch and ShareAcknowledge: members of share groups acquire records, and acknowledge or release them.

A fetch that acquires too little waits on its partitions: for new records, or for records that others release.
Source: KIP-932, KIP-1206, KIP-1222; Kafka's KafkaApis (handleShareFetchRequest, handleShareAcknowledgeRequest) and
DelayedShareFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TypeVar

from fencepost.broker.handlers.share_groups import are_share_groups_on, is_member_id
from fencepost.broker.log.partition_log import PartitionLog
from fencepost.broker.requests.api import RequestContext, Services, api, records_limit_bytes
from fencepost.broker.requests.declared_errors import SHARE_SESSION, codes
from fencepost.broker.requests.declared_rights import NeededRights
from fencepost.broker.requests.leader_hints import REFUSED_FOR_ITS_LEADER, current_leader, endpoints_of
from fencepost.broker.requests.long_polls import POLL_TIME_OUT
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.rights.needed_rights import GROUP, READ, whole
from fencepost.broker.security.acls import AclOperation, AclResource
from fencepost.broker.share.acknowledgements import read_acknowledgements
from fencepost.broker.share.acquire_request import AcquireMode
from fencepost.broker.share.partition import AcknowledgementRefusal
from fencepost.broker.share.sessions import CLOSE_EPOCH, OPEN_EPOCH, ShareSession, TopicIdPartition
from fencepost.broker.share.shard import SharePartitionKey
from fencepost.broker.share.share_partitions import AcquireResult, AcquireTerms, ServedSharePartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.share_fetch import (
    AcquiredRecords,
    ShareAcknowledgePartition,
    ShareAcknowledgePartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
    ShareFetchableTopicResponse,
    ShareFetchPartition,
    ShareFetchPartitionData,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareLeaderIdAndEpoch,
)

FIRST_VERSION_WITH_RENEWAL = 2
NONE = AcknowledgementRefusal(ErrorCode.NONE, "")

Partition = TypeVar("Partition", ShareFetchPartition, ShareAcknowledgePartition)
AcknowledgementResults = Mapping[TopicIdPartition, AcknowledgementRefusal]
"""The result of the acknowledgements of each partition."""


# ShareFetch


@api(
    ShareFetchRequest,
    ShareFetchResponse,
    versions="1-2",
    rights=NeededRights(whole(READ, GROUP, "group_id")),  # and READ on each topic, which the handler asks
    errors=SHARE_SESSION | codes("CORRUPT_MESSAGE SHARE_SESSION_LIMIT_REACHED"),
    is_cancelled_on_disconnect=True,
)
async def handle_share_fetch(context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    """Acquire records for a member, at once or when there are some; its acknowledgements are handled first.

    Refuses as a whole: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH,
    SHARE_SESSION_LIMIT_REACHED (after `max_wait_ms`).
    """
    shares = context.services.shares
    if not are_share_groups_on(context):
        return ShareFetchResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    reason = _wrong_member(request.group_id, request.member_id) or _wrong_renewal(request)
    if reason is not None:
        return ShareFetchResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    group_id, member_id = request.group_id or "", request.member_id or ""
    session = _session(context, request, group_id, member_id)
    if isinstance(session, ErrorCode):
        if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
            await asyncio.sleep(max(0, request.max_wait_ms) / 1000)
        return ShareFetchResponse(error_code=session)
    acknowledged = {
        TopicIdPartition(topic.topic_id, partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }
    outcomes: AcknowledgementResults = {}
    if any(partition.acknowledgement_batches for partition in acknowledged.values()):
        outcomes = await _acknowledge(context, group_id, member_id, acknowledged, is_renewal=request.is_renew_ack)
    answers: dict[TopicIdPartition, ShareFetchPartitionData] = {}
    if request.share_session_epoch == CLOSE_EPOCH:
        shares.close_session(group_id, member_id)
    elif not request.is_renew_ack and (context.meter is None or context.meter.charge_fetch(0)):
        found = await _Acquisition(context, request, session).run()
        for partition, outcome in outcomes.items():
            share_partition = shares.share_partitions.loaded(SharePartitionKey(group_id, *partition))
            has_acknowledgements = outcome.error is ErrorCode.NONE and acknowledged[partition].acknowledgement_batches
            if share_partition is not None and has_acknowledgements:
                share_partition.apply_fetch_acknowledgements()
        if shares.sessions.get(group_id, member_id) is not session:
            # The session was reopened or closed during the wait: a later request holds the records acquired now.
            return ShareFetchResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        if not _may_read(context, AclResource.GROUP, group_id):
            return ShareFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)  # removed meanwhile
        for partition, result in found.items():
            if result.is_exhausted:
                continue
            is_due = session.has_to_answer(
                partition, has_records=bool(result.acquired), has_error=result.error is not ErrorCode.NONE
            )
            if is_due or request.share_session_epoch == OPEN_EPOCH:
                answers[partition] = _answer(context.services, partition, result)
    for partition, outcome in outcomes.items():
        answer = answers.setdefault(partition, ShareFetchPartitionData(partition_index=partition.partition))
        answer.acknowledge_error_code = outcome.error
        answer.acknowledge_error_message = outcome.message or None
    return _fetch_response(context.services, group_id, answers)


def _fetch_response(
    services: Services, group_id: str, answers: Mapping[TopicIdPartition, ShareFetchPartitionData]
) -> ShareFetchResponse:
    leaders = {
        answer.current_leader.leader_id for answer in answers.values() if answer.error_code in REFUSED_FOR_ITS_LEADER
    }
    return ShareFetchResponse(
        acquisition_lock_timeout_ms=services.shares.share_partitions.limits(group_id).record_lock_duration_ms,
        responses=[
            ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(answers).items()
        ],
        node_endpoints=endpoints_of(services, leaders),
    )


def _session(
    context: RequestContext, request: ShareFetchRequest, group_id: str, member_id: str
) -> ShareSession | ErrorCode:
    """The session that a request opens, continues or closes."""
    shares, epoch = context.services.shares, request.share_session_epoch
    wanted = [
        TopicIdPartition(topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]
    if epoch == CLOSE_EPOCH:
        return shares.sessions.get(group_id, member_id) or ErrorCode.SHARE_SESSION_NOT_FOUND
    if epoch == OPEN_EPOCH:
        if any(partition.acknowledgement_batches for topic in request.topics for partition in topic.partitions):
            return ErrorCode.INVALID_REQUEST
        return shares.open_session(group_id, member_id, wanted, connection=context.connection)
    forgotten = [
        TopicIdPartition(topic.topic_id, number)
        for topic in request.forgotten_topics_data
        for number in topic.partitions
    ]
    return shares.sessions.advance(group_id, member_id, epoch, wanted, forgotten)


def _wrong_renewal(request: ShareFetchRequest) -> str | None:
    if not request.is_renew_ack:
        return None
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    wrong = "".join(f"{name} must be set to 0, " for name, value in limits.items() if value)
    return f"{wrong}if isRenewAck is true." if wrong else None


def _answer(services: Services, partition: TopicIdPartition, result: AcquireResult) -> ShareFetchPartitionData:
    answer = ShareFetchPartitionData(
        partition_index=partition.partition,
        error_code=result.error,
        records=result.records,
        acquired_records=[AcquiredRecords(*acquired) for acquired in result.acquired],
    )
    if result.error in REFUSED_FOR_ITS_LEADER:
        answer.current_leader = _leader(services, partition)
    return answer


class _Acquisition:
    """The part of a ShareFetch that acquires records."""

    def __init__(self, context: RequestContext, request: ShareFetchRequest, session: ShareSession) -> None:
        self._context = context
        self._services = services = context.services
        self._meter = context.meter
        self._request = request
        self._session = session
        group_id = session.group_id
        self._maximum_bytes = records_limit_bytes(services, self._meter, request.max_bytes)
        self._minimum_bytes = min(request.min_bytes, self._maximum_bytes)
        mode = AcquireMode.RECORD_LIMIT if request.share_acquire_mode else AcquireMode.BATCH_OPTIMIZED
        self._terms = AcquireTerms(
            session.member_id, mode, request.batch_size, services.shares.share_partitions.isolation(group_id)
        )
        self._answers: dict[TopicIdPartition, AcquireResult] = {}
        self._share_partitions: dict[TopicIdPartition, ServedSharePartition] = {}

    async def run(self) -> dict[TopicIdPartition, AcquireResult]:
        """Return the result of each partition of the session."""
        self._answers = {partition: AcquireResult() for partition in self._session.rotated()}
        if not self._answers or self._request.max_records <= 0 or not self._maximum_bytes:
            return self._answers
        await self._find()
        if self._share_partitions:
            await self._acquire_or_wait()
        if self._meter is not None:
            # Acquired records are delivered: a client over its quota waits before its next request.
            self._meter.charge_fetch(sum(len(result.records) for result in self._answers.values()))
        return self._answers

    async def _find(self) -> None:
        share_partitions = self._services.shares.share_partitions
        served: dict[TopicIdPartition, ServedSharePartition] = {}
        missing = []
        for partition in self._answers:
            key = SharePartitionKey(self._session.group_id, *partition)
            log = self._log(partition)
            share_partition = None if isinstance(log, ErrorCode) else share_partitions.loaded(key)
            if isinstance(log, ErrorCode):
                self._answers[partition] = AcquireResult(error=log)
            elif share_partition is not None:
                served[partition] = share_partition
            else:
                missing.append((partition, key, log))
        found = await asyncio.gather(*(share_partitions.get(key, log) for _, key, log in missing))
        for (partition, _, _), loaded in zip(missing, found, strict=True):
            if isinstance(loaded, ErrorCode):
                self._answers[partition] = AcquireResult(error=loaded)
            else:
                served[partition] = loaded
        self._share_partitions = {key: served[key] for key in self._answers if key in served}

    def _log(self, partition: TopicIdPartition) -> PartitionLog | ErrorCode:
        topics = self._services.topics
        topic = topics.metadata.get_by_id(partition.topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if not _may_read(self._context, AclResource.TOPIC, topic.name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return find_log(topics, topic.name, partition.partition)

    async def _acquire_or_wait(self) -> None:
        if self._acquire(is_over=self._request.max_wait_ms <= 0) or self._request.max_wait_ms <= 0:
            return
        wake = asyncio.Event()
        is_over = False

        def end_wait() -> None:
            nonlocal is_over
            is_over = True
            wake.set()

        watched = list(self._share_partitions.values())
        for share_partition in watched:
            share_partition.add_watcher(wake.set)
        time_out = asyncio.get_running_loop().call_later(
            self._request.max_wait_ms / 1000, POLL_TIME_OUT.callback(end_wait)
        )
        try:
            # No watcher saw the changes between the first attempt and now.
            while not self._acquire(is_over=is_over) and not is_over:
                await wake.wait()
                wake.clear()
        finally:
            time_out.cancel()
            for share_partition in watched:
                share_partition.remove_watcher(wake.set)

    def _acquire(self, *, is_over: bool) -> bool:
        """Acquire the available records, if they are enough or the wait is over; return whether to answer now."""
        session = self._session
        if self._services.shares.sessions.get(session.group_id, session.member_id) is not session:
            return True  # the member has a new session; this request's client may be gone
        if not _may_read(self._context, AclResource.GROUP, session.group_id):
            return True
        is_gone = any(share_partition.is_dropped for share_partition in self._share_partitions.values())
        if not is_over and not is_gone and not self._is_enough():
            return False
        has_answer = False
        acquired_bytes = acquired_count = 0
        for partition, share_partition in self._share_partitions.items():
            log = self._log(partition)  # at each attempt: rights may have been removed during the wait
            if share_partition.is_dropped or isinstance(log, ErrorCode):
                self._answers[partition] = AcquireResult(error=_error_of_lost_leadership(log))
                has_answer = True
                continue
            result = share_partition.acquire(
                self._terms,
                maximum_count=self._request.max_records - acquired_count,
                maximum_bytes=self._maximum_bytes // len(self._share_partitions),
                minimum_one_batch=not acquired_bytes,
            )
            self._answers[partition] = result
            acquired_bytes += len(result.records)
            acquired_count += sum(acquired.last_offset - acquired.first_offset + 1 for acquired in result.acquired)
            has_answer = has_answer or bool(result.acquired) or result.ends_wait or result.error is not ErrorCode.NONE
        return has_answer

    def _is_enough(self) -> bool:
        if self._minimum_bytes <= 1:
            return True
        share_bytes = self._maximum_bytes // len(self._share_partitions)
        available = [one.available_bytes(self._terms, share_bytes) for one in self._share_partitions.values()]
        return sum(available) >= self._minimum_bytes


def _error_of_lost_leadership(log: PartitionLog | ErrorCode) -> ErrorCode:
    """The error for a share partition that is no longer led here."""
    return log if isinstance(log, ErrorCode) else ErrorCode.NOT_LEADER_OR_FOLLOWER


# ShareAcknowledge


@api(
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    versions="1-2",
    rights=NeededRights(whole(READ, GROUP, "group_id")),  # and READ on each topic, which the handler asks
    errors=SHARE_SESSION,
)
async def handle_share_acknowledge(
    context: RequestContext, request: ShareAcknowledgeRequest
) -> ShareAcknowledgeResponse:
    """Apply a member's acknowledgements. Refuses as a whole: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND,
    INVALID_SHARE_SESSION_EPOCH."""
    shares, epoch = context.services.shares, request.share_session_epoch
    if not are_share_groups_on(context):
        return ShareAcknowledgeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    reason = _wrong_member(request.group_id, request.member_id)
    if reason is not None:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=reason)
    group_id, member_id = request.group_id or "", request.member_id or ""
    if epoch == OPEN_EPOCH:
        return ShareAcknowledgeResponse(error_code=ErrorCode.INVALID_SHARE_SESSION_EPOCH)
    if epoch == CLOSE_EPOCH:
        session = shares.sessions.get(group_id, member_id) or ErrorCode.SHARE_SESSION_NOT_FOUND
    else:
        session = shares.sessions.advance(group_id, member_id, epoch)
    if isinstance(session, ErrorCode):
        return ShareAcknowledgeResponse(error_code=session)
    acknowledged = {
        TopicIdPartition(topic.topic_id, partition.partition_index): partition
        for topic in request.topics
        for partition in topic.partitions
    }
    outcomes = await _acknowledge(context, group_id, member_id, acknowledged, is_renewal=request.is_renew_ack)
    if epoch == CLOSE_EPOCH:
        shares.close_session(group_id, member_id)
    answers = {}
    leaders = set()
    for partition, outcome in outcomes.items():
        answer = answers[partition] = ShareAcknowledgePartitionData(
            partition_index=partition.partition, error_code=outcome.error, error_message=outcome.message or None
        )
        if outcome.error in REFUSED_FOR_ITS_LEADER:
            answer.current_leader = _leader(context.services, partition)
            leaders.add(answer.current_leader.leader_id)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=shares.share_partitions.limits(group_id).record_lock_duration_ms,
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in _by_topic(answers).items()
        ],
        node_endpoints=endpoints_of(context.services, leaders),
    )


# Both


def _wrong_member(group_id: str | None, member_id: str | None) -> str | None:
    if group_id is None:
        return "Invalid group id in the request."
    return None if is_member_id(member_id) else "Invalid member id in the request."


async def _acknowledge(
    context: RequestContext,
    group_id: str,
    member_id: str,
    acknowledged: Mapping[TopicIdPartition, Partition],
    *,
    is_renewal: bool,
) -> dict[TopicIdPartition, AcknowledgementRefusal]:
    """Apply all acknowledgements, then wait until they are durable. All steps before the wait run in request order.

    A partition without acknowledgements has a result only if another partition has acknowledgements.
    """
    services = context.services
    outcomes: dict[TopicIdPartition, AcknowledgementRefusal] = {}
    listed: list[TopicIdPartition] = []
    is_anything_said = False
    for partition, of_partition in acknowledged.items():
        acknowledgements = read_acknowledgements(
            of_partition.acknowledgement_batches,
            knows_renewal=context.api_version >= FIRST_VERSION_WITH_RENEWAL,
            is_renewal=is_renewal,
        )
        refusal = _wrong_partition(context, partition, is_understood=acknowledgements is not None)
        if refusal is not None:
            outcomes[partition] = refusal
        elif acknowledgements:
            outcomes[partition] = services.shares.acknowledge(group_id, member_id, partition, acknowledgements)
            is_anything_said = True
        else:
            listed.append(partition)
    waiting = [partition for partition, outcome in outcomes.items() if outcome.error is ErrorCode.NONE]
    errors = await asyncio.gather(*(services.shares.durable(group_id, partition) for partition in waiting))
    for partition, error in zip(waiting, errors, strict=True):
        if error is not ErrorCode.NONE:
            outcomes[partition] = AcknowledgementRefusal(error, "")
    if is_anything_said:
        outcomes |= dict.fromkeys(listed, NONE)
    return outcomes


def _wrong_partition(
    context: RequestContext, partition: TopicIdPartition, *, is_understood: bool
) -> AcknowledgementRefusal | None:
    """The error of a partition whose acknowledgements are not applied at all; None if there is none."""
    topic = context.services.topics.metadata.get_by_id(partition.topic_id)
    if topic is None:
        return AcknowledgementRefusal(ErrorCode.UNKNOWN_TOPIC_ID, "")
    if not _may_read(context, AclResource.TOPIC, topic.name):
        return AcknowledgementRefusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
    if not is_understood:
        return AcknowledgementRefusal(ErrorCode.INVALID_REQUEST, "")
    if not 0 <= partition.partition < topic.partition_count:
        return AcknowledgementRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return None


def _may_read(context: RequestContext, resource: AclResource, name: str) -> bool:
    gate = context.services.gate
    return gate is None or gate.may(context, "ShareFetch", AclOperation.READ, resource, name)


Answer = TypeVar("Answer")


def _by_topic(answers: Mapping[TopicIdPartition, Answer]) -> dict[bytes, list[Answer]]:
    topics: dict[bytes, list[Answer]] = {}
    for partition, answer in answers.items():
        topics.setdefault(partition.topic_id, []).append(answer)
    return topics


def _leader(services: Services, partition: TopicIdPartition) -> ShareLeaderIdAndEpoch:
    topic = services.topics.metadata.get_by_id(partition.topic_id)
    leader = current_leader(services, "" if topic is None else topic.name, partition.partition)
    return ShareLeaderIdAndEpoch(leader.leader_id, leader.leader_epoch)
