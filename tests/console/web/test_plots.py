"""Plots stay in their frame, and show holes as holes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.console.reading.history import SPAN_S, Point
from fencepost.console.web.plots import PLOT_HEIGHT, PLOT_WIDTH, plot

VALUES = st.none() | st.floats(0, 1e15, allow_nan=False)
POINTS = st.lists(st.tuples(st.floats(0, SPAN_S), VALUES), max_size=40).map(
    lambda found: [Point(*one) for one in sorted(found, key=lambda one: -one[0])]
)


@given(POINTS)
def test_a_plot_stays_within_its_frame(points: list[Point]) -> None:
    drawn = plot(points)
    corners = [corner.split(",") for line in drawn.lines for corner in line.split()]
    assert all(-1 <= float(x) <= PLOT_WIDTH and 0 <= float(y) <= PLOT_HEIGHT for x, y in corners)
    assert len(drawn.rows) == 12


def test_the_greatest_is_on_top_and_now_is_at_the_right() -> None:
    drawn = plot([Point(60, 0.0), Point(30, 5.0), Point(0, 10.0)])
    assert drawn.lines == ["236.0,42.0 238.0,22.0 240.0,2.0"]
    assert (drawn.latest, drawn.greatest, drawn.minutes, drawn.has_holes) == (10.0, 10.0, 1, False)
    assert drawn.rows[0].mean == 5.0
    assert (drawn.rows[1].mean, drawn.rows[1].greatest) == (None, None)


def test_a_hole_in_time_or_in_what_is_known_parts_the_line() -> None:
    drawn = plot([Point(3_000, 1.0), Point(2_985, 1.0), Point(600, 1.0), Point(585, None), Point(570, 1.0)])
    assert [len(line.split()) for line in drawn.lines] == [2, 2, 2]
    assert drawn.has_holes
    assert drawn.latest is None, "the last sample is from ten minutes ago"


def test_nothing_is_drawn_of_nothing() -> None:
    drawn = plot([Point(0, None)])
    assert (drawn.lines, drawn.latest, drawn.greatest) == ([], None, None)
    assert plot([]).lines == []
