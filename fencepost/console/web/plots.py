"""Small plots of the last hour, as points of SVG polylines, and the same in numbers.

Colours come from the style sheet by class names; there are no style attributes, which the pages' policy forbids.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from fencepost.console.reading.history import HOLE_S, SPAN_S, Point

PLOT_WIDTH: Final = 240.0
PLOT_HEIGHT: Final = 44.0
ROWS_OF_NUMBERS: Final = 12


class NumbersRow(NamedTuple):
    """A part of the time of a plot, in minutes ago, with the mean and the greatest value; None if nothing is known."""

    from_min: int
    to_min: int
    mean: float | None
    greatest: float | None


@dataclass(frozen=True)
class Plot:
    """A curve over the last hour, the greatest value at the top. lines: points of polylines, one for each time without
    a hole. rows: the same in numbers, the latest first. latest: None if it is not known.
    """

    lines: Sequence[str]
    latest: float | None
    greatest: float | None
    minutes: int
    has_holes: bool
    rows: Sequence[NumbersRow]


def plot(points: Sequence[Point]) -> Plot:
    """Draw samples of the last hour, oldest first."""
    known = [(one.age_s, one.value) for one in points if one.value is not None]
    greatest = max((value for _, value in known), default=None)
    runs: list[list[tuple[float, float]]] = []
    before_s: float | None = None
    for age_s, value in points:
        if value is not None:
            if before_s is None or before_s - age_s > HOLE_S:
                runs.append([])
            runs[-1].append((age_s, value))
        before_s = None if value is None else age_s
    latest = points[-1].value if points and points[-1].age_s <= HOLE_S else None
    minutes = int(known[0][0] / 60 + 0.5) if known else 0
    lines = [_line(run, greatest or 1.0) for run in runs]
    return Plot(lines, rounded(latest), rounded(greatest), minutes, len(runs) > 1, _in_numbers(known))


def rounded(value: float | None) -> float | None:
    """A number to show: whole from 10 on, or if it is."""
    return value if value is None or (value < 10 and value != int(value)) else round(value)


def _line(run: Sequence[tuple[float, float]], greatest: float) -> str:
    corners = [
        (PLOT_WIDTH * (1 - age_s / SPAN_S), PLOT_HEIGHT - 2 - value / greatest * (PLOT_HEIGHT - 4))
        for age_s, value in run
    ]
    if len(corners) == 1:
        # One sample alone would not be drawn.
        (x, y), corners = corners[0], []
        corners = [(x - 1, y), (x, y)]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)


def _in_numbers(known: Sequence[tuple[float, float]]) -> list[NumbersRow]:
    width_min = int(SPAN_S / 60 / ROWS_OF_NUMBERS)
    rows = []
    for number in range(ROWS_OF_NUMBERS):
        from_min, to_min = (number + 1) * width_min, number * width_min
        found = [value for age_s, value in known if to_min * 60 <= age_s < from_min * 60]
        mean = sum(found) / len(found) if found else None
        rows.append(NumbersRow(from_min, to_min, rounded(mean), rounded(max(found, default=None))))
    return rows
