"""One subject in relation to another, round by round: what changes on the machine meets both sides of a ratio."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich import box
from rich.console import Group
from rich.table import Table

from scripts.benchmarks.figures import DURABLE_REFERENCE, OURS, REFERENCE, SUBJECTS_ON_DISK, Figure, RatioTarget, Target
from scripts.benchmarks.results import Ratio, Result, readable

QUANTITY_WIDTH = 26


def ratios(figure: Figure, results: Sequence[Result]) -> list[Ratio]:
    """Of this broker and of the limit, in each setting, to each other broker that took part; to the durable reference
    only of what is durable, too."""
    found: list[Ratio] = []
    references = {(one.subject, one.case, one.quantity): one for one in results}
    others = [name for name in dict.fromkeys(one.subject for one in results) if name not in OURS]
    for result in results:
        if result.subject in others:
            continue
        for reference in others:
            if reference == DURABLE_REFERENCE and result.subject not in SUBJECTS_ON_DISK:
                continue
            other = references.get((reference, result.case, result.quantity))
            if other is None or len(other.values) != len(result.values) or not all(other.values):
                continue
            values = tuple(mine / theirs for mine, theirs in zip(result.values, other.values, strict=True))
            targets = tuple(
                target
                for target in figure.ratio_targets
                if reference == REFERENCE
                and (target.quantity, target.subject) == (result.quantity, result.subject)
                and target.case in ("", result.case)
            )
            found.append(Ratio(figure.name, result.subject, reference, result.case, result.quantity, values, targets))
    return found


def comparison_table(figure: Figure, results: Sequence[Result], found: Sequence[Ratio]) -> Group:
    """What a person looks at: a table for each case, a row for each quantity, a column for each subject and ratio."""
    subjects = list(dict.fromkeys(result.subject for result in results))
    pairs = list(dict.fromkeys((ratio.subject, ratio.reference) for ratio in found))
    tables = []
    for case in dict.fromkeys(result.case for result in results):
        table = Table(title=case or None, title_justify="left", box=box.SIMPLE_HEAD)
        table.add_column("quantity", min_width=QUANTITY_WIDTH)
        table.add_column("unit", no_wrap=True)
        for subject in subjects:
            table.add_column(subject, justify="right")
        for subject, reference in pairs:
            table.add_column(f"{subject} / {reference}", justify="right")
        mine = [result for result in results if result.case == case]
        for quantity, unit in dict.fromkeys((result.quantity, result.unit) for result in mine):
            measured = {result.subject: result for result in mine if result.quantity == quantity}
            compared = {
                (ratio.subject, ratio.reference): ratio
                for ratio in found
                if (ratio.case, ratio.quantity) == (case, quantity)
            }
            table.add_row(
                quantity,
                unit,
                *(result_cell(measured.get(subject)) for subject in subjects),
                *(ratio_cell(compared.get(pair)) for pair in pairs),
            )
        tables.append(table)
    return Group(f"[bold]{figure.name}[/bold]: {figure.about}", *tables)


def spread(values: Sequence[float]) -> str:
    """The median, and the range where there are several."""
    median = readable(statistics.median(values))
    return median if len(values) == 1 else f"{median} ({readable(min(values))} to {readable(max(values))})"


def result_cell(result: Result | None) -> str:
    """Median and range, and what it was to be; nothing where it was not measured."""
    if result is None:
        return ""
    wanted = "" if result.target is None else f"\n{verdict_text(result.target, result.median)}"
    return spread(result.values) + wanted


def ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return ""
    return "\n".join([spread(ratio.values), *(verdict_text(target, ratio.median) for target in ratio.targets)])


def verdict_text(target: Target | RatioTarget, median: float) -> str:
    colour, verdict = ("green", "met") if target.is_met(median) else ("red", "missed")
    return f"[{colour}]{'≥' if target.is_lower_bound else '≤'} {readable(target.bound)} {verdict}[/{colour}]"
