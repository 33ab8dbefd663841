"""Series of clients: the newest value of each, sums of differences, and no more than the bounds."""

from __future__ import annotations

from fencepost.broker.telemetry import client_series
from fencepost.broker.telemetry.client_series import ClientSeries
from fencepost.broker.telemetry.otlp import Point

A, B = b"a", b"b"


def point(name: str, value: float, attributes: str = "", *, is_delta: bool = False) -> Point:
    return Point(name, attributes, value, is_delta)


def test_a_gauge_has_its_newest_value_and_differences_are_added_up() -> None:
    series = ClientSeries()
    for value in (3.0, 5.0):
        series.take(A, point("gauge", value), 10)
        series.take(A, point("sum", value, is_delta=True), 10)
    assert dict(series.of(A)) == {("gauge", ""): 5.0, ("sum", ""): 8.0}


def test_series_of_one_name_differ_by_attributes_and_client() -> None:
    series = ClientSeries()
    for key, attributes in ((A, "topic=x"), (A, "topic=y"), (B, "topic=x")):
        series.take(key, point("g", 1.0, attributes), 10)
    assert (len(series), len(list(series.of(A)))) == (3, 2)


def test_above_the_bound_known_series_stay_current_and_new_ones_are_counted_as_left_out() -> None:
    series = ClientSeries()
    for name in ("one", "two", "three"):
        series.take(A, point(name, 1.0), 2)
    series.take(B, point("one", 1.0), 2)
    series.take(A, point("one", 9.0), 2)
    assert (len(series), series.left_out) == (2, 2)
    assert dict(series.of(A))["one", ""] == 9.0
    series.begin_push(A)
    assert series.left_out == 1


def test_no_client_takes_more_than_its_part() -> None:
    series = ClientSeries()
    for number in range(client_series.MOST_OF_A_CLIENT + 3):
        series.take(A, point(str(number), 1.0), 1_000_000)
    assert (len(series), series.left_out) == (client_series.MOST_OF_A_CLIENT, 3)


def test_series_go_with_their_client_and_leave_room() -> None:
    series = ClientSeries()
    series.take(A, point("one", 1.0), 1)
    series.take(B, point("one", 1.0), 1)
    series.drop(A)
    series.drop(B)
    series.drop(b"unknown")
    assert (len(series), series.left_out, list(series.of(A))) == (0, 0, [])
    series.take(B, point("one", 1.0), 1)
    assert len(series) == 1
