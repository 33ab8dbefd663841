"""Pictures as lists of shapes, which templates write as SVG: the time-travel of a partition. Pure.

Colours come from the style sheet by class names; there are no style attributes, which the pages' policy forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fencepost.console.time_travel import History, Step, Transaction

WIDTH: Final = 1_000.0
LANE_HEIGHT: Final = 26.0
MOST_LANES: Final = 24
STAIR_HEIGHT: Final = 150.0
LEFT: Final = 118.0
RIGHT: Final = 12.0
TOP: Final = 8.0
LEAST_BAR_WIDTH: Final = 3.0


class Bar(NamedTuple):
    """A transaction in its lane."""

    x: float
    y: float
    width: float
    height: float
    outcome: str
    title: str
    began_before: bool


class Lane(NamedTuple):
    """A producer's lane."""

    y: float
    text_y: float
    label: str


class Tick(NamedTuple):
    """A mark on the axis of offsets."""

    x: float
    label: str


@dataclass
class TimeTravelPicture:
    """Lanes above, stair below; both on the axis of the log's end."""

    width: float = WIDTH
    height: float = 0.0
    lanes: list[Lane] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    ticks: list[Tick] = field(default_factory=list)
    end_line: str = ""
    stable_line: str = ""
    gap_area: str = ""
    stair_top: float = 0.0
    stair_bottom: float = 0.0
    left: float = LEFT
    right: float = WIDTH - RIGHT
    cursor_x: float = 0.0
    hidden_lanes: int = 0


def draw_time_travel(history: History, chosen: Step) -> TimeTravelPicture:
    """Draw a range of a partition's history, with a line at the chosen step."""
    picture = TimeTravelPicture()
    first, last = history.from_offset, max(history.to_offset, history.from_offset + 1)

    def x_of(offset: float) -> float:
        return round(LEFT + (offset - first) / (last - first) * (WIDTH - LEFT - RIGHT), 2)

    lanes = history.lanes
    picture.hidden_lanes = max(0, len(lanes) - MOST_LANES)
    y = TOP
    for producer_id, transactions in lanes[:MOST_LANES]:
        picture.lanes.append(Lane(y, y + LANE_HEIGHT / 2 + 4, f"producer {producer_id}"))
        for transaction in transactions:
            picture.bars.append(_bar(transaction, y, x_of, history.to_offset))
        y += LANE_HEIGHT
    top = y + 14
    bottom = top + STAIR_HEIGHT
    picture.stair_top, picture.stair_bottom, picture.height = top, bottom, bottom + 26

    def y_of(offset: float) -> float:
        return round(bottom - (offset - first) / (last - first) * STAIR_HEIGHT, 2)

    ends, stables = _corners(history.steps)
    picture.end_line = " ".join(f"{x_of(x)},{y_of(y)}" for x, y in ends)
    picture.stable_line = " ".join(f"{x_of(x)},{y_of(y)}" for x, y in stables)
    picture.gap_area = " ".join(f"{x_of(x)},{y_of(y)}" for x, y in [*ends, *reversed(stables)])
    picture.ticks = [Tick(x_of(offset), f"{offset:,}") for offset in _tick_offsets(first, last)]
    picture.cursor_x = x_of(chosen.end_offset)
    return picture


def _bar(transaction: Transaction, y: float, x_of: object, to_offset: int) -> Bar:
    assert callable(x_of)
    end = to_offset if transaction.marker_offset is None else transaction.marker_offset + 1
    start_x, end_x = x_of(transaction.first_offset), x_of(end)
    title = (
        f"producer {transaction.producer_id}: offsets {transaction.first_offset:,} to {max(end - 1, 0):,}, "
        f"{transaction.records:,} records, {transaction.outcome}"
    )
    return Bar(
        start_x,
        y + 4,
        max(LEAST_BAR_WIDTH, round(end_x - start_x - 1, 2)),
        LANE_HEIGHT - 8,
        transaction.outcome,
        title,
        transaction.began_before,
    )


def _corners(steps: Sequence[Step]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The two lines: (end, end), and (end, last stable offset) as a stair."""
    ends, stables = [], []
    before: Step | None = None
    for step in steps:
        ends.append((step.end_offset, step.end_offset))
        if before is not None and before.last_stable_offset != step.last_stable_offset:
            stables.append((step.end_offset, before.last_stable_offset))
        stables.append((step.end_offset, step.last_stable_offset))
        before = step
    return ends, stables


def _tick_offsets(first: int, last: int) -> list[int]:
    span = last - first
    distance = 1
    while span / distance > 8:
        distance = distance * 5 // 2 if str(distance).startswith("2") else distance * 2
    start = -(-first // distance) * distance
    return list(range(start, last + 1, distance))
