"""A fault that a scenario does not know of: at the nth operation of all that it does to the disks."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from tests.scenarios.runner.faults import Effect, Survival
from tests.simulation.disk import Operation

if TYPE_CHECKING:
    from tests.scenarios.runner.stage import Machine


class Mishap(Enum):
    """What happens at the operation. The fault's effect, whether it comes before, and what survives a power loss."""

    FAILS = (Effect.FAIL, True, Survival.NOTHING)
    DIES_BEFORE = (Effect.DIE, True, Survival.NOTHING)
    DIES_AFTER = (Effect.DIE, False, Survival.NOTHING)
    LOSES_POWER = (Effect.LOSE_POWER, False, Survival.NOTHING)
    LOSES_POWER_IN_A_WRITE = (Effect.LOSE_POWER, False, Survival.TORN)


class SweepPoint(NamedTuple):
    """Where, counted from 1, and what."""

    number: int
    mishap: Mishap

    def __str__(self) -> str:
        return f"{self.mishap.name.lower()} at operation {self.number}"


class Plant:
    """Makes a point's mishap come, once. happened_at: the operation, when it has."""

    def __init__(self, point: SweepPoint) -> None:
        self.point = point
        self.happened_at: Operation | None = None
        self._seen_count = 0

    def watch(self, machine: Machine, operation: Operation, *, is_before: bool) -> None:
        """Called around every operation. Raises StorageError or Crash."""
        effect, comes_before, survival = self.point.mishap.value
        self._seen_count += is_before
        if self.happened_at is None and self._seen_count == self.point.number and is_before is comes_before:
            self.happened_at = operation
            machine.fate.survival = survival
            machine.faults.strike(effect, operation)
