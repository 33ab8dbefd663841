"""Fetch: reading of record batches, sent as they are on disk. A fetch that finds less than `min_bytes` waits as a long
poll; changes of its partitions wake it.

Source: KIP-74 (response budget), KIP-98 (isolation), KIP-227 (sessions), KIP-392 (reads near the client), KIP-516
(topic ids); Kafka's KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages and DelayedFetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias, cast

from fencepost.broker.log.log_types import Isolation, LogRead
from fencepost.broker.log.reads.reading import FetchedLog
from fencepost.broker.requests.api import RequestContext, RequestGate, UsualAnswer, api, records_limit_bytes
from fencepost.broker.requests.declared_errors import LEADER_EPOCH, PARTITION_AWAY, codes
from fencepost.broker.requests.fetch_sessions import NO_SESSION_ID, FetchedPartition, FetchPlan
from fencepost.broker.requests.leader_hints import endpoints_of, name_leaders
from fencepost.broker.requests.long_polls import POLL_TIME_OUT, LongPoll, wake_on_time_out
from fencepost.broker.requests.partition_lookup import find_log
from fencepost.broker.requests.routes import Repeats
from fencepost.broker.security.acls import CLUSTER_NAME, AclOperation, AclResource
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.leaders import NodeEndpoint
from fencepost.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

FIRST_VERSION_WITH_SESSIONS = 7
FIRST_VERSION_WITH_TOPIC_IDS = 13
FIRST_VERSION_WITH_LEADERS = 16

ISOLATIONS = {0: Isolation.READ_UNCOMMITTED, 1: Isolation.READ_COMMITTED}


def fetch_failed(request: FetchRequest, error: ErrorCode, version: int) -> FetchResponse:
    """Every partition fails, and from version 7 on the response as a whole; with topic ids only the whole, as the names
    are unknown."""
    topics: list[FetchableTopicResponse] = []
    if version < FIRST_VERSION_WITH_TOPIC_IDS:
        topics = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[_failed_partition(requested.partition, error) for requested in topic.partitions],
            )
            for topic in request.topics
        ]
    return FetchResponse(error_code=error, session_id=NO_SESSION_ID, responses=topics)


def _failed_partition(partition: int, error: ErrorCode) -> PartitionData:
    """The reply for a partition that could not be read. An existing log has null aborted transactions, as in Kafka."""
    return PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if error in NOT_FOUND else None,
        records=b"",
    )


FetchAnswer: TypeAlias = FetchResponse | UsualAnswer

NOT_FOUND: dict[int, int] = {
    ErrorCode.UNKNOWN_TOPIC_ID: 1,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 2,
}
"""Sort keys of the errors for missing and hidden topics and partitions: they come last in a response, in this order."""


@api(
    FetchRequest,
    FetchResponse,
    versions="4-18",
    rights=None,  # READ on each topic of the session, or CLUSTER_ACTION: `read_allowed` asks
    errors=PARTITION_AWAY
    | LEADER_EPOCH
    | codes(
        "OFFSET_OUT_OF_RANGE CORRUPT_MESSAGE FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH "
        "UNKNOWN_TOPIC_ID INCONSISTENT_TOPIC_ID FETCH_SESSION_TOPIC_ID_ERROR"
    ),
    failed=fetch_failed,
    repeats=Repeats(
        request=("session_epoch", "topics[].partitions[].fetch_offset"),
        answer=(
            "responses[].partitions[].high_watermark",
            "responses[].partitions[].last_stable_offset",
            "responses[].partitions[].log_start_offset",
            "responses[].partitions[].records",
        ),
    ),
)
def handle_fetch(context: RequestContext, request: FetchRequest) -> FetchAnswer | LongPoll[FetchAnswer]:
    """Answer at once, or later, when `min_bytes` are available or `max_wait_ms` are over.

    It answers at once when `min_bytes` are available, `max_wait_ms` is 0, no partition is requested, or any partition
    has an error.
    Refuses as a whole: INVALID_REQUEST (unknown isolation level), and the refusals of `FetchSessionCache.begin`.
    """
    services, version = context.services, context.api_version
    isolation = ISOLATIONS.get(request.isolation_level)
    if isolation is None:
        return fetch_failed(request, ErrorCode.INVALID_REQUEST, version)
    plan = services.fetch_sessions.begin(
        request, uses_topic_ids=version >= FIRST_VERSION_WITH_TOPIC_IDS, now_ms=services.clock.now_ms()
    )
    if not isinstance(plan, FetchPlan):
        return FetchResponse(error_code=plan, session_id=NO_SESSION_ID, responses=[])
    fetch = _Fetch(context, request, plan, isolation)
    fetch.read_all()
    if services.gate is not None:
        fetch.check_rights(services.gate)
    if request.max_wait_ms <= 0 or fetch.is_satisfied:
        return fetch.response()
    return _FetchPoll(fetch, request.max_wait_ms)


def _divergence(log: FetchedLog, wanted: FetchedPartition) -> PartitionData | None:
    """The reply to a reader whose last record, of the epoch that it names, is not in this log, with the last point at
    which both agree; else None.

    Source: KIP-595; Kafka's Partition.readRecords.
    """
    end = log.end_offset_for_leader_epoch(wanted.last_fetched_epoch)
    if end.end_offset < 0 or wanted.fetch_offset < log.log_start_offset:
        return _failed_partition(wanted.partition, ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.leader_epoch == wanted.last_fetched_epoch and end.end_offset >= wanted.fetch_offset:
        return None
    return PartitionData(
        partition_index=wanted.partition,
        error_code=ErrorCode.NONE,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        diverging_epoch=EpochEndOffset(epoch=end.leader_epoch, end_offset=end.end_offset),
        aborted_transactions=None,
        records=b"",
    )


class _PartitionFetch:
    """One partition of a fetch: the request for it, its log, and the result of the last read.

    answer: the result of the read, or its error; None while there is nothing to read or report.
    It has no reference to its fetch: a cycle would keep the records in memory until the garbage collector runs.
    """

    __slots__ = ("answer", "counted_bytes", "has_changed", "log", "wake", "wanted")

    def __init__(self, wanted: FetchedPartition) -> None:
        self.wanted = wanted
        self.answer: LogRead | PartitionData | None = None
        self.log: FetchedLog | None = None
        self.counted_bytes = 0
        self.has_changed = False
        self.wake: Callable[[], None] | None = None

    def note_change(self) -> None:
        """Note that the readable part of the log has changed; the log calls this."""
        self.has_changed = True
        if self.wake is not None:
            self.wake()

    def has_changed_since_read(self, log: FetchedLog) -> bool:
        answer = self.answer
        if answer is None:
            return self.has_changed
        return (
            self.has_changed
            or log.high_watermark != answer.high_watermark
            or log.last_stable_offset != answer.last_stable_offset
            or log.offline_reason is not None
            or log.is_deleted
        )


class _Fetch:
    """One fetch request in progress.

    maximum_bytes: the response's budget for records; counted_bytes: the used part of it. Of a batch that a limit cuts
                   off, the part below the limit counts, too: Kafka sends that part.
    """

    __slots__ = (
        "_context",
        "_counted_bytes",
        "_has_error",
        "_is_follower",
        "_is_sent_away",
        "_isolation",
        "_maximum_bytes",
        "_minimum_bytes",
        "_partitions",
        "_plan",
        "_rack",
        "_services",
    )

    def __init__(self, context: RequestContext, request: FetchRequest, plan: FetchPlan, isolation: Isolation) -> None:
        self._context = context
        self._services = services = context.services
        self._plan = plan
        self._isolation = isolation
        self._is_follower = request.replica_id >= 0 or request.replica_state.replica_id >= 0
        self._maximum_bytes = maximum_bytes = records_limit_bytes(services, context.meter, request.max_bytes)
        self._minimum_bytes = min(request.min_bytes, maximum_bytes)
        self._counted_bytes = 0
        self._has_error = False
        self._is_sent_away = False
        self._partitions: list[_PartitionFetch] = []
        self._rack = "" if self._is_follower else request.rack_id

    @property
    def is_satisfied(self) -> bool:
        is_due = self._has_error or self._is_sent_away or not self._partitions
        return is_due or self._counted_bytes >= self._minimum_bytes

    # Reading

    def read_all(self) -> None:
        may_be_quiet = self._plan.session is not None and not self._is_follower
        for wanted in self._plan.partitions:
            partition = _PartitionFetch(wanted)
            log = wanted.log
            if may_be_quiet and log is not None and wanted.is_up_to_date(log, log.bound(self._isolation)):
                partition.log = log
            else:
                self._read(partition)
            self._partitions.append(partition)

    def check_rights(self, gate: RequestGate) -> None:
        """Check the partitions that `read_all` did not read, and keep the verdict on those that it read."""
        if self._plan.session is not None:
            self._refuse_quiet()
        elif not self._has_error and self._plan.is_outside_sessions:
            gate.keep(self._context)

    def _refuse_quiet(self) -> None:
        """Refuse partitions that were not read, as nothing is new there, and that the client may not read any more."""
        for partition in self._partitions:
            if partition.answer is None and not self._may_read(partition.wanted.topic):
                self._fail(partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    def _read(self, partition: _PartitionFetch) -> None:
        """Read within the rest of the response's budget; only the first batch of a response may exceed it."""
        wanted = partition.wanted
        log = self._locate(wanted) if self._services.gate is None else self._locate_allowed(wanted)
        if isinstance(log, ErrorCode):
            self._fail(partition, log)
            return
        if log is None:
            self._send_to_leader(partition)
            return
        partition.log = wanted.log = log
        if wanted.last_fetched_epoch >= 0:
            diverged = _divergence(log, wanted)
            if diverged is not None:
                self._has_error = True
                partition.answer = diverged
                return
        if self._rack and self._services.near_reads is not None:
            connection_id = self._context.connection.connection_id
            elsewhere = self._services.near_reads.elsewhere(self._rack, connection_id, log, wanted, self._isolation)
            if elsewhere is not None:
                self._is_sent_away = True
                partition.answer = elsewhere
                return
        counted_before_bytes = self._counted_bytes
        limit_bytes = max(0, min(self._maximum_bytes - counted_before_bytes, wanted.max_bytes))
        found = log.read(
            wanted.fetch_offset,
            limit_bytes,
            isolation=self._isolation,
            minimum_one_batch=not counted_before_bytes,
            is_lazy=True,
        )
        if found.error is not NO_ERROR:
            log.failed_fetches_count += 1
            self._send_to_leader(partition) if log.is_replica else self._fail(partition, found.error)
            return
        counted_bytes = len(found.records if found.slice is None else found.slice)
        if found.is_cut_off:
            counted_bytes = max(limit_bytes, counted_bytes)
        partition.counted_bytes = counted_bytes
        self._counted_bytes = counted_before_bytes + counted_bytes
        partition.answer = found

    def _fail(self, partition: _PartitionFetch, error: ErrorCode) -> None:
        self._has_error = True
        partition.answer = _failed_partition(partition.wanted.partition, error)

    def _send_to_leader(self, partition: _PartitionFetch) -> None:
        assert self._services.near_reads is not None, "no replicas without them"
        software = self._context.connection.client_software
        partition.answer = answer = self._services.near_reads.to_leader(partition.wanted, software)
        self._has_error |= bool(answer.error_code)
        self._is_sent_away = True

    def _locate(self, wanted: FetchedPartition) -> FetchedLog | ErrorCode | None:
        topics = self._services.topics
        if self._plan.uses_topic_ids:
            topic = topics.metadata.get_by_id(wanted.topic_id)
            if topic is None:
                if not wanted.topic:
                    return ErrorCode.UNKNOWN_TOPIC_ID
                # The session knows the name of this id; another topic may have the name now.
                other = topics.metadata.get(wanted.topic)
                if other is None or not 0 <= wanted.partition < other.partition_count:
                    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return ErrorCode.INCONSISTENT_TOPIC_ID
            wanted.topic = topic.name
        log = find_log(topics, wanted.topic, wanted.partition, current_leader_epoch=wanted.current_leader_epoch)
        if log is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._rack and self._services.near_reads is not None:
            return self._services.near_reads.replica(self._rack, wanted, topics.metadata, self._isolation)
        if self._is_follower and not isinstance(log, ErrorCode):
            # A partition has no follower; a request with a leader epoch gets the error that it retries on, as in Kafka.
            return (
                ErrorCode.NOT_LEADER_OR_FOLLOWER if wanted.current_leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        return log

    def _locate_allowed(self, wanted: FetchedPartition) -> FetchedLog | ErrorCode | None:
        """As `_locate`, for a client with rights. A name is judged before it is looked up, an id afterwards."""
        gate = self._services.gate
        # A session has partitions that the request does not name.
        if gate is not None and self._plan.is_outside_sessions and gate.is_kept(self._context):
            return self._locate(wanted)
        if self._is_follower and not self._may_read(wanted.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED  # for any partition
        name = wanted.topic
        if self._plan.uses_topic_ids:
            topic = self._services.topics.metadata.get_by_id(wanted.topic_id)
            if topic is None:
                return self._locate(wanted)
            name = topic.name
        return self._locate(wanted) if self._may_read(name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _may_read(self, topic: str) -> bool:
        """Whether the client may read a topic now; with a gate only."""
        gate = self._services.gate
        assert gate is not None, "without a gate clients may read all topics"
        if self._is_follower:
            return gate.may(self._context, "Fetch", AclOperation.CLUSTER_ACTION, AclResource.CLUSTER, CLUSTER_NAME)
        return gate.may(self._context, "Fetch", AclOperation.READ, AclResource.TOPIC, topic)

    def read_changed(self) -> None:
        for partition in self._partitions:
            if partition.has_changed:
                self._counted_bytes -= partition.counted_bytes
                partition.counted_bytes = 0
                partition.has_changed = False
                self._read(partition)

    @property
    def found(self) -> list[tuple[_PartitionFetch, FetchedLog]]:
        """The partitions that have a log here, with it."""
        return [(partition, partition.log) for partition in self._partitions if partition.log is not None]

    def response(self) -> FetchAnswer:
        meter = self._context.meter
        if self._services.observer is not None:
            self._count_sent()
        if meter is not None and not meter.charge_fetch(self._records_bytes):
            # Over its quota, the client gets nothing, and the session does not change.
            session = self._plan.session
            session_id = NO_SESSION_ID if session is None else session.session_id
            return FetchResponse(error_code=ErrorCode.NONE, session_id=session_id, responses=[])
        if len(self._partitions) == 1 and self._plan.is_outside_sessions:
            found = self._partitions[0].answer
            if isinstance(found, LogRead) and not found.aborted_transactions:
                values = found.high_watermark, found.last_stable_offset, found.log_start_offset
                return UsualAnswer(values, self._full_response, _records_of(found))
        return self._full_response()

    def _full_response(self) -> FetchResponse:
        answered = [
            (
                one.wanted,
                _partition_data(one.wanted.partition, one.answer) if isinstance(one.answer, LogRead) else one.answer,
            )
            for one in self._partitions
            if one.answer is not None
        ]
        endpoints: list[NodeEndpoint] = []
        if self._has_error:
            # Source: Kafka's KafkaApis.handleFetchRequest, which looks for topics first, then for partitions.
            answered.sort(key=lambda pair: NOT_FOUND.get(pair[1].error_code, 0))
            if self._context.api_version >= FIRST_VERSION_WITH_LEADERS:
                leaders = name_leaders(self._services, answered)
                if not self._is_follower:  # it knows them anyway
                    endpoints = endpoints_of(self._services, leaders)
        selection = self._services.fetch_sessions.complete(self._plan, answered, now_ms=self._services.clock.now_ms())
        return FetchResponse(
            error_code=selection.error,
            session_id=selection.session_id,
            responses=_by_topic(selection.included, uses_topic_ids=self._plan.uses_topic_ids),
            node_endpoints=endpoints,
        )

    def _count_sent(self) -> None:
        """Count on each log that it was fetched from, and how much: for metrics."""
        for partition, log in self.found:
            log.fetches_count += 1
            if isinstance(partition.answer, LogRead):
                log.fetched_bytes += len(_records_of(partition.answer))

    @property
    def _records_bytes(self) -> int:
        return sum(len(_records_of(one.answer)) for one in self._partitions if isinstance(one.answer, LogRead))


def _records_of(found: LogRead) -> memoryview:
    """The records of a read, or a slice of a file, of which the encoder needs only the length."""
    return found.records if found.slice is None else cast("memoryview", found.slice)


def _partition_data(partition: int, found: LogRead) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=ErrorCode.NONE,
        high_watermark=found.high_watermark,
        last_stable_offset=found.last_stable_offset,
        log_start_offset=found.log_start_offset,
        aborted_transactions=None
        if found.aborted_transactions is None
        else [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in found.aborted_transactions
        ],
        records=_records_of(found),
    )


class _FetchPoll(LongPoll[FetchAnswer]):
    """Long poll of a fetch that found too little: it waits until the fetch is satisfied or `max_wait_ms` are over."""

    __slots__ = ("_fetch", "_is_over", "_max_wait_ms", "_time_out", "_watched")

    def __init__(self, fetch: _Fetch, max_wait_ms: int) -> None:
        self._fetch = fetch
        self._max_wait_ms = max_wait_ms
        self._is_over = False
        self._time_out: asyncio.TimerHandle | None = None
        self._watched = fetch.found

    def begin(self, wake: Callable[[], None]) -> None:
        self._time_out = asyncio.get_running_loop().call_later(self._max_wait_ms / 1000, self._end_wait, wake)
        for partition, log in self._watched:
            partition.wake = wake
            log.add_watcher(partition.note_change)
            # No watcher saw the changes between the first read and now.
            if partition.has_changed_since_read(log):
                partition.note_change()

    @POLL_TIME_OUT.catches_itself
    def _end_wait(self, wake: Callable[[], None]) -> None:
        self._is_over = True
        wake_on_time_out(wake)

    def poll(self) -> FetchAnswer | None:
        fetch = self._fetch
        fetch.read_changed()
        return fetch.response() if fetch.is_satisfied or self._is_over else None

    def end(self) -> None:
        if self._time_out is not None:
            self._time_out.cancel()
            self._time_out = None
        for partition, log in self._watched:
            partition.wake = None
            log.remove_watcher(partition.note_change)


def _by_topic(
    included: Sequence[tuple[FetchedPartition, PartitionData]], *, uses_topic_ids: bool
) -> list[FetchableTopicResponse]:
    """Group the answers by topic: neighbours of one topic share an entry, and the order stays."""
    topics: list[FetchableTopicResponse] = []
    current: str | bytes | None = None
    for wanted, answer in included:
        name = wanted.topic_id if uses_topic_ids else wanted.topic
        if name != current:
            current = name
            topics.append(
                FetchableTopicResponse(topic_id=wanted.topic_id, partitions=[])
                if uses_topic_ids
                else FetchableTopicResponse(topic=wanted.topic, partitions=[])
            )
        topics[-1].partitions.append(answer)
    return topics
