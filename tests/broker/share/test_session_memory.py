"""What share sessions remember of the partitions that clients name is bounded over all of them."""

from __future__ import annotations

from fencepost.broker.share.sessions import ShareSession, ShareSessions, TopicIdPartition
from fencepost.protocol.errors import ErrorCode


def partitions(count: int, start: int = 0) -> list[TopicIdPartition]:
    return [TopicIdPartition(bytes(16), number) for number in range(start, start + count)]


def test_the_partitions_of_all_share_sessions_are_bounded() -> None:
    sessions = ShareSessions(10, maximum_partitions=100)
    assert isinstance(sessions.open("g", "a", 1, partitions(60)), ShareSession)
    assert sessions.open("g", "b", 2, partitions(41)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert isinstance(sessions.open("g", "b", 2, partitions(40)), ShareSession)
    assert sessions.advance("g", "a", 1, partitions(1, start=60)) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert isinstance(sessions.advance("g", "a", 1, partitions(60), partitions(10)), ShareSession)
    assert isinstance(sessions.advance("g", "a", 2, partitions(10, start=100)), ShareSession)
    assert sessions.close("g", "b") is not None
    assert isinstance(sessions.open("g", "a", 1, partitions(100)), ShareSession)
    assert sessions.close("g", "a") is not None
    assert isinstance(sessions.open("g", "c", 1, partitions(100)), ShareSession)
