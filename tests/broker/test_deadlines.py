"""Deadlines on a heap: never late, at most one per key, bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.deadlines import Deadlines


def test_what_is_due_comes_earliest_first_and_only_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("b", 20)
    deadlines.set("a", 10)
    deadlines.set("c", 30)
    assert list(deadlines.due(20)) == ["a", "b"]
    assert list(deadlines.due(20)) == []
    assert deadlines.next_ms() == 30


def test_a_deadline_moved_later_is_not_due_at_its_old_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert list(deadlines.due(49)) == []
    assert deadlines.next_ms() == 50
    assert list(deadlines.due(50)) == ["a"]


def test_a_cleared_deadline_is_never_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.clear("a")
    deadlines.clear("a")
    assert deadlines.next_ms() is None
    assert list(deadlines.due(100)) == []


def test_a_deadline_that_is_cleared_and_set_again_later_stays_where_it_is_on_the_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time_ms in range(10, 20):
        deadlines.set("a", time_ms)
        deadlines.clear("a")
    deadlines.set("a", 20)
    assert deadlines._heap == [(10, "a")]
    assert list(deadlines.due(19)) == []
    assert deadlines._heap == [(20, "a")]
    assert list(deadlines.due(20)) == ["a"]
    assert deadlines._heap == []


def test_a_key_may_be_set_again_while_it_is_handled() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    for key in deadlines.due(10):
        deadlines.set(key, 20)
    assert deadlines.get("a") == 20


def test_the_heap_stays_small_however_often_a_deadline_moves() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for time_ms in range(10_000):
        deadlines.set("a", time_ms)
        deadlines.clear("a")
        deadlines.set("a", time_ms)
    assert len(deadlines._heap) < 100


@given(
    st.lists(
        st.tuples(st.sampled_from(["set", "clear", "due"]), st.sampled_from("abcd"), st.integers(0, 30)), max_size=60
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
            assert set(deadlines.due(time_ms)) == due
            for known in due:
                del model[known]
        earliest_ms = deadlines.next_ms()
        assert (earliest_ms is None) == (not model)
        assert earliest_ms is None or earliest_ms <= min(model.values())
