"""A scenario performed: its steps done one after another, and what came of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from tests.scenarios.runner.arguments import ArgumentError
from tests.scenarios.runner.stage import Stage
from tests.scenarios.runner.steps import perform
from tests.scenarios.runner.transcript import Transcript, TranscriptError
from tests.simulation.loop import run

Check = Callable[[Stage], "object"]


@dataclass
class Performance:
    """answers: what came of each step, in their order. events: what the brokers logged, by event name."""

    transcript: Transcript
    answers: list[list[str]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The transcript as it would have to be."""
        return self.transcript.with_answers(self.answers)


def perform_transcript(transcript: Transcript) -> Performance:
    """Do what it says on a fresh stage. Raises TranscriptError for a line that is not of the language."""
    performance = Performance(transcript)
    with structlog.testing.capture_logs() as captured:
        run(_perform(performance))
    performance.events = [str(entry["event"]) for entry in captured]
    return performance


async def _perform(performance: Performance) -> None:
    stage = Stage()
    for step in performance.transcript.steps:
        try:
            performance.answers.append(await perform(stage, step.text))
        except ArgumentError as error:
            raise TranscriptError(f"line {step.line_number}, {step.text!r}: {error}") from error
    _insist_that_all_faults_came(stage)


def _insist_that_all_faults_came(stage: Stage) -> None:
    for machine in stage.machines.values():
        for fault in machine.faults.armed:
            raise TranscriptError(f"this never came about: {fault}")
