"""The search for a planted bug: worlds that chance made and not for that bug, until an invariant notices it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.invariants import bugs
from tests.simulation.script import Script, write_script
from tests.simulation.story import run_seed

WORLDS = 60
TIMEOUT_S = 900


def search(bug: bugs.Bug, invariant: int, concerns: Callable[[Script], bool]) -> None:
    """Fail if an invariant does not notice a bug in the first `WORLDS` worlds that the bug concerns.

    Other invariants may notice the bug first; a world may not fail for anything else.
    """
    for seed in _seeds(concerns):
        with bug():
            outcome = run_seed(seed)
        if f"invariant {invariant} at" in outcome.reason:
            return
        others = set(re.findall(r"invariant (\d+) at", outcome.reason))
        assert not outcome.reason or others, f"seed {seed}: {outcome.headline}"
    pytest.fail(f"invariant {invariant} did not notice in {WORLDS} worlds")


def _seeds(concerns: Callable[[Script], bool]) -> Iterator[int]:
    seed = found = 0
    while found < WORLDS:
        seed += 1
        if concerns(write_script(random.Random(f"{seed} script"))):
            found += 1
            yield seed
