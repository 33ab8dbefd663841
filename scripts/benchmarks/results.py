"""From samples to medians and ranges, and to JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil

from scripts.apache_kafka import KAFKA_VERSION
from scripts.benchmarks.figures import DURABLE, PAGE_CACHE, Figure, RatioTarget, Sample, Target

MOST_COMPANY = 0.25
"""The share of the processors that may be busy with other things before figures of time mean little."""
COMPANY_S = 1.0


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


@dataclass(frozen=True)
class Ratio:
    """One quantity of a subject divided by that of the reference in the same round, for all rounds."""

    figure: str
    subject: str
    reference: str
    case: str
    quantity: str
    values: tuple[float, ...]
    targets: tuple[RatioTarget, ...] = ()

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or nothing where there is no target."""
        if not self.targets:
            return ""
        return "met" if all(target.is_met(self.median) for target in self.targets) else "missed"


def summarize(figure: Figure, subject: str, rounds: Iterable[Iterable[Sample]]) -> list[Result]:
    """The results of a figure, in the order in which the samples came first."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for samples in rounds:
        for sample in samples:
            values.setdefault((sample.case, sample.quantity, sample.unit), []).append(sample.value)
    is_ours = subject in (DURABLE, PAGE_CACHE)
    targets = {target.quantity: target for target in figure.targets} if is_ours else {}
    return [
        Result(figure.name, subject, case, quantity, unit, tuple(measured), targets.get(quantity))
        for (case, quantity, unit), measured in values.items()
    ]


def readable(value: float) -> str:
    """Three digits that mean something, thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_json(
    results: Sequence[Result], ratios: Sequence[Ratio], *, where: Mapping[str, Any], passes: Mapping[str, int]
) -> dict[str, Any]:
    """Everything, by figure, each with the machine that it was measured on and when.

    where:  `machine()` before the first was measured: afterwards its load is that of the measuring.
    passes: after how many passes each broker was warm, where it was warmed.
    """
    today = time.strftime("%Y-%m-%d")
    figures: dict[str, Any] = {}
    for result in results:
        figure = figures.setdefault(
            result.figure,
            {"machine": where, "date": today, "rounds": 0, "warm_after_passes": {}, "results": [], "ratios": []},
        )
        figure["rounds"] = max(figure["rounds"], len(result.values))
        if result.subject in passes:
            figure["warm_after_passes"][result.subject] = passes[result.subject]
        figure["results"].append(
            {
                "subject": result.subject,
                "case": result.case,
                "quantity": result.quantity,
                "unit": result.unit,
                **_spread(result.values),
                "targets": [] if result.target is None else [_bound(result.target, result.median)],
            }
        )
    for ratio in ratios:
        figures[ratio.figure]["ratios"].append(
            {
                "subject": ratio.subject,
                "reference": ratio.reference,
                "case": ratio.case,
                "quantity": ratio.quantity,
                **_spread(ratio.values),
                "targets": [_bound(target, ratio.median) for target in ratio.targets],
            }
        )
    return {"figures": figures}


def merged(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """With the figures that were not measured now and are in the file from before."""
    before = json.loads(path.read_text())["figures"] if path.exists() else {}
    return {"figures": {**before, **content["figures"]}}


def _spread(values: Sequence[float]) -> dict[str, Any]:
    rounded = [float(f"{value:.4g}") for value in values]
    return {"median": float(f"{statistics.median(values):.4g}"), "values": rounded}


def _bound(target: Target | RatioTarget, median: float) -> dict[str, Any]:
    return {
        "bound": target.bound,
        "is_lower_bound": target.is_lower_bound,
        "verdict": "met" if target.is_met(median) else "missed",
    }


def machine() -> dict[str, Any]:
    """What the figures depend on most. Blocks for COMPANY_S, to measure the load by other programs.

    Not its load average, which remembers for minutes what ran before.
    """
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "busy_cores": round(psutil.cpu_percent(COMPANY_S) / 100 * (os.cpu_count() or 1), 1),
        "memory_gib": round(memory_bytes / 2**30, 1),
        "system": platform.platform(),
        "python": f"{platform.python_version()}, {_python_build()}",
        **_versions(),
    }


def _python_build() -> str:
    """How Python was built: without profile-guided optimisation it is slower by a fifth."""
    if sys.base_prefix == "/usr":
        return "the system's package"
    is_optimised = "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")
    return "built with optimisations" if is_optimised else "built without optimisations"


def _versions() -> dict[str, str]:
    """Of what takes part; nothing for what is not here."""
    java = _output("java", "-version")
    return {
        "fencepost": _output("git", "describe", "--always", "--dirty"),
        "kafka": KAFKA_VERSION,
        "librdkafka": str(confluent_kafka.libversion()[0]),
        "java": java.splitlines()[0] if java else "",
    }


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    finished = subprocess.run(
        command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return finished.stdout.strip()


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
