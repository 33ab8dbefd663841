"""Metric families and their samples as text."""

from __future__ import annotations

from fencepost.broker.metrics.family import (
    Family,
    Kind,
    Sample,
    escaped,
    histogram_samples,
    label_text,
    summary_samples,
)
from fencepost.broker.metrics.histogram import Histogram, RecentHistogram


def test_values_of_labels_are_escaped() -> None:
    assert label_text(("topic", "partition"), ('a"\\\n', 3)) == 'topic="a\\"\\\\\\n",partition="3"'
    assert escaped("\ud800") == "?"


def test_a_counter_loses_its_suffix_in_openmetrics_and_a_gauge_does_not() -> None:
    names = [Family("x_total", kind, "help", (), lambda _: iter(())).openmetrics_name for kind in Kind]
    assert names == ["x", "x_total", "x_total", "x_total"]


def test_a_histogram_ends_with_infinity_sum_and_count() -> None:
    histogram = Histogram()
    histogram.add(0.5)
    samples = list(histogram_samples('a="b"', histogram))
    assert samples[-3:] == [
        Sample('a="b",le="+Inf"', 1, "_bucket"),
        Sample('a="b"', 0.5, "_sum"),
        Sample('a="b"', 1, "_count"),
    ]


def test_a_summary_without_recent_durations_has_no_quantiles() -> None:
    recent = RecentHistogram()
    assert [sample.suffix for sample in summary_samples("", recent, (0.5,)) if sample] == ["_sum", "_count"]
    recent.add(0.004)
    first = next(summary_samples("", recent, (0.5,)))
    assert first is not None
    assert first.labels == 'quantile="0.5"'
    assert 2 <= first.value <= 4.1
