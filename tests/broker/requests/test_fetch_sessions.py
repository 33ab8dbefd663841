"""Incremental fetch sessions: their partitions, what a response leaves out, and eviction."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fencepost.broker.requests.fetch_sessions import (
    EVICTION_AFTER_MS,
    PARTITION_BYTES,
    FetchPlan,
    FetchSelection,
    FetchSessionCache,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

NOW_MS = 1_000_000


def request(
    *partitions: int,
    session_id: int = 0,
    epoch: int = 0,
    offset: int = 0,
    forgotten: tuple[int, ...] = (),
    topic: str = "orders",
) -> FetchRequest:
    topics = [
        FetchTopic(
            topic=topic,
            partitions=[
                FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
                for partition in partitions
            ],
        )
    ]
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic=topic, partitions=list(forgotten))] if forgotten else [],
    )


def answer(
    partition: int, *, high_watermark: int = 0, log_start_offset: int = 0, records: bytes = b"", error: int = 0
) -> PartitionData:
    return PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=-1 if error else high_watermark,
        last_stable_offset=-1 if error else high_watermark,
        log_start_offset=-1 if error else log_start_offset,
        records=records,
    )


def begin(cache: FetchSessionCache, wanted: FetchRequest, now_ms: int = NOW_MS) -> FetchPlan:
    plan = cache.begin(wanted, uses_topic_ids=False, now_ms=now_ms)
    assert isinstance(plan, FetchPlan)
    return plan


def complete(
    cache: FetchSessionCache, plan: FetchPlan, answers: Sequence[PartitionData], now_ms: int = NOW_MS
) -> FetchSelection:
    """`answers` are those for the planned partitions, in order."""
    return cache.complete(plan, list(zip(plan.partitions, answers, strict=True)), now_ms=now_ms)


def open_session(cache: FetchSessionCache, *partitions: int, now_ms: int = NOW_MS) -> int:
    plan = begin(cache, request(*partitions), now_ms)
    return complete(cache, plan, [answer(partition) for partition in partitions], now_ms).session_id


def fetch(cache: FetchSessionCache, wanted: FetchRequest, *answers: PartitionData) -> list[int]:
    """The partitions that one incremental response holds."""
    selection = complete(cache, begin(cache, wanted), answers)
    assert selection.error is ErrorCode.NONE
    return [included.partition_index for _, included in selection.included]


def test_full_fetch_opens_a_session_and_answers_every_partition() -> None:
    cache = FetchSessionCache(10)
    plan = begin(cache, request(0, 1))
    selection = complete(cache, plan, [answer(0), answer(1)])
    assert selection.session_id != 0
    assert [partition.partition for partition, _ in selection.included] == [0, 1]
    assert len(cache) == 1


def test_sessionless_fetch_answers_every_partition_and_opens_nothing() -> None:
    cache = FetchSessionCache(10)
    plan = begin(cache, request(0, epoch=-1))
    selection = complete(cache, plan, [answer(0)])
    assert (selection.session_id, len(selection.included), len(cache)) == (0, 1, 0)


def test_full_fetch_of_nothing_opens_a_session_that_ends_if_nothing_is_added() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache)
    assert session_id != 0
    assert begin(cache, request(session_id=session_id, epoch=1)).partitions == []
    assert len(cache) == 0


def test_full_fetch_of_nothing_opens_a_session_that_partitions_can_be_added_to() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache)
    assert session_id != 0
    assert fetch(cache, request(2, session_id=session_id, epoch=1), answer(2)) == [2]


def test_incremental_fetch_reads_all_partitions_of_the_session() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0, 1)
    plan = begin(cache, request(1, session_id=session_id, epoch=1, offset=7))
    assert [(wanted.partition, wanted.fetch_offset) for wanted in plan.partitions] == [(0, 0), (1, 7)]


def test_partition_without_news_is_left_out_of_an_incremental_response() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0, 1)
    assert fetch(cache, request(session_id=session_id, epoch=1), answer(0), answer(1)) == []


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(answer(1, records=b"batch"), id="records"),
        pytest.param(PartitionData(1, 0, 0, 0, 0, EpochEndOffset(epoch=0, end_offset=5), records=b""), id="divergence"),
        pytest.param(answer(1, high_watermark=5), id="high watermark"),
        pytest.param(answer(1, log_start_offset=3), id="log start offset"),
        pytest.param(answer(1, error=3), id="error"),
    ],
)
def test_partition_with_news_is_in_the_incremental_response(news: PartitionData) -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0, 1)
    assert fetch(cache, request(session_id=session_id, epoch=1), answer(0), news) == [1]


def test_last_stable_offset_that_moved_alone_is_news() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    moved = answer(0)
    moved.last_stable_offset = 4
    assert fetch(cache, request(session_id=session_id, epoch=1), moved) == [0]


def test_partition_is_sent_again_when_its_error_is_gone() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    assert fetch(cache, request(session_id=session_id, epoch=1), answer(0, error=56)) == [0]
    assert fetch(cache, request(session_id=session_id, epoch=2), answer(0)) == [0]
    assert fetch(cache, request(session_id=session_id, epoch=3), answer(0)) == []


def test_partition_with_an_error_is_sent_every_time() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    assert fetch(cache, request(session_id=session_id, epoch=1), answer(0, error=56)) == [0]
    assert fetch(cache, request(session_id=session_id, epoch=2), answer(0, error=56)) == [0]


def test_partition_that_had_records_is_filled_last_next_time() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0, 1, 2)
    fetch(cache, request(session_id=session_id, epoch=1), answer(0, records=b"batch"), answer(1), answer(2))
    plan = begin(cache, request(session_id=session_id, epoch=2))
    assert [wanted.partition for wanted in plan.partitions] == [1, 2, 0]


def test_added_partition_joins_the_session_and_is_answered_once() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    assert fetch(cache, request(5, session_id=session_id, epoch=1), answer(0), answer(5)) == [5]
    assert fetch(cache, request(session_id=session_id, epoch=2), answer(0), answer(5)) == []


def test_forgotten_partition_leaves_the_session() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0, 1)
    plan = begin(cache, request(session_id=session_id, epoch=1, forgotten=(0,)))
    assert [wanted.partition for wanted in plan.partitions] == [1]


def test_session_that_forgets_its_last_partition_is_closed() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    plan = begin(cache, request(session_id=session_id, epoch=1, forgotten=(0,)))
    assert complete(cache, plan, []).session_id == 0
    assert len(cache) == 0


def test_session_that_forgets_all_that_a_request_lists_answers_it_and_is_closed() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0, 1)
    plan = begin(cache, request(1, session_id=session_id, epoch=1, forgotten=(0, 1)))
    selection = complete(cache, plan, [answer(1)])
    assert [included.partition_index for _, included in selection.included] == [1]
    assert (selection.session_id, len(cache)) == (0, 0)


def test_final_epoch_closes_the_session() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    begin(cache, request(session_id=session_id, epoch=-1))
    assert len(cache) == 0


def test_full_fetch_with_a_session_replaces_it() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    plan = begin(cache, request(0, session_id=session_id))
    assert complete(cache, plan, [answer(0)]).session_id not in (0, session_id)
    assert len(cache) == 1


def test_unknown_session_is_not_found() -> None:
    refused = FetchSessionCache(10).begin(request(session_id=42, epoch=1), uses_topic_ids=False, now_ms=NOW_MS)
    assert refused is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize("epoch", [2, 7])
def test_epoch_that_is_not_the_next_is_invalid(epoch: int) -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    refused = cache.begin(request(session_id=session_id, epoch=epoch), uses_topic_ids=False, now_ms=NOW_MS)
    assert refused is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_repeated_epoch_is_invalid() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    fetch(cache, request(session_id=session_id, epoch=1), answer(0))
    refused = cache.begin(request(session_id=session_id, epoch=1), uses_topic_ids=False, now_ms=NOW_MS)
    assert refused is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_response_is_refused_when_another_request_used_the_session_meanwhile() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    first = begin(cache, request(session_id=session_id, epoch=1))
    begin(cache, request(session_id=session_id, epoch=2))
    selection = complete(cache, first, [answer(0)])
    assert (selection.error, selection.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)


def test_epoch_starts_again_at_one_after_the_largest() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    cache._sessions[session_id].epoch = 2**31 - 1
    fetch(cache, request(session_id=session_id, epoch=2**31 - 1), answer(0))
    fetch(cache, request(session_id=session_id, epoch=1), answer(0))


def test_session_by_name_cannot_go_on_by_topic_id() -> None:
    cache = FetchSessionCache(10)
    session_id = open_session(cache, 0)
    refused = cache.begin(request(session_id=session_id, epoch=1), uses_topic_ids=True, now_ms=NOW_MS)
    assert refused is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_full_cache_of_busy_sessions_gives_no_session() -> None:
    cache = FetchSessionCache(1)
    open_session(cache, 0)
    assert open_session(cache, 0) == 0
    assert len(cache) == 1


def test_cache_without_slots_gives_no_session() -> None:
    assert open_session(FetchSessionCache(0), 0) == 0


def test_session_unused_for_two_minutes_makes_room() -> None:
    cache = FetchSessionCache(1)
    unused = open_session(cache, 0)
    assert open_session(cache, 0, now_ms=NOW_MS + EVICTION_AFTER_MS + 1) not in (0, unused)
    assert len(cache) == 1


def test_old_session_makes_room_for_a_larger_one_only() -> None:
    cache = FetchSessionCache(1)
    session_id = open_session(cache, 0)
    later_ms = NOW_MS + EVICTION_AFTER_MS + 1
    begin(cache, request(session_id=session_id, epoch=1), later_ms)
    assert open_session(cache, 0, now_ms=later_ms) == 0
    assert open_session(cache, 0, 1, now_ms=later_ms) != 0


# Memory

LARGE = tuple(range(100))
LARGE_BYTES = 100 * (PARTITION_BYTES + len("orders"))


def test_sessions_are_bounded_by_what_their_partitions_take() -> None:
    cache = FetchSessionCache(1_000, maximum_bytes=3 * LARGE_BYTES)
    assert [open_session(cache, *LARGE) != 0 for _ in range(5)] == [True, True, True, False, False]
    assert (len(cache), cache.size_bytes) == (3, 3 * LARGE_BYTES)


def test_a_long_name_counts() -> None:
    cache = FetchSessionCache(1_000, maximum_bytes=LARGE_BYTES)
    for name in ("o" * 30_000, "\N{GRINNING FACE}" * 9_000):
        plan = begin(cache, request(0, 1, topic=name))
        assert complete(cache, plan, [answer(0), answer(1)]).session_id == 0
    assert cache.size_bytes == 0


def test_a_session_that_grows_beyond_the_memory_ends() -> None:
    cache = FetchSessionCache(1_000, maximum_bytes=2 * LARGE_BYTES)
    other, session_id = open_session(cache, *LARGE), open_session(cache, 0)
    assert begin(cache, request(1, 2, session_id=session_id, epoch=1)).session is not None
    refused = cache.begin(request(*LARGE, 100, session_id=session_id, epoch=2), uses_topic_ids=False, now_ms=NOW_MS)
    assert refused is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.size_bytes) == (1, LARGE_BYTES)
    assert begin(cache, request(session_id=other, epoch=1)).session is not None


def test_sessions_unused_for_two_minutes_make_room_for_memory_and_others_do_not() -> None:
    cache = FetchSessionCache(1_000, maximum_bytes=2 * LARGE_BYTES)
    unused, busy = open_session(cache, *LARGE), open_session(cache, *LARGE)
    later_ms = NOW_MS + EVICTION_AFTER_MS + 1
    begin(cache, request(session_id=busy, epoch=1), later_ms)
    assert open_session(cache, *LARGE, now_ms=later_ms) not in (0, unused)
    assert open_session(cache, *LARGE, 100, now_ms=later_ms) == 0
    assert begin(cache, request(session_id=busy, epoch=2), later_ms).session is not None


def test_what_sessions_give_back_can_be_used_again() -> None:
    cache = FetchSessionCache(1_000, maximum_bytes=LARGE_BYTES)
    session_id = open_session(cache, *LARGE)
    begin(cache, request(session_id=session_id, epoch=1, forgotten=LARGE[1:]))
    assert cache.size_bytes == LARGE_BYTES // 100
    begin(cache, request(session_id=session_id, epoch=2, forgotten=(0, 7)))
    assert (len(cache), cache.size_bytes) == (0, 0)
    session_id = open_session(cache, *LARGE)
    begin(cache, request(*LARGE, session_id=session_id))
    assert cache.size_bytes == 0
    begin(cache, request(session_id=open_session(cache, *LARGE), epoch=-1))
    assert cache.size_bytes == 0
    full = FetchSessionCache(1, maximum_bytes=LARGE_BYTES)
    open_session(full, 0)
    assert open_session(full, 1, now_ms=NOW_MS + EVICTION_AFTER_MS + 1) != 0
    assert (len(full), full.size_bytes) == (1, LARGE_BYTES // 100)
