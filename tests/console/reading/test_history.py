"""The last hour in samples: holes are holes, and neither a clock, a new topic nor a lost broker looks like traffic."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest

from fencepost.console.reading.history import (
    ALL,
    HOLE_S,
    MOST_RANKED,
    MOST_WATCHED,
    SAMPLE_S,
    SAMPLES,
    History,
    Point,
    Ring,
    steady_s,
)


@dataclass
class Topic:
    name: str
    topic_id: bytes = b"1"
    is_internal: bool = False


class World:
    """A history whose clock is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.history = History(lambda: self.now_s)

    def sample(self, *topics: tuple[Topic, list[int | None]], after_s: float = SAMPLE_S) -> None:
        self.now_s += after_s
        self.history.add_ends(topics)

    def rates(self, name: str = ALL) -> list[float | None]:
        return [one.value for one in self.history.rates(name)]


@pytest.fixture
def world() -> World:
    return World()


ORDERS = Topic("orders")


def test_records_a_second_are_those_between_two_samples(world: World) -> None:
    world.sample((ORDERS, [100, 0]))
    world.sample((ORDERS, [130, 15]))
    world.sample((ORDERS, [130, 15]))
    assert world.rates() == [None, 3.0, 0.0]
    assert world.rates("orders") == [None, 3.0, 0.0]


def test_samples_are_not_taken_more_often_however_many_look(world: World) -> None:
    for _ in range(100):
        world.sample((ORDERS, [1]), after_s=1)
    assert len(world.rates()) == math.ceil(100 / (SAMPLE_S - 1))


def test_a_topic_that_is_made_again_begins_anew(world: World) -> None:
    world.sample((ORDERS, [1_000_000]))
    world.sample((Topic("orders", b"2"), [5]))
    world.sample((Topic("orders", b"2"), [1_000_000]), after_s=SAMPLE_S)
    world.sample((Topic("orders", b"3"), [2_000_000]))
    assert world.rates() == [None, None, pytest.approx(999_995 / SAMPLE_S), None]


def test_an_end_that_went_back_counts_for_nothing(world: World) -> None:
    for end in (1_000, 10, 25):
        world.sample((ORDERS, [end]))
    assert world.rates() == [None, 0.0, 1.0]


def test_a_partition_that_did_not_answer_comes_back_without_a_peak(world: World) -> None:
    world.sample((ORDERS, [0, 0]))
    world.sample((ORDERS, [15, 15]))
    world.sample((ORDERS, [30, None]))
    world.sample((ORDERS, [45, 45]))
    assert world.rates() == [None, 2.0, 1.0, 2.0]


def test_nothing_is_known_of_the_time_when_nobody_looked(world: World) -> None:
    world.sample((ORDERS, [0]))
    world.sample((ORDERS, [15]))
    world.sample((ORDERS, [900_000]), after_s=HOLE_S + 1)
    world.sample((ORDERS, [900_015]))
    assert world.rates() == [None, 1.0, None, 1.0]


def test_a_deleted_topic_and_internal_ones_are_not_in_the_sum(world: World) -> None:
    internal = Topic("__consumer_offsets", is_internal=True)
    world.sample((ORDERS, [0]), (internal, [0]), (Topic("gone"), [0]))
    world.sample((ORDERS, [15]), (internal, [150]))
    assert world.rates() == [None, 1.0]
    assert world.rates("__consumer_offsets")[-1] == 10.0


def test_only_the_last_hour_is_kept(world: World) -> None:
    for number in range(3 * SAMPLES):
        world.sample((ORDERS, [15 * number]))
    points = world.history.rates()
    assert len(points) == SAMPLES
    assert points[-1] == Point(0.0, 1.0)
    world.now_s += 3_599
    assert len(world.history.rates()) == 1


def test_memory_is_bounded_and_the_busiest_and_those_looked_at_stay(world: World) -> None:
    names = [f"topic-{number}" for number in range(1_000)]
    for turn in range(5):
        if turn == 1:
            for name in names[:MOST_WATCHED]:
                world.history.rates(name)
        ends: list[tuple[Topic, list[int | None]]] = [(Topic(name), [turn * index]) for index, name in enumerate(names)]
        world.sample(*ends)
    assert world.rates(names[999])[-1] == pytest.approx(999 / SAMPLE_S)
    assert world.rates(names[3])[-1] == pytest.approx(3 / SAMPLE_S)
    assert len(world.history._rates) <= 1 + MOST_RANKED + MOST_WATCHED + 1


def test_a_hundred_thousand_looks_at_topics_do_not_grow_it() -> None:
    ring = Ring()
    for number in range(2_000):
        ring.watch(f"topic-{number}", float(number))
        ring.add(float(number), {}, None)
    assert len(ring) <= 1 + MOST_RANKED + MOST_WATCHED


def test_lag_is_summed_over_groups_that_have_one(world: World) -> None:
    world.history.lags("readers")
    world.history.add_lags({"readers": 7, "audit": 3, "new": None})
    assert [one.value for one in world.history.lags()] == [10.0]
    assert [one.value for one in world.history.lags("readers")] == [7.0]
    assert [one.value for one in world.history.lags("new")] == [None]


def test_the_clock_only_goes_on() -> None:
    assert steady_s() <= steady_s()
