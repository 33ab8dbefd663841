"""What a commit and a fetch of offsets consist of, and who may commit. Pure.

Source: Kafka's ClassicGroup.validateOffsetCommit; KIP-447 (members in transactional commits).
"""

from __future__ import annotations

from typing import NamedTuple

from broker.group.classic import ClassicEvent, ClassicGroup, ClassicState
from broker.topic_partition import TopicPartition
from protocol.errors import ErrorCode


class OffsetToCommit(NamedTuple):
    """One partition of an OffsetCommit or TxnOffsetCommit request; the topic is known to exist."""

    topic_partition: TopicPartition
    topic_id: bytes
    offset: int
    leader_epoch: int
    metadata: str | None


class Committer(NamedTuple):
    """Who commits: a member of a generation, or, by default, nobody in particular."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None

    @property
    def is_stranger(self) -> bool:
        return self.generation_id < 0 and not self.member_id and self.group_instance_id is None


class FetchedOffset(NamedTuple):
    """A committed offset as OffsetFetch answers it; offset and leader epoch are -1 when there is none."""

    topic_partition: TopicPartition
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


def check_commit(group: ClassicGroup, committer: Committer) -> ErrorCode:
    """Source: Kafka's ClassicGroup.validateOffsetCommit."""
    if committer.generation_id < 0 and group.state is ClassicState.EMPTY:
        return ErrorCode.NONE
    if committer.is_stranger:
        return group.refusal(ClassicEvent.COMMIT_AS_STRANGER)
    error = _check_committing_member(group, committer)
    return group.refusal(ClassicEvent.COMMIT_AS_MEMBER) if error is ErrorCode.NONE else error


def check_transactional_commit(group: ClassicGroup, committer: Committer) -> ErrorCode:
    error = group.refusal(ClassicEvent.COMMIT_IN_TRANSACTION)
    is_simple = committer.generation_id < 0 and group.state is ClassicState.EMPTY
    if error is not ErrorCode.NONE or is_simple or committer.is_stranger:
        return error
    return _check_committing_member(group, committer)


def _check_committing_member(group: ClassicGroup, committer: Committer) -> ErrorCode:
    error = group.check_member(committer.member_id, committer.group_instance_id)
    if error is ErrorCode.NONE and committer.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    return error
