"""Share sessions: the partitions that a member reads from this broker, kept between its requests. Pure.

Source: KIP-932; Kafka's ShareSessionCache, ShareSession and SharePartitionManager.newContext.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.protocol.errors import ErrorCode

OPEN_EPOCH = 0
CLOSE_EPOCH = -1
_LAST_EPOCH = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


@dataclass(slots=True)
class ShareSession:
    """One session.

    connection: the connection that opened it; the session ends with it.
    partitions: keys by the time of their last answer, oldest first; a value is true if the next response must list the
                partition even without records, because it is new or had an error before.
    """

    group_id: str
    member_id: str
    connection: Hashable
    epoch: int
    partitions: dict[TopicIdPartition, bool] = field(default_factory=dict)

    def rotated(self) -> list[TopicIdPartition]:
        """Return the partitions; each epoch begins with another."""
        names = list(self.partitions)
        if not names:
            return names
        position = max(self.epoch - 1, 0) % len(names)
        return names[position:] + names[:position]

    def has_to_answer(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        """Whether a response must list a partition, if its request did not open the session."""
        is_due = has_records or has_error or self.partitions.get(partition, True)
        if partition in self.partitions:
            if has_records:
                del self.partitions[partition]  # it goes to the end
            self.partitions[partition] = has_error
        return is_due


MOST_PARTITIONS = 500_000
"""Bound on partitions of all sessions: about 250 bytes of memory each. Kafka counts sessions only."""


class ShareSessions:
    """The sessions of all groups; at most `maximum_count`, with at most `maximum_partitions` together."""

    def __init__(self, maximum_count: int, maximum_partitions: int = MOST_PARTITIONS) -> None:
        self._maximum_count = maximum_count
        self._maximum_partitions = maximum_partitions
        self._partition_count = 0
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group_id, member_id))

    def open(
        self, group_id: str, member_id: str, connection: Hashable, partitions: Iterable[TopicIdPartition]
    ) -> ShareSession | ErrorCode:
        """Open a session; it replaces the member's earlier one. Refuses: SHARE_SESSION_LIMIT_REACHED."""
        self.close(group_id, member_id)
        session = ShareSession(group_id, member_id, connection, 1, dict.fromkeys(partitions, False))
        count = self._partition_count + len(session.partitions)
        if len(self._sessions) >= self._maximum_count or count > self._maximum_partitions:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        self._partition_count = count
        self._sessions[group_id, member_id] = session
        return session

    def advance(
        self,
        group_id: str,
        member_id: str,
        epoch: int,
        added: Iterable[TopicIdPartition] = (),
        forgotten: Iterable[TopicIdPartition] = (),
    ) -> ShareSession | ErrorCode:
        """Return the session of a request, with its epoch raised and its partitions changed.

        Refuses: SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH; SHARE_SESSION_LIMIT_REACHED if all sessions
        together would exceed the bound; the session is unchanged then.
        """
        session = self._sessions.get((group_id, member_id))
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        before = len(session.partitions)
        added = [partition for partition in added if partition not in session.partitions]
        if self._partition_count + len(added) > self._maximum_partitions:
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        for partition in added:
            session.partitions[partition] = True
        for partition in forgotten:
            session.partitions.pop(partition, None)
        self._partition_count += len(session.partitions) - before
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def close(self, group_id: str, member_id: str) -> ShareSession | None:
        """End a session and return it; None if there was none."""
        session = self._sessions.pop((group_id, member_id), None)
        if session is not None:
            self._partition_count -= len(session.partitions)
        return session

    def of_connection(self, connection: Hashable) -> list[ShareSession]:
        return [session for session in self._sessions.values() if session.connection == connection]

    def count_of_group(self, group_id: str) -> int:
        return sum(1 for name, _ in self._sessions if name == group_id)
