"""The search finds what is planted in two-phase commits, in worlds that chance made and not for that bug.

`tests.simulation.invariants.test_planted_bugs` has a short world for each bug; here nothing but seeds is chosen.
"""

from __future__ import annotations

import pytest

from tests.simulation.invariants import bugs
from tests.simulation.planted_search import TIMEOUT_S, search

FOUND_BY = [
    (bugs.the_end_of_a_kept_transaction_raises_no_epoch, 26),
    (bugs.a_kept_transaction_begins_anew, 27),
    (bugs.who_keeps_sets_the_time_out, 27),
    (bugs.who_wrote_a_kept_transaction_may_end_it, 27),
    (bugs.markers_of_kept_transactions_have_the_epoch_of_the_data, 28),
    (bugs.a_month_ends_a_two_phase_commit, 29),
    (bugs.prepared_transactions_are_fenced_by_the_pair_that_wrote_them, 30),
    (bugs.expected_pairs_are_compared_by_their_ids_alone, 31),
]

pytestmark = [pytest.mark.long, pytest.mark.timeout(TIMEOUT_S)]


@pytest.mark.parametrize(("bug", "invariant"), FOUND_BY, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant, lambda script: bool(script.two_phase))
