"""The search finds a check-back that an odd record stops, in worlds that chance made and not for that bug."""

from __future__ import annotations

import random

import pytest

from tests.simulation.clients.stranger import STRANGER
from tests.simulation.invariants import bugs
from tests.simulation.planted_search import TIMEOUT_S
from tests.simulation.script import write_script
from tests.simulation.story import run_seed

WORLDS = 5


def _seeds() -> list[int]:
    found = [seed for seed in range(1, 200) if STRANGER in write_script(random.Random(f"{seed} script")).roles]
    return found[:WORLDS]


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S)
def test_the_search_finds_a_check_back_that_one_odd_record_stops() -> None:
    with bugs.one_odd_record_stops_the_check_back():
        assert any(run_seed(seed).reason.startswith("liveness") for seed in _seeds())


def test_a_world_of_strangers_is_the_same_again() -> None:
    seed = _seeds()[0]
    first, second = (run_seed(seed, keeps_trace=True) for _ in range(2))
    assert first.digest == second.digest
    assert first.reason == second.reason == ""
