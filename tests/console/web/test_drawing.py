"""Pictures stay within their frames."""

from __future__ import annotations

from hypothesis import given

from fencepost.console.time_travel import history_of
from fencepost.console.web.drawing import WIDTH, draw_time_travel
from tests.console.partition import Action, carry_out
from tests.console.test_record_marks import ACTIONS


@given(ACTIONS)
def test_a_picture_stays_within_its_frame(actions: list[Action]) -> None:
    history = history_of(carry_out(actions).batches, 0, begins_the_log=True)
    picture = draw_time_travel(history, history.steps[-1])
    assert all(
        bar.x >= 0 and bar.x + bar.width <= WIDTH and bar.y + bar.height <= picture.height for bar in picture.bars
    )
    assert len({tick.label for tick in picture.ticks}) == len(picture.ticks) <= 10
    points = [point.split(",") for point in (picture.end_line + " " + picture.stable_line).split()]
    assert all(0 <= float(x) <= WIDTH and picture.stair_top <= float(y) <= picture.stair_bottom for x, y in points)
