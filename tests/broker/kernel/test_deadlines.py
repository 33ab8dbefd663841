"""Deadlines on a heap: never late, at most one per key, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.kernel.deadlines import REFUSED_PAUSE_MS, DeadlinePace, Deadlines
from fencepost.protocol.errors import ErrorCode

MANY = 1_000


def test_what_is_due_comes_earliest_first_and_stays_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("b", 20)
    deadlines.set("a", 10)
    deadlines.set("c", 30)
    assert deadlines.due(20, MANY) == ["a", "b"]
    assert deadlines.due(20, 1) == ["a"]
    assert deadlines.due(20, MANY) == ["a", "b"]
    assert deadlines.next_ms() == 10


def test_a_deadline_moved_later_is_not_due_at_its_old_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert deadlines.due(49, MANY) == []
    assert deadlines.next_ms() == 50
    assert deadlines.due(50, MANY) == ["a"]


def test_a_deadline_that_was_moved_earlier_and_back_again_is_due_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 30)
    deadlines.set("a", 10)
    deadlines.set("a", 30)
    assert deadlines.due(20, MANY) == []
    assert deadlines.due(30, MANY) == ["a"]
    assert deadlines.due(30, MANY) == ["a"]


def test_a_cleared_deadline_is_never_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.clear("a")
    deadlines.clear("a")
    assert deadlines.next_ms() is None
    assert deadlines.due(100, MANY) == []


def test_a_deadline_that_is_cleared_and_set_again_later_stays_where_it_is_on_the_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time_ms in range(10, 20):
        deadlines.set("a", time_ms)
        deadlines.clear("a")
    deadlines.set("a", 20)
    assert deadlines._heap == [(10, "a")]
    assert deadlines.due(19, MANY) == []
    assert deadlines._heap == [(20, "a")]
    assert deadlines.due(20, MANY) == ["a"]
    deadlines.clear("a")
    deadlines.trim(20)
    assert deadlines._heap == []


def test_when_what_was_due_is_cleared_and_trimmed_the_next_time_is_true() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for number, key in enumerate("abcd"):
        deadlines.set(key, number)
    deadlines.set("b", 50)
    for key in deadlines.due(2, MANY):
        deadlines.clear(key)
    deadlines.trim(2)
    assert deadlines.next_ms() == 3


def test_fewer_deadlines_are_decided_after_a_refusal_and_more_after_each_success() -> None:
    deadlines: Deadlines[str] = Deadlines()
    keys = [str(number) for number in range(100)]
    for key in keys:
        deadlines.set(key, 0)
    pace = DeadlinePace(64)
    pace.refused(deadlines, keys[:64], 0, ErrorCode.KAFKA_STORAGE_ERROR)
    assert pace.most == 64
    counts = []
    while pace.most > 1:
        pace.refused(deadlines, deadlines.due(0, pace.most), 0, ErrorCode.MESSAGE_TOO_LARGE)
        counts.append(pace.most)
    assert counts == [16, 4, 1]
    assert [deadlines.get(key) for key in keys] == [0] * 100
    (first,) = deadlines.due(0, pace.most)
    pace.refused(deadlines, [first], 0, ErrorCode.RECORD_LIST_TOO_LARGE)
    assert deadlines.get(first) == REFUSED_PAUSE_MS
    assert len(deadlines.due(0, MANY)) == 99
    for _ in range(7):
        pace.settled(deadlines, 0)
    assert pace.most == 64


def test_the_heap_stays_small_however_often_a_deadline_moves() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time_ms in range(10_000):
        deadlines.set("a", time_ms)
        deadlines.clear("a")
        deadlines.set("a", time_ms)
    assert len(deadlines._heap) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "set", "clear", "due", "look"]), st.sampled_from("abcd"), st.integers(0, 30)),
        max_size=60,
    )
)
def test_it_behaves_like_a_dictionary_of_times(operations: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for operation, key, time_ms in operations:
        if operation == "set":
            deadlines.set(key, time_ms)
            model[key] = time_ms
        elif operation == "clear":
            deadlines.clear(key)
            model.pop(key, None)
        else:
            due = {known for known, at_ms in model.items() if at_ms <= time_ms}
            assert sorted(deadlines.due(time_ms, MANY)) == sorted(due)
            assert len(deadlines.due(time_ms, 1)) == min(1, len(due))
            if operation == "due":
                for known in due:
                    deadlines.clear(known)
                    del model[known]
                deadlines.trim(time_ms)
        earliest_ms = deadlines.next_ms()
        assert (earliest_ms is None) == (not model)
        assert earliest_ms is None or earliest_ms <= min(model.values())


DAY_MS = 86_400_000


def test_a_clock_that_is_set_ahead_makes_nothing_due_that_was_not() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at_ms in {"due": 900, "soon": 1_050, "by the new clock": DAY_MS + 1_100}.items():
        deadlines.set(key, at_ms)
    now_ms = DAY_MS + 1_000
    deadlines.clock_moved(DAY_MS, now_ms)
    assert deadlines.due(now_ms, 9) == ["due"]
    assert deadlines.due(now_ms + 50, 9) == ["due", "soon"]
    assert set(deadlines.due(now_ms + 100, 9)) == {"due", "soon", "by the new clock"}


def test_a_clock_that_is_set_back_keeps_nothing_waiting() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at_ms in {"due": DAY_MS + 900, "soon": DAY_MS + 1_050, "by the new clock": 46_000}.items():
        deadlines.set(key, at_ms)
    deadlines.clock_moved(-DAY_MS, 1_000)
    assert deadlines.due(1_000, 9) == ["due"]
    assert deadlines.due(1_050, 9) == ["due", "soon"]
    assert set(deadlines.due(46_000, 9)) == {"due", "soon", "by the new clock"}
    deadlines.clear("soon")
    assert set(deadlines.due(46_000, 9)) == {"due", "by the new clock"}
