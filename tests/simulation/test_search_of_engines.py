"""The search finds what is planted in flushes, seals, restores and leases of brokers on an engine, in worlds that
chance made and not for that bug.
"""

from __future__ import annotations

import pytest

from tests.simulation.invariants import bugs, engine_bugs
from tests.simulation.planted_search import TIMEOUT_S, search
from tests.simulation.script import Script

FOUND_SOON = [
    (engine_bugs.flushes_count_as_committed_when_they_are_sent, 42),
    (engine_bugs.a_lease_lasts_for_ever, 47),
    (engine_bugs.nothing_is_rolled_for_the_budget, 49),
]
"""In one of the first few worlds."""

FOUND = [
    (engine_bugs.a_flush_looks_at_its_fence_when_it_arrives, 39),
    (engine_bugs.a_flush_without_an_answer_counts_as_committed, 40),
    (engine_bugs.a_seal_removes_one_row_too_many, 40),
    (engine_bugs.flushes_count_as_committed_when_they_are_sent, 41),
    (engine_bugs.a_sealed_segment_has_the_epoch_of_who_seals_it, 43),
    (engine_bugs.an_upload_that_failed_counts, 44),
    (engine_bugs.objects_of_flushes_count_as_orphans, 45),
    (bugs.snapshots_lose_a_producer, 46),
    (engine_bugs.a_topic_lacks_the_row_of_a_partition, 48),
]


def _is_on_an_engine(script: Script) -> bool:
    return script.engine is not None


@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("bug", "invariant"), FOUND_SOON, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug_soon(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant, _is_on_an_engine)


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.parametrize(("bug", "invariant"), FOUND, ids=lambda value: getattr(value, "__name__", str(value)))
def test_the_search_finds_a_planted_bug(bug: bugs.Bug, invariant: int) -> None:
    search(bug, invariant, _is_on_an_engine)
