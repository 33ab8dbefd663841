"""The bound on events that clients cause."""

from __future__ import annotations

from fencepost.broker.kernel.log_limit import FULL_SHARES, NAMED, OTHERS, SHARE, WINDOW_S, LogLimit


class Times:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_events_beyond_the_bound_are_left_out_and_counted_with_the_next_one() -> None:
    times, left_out = Times(), list[tuple[int, str]]()
    limit = LogLimit(times, lambda count, whose: left_out.append((count, whose)))
    allowed = [limit.allows("10.0.0.1") for _ in range(SHARE + 7)]
    assert allowed == [True] * SHARE + [False] * 7
    assert left_out == []
    times.now_s += WINDOW_S
    assert limit.allows("10.0.0.1")
    assert left_out == [(7, "10.0.0.1")]


def test_few_events_are_all_logged_and_nothing_is_counted() -> None:
    times, left_out = Times(), list[tuple[int, str]]()
    limit = LogLimit(times, lambda count, whose: left_out.append((count, whose)))
    for _ in range(100):
        assert limit.allows("10.0.0.1")
        times.now_s += WINDOW_S / SHARE
    assert left_out == []


def test_one_address_hides_no_events_of_another() -> None:
    times, left_out = Times(), list[tuple[int, str]]()
    limit = LogLimit(times, lambda count, whose: left_out.append((count, whose)))
    for number in range(2 * FULL_SHARES):
        logged = [limit.allows(f"10.0.0.{number}") for _ in range(100 + number)]
        assert sum(logged) == (SHARE if number < FULL_SHARES else 1)
    times.now_s += WINDOW_S
    limit.allows("10.0.0.1")
    assert len(left_out) == NAMED + 1
    assert left_out[0] == (98 + 2 * FULL_SHARES, f"10.0.0.{2 * FULL_SHARES - 1}")
    assert left_out[-1][1] == OTHERS


def test_an_event_that_repeats_is_logged_once_and_takes_no_further_share() -> None:
    times, left_out = Times(), list[tuple[int, str]]()
    limit = LogLimit(times, lambda count, whose: left_out.append((count, whose)))
    assert [limit.allows("a", event="refused") for _ in range(3 * SHARE)].count(True) == 1
    assert limit.allows("a", event="another")
    times.now_s += WINDOW_S
    assert limit.allows("a", event="refused")
    assert left_out == [(3 * SHARE - 1, "a")]
