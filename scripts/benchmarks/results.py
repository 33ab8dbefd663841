"""From samples to medians and ranges, as a table for people and as JSON for programs."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from scripts.benchmarks.figures import Figure, Sample, Target


@dataclass(frozen=True)
class Result:
    """One quantity of one figure on one subject in one case, over all rounds."""

    figure: str
    subject: str
    case: str
    quantity: str
    unit: str
    values: tuple[float, ...]
    target: Target | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or nothing where there is no target."""
        if self.target is None:
            return ""
        return "met" if self.target.is_met(self.median) else "missed"


def summarize(figure: Figure, subject: str, rounds: Iterable[Iterable[Sample]]) -> list[Result]:
    """The results of a figure, in the order in which the samples came first."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for samples in rounds:
        for sample in samples:
            values.setdefault((sample.case, sample.quantity, sample.unit), []).append(sample.value)
    targets = {target.quantity: target for target in figure.targets}
    return [
        Result(figure.name, subject, case, quantity, unit, tuple(measured), targets.get(quantity))
        for (case, quantity, unit), measured in values.items()
    ]


def result_table(figure: Figure, results: Sequence[Result]) -> Table:
    """What a person looks at: a section for each case, a row for each quantity and subject."""
    several = len({result.subject for result in results}) > 1
    table = Table(title=f"{figure.name}: {figure.about}", title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("quantity", no_wrap=True)
    for column in ("median", "range", "unit"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("target")
    for case in dict.fromkeys(result.case for result in results):
        table.add_section()
        if case:
            table.add_row(f"[bold]{case}[/bold]")
        for result in results:
            if result.case == case:
                name = f"{result.quantity}, {result.subject}" if several else result.quantity
                extent = f"{readable(min(result.values))} to {readable(max(result.values))}"
                table.add_row(name, readable(result.median), extent, result.unit, _target(result))
    return table


def _target(result: Result) -> str:
    if result.target is None:
        return ""
    colour = "green" if result.verdict == "met" else "red"
    relation = "at least" if result.target.is_lower_bound else "at most"
    return f"[{colour}]{relation} {readable(result.target.bound)}: {result.verdict}[/{colour}]"


def readable(value: float) -> str:
    """Three digits that mean something, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_json(results: Sequence[Result], *, rounds_count: int) -> dict[str, Any]:
    """Everything, with the machine that it was measured on."""
    return {
        "machine": machine(),
        "rounds": rounds_count,
        "results": [
            {
                "figure": result.figure,
                "subject": result.subject,
                "case": result.case,
                "quantity": result.quantity,
                "unit": result.unit,
                "median": result.median,
                "minimum": min(result.values),
                "maximum": max(result.values),
                "values": list(result.values),
                "target": None if result.target is None else result.target.bound,
                "verdict": result.verdict,
            }
            for result in results
        ],
    }


def machine() -> dict[str, Any]:
    """What the figures depend on most."""
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
