"""A picture for each figure, from its results as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

COLOURS = {
    "fencepost": "#1b6ca8",
    "fencepost-page-cache": "#7fb7e0",
    "kafka": "#d98032",
    "limit": "#cccccc",
    "limit-on-disk": "#888888",
}
OTHER_COLOURS = ("#6a994e", "#9d6b9e", "#888888")
LABELS = {
    "fencepost": "Fencepost, on disk before the reply",
    "fencepost-page-cache": "Fencepost, in the page cache",
    "kafka": "Apache Kafka, in the page cache (its default)",
    "limit": "the limit, in the page cache",
    "limit-on-disk": "the limit, on disk before the reply",
}
COLUMNS_COUNT = 3
PANEL_WIDTH_INCHES = 4.2
BAR_INCHES = 0.16
# The same results draw the same file, and its text stays text.
STYLE = {"svg.hashsalt": "fencepost", "svg.fonttype": "none", "font.size": 8, "axes.titlesize": 9}


def draw_pictures(directory: Path, content: Mapping[str, Any]) -> None:
    """One SVG per figure, named like it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, figure in content["figures"].items():
        draw(directory / f"{name}.svg", figure["results"])


def draw(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """A panel for each quantity; in it a group of bars for each case, a bar for each subject with its range."""
    panels = list(dict.fromkeys((result["quantity"], result["unit"]) for result in results))
    subjects = list(dict.fromkeys(result["subject"] for result in results))
    cases = list(dict.fromkeys(result["case"] for result in results))
    columns = min(COLUMNS_COUNT, len(panels))
    rows = math.ceil(len(panels) / columns)
    panel_height = 0.7 + BAR_INCHES * len(cases) * (len(subjects) + 1)
    with mpl.rc_context(STYLE):
        longest = max(len(case) for case in cases)
        margin = 0.3 + 0.06 * longest
        canvas = Canvas(
            figsize=(margin + PANEL_WIDTH_INCHES * columns, 0.5 + panel_height * rows), layout="constrained"
        )
        grid = canvas.subplots(rows, columns, squeeze=False, sharey=True)
        for number, axes in enumerate(grid.flat):
            if number >= len(panels):
                axes.set_axis_off()
                continue
            quantity, unit = panels[number]
            axes.set_title(f"{quantity}, {unit}")
            for place, subject in enumerate(subjects):
                _bars(axes, results, quantity, subject, cases, place, len(subjects))
            axes.set_yticks(range(len(cases)), cases)
            axes.set_ylim(len(cases) - 0.5, -0.5)
            axes.set_xlim(left=0)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(axis="y", length=0)
        if len(subjects) > 1:
            handles, labels = grid.flat[0].get_legend_handles_labels()
            canvas.legend(handles, labels, loc="outside upper left", ncols=len(subjects), frameon=False)
        canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _bars(
    axes: Any,
    results: Sequence[Mapping[str, Any]],
    quantity: str,
    subject: str,
    cases: Sequence[str],
    place: int,
    count: int,
) -> None:
    mine = {
        result["case"]: result for result in results if (result["quantity"], result["subject"]) == (quantity, subject)
    }
    height = 0.8 / count
    positions, medians, errors = [], [], ([], [])  # type: ignore[var-annotated]
    for number, case in enumerate(cases):
        if case in mine:
            values, median = mine[case]["values"], mine[case]["median"]
            positions.append(number + (place - (count - 1) / 2) * height)
            medians.append(median)
            errors[0].append(max(0.0, median - min(values)))
            errors[1].append(max(0.0, max(values) - median))
    colour = COLOURS.get(subject) or OTHER_COLOURS[place % len(OTHER_COLOURS)]
    axes.barh(
        positions,
        medians,
        height=height * 0.9,
        color=colour,
        label=LABELS.get(subject, subject),
        xerr=errors,
        error_kw={"ecolor": "#333333", "elinewidth": 0.8},
    )
