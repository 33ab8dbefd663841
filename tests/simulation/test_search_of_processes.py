"""The search finds what is planted in leases, moves and directories of a broker of several processes, in worlds that
chance made and not for that bug.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from tests.simulation.invariants import bugs, process_bugs
from tests.simulation.script import write_script
from tests.simulation.story import run_seed

WORLDS = 60
"""Of those in which the brokers are processes of one: the first 60 are among 300 seeds."""
TIMEOUT_S = 900

FOUND_SOON = [
    (process_bugs.a_node_counts_as_lost_while_its_lock_is_held, 32),
    (process_bugs.a_move_is_stored_before_the_log_is_closed, 32),
    (process_bugs.a_start_raises_no_epoch, 33),
    (process_bugs.a_take_over_raises_no_epoch, 33),
    (process_bugs.two_nodes_take_over_from_one, 33),
    (process_bugs.a_directory_that_is_not_here_is_created, 34),
    (process_bugs.a_take_over_forgets_a_partition, 35),
]
"""In one of the first few worlds."""

FOUND = [
    (process_bugs.partitions_are_dealt_out_by_number, 37),
    (process_bugs.the_end_of_a_moved_log_counts_as_durable, 38),
    (process_bugs.a_node_leads_again_without_a_look_whether_its_move_is_stored, 32),
    (process_bugs.a_directory_is_recorded_before_it_says_whose_it_is, 34),
    (process_bugs.nobody_hears_of_changed_documents, 36),
    (process_bugs.a_lost_log_counts_as_closed, 38),
]


def seeds() -> Iterator[int]:
    """Those whose brokers are processes of one."""
    seed = found = 0
    while found < WORLDS:
        seed += 1
        if write_script(random.Random(f"{seed} script")).is_of_processes:
            found += 1
            yield seed


def search(bug: bugs.Bug, invariant: int) -> None:
    for seed in seeds():
        with bug():
            outcome = run_seed(seed)
        if f"invariant {invariant} at" in outcome.reason:
            return
        others = set(re.findall(r"invariant (\d+) at", outcome.reason))
        assert not outcome.reason or others, f"seed {seed}: {outcome.headline}"
    pytest.fail(f"invariant {invariant} did not notice in {WORLDS} worlds")


@pytest.mark.parametrize(("bug", "invariant"), FOUND_SOON, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug_soon(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant)


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("bug", "invariant"), FOUND, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant)
