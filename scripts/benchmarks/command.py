"""The command line of `scripts/bench.py`: which figures, how many rounds, what becomes of the results."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from scripts.benchmarks.fencepost import ROOT, FencepostSubject
from scripts.benchmarks.figures import Figure, Round, Sample, Subject
from scripts.benchmarks.results import Result, as_json, result_table, summarize
from scripts.benchmarks.table import FIGURES

DEFAULT_ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 where a target was missed."""
    options = _options(arguments)
    console = Console()
    if options.list:
        for figure in FIGURES.values():
            console.print(f"[bold]{figure.name}[/bold]  {figure.about}", highlight=False, soft_wrap=True)
        return 0
    figures = [FIGURES[name] for name in options.only] if options.only else list(FIGURES.values())
    runner = Runner(
        [FencepostSubject()],
        rounds_count=options.rounds,
        is_small=options.small,
        cache=options.cache,
        progress=Console(stderr=True),
    )
    results: list[Result] = []
    warn_of_company(runner.progress)
    for figure in figures:
        measured = runner.run(figure)
        console.print(result_table(figure, measured))
        results += measured
        if options.json is not None:  # after every figure: hours of measuring are not lost with the last one
            options.json.write_text(json.dumps(as_json(results, rounds_count=options.rounds), indent=2) + "\n")
    return 0 if options.small or all(result.verdict != "missed" for result in results) else 1


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py", description="Measures this broker.")
    parser.add_argument("--only", action="append", choices=list(FIGURES), metavar="NAME", help="a figure; repeatable")
    parser.add_argument("--list", action="store_true", help="print the names of all figures and end")
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, metavar="N", help="how often (3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results, with every round's values")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "bench", metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def warn_of_company(console: Console) -> None:
    """Figures of time mean little on a machine that has other things to do."""
    busy, cores = os.getloadavg()[0], os.cpu_count() or 1
    if busy > cores / 2:
        console.print(
            f"[yellow]the machine is busy (load {busy:.1f} on {cores} cores): expect slow, wide figures[/yellow]"
        )


class Runner:
    """Measures figures on subjects, in turns: A B A B, so that whatever changes on the machine meets all of them."""

    def __init__(
        self, subjects: Sequence[Subject], *, rounds_count: int, is_small: bool, cache: Path, progress: Console
    ) -> None:
        self._subjects = subjects
        self._rounds_count = rounds_count
        self._is_small = is_small
        self._cache = cache
        self.progress = progress

    def run(self, figure: Figure) -> list[Result]:
        """All rounds of one figure."""
        samples: dict[str, list[list[Sample]]] = {subject.name: [] for subject in self._subjects}
        began_at_s = time.monotonic()
        for number in range(1, self._rounds_count + 1):
            for subject in self._subjects:
                samples[subject.name].append(self._measure(figure, subject, number))
        self.progress.print(
            f"[dim]{figure.name}: {self._rounds_count} rounds in {time.monotonic() - began_at_s:.0f} s[/dim]",
            highlight=False,
        )
        return [
            result for subject in self._subjects for result in summarize(figure, subject.name, samples[subject.name])
        ]

    def _measure(self, figure: Figure, subject: Subject, number: int) -> list[Sample]:
        cache = self._cache / subject.name
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="round-", dir=self._cache))
        prefix = f"{figure.name}, {subject.name}, round {number} of {self._rounds_count}"
        try:
            with self.progress.status(prefix) as status:
                sizes = figure.small_sizes if self._is_small else figure.sizes
                say = lambda text: status.update(f"{prefix}: {text}")  # noqa: E731  # one line of a Protocol's kind
                return list(figure.measure(Round(subject, sizes, scratch, cache, say)))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
