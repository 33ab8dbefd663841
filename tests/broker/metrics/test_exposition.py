"""The text of a scrape, read by the parsers of prometheus_client."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from fencepost.broker.metrics.exposition import exposition, is_openmetrics_wanted
from fencepost.broker.metrics.family import Family, Kind, Sample, histogram_samples, label_text, summary_samples
from fencepost.broker.metrics.histogram import QUANTILES, Histogram, RecentHistogram


class NoScrape:
    """A scrape of families that need nothing of a node."""

    def __init__(self, *, has_too_many_partitions: bool = False) -> None:
        self.notes: list[str] = []
        self.has_too_many_partitions = has_too_many_partitions


def text_of(*families: Family, is_openmetrics: bool, scrape: NoScrape | None = None) -> str:
    return "".join(exposition(families, cast("Any", scrape or NoScrape()), is_openmetrics=is_openmetrics))


def samples_of(text: str, *, is_openmetrics: bool) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    read = read_openmetrics if is_openmetrics else read_text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(text)
        for sample in family.samples
    }


def family(name: str, kind: Kind, *samples: Sample | None, help_text: str = "Of a test.") -> Family:
    return Family(name, kind, help_text, (), lambda _: iter(samples))


@pytest.mark.parametrize("is_openmetrics", [False, True])
@given(
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    st.integers(0, 2**62) | st.floats(allow_nan=False),
)
def test_labels_and_values_are_read_back(is_openmetrics: bool, first: str, second: str, value: float) -> None:
    shown = family("tested", Kind.GAUGE, Sample(label_text(("first", "second"), (first, second)), value))
    text = text_of(shown, is_openmetrics=is_openmetrics)
    expected = (("first", first), ("second", second))
    assert samples_of(text, is_openmetrics=is_openmetrics) == {("tested", expected): pytest.approx(float(value))}


def test_what_no_text_can_have_is_replaced() -> None:
    text = text_of(family("tested", Kind.GAUGE, Sample(label_text(("name",), ("\udcff",)), 1)), is_openmetrics=False)
    assert text.encode()
    assert list(samples_of(text, is_openmetrics=False)) == [("tested", (("name", "?"),))]


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_numbers_that_are_none_are_written_as_prometheus_reads_them(is_openmetrics: bool) -> None:
    values = (math.inf, -math.inf, math.nan)
    shown = [family(f"tested_{number}", Kind.GAUGE, Sample("", value)) for number, value in enumerate(values)]
    read = list(samples_of(text_of(*shown, is_openmetrics=is_openmetrics), is_openmetrics=is_openmetrics).values())
    assert read[:2] == [math.inf, -math.inf]
    assert math.isnan(read[2])


@pytest.mark.parametrize("is_openmetrics", [False, True])
def test_each_kind_of_family_is_read_as_that_kind(is_openmetrics: bool) -> None:
    histogram, recent = Histogram(), RecentHistogram()
    for one in (histogram, recent):
        one.add(0.003, 2)
    shown = [
        family("a_total", Kind.COUNTER, Sample('topic="x"', 3)),
        family("b", Kind.GAUGE, Sample("", -1.5), help_text="With a \\ and\na line."),
        Family("c", Kind.HISTOGRAM, "Of a test.", ("le",), lambda _: histogram_samples("", histogram)),
        Family("d", Kind.SUMMARY, "Of a test.", (), lambda _: summary_samples('request="x"', recent, QUANTILES)),
    ]
    text = text_of(*shown, is_openmetrics=is_openmetrics)
    read = list((read_openmetrics if is_openmetrics else read_text)(text))
    assert [(one.name, one.type) for one in read] == [
        ("a", "counter"),
        ("b", "gauge"),
        ("c", "histogram"),
        ("d", "summary"),
    ]
    assert text.endswith("# EOF\n") is is_openmetrics
    buckets = {sample.labels.get("le"): sample.value for sample in read[2].samples if sample.name == "c_bucket"}
    assert (buckets["0.002048"], buckets["0.004096"], buckets["+Inf"]) == (0, 2, 2)
    assert [sample.value for sample in read[3].samples if sample.name == "d_count"] == [2]


def test_a_family_without_samples_is_left_out() -> None:
    assert text_of(family("tested", Kind.GAUGE, None, None), is_openmetrics=False) == ""


def test_families_for_each_partition_are_left_out_where_there_are_too_many() -> None:
    shown = Family("tested", Kind.GAUGE, "Of a test.", (), lambda _: iter((Sample("", 1),)), is_per_partition=True)
    scrape = NoScrape(has_too_many_partitions=True)
    scrape.notes.append("left out: much")
    assert text_of(shown, is_openmetrics=True, scrape=scrape) == "# left out: much\n# EOF\n"
    assert text_of(shown, is_openmetrics=True, scrape=scrape)


def test_a_large_family_is_written_in_pieces_of_a_hundred_samples() -> None:
    def many(_: object) -> Iterator[Sample]:
        for number in range(1_000):
            yield Sample(f'number="{number}"', number)

    shown = Family("tested", Kind.GAUGE, "Of a test.", ("number",), many)
    pieces = list(exposition((shown,), cast("Any", NoScrape()), is_openmetrics=False))
    assert max(piece.count("\n") for piece in pieces) <= 102
    assert len(samples_of("".join(pieces), is_openmetrics=False)) == 1_000


@pytest.mark.parametrize(
    ("accept", "is_wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5", True),
        ("application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", True),
        ("text/plain;version=0.0.4;q=0.9, application/openmetrics-text; q=0.2", False),
        ("application/openmetrics-text; q=0", False),
        ("Application/OpenMetrics-Text", True),
        ("application/openmetrics-text; q=x", False),
    ],
)
def test_the_format_is_chosen_by_the_accept_header(accept: str, is_wanted: bool) -> None:
    assert is_openmetrics_wanted(accept) is is_wanted


@given(st.lists(st.floats(0, 20, allow_nan=False), min_size=1))
def test_a_histogram_counts_each_duration_once_in_the_right_bucket(durations: list[float]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    for bound, count in zip(histogram.upper_bounds_s, histogram.cumulative(), strict=False):
        within = sum(duration <= bound * (1 + 1e-9) for duration in durations)
        assert sum(duration <= bound * (1 - 1e-9) for duration in durations) <= count <= within
    assert histogram.count == len(durations)
    assert histogram.total_s == pytest.approx(sum(durations))


@given(st.lists(st.floats(1e-6, 8, allow_nan=False), min_size=1, max_size=200))
def test_quantiles_are_exact_to_the_width_of_a_bucket(durations: list[float]) -> None:
    recent = RecentHistogram()
    for duration in durations:
        recent.add(duration)
    found = recent.quantiles_s()
    assert found is not None
    ordered = sorted(durations)
    for quantile, value in zip(QUANTILES, found, strict=True):
        exact = ordered[min(len(ordered) - 1, max(0, math.ceil(quantile * len(ordered)) - 1))]
        assert exact / 2.01 <= value <= exact * 2.01


def test_quantiles_forget_what_is_older_than_two_minutes() -> None:
    recent = RecentHistogram()
    recent.add(0.5)
    recent.turn()
    assert recent.quantiles_s() is not None
    recent.turn()
    assert recent.quantiles_s() is None
    assert recent.count == 1
