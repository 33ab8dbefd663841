"""The verdict must see every way in which a pipeline can be wrong, and the data set must be what it counts on."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from scripts.pipeline import verdict
from scripts.pipeline.flights import FLIGHT_COUNT, CarrierDay, read_flights, reference_figures

EXPECTED = {("AA", "2013-01-01"): CarrierDay(2, 10), ("UA", "2013-01-01"): CarrierDay(1, -3)}
COUNTS = {
    "read_committed": {"departures": {"events": 3, "flights": 3}, "arrivals": {"events": 3, "flights": 3}},
    "read_uncommitted": {"departures": {"events": 5, "flights": 4}, "arrivals": {"events": 4, "flights": 4}},
}


def wrong_statements(**changes: Any) -> list[str]:
    arguments: dict[str, Any] = {"expected": EXPECTED, "parquet": EXPECTED, "topic": EXPECTED, "counts": COUNTS}
    checks = verdict.check(**{**arguments, **changes}, cancelled_count=1)
    return [check.statement for check in checks if not check.holds]


def test_a_correct_result_passes() -> None:
    assert wrong_statements() == []


@pytest.mark.parametrize(
    "figures",
    [
        {**EXPECTED, ("AA", "2013-01-01"): CarrierDay(3, 10)},
        {**EXPECTED, ("AA", "2013-01-01"): CarrierDay(2, 11)},
        {**EXPECTED, ("B6", "2013-01-01"): CarrierDay(1, 1)},
        {("AA", "2013-01-01"): CarrierDay(2, 10)},
    ],
    ids=["a flight too many", "another delay", "a carrier too many", "a carrier missing"],
)
@pytest.mark.parametrize("result", ["parquet", "topic"])
def test_any_difference_in_a_figure_is_wrong(result: str, figures: verdict.Figures) -> None:
    assert len(wrong_statements(**{result: figures})) == 1


@pytest.mark.parametrize("topic", ["departures", "arrivals"])
@pytest.mark.parametrize(
    ("level", "found"),
    [
        ("read_committed", {"events": 4, "flights": 3}),
        ("read_committed", {"events": 2, "flights": 2}),
        ("read_uncommitted", {"events": 3, "flights": 3}),
    ],
    ids=["an event twice", "a flight lost", "cancelled flights not in the log"],
)
def test_a_lost_or_repeated_event_is_wrong(topic: str, level: str, found: dict[str, int]) -> None:
    counts = copy.deepcopy(COUNTS)
    counts[level][topic] = found
    assert len(wrong_statements(counts=counts)) == 1


def test_the_data_set_has_the_flights_and_the_cancellations_that_it_is_known_for() -> None:
    flights = list(read_flights())
    assert len(flights) == FLIGHT_COUNT
    assert sum(flight.is_cancelled for flight in flights) == 8_255
    assert sum(figure.flights for figure in reference_figures(flights).values()) == 328_521
