"""A picture for each figure, from its results as JSON: bars, or lines where a figure is measured over sizes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from scripts.benchmarks.overview import BY_DEFAULT, IN_PAGE_CACHE, ON_DISK, PAIRS, ROWS, advantage

COLOURS = {
    "fencepost": "#1b6ca8",
    "fencepost-page-cache": "#7fb7e0",
    "fencepost-two-processes": "#4fa3a5",
    "kafka": "#d98032",
    "kafka-durable": "#8a4b12",
    "limit": "#cccccc",
    "limit-on-disk": "#888888",
}
PAIR_COLOURS = {ON_DISK: "#1b6ca8", IN_PAGE_CACHE: "#7fb7e0", BY_DEFAULT: "#b9b9b9"}
OTHER_COLOURS = ("#6a994e", "#9d6b9e", "#888888")
LABELS = {
    "fencepost": "Fencepost, on disk before the reply",
    "fencepost-page-cache": "Fencepost, in the page cache",
    "fencepost-two-processes": "Fencepost, two processes, in the page cache",
    "kafka": "Apache Kafka, in the page cache (its default)",
    "kafka-durable": "Apache Kafka, on disk before the reply",
    "limit": "the limit, in the page cache",
    "limit-on-disk": "the limit, on disk before the reply",
}
COLUMNS_COUNT = 3
PANEL_WIDTH_INCHES = 4.2
BAR_INCHES = 0.16
LINE_PANEL_INCHES = 2.2
SIZE = re.compile(r"([\d,]+) ([^,]+)")
"""A case that is a size: 10,000 partitions."""
LEAST_SIZES_COUNT = 3
# The same results draw the same file, and its text stays text.
STYLE = {"svg.hashsalt": "fencepost", "svg.fonttype": "none", "font.size": 8, "axes.titlesize": 9}


def draw_pictures(directory: Path, content: Mapping[str, Any]) -> None:
    """One SVG per figure, named like it."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, figure in content["figures"].items():
        path = directory / f"{name}.svg"
        draw_lines(path, figure["results"]) if sizes(figure["results"]) else draw(path, figure["results"])


def sizes(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """The sizes of a figure by case, where it is measured over at least three sizes of one thing; else nothing."""
    cases = dict.fromkeys(result["case"] for result in results if result["unit"] != "times")
    matches = {case: SIZE.fullmatch(case) for case in cases}
    found = {case: int(match[1].replace(",", "")) for case, match in matches.items() if match}
    things = {match[2] for match in matches.values() if match}
    return found if len(found) == len(cases) >= LEAST_SIZES_COUNT and len(things) == 1 else {}


def draw_lines(path: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """A panel for each quantity; in it a line over the sizes for each subject, with the range of each point."""
    size_of = sizes(results)
    results = [result for result in results if result["case"] in size_of]
    thing = next(iter(size_of)).partition(" ")[2]
    panels = list(dict.fromkeys((result["quantity"], result["unit"]) for result in results))
    subjects = list(dict.fromkeys(result["subject"] for result in results))
    columns = min(COLUMNS_COUNT, len(panels))
    rows = math.ceil(len(panels) / columns)
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(PANEL_WIDTH_INCHES * columns, 0.5 + LINE_PANEL_INCHES * rows), layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False)
        for number, axes in enumerate(grid.flat):
            if number >= len(panels):
                axes.set_axis_off()
                continue
            quantity, unit = panels[number]
            axes.set_title(f"{quantity}, {unit}")
            axes.set_xscale("log")
            axes.set_xlabel(thing)
            for place, subject in enumerate(subjects):
                _line(axes, results, (quantity, subject), size_of, place)
            axes.set_ylim(bottom=0)
            axes.spines[["top", "right"]].set_visible(False)
        if len(subjects) > 1:
            handles, labels = grid.flat[0].get_legend_handles_labels()
            canvas.legend(handles, labels, loc="outside upper left", ncols=len(subjects), frameon=False)
        canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _line(
    axes: Any, results: Sequence[Mapping[str, Any]], what: tuple[str, str], size_of: Mapping[str, int], place: int
) -> None:
    mine = sorted(
        (size_of[result["case"]], result["median"], min(result["values"]), max(result["values"]))
        for result in results
        if (result["quantity"], result["subject"]) == what
    )
    subject = what[1]
    if mine:
        xs, medians, least, most = zip(*mine, strict=True)
        colour = COLOURS.get(subject) or OTHER_COLOURS[place % len(OTHER_COLOURS)]
        axes.plot(xs, medians, marker="o", markersize=3, color=colour, label=LABELS.get(subject, subject))
        axes.fill_between(xs, least, most, color=colour, alpha=0.15, linewidth=0)


def draw_overview(path: Path, figures: Mapping[str, Any]) -> None:
    """How many times as good as Kafka this broker is by each pair of settings, for each row, around a line at 1."""
    rows = [row for row in ROWS if any(advantage(figures, row, pair) is not None for pair in PAIRS)]
    with mpl.rc_context({**STYLE, "font.size": 9}):
        canvas = Canvas(figsize=(8, 5.2), layout="constrained")
        axes = canvas.subplots()
        for place, pair in enumerate(PAIRS):
            found = [(number, advantage(figures, row, pair)) for number, row in enumerate(rows)]
            bars = [(number + (place - 1) * 0.28, value) for number, value in found if value is not None]
            axes.barh(
                [position for position, _ in bars],
                [value - 1 for _, value in bars],
                left=1,
                height=0.26,
                color=PAIR_COLOURS[pair],
                label=pair.label,
            )
            for position, value in bars:
                is_ahead = value >= 1
                axes.annotate(
                    f"{value:.2g}",
                    (value, position),
                    xytext=(3 if is_ahead else -3, 0),
                    textcoords="offset points",
                    ha="left" if is_ahead else "right",
                    va="center",
                    fontsize=7,
                )
        axes.axvline(1, color=COLOURS["kafka"], linewidth=1.5)
        axes.set_xscale("log")
        axes.set_xlim(0.4, 20)
        ticks = [0.5, 1, 2, 5, 10]
        axes.set_xticks(ticks, ["half as good", "Apache Kafka", "2 times", "5 times", "10 times"])
        axes.set_xticks([], minor=True)
        axes.set_yticks(range(len(rows)), [row.label for row in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right"]].set_visible(False)
        canvas.legend(loc="outside upper left", ncols=2, frameon=False)
        canvas.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


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
