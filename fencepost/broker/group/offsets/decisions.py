"""Decisions about offsets of all kinds of groups: committing, fetching, deleting. Pure.

Source: Kafka's OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fencepost.broker.coordination.shard import CoordinatorRecord, Decision
from fencepost.broker.group.classic.group import ClassicEvent, ClassicGroup
from fencepost.broker.group.classic.membership import ClassicMembership
from fencepost.broker.group.consumer.subscriptions import TopicCatalogue
from fencepost.broker.group.decision_builder import GroupConfig
from fencepost.broker.group.kinds import Group
from fencepost.broker.group.offsets.commits import (
    Committer,
    FetchedOffset,
    Fetcher,
    OffsetToCommit,
    check_commit,
    check_fetch,
    check_transactional_commit,
)
from fencepost.broker.group.offsets.committed import OffsetStore
from fencepost.broker.group.offsets.records import OffsetAndMetadata, offset_record, offset_tombstone
from fencepost.broker.group.share_groups.group import ShareGroup
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import NO_ERROR, ErrorCode
from fencepost.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from fencepost.broker.log.producers.verification import VerificationGuard

DECISION_RECORDS_BYTES = 16_384
"""Bound on the records of a decision about deadlines, expiry or deletion. Records that belong together may exceed it.
It is far below any `max.message.bytes` in use."""
MAX_OFFSETS_EXAMINED = 5_000
"""Bound on the offsets, plus groups, that one decision examines: a few milliseconds of work."""

LATEST_TIMESTAMP_MS = 2**63 - 1  # the latest that the log can hold; a client's retention may reach beyond it


class OffsetSearch(NamedTuple):
    """Remaining work of a search through all offsets, the next item last: groups, and offsets of one group."""

    group_ids: list[str]
    partitions: list[tuple[str, TopicPartition]]


class OffsetDecisions:
    """Decisions about the offsets in `store`.

    topics:     the current topics.
    find_group: returns the group as it is, or None for an unknown id.
    """

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicCatalogue,
        store: OffsetStore,
        find_group: Callable[[str], Group | None],
        classic: ClassicMembership,
    ) -> None:
        self._config = config
        self._topics = topics
        self._store = store
        self._find_group = find_group
        self._classic = classic

    def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Sequence[OffsetToCommit],
        *,
        retention_time_ms: int = -1,
        now_ms: int,
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """Commit offsets. Returns one error for the request, or one per offset: NONE, OFFSET_METADATA_TOO_LARGE,
        UNKNOWN_TOPIC_OR_PARTITION (its topic was deleted, and created again, while the request waited).

        retention_time_ms: -1 for the broker's setting; OffsetCommit 2 to 4 can request another.
        Refuses: GROUP_ID_NOT_FOUND (before OffsetCommit 9 ILLEGAL_GENERATION), and the errors of `check_commit`.
        """
        settle: Callable[[], None] | None = None
        group = self._find_group(group_id)
        if isinstance(group, ShareGroup):
            return Decision(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None:
            if committer.generation_id >= 0:
                return Decision(_group_not_found(committer))
        else:
            error = check_commit(group, committer, offsets)
            if error is not NO_ERROR:
                return Decision(error)
            if isinstance(group, ClassicGroup) and committer.member_id:
                settle = self._classic.offsets_committed(group, committer.member_id, now_ms)
        expire_timestamp_ms = -1 if retention_time_ms < 0 else min(now_ms + retention_time_ms, LATEST_TIMESTAMP_MS)
        errors, records = self._records(group_id, offsets, now_ms, expire_timestamp_ms)
        return Decision(errors, records, settle=settle)

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        producer: tuple[int, int],
        offsets: Sequence[OffsetToCommit],
        *,
        guard: VerificationGuard | None = None,
        now_ms: int,
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """As `commit`, but pending until the transaction of `producer` (id, epoch) ends.

        Clients without membership may commit in any state: the producer epoch fences them. Refuses: INVALID_GROUP_ID,
        UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION; to clients that know member epochs also
        GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH. Source: KIP-447, KIP-1319.
        """
        if not group_id:
            return Decision(ErrorCode.INVALID_GROUP_ID)
        group = self._find_group(group_id)
        if isinstance(group, ShareGroup):
            return Decision(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is None:
            if committer.generation_id >= 0:
                return Decision(_group_not_found(committer))
        else:
            error = check_transactional_commit(group, committer, offsets)
            if error is not ErrorCode.NONE:
                return Decision(error)
        errors, records = self._records(group_id, offsets, now_ms, -1)
        return Decision(errors, records=records, producer=producer, guard=guard)

    def _records(
        self, group_id: str, offsets: Sequence[OffsetToCommit], now_ms: int, expire_timestamp_ms: int
    ) -> tuple[list[ErrorCode], list[CoordinatorRecord]]:
        maximum = self._config.offset_metadata_max_bytes
        find_topic = self._topics.get
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        for topic_partition, topic_id, offset, leader_epoch, metadata in offsets:
            metadata = metadata or ""
            if len(metadata) > maximum:
                errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            topic = find_topic(topic_partition.topic)
            if topic is not None and topic_id not in (topic.topic_id, ZERO_UUID):
                errors.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                continue
            errors.append(NO_ERROR)
            value = OffsetAndMetadata(offset, leader_epoch, metadata, now_ms, expire_timestamp_ms, topic_id)
            records.append(offset_record(group_id, topic_partition, value))
        return errors, records

    def check_fetch(self, group_id: str, fetcher: Fetcher) -> ErrorCode:
        """Check whether a client may fetch offsets. An unknown group has no offsets, which is not an error."""
        group = self._find_group(group_id)
        return ErrorCode.NONE if group is None or isinstance(group, ShareGroup) else check_fetch(group, fetcher)

    def fetch(
        self, group_id: str, topic_partitions: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> list[FetchedOffset]:
        """Return the committed offsets of these partitions, or (None) of all partitions that have one.

        With `require_stable` a partition with a pending offset gets UNSTABLE_OFFSET_COMMIT. An offset of a deleted
        topic whose name another topic has by now counts as none: it is removed a moment later.
        """
        committed = self._store.committed(group_id)
        has_pending = require_stable and self._store.has_pending(group_id)
        fetched = []
        for topic_partition in committed if topic_partitions is None else topic_partitions:
            if has_pending and self._store.is_pending(group_id, topic_partition):
                fetched.append(FetchedOffset(topic_partition, error=ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            value = committed.get(topic_partition)
            if value is None or self._is_of_earlier_topic(topic_partition, value):
                if topic_partitions is not None:
                    fetched.append(FetchedOffset(topic_partition))
            else:
                fetched.append(FetchedOffset(topic_partition, value.offset, value.leader_epoch, value.metadata))
        return fetched

    def _is_of_earlier_topic(self, topic_partition: TopicPartition, value: OffsetAndMetadata) -> bool:
        topic = self._topics.get(topic_partition.topic)
        return topic is not None and value.topic_id not in (topic.topic_id, ZERO_UUID)

    def delete(
        self, group_id: str, topic_partitions: Sequence[TopicPartition]
    ) -> Decision[ErrorCode | list[ErrorCode]]:
        """Delete offsets, up to `DECISION_RECORDS_BYTES`. Returns one error for the request, or NONE or
        GROUP_SUBSCRIBED_TO_TOPIC for each partition in order; the caller repeats the call for the rest.

        Refuses: INVALID_GROUP_ID, GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP (members that are no consumers). Source: KIP-496.
        """
        if not group_id:
            return Decision(ErrorCode.INVALID_GROUP_ID)
        group = self._find_group(group_id)
        if group is None or isinstance(group, ShareGroup):
            return Decision(ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed: frozenset[str] | None
        is_consumed = True
        if not isinstance(group, ClassicGroup):
            subscribed = group.subscribed_topics()
        else:
            is_consumed = group.is_consumer_group
            error = group.refusal(ClassicEvent.DELETE_CONSUMED_OFFSETS if is_consumed else ClassicEvent.DELETE_OFFSETS)
            if error is not ErrorCode.NONE:
                return Decision(error)
            subscribed = group.subscribed_topics()
        committed = self._store.committed(group_id)
        errors: list[ErrorCode] = []
        records: list[CoordinatorRecord] = []
        size_bytes = 0
        for topic_partition in topic_partitions:
            if size_bytes >= DECISION_RECORDS_BYTES:
                break
            is_subscribed = topic_partition.topic in subscribed if subscribed is not None else is_consumed
            errors.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE)
            if not is_subscribed and (
                topic_partition in committed or self._store.is_pending(group_id, topic_partition)
            ):
                record = offset_tombstone(group_id, topic_partition)
                records.append(record)
                size_bytes += len(record.key)
        return Decision(errors, records=records)

    def drop(
        self, is_deleted: Callable[[str, bytes], bool], search: OffsetSearch | None
    ) -> Decision[OffsetSearch | None]:
        """Remove the offsets of topics for which `is_deleted(name, topic id)` is true, a bounded number at a time.

        The id is zero for offsets that were committed without it. An offset stays as long as one of the next topic with
        its name is pending, which replaces it; `fetch` does not return it. search: None at the start, later the last
        reply. The reply is the remaining search; None at its end.
        """
        group_ids, partitions = (list(self._store.group_ids()), []) if search is None else search
        group_ids, partitions = group_ids.copy(), partitions.copy()
        records: list[CoordinatorRecord] = []
        size_bytes = examined_count = 0
        while partitions or group_ids:
            if size_bytes >= DECISION_RECORDS_BYTES or examined_count >= MAX_OFFSETS_EXAMINED:
                return Decision(OffsetSearch(group_ids, partitions), records)
            examined_count += 1
            if not partitions:
                group_id = group_ids.pop()
                partitions = [(group_id, topic_partition) for topic_partition in self._store.partitions(group_id)]
                continue
            group_id, topic_partition = partitions.pop()
            topic_ids = self._store.topic_ids(group_id, topic_partition)
            # The tombstone would also remove pending offsets of the topic that has the name now.
            if topic_ids and all(is_deleted(topic_partition.topic, topic_id) for topic_id in topic_ids):
                record = offset_tombstone(group_id, topic_partition)
                records.append(record)
                size_bytes += len(record.key)
        return Decision(None, records)


def _group_not_found(committer: Committer) -> ErrorCode:
    """The error of a member of a group that does not exist."""
    return ErrorCode.GROUP_ID_NOT_FOUND if committer.knows_member_epochs else ErrorCode.ILLEGAL_GENERATION
