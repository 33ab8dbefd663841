"""Throughput of a cluster in virtual time, with the product's own placement and flushes."""

from __future__ import annotations

import pytest

from fencepost.broker.cluster.tail import tail_log
from scripts.cluster_model import MB, MEASURED
from scripts.cluster_throughput import LOADS, Load, outcome, placed

LARGE, SMALL = LOADS
FEW = SMALL._replace(rounds=10)


@pytest.fixture(scope="module")
def alone() -> float:
    return outcome(1, LARGE).bytes_per_s


@pytest.mark.parametrize("brokers", [2, 4, 8, 16])
def test_brokers_take_at_least_four_fifths_of_their_number_times_the_large_batches_of_one(
    brokers: int, alone: float
) -> None:
    assert outcome(brokers, LARGE).bytes_per_s >= 0.8 * brokers * alone


@pytest.mark.parametrize("brokers", [2, 5, 16])
def test_the_broker_that_leads_the_most_partitions_bounds_them_all(brokers: int, alone: float) -> None:
    found = outcome(brokers, LARGE)
    counts = [len(names) for names in placed(brokers, brokers * LARGE.partitions).values()]
    assert sum(counts) == brokers * LARGE.partitions
    assert found.even == pytest.approx(sum(counts) / brokers / max(counts))
    assert found.bytes_per_s <= 1.1 * brokers * alone * found.even


def test_flushes_beside_each_other_take_more_than_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    one_connection = Load("a producer of large batches", 1_000_000, 1, 30, 8)
    beside = outcome(1, one_connection).bytes_per_s
    monkeypatch.setattr(tail_log, "FLUSHES_UNDER_WAY", 1)
    assert beside >= 1.3 * outcome(1, one_connection).bytes_per_s


def test_small_batches_are_bounded_by_the_one_postgresql() -> None:
    found = outcome(4, FEW)
    assert found.busy > 0.9
    assert found.bytes_per_s < MEASURED.inline_bytes_per_s
    assert found.bytes_per_s > 0.5 * MEASURED.inline_bytes_per_s
    assert MEASURED.inline_bytes_per_s == 45 * MB
