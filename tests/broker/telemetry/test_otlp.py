"""Numbers of pushes are read as clients write them; what is no MetricsData, or too much of it, is refused."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.telemetry.otlp import (
    LONGEST_ATTRIBUTES,
    LONGEST_NAME,
    MOST_FIELDS,
    MOST_FIELDS_OF_A_POINT,
    MOST_FIELDS_OF_AN_ATTRIBUTE,
    OtlpError,
    Point,
    read_points,
)
from tests.support.otlp import CUMULATIVE, attributes, gauge, metrics_data, of_bytes, of_number, point, total

LONGEST_STEP_S = 0.02


def points_of(content: bytes) -> list[Point]:
    return [point for point in read_points(memoryview(content)) if point is not None]


def test_gauges_and_sums_are_read_with_the_attributes_of_their_resource_and_point() -> None:
    content = metrics_data(
        gauge("latency.avg", point(1.5, topic="orders"), point(2, topic="bills")),
        total("sent", point(-3)),
        total("all", point(7), temporality=CUMULATIVE),
        group_id="billing",
    )
    assert points_of(content) == [
        Point("latency.avg", "group_id=billing,topic=orders", 1.5, is_delta=False),
        Point("latency.avg", "group_id=billing,topic=bills", 2.0, is_delta=False),
        Point("sent", "group_id=billing", -3.0, is_delta=True),
        Point("all", "group_id=billing", 7.0, is_delta=False),
    ]


def test_attributes_that_are_no_text_are_shown_as_text() -> None:
    value = b"".join(
        of_bytes(7, of_bytes(1, key) + of_bytes(2, any_value))
        for key, any_value in ((b"number", of_number(3, 2**64 - 5)), (b"flag", of_number(2, 1)))
    )
    (found,) = points_of(metrics_data(gauge("g", point(1) + value)))
    assert found.attributes == "number=-5,flag=true"


def test_histograms_and_unknown_fields_are_passed_over() -> None:
    histogram = of_bytes(1, b"h") + of_bytes(9, of_bytes(1, point(1)))
    content = metrics_data(histogram, gauge("g", point(1) + of_number(8, 1))) + of_number(99, 1)
    assert [found.name for found in points_of(content)] == ["g"]


def test_long_texts_are_cut() -> None:
    (found,) = points_of(metrics_data(gauge("n" * 1_000, point(1, a="b" * 5_000))))
    assert (len(found.name), len(found.attributes)) == (LONGEST_NAME, LONGEST_ATTRIBUTES)


def test_a_label_of_a_hundred_kilobytes_of_control_characters_is_cut() -> None:
    (found,) = points_of(metrics_data(gauge("g", point(1, a="\x00\n\r\x1b" * 25_000))))
    assert found.attributes == ("a=" + "\x00\n\r\x1b" * 200)[:LONGEST_ATTRIBUTES]


@pytest.mark.parametrize(
    "content",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\xff" * 11,
        b"\x0b",
        of_number(1, 1),
        metrics_data(of_bytes(5, of_bytes(1, of_bytes(4, b"short")))),
        metrics_data(gauge("g", point(1) + of_number(9, 1) * MOST_FIELDS_OF_A_POINT)),
        metrics_data(gauge("g", point(1) + attributes(7, {"k": "v"}) * (MOST_FIELDS_OF_A_POINT + 1))),
        metrics_data(gauge("g", point(1) + of_bytes(7, of_number(9, 1) * (MOST_FIELDS_OF_AN_ATTRIBUTE + 1)))),
    ],
    ids=["cut", "too long", "endless", "group", "number", "short number", "wide point", "attributes", "wide attribute"],
)
def test_what_is_no_metrics_data_is_refused(content: bytes) -> None:
    with pytest.raises(OtlpError):
        points_of(content)


def test_a_message_of_very_many_empty_parts_is_refused_in_short_steps() -> None:
    steps = read_points(memoryview(b"\x0a\x00" * (MOST_FIELDS + 1)))
    longest_s = 0.0
    for _ in range(MOST_FIELDS):
        began_s = time.thread_time()
        next(steps)
        longest_s = max(longest_s, time.thread_time() - began_s)
    with pytest.raises(OtlpError, match="more fields"):
        next(steps)
    assert longest_s < LONGEST_STEP_S


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    for begin in (content, metrics_data(content), metrics_data(gauge("g", content))):
        try:
            points_of(begin)
        except OtlpError:
            continue
