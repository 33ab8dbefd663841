"""The command line of `scripts/bench.py`: which figures, on which brokers, how many rounds, what becomes of it."""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import psutil
from rich.console import Console

from scripts.benchmarks import java_clients
from scripts.benchmarks.broker_process import ROOT
from scripts.benchmarks.client import RefusedError
from scripts.benchmarks.client_process import ClientFailedError
from scripts.benchmarks.fencepost import FencepostSubject, fencepost_in_page_cache, two_processes
from scripts.benchmarks.figures import BrokerEndedError, Figure, Subject
from scripts.benchmarks.kafka import KafkaSubject
from scripts.benchmarks.limit import LimitSubject
from scripts.benchmarks.memory import FilledMemory
from scripts.benchmarks.peer import PeerSubject
from scripts.benchmarks.ratios import comparison_table, ratios
from scripts.benchmarks.results import MOST_COMPANY, Ratio, Result, as_json, machine, merged
from scripts.benchmarks.runner import Runner
from scripts.benchmarks.table import FIGURES

DEFAULT_ROUNDS = 3
FAILURES = (ClientFailedError, RefusedError, BrokerEndedError, OSError, subprocess.SubprocessError, psutil.Error)
"""What brokers and clients may do to a figure; anything else is a mistake in it."""
FILE_WIDTH = 160
RESULTS_PATH = ROOT / "docs" / "performance" / "results.json"


def _chosen_figures(options: argparse.Namespace, console: Console) -> list[Figure]:
    """The figures to measure on this machine."""
    figures = list(FIGURES.values())
    if options.only:
        figures = [FIGURES[name] for name in options.only]
    elif options.headline or options.rest:
        figures = [figure for figure in figures if figure.is_headline == options.headline]
    if java_clients.are_here():
        return figures
    for figure in figures:
        if figure.needs_java:
            console.print(f"{figure.name}: left out, its clients need java and javac on PATH", highlight=False)
    return [figure for figure in figures if not figure.needs_java]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code: 1 where a target was missed, 2 where a figure could not be measured."""
    options = _options(arguments)
    console = Console()
    if not console.is_terminal:
        console = Console(width=FILE_WIDTH)
    if options.list:
        for figure in FIGURES.values():
            console.print(f"[bold]{figure.name}[/bold]  {figure.about}", highlight=False, soft_wrap=True)
        return 0
    if options.page:
        return write_page(console, RESULTS_PATH)
    figures = _chosen_figures(options, console)
    failed: list[str] = []
    results: list[Result] = []
    compared: list[Ratio] = []
    with (
        Runner(
            subjects(options),
            rounds_count=options.rounds,
            is_small=options.small,
            cache=options.cache,
            progress=Console(stderr=True),
        ) as runner,
        ExitStack() as at_the_end,
    ):
        where = machine()
        warn_of_company(runner.progress, where["busy_cores"], where["cores"])
        memory = None
        if options.fill_memory:
            options.cache.mkdir(parents=True, exist_ok=True)
            memory = at_the_end.enter_context(FilledMemory(options.cache))
            runner.before_turn = memory.touch_free
        for figure in figures:
            if memory is not None:
                filled_bytes = memory.fill()
                runner.progress.print(f"[dim]memory: {filled_bytes / 1024**3:.1f} GiB filled[/dim]", highlight=False)
            try:
                measured = runner.run(figure)
            except FAILURES as failure:  # hours of measuring do not end with one figure
                failed.append(figure.name)
                console.print(f"{figure.name}: {type(failure).__name__}: {failure}", style="red", markup=False)
                continue
            figure_ratios = ratios(figure, measured)
            console.print(comparison_table(figure, measured, figure_ratios))
            results += measured
            compared += figure_ratios
            if options.json is not None:  # after every figure: hours of measuring are not lost with the last one
                content = as_json(results, compared, where=where, passes=runner.passes)
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(merged(options.json, content), indent=1) + "\n")
            if options.plot is not None:
                draw(options.plot, results)
    is_missed = "missed" in {one.verdict for one in results} | {one.verdict for one in compared}
    if failed:
        console.print(f"not measured: {', '.join(failed)}", style="red", markup=False)
        return 2
    return 0 if options.small or not is_missed else 1


def subjects(options: argparse.Namespace) -> list[Subject]:
    """The measured brokers, in the order of their turns."""
    taking_part: list[Subject] = [FencepostSubject(), fencepost_in_page_cache(), two_processes()]
    taking_part += [LimitSubject(), LimitSubject(is_synced=True)]
    if not options.alone:
        taking_part += [KafkaSubject(), KafkaSubject(is_durable=True)]
    return [*taking_part, *map(PeerSubject, options.peer)]


def write_page(console: Console, path: Path) -> int:
    """docs/performance.md, the page with every figure and the pictures, from results that were measured before."""
    from scripts.benchmarks.overview import OVERVIEW_PATH, overview
    from scripts.benchmarks.page import PAGE_PATH, page
    from scripts.benchmarks.pictures import draw_overview  # matplotlib takes long to import

    content = json.loads(path.read_text())
    for page_path, text in ((OVERVIEW_PATH, overview(content)), (PAGE_PATH, page(content))):
        page_path.write_text(text)
        console.print(f"{page_path.relative_to(ROOT)} is written", highlight=False)
    draw_overview(path.parent / "overview.svg", content["figures"])
    draw_content(path.parent, content)
    return 0


def draw(directory: Path, results: Sequence[Result]) -> None:
    draw_content(directory, as_json(results, (), where={}, passes={}))


def draw_content(directory: Path, content: dict[str, object]) -> None:
    from scripts.benchmarks.pictures import draw_pictures  # matplotlib takes long to import

    draw_pictures(directory, content)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.py", description="Measures this broker beside Apache Kafka.")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--only", action="append", choices=list(FIGURES), metavar="NAME", help="a figure; repeatable")
    chosen.add_argument("--headline", action="store_true", help="only the figures that matter most")
    chosen.add_argument("--rest", action="store_true", help="all others")
    chosen.add_argument("--list", action="store_true", help="print the names of all figures and end")
    chosen.add_argument(
        "--page", action="store_true", help="write docs/performance.md and docs/performance from the results"
    )
    parser.add_argument("--alone", action="store_true", help="without Apache Kafka, which needs Java and Maven")
    parser.add_argument(
        "--peer", action="append", type=_address, default=[], metavar="HOST:PORT", help="a broker that runs already"
    )
    parser.add_argument("--rounds", type=int, default=DEFAULT_ROUNDS, metavar="N", help="how often (3)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write all results; other figures that are in the file stay there"
    )
    parser.add_argument("--plot", type=Path, metavar="DIRECTORY", help="draw a picture of each figure")
    parser.add_argument(
        "--fill-memory",
        action="store_true",
        help="in a virtual machine, for figures of many bytes: use memory that its host has given already",
    )
    parser.add_argument("--small", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "bench", metavar="DIRECTORY")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    return options


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not HOST:PORT")
    return host, int(port)


def warn_of_company(console: Console, busy_cores: float, cores: int) -> None:
    """Figures of time mean little on a machine that has other things to do."""
    if busy_cores > cores * MOST_COMPANY:
        console.print(
            f"[yellow]the machine is busy ({busy_cores:.1f} of {cores} cores): expect slow, wide figures[/yellow]"
        )
