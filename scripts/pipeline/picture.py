"""The picture of one run of the demonstration: who was alive when, how each transaction ended, what readers saw, the
verdict."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from scripts.pipeline.timeline import ABORTED, ACTORS, COMMITTED, CUT_OFF, Life, Record
from scripts.pipeline.verdict import Verdict

GREEN, RED, GREY, ORANGE, BLUE, INK = "#2a7f4f", "#c1121f", "#8a8f98", "#d98032", "#1b6ca8", "#24292f"
SIZE_INCHES = (11.0, 8.0)
# The same record draws the same file. Letters are drawn as shapes: their widths, which decide where labels have room,
# are the same for every viewer.
STYLE = {"svg.hashsalt": "fencepost", "svg.fonttype": "path", "font.size": 9, "text.color": INK, "axes.edgecolor": GREY}
STYLE |= {"xtick.color": INK, "ytick.color": INK, "axes.labelcolor": INK}
LANE_HEIGHT = 0.34
LARGEST_REASONS_COUNT = 3
LARGEST_SAMPLES_COUNT = 600
REASON_WIDTH = 145
TICK_OUTCOMES = (COMMITTED, ABORTED, CUT_OFF)
TICK_COLOURS = {COMMITTED: GREEN, ABORTED: GREY, CUT_OFF: RED}
HEADINGS = (
    "The processes that were alive",
    "The application's transactions, a tick where each ended",
    "Departures in the source, and seen by two readers",
    "Seen by the uncommitted reader only",
)


class Label(NamedTuple):
    """A text beside a mark: `text` belongs to the time `at_s` of a lane, whose number counts from below."""

    at_s: float
    lane: float
    text: str


def draw(record: Record, verdict: Verdict, path: Path) -> None:
    """Write the picture as SVG."""
    with mpl.rc_context(STYLE):
        metadata = {"Date": None, "Creator": None, "Title": f"{verdict.headline}: {verdict.figures}"}
        compose(record, verdict).savefig(path, format="svg", metadata=metadata)
    path.write_text(_rounded(path.read_text(encoding="utf-8")), encoding="utf-8")


def _rounded(svg: str) -> str:
    """The same picture in half the bytes: matplotlib writes coordinates to a millionth of a point."""
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), svg)


def compose(record: Record, verdict: Verdict) -> Figure:
    """The picture, with every label at its place."""
    record = _thinned(record)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=SIZE_INCHES, facecolor="white")
        FigureCanvasAgg(figure)  # measures text
        grid = figure.add_gridspec(
            4,
            2,
            height_ratios=(3.0, 1.7, 3.4, 1.5),
            width_ratios=(4.6, 1.4),
            left=0.135,
            right=0.985,
            top=0.81,
            bottom=0.075,
            hspace=0.36,
            wspace=0.03,
        )
        axes = [[figure.add_subplot(grid[row, column]) for column in range(2)] for row in range(4)]
        _draw_verdict(figure, record, verdict)
        (actors, spark), (transactions, _), (readers, reader_labels), (excess, excess_labels) = axes
        # Before the first sample there is only Spark, which starts.
        start_s = record.samples[0].at_s if record.samples else 0.0
        end_s = _end_of_application_s(record)
        for main in (actors, transactions, readers, excess):
            main.set_xlim(start_s, end_s)
            _shade_absences(main, record)
        for axis in itertools.chain.from_iterable(axes):
            axis.spines[["top", "right"]].set_visible(False)
        for empty in (axes[1][1], reader_labels, excess_labels):
            empty.set_axis_off()
        _draw_spark(spark, record)
        _draw_transactions(transactions, record)
        _draw_readers(readers, reader_labels, record)
        _draw_excess(excess, excess_labels, record)
        for upper in (actors, transactions, readers):
            upper.tick_params(labelbottom=False)
        for main, heading in zip((actors, transactions, readers, excess), HEADINGS, strict=True):
            main.set_title(heading, loc="left", fontsize=9, color=GREY, pad=4)
        excess.set_xlabel("seconds")
        excess.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        _draw_actors(actors, record)
        return figure


def _thinned(record: Record) -> Record:
    """With no more samples than a picture can show."""
    step = len(record.samples) // LARGEST_SAMPLES_COUNT + 1
    return replace(record, samples=[*record.samples[:-1:step], *record.samples[-1:]])


def _end_of_application_s(record: Record) -> float:
    """Where the main part of the picture ends: a little after the application."""
    ends = [life.end_s for life in record.lives_of("application") if life.end_s is not None]
    ends += [transaction.at_s for transaction in record.transactions]
    last_s = max(ends, default=max((sample.at_s for sample in record.samples), default=1.0))
    return max(last_s, 0.1) * 1.02


def _draw_verdict(figure: Figure, record: Record, verdict: Verdict) -> None:
    colour = GREEN if verdict.holds else RED
    figure.text(0.012, 0.975, verdict.headline, fontsize=17, fontweight="bold", color=colour, va="top")
    figure.text(0.012, 0.927, verdict.figures, fontsize=11, va="top", color=INK if verdict.holds else RED)
    reasons = [f"{check.statement}: {check.found}" for check in verdict.checks if not check.holds]
    left = len(reasons) - LARGEST_REASONS_COUNT
    lines = [textwrap.shorten(f"wrong: {reason}", REASON_WIDTH) for reason in reasons[:LARGEST_REASONS_COUNT]]
    if left > 0:
        lines[-1] += f" (and {left} more)"
    text = "\n".join(lines) or _circumstances(record)
    figure.text(0.012, 0.898, text, fontsize=8.5, va="top", color=RED if lines else GREY, linespacing=1.25)


def _circumstances(record: Record) -> str:
    killed = [actor for actor in ACTORS if any(life.is_killed for life in record.lives_of(actor))]
    named = " and ".join(filter(None, [", ".join(killed[:-1]), *killed[-1:]]))
    kills = f"kill -9 ended {named} on the way; " if killed else ""
    return f"{kills}Spark wrote each batch once, and every figure was compared with the data set"


def _absences(record: Record, actor: str) -> Iterator[tuple[Life, Life | None]]:
    """Each life that did not end by itself, and the next one."""
    lives = record.lives_of(actor)
    for life, following in itertools.zip_longest(lives, lives[1:]):
        if life.is_killed or following is not None:
            yield life, following


def _shade_absences(axes: Any, record: Record) -> None:
    for actor in ACTORS:
        for life, following in _absences(record, actor):
            if following is not None and life.end_s is not None:
                axes.axvspan(life.end_s, following.start_s, color=RED, alpha=0.09, linewidth=0)


def _lane(actor: str) -> int:
    return len(ACTORS) - 1 - ACTORS.index(actor)


def _draw_actors(axes: Any, record: Record) -> None:
    axes.set_yticks([_lane(actor) for actor in ACTORS], ACTORS, fontsize=10, fontweight="bold")
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.45, len(ACTORS) - 0.2)
    axes.spines["left"].set_visible(False)
    _draw_lives(axes, record)
    _place(axes, _labels(record))


def _labels(record: Record) -> list[Label]:
    """What is said about lives: why each ended, and when the next one began."""
    labels = []
    for actor in ACTORS:
        for life, following in _absences(record, actor):
            end_s = life.end_s or 0.0
            cause = "kill -9" if life.is_killed else "ended"
            back = "serves" if actor == "broker" else "starts"
            rest = f", {back} again after {following.start_s - end_s:.2f} s" if following is not None else ""
            labels.append(Label(end_s, _lane(actor), cause + rest))
    starts = record.lives_of("application")[:1]
    return labels + [Label(life.start_s, _lane("application"), "starts") for life in starts]


def _draw_lives(axes: Any, record: Record) -> None:
    left_s, right_s = axes.get_xlim()
    for life in record.lives:
        begin_s, end_s = max(life.start_s, left_s), min(math.inf if life.end_s is None else life.end_s, right_s)
        if begin_s < end_s:
            lane = _lane(life.actor)
            axes.barh(lane, end_s - begin_s, left=begin_s, height=LANE_HEIGHT, color=BLUE, linewidth=0)
            if life.is_killed and life.end_s == end_s:
                axes.plot(end_s, lane, marker="X", markersize=10, color=RED, markeredgecolor="white", zorder=5)


def _place(axes: Any, labels: Sequence[Label]) -> None:
    """Write each label above its lane where it overlaps no other one and stays inside; leave out what has no room."""
    figure = axes.figure
    renderer = figure.canvas.get_renderer()
    room = axes.get_window_extent(renderer)
    taken: list[Any] = []
    for label in labels:
        for alignment in ("center", "left", "right"):
            text = axes.text(
                label.at_s, label.lane + LANE_HEIGHT / 2 + 0.06, label.text, ha=alignment, va="bottom", fontsize=8.5
            )
            text.set_color(RED if label.text.startswith(("kill", "ended")) else GREY)
            box = text.get_window_extent(renderer)
            is_inside = room.x0 <= box.x0 and box.x1 <= room.x1
            if is_inside and not any(box.padded(2).overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def _draw_spark(axes: Any, record: Record) -> None:
    """What comes after the application: Spark catches up."""
    axes.set_ylim(-0.45, len(ACTORS) - 0.2)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    start_s = _end_of_application_s(record)
    end_s = max((life.end_s or 0.0 for life in record.lives_of("Spark")), default=0.0)
    if end_s <= start_s:
        axes.set_axis_off()
        return
    axes.set_xlim(start_s, end_s + (end_s - start_s) * 0.04)
    axes.set_xticks([start_s, end_s], [f"{start_s:.0f}", f"{end_s:.0f}"])
    axes.set_xlabel("seconds, another scale", fontsize=8, labelpad=1)
    _shade_absences(axes, record)
    _draw_lives(axes, record)
    catches_up = Label((start_s + end_s) / 2, _lane("Spark"), "catches up")
    _place(axes, [*(label for label in _labels(record) if label.at_s > start_s), catches_up])


def _draw_transactions(axes: Any, record: Record) -> None:
    rows = {outcome: len(TICK_OUTCOMES) - 1 - index for index, outcome in enumerate(TICK_OUTCOMES)}
    for outcome, row in rows.items():
        moments = [transaction.at_s for transaction in record.transactions if transaction.outcome == outcome]
        # One line with gaps is one shape in the file; as one shape each, they would fill it.
        xs = [x for moment in moments for x in (moment, moment, math.nan)]
        ys = [y for _ in moments for y in (row - 0.36, row + 0.36, math.nan)]
        width = 2.0 if outcome == CUT_OFF else 0.6
        axes.plot(xs, ys, color=TICK_COLOURS[outcome], linewidth=width, solid_capstyle="butt")
    for transaction in record.transactions:
        if transaction.fenced_s is not None:
            row = rows[CUT_OFF]
            axes.plot([transaction.at_s, transaction.fenced_s], [row, row], color=RED, linewidth=2)
    names = {COMMITTED: "committed", ABORTED: "aborted", CUT_OFF: "cut off"}
    ticks = [f"{record.count(outcome):,} {names[outcome]}" for outcome in TICK_OUTCOMES]
    axes.set_yticks(list(rows.values()), ticks)
    for tick, outcome in zip(axes.get_yticklabels(), TICK_OUTCOMES, strict=True):
        tick.set_color(TICK_COLOURS[outcome])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.6, len(TICK_OUTCOMES) - 0.4)
    _label_cut_off(axes, record, rows[CUT_OFF])


def _label_cut_off(axes: Any, record: Record, row: int) -> None:
    renderer = axes.figure.canvas.get_renderer()
    room = axes.get_window_extent(renderer)
    taken: list[Any] = []
    for transaction in record.transactions:
        if transaction.outcome != CUT_OFF:
            continue
        fenced_s = transaction.fenced_s
        words = "never fenced" if fenced_s is None else f"fenced and aborted after {fenced_s - transaction.at_s:.2f} s"
        for at_s, text, alignment in (
            (fenced_s or transaction.at_s, f"  {words}", "left"),
            (transaction.at_s, f"{words}  ", "right"),
        ):
            label = axes.text(at_s, row, text, color=RED, fontsize=8.5, va="center", ha=alignment)
            box = label.get_window_extent(renderer)
            if room.x0 <= box.x0 and box.x1 <= room.x1 and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            label.remove()


def _draw_readers(axes: Any, beside: Any, record: Record) -> None:
    times = [sample.at_s for sample in record.samples]
    curves = [
        ("read uncommitted", [sample.uncommitted for sample in record.samples], ORANGE, "-"),
        ("the source", [sample.source for sample in record.samples], GREY, "--"),
        ("read committed", [sample.committed for sample in record.samples], GREEN, "-"),
    ]
    for _, counts, colour, style in curves:
        axes.plot(times, counts, color=colour, linestyle=style, linewidth=1.8)
    largest = max((count for _, counts, _, _ in curves for count in counts), default=1) or 1
    axes.set_ylim(0, largest * 1.1)
    axes.set_ylabel("departures")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    beside.set_ylim(*axes.get_ylim())
    beside.set_xlim(0, 1)
    ends = [
        (counts[-1] if counts else 0, f"{name}\n{counts[-1] if counts else 0:,}", colour)
        for name, counts, colour, _ in curves
    ]
    _label_ends(beside, ends)


def _label_ends(axes: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Label the ends of curves: (value, text, colour) from the highest wanted place to the lowest, spread downwards."""
    bottom, top = axes.get_ylim()
    step = (top - bottom) * 0.27
    # Stable: where values are equal, the given order stays.
    ordered = sorted(ends, key=lambda end: -end[0])
    place = top
    for index, (value, text, colour) in enumerate(ordered):
        below_count = len(ordered) - 1 - index
        place = max(min(value, place), bottom + step * (below_count + 0.5))
        place = min(place, top - step * 0.3)
        axes.plot([0, 0.07], [value, place], color=colour, linewidth=0.9)
        axes.text(0.09, place, text, color=colour, va="center", fontsize=9, linespacing=1.05)
        place -= step


def _draw_excess(axes: Any, beside: Any, record: Record) -> None:
    times = [sample.at_s for sample in record.samples]
    excess = [max(0, sample.uncommitted - sample.committed) for sample in record.samples]
    axes.fill_between(times, excess, step="post", color=ORANGE, alpha=0.75, linewidth=0)
    axes.set_ylim(0, max([*excess, 1]) * 1.15)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
    beside.set_xlim(0, 1)
    beside.set_ylim(0, 1)
    last = excess[-1] if excess else 0
    text = f"{last:,} departures that an\nuncommitted reader saw\nand no committed one"
    beside.text(0.09, 0.5, text, color=ORANGE, va="center", fontsize=9, linespacing=1.05)
