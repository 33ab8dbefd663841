"""A scenario performed: its steps one after another, what came of each, and whether all held that always must."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from fencepost.broker.kernel.events import events_to
from tests.scenarios.runner.arguments import ArgumentError
from tests.scenarios.runner.engine_point import EnginePoint
from tests.scenarios.runner.engine_steps import SHARED
from tests.scenarios.runner.stage import Stage
from tests.scenarios.runner.steps import perform
from tests.scenarios.runner.sweep_point import Plant
from tests.scenarios.runner.transcript import Transcript, TranscriptError
from tests.simulation.engine_cluster import small_engines
from tests.simulation.engine_requests import EngineRequest
from tests.simulation.invariants.invariant import Invariants, Violation
from tests.simulation.loop import run

TIME_OUT_GRACE_S = 15.0


@dataclass
class Performance:
    """answers: what came of each step, in their order. violations: of what must hold in every world.

    operation_count: how much was done to the disks, up to the last step.
    unsettled: what has not come to rest after everything was healed.
    engine_requests: what brokers asked an engine, up to the last step.
    """

    transcript: Transcript
    answers: list[list[str]] = field(default_factory=list)
    violations: Sequence[Violation] = ()
    operation_count: int = 0
    unsettled: list[str] = field(default_factory=list)
    engine_requests: list[EngineRequest] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """All that should not be."""
        return [*map(str, self.violations), *self.unsettled]

    @property
    def text(self) -> str:
        """The transcript as it would have to be."""
        return self.transcript.with_answers(self.answers)


def perform_transcript(transcript: Transcript, plant: Plant | EnginePoint | None = None) -> Performance:
    """Do what it says on a fresh stage, bring everything back to health, and look whether all invariants hold.

    plant: a fault that the transcript does not know of; its replies are then ignored, and clients retry.
    Raises TranscriptError for a line that is not of the language.
    """
    performance = Performance(transcript)
    with events_to(_forget), small_engines(random.Random(0)):
        run(_perform(performance, plant))
    return performance


def _forget(*_: object) -> None:
    """A list of log events would keep the objects of dead processes alive."""


async def _perform(performance: Performance, plant: Plant | EnginePoint | None) -> None:
    stage = Stage()
    if isinstance(plant, EnginePoint):
        stage.engine_requests.point = plant
        stage.away_s = plant.away_s
    else:
        stage.plant = plant
    stage.broken_by_hand.update(performance.transcript.broken_invariants)
    stage.is_forgiving = plant is not None
    invariants: Invariants | None = None
    for step in performance.transcript.steps:
        if invariants is None and not step.text.startswith(SHARED):
            invariants = Invariants(stage.world)  # once all brokers are there, and before they start
        try:
            performance.answers.append(await perform(stage, step.text))
        except ArgumentError as error:
            raise TranscriptError(f"line {step.line_number}, {step.text!r}: {error}") from error
        if invariants is not None:
            invariants.observe()
    assert invariants is not None, "a story has more than one line"
    performance.operation_count = sum(machine.operation_count for machine in stage.machines.values())
    performance.engine_requests = list(stage.engine_requests.seen)
    if stage.engine_requests.point is not None:
        raise TranscriptError(f"this never came about: {stage.engine_requests.point}")
    stage.plant = None
    if plant is None:
        _require_all_faults(stage)
    await _heal(stage)
    await _end_what_is_open(stage, invariants)
    performance.unsettled = stage.unsettled()
    performance.violations = [
        violation for violation in invariants.settled() if violation.invariant not in stage.broken_by_hand
    ]


def _require_all_faults(stage: Stage) -> None:
    for machine in stage.machines.values():
        for fault in machine.faults.armed:
            raise TranscriptError(f"this never came about: {fault}")
    for order in stage.engine_requests.orders:
        raise TranscriptError(f"this never came about: {order}")


async def _heal(stage: Stage) -> None:
    """No fault any more, and all brokers up; those that gave up a partition after a failure of the disk start anew."""
    for party in stage.parties.values():
        await party.give_up()
    stage.engine_requests.orders.clear()
    if stage.engine is not None:
        stage.engine.engine.heal()
    for machine in stage.machines.values():
        machine.faults.armed.clear()
        machine.faults.is_disk_full = False
        machine.broker.sync_latency_s = stage.usual_sync_latency_s
        machine.broker.process.resume()
        if machine.faults.has_struck:
            machine.kill()
        await stage.bring_up(machine)
    stage.heal_cluster()


async def _end_what_is_open(stage: Stage, invariants: Invariants) -> None:
    """Producers are gone: what they left open times out."""
    remaining_s = stage.longest_timeout_ms / 1000 + TIME_OUT_GRACE_S
    while remaining_s > 0:
        await stage.wait(min(remaining_s, 5.0))
        remaining_s -= 5.0
        invariants.observe()
