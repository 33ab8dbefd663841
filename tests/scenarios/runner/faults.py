"""What goes wrong in a scenario, and where: at the operations that a broker does to its disk."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from fencepost.broker.storage.disk import StorageError
from tests.simulation.disk import Operation, die


class Effect(Enum):
    """What happens at the operation."""

    FAIL = "the disk fails"
    DIE = "the process dies"
    LOSE_POWER = "the machine loses its power"


class Survival(Enum):
    """How much of what was not synced is there after a power loss."""

    NOTHING = "nothing of it"
    TORN = "half of the first write to each file"
    EVERYTHING = "all of it"


class Fate(random.Random):
    """Chance for a disk in a scenario: what a power loss leaves is what the scenario says, and syncs are equally fast.

    The disk draws, for each file and directory, how many changes are kept; then, if the next change is an append,
    whether it is torn, where, and whether zeros follow.
    """

    survival = Survival.NOTHING
    _is_torn = False

    def randint(self, low: int, high: int) -> int:
        if self._is_torn:
            return high // 2
        return high if self.survival is Survival.EVERYTHING else low

    def random(self) -> float:
        """0 is yes, 1 is no: it is torn, and no zeros follow."""
        self._is_torn = self.survival is Survival.TORN and not self._is_torn
        return 0.0 if self._is_torn else 1.0

    def uniform(self, low: float, high: float) -> float:
        return low


@dataclass
class Fault:
    """One thing to go wrong, once: at the nth operation of a kind on a path.

    path:      found anywhere in the operation's path; `*` stands for anything.
    countdown: of the operations that match, at which one, counted from 1.
    is_before: whether the operation is still to be done when it happens.
    """

    effect: Effect
    kind: str
    path: str
    countdown: int
    is_before: bool

    def matches(self, operation: Operation) -> bool:
        pattern = ".*".join(re.escape(part) for part in self.path.split("*"))
        return operation.kind == self.kind and re.search(pattern, operation.path) is not None


def no_space(path: str) -> StorageError:
    return StorageError(errno.ENOSPC, "No space left on device", paths=path.split())


class Faults:
    """Those of one broker that are still to come.

    lost_power:   called, before the process dies, when the machine loses its power.
    is_disk_full: everything that needs room fails.
    has_struck:   an operation has failed, or will have, so the broker may have given something up until it starts anew.
    """

    def __init__(self, lost_power: Callable[[], None], watch: Callable[[Operation, bool], None]) -> None:
        """watch: also called before (True) and after (False) each operation, for what else may happen there."""
        self.armed: list[Fault] = []
        self.is_disk_full = False
        self.has_struck = False
        self._lost_power = lost_power
        self._watch = watch

    def before(self, operation: Operation) -> None:
        if self.is_disk_full and operation.kind in ("append", "write_file", "open", "make_directory"):
            self.strike(Effect.FAIL, operation)
        self._check(operation, is_before=True)

    def after(self, operation: Operation) -> None:
        self._check(operation, is_before=False)

    def _check(self, operation: Operation, *, is_before: bool) -> None:
        for fault in list(self.armed):
            if fault.is_before is is_before and fault.matches(operation):
                fault.countdown -= 1
                if fault.countdown == 0:
                    self.armed.remove(fault)
                    self.strike(fault.effect, operation)
        self._watch(operation, is_before)

    def strike(self, effect: Effect, operation: Operation) -> None:
        """Raises StorageError or Crash."""
        if effect is Effect.FAIL:
            self.has_struck = True
            raise no_space(operation.path)
        if effect is Effect.LOSE_POWER:
            self._lost_power()
        die()
