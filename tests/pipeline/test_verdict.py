"""The verdict must see every way in which a pipeline can be wrong, and the data set must be what it counts on."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from scripts.pipeline import verdict
from scripts.pipeline.flights import FLIGHT_COUNT, CarrierDay, read_flights, reference_figures

EXPECTED = {("AA", "2013-01-01"): CarrierDay(2, 10), ("UA", "2013-01-01"): CarrierDay(1, -3)}
COUNTS: dict[str, dict[str, int]] = {
    "read_committed": {
        "departures": 3,
        "departures_flights": 3,
        "arrivals": 3,
        "arrivals_flights": 3,
        "flights": 3,
        "cancelled": 0,
        "torn": 0,
    },
    "read_uncommitted": {
        "departures": 5,
        "departures_flights": 4,
        "arrivals": 4,
        "arrivals_flights": 4,
        "flights": 3,
        "cancelled": 1,
        "torn": 0,
    },
}


def judged(**changes: Any) -> verdict.Verdict:
    written = verdict.Written(EXPECTED, records=4, repeated=0)
    arguments: dict[str, Any] = {"expected": EXPECTED, "written": written, "counts": COUNTS}
    return verdict.check(**{**arguments, **changes}, cancelled_count=1)


def wrong_statements(**changes: Any) -> list[str]:
    found = judged(**changes)
    wrong = [check.statement for check in found.checks if not check.holds]
    assert found.holds is not bool(wrong)
    return wrong


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
def test_any_difference_in_a_figure_is_wrong(figures: verdict.Figures) -> None:
    assert len(wrong_statements(written=verdict.Written(figures, records=4, repeated=0))) == 1


def test_a_figure_that_spark_wrote_twice_is_wrong() -> None:
    found = judged(written=verdict.Written(EXPECTED, records=5, repeated=1))
    assert [check.found for check in found.checks if not check.holds] == ["1 are there twice"]
    assert found.doubled == 1
    assert not found.holds


@pytest.mark.parametrize("topic", ["departures", "arrivals"])
@pytest.mark.parametrize(
    ("level", "events", "flights"),
    [("read_committed", 4, 3), ("read_committed", 2, 2), ("read_uncommitted", 3, 3)],
    ids=["an event twice", "a flight lost", "cancelled flights not in the log"],
)
def test_a_lost_or_repeated_event_is_wrong(topic: str, level: str, events: int, flights: int) -> None:
    counts = copy.deepcopy(COUNTS)
    counts[level] |= {topic: events, f"{topic}_flights": flights}
    assert len(wrong_statements(counts=counts)) == 1


@pytest.mark.parametrize("figure", ["torn", "cancelled"])
def test_a_torn_flight_and_a_cancelled_one_that_is_visible_are_wrong(figure: str) -> None:
    counts = copy.deepcopy(COUNTS)
    counts["read_committed"][figure] = 1
    assert len(wrong_statements(counts=counts)) == 1


def test_the_figures_say_what_was_lost_doubled_torn_and_visible() -> None:
    counts = copy.deepcopy(COUNTS)
    counts["read_committed"] |= {"departures": 4, "arrivals": 7, "flights": 1, "torn": 2, "cancelled": 1}
    found = judged(counts=counts)
    assert (found.lost, found.doubled, found.torn, found.dirty) == (2, 5, 2, 1)


def test_the_data_set_has_the_flights_and_the_cancellations_that_it_is_known_for() -> None:
    flights = list(read_flights())
    assert len(flights) == FLIGHT_COUNT
    assert sum(flight.is_cancelled for flight in flights) == 8_255
    assert sum(figure.flights for figure in reference_figures(flights).values()) == 328_521
