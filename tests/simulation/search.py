"""Lives through many worlds: in several processes, with a sum at the end, and a table of what came up in them."""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.simulation.lookout import SITUATIONS
from tests.simulation.story import Outcome, run_seed

SEEDS_PATH: Final = Path(__file__).with_name("seeds.txt")
PROCESS_COUNT: Final = 2
SEEDS_PER_PROCESS: Final = 100
"""A process is replaced after this number of worlds, which bounds its garbage."""


@dataclass
class Sum:
    """What many worlds come to."""

    seed_count: int = 0
    virtual_s: float = 0.0
    cpu_s: float = 0.0
    request_count: int = 0
    crash_count: int = 0
    history_counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seed_count += 1
        self.virtual_s += outcome.virtual_s
        self.cpu_s += outcome.cpu_s
        self.request_count += outcome.request_count
        self.crash_count += outcome.crash_count
        self.history_counts.update(outcome.history_counts)
        # In how many worlds, not how often: what came up a thousand times in one is still rare.
        self.reached.update(outcome.reached.keys())
        if outcome.reason:
            self.failures.append(outcome)

    def missing(self) -> list[str]:
        """The situations that never came up."""
        return [situation for situation in SITUATIONS if not self.reached[situation]]

    def table(self) -> str:
        """In how many worlds each situation came up."""
        width = max(map(len, SITUATIONS))
        return "\n".join(f"  {situation:<{width}} {self.reached[situation]:>6}" for situation in SITUATIONS)

    def text(self) -> str:
        counts = self.history_counts
        unknown = counts["transactions_of_unknown_outcome"] + counts["transactions_never_ended"]
        return (
            f"{self.seed_count:,} seeds, {self.virtual_s / 3600:.1f} virtual hours in {self.cpu_s:.0f} s of CPU: "
            f"{self.request_count:,} requests, {counts['operations']:,} operations, {self.crash_count:,} crashes; "
            f"transactions: {counts['transactions_committed']:,} committed, "
            f"{counts['transactions_aborted']:,} aborted, "
            f"{unknown:,} unknown or never ended; {len(self.failures)} seeds failed"
        )


def live_through(seeds: Iterable[int], note: Callable[[Outcome], None], *, deadline_s: float | None = None) -> Sum:
    """Live through the worlds of these seeds, several at a time.

    note:       called with each outcome, in whatever order they come.
    deadline_s: of `time.monotonic`; no world is begun after it.
    """
    total = Sum()
    context = multiprocessing.get_context("fork")

    def in_time() -> Iterator[int]:
        for seed in seeds:
            if deadline_s is not None and time.monotonic() > deadline_s:
                return
            pace.acquire()
            yield seed

    # Without it the pool would take all seeds at once, however many there are.
    pace = multiprocessing.get_context("fork").Semaphore(PROCESS_COUNT * 2)
    with context.Pool(PROCESS_COUNT, initializer=gc.freeze, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        for outcome in pool.imap_unordered(_run_briefly, in_time()):
            pace.release()
            total.add(outcome)
            note(outcome)
    return total


def _run_briefly(seed: int) -> Outcome:
    """Without what is not worth carrying from one process to another."""
    outcome = run_seed(seed)
    outcome.history.clear()
    return outcome


def known_seeds() -> dict[int, str]:
    """The seeds that ever failed, and why."""
    known = {}
    for line in SEEDS_PATH.read_text().splitlines():
        if line and not line.startswith("#"):
            seed, _, why = line.partition(" ")
            known[int(seed)] = why.strip()
    return known
