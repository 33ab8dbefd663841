"""Cache of incremental fetch sessions: the partitions that a consumer fetches, so that requests and responses carry
changes only.

A request either fetches everything that it lists (a full fetch, which may open a session), or names a session and lists
only changes (an incremental fetch, answered only with changed partitions), or stays outside any session.
Source: KIP-227, KIP-516; Kafka's FetchSession, FetchManager and FetchSessionCache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import FetchRequest, FetchTopic, PartitionData
from fencepost.protocol.record_batch import NO_LEADER_EPOCH

if TYPE_CHECKING:
    import random

    from fencepost.broker.log.reads.reading import FetchedLog

NO_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAXIMUM_EPOCH = 2**31 - 1
MAXIMUM_SESSION_ID = 2**31 - 1
EVICTION_AFTER_MS = 120_000
PARTITION_BYTES = 512
"""The most memory that a partition of a session takes, without its topic's name: a `FetchedPartition`, its key and
its numbers."""

PartitionKey = tuple[str | bytes, int]


@dataclass(slots=True)
class FetchedPartition:
    """One partition that a request or a session fetches, and the offsets that the last response reported.

    topic:     its name; "" while only an unknown topic id is known.
    max_bytes: the most that one response may carry of it, the first batch of the response excepted.
    last_fetched_epoch: leader epoch of the record before `fetch_offset`, as the consumer knows it; -1 for no check.
    log:       the one that was read last.
    """

    topic: str
    topic_id: bytes
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int = -1
    reported_high_watermark: int = -1
    reported_last_stable_offset: int = -1
    reported_log_start_offset: int = -1
    log: FetchedLog | None = None

    def is_up_to_date(self, log: FetchedLog, bound: int) -> bool:
        """Whether a session's client has read this log, the one read last, up to `bound`, and knows its offsets.

        Never of a read replica, which sends the client to the leader then.
        """
        return (
            self.fetch_offset == bound
            and self.reported_high_watermark == log.high_watermark
            and self.reported_last_stable_offset == log.last_stable_offset
            and self.reported_log_start_offset == log.log_start_offset
            and self.current_leader_epoch in (NO_LEADER_EPOCH, log.leader_epoch)
            and self.last_fetched_epoch < 0
            and log.offline_reason is None
            and not log.is_replica
        )

    def update(self, answer: PartitionData) -> bool:
        """Record the values that a response reports; return False if the client knows all of them already.

        After an error the high watermark counts as unknown, so that the partition is sent again after the error.
        Source: Kafka's CachedPartition.maybeUpdateResponseData, which leaves the last stable offset out.
        """
        failed = answer.error_code != ErrorCode.NONE
        has_news = (
            failed
            or bool(answer.records)
            or answer.high_watermark != self.reported_high_watermark
            or answer.last_stable_offset != self.reported_last_stable_offset
            or answer.log_start_offset != self.reported_log_start_offset
            or answer.diverging_epoch.epoch >= 0
            or answer.preferred_read_replica >= 0
        )
        self.reported_high_watermark = -1 if failed else answer.high_watermark
        self.reported_last_stable_offset = answer.last_stable_offset
        self.reported_log_start_offset = answer.log_start_offset
        return has_news


@dataclass(slots=True)
class FetchSession:
    """The partitions that one consumer fetches from this broker. Its next request must carry `epoch`.

    partitions: the next to be read first; those that had data move to the end, so that none is starved.
    size_bytes: memory that the partitions take, see `_size_bytes`.
    """

    session_id: int
    uses_topic_ids: bool
    partitions: dict[PartitionKey, FetchedPartition]
    created_ms: int
    last_used_ms: int
    size_bytes: int
    epoch: int = INITIAL_EPOCH + 1


@dataclass(slots=True)
class FetchPlan:
    """The partitions that one Fetch request reads, in order, and the session of its response.

    is_outside_sessions: whether it is of no session, and opens none.
    session:        session of an incremental fetch; None for a full fetch, whose client may request one.
    expected_epoch: the session's epoch when the response is made, unless another request came between.
    """

    partitions: Sequence[FetchedPartition]
    uses_topic_ids: bool
    is_outside_sessions: bool
    session: FetchSession | None = None
    expected_epoch: int = FINAL_EPOCH


@dataclass(slots=True)
class FetchSelection:
    """The answers that go into the response of a fetch. `error` refuses the fetch as a whole; `included` is then
    empty."""

    session_id: int
    included: Sequence[tuple[FetchedPartition, PartitionData]] = field(default_factory=list)
    error: ErrorCode = ErrorCode.NONE


class FetchSessionCache:
    """The fetch sessions of this broker, at most `maximum_count` with together `maximum_bytes` (-1: no bound).

    If no slot is left, a new session replaces one unused for two minutes, else a smaller one older than two minutes.
    If no memory is left, sessions unused for two minutes are evicted. Else no session is opened and the client
    continues with full fetches. A session that grows beyond the memory ends: its client gets
    FETCH_SESSION_ID_NOT_FOUND and begins again with a full fetch. Kafka counts sessions only.
    randomness: the source of the ids; the system's, unless given.
    """

    def __init__(self, maximum_count: int, randomness: random.Random | None = None, *, maximum_bytes: int = -1) -> None:
        self.maximum_count = maximum_count
        self.maximum_bytes = maximum_bytes
        self.size_bytes = 0  # of all sessions
        self._randomness = randomness
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, *, uses_topic_ids: bool, now_ms: int) -> FetchPlan | ErrorCode:
        """Plan the reads of a request. The session's epoch is raised at once, so that a repeated request is refused.

        Refuses, as a value: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_TOPIC_ID_ERROR
        (names and ids mixed).
        """
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id in self._sessions:
                self._end(self._sessions[request.session_id])
            requested = list(_requested(request.topics, uses_topic_ids).values())
            return FetchPlan(requested, uses_topic_ids, request.session_epoch == FINAL_EPOCH)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.uses_topic_ids is not uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        size_bytes = session.size_bytes
        self._change(session, request)
        if session.size_bytes > size_bytes and not self._has_memory(0, now_ms, growing=session):
            self._end(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if not session.partitions:
            # The session is empty; the request may list and forget the same partitions.
            self._end(session)
            return FetchPlan(
                list(_requested(request.topics, uses_topic_ids).values()), uses_topic_ids, is_outside_sessions=True
            )
        session.epoch = INITIAL_EPOCH + 1 if session.epoch == MAXIMUM_EPOCH else session.epoch + 1
        session.last_used_ms = now_ms
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchPlan(list(session.partitions.values()), uses_topic_ids, False, session, session.epoch)

    def complete(
        self, plan: FetchPlan, pairs: Sequence[tuple[FetchedPartition, PartitionData]], *, now_ms: int
    ) -> FetchSelection:
        """Choose the answers for the response of a fetch. `pairs` holds those for the planned partitions, without the
        partitions of a session that are up to date.
        """
        session = plan.session
        if session is not None:
            if session.epoch != plan.expected_epoch:
                return FetchSelection(NO_SESSION_ID, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            included = [pair for pair in pairs if pair[0].update(pair[1])]
            for partition, answer in included:
                key = _key(partition, plan.uses_topic_ids)
                if answer.records and key in session.partitions:
                    session.partitions[key] = session.partitions.pop(key)
            return FetchSelection(session.session_id, included)
        if plan.is_outside_sessions:
            return FetchSelection(NO_SESSION_ID, pairs)
        return FetchSelection(self._open(plan, pairs, now_ms), pairs)

    def _end(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self.size_bytes -= session.size_bytes

    def _change(self, session: FetchSession, request: FetchRequest) -> None:
        grown_bytes = 0
        for key, requested in _requested(request.topics, session.uses_topic_ids).items():
            known = session.partitions.get(key)
            if known is None:
                session.partitions[key] = requested
                grown_bytes += _size_bytes(key)
            else:
                known.fetch_offset = requested.fetch_offset
                known.max_bytes = requested.max_bytes
                known.current_leader_epoch = requested.current_leader_epoch
                known.last_fetched_epoch = requested.last_fetched_epoch
        for forgotten in request.forgotten_topics_data:
            name: str | bytes = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
            for partition in forgotten.partitions:
                key = (name, partition)
                if session.partitions.pop(key, None) is not None:
                    grown_bytes -= _size_bytes(key)
        session.size_bytes += grown_bytes
        self.size_bytes += grown_bytes

    def _open(self, plan: FetchPlan, pairs: Iterable[tuple[FetchedPartition, PartitionData]], now_ms: int) -> int:
        partitions: dict[PartitionKey, FetchedPartition] = {}
        size_bytes = 0
        for partition, answer in pairs:
            partition.update(answer)
            key = _key(partition, plan.uses_topic_ids)
            partitions[key] = partition
            size_bytes += _size_bytes(key)
        if not self._has_memory(size_bytes, now_ms) or not self._make_room(len(partitions), now_ms):
            return NO_SESSION_ID
        session_id = NO_SESSION_ID
        while session_id == NO_SESSION_ID or session_id in self._sessions:
            session_id = self._random_id()
        self._sessions[session_id] = FetchSession(
            session_id, plan.uses_topic_ids, partitions, now_ms, now_ms, size_bytes
        )
        self.size_bytes += size_bytes
        return session_id

    def _has_memory(self, more_bytes: int, now_ms: int, growing: FetchSession | None = None) -> bool:
        """Whether there is memory for `more_bytes`; evicts sessions unused for EVICTION_AFTER_MS.

        Newer ones stay: otherwise a client with a large session would end all smaller ones.
        """
        if self.maximum_bytes < 0:
            return True
        while self._sessions and self.size_bytes + more_bytes > self.maximum_bytes:
            oldest = next((session for session in self._sessions.values() if session is not growing), None)
            if oldest is None or now_ms - oldest.last_used_ms <= EVICTION_AFTER_MS:
                break
            self._end(oldest)
        return self.size_bytes + more_bytes <= self.maximum_bytes

    def _random_id(self) -> int:
        if self._randomness is None:
            return int.from_bytes(os.urandom(4)) & MAXIMUM_SESSION_ID
        return self._randomness.randint(1, MAXIMUM_SESSION_ID)

    def _make_room(self, partition_count: int, now_ms: int) -> bool:
        if len(self._sessions) < self.maximum_count:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_AFTER_MS:
            self._end(oldest)
            return True
        aged = (session for session in self._sessions.values() if now_ms - session.created_ms > EVICTION_AFTER_MS)
        smallest = min(aged, key=lambda session: len(session.partitions), default=None)
        if smallest is None or len(smallest.partitions) >= partition_count:
            return False
        self._end(smallest)
        return True


def _size_bytes(key: PartitionKey) -> int:
    """Memory that a partition takes. A name counts for each of its partitions; ids are shared with the metadata."""
    name = key[0]
    if isinstance(name, bytes):
        return PARTITION_BYTES
    return PARTITION_BYTES + (len(name) if name.isascii() else 4 * len(name))


def _key(partition: FetchedPartition, uses_topic_ids: bool) -> PartitionKey:
    return (partition.topic_id if uses_topic_ids else partition.topic, partition.partition)


def _requested(topics: Iterable[FetchTopic], uses_topic_ids: bool) -> dict[PartitionKey, FetchedPartition]:
    """The partitions that a request lists; of a partition listed twice, the last entry counts."""
    return {
        (topic.topic_id if uses_topic_ids else topic.topic, requested.partition): FetchedPartition(
            topic.topic,
            topic.topic_id,
            requested.partition,
            requested.fetch_offset,
            requested.partition_max_bytes,
            requested.current_leader_epoch,
            requested.last_fetched_epoch,
        )
        for topic in topics
        for requested in topic.partitions
    }
