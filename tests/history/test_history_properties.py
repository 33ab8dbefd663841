"""Whatever a correct Kafka does is no anomaly; made wrong in one respect, it is exactly that anomaly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.history.checker import check_history
from fencepost.history.findings import Anomaly
from tests.history.history_mutations import MUTATIONS, MutableHistory, Mutation
from tests.history.reference_kafka import ReferenceKafka

SEEDS = st.integers(0, 2**32 - 1)
SEEDS_TRIED = 200


@given(seed=SEEDS, step_count=st.integers(0, 600))
@settings(deadline=None, max_examples=60)
def test_a_legal_history_has_no_anomaly(seed: int, step_count: int) -> None:
    report = check_history(ReferenceKafka(seed, step_count).lines)
    assert report.is_valid, report.text()


def mutated(mutate: Mutation, seed: int, step_count: int) -> MutableHistory:
    """The first history from a seed on that has a place for the mistake."""
    for offset in range(SEEDS_TRIED):
        mutable = MutableHistory(ReferenceKafka(seed + offset, step_count).lines, seed)
        if mutate(mutable):
            return mutable
    pytest.fail(f"{SEEDS_TRIED} histories had no place for it")


@pytest.mark.parametrize(("mutate", "anomaly"), MUTATIONS, ids=[mutate.__name__ for mutate, _ in MUTATIONS])
@given(seed=SEEDS, step_count=st.integers(200, 500))
@settings(deadline=None, max_examples=8)
def test_a_legal_history_made_wrong_in_one_respect_has_exactly_that_anomaly(
    mutate: Mutation, anomaly: Anomaly, seed: int, step_count: int
) -> None:
    report = check_history(mutated(mutate, seed, step_count).encoded())
    assert dict(report.anomaly_counts) == {anomaly: 1}, report.text()
    assert 1 <= len(report.findings[0].proofs) <= 8
