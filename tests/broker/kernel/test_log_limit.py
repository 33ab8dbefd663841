"""The bound on events that clients cause."""

from __future__ import annotations

from fencepost.broker.kernel.log_limit import LOGGED_PER_WINDOW, WINDOW_S, LogLimit


class Times:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_events_beyond_the_bound_are_left_out_and_counted_with_the_next_one() -> None:
    times, left_out = Times(), list[int]()
    limit = LogLimit(times, left_out.append)
    allowed = [limit.allows() for _ in range(LOGGED_PER_WINDOW + 7)]
    assert allowed == [True] * LOGGED_PER_WINDOW + [False] * 7
    assert left_out == []
    times.now_s += WINDOW_S
    assert limit.allows()
    assert left_out == [7]


def test_few_events_are_all_logged_and_nothing_is_counted() -> None:
    times, left_out = Times(), list[int]()
    limit = LogLimit(times, left_out.append)
    for _ in range(100):
        assert limit.allows()
        times.now_s += WINDOW_S / LOGGED_PER_WINDOW
    assert left_out == []
