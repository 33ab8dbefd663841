"""Share sessions go on epoch by epoch, and answer what is due."""

from __future__ import annotations

from fencepost.broker.share.sessions import ShareSession, ShareSessions, TopicIdPartition
from fencepost.protocol.errors import ErrorCode

FIRST, SECOND, THIRD = (TopicIdPartition(b"t" * 16, number) for number in range(3))
CONNECTION = "connection"


def opened(sessions: ShareSessions, member_id: str = "m") -> ShareSession:
    session = sessions.open("g", member_id, CONNECTION, [FIRST, SECOND])
    assert isinstance(session, ShareSession)
    return session


def test_a_session_goes_on_with_the_next_epoch_only() -> None:
    sessions = ShareSessions(10)
    assert sessions.advance("g", "m", 1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    session = opened(sessions)
    assert sessions.advance("g", "m", 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.advance("g", "m", 1, [THIRD], [FIRST]) is session
    assert list(session.partitions) == [SECOND, THIRD]
    assert sessions.advance("g", "m", 1) is ErrorCode.INVALID_SHARE_SESSION_EPOCH


def test_the_epoch_after_the_last_is_1() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    session.epoch = 2**31 - 1
    sessions.advance("g", "m", 2**31 - 1)
    assert session.epoch == 1


def test_there_are_no_more_sessions_than_allowed_and_a_member_has_one() -> None:
    sessions = ShareSessions(1)
    opened(sessions)
    assert sessions.open("g", "other", CONNECTION, []) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    opened(sessions)
    assert len(sessions) == 1


def test_each_epoch_begins_with_another_partition() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert session.rotated() == [FIRST, SECOND]
    sessions.advance("g", "m", 1)
    assert session.rotated() == [SECOND, FIRST]


def test_a_partition_answers_when_it_has_records_or_an_error_or_had_one_or_is_new() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    sessions.advance("g", "m", 1, [THIRD])
    assert session.has_to_answer(THIRD, has_records=False, has_error=False)
    assert not session.has_to_answer(THIRD, has_records=False, has_error=False)
    assert session.has_to_answer(FIRST, has_records=False, has_error=True)
    assert session.has_to_answer(FIRST, has_records=False, has_error=False)
    assert not session.has_to_answer(FIRST, has_records=False, has_error=False)
    assert session.has_to_answer(FIRST, has_records=True, has_error=False)
    assert list(session.partitions) == [SECOND, THIRD, FIRST]


def test_sessions_are_found_by_connection_and_counted_by_group() -> None:
    sessions = ShareSessions(10)
    session = opened(sessions)
    assert sessions.of_connection(CONNECTION) == [session]
    assert sessions.count_of_group("g") == 1
    assert sessions.close("g", "m") is session
    assert sessions.close("g", "m") is None
    assert sessions.count_of_group("g") == 0
