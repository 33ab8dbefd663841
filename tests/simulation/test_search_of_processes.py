"""The search finds what is planted in leases, moves and directories of a broker of several processes, in worlds that
chance made and not for that bug.
"""

from __future__ import annotations

import pytest

from tests.simulation.invariants import bugs, process_bugs
from tests.simulation.planted_search import TIMEOUT_S, search

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
    (process_bugs.partitions_are_dealt_out_by_chance, 37),
    (process_bugs.partitions_are_dealt_out_anew_each_time, 37),
    (process_bugs.the_end_of_a_moved_log_counts_as_durable, 38),
    (process_bugs.a_node_leads_again_without_a_look_whether_its_move_is_stored, 32),
    (process_bugs.a_directory_is_recorded_before_it_says_whose_it_is, 34),
    (process_bugs.nobody_hears_of_changed_documents, 36),
    (process_bugs.a_lost_log_counts_as_closed, 38),
]


@pytest.mark.parametrize(("bug", "invariant"), FOUND_SOON, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug_soon(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant, lambda script: script.is_of_processes)


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("bug", "invariant"), FOUND, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant, lambda script: script.is_of_processes)
