"""Types for commits and fetches of offsets, and the checks of the members that send them. Pure.

Source: Kafka's ClassicGroup, ConsumerGroup and StreamsGroup, validateOffsetCommit and validateOffsetFetch; KIP-447
(members in transactional commits); KIP-848 and KIP-1251 (member epochs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fencepost.broker.group.classic.group import ClassicEvent, ClassicGroup, ClassicState
from fencepost.broker.group.consumer.group import ConsumerGroup, ConsumerMember
from fencepost.broker.group.streams.group import StreamsGroup, StreamsMember
from fencepost.broker.group.streams.tasks import TaskId
from fencepost.broker.kernel.topic_partition import TopicPartition
from fencepost.protocol.errors import NO_ERROR, ErrorCode


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit or TxnOffsetCommit request; the topic is known to exist."""

    topic_partition: TopicPartition
    topic_id: bytes
    offset: int
    leader_epoch: int
    metadata: str | None


class Committer(NamedTuple):
    """Client of a commit: a member in a generation, or, by default, a client that is not a member.

    knows_member_epochs: OffsetCommit 9 and TxnOffsetCommit 6 and later; the generation may then be the epoch of a
                         member of the consumer protocol, and the error of an unknown group is GROUP_ID_NOT_FOUND.
    """

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    knows_member_epochs: bool = True

    @property
    def is_not_a_member(self) -> bool:
        return self.generation_id < 0 and not self.member_id and self.group_instance_id is None


class Fetcher(NamedTuple):
    """Client of an OffsetFetch: a member (version 9 and later), or, by default, a client that is not a member."""

    member_id: str | None = None
    member_epoch: int = -1


class FetchedOffset(NamedTuple):
    """A committed offset in the reply to OffsetFetch; offset and leader epoch are -1 when there is none."""

    topic_partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


def check_commit(
    group: ClassicGroup | ConsumerGroup | StreamsGroup, committer: Committer, offsets: Sequence[OffsetToCommit]
) -> ErrorCode:
    """Check whether the client may commit these offsets. Returns one error for all, as Kafka does.

    Refuses: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS; in a group of the
    consumer or streams protocol STALE_MEMBER_EPOCH, and UNSUPPORTED_VERSION for requests without member epochs.
    """
    if not isinstance(group, ClassicGroup):
        return _check_epoch_of_commit(group, committer, offsets, is_transactional=False)
    if committer.generation_id < 0 and group.state is ClassicState.EMPTY:
        return ErrorCode.NONE
    if committer.is_not_a_member:
        return group.refusal(ClassicEvent.COMMIT_AS_STRANGER)
    error = _check_committing_member(group, committer)
    return group.refusal(ClassicEvent.COMMIT_AS_MEMBER) if error is ErrorCode.NONE else error


def check_transactional_commit(
    group: ClassicGroup | ConsumerGroup | StreamsGroup, committer: Committer, offsets: Sequence[OffsetToCommit]
) -> ErrorCode:
    """As `check_commit`, but clients without membership may always commit; a stale epoch is ILLEGAL_GENERATION to a
    client that does not know member epochs.
    """
    if not isinstance(group, ClassicGroup):
        error = _check_epoch_of_commit(group, committer, offsets, is_transactional=True)
        is_translated = error is ErrorCode.STALE_MEMBER_EPOCH and not committer.knows_member_epochs
        return ErrorCode.ILLEGAL_GENERATION if is_translated else error
    error = group.refusal(ClassicEvent.COMMIT_IN_TRANSACTION)
    is_simple = committer.generation_id < 0 and group.state is ClassicState.EMPTY
    if error is not ErrorCode.NONE or is_simple or committer.is_not_a_member:
        return error
    return _check_committing_member(group, committer)


def check_fetch(group: ClassicGroup | ConsumerGroup | StreamsGroup, fetcher: Fetcher) -> ErrorCode:
    """Check the member of a fetch, in groups that the broker assigns and only if the request names one. Refuses:
    UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, ILLEGAL_GENERATION."""
    if isinstance(group, ClassicGroup) or (fetcher.member_id is None and fetcher.member_epoch < 0):
        return ErrorCode.NONE
    member = group.members.get(fetcher.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if fetcher.member_epoch == member.member_epoch else _stale_epoch_error(member)


def _check_committing_member(group: ClassicGroup, committer: Committer) -> ErrorCode:
    error = group.check_member(committer.member_id, committer.group_instance_id)
    if error is ErrorCode.NONE and committer.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _check_epoch_of_commit(
    group: ConsumerGroup | StreamsGroup,
    committer: Committer,
    offsets: Sequence[OffsetToCommit],
    *,
    is_transactional: bool,
) -> ErrorCode:
    """Check a member's epoch: its own, or an earlier one for partitions that it has owned at least since then."""
    epoch = committer.generation_id
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    if is_transactional and committer.is_not_a_member:
        return ErrorCode.NONE
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not is_transactional and not committer.knows_member_epochs and not _is_classic(member):
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.member_epoch:
        return NO_ERROR
    if epoch < member.member_epoch:
        owned_since = [_owned_since(group, member, offset.topic_partition, offset.topic_id) for offset in offsets]
        if all(since is not None and since <= epoch for since in owned_since):
            return ErrorCode.NONE
    return _stale_epoch_error(member)


def _owned_since(
    group: ConsumerGroup | StreamsGroup,
    member: ConsumerMember | StreamsMember,
    topic_partition: TopicPartition,
    topic_id: bytes,
) -> int | None:
    """Return the epoch since which a member owns a partition; None if it does not."""
    if isinstance(member, ConsumerMember):
        return member.owned_since(topic_id, topic_partition.partition)
    topology = group.topology if isinstance(group, StreamsGroup) else None
    subtopology_id = None if topology is None else topology.subtopology_of_source.get(topic_partition.topic)
    return None if subtopology_id is None else member.owned_since(TaskId(subtopology_id, topic_partition.partition))


def _is_classic(member: ConsumerMember | StreamsMember) -> bool:
    """Return whether a member of a group of the consumer protocol uses the classic protocol."""
    return isinstance(member, ConsumerMember) and member.classic is not None


def _stale_epoch_error(member: ConsumerMember | StreamsMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if _is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH
