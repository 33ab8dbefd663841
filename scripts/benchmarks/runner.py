"""Measures figures on subjects in turns: A B A B, so that whatever changes on the machine meets all of them."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console

from scripts.benchmarks.client import connect
from scripts.benchmarks.figures import Broker, Figure, Round, Sample, Say, Subject
from scripts.benchmarks.results import Result, summarize
from scripts.benchmarks.warm_up import warm_up


class Runner:
    """A context manager: some brokers stay up, warm, for all figures; they are stopped with it.

    before_turn: called before each subject's turn in each round.
    passes: how many passes warming each of them took, by name.
    """

    def __init__(
        self, subjects: Sequence[Subject], *, rounds_count: int, is_small: bool, cache: Path, progress: Console
    ) -> None:
        self._subjects = subjects
        self._rounds_count = rounds_count
        self._is_small = is_small
        self._cache = cache
        self.progress = progress
        self.passes: dict[str, int] = {}
        self.before_turn: Callable[[], object] = lambda: None
        self._running: dict[str, Broker] = {}

    def run(self, figure: Figure) -> list[Result]:
        """All rounds of one figure; nothing where no subject takes part in it."""
        subjects = [subject for subject in self._subjects if figure.is_about(subject)]
        rounds_count = min(self._rounds_count, figure.most_rounds)
        samples: dict[str, list[list[Sample]]] = {subject.name: [] for subject in subjects}
        began_at_s = time.monotonic()
        for number in range(1, rounds_count + 1):
            for subject in subjects:
                self.before_turn()
                samples[subject.name].append(self._measure(figure, subject, number, rounds_count))
        self.progress.print(
            f"[dim]{figure.name}: {rounds_count} rounds in {time.monotonic() - began_at_s:.0f} s[/dim]",
            highlight=False,
        )
        return [result for subject in subjects for result in summarize(figure, subject.name, samples[subject.name])]

    def __enter__(self) -> Self:
        self._cache.mkdir(parents=True, exist_ok=True)
        # one directory around all others: wherever a round is broken off, it is removed with this one, at the latest
        # by its finalizer when the process ends
        self._directory = tempfile.TemporaryDirectory(prefix="measuring-", dir=self._cache, ignore_cleanup_errors=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for broker in self._running.values():
            broker.kill()
        self._running.clear()
        self._directory.cleanup()

    def _measure(self, figure: Figure, subject: Subject, number: int, rounds_count: int) -> list[Sample]:
        cache = self._cache / subject.name.replace(":", "-")
        cache.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="round-", dir=self._directory.name))
        prefix = f"{figure.name}, {subject.name}, round {number} of {rounds_count}"
        if not self.progress.is_terminal:
            self.progress.print(prefix, highlight=False, soft_wrap=True)
        try:
            with self.progress.status(prefix) as status:
                sizes = figure.small_sizes if self._is_small else figure.sizes

                def say(text: str) -> None:
                    status.update(f"{prefix}: {text}")

                round_ = Round(subject, sizes, scratch, cache, say, number, lambda: self._warm(subject, say))
                return list(figure.measure(round_))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _warm(self, subject: Subject, say: Say) -> Broker:
        """The subject's broker that stays up, started and warmed when it is wanted for the first time."""
        broker = self._running.get(subject.name)
        if broker is None:
            directory = Path(tempfile.mkdtemp(prefix="running-", dir=self._directory.name))
            data_directory = directory / "data"
            data_directory.mkdir()
            say("starting")
            broker = self._running[subject.name] = subject.launch(data_directory, {})
            connect(broker).close()
            if subject.is_to_be_warmed and not self._is_small:
                self.passes[subject.name] = warm_up(broker, say)
                self.progress.print(f"[dim]{subject.name}: warm after {self.passes[subject.name]} passes[/dim]")
        return broker
