"""Distributions of durations."""

from __future__ import annotations

import pytest

from fencepost.broker.metrics.histogram import BUCKETS_COUNT, MILLISECONDS, QUANTILES, Histogram, RecentHistogram


def test_a_duration_is_counted_in_the_first_bucket_that_it_fits() -> None:
    histogram = Histogram(MILLISECONDS)
    for duration_s in (0.0, 0.001, 0.0011, 0.002, 0.003, 1e9):
        histogram.add(duration_s)
    assert histogram.counts[:3] == [2, 2, 1]
    assert histogram.counts[BUCKETS_COUNT] == 1
    assert histogram.cumulative()[:3] == [2, 4, 5]
    assert histogram.cumulative()[-1] == histogram.count == 6
    assert histogram.upper_bounds_s[:2] == [0.001, 0.002]


def test_quantiles_are_exact_to_the_width_of_a_bucket() -> None:
    recent = RecentHistogram()
    recent.add(0.001, 99)
    recent.add(1.0)
    quantiles_s = recent.quantiles_s()
    assert quantiles_s is not None
    by_quantile = dict(zip(QUANTILES, quantiles_s, strict=True))
    assert 0.0005 <= by_quantile[0.5] <= 0.0011
    assert 0.5 <= by_quantile[0.999] <= 1.1


def test_after_two_minutes_a_duration_counts_in_no_quantile_and_in_the_sum_for_ever() -> None:
    recent = RecentHistogram()
    recent.add(0.5)
    recent.turn()
    assert recent.quantiles_s() is not None
    recent.turn()
    assert recent.quantiles_s() is None
    assert (recent.count, recent.total_us) == (1, 500_000)


def test_histograms_are_merged_by_their_ages() -> None:
    one, other = RecentHistogram(), RecentHistogram()
    other.add(0.25, 3)
    other.turn()
    one.merge(other)
    assert (one.count, one.total_us) == (3, 750_000)
    one.turn()
    assert one.quantiles_s() is None


@pytest.mark.parametrize("unit_s", [1e-6, 1e-3])
def test_an_empty_histogram_has_zeros(unit_s: float) -> None:
    assert (Histogram(unit_s).count, Histogram(unit_s).total_s) == (0, 0.0)
